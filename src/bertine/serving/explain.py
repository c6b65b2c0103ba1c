"""For the curious: what a head attends to, and which tokens an answer leaned on.

The second is gradient times input (Shrikumar et al. 2016, arXiv 1605.01713; for text Atanasova et
al. 2020, arXiv 2009.13295): how much the answer's score would change, to first order, if a token's
embedding shrank. Attention shows where a head looks, which is no explanation of the answer.

Shape legend: T tokens of the text, H hidden size, A heads, D = H / A, K labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bertine.data.batch import Batch
from bertine.errors import BertineError
from bertine.models.layers import SelfAttention
from bertine.models.model import Model
from bertine.tasks.base import Task
from bertine.tasks.choice import MultipleChoice
from bertine.tasks.classification import TextClassification
from bertine.tasks.entities import OUTSIDE
from bertine.tasks.long_text import parts_of
from bertine.tasks.multi_label import MultiLabel
from bertine.tasks.regression import TextRegression
from bertine.tasks.spans import SpanExtraction
from bertine.tasks.tagging import Tagging
from bertine.text.tokenizer import Encoding, Tokenizer

#: The longest answer that is looked for in a context, in pieces.
_SPAN = 30


@dataclass(frozen=True)
class Explainable:
    """One text, or pair, to look into.

    Attributes:
        text: the text; of spans the question; of choices what is given.
        pair: the second text; of spans the context; of choices one of them; None: there is none.
        layer, head: from 0 on; of the attention. None: what is asked for is the answer.
    """

    text: str
    pair: str | None = None
    layer: int | None = None
    head: int | None = None


class Explainer:
    """Looks into a model that nobody else is using at the moment.

    Args:
        model: in fp32, in evaluation mode.
        tokenizer: of the model.
        task: of the model; None: one that fills masks, or only gives vectors.
        max_tokens: more are cut off, as is what the task itself cuts off, and where the task does.
    """

    def __init__(
        self, model: Model, tokenizer: Tokenizer, task: Task[Any] | None, max_tokens: int
    ) -> None:
        self.model, self.tokenizer, self.task = model, tokenizer, task
        longest = model.config.max_position_embeddings if task is None else task.max_length
        self.max_tokens = min(max_tokens, longest)

    @property
    def answers(self) -> bool:
        """Whether there is an answer to explain."""
        return self.task is not None or "mlm" in self.model.heads

    def __call__(self, item: Explainable) -> dict[str, Any]:
        """The tokens of `item`, and what was asked for: ``attention`` [T, T], each token's row
        sums to 1; or ``scores`` [T], negative where the token speaks against the ``answer``.

        Raises:
            BertineError: no such layer or head; a pair where the model takes none, or the other
                way round; nothing to explain.
        """
        if item.pair is not None and self.model.config.type_vocab_size < 2:
            raise BertineError("this model takes one text")
        encoding = self._encode(item)
        found: dict[str, Any] = {
            "tokens": [
                {
                    "token": self.tokenizer.id_to_token(index),
                    "part": part,
                    "begin": begin,
                    "end": end,
                }
                for index, part, (begin, end) in zip(
                    encoding.input_ids, encoding.token_type_ids, encoding.offsets, strict=True
                )
            ],
            "pieces_cut": encoding.num_truncated,
        }
        if item.layer is not None and item.head is not None:
            found["attention"] = self._attention(encoding, item.layer, item.head)
        else:
            found["answer"], found["scores"] = self._leaned_on(encoding, item)
        return found

    def _encode(self, item: Explainable) -> Encoding:
        """Of a long text the part that the task reads; of windows the first."""
        mode = getattr(self.task, "long_text", "head")
        if mode == "head":
            return self.tokenizer.encode(item.text, item.pair, max_length=self.max_tokens)
        whole = self.tokenizer.encode(item.text, item.pair)
        kept = parts_of(np.arange(len(whole.input_ids)), self.max_tokens, mode)[0].tolist()
        return Encoding(
            [whole.input_ids[at] for at in kept],
            [whole.token_type_ids[at] for at in kept],
            [whole.offsets[at] for at in kept],
            [whole.special_tokens_mask[at] for at in kept],
            len(whole.input_ids) - len(kept),
        )

    def _batch(self, encoding: Encoding) -> Batch:
        device = next(self.model.parameters()).device
        ids = torch.tensor([encoding.input_ids])
        return Batch(
            ids,
            torch.ones_like(ids, dtype=torch.bool),
            torch.tensor([encoding.token_type_ids]),
            rows=[0],
        ).to(device)

    def _attention(self, encoding: Encoding, layer: int, head: int) -> list[list[float]]:
        config = self.model.config
        for name, value, size in (
            ("layer", layer, config.num_hidden_layers),
            ("head", head, config.num_attention_heads),
        ):
            if not 0 <= value < size:
                raise BertineError(f"{name} is {value}, but the model has 0 to {size - 1}")
        batch = self._batch(encoding)
        attention = self.model.backbone.layers[layer].attention
        assert isinstance(attention, SelfAttention)
        with torch.inference_mode():
            output = self.model.backbone(
                batch.input_ids, None, batch.token_type_ids, output_hidden_states=True
            )
            assert output.hidden_states is not None
            x = output.hidden_states[layer][0]
            # [T, 3H] → this head's query and key, [T, D]
            q, k, _ = attention.qkv(x).view(-1, 3, attention.heads, attention.head_size).unbind(1)
            scores = q[:, head] @ k[:, head].T * attention.head_size**-0.5
        return np.round(scores.softmax(-1).double().cpu().numpy(), 5).tolist()

    def _leaned_on(self, encoding: Encoding, item: Explainable) -> tuple[str, list[float]]:
        self._check(item)
        batch = self._batch(encoding)
        kept: list[Tensor] = []

        def keep(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
            kept.append(output.detach().requires_grad_())
            return kept[0]

        handle = self.model.backbone.embeddings.register_forward_hook(keep)
        try:
            with torch.enable_grad():
                name, score = self._score(batch, encoding, item)
                (gradient,) = torch.autograd.grad(score, kept)  # [T, H]
        finally:
            handle.remove()
        shares = (gradient * kept[0].detach()).sum(-1).double().cpu().numpy()
        return name, np.round(shares, 6).tolist()

    def _check(self, item: Explainable) -> None:
        if isinstance(self.task, SpanExtraction | MultipleChoice):
            pair: bool | None = True
        elif isinstance(self.task, TextClassification | TextRegression | MultiLabel):
            pair = len(self.task.text_columns) == 2
        else:
            pair = False
        if (item.pair is not None) != pair:
            raise BertineError(
                "this model takes two texts" if pair else "this model takes one text"
            )

    def _score(self, batch: Batch, encoding: Encoding, item: Explainable) -> tuple[str, Tensor]:
        """The answer, and the number that speaks for it."""
        task = self.task
        if task is None:
            return self._mask(batch, encoding)
        outputs = task.outputs(self.model, batch)[0].float()
        if isinstance(task, TextRegression | MultipleChoice):
            return "score", outputs
        if isinstance(task, SpanExtraction):
            return _span(outputs, encoding, item.pair or "")
        if isinstance(task, Tagging):
            return _tags(outputs, encoding, task.labels)
        assert isinstance(task, TextClassification | MultiLabel)
        best = int(outputs.argmax())
        return task.labels[best], outputs[best]

    def _mask(self, batch: Batch, encoding: Encoding) -> tuple[str, Tensor]:
        if "mlm" not in self.model.heads:
            raise BertineError("this model gives vectors only: there is no answer to explain")
        mask = self.tokenizer.mask_token_id
        if mask not in encoding.input_ids:
            raise BertineError("the text has no [MASK]; write it, in capitals")
        at = encoding.input_ids.index(mask)
        backbone = self.model.backbone
        hidden = backbone(batch.input_ids, None, batch.token_type_ids).last_hidden_state[0, [at]]
        decoder = backbone.embeddings.word_embeddings.weight
        logits = self.model.heads["mlm"](hidden, decoder)[0, : self.tokenizer.vocab_size].float()
        best = int(logits.argmax())
        return self.tokenizer.id_to_token(best), logits[best]


def _span(logits: Tensor, encoding: Encoding, context: str) -> tuple[str, Tensor]:
    """The best span of the second text, `context`; logits [T, 2]."""
    inside = [
        at
        for at, (part, special) in enumerate(
            zip(encoding.token_type_ids, encoding.special_tokens_mask, strict=True)
        )
        if part == 1 and not special
    ]
    if not inside:
        return "", logits[0].sum()
    first, size = inside[0], len(inside)
    table = logits[first : first + size, 0, None] + logits[None, first : first + size, 1]
    allowed = torch.ones_like(table, dtype=torch.bool).triu().tril(_SPAN - 1)
    best = int(table.masked_fill(~allowed, -torch.inf).argmax())
    start, end = divmod(best, size)
    begin, stop = encoding.offsets[first + start][0], encoding.offsets[first + end][1]
    return context[begin:stop], table[start, end]


def _tags(logits: Tensor, encoding: Encoding, labels: tuple[str, ...]) -> tuple[str, Tensor]:
    """The tags other than O, all together (all, where there is none); logits [T, K]."""
    special = torch.tensor(encoding.special_tokens_mask, device=logits.device) > 0
    values, best = logits.max(-1)
    plain = labels.index(OUTSIDE) if OUTSIDE in labels else -1
    chosen = ~special & (best != plain)
    if not bool(chosen.any()):
        return OUTSIDE, values[~special].sum() if bool((~special).any()) else values[0]
    names = dict.fromkeys(labels[index] for index in best[chosen].tolist())
    return ", ".join(names), values[chosen].sum()
