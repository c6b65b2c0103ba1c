"""Compute what the server's pages show: attention of heads, and example texts for requests.

Attention shows where the heads of a model look; it is no explanation of an answer.

Shape legend: T tokens of the text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from bertine.core.errors import BertineError
from bertine.core.names import WORDPIECE_MASK
from bertine.corpora.batch import Batch
from bertine.models.encoder import TextInputs
from bertine.models.heads import Model
from bertine.models.precision import finite
from bertine.tasks.base import Task, parts_of
from bertine.tokenization.base import Template, goes_on
from bertine.tokenization.tokenizer import Encoding, Tokenizer


@dataclass(frozen=True)
class AttentionQuestion:
    """A text, or a pair, and the head to show.

    Attributes:
        text: the text; for spans the question; for choices the given text.
        pair: the second text; for spans the context; for choices one of them; None: there is none.
        layer: the layer, from 0; None: the last.
        head: the head, from 0; None: the mean of all.
    """

    text: str
    pair: str | None = None
    layer: int | None = None
    head: int | None = None


class AttentionReader:
    """A reader of the attention of a model that no other thread is using at the moment.

    Args:
        model: the model in fp32, in evaluation mode.
        tokenizer: the tokenizer of the model.
        task: the task of the model; None: it fills masks, or only gives vectors.
        max_tokens: maximum tokens; the rest is cut off as the task does.
    """

    def __init__(
        self, model: Model, tokenizer: Tokenizer, task: Task[Any] | None, max_tokens: int
    ) -> None:
        self.model, self.tokenizer, self.task = model, tokenizer, task
        longest = model.config.longest_input if task is None else task.max_length
        self.max_tokens = min(max_tokens, longest)

    def __call__(self, item: AttentionQuestion) -> dict[str, Any]:
        """Return the ``tokens`` of `item` and their ``attention`` [T, T], in which each row sums to
        1. Texts that the task encodes separately do not attend to each other.

        Raises:
            BertineError: no such layer or head; a pair for a model of single texts; a model whose
                attention cannot be shown.
        """
        if item.pair is not None and self.model.config.num_segments < 2:
            raise BertineError("this model takes one text")
        encoding = self._encode(item)
        apart = self.task is not None and self.task.reads_apart
        texts = [encoding]
        if apart and item.pair is not None:
            texts = _apart(encoding, self.tokenizer.template)
        attention = [self._attention(text, item.layer, item.head) for text in texts]
        return {
            "tokens": [
                {
                    "token": self.tokenizer.name_at(index, begins_text=start == 0),
                    "part": max(part, number),
                    "start": start,
                    "end": end,
                }
                for number, text in enumerate(texts)
                for index, part, (start, end) in zip(
                    text.input_ids, text.token_type_ids, text.offsets, strict=True
                )
            ],
            "pieces_cut": encoding.num_truncated,
            "attention": torch.block_diag(*attention).tolist(),
        }

    def _encode(self, item: AttentionQuestion) -> Encoding:
        """Encode the part of a long text that the task reads; with windows the first."""
        mode = "head" if self.task is None else self.task.long_text
        if mode == "head":
            return self.tokenizer.encode(item.text, item.pair, max_length=self.max_tokens)
        whole = self.tokenizer.encode(item.text, item.pair)
        places = np.arange(len(whole.input_ids))
        kept = parts_of(places, self.max_tokens, mode, self.tokenizer.template.one)[0].tolist()
        return _part(whole, kept, len(whole.input_ids) - len(kept))

    def _batch(self, encoding: Encoding) -> Batch:
        device = next(self.model.parameters()).device
        ids = torch.tensor([encoding.input_ids])
        return Batch(
            ids,
            torch.ones_like(ids, dtype=torch.bool),
            torch.tensor([encoding.token_type_ids]),
            rows=[0],
        ).to(device)

    def _attention(self, encoding: Encoding, layer: int | None, head: int | None) -> torch.Tensor:
        """Compute the attention, fp64 [T, T], rounded."""
        config = self.model.config
        layer = len(config.passes) - 1 if layer is None else layer
        for name, value, size in (
            ("layer", layer, len(config.passes)),
            ("head", head, config.num_attention_heads),
        ):
            if value is not None and not 0 <= value < size:
                raise BertineError(f"{name} is {value}, but the model has 0 to {size - 1}")
        batch = self._batch(encoding)
        with torch.inference_mode():
            whole = TextInputs(batch.input_ids, None, batch.token_type_ids)
            output = self.model.encode(whole, all_states=True)
            assert output.hidden_states is not None
            states = output.hidden_states[layer]
            scores = self.model.backbone.attention_scores(layer, states, whole.token_type_ids)[0]
            if head is not None:
                scores = scores[[head]]
            weights = finite(scores.softmax(-1).mean(0))
        return weights.double().cpu().round(decimals=5)


def _apart(pair: Encoding, template: Template) -> list[Encoding]:
    """Return the two texts of a pair, each as a first text, for a head on the vectors of both."""
    middle = pair.token_type_ids.index(1)
    # If several separators are between the texts, a single text has fewer.
    end = middle - len(template.two.between) + len(template.one.after)
    before = range(len(template.two.before))
    places = [range(end), [*before, *range(middle, len(pair.input_ids))]]
    parts = [_part(pair, text, pair.num_truncated) for text in places]
    return [replace(part, token_type_ids=[0] * len(part.input_ids)) for part in parts]


def _part(whole: Encoding, places: Sequence[int], num_truncated: int) -> Encoding:
    """Return the tokens of an encoding at the given places."""
    return Encoding(
        [whole.input_ids[place] for place in places],
        [whole.token_type_ids[place] for place in places],
        [whole.offsets[place] for place in places],
        [whole.special_tokens_mask[place] for place in places],
        num_truncated,
    )


# Examples: texts that fit a model (its task, labels and language), and bodies of requests with
# them.
#
# They are shown on the page, in the API reference and in its curl lines, so that a first try makes
# sense. A model directory has no training texts, so they are chosen by the labels and the
# vocabulary.

#: Words in labels (in lower case), and a text for them. The first match is used.
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
#: The paths for ordering texts of the clients of Text Embeddings Inference, Jina and Cohere, the
#: last in two versions.
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
    for known, text in _BY_LABELS:
        if words & known:
            return text
    return _USUAL


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
