"""Tensor names: Bertine's ``Model`` <-> the BERT classes of Hugging Face transformers.

Pure functions over dictionaries; tensors are renamed, joined and split, never recomputed.
Three vocabularies of names meet here:

- *ours*: the state-dict names of :class:`bertine.models.model.Model`
  (``backbone.layers.0.attention.qkv.weight``, ``heads.nsp.dense.bias``);
- *canonical*: those of transformers without the ``bert.`` prefix
  (``encoder.layer.0.attention.self.query.weight``, ``cls.seq_relationship.bias``);
- *as found*: canonical, with or without the prefix, perhaps with the ``gamma`` and ``beta`` of
  the TensorFlow checkpoints, the position buffer of older versions, and the second copy of the
  tied decoder.

The one difference that is not a name: query, key and value are one matrix with us, its rows
being first the query's, then the key's, then the value's.

Shapes: H hidden size, V vocabulary size, C classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from bertine.errors import BertineError
from bertine.models.config import BertConfig

_PREFIX = "bert."
_WORDS = "embeddings.word_embeddings.weight"
_DECODER = "cls.predictions.decoder"
_MLM_BIAS = "cls.predictions.bias"

# Modules with a weight and a bias: (ours, canonical).
_LAYER = (
    ("attention.out", "attention.output.dense"),
    ("attention_norm", "attention.output.LayerNorm"),
    ("up", "intermediate.dense"),
    ("down", "output.dense"),
    ("output_norm", "output.LayerNorm"),
)
_OUTSIDE = (
    ("backbone.embeddings.layer_norm", "embeddings.LayerNorm"),
    ("backbone.pooler", "pooler.dense"),
    ("heads.mlm.dense", "cls.predictions.transform.dense"),
    ("heads.mlm.layer_norm", "cls.predictions.transform.LayerNorm"),
    ("heads.nsp.dense", "cls.seq_relationship"),
    ("heads.classifier.out", "classifier"),
    ("heads.spans.out", "qa_outputs"),
    ("heads.token_classifier.out", "token_classifier"),
    ("heads.choice.out", "choice_classifier"),
    ("heads.pair_classifier.out", "pair_classifier"),
)

# What a canonical name belongs to, in words, by the first prefix that fits.
_PARTS = (
    ("embeddings.", "encoder"),
    ("encoder.", "encoder"),
    ("pooler.", "pooler"),
    ("cls.predictions.", "MLM head"),
    ("cls.seq_relationship.", "NSP head"),
    ("classifier.", "classifier"),
    ("token_classifier.", "token classifier"),
    ("choice_classifier.", "choice classifier"),
    ("pair_classifier.", "pair classifier"),
    ("qa_outputs.", "span head"),
)

#: The part's name in words for each head of ``Model.heads``.
HEAD_PARTS = {
    "mlm": "MLM head",
    "nsp": "NSP head",
    "classifier": "classifier",
    "spans": "span head",
    "token_classifier": "token classifier",
    "choice": "choice classifier",
    "pair_classifier": "pair classifier",  # of ours alone
}

# Heads of different classes that transformers calls "classifier" too: by class, our canonical name.
_CALLED_CLASSIFIER = {
    "BertForTokenClassification": "token_classifier",
    "BertForMultipleChoice": "choice_classifier",
}


def part_of(canonical: str) -> str | None:
    """The part of a BERT that a canonical name belongs to ("encoder", "pooler", a head of
    :data:`HEAD_PARTS`, "span head"), or None when it belongs to no known one."""
    for start, part in _PARTS:
        if canonical.startswith(start):
            return part
    return None


def _rows(config: BertConfig) -> list[tuple[str, tuple[str, ...]]]:
    """For every tensor of ours the canonical tensors that it is made of, joined along rows."""
    rows: list[tuple[str, tuple[str, ...]]] = [
        (f"backbone.embeddings.{kind}_embeddings.weight", (f"embeddings.{kind}_embeddings.weight",))
        for kind in ("word", "position", "token_type")
    ]
    modules: list[tuple[str, tuple[str, ...]]] = [
        (ours, (canonical,)) for ours, canonical in _OUTSIDE
    ]
    for i in range(config.num_hidden_layers):
        ours, canonical = f"backbone.layers.{i}", f"encoder.layer.{i}"
        attention = f"{canonical}.attention.self"
        modules.append(
            (f"{ours}.attention.qkv", tuple(f"{attention}.{n}" for n in ("query", "key", "value")))
        )
        modules += [(f"{ours}.{a}", (f"{canonical}.{b}",)) for a, b in _LAYER]
    for ours, theirs in modules:
        for kind in ("weight", "bias"):
            rows.append((f"{ours}.{kind}", tuple(f"{name}.{kind}" for name in theirs)))
    rows.append(("heads.mlm.bias", (_MLM_BIAS,)))
    return rows


def to_canonical(state_dict: Mapping[str, Tensor], config: BertConfig) -> dict[str, Tensor]:
    """Our names -> canonical names. The query, key and value are views of our joined tensor.

    Raises:
        ValueError: a name that a ``Model`` of `config` does not have.
    """
    rows = dict(_rows(config))
    result: dict[str, Tensor] = {}
    for ours, tensor in state_dict.items():
        if ours not in rows:
            raise ValueError(f"{ours} has no counterpart in transformers' BERT")
        theirs = rows[ours]
        result.update(zip(theirs, tensor.chunk(len(theirs)), strict=True))
    return result


def to_huggingface(state_dict: Mapping[str, Tensor], config: BertConfig) -> dict[str, Tensor]:
    """Our names -> those that transformers' class for these heads saves.

    A bare backbone gets the names of ``BertModel``; with any head the backbone's names have the
    prefix ``bert.``, as in ``BertForPreTraining`` and ``BertForSequenceClassification``. The
    tied decoder is not repeated: transformers ties it anew when it loads. Works on anything
    keyed and shaped like the weights, gradients for one.

    Raises:
        ValueError: a name that a ``Model`` of `config` does not have.
    """
    canonical = to_canonical(state_dict, config)
    if not any(name.startswith("heads.") for name in state_dict):
        return canonical
    backbone = {"encoder", "pooler"}
    return {
        (_PREFIX + name if part_of(name) in backbone else _published(name)): tensor
        for name, tensor in canonical.items()
    }


def _published(name: str) -> str:
    """A head's canonical name as transformers has it, which calls several heads classifier."""
    head, dot, rest = name.partition(".")
    return f"classifier{dot}{rest}" if head in _CALLED_CLASSIFIER.values() else name


def _is_position_buffer(name: str, tensor: Tensor) -> bool:
    """Whether `tensor` is the constant 0, 1, 2, ... that older versions saved with the weights."""
    if name != "embeddings.position_ids":
        return False
    return torch.equal(tensor.flatten().long(), torch.arange(tensor.numel()))


def canonical_names(state_dict: Mapping[str, Tensor], architecture: str = "") -> dict[str, Tensor]:
    """Names as found -> canonical names; tensors are passed through.

    `architecture` is transformers' class that they are of, where that is known: it says of what
    kind a "classifier" is.

    Two kinds of tensors that say nothing of their own are left out: the buffer of position
    numbers, and the decoder's weight and bias where they equal what they are tied to. A decoder
    that differs (an untied model) keeps its name, and so does every unknown name.

    Raises:
        BertineError: two tensors end up under one name.
    """
    classifier = _CALLED_CLASSIFIER.get(architecture, "classifier")
    result: dict[str, Tensor] = {}
    for found, tensor in state_dict.items():
        name = found.removeprefix(_PREFIX)
        if name.startswith("classifier."):
            name = classifier + name.removeprefix("classifier")
        if name.endswith(".gamma"):
            name = name.removesuffix("gamma") + "weight"
        elif name.endswith(".beta"):
            name = name.removesuffix("beta") + "bias"
        if _is_position_buffer(name, tensor):
            continue
        if name in result:
            raise BertineError(f"tensor {found} is there twice, under two names")
        result[name] = tensor
    for copy, original in ((f"{_DECODER}.weight", _WORDS), (f"{_DECODER}.bias", _MLM_BIAS)):
        if copy not in result:
            continue
        if original not in result:
            result[original] = result.pop(copy)
        elif torch.equal(result[copy], result[original]):
            del result[copy]
    return result


def from_huggingface(state_dict: Mapping[str, Tensor], config: BertConfig) -> dict[str, Tensor]:
    """Names as found in a file (see :func:`canonical_names`) -> our names.

    A name that belongs to nothing of ours is kept as it is, so that the caller sees it. Parts
    that are not in `state_dict` are not in the result.

    Raises:
        BertineError: a query, key or value without the other two, or with another shape.
    """
    rest = canonical_names(state_dict)
    result: dict[str, Tensor] = {}
    for ours, theirs in _rows(config):
        present = [name for name in theirs if name in rest]
        if not present:
            continue
        if len(present) < len(theirs):
            missing = ", ".join(_without(theirs, present))
            raise BertineError(f"tensor {missing} is missing beside {present[0]}")
        tensors = [rest.pop(name) for name in theirs]
        if any(tensor.shape != tensors[0].shape for tensor in tensors):
            shapes = ", ".join(str(list(tensor.shape)) for tensor in tensors)
            raise BertineError(f"tensors {', '.join(theirs)} have different shapes: {shapes}")
        result[ours] = tensors[0] if len(tensors) == 1 else torch.cat(tensors)
    return result | rest


def _without(names: Iterable[str], taken: Iterable[str]) -> list[str]:
    gone = set(taken)
    return [name for name in names if name not in gone]
