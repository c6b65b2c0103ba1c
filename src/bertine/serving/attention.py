"""Compute the attention of heads for the server's page.

Attention shows where the heads of a model look; it is no explanation of an answer.

Shape legend: T tokens of the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from bertine.core.errors import BertineError
from bertine.corpora.batch import Batch
from bertine.models.encoder import TextInputs
from bertine.models.heads import PAIR_CLASSIFIER, Model
from bertine.tasks.base import Task, parts_of
from bertine.tokenization.base import Template
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
        apart = self.task is not None and self.task.head == PAIR_CLASSIFIER
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
            (heads,) = self.model.attention(whole, [layer])
            weights = heads.mean(0) if head is None else heads[head]
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
