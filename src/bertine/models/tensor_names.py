"""Convert tensor names between Bertine's ``Model`` and the classes of transformers, by tables.

These are pure functions over dictionaries; tensors are renamed, joined and split, never recomputed.
There are three sets of names:

- *ours*: the state-dict names of :class:`bertine.models.heads.Model`
  (``backbone.layers.0.attention.qkv.weight``, ``heads.nsp.dense.bias``);
- *canonical*: those of transformers without the prefix of the backbone
  (``encoder.layer.0.attention.self.query.weight``, ``cls.seq_relationship.bias``), and names of our
  own for heads of different kinds that have the same name in transformers;
- *names in a file*: canonical, with or without the prefix, perhaps with the ``gamma`` and ``beta``
  of TensorFlow checkpoints, the position buffer of older versions, and the second copy of the tied
  decoder.

Other differences: our query, key and value are one matrix, with the rows of the query, then the
key's, then the value's; and some families write matrices by columns, or with the heads of the
attention as a separate dimension.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from bertine.core.errors import BertineError
from bertine.models.config import Config

#: Pairs of names, ours and canonical, of modules with a weight and a bias or of single tensors.
Pairs = tuple[tuple[str, str], ...]
#: Pairs of a layer's module, ours, and the canonical ones whose rows it joins.
LayerRows = tuple[tuple[str, tuple[str, ...]], ...]

#: Prefixes of a loss's own tensors (such as the weights of classes), in files of any type: no
#: answer depends on them.
_LOSS = ("loss.", "loss_fct.", "loss_fn.", "loss_func.", "loss_function.", "criterion.")


@dataclass(frozen=True)
class HeadNames:
    """The names of a head's tensors.

    Attributes:
        name: the prefix of canonical names; "" if the head's modules are next to the backbone and
            share no prefix (DistilBERT's ``pre_classifier`` and ``classifier``).
        modules: pairs (ours within the head, theirs within `name`) of modules with a weight and a
            bias; theirs may be "", the head itself. The last one's rows are the head's outputs.
        tensors: the same for single tensors.
        published: the head's name in transformers, if heads of different kinds share it there, so
            that `name` is our own; "" as for `name`. None: its canonical name.
        adopts: pairs (ours within the head, canonical) of modules of another head that a new head
            starts with, if the file has them.
        constant: whether its tensors are constants that are not trained: a file that lacks them
            means those of a new head.
    """

    name: str
    modules: Pairs = ()
    tensors: Pairs = ()
    published: str | None = None
    adopts: Pairs = ()
    constant: bool = False

    def rows(self, head: str) -> Iterable[tuple[str, str]]:
        """Yield the names of all tensors: ours, canonical."""
        for ours, theirs in self.modules:
            for kind in ("weight", "bias"):
                yield f"heads.{head}.{ours}.{kind}", f"{_within(self.name, theirs)}.{kind}"
        for ours, theirs in self.tensors:
            yield f"heads.{head}.{ours}", _within(self.name, theirs)

    def output(self) -> str:
        """Return the canonical name of the last module, whose rows are the head's outputs."""
        return _within(self.name, self.modules[-1][1])

    def holds(self, canonical: str) -> bool:
        """Return whether the tensor of a canonical name belongs to this head."""
        return f"{canonical}.".startswith(self._begins(self.name))

    def to_published(self, canonical: str) -> str:
        """Return the name of one of this head's tensors in transformers."""
        if self.published is None:
            return canonical
        return _within(self.published, _without(self.name, canonical))

    def to_canonical(self, published: str) -> str:
        """Return the canonical name of a tensor by its name in transformers; tensors of other heads
        keep their names."""
        if self.published is None or not published.startswith(self._begins(self.published)):
            return published
        return _within(self.name, _without(self.published, published))

    def _begins(self, name: str) -> tuple[str, ...]:
        """Return the prefixes of the tensors' names if the head is called `name`."""
        if name:
            return (f"{name}.",)
        parts = (theirs.partition(".")[0] for _, theirs in (*self.modules, *self.tensors))
        return tuple(f"{part}." for part in parts)


@dataclass(frozen=True)
class LayerStack:
    """The names of layers of another kind, which follow the others.

    Attributes:
        count: the field of the config that counts them.
        canonical: the prefix of a layer's canonical names, with its number as {}.
        layer: pairs (ours, canonical names that are joined along rows) of a layer's modules.
    """

    count: str
    canonical: str
    layer: LayerRows


@dataclass(frozen=True)
class WeightNames:
    """The tables of names of a model type.

    Attributes:
        prefix: of the backbone's names in a model with heads.
        tables: pairs (ours, canonical) of single tensors outside the layers.
        modules: pairs (ours, canonical) of modules outside the layers.
        layers: the prefixes of a layer's names, ours and canonical, with its number as {}; the
            canonical one with a {} for each of the counts in ``Config.layer_counts``.
        layer: pairs (ours, canonical names whose rows are joined) of a layer's modules, or a
            function of the config that returns them.
        heads: by the names of :attr:`bertine.models.heads.Model.heads`.
        layer_tensors: pairs (ours, canonical names whose rows are joined) of single tensors of a
            layer.
        encoder: the prefix of the encoder's canonical names; those of the pooler have ``pooler.``.
        left_out: prefixes of canonical names of further tensors in published files → their name in
            the message that they are dropped.
        aliases: pairs (other prefixes in files, canonical prefixes).
        copies: pairs (copy, original) of tensors that files may hold twice, because they are tied.
        transposed: ends of the canonical names of matrices that files hold as [inputs, outputs].
        of_heads: ends of the canonical names of matrices that files hold as [width, heads, size of
            a head] → whether the width is that of their outputs.
        buffers: patterns of canonical names of constants that older versions saved with weights.
        above: layers of other kinds (a decoder's), in their order; our numbers for them continue
            after the others'.
    """

    prefix: str
    tables: Pairs
    modules: Pairs
    layers: tuple[str, str]
    layer: LayerRows | Callable[[Any], LayerRows]
    heads: Mapping[str, HeadNames]
    layer_tensors: LayerRows = ()
    encoder: tuple[str, ...] = ("embeddings.", "encoder.")
    left_out: Mapping[str, str] = field(default_factory=dict)
    aliases: Pairs = ()
    copies: Pairs = ()
    transposed: tuple[str, ...] = ()
    of_heads: Mapping[str, bool] = field(default_factory=dict)
    buffers: tuple[str, ...] = ()
    above: tuple[LayerStack, ...] = ()

    @property
    def dropped(self) -> Mapping[str, str]:
        """The tensors that are :attr:`left_out` in files of this type, and in those of any type."""
        return {**dict.fromkeys(_LOSS, "weights of the loss"), **self.left_out}

    def part_of(self, canonical: str) -> str | None:
        """Return the part that a canonical name belongs to: "encoder", "pooler", the name of a
        head, or the name of a dropped part; None if it belongs to no known one."""
        for begin, title in self.dropped.items():
            if canonical.startswith(begin):
                return title
        if canonical.startswith(self.encoder):
            return "encoder"
        for head, names in self.heads.items():
            if names.holds(canonical):
                return head
        return "pooler" if canonical.startswith("pooler.") else None

    def is_weightless(self, head: str) -> bool:
        """Return whether a head has no weights, at most constants, so that every file holds it."""
        names = self.heads.get(head)
        return names is not None and (names.constant or not any(names.rows(head)))

    def rows(self, config: Config) -> list[tuple[str, tuple[str, ...]]]:
        """Return for each of our tensors the canonical tensors whose rows it joins."""
        rows: list[tuple[str, tuple[str, ...]]] = [(a, (b,)) for a, b in self.tables]
        modules: list[tuple[str, tuple[str, ...]]] = [(a, (b,)) for a, b in self.modules]
        of_layer = self.layer(config) if callable(self.layer) else self.layer
        counts = map(range, config.layer_counts.values())
        for number, places in enumerate(itertools.product(*counts)):
            ours, theirs = self.layers[0].format(number), self.layers[1].format(*places)
            modules += [
                (f"{ours}.{a}", tuple(f"{theirs}.{name}" for name in names))
                for a, names in of_layer
            ]
            rows += [
                (f"{ours}.{a}", tuple(f"{theirs}.{name}" for name in names))
                for a, names in self.layer_tensors
            ]
        number = math.prod(config.layer_counts.values())
        for stack in self.above:
            for place in range(getattr(config, stack.count)):
                ours, theirs = self.layers[0].format(number), stack.canonical.format(place)
                modules += [
                    (f"{ours}.{a}", tuple(f"{theirs}.{name}" for name in names))
                    for a, names in stack.layer
                ]
                number += 1
        for module, names in modules:
            for kind in ("weight", "bias"):
                rows.append((f"{module}.{kind}", tuple(f"{name}.{kind}" for name in names)))
        for head, of_head in self.heads.items():
            rows += [(a, (b,)) for a, b in of_head.rows(head)]
        return rows

    def layer_numbers(
        self, canonical: Iterable[str], stack: LayerStack | None = None
    ) -> Iterator[tuple[int, ...]]:
        """Yield the places of the layers that tensors of these names belong to: a number for each
        {} in the canonical name of a layer, or of one of `stack`."""
        for numbers, _ in self._within_layers(canonical, stack):
            yield numbers

    def has_layers(self, canonical: Iterable[str], config: Config) -> bool:
        """Return whether one of these names is that of a layer's tensor in a model of `config`."""
        of_layer = self.layer(config) if callable(self.layer) else self.layer
        rows = (*of_layer, *self.layer_tensors)
        parts = {name.partition(".")[0] for _, names in rows for name in names}
        return any(part.partition(".")[0] in parts for _, part in self._within_layers(canonical))

    def _within_layers(
        self, canonical: Iterable[str], stack: LayerStack | None = None
    ) -> Iterator[tuple[tuple[int, ...], str]]:
        """Yield, for those of the names that belong to a layer, its numbers and the rest of the
        name."""
        layers = self.layers[1] if stack is None else stack.canonical
        parts = map(re.escape, layers.split("{}"))
        pattern = re.compile(r"(\d{1,8})".join(parts) + r"\.")
        for name in canonical:
            if match := pattern.match(name):
                yield tuple(map(int, match.groups())), name[match.end() :]

    def tied(self, config: Config) -> dict[str, str]:
        """Return the canonical names of the tensors that belong to another layer in a model of
        `config`, and their names in that layer: files hold them under both."""
        pairs: dict[str, str] = {}
        if not config.tied_modules:
            return pairs
        rows = dict(self.rows(config))
        modules = [name for name, _ in (self.layer(config) if callable(self.layer) else self.layer)]
        for name, owner in config.tied_modules.items():
            (layer, _, part), owners = name.rpartition("."), owner.rpartition(".")[0]
            for module in modules:
                if module != part and not module.startswith(f"{part}."):
                    continue
                for kind in ("weight", "bias"):
                    theirs = rows[f"backbone.{layer}.{module}.{kind}"]
                    held = rows[f"backbone.{owners}.{module}.{kind}"]
                    pairs.update(zip(theirs, held, strict=True))
        return pairs

    def to_canonical(self, state_dict: Mapping[str, Tensor], config: Config) -> dict[str, Tensor]:
        """Rename our names to canonical ones. The query, key and value are views of our joined
        tensor; shared parts of layers are copied for each layer.

        Raises:
            ValueError: a name that a ``Model`` of `config` does not have.
        """
        rows = dict(self.rows(config))
        result: dict[str, Tensor] = {}
        for ours, tensor in state_dict.items():
            if ours not in rows:
                raise ValueError(f"{ours} has no counterpart in transformers")
            theirs = rows[ours]
            for name, part in zip(theirs, tensor.chunk(len(theirs)), strict=True):
                result[name] = self._written(name, part, config)
        for copy, held in self.tied(config).items():
            if held in result:
                result[copy] = result[held].clone()
        return result

    def _written(self, canonical: str, tensor: Tensor, config: Config) -> Tensor:
        """Return one of our tensors in the form of files."""
        if tensor.dim() == 2:
            if canonical.endswith(self.transposed):
                return tensor.t()
            for end, outputs in self.of_heads.items():
                if canonical.endswith(end):
                    turned = tensor if outputs else tensor.t()
                    return turned.unflatten(1, (config.num_attention_heads, -1))
        return tensor

    def _read(self, canonical: str, tensor: Tensor) -> Tensor:
        """Return a tensor of a file in our form."""
        if tensor.dim() == 2 and canonical.endswith(self.transposed):
            return tensor.t()
        if tensor.dim() == 3:
            for end, outputs in self.of_heads.items():
                if canonical.endswith(end):
                    return tensor.flatten(1) if outputs else tensor.flatten(1).t()
        return tensor

    def to_huggingface(
        self, state_dict: Mapping[str, Tensor], config: Config, headed: bool = False
    ) -> dict[str, Tensor]:
        """Rename our names to those that transformers' class for these heads saves.

        A bare backbone gets the names of the class without a head; with any head, the backbone's
        names have the prefix. The tied decoder is not repeated: transformers ties it when it loads.
        The values may be anything with the shapes of the weights, such as gradients.

        Args:
            state_dict: by our names.
            config: of the model.
            headed: whether it has a head, possibly one without weights.

        Raises:
            ValueError: a name that a ``Model`` of `config` does not have.
        """
        canonical = self.to_canonical(state_dict, config)
        if not headed and not any(name.startswith("heads.") for name in state_dict):
            return canonical
        return {self._published(name): tensor for name, tensor in canonical.items()}

    def _published(self, canonical: str) -> str:
        part = self.part_of(canonical)
        if part is None or part in ("encoder", "pooler"):
            return self.prefix + canonical
        return self.heads[part].to_published(canonical)

    def canonical_names(
        self, state_dict: Mapping[str, Tensor], head: str | None = None
    ) -> dict[str, Tensor]:
        """Rename the tensors of a file to canonical names; tensors are passed through.

        Two kinds of redundant tensors are left out: the buffer of position numbers, and copies of
        tensors that they are tied to. A copy that differs (an untied model) keeps its name, and so
        does every unknown name. A prefix that a program has put before all names is removed.

        Args:
            state_dict: the tensors by their names in the file.
            head: which of the heads with one name in transformers it is, if that is known.

        Raises:
            BertineError: two tensors get the same name; only some names have such a prefix.
        """
        names = None if head is None else self.heads.get(head)
        wrapper = self._wrapper(state_dict)
        result: dict[str, Tensor] = {}
        for original, name in self.bare_names(state_dict).items():
            tensor = state_dict[original]
            if not original.startswith((wrapper, *_LOSS)):
                raise BertineError(
                    f"the names of its layers begin with {wrapper!r}, that of tensor {original} "
                    "does not: they are of a module of one's own around the model; save the model "
                    "inside it with save_pretrained"
                )
            if names is not None:
                name = names.to_canonical(name)
            for other, usual in self.aliases:
                if name.startswith(other):
                    name = usual + name.removeprefix(other)
            if name.endswith(".gamma"):
                name = name.removesuffix("gamma") + "weight"
            elif name.endswith(".beta"):
                name = name.removesuffix("beta") + "bias"
            if _is_position_buffer(name, tensor):
                continue
            if any(re.fullmatch(pattern, name) for pattern in self.buffers):
                continue
            if name in result:
                raise BertineError(f"tensor {original} is there twice, under two names")
            result[name] = tensor
        for copy, tied_to in self.copies:
            if copy not in result:
                continue
            if tied_to not in result:
                result[tied_to] = result.pop(copy)
            elif torch.equal(result[copy], result[tied_to]):
                del result[copy]
        return result

    def _wrapper(self, names: Iterable[str]) -> str:
        """Return the prefix that a module around the model has given to the names of the layers in
        a file: "module." (data parallel), "_orig_mod." (compiled), "model." (a user's own); "" if
        there is none."""
        layer = r"\d{1,8}".join(map(re.escape, self.layers[1].split("{}")))
        pattern = re.compile(rf"((?:[^.]+\.)*?)(?:{re.escape(self.prefix)})?{layer}\.")
        first = next(filter(None, map(pattern.match, names)), None)
        return "" if first is None else first[1]

    def bare_names(self, names: Collection[str]) -> dict[str, str]:
        """Return the names of a file without the backbone's prefix, by name."""
        wrapper = self._wrapper(names)
        return {name: name.removeprefix(wrapper).removeprefix(self.prefix) for name in names}

    def from_canonical(self, state_dict: Mapping[str, Tensor], config: Config) -> dict[str, Tensor]:
        """Rename canonical names to ours.

        A name that belongs to no tensor of ours is kept, so that the caller sees it. Parts that are
        not in `state_dict` are not in the result, nor are copies of shared parts of layers.

        Raises:
            BertineError: a query, key or value is alone, or differs in shape from the other two.
        """
        tied = self.tied(config)
        rest = {name: tensor for name, tensor in state_dict.items() if name not in tied}
        result: dict[str, Tensor] = {}
        for ours, theirs in self.rows(config):
            present = [name for name in theirs if name in rest]
            if not present:
                continue
            if len(present) < len(theirs):
                missing = ", ".join(name for name in theirs if name not in present)
                raise BertineError(f"tensor {missing} is missing beside {present[0]}")
            tensors = [self._read(name, rest.pop(name)) for name in theirs]
            if any(tensor.shape != tensors[0].shape for tensor in tensors):
                shapes = ", ".join(str(list(tensor.shape)) for tensor in tensors)
                raise BertineError(f"tensors {', '.join(theirs)} have different shapes: {shapes}")
            result[ours] = tensors[0] if len(tensors) == 1 else torch.cat(tensors)
        return result | rest


def _within(name: str, part: str) -> str:
    """Return the name of `part` in the module `name`; either may be ""."""
    return f"{name}.{part}" if name and part else name or part


def _without(name: str, whole: str) -> str:
    """Return `whole` without the module `name` at its beginning, which may be ""."""
    return whole.removeprefix(f"{name}.") if name else whole


def _is_position_buffer(name: str, tensor: Tensor) -> bool:
    """Return whether `tensor` is the constant 0, 1, 2, ... that older versions saved with the
    weights."""
    if name != "embeddings.position_ids":
        return False
    return torch.equal(tensor.flatten().long(), torch.arange(tensor.numel()))
