"""What becomes of the tensors of a file in a model: loaded, dropped, missing, or unexpected."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from bertine.errors import BertineError
from bertine.interop.config_file import CONFIG
from bertine.interop.family import family_of
from bertine.interop.names import WeightNames
from bertine.models.config import Config
from bertine.models.initial import init_weights
from bertine.models.model import Model
from bertine.models.seeding import seeded
from bertine.terminal.shown import Shown


@dataclass(repr=False)
class LoadReport(Shown):
    """A report of what became of the tensors of a file, by their canonical names.

    Attributes:
        config: of the model.
        names: of its family.
        loaded: in the file and in the model.
        new: in the model only: initialized at random.
        dropped: in the file only; they belong to a part that was not asked for.
        adopted: in a new part of the model, with values of another part of the file.
        unexpected: in the file only, and part of nothing known. Loading refuses such a file.
        notes: head -> what to add to its name in the lines, e.g. "6 labels".
    """

    config: Config
    names: WeightNames
    loaded: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    adopted: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """Return the one line that loading prints: what was loaded, and what is new or was
        dropped."""
        parts = [f"loaded {len(self.loaded)} tensors: {self._parts(self.loaded)}"]
        if self.new:
            parts.append(f"new (random): {self._parts(self.new)}")
        if self.adopted:
            parts.append(f"new, begun with layers of another head: {self._parts(self.adopted)}")
        if self.dropped:
            parts.append(f"dropped: {self._parts(self.dropped, self.notes)}")
        return ["; ".join(parts)]

    def _parts(self, names: Collection[str], notes: Mapping[str, str] | None = None) -> str:
        """List the parts that tensors belong to, each once, in their order: "encoder, pooler"."""
        kinds = self.config.heads
        titles = {"encoder": "encoder", "pooler": "pooler"}
        titles |= {name: kind.title for name, kind in kinds.items()}
        titles |= {title: title for title in self.names.dropped.values()}
        held = {self.names.part_of(name) for name in names}
        listed = [
            title + (f" ({notes[part]})" if notes and part in notes else "")
            for part, title in titles.items()
            if part in held
        ]
        return ", ".join(listed) or "none"


def sort_tensors(
    source: Path,
    tensors: dict[str, Tensor],
    model: Model,
    names: WeightNames,
    renew: set[str],
    described_in: str = CONFIG,
) -> tuple[dict[str, Tensor], LoadReport]:
    """Sort the tensors of a file by what becomes of them.

    Args:
        source: the file, for messages.
        tensors: in it, by their canonical names.
        model: on the meta device; its shapes are what is asked for.
        names: of its family.
        renew: heads not to be loaded.
        described_in: the name of the file that says what the model is, for messages.

    Returns:
        The tensors to load, by the same names, and the report.

    Raises:
        BertineError: a tensor belongs to no known part, is of another shape than the model's, is
            of whole numbers, or is missing from a part that the file holds.
    """
    config = model.config
    expected = names.to_canonical(model.state_dict(), config)
    part_of = names.part_of
    wanted = {part_of(name) for name in expected}
    report = LoadReport(config, names)
    for head, kind in config.heads.items():
        if not kind.named or head not in names.heads:
            continue
        output = f"{names.heads[head].output()}.weight"
        old, now = tensors.get(output), expected.get(output)
        if old is None:
            continue
        report.notes[head] = f"{old.shape[0]} labels" if old.dim() == 2 else "another shape"
        # Another number of classes over the same hidden size: a head for another task.
        if now is not None and old.dim() == 2 and old.shape[1] == now.shape[1]:
            renew = renew | ({head} if old.shape != now.shape else set())

    keep: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        part = part_of(name)
        if part is None or (part in wanted and part not in renew and name not in expected):
            report.unexpected.append(name)
        elif part not in wanted or part in renew:
            report.dropped.append(name)
        elif tensor.shape != expected[name].shape:
            raise BertineError(
                f"{source}: tensor {name} has shape {list(tensor.shape)}, but {described_in} "
                f"asks for {list(expected[name].shape)}"
            )
        elif not tensor.is_floating_point():
            raise BertineError(f"{source}: tensor {name} is {tensor.dtype}, not floating-point")
        elif not _is_finite(tensor):
            raise BertineError(
                f"{source}: tensor {name} has a number that is NaN or infinite, so the "
                "model cannot answer; training has diverged, or the file is damaged: take an "
                "earlier one"
            )
        else:
            keep[name] = tensor
            report.loaded.append(name)
    if report.unexpected:
        raise BertineError(_unexpected(source, report.unexpected, model, names, described_in))

    partial = {part_of(name) for name in keep} | {"encoder"}
    missing = [name for name in expected if name not in keep]
    for name in missing:
        if part_of(name) in partial:
            count = sum(part_of(other) in partial for other in missing)
            more = f" (and {count - 1} more)" if count > 1 else ""
            raise BertineError(
                f"{source}: tensor {name} is missing{more}; {described_in} says that it must "
                "be there"
            )
    for copy, held in names.tied(config).items():
        if copy in keep and not torch.equal(keep[copy], keep[held]):
            raise BertineError(
                f"{source}: tensor {copy} is not the same as {held}, but {described_in} says they "
                "are shared; a program that does not know its key may have trained them: remove it"
            )
    report.new = [name for name in missing if not names.is_weightless(part_of(name) or "")]
    return keep, report


def _is_finite(tensor: Tensor) -> bool:
    """Tell whether all numbers of a tensor are finite in fp32, as which they are computed with."""
    values = tensor.float()
    # One pass without a copy; a sum may overflow where no number does.
    return bool(values.sum().isfinite()) or bool(values.isfinite().all())


def _unexpected(
    source: Path, unexpected: list[str], model: Model, names: WeightNames, described_in: str
) -> str:
    listed = ", ".join(unexpected[:8])
    listed += f" and {len(unexpected) - 8} more" if len(unexpected) > 8 else ""
    copies = {copy for copy, _ in names.copies}
    if not copies.isdisjoint(unexpected):
        return f"{source}: {listed} is not tied to the word embeddings; Bertine's MLM head is"
    title = model.config.title
    return (
        f"{source}: unexpected tensors: {listed}; they are not part of the {title} that "
        f"{described_in} describes. Correct that file, or save the encoder alone with "
        f"transformers' {family_of(model.config.model_type).class_prefix}Model"
    )


def adopt(
    model: Model, tensors: Mapping[str, Tensor], names: WeightNames, report: LoadReport
) -> None:
    """Give new heads the layers that they begin with and that are another head's in the file
    (:attr:`bertine.interop.names.HeadNames.adopts`), as transformers does where it calls both
    alike. The report then has them as adopted; of the head the last layer stays new."""
    for head, module in model.heads.items():
        of_head = names.heads[head]
        state = module.state_dict()
        rows = dict(of_head.rows(head))
        for ours, theirs in of_head.adopts:
            for kind in ("weight", "bias"):
                name, tensor = f"{ours}.{kind}", tensors.get(f"{theirs}.{kind}")
                canonical = rows[f"heads.{head}.{name}"]
                if canonical not in report.new or tensor is None:
                    continue
                if name in state and state[name].shape == tensor.shape:
                    state[name].copy_(tensor)
                    report.new.remove(canonical)
                    report.adopted.append(canonical)


def fill(model: Model, tensors: Mapping[str, Tensor], names: WeightNames, seed: int) -> None:
    """Give `model` the loaded tensors (canonical names), and initialize the parts without."""
    weights = names.from_canonical(tensors, model.config)
    parts: dict[str, nn.Module] = {f"heads.{name}": head for name, head in model.heads.items()}
    if model.backbone.pooler is not None:
        parts["backbone.pooler"] = model.backbone.pooler
    for name, part in parts.items():
        if any(key.startswith(name + ".") for key in weights):
            continue
        if any(tensor.is_meta for tensor in (*part.parameters(), *part.buffers())):
            part.to_empty(device="cpu")
        with seeded(seed, "new weights", name):
            init_weights(part, model.config.initializer_range)
    # A copy: what was read may share memory with the file or with another tensor.
    whole = torch.contiguous_format
    copies = {
        name: tensor.to(torch.float32, copy=True, memory_format=whole)
        for name, tensor in weights.items()
    }
    model.load_state_dict(copies, strict=False, assign=True)
    empty = [n for n, t in model.state_dict(keep_vars=True).items() if t.is_meta]
    if empty:
        raise RuntimeError(f"weights left without values: {', '.join(empty)}")
