"""Choose example texts that fit a model (its task, its labels and its language), and make bodies of
requests of them.

They stand on the page, in the API reference and in its curl lines, so that a first try makes sense.
A model directory holds no training texts, so the labels and the vocabulary have to tell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bertine.text.pieces import goes_on
from bertine.text.special import WORDPIECE_MASK
from bertine.text.tokenizer import Tokenizer

#: Words in labels (in lower case), and a text of that kind. The first that matches is taken.
_BY_LABELS: tuple[tuple[frozenset[str], str], ...] = (
    (
        frozenset({"joy", "anger", "sadness", "fear", "love", "surprise", "happy", "sad", "angry"}),
        "They cancelled the trip the night before, and nobody bothered to tell me.",
    ),
    (
        frozenset({"spam", "ham"}),
        "You have won a prize! Call now to claim your free holiday.",
    ),
    (
        frozenset({"sports", "sport", "business", "politics", "technology", "science", "world"}),
        "The team won the final after extra time in front of 60,000 people.",
    ),
    (
        frozenset({"toxic", "hate", "offensive", "insult", "hateful", "abusive"}),
        "I disagree with you, but thank you for explaining it so patiently.",
    ),
    (
        frozenset({"positive", "negative", "neutral", "pos", "neg", "good", "bad"}),
        "The plot is thin, but the acting is wonderful.",
    ),
    (
        frozenset({"question", "complaint", "refund", "billing", "order", "shipping"}),
        "My order arrived broken. How do I get my money back?",
    ),
    (
        frozenset({"1", "2", "3", "4", "5", "stars"}),
        "Arrived late, but what a book.",
    ),
)
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
#: Where clients of Text Embeddings Inference, Jina and Cohere ask for an order, those of Cohere at
#: two versions.
RERANK_PATHS = ("/rerank", "/v1/rerank", "/v2/rerank")
_SENTENCES = ["A cat is asleep.", "The soup is boiling."]


def sample_text(
    task: str,
    labels: Sequence[str],
    parts: int,
    choices: int,
    chinese: bool,
    mask: str = "",
) -> str | list[str]:
    """Return a text for a model of `task`, as ``/predict`` takes it.

    Args:
        task: its name.
        labels: of the model.
        parts: texts that belong to one example, the choices among them.
        choices: how many of these are choices.
        chinese: whether the model reads Chinese and no other language.
        mask: what hides a word in a text, of a model that fills masks.
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
    for known, text in _BY_LABELS:
        if words & known:
            return text
    return _USUAL


def masked_sample(mask: str) -> str:
    """Return a sentence with a `mask` in it."""
    return f"The capital of France is {mask}."


def reads_chinese_only(tokenizer: Tokenizer) -> bool:
    """Return whether most whole pieces of a vocabulary are single Chinese characters."""
    whole = [name for name in tokenizer.names if not goes_on(name) and not name.startswith("[")]
    chinese = sum(len(piece) == 1 and "\u4e00" <= piece <= "\u9fff" for piece in whole)
    return 2 * chinese > len(whole)


def example_body(path: str, described: Mapping[str, Any]) -> dict[str, Any]:
    """Return a body that `path` answers.

    Args:
        path: one that takes POST.
        described: the model that answers it, as ``/v1/models`` does.
    """
    model = described["id"]
    text = described["example"]
    first, pair = (text, None) if isinstance(text, str) else (text[0], text[1])
    if path == "/":
        asked = {"question": first, "context": pair} if described["task"] == "spans" else text
        return {"inputs": asked, "model": model}
    if path == "/predict":
        return {"texts": [text], "model": model, "all_probabilities": True}
    if path == "/fill-mask":
        mask = described["mask"] or WORDPIECE_MASK
        masked = text if isinstance(text, str) and mask in text else masked_sample(mask)
        return {"texts": [masked], "model": model, "top_k": 5}
    if path == "/embed":
        return {"texts": _SENTENCES, "model": model, "normalize": True}
    if path in ("/v1/embed", "/v2/embed"):
        return {"texts": _SENTENCES, "model": model, "input_type": "search_document"}
    if path == "/v1/embeddings":
        return {"input": _SENTENCES, "model": model}
    if path in RERANK_PATHS:
        return {"query": first, "documents": _SENTENCES, "model": model, "top_n": 2}
    if path == "/explain":
        return {"text": text, "model": model}
    body = {"text": first, "model": model}
    return body if pair is None else {**body, "pair": pair}
