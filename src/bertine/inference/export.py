"""Write a model directory as a folder that runs without Bertine: ``export``.

What can be wrong without a model (the format, the packages) is checked before PyTorch
is loaded, which takes seconds; so the module that needs it is imported in between.
"""

from __future__ import annotations

from pathlib import Path

from bertine.errors import BertineError
from bertine.inference.export_report import ExportReport
from bertine.names import ExportFormat
from bertine.options.answering import ExportOptions
from bertine.options.names import option
from bertine.options.vectors import AnyVectors
from bertine.options.verbs import takes_options
from bertine.packages import require_packages
from bertine.tables.given import TableLike

FORMATS = ("onnx", "torch")
#: What is needed to write ONNX, and to run it for the comparison.
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
    of any size; compare what it gives with what the model gives; and score both on `data`.

    A fine-tuned model gives its logits, any other the vectors of texts, pooled in the graph. The
    folder holds ``model.onnx`` (and ``model.int8.onnx``) or ``model.pt2``, ``tokenizer.json`` that
    cuts and pads, ``config.json``, and ``export.json``, which says what goes in and comes out.

    Args:
        model: a model directory of any kind.
        output: the folder; an earlier export there is replaced.
        format: ``"onnx"`` (needs onnx, onnxruntime and onnxscript) or ``"torch"``, a program
            of ``torch.export``.
        int8: of ONNX, also write one with int8 weights.
        data: labelled examples, a file, folder or table as for :func:`bertine.evaluate`: the
            scores of the model and of each graph on them are in the report and in
            ``export.json``. None: no scores.
        show_progress: of scoring, on stderr.
        options: how `data` are read, as for :func:`bertine.evaluate`, and, of vectors, how they
            are made: one of `pooling`, `layer` and `normalize` makes vectors of a fine-tuned model
            too.

    Raises:
        BertineError: no such model, an unknown format, int8 of PyTorch's, a package that is not
            installed; a maximum length beyond the model's positions or without room for text; a
            folder that holds something else; a graph that answers otherwise; `data` for a graph
            that gives vectors, or data that cannot be read, or whose labels the model does not
            know; something said of `data` where there are none.
    """
    output = Path(output)
    of_vectors = ("pooling", "layer", "normalize")
    for name, value in options.changed().items():
        if data is None and value is not None and name not in (*of_vectors, "max_length"):
            raise BertineError(
                f"{option(name)} says how labelled examples are read; give them ({option('data')}) "
                "or leave it out"
            )
    for name in of_vectors:
        if data is not None and getattr(options, name) is not None:
            raise BertineError(
                f"{option(name)} exports vectors, which have no labels to be scored on; leave out "
                f"{option('data')}"
            )
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
    from bertine.datasets.reading import Reading
    from bertine.inference.export_graph import export_graph
    from bertine.tasks.options import TableOptions

    return export_graph(
        model,
        output,
        format=format,
        int8=int8,
        vectors=AnyVectors.of(options),
        normalize=options.normalize,
        data=data,
        reading=Reading.of(
            options,
            format=options.data_format,
            glue_task=None,
            document_context=False,
            split_seed=None,
            options=TableOptions(),
            whole=False,
            known=frozenset(),
            limits=None,
        ),
        show_progress=show_progress,
    )
