"""Describe what the server takes, within its bounds; OpenAPI is made of this.

Pydantic reads annotations when the classes are made, which rules out
``from __future__ import annotations``.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator
from pydantic_core import PydanticCustomError

from bertine.names import ExplanationMethod
from bertine.serving.http.limits import Limits

#: What texts may be, in the words of Cohere and NVIDIA: models have prompts for some of it.
InputType = Literal[
    "query",
    "search_query",
    "passage",
    "document",
    "search_document",
    "classification",
    "clustering",
]
#: Of the texts of one example by name; no model takes as many.
_MOST_KEYS = 64


class Strict(BaseModel):
    """A request: unknown keys are mistakes, and nothing is converted."""

    model_config = ConfigDict(extra="forbid", strict=True)


def _of_few_keys(value: Any) -> Any:
    """Refuse an object of very many keys, before each of them is a mistake of its own."""
    if isinstance(value, dict) and len(value) > _MOST_KEYS:
        raise PydanticCustomError("many_keys", f"has more than {_MOST_KEYS} keys")
    return value


@dataclass(frozen=True)
class Requests:
    """The requests of a server, with its bounds: classes of pydantic."""

    predict: Any
    embed: Any
    fill_mask: Any
    explain: Any
    attention: Any
    openai: Any
    cohere: Any
    rerank: Any
    inference: Any


def request_schemas(limits: Limits) -> Requests:
    """Make the requests that keep to `limits`."""
    Text = Annotated[str, Field(max_length=limits.max_characters)]
    ShortText = Annotated[str, Field(max_length=limits.explain_characters)]
    # The first mistake in a list ends it: a body of a megabyte can hold half a million of them,
    # which take seconds, and hundreds of megabytes, to list.
    Texts = Annotated[list[Text], Field(min_length=1, max_length=limits.max_texts, fail_fast=True)]
    Inputs = Annotated[
        list[Text], Field(min_length=1, max_length=limits.max_embedding_inputs, fail_fast=True)
    ]
    Parts = Annotated[
        list[Text], Field(min_length=1, max_length=limits.max_characters, fail_fast=True)
    ]
    Named = Annotated[
        dict[Annotated[str, Field(max_length=256)], Text],
        BeforeValidator(_of_few_keys),
        Field(min_length=1),
    ]
    Model = Annotated[
        str | None, Field(max_length=256, description="null: the first that does this")
    ]

    Dimensions = Annotated[
        int | None,
        Field(
            ge=1,
            le=1 << 20,
            description="keep so many of a vector's first numbers, for models that are trained for "
            "it; null: all",
        ),
    ]

    Truncate = Annotated[
        bool | None, Field(description="false: a text that is too long is an error; else it is cut")
    ]
    Direction = Annotated[
        Literal["right", "Right"] | None, Field(description="where a text is cut: at its end")
    ]
    PromptName = Annotated[
        str | None,
        Field(
            max_length=256,
            description="one of the model's prompts (`prompts` in /v1/models), put before every "
            "text; empty: none; null: its default",
        ),
    ]

    Pair = Annotated[list[Text], Field(min_length=1, max_length=2)]
    TextsOrPairs = (
        Text
        | Annotated[
            list[Text | Pair], Field(min_length=1, max_length=limits.max_texts, fail_fast=True)
        ]
    )

    class PredictRequest(Strict):
        """Texts to predict. A text is a string, or a list of its parts: two texts of a model for
        pairs, question and context, what is given and the choices, or the words of a sentence. The
        parts may have names, those of the columns that the model was trained on (`text_columns` in
        /v1/models): {"question": …, "context": …}."""

        texts: (
            Annotated[
                list[Text | Parts | Named],
                Field(min_length=1, max_length=limits.max_texts, fail_fast=True),
            ]
            | None
        ) = None
        model: Model = None
        all_probabilities: bool = Field(
            False, description="also of what was not chosen; of spans n_best; of tags the words"
        )
        inputs: TextsOrPairs | None = Field(
            None,
            description="in place of texts, as the clients of Text Embeddings Inference send them: "
            "a text, or a list of texts and pairs; answered by the probabilities of all labels",
        )
        truncate: Truncate = None
        truncation_direction: Direction = None
        raw_scores: Literal[False] | None = Field(None, description="answers are probabilities")

    class EmbedRequest(Strict):
        """Texts to make vectors of: as `texts`, or as the clients of Text Embeddings Inference send
        them, as `inputs`, which are answered by a list of vectors alone."""

        texts: Texts | None = None
        model: Model = None
        normalize: bool | None = Field(
            None, description="to length 1; null: of inputs, and not of texts"
        )
        dimensions: Dimensions = None
        inputs: Text | Inputs | None = Field(None, description="in place of texts")
        truncate: Truncate = None
        truncation_direction: Direction = None
        prompt_name: PromptName = None

    class FillMaskRequest(Strict):
        """Texts with a mask in them, as the model's vocabulary writes it (`mask` in /v1/models)."""

        texts: Texts
        model: Model = None
        top_k: int = Field(5, ge=1, le=limits.max_top_k)

    class ExplainRequest(Strict):
        """A text, or several that belong together, whose answer is explained."""

        text: (
            ShortText
            | Annotated[
                list[ShortText], Field(min_length=1, max_length=limits.max_texts, fail_fast=True)
            ]
            | Annotated[dict[str, ShortText], BeforeValidator(_of_few_keys), Field(min_length=1)]
        ) = Field(description="a list or an object: the parts of a text, as /predict takes them")
        pair: ShortText | None = Field(None, description="the second text of a pair")
        model: Model = None
        method: ExplanationMethod = "leave-one-out"
        label: Annotated[str, Field(max_length=limits.explain_characters)] | None = Field(
            None, description="to explain in place of the answer; of a tagger a type of entities"
        )
        word: Annotated[str, Field(max_length=limits.explain_characters)] | None = Field(
            None, description="of a tagger: the word whose tag is explained, at its first place"
        )

    class AttentionRequest(Strict):
        """A text, or two, and whose attention to show."""

        text: ShortText
        pair: ShortText | None = None
        model: Model = None
        layer: Annotated[int, Field(ge=0, le=1000)] | None = Field(
            None, description="from 0 on; null: the last"
        )
        head: Annotated[int, Field(ge=0, le=1000)] | None = Field(
            None, description="from 0 on; null: the mean of all"
        )

    class OpenAiRequest(BaseModel):
        """As the clients of OpenAI's embeddings send it; keys that are not here do not count.
        Token ids are not taken."""

        model_config = ConfigDict(extra="ignore", strict=True)
        input: Text | Inputs
        model: str = Field(max_length=256)
        # Null is what LiteLLM sends where its user has said nothing; to OpenAI it is "float".
        encoding_format: Literal["float", "base64"] | None = "float"
        dimensions: Dimensions = None
        user: str | None = None
        prompt_name: PromptName = None
        input_type: InputType | None = Field(
            None, description="in place of prompt_name: what the texts are"
        )

        @field_validator("input", mode="before")
        @classmethod
        def _no_token_ids(cls, value: Any) -> Any:
            """Refuse token ids: LangChain sends those of OpenAI's tokenizer, of which no model here
            could make anything."""
            first = value[0] if isinstance(value, list) and value else None
            first = first[0] if isinstance(first, list) and first else first
            if isinstance(first, int) and not isinstance(first, bool):
                raise PydanticCustomError(
                    "token_ids",
                    "token ids are not taken; send texts (LangChain: "
                    "check_embedding_ctx_length=False)",
                )
            return value

    class CohereRequest(BaseModel):
        """As the clients of Cohere's embed send it; keys that are not here do not count."""

        model_config = ConfigDict(extra="ignore", strict=True)
        texts: Inputs
        model: Model = None
        input_type: InputType | None = Field(
            None, description="what the texts are, for models that have a prompt for it"
        )
        embedding_types: (
            Annotated[list[Literal["float", "base64"]], Field(min_length=1, max_length=2)] | None
        ) = None
        truncate: Literal["NONE", "END"] | None = Field(
            None, description="NONE: a text that is too long is an error; else its end is cut"
        )
        output_dimension: Dimensions = None

    class RerankRequest(BaseModel):
        """A query and texts to order, as the clients of Cohere's and Jina's rerank (`documents`)
        and of Text Embeddings Inference (`texts`) send it; keys that are not here do not count."""

        model_config = ConfigDict(extra="ignore", strict=True)
        query: Text
        documents: (
            Annotated[
                list[Text | Annotated[dict[str, Any], BeforeValidator(_of_few_keys)]],
                Field(min_length=1, max_length=limits.max_embedding_inputs, fail_fast=True),
            ]
            | None
        ) = Field(None, description="strings, or objects with `text`, or with `rank_fields`")
        rank_fields: (
            Annotated[
                list[Annotated[str, Field(max_length=256)]],
                Field(min_length=1, max_length=_MOST_KEYS, fail_fast=True),
            ]
            | None
        ) = Field(None, description="the keys of the documents that are read; null: text")
        texts: Inputs | None = Field(None, description="in place of documents; answered by a list")
        model: Model = None
        label: Annotated[str, Field(max_length=limits.max_characters)] | None = Field(
            None, description="whose probability is the score; null: the one that says relevant"
        )
        top_n: int | None = Field(None, ge=1, le=1 << 20, description="null: all")
        return_documents: bool | None = False
        return_text: bool | None = False
        raw_scores: bool | None = Field(False, description="log-odds in place of probabilities")

    class Question(Strict):
        """A question, and the text in which its answer stands."""

        question: Text
        context: Text

    class Comparison(Strict):
        """Texts that are compared with one."""

        source_sentence: Text
        sentences: Inputs

    class Parameters(Strict):
        """What the clients of the inference API say besides."""

        function_to_apply: Literal["softmax", "sigmoid", "none"] | None = Field(
            None, description="that which the model's task has"
        )
        top_k: int | None = Field(
            None, ge=1, le=limits.max_top_k, description="so many of the best"
        )
        aggregation_strategy: Literal["none", "simple", "first", "average", "max"] | None = Field(
            None, description="of a tagger; none: the words, else the entities"
        )

    class InferenceRequest(Strict):
        """`inputs` as Hugging Face's clients post them to the address of a model."""

        inputs: TextsOrPairs | Question | Comparison
        parameters: Parameters | None = None
        model: Model = None
        normalize: bool | None = Field(None, description="vectors to length 1; null: yes")
        dimensions: Dimensions = None
        truncate: Truncate = None
        truncation_direction: Direction = None
        prompt_name: PromptName = None

    return Requests(
        PredictRequest,
        EmbedRequest,
        FillMaskRequest,
        ExplainRequest,
        AttentionRequest,
        OpenAiRequest,
        CohereRequest,
        RerankRequest,
        InferenceRequest,
    )
