"""Define the answers of the server; OpenAPI and the API reference are generated from them.

Pydantic evaluates annotations when the classes are defined, which rules out ``from __future__
import annotations``.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class ErrorDetail(BaseModel):
    message: str = Field(description="one line that says what to do")
    type: str
    param: str | None = Field(description="the key of the request that is at fault")
    code: str = Field(description="the status of HTTP")


class Error(BaseModel):
    """Every error of the server."""

    error: ErrorDetail


Probability = Annotated[float, Field(ge=0, le=1)]
PiecesCut = Annotated[
    int, Field(ge=0, description="pieces cut off to keep to the model's maximum length")
]


class AnswerSchema(BaseModel):
    model_config = ConfigDict(extra="forbid")
    pieces_cut: PiecesCut
    unknown: Probability | None = Field(
        None,
        description="where the vocabulary does not know most of the text, so that the answer says "
        "next to nothing: the share of its pieces that it does not know",
    )
    empty: Literal[True] | None = Field(
        None, description="where there is no text, and so no answer: what is answered is null"
    )


class LabelAnswer(AnswerSchema):
    """Task `text`: the most probable label of a text or a pair of texts."""

    label: str | None = Field(
        description="null: its probability is below the server's bound, or no answer costs less"
    )
    probability: Probability | None
    label_set: list[str] | None = Field(
        None, description="where the server gives sets: the labels of one, the most probable first"
    )
    probabilities: dict[str, Probability] | None = None


class ScoreAnswer(AnswerSchema):
    """Task `regression`: a number."""

    score: float | None


class LabelsAnswer(AnswerSchema):
    """Task `multi-label`: every label that reaches the threshold."""

    labels: list[str] | None
    probabilities: dict[str, Probability] | None


class ChoiceAnswer(AnswerSchema):
    """Task `choice`: the number of the most probable choice, from 0 on, and its label."""

    choice: int | None = Field(
        ge=0, description="null: its probability is below the server's bound"
    )
    label: str | None = Field(
        description="the choice as the training file writes it: its column, or its number"
    )
    probability: Probability | None
    label_set: list[str] | None = Field(
        None, description="where the server gives sets: the choices of one, as `label`"
    )
    probabilities: list[Probability] | None = None


class BestAnswer(BaseModel):
    model_config = ConfigDict(extra="forbid")
    answer: str
    start: int | None = Field(description="first character, in the context")
    end: int | None = Field(description="the character after the last")
    probability: Probability


class SpansAnswer(AnswerSchema):
    """Task `spans`: the part of the context that answers the question; "" where it has no
    answer."""

    answer: str | None = Field(description="null: its probability is below the server's bound")
    start: int | None = Field(description="first character, in the context; null: no answer")
    end: int | None = Field(description="the character after the last")
    probability: Probability | None
    null_odds: float | None
    n_best: list[BestAnswer] | None = None


class EntityAnswer(BaseModel):
    model_config = ConfigDict(extra="forbid")
    type: str
    text: str
    start: int | None = Field(None, description="first character, in a text")
    end: int | None = Field(None, description="the character after the last")
    first_word: int | None = Field(None, description="in a list of words")
    end_word: int | None = Field(None, description="the word after the last")
    probability: Probability = Field(description="of its least certain tag")


class Word(BaseModel):
    model_config = ConfigDict(extra="forbid")
    word: str
    tag: str
    probability: Probability
    start: int | None
    end: int | None


class TagsAnswer(AnswerSchema):
    """Task `tagging`: a tag for each word, and the entities that the tags mark."""

    tags: list[str]
    entities: list[EntityAnswer]
    words: list[Word] | None = None


class TextAnswer(AnswerSchema):
    """Task `seq2seq`: the generated text."""

    text: str | None


class Predictions(BaseModel):
    model: str
    task: str
    predictions: list[
        LabelAnswer
        | ScoreAnswer
        | LabelsAnswer
        | ChoiceAnswer
        | SpansAnswer
        | TagsAnswer
        | TextAnswer
    ] = Field(description="one for each text, in their order")


class VectorsAnswer(BaseModel):
    model: str
    dimensions: int
    vectors: list[list[float]] = Field(description="one for each text, in their order")
    pieces_cut: list[int] = Field(
        description="of each text, to keep to the maximum length of the model's vectors"
    )
    unknown: list[Probability] | None = Field(
        None,
        description="where the vocabulary does not know most of a text: of each text the share of "
        "its pieces that it does not know, 0 where it knows most of them",
    )
    empty: list[bool] | None = Field(
        None, description="where a text is empty: whether each is; its vector says nothing then"
    )


class MaskCandidate(BaseModel):
    token: str
    id: int = Field(description="in the model's vocabulary")
    probability: Probability


class MaskAnswer(BaseModel):
    start: int = Field(description="first character of the mask, in the text")
    end: int = Field(description="the character after the last")
    candidates: list[MaskCandidate] = Field(description="the most probable first")


class FilledText(BaseModel):
    text: str
    masks: list[MaskAnswer]


class FillMaskAnswer(BaseModel):
    model: str
    filled: list[FilledText] = Field(description="one for each text, in their order")


class Token(BaseModel):
    token: str
    part: Literal[0, 1] = Field(description="1: of the second text")
    start: int = Field(description="first character, in its text; 0 for special tokens")
    end: int = Field(description="the character after the last")


class ExplainedWord(BaseModel):
    word: str
    part: int = Field(ge=0, description="the number of the text it stands in: 1 for the second")
    start: int = Field(description="first character, in its text")
    end: int = Field(description="the character after the last")
    contribution: float = Field(
        description="to the score: above 0 the word speaks for the answer, below 0 against it"
    )


class NearExample(BaseModel):
    label: str
    similarity: float = Field(description="the cosine of what the head reads of it and the text")
    texts: list[str] = Field(description="of the example, each at most 200 characters")
    file: str
    line: int = Field(description="of the file; 0: not known")


class ExplanationAnswer(BaseModel):
    model: str
    answer: str = Field(description="what the words speak for or against")
    probability: Probability | None = Field(
        description="of the answer; null for numbers, spans and the tags of several words"
    )
    method: Literal["leave-one-out", "integrated-gradients"]
    unit: Literal["log-odds", "score"] = Field(description="of the contributions and scores")
    score: float
    baseline: float | None = Field(
        description="the score with every word masked; null with leave-one-out"
    )
    error: float | None = Field(
        description="the sum of the contributions less the difference of score and baseline"
    )
    words: list[ExplainedWord] = Field(description="in their order")
    nearest: list[NearExample] = Field(
        [], description="the nearest labelled examples, where the server was started to show them"
    )
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
    max_length: int | None = Field(description="tokens of an input; null: any number")
    long_text: str = Field(description="what is read of a longer text: its head, tail, …")
    example: str | list[str] = Field(description="a text for `texts` of /predict, to try it with")
    mask: str = Field(description="what hides a word in a text of /fill-mask; empty: it fills none")
    dimensions: int
    prompts: list[str] = Field(description="names for `prompt_name` of /embed")
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


class CohereEmbeddings(BaseModel):
    """Vectors in the format of Cohere's clients."""

    id: str
    texts: list[str]
    embeddings: list[list[float]] | dict[str, list[list[float]] | list[str]] = Field(
        description="where types are asked for, and in version 2: under their names"
    )
    response_type: Literal["embeddings_floats", "embeddings_by_type"]
    meta: dict[str, Any]


class RankedDocument(BaseModel):
    index: int = Field(description="in the request, from 0 on")
    relevance_score: float = Field(
        description="probability of the label, number of a regression, or cosine of the vectors"
    )
    document: dict[str, Any] | None = None
    pieces_cut: PiecesCut


class RerankUsage(BaseModel):
    total_tokens: int


class RerankAnswer(BaseModel):
    """The documents, best first, in the format of the clients of Cohere's and Jina's rerank;
    without empty ones where vectors are compared."""

    model: str
    results: list[RankedDocument]
    usage: RerankUsage


class RankedText(BaseModel):
    """A text with its score, in the format of the clients of Text Embeddings Inference."""

    index: int
    score: float
    text: str | None = None


class LabelScore(BaseModel):
    """A label, in the format of the clients of Text Embeddings Inference."""

    label: str
    score: float = Field(description="its probability; of a regression the number")


class Status(BaseModel):
    status: Literal["ok", "ready"]
