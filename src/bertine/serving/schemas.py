"""Define the answers of the server and examples of requests; OpenAPI is generated from them.

Pydantic evaluates annotations when the classes are defined, which rules out ``from __future__
import annotations``.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from bertine.core.names import WORDPIECE_MASK
from bertine.tokenization.base import goes_on
from bertine.tokenization.tokenizer import Tokenizer


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
    familiarity: Probability | None = Field(
        None, description="where the server gives it: how much the text is like the training texts"
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
    label: str
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


class WatchedModel(BaseModel):
    model: str
    drift: dict[str, Any] | None = Field(
        description="as 'bertine drift' writes it, without texts, of the answers that were "
        "counted since the start; null: these are fewer than 50"
    )


class Drifts(BaseModel):
    object: Literal["list"]
    data: list[WatchedModel] = Field(description="the models that have a record to compare with")


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


class FoundRow(BaseModel):
    row: int = Field(description="its number in the collection, from 1 on")
    score: float = Field(description="the cosine of the vectors; hybrid: a sum of reciprocal ranks")
    text: str
    columns: dict[str, Any] = Field(description="the other columns of its row, by name")


class FoundRows(BaseModel):
    rows: list[FoundRow] = Field(description="the nearest first")
    pieces_cut: int = Field(description="of the query, to keep to the maximum length")


class SearchAnswer(BaseModel):
    """The nearest texts of the server's collection."""

    model: str
    compared: int = Field(description="the rows that fulfil the condition")
    results: list[FoundRows] = Field(description="one for each query, in their order")


class LabelScore(BaseModel):
    """A label, in the format of the clients of Text Embeddings Inference."""

    label: str
    score: float = Field(description="its probability; of a regression the number")


class Status(BaseModel):
    status: Literal["ok", "ready"]


# Examples: texts that fit a model (its task, labels and language), and bodies of requests with
# them.
#
# They are shown on the page, in the API reference and in its curl lines, so that a first try makes
# sense. A model directory has no training texts, so they are chosen by the labels and the
# vocabulary.

#: Texts, and the words in labels (in lower case) for which each is shown. The first match is used.
_BY_LABELS = {
    "They cancelled the trip the night before, and nobody bothered to tell me.": (
        "joy anger sadness fear love surprise happy sad angry"
    ),
    "You have won a prize! Call now to claim your free holiday.": "spam ham",
    "The team won the final after extra time in front of 60,000 people.": (
        "sports sport business politics technology science world"
    ),
    "I disagree with you, but thank you for explaining it so patiently.": (
        "toxic hate offensive insult hateful abusive"
    ),
    "The plot is thin, but the acting is wonderful.": "positive negative neutral pos neg good bad",
    "My order arrived broken. How do I get my money back?": (
        "question complaint refund billing order shipping"
    ),
    "Arrived late, but what a book.": "1 2 3 4 5 stars",
}


_USUAL = "The library opens at nine, and the garden behind it is never closed."


_CHINESE = "这家图书馆九点开门，后面的花园从不关门。"


_ENTITIES = "Jane Austen lived in Chawton, a village in Hampshire."


_CHINESE_ENTITIES = "鲁迅一八八一年出生在浙江绍兴。"


_PAIR = ("How do I reset my password?", "What can I do when I have forgotten my password?")


_CHINESE_PAIR = ("怎么重置密码？", "忘记密码怎么办？")


_QUESTION = ("Who wrote the book?", "The book was written by Jane Austen in 1813.")


_CHINESE_QUESTION = ("这本书是谁写的？", "这本书是鲁迅在一九二一年写的。")


_CHOICES = ("read the first page.", "boiled it in a pot.", "put it to bed.", "drank it slowly.")


_CHINESE_CHOICES = ("开始读第一页。", "把它煮熟了。", "让它睡觉。", "慢慢喝掉了。")


#: The paths for ordering texts of the clients of Text Embeddings Inference, Jina and Cohere, the
#: last in two versions.
RERANK_PATHS = ("/rerank", "/v1/rerank", "/v2/rerank")


_NEXT = ["She opened the book.", "Then she read the first page."]


_SENTENCES = ["A cat is asleep.", "The soup is boiling."]


def sample_text(
    task: str, labels: Sequence[str], parts: int, choices: int, chinese: bool, mask: str = ""
) -> str | list[str]:
    """Return an example text for a model of `task`, in the format of ``/predict``.

    Args:
        task: the name of the task.
        labels: the labels of the model.
        parts: the number of texts of one example, choices included.
        choices: the number of choices among these.
        chinese: whether the model reads Chinese and no other language.
        mask: the mask token of a model that fills masks.
    """
    if task == "tagging":
        return _CHINESE_ENTITIES if chinese else _ENTITIES
    if task == "fill-mask":
        return f"中国的首都是{mask}京。" if chinese else masked_sample(mask)
    if task == "spans":
        return list(_CHINESE_QUESTION if chinese else _QUESTION)
    if choices:
        beginnings = ["她打开了书，", "然后"] if chinese else ["She opened the book.", "Then she"]
        endings = _CHINESE_CHOICES if chinese else _CHOICES
        prompts = beginnings[: parts - choices] if parts - choices > 1 else [beginnings[0]]
        return [*prompts, *endings[: max(2, min(choices, len(endings)))]]
    if parts == 2:
        return list(_CHINESE_PAIR if chinese else _PAIR)
    if chinese:
        return _CHINESE
    words = {word for label in labels for word in label.lower().replace("_", " ").split()}
    return next((text for text, known in _BY_LABELS.items() if words & {*known.split()}), _USUAL)


def masked_sample(mask: str) -> str:
    """Return a sentence with a `mask` in it."""
    return f"The capital of France is {mask}."


def reads_chinese_only(tokenizer: Tokenizer) -> bool:
    """Return whether most whole-word pieces of a vocabulary are single Chinese characters."""
    whole = [name for name in tokenizer.names if not goes_on(name) and not name.startswith("[")]
    chinese = sum(len(piece) == 1 and "\u4e00" <= piece <= "\u9fff" for piece in whole)
    return 2 * chinese > len(whole)


def example_body(path: str, described: Mapping[str, Any]) -> dict[str, Any]:
    """Return a body that `path` can answer.

    Args:
        path: a path for POST.
        described: the description of the model, as in ``/v1/models``.
    """
    model, text, mask = described["id"], described["example"], described["mask"] or WORDPIECE_MASK
    first, pair = (text, None) if isinstance(text, str) else (text[0], text[1])
    spans = described["task"] == "spans"
    masked = text if isinstance(text, str) and mask in text else masked_sample(mask)
    # A pre-trained model fills the mask of its example, and answers for pairs of other texts.
    asked = _NEXT if len(described["text_columns"]) == 2 and isinstance(text, str) else text
    of_documents = {"texts": _SENTENCES, "model": model, "input_type": "search_document"}
    bodies: dict[str, dict[str, Any]] = {
        "/": {"inputs": {"question": first, "context": pair} if spans else text, "model": model},
        "/predict": {"texts": [asked], "model": model, "all_probabilities": True},
        "/fill-mask": {"texts": [masked], "model": model, "top_k": 5},
        "/embed": {"texts": _SENTENCES, "model": model, "normalize": True},
        "/v1/embed": of_documents,
        "/v2/embed": of_documents,
        "/v1/embeddings": {"input": _SENTENCES, "model": model},
        "/search": {"query": first, "model": model, "top": 5},
        "/explain": {"text": text, "model": model},
        "/attention": {"text": first, "model": model} | ({"pair": pair} if pair else {}),
    }
    reranked = {"query": first, "documents": _SENTENCES, "model": model, "top_n": 2}
    return bodies.get(path, reranked)
