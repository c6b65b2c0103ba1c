"""``export``: a model directory → a folder that runs without Bertine.

What can be wrong without a model (the format, the packages) is checked before PyTorch
is loaded, which takes seconds; so the module that needs it is imported in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bertine.errors import BertineError
from bertine.inference.export_report import ExportReport
from bertine.names import ExportFormat, LabelledFormat, TagScheme, VectorPooling
from bertine.options.names import option
from bertine.options.types import check_types
from bertine.packages import require_packages
from bertine.tables.given import TableLike

FORMATS = ("onnx", "torch")
#: What is needed to write ONNX, and to run it for the comparison.
ONNX_PACKAGES = ("onnx", "onnxscript", "onnxruntime")


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
    data: Path | str | TableLike | None = None,
    text_columns: Sequence[str] | str | None = None,
    label_column: str | None = None,
    data_format: LabelledFormat | None = None,
    quotes: bool | None = None,
    strict: bool = False,
    word_column: int | None = None,
    tag_column: int | None = None,
    tag_scheme: TagScheme | None = None,
    show_progress: bool = True,
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
        pooling, layer, normalize: give vectors, of a fine-tuned model too; as in
            :meth:`~bertine.Embedder.load`. None of them: as told above.
        max_length: pieces at which the tokenizer cuts texts; None: as many as `predict` reads: as
            the model directory says, else as the model has positions for (of spans at most 384).
        data: labelled examples, a file, folder or table as for :func:`bertine.evaluate`: the
            scores of the model and of each graph on them are in the report and in
            ``export.json``. None: no scores.
        text_columns, label_column, quotes, strict, word_column, tag_column, tag_scheme: of `data`,
            as for :func:`bertine.evaluate`.
        data_format: of `data`: csv, tsv, jsonl or columns; None: detected from its name and first
            line.
        show_progress: of scoring, on stderr.

    Raises:
        BertineError: no such model, an unknown format, int8 of PyTorch's, a package that is not
            installed; a maximum length beyond the model's positions or without room for text; a
            folder that holds something else; a graph that answers otherwise; `data` for a graph
            that gives vectors, or data that cannot be read, or whose labels the model does not
            know; something said of `data` where there are none.
    """
    output = Path(output)
    of_data = {
        "text_columns": text_columns,
        "label_column": label_column,
        "data_format": data_format,
        "quotes": quotes,
        "strict": strict or None,
        "word_column": word_column,
        "tag_column": tag_column,
        "tag_scheme": tag_scheme,
    }
    for name, value in of_data.items():
        if data is None and value is not None:
            raise BertineError(
                f"{option(name)} says how labelled examples are read; give them ({option('data')}) "
                "or leave it out"
            )
    of_vectors = {"pooling": pooling, "layer": layer, "normalize": normalize}
    for name, value in of_vectors.items():
        if data is not None and value is not None:
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

    return export_graph(
        model,
        output,
        format=format,
        int8=int8,
        pooling=pooling,
        layer=layer,
        normalize=normalize,
        max_length=max_length,
        data=data,
        reading=Reading(
            text_columns=text_columns,
            label_column=label_column,
            format=data_format,
            quotes=quotes,
            strict=strict,
            word_column=word_column,
            tag_column=tag_column,
            tag_scheme=tag_scheme,
        ),
        show_progress=show_progress,
    )
