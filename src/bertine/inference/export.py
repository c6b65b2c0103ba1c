"""Export a model as a graph that runs without Bertine: ``export``.

The format and the packages are checked before PyTorch is loaded, which takes seconds; so the module
that needs it is imported inside the function.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bertine.core.errors import BertineError, require_packages
from bertine.core.names import ExportFormat, option
from bertine.data.in_memory import TableLike
from bertine.options.data import DEFAULTS, DataConfig
from bertine.options.inference import ExportOptions
from bertine.options.vectors import AnyVectors
from bertine.options.verbs import takes_options

if TYPE_CHECKING:
    from bertine.inference.export_graph import ExportReport


# ``export``: checks before loading.
#
# Options and packages are checked before PyTorch is imported, which takes seconds; so the modules
# that need it are imported inside the function.

FORMATS = ("onnx", "torch")
#: The packages for writing ONNX, and for running it in the comparison.
ONNX_PACKAGES = ("onnx", "onnxscript", "onnxruntime")


@takes_options()
def export(
    model: Path | str,
    output: Path | str,
    *,
    format: ExportFormat = "onnx",
    int8: bool = False,
    data: Path | str | TableLike | None = None,
    show_progress: bool = True,
    options: ExportOptions,
) -> ExportReport:
    """Write a model as a graph that runs without Bertine, with its tokenizer, for batches and texts
    of any size; compare its outputs with those of the model; and score both on `data`.

    The graph of a fine-tuned model gives logits, that of any other model the vectors of texts,
    pooled in the graph. The folder holds ``model.onnx`` (and ``model.int8.onnx``) or ``model.pt2``,
    ``tokenizer.json`` that cuts and pads, ``config.json``, and ``export.json``, which describes
    inputs and outputs.

    Args:
        model: a model directory of any kind.
        output: the folder; an earlier export there is replaced.
        format: ``"onnx"`` (needs onnx, onnxruntime and onnxscript) or ``"torch"``, a program
            of ``torch.export``.
        int8: for ONNX, also write a graph with int8 weights.
        data: labelled examples, a file, folder or table as for :func:`bertine.evaluate`: the
            scores of the model and of each graph on them are in the report and in
            ``export.json``. None: no scores.
        show_progress: show the progress of scoring on stderr.
        options: how `data` are read, as for :func:`bertine.evaluate`, and how vectors are made:
            with one of `pooling`, `layer` and `normalize` the graph of a fine-tuned model gives
            vectors too.

    Raises:
        BertineError: no such model, an unknown format, int8 with the format of PyTorch, a package
            that is not installed; a maximum length beyond the model's positions or without room for
            text; a folder that holds something else; a graph whose outputs differ from the model's;
            `data` for a graph that gives vectors, or data that cannot be read, or whose labels the
            model does not know; options for `data` without `data`.
    """
    output = Path(output)
    changed, given = options.changed(), option("data")
    if data is None:
        options.refuse_others("vectors, which have no labels", changed, f"{given} is not given")
    else:
        options.refuse_others("labelled examples", changed, f"{given} is given")
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
        vectors=AnyVectors.of(options),
        normalize=options.normalize,
        data=data,
        config=DataConfig.of(options, DEFAULTS, format=options.data_format),
        show_progress=show_progress,
    )
