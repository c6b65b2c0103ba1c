"""What requests and answers look like; the OpenAPI page is made of this.

The requests are made for a server, so that its bounds stand in its OpenAPI. Annotations are looked
at when the classes are made, which rules out ``from __future__ import annotations``.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic_core import PydanticCustomError

from bertine.serving.limits import Limits


class Strict(BaseModel):
    """A request: unknown keys are mistakes, and nothing is converted."""

    model_config = ConfigDict(extra="forbid", strict=True)


class ErrorDetail(BaseModel):
    message: str = Field(description="one line that says what to do")
    type: str
    param: str | None = Field(description="the key of the request that is at fault")
    code: str = Field(description="the status of HTTP")


class Error(BaseModel):
    """Every answer that is an error."""

    error: ErrorDetail


Probability = Annotated[float, Field(ge=0, le=1)]
PiecesCut = Annotated[
    int, Field(ge=0, description="pieces cut off to keep to the model's maximum length")
]


class Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")
    pieces_cut: PiecesCut


class LabelAnswer(Answer):
    """Classification."""

    label: str
    probability: Probability
    probabilities: dict[str, Probability] | None = None


class ScoreAnswer(Answer):
    """Regression."""

    score: float


class LabelsAnswer(Answer):
    """Many labels: those that reach the threshold."""

    labels: list[str]
    probabilities: dict[str, Probability]


class ChoiceAnswer(Answer):
    """Multiple choice: the number of the choice, from 0 on."""

    choice: int = Field(ge=0)
    probability: Probability
    probabilities: list[Probability] | None = None


class Span(BaseModel):
    model_config = ConfigDict(extra="forbid")
    answer: str
    begin: int | None
    end: int | None
    probability: Probability


class SpanAnswer(Answer):
    """A part of the context, by characters; "" says that it has no answer."""

    answer: str
    begin: int | None = Field(description="of the context; null where there is no answer")
    end: int | None
    probability: Probability
    null_odds: float | None
    n_best: list[Span] | None = None


class Entity(BaseModel):
    model_config = ConfigDict(extra="forbid")
    type: str
    text: str
    begin: int | None = Field(None, description="character of the text; of a list: first_word")
    end: int | None = None
    first_word: int | None = None
    end_word: int | None = None


class Word(BaseModel):
    model_config = ConfigDict(extra="forbid")
    word: str
    tag: str
    probability: Probability
    begin: int | None
    end: int | None


class TagsAnswer(Answer):
    """Tagging: a tag for each word, and the entities that they mark."""

    tags: list[str]
    entities: list[Entity]
    words: list[Word] | None = None


class Predictions(BaseModel):
    model: str
    task: str
    predictions: list[
        LabelAnswer | ScoreAnswer | LabelsAnswer | ChoiceAnswer | SpanAnswer | TagsAnswer
    ] = Field(description="one for each text, in their order")


class Embeddings(BaseModel):
    model: str
    dimensions: int
    vectors: list[list[float]] = Field(description="one for each text, in their order")
    pieces_cut: list[int] = Field(
        description="of each text, to keep to the maximum length of the model's vectors"
    )


class Candidate(BaseModel):
    token: str
    probability: Probability


class FilledMask(BaseModel):
    begin: int = Field(description="character of the text")
    candidates: list[Candidate] = Field(description="the most probable first")


class FilledText(BaseModel):
    text: str
    masks: list[FilledMask]


class FilledMasks(BaseModel):
    model: str
    filled: list[FilledText] = Field(description="one for each text, in their order")


class Token(BaseModel):
    token: str
    part: Literal[0, 1] = Field(description="1: of the second text")
    begin: int = Field(description="character of the text; 0 of [CLS] and [SEP]")
    end: int


class Explanation(BaseModel):
    model: str
    answer: str = Field(description="what the scores speak for or against")
    tokens: list[Token]
    scores: list[float] = Field(description="gradient times input, of each token")
    pieces_cut: PiecesCut


class Attention(BaseModel):
    model: str
    tokens: list[Token]
    attention: list[list[Probability]] = Field(
        description="row: the token that looks; column: where it looks; a row sums to 1"
    )
    pieces_cut: PiecesCut


class ModelInfo(BaseModel):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    task: str
    operations: list[str]
    labels: list[str]
    text_columns: list[str] = Field(description="what the parts of a text are")
    max_choices: int
    max_length: int
    long_text: str = Field(description="what is read of a longer text: its head, tail, …")
    dimensions: int
    layers: int
    heads: int


class Models(BaseModel):
    object: Literal["list"]
    data: list[ModelInfo]


class OpenAiVector(BaseModel):
    object: Literal["embedding"]
    index: int
    embedding: list[float] | str = Field(description="a string is base64 of little-endian fp32")


class Usage(BaseModel):
    prompt_tokens: int
    total_tokens: int


class OpenAiEmbeddings(BaseModel):
    object: Literal["list"]
    data: list[OpenAiVector]
    model: str
    usage: Usage


class Status(BaseModel):
    status: Literal["ok", "ready"]


@dataclass(frozen=True)
class Requests:
    """The requests of a server, with its bounds: classes of pydantic."""

    predict: Any
    embed: Any
    fill_mask: Any
    explain: Any
    attention: Any
    openai: Any


def request_schemas(limits: Limits) -> Requests:
    """The requests that keep to `limits`."""
    Text = Annotated[str, Field(max_length=limits.max_characters)]
    ShortText = Annotated[str, Field(max_length=limits.explain_characters)]
    # The first mistake in a list ends it: a body of a megabyte can hold half a million of them,
    # which take seconds, and hundreds of megabytes, to list.
    Texts = Annotated[list[Text], Field(min_length=1, max_length=limits.max_texts, fail_fast=True)]
    Parts = Annotated[
        list[Text], Field(min_length=1, max_length=limits.max_characters, fail_fast=True)
    ]
    Model = Annotated[
        str | None, Field(max_length=256, description="null: the first that does this")
    ]

    class PredictRequest(Strict):
        """Texts to predict. A text is a string, or a list of its parts: two texts of a model for
        pairs, question and context, what is given and the choices, or the words of a sentence."""

        texts: Annotated[
            list[Text | Parts], Field(min_length=1, max_length=limits.max_texts, fail_fast=True)
        ]
        model: Model = None
        all_probabilities: bool = Field(
            False, description="also of what was not chosen; of spans n_best; of tags the words"
        )

    class EmbedRequest(Strict):
        """Texts to make vectors of."""

        texts: Texts
        model: Model = None
        normalize: bool = Field(False, description="to length 1")

    class FillMaskRequest(Strict):
        """Texts with [MASK] in them."""

        texts: Texts
        model: Model = None
        top_k: int = Field(5, ge=1, le=limits.max_top_k)

    class ExplainRequest(Strict):
        """A text, or two, whose answer is explained."""

        text: ShortText
        pair: ShortText | None = None
        model: Model = None

    class AttentionRequest(ExplainRequest):
        """A text, or two, and whose attention to show."""

        layer: int = Field(0, ge=0, le=1000)
        head: int = Field(0, ge=0, le=1000)

    class OpenAiRequest(BaseModel):
        """As the clients of OpenAI's embeddings send it; keys that are not here do not count.
        Token ids are not taken."""

        model_config = ConfigDict(extra="ignore", strict=True)
        input: Text | Texts
        model: str = Field(max_length=256)
        # Null is what LiteLLM sends where its user has said nothing; to OpenAI it is "float".
        encoding_format: Literal["float", "base64"] | None = "float"
        dimensions: int | None = Field(None, ge=1, le=1 << 20)
        user: str | None = None

        @field_validator("input", mode="before")
        @classmethod
        def _no_token_ids(cls, given: Any) -> Any:
            """LangChain sends those of OpenAI's tokenizer, of which no model here could make
            anything."""
            first = given[0] if isinstance(given, list) and given else None
            first = first[0] if isinstance(first, list) and first else first
            if isinstance(first, int) and not isinstance(first, bool):
                raise PydanticCustomError(
                    "token_ids",
                    "token ids are not taken; send texts (LangChain: "
                    "check_embedding_ctx_length=False)",
                )
            return given

    return Requests(
        PredictRequest,
        EmbedRequest,
        FillMaskRequest,
        ExplainRequest,
        AttentionRequest,
        OpenAiRequest,
    )
