"""``export``: a model directory → a folder that runs without Bertine.

What can be wrong without a model (the format, the packages) is checked before PyTorch
is loaded, which takes seconds; so the module that needs it is imported in between.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bertine.errors import BertineError
from bertine.names import ExportFormat, VectorPooling
from bertine.options.names import option
from bertine.options.types import check_types
from bertine.packages import require_packages
from bertine.terminal.shown import Shown

if TYPE_CHECKING:
    from bertine.interop.export_check import Difference

FORMATS = ("onnx", "torch")
#: What is needed to write ONNX, and to run it for the comparison.
ONNX_PACKAGES = ("onnx", "onnxscript", "onnxruntime")


@dataclass(repr=False)
class ExportReport(Shown):
    """What was exported.

    Attributes:
        output: the folder.
        what: what the graph gives, in words.
        differences: against PyTorch in fp32, by file.
        sizes: bytes, by file.
        vectors: whether it gives vectors, not logits.
        notes: what else a person should know.
    """

    output: Path
    what: str
    differences: dict[str, Difference] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    vectors: bool = False
    notes: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """What a person reads in the terminal."""
        lines = [f"exported to {self.output}: {self.what}"]
        for name, difference in self.differences.items():
            size = self.sizes[name] / 1e6
            lines.append(f"{name}: {size:.1f} MB; {difference.text(self.vectors)}")
        return lines + self.notes


@check_types
def export(
    model: Path | str,
    output: Path | str,
    *,
    format: ExportFormat = "onnx",
    int8: bool = False,
    pooling: VectorPooling | None = None,
    layer: int | None = None,
    normalize: bool | None = None,
    max_length: int | None = None,
) -> ExportReport:
    """Write a model as a graph that runs without Bertine, with its tokenizer, for batches and texts
    of any size; and compare what it gives with what the model gives.

    A fine-tuned model gives its logits, any other the vectors of texts, pooled in the graph. The
    folder holds ``model.onnx`` (and ``model.int8.onnx``) or ``model.pt2``, ``tokenizer.json`` that
    cuts and pads, ``config.json``, and ``export.json``, which says what goes in and comes out.

    Args:
        model: a model directory of any kind.
        output: the folder; an earlier export there is replaced.
        format: ``"onnx"`` (needs onnx, onnxruntime and onnxscript) or ``"torch"``, a program
            of ``torch.export``.
        int8: of ONNX, also write one with int8 weights.
        pooling, layer, normalize: give vectors, of a fine-tuned model too; as in
            :meth:`~bertine.Embedder.load`. None of them: as told above.
        max_length: pieces at which the tokenizer cuts texts; None: as many as `predict` reads: as
            the model directory says, else as the model has positions for (of spans at most 384).

    Raises:
        BertineError: no such model, an unknown format, int8 of PyTorch's, a package that is not
            installed; a maximum length beyond the model's positions or without room for text; a
            folder that holds something else; a graph that answers otherwise.
    """
    output = Path(output)
    if format not in FORMATS:
        raise BertineError(f"format {format!r} is not known; choose {', '.join(FORMATS)}")
    if int8 and format != "onnx":
        raise BertineError("int8 is for the format onnx")
    if format == "onnx":
        require_packages(
            "exporting to ONNX",
            ONNX_PACKAGES,
            f"export a program of PyTorch ({option('format', 'torch')})",
        )
    from bertine.inference.export_graph import export_graph

    return export_graph(
        model,
        output,
        format=format,
        int8=int8,
        pooling=pooling,
        layer=layer,
        normalize=normalize,
        max_length=max_length,
    )
