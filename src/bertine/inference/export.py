"""Export a model as a graph that runs without Bertine, and compare the two: ``export``."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tokenizers

from bertine.core.console import Shown, logger, visible_list
from bertine.core.errors import BertineError, require_packages
from bertine.core.files import atomic_dir, check_replaceable, write_json, write_text
from bertine.core.names import ExportFormat, __version__, option
from bertine.core.task_info import TaskInfo
from bertine.data.in_memory import TableLike
from bertine.datasets.readers import DataConfig
from bertine.hub.elmo_files import word_model_of
from bertine.hub.export import (
    ABOUT,
    INPUTS,
    OPSET,
    ExportModule,
    compare,
    example_inputs,
    exported_program,
    onnx_runner,
    output_names,
    quantize_onnx,
    task_head,
    torch_runner,
    write_onnx,
    write_torch,
)
from bertine.hub.model_directory import CONFIG, load_model, model_folder
from bertine.inference.embedding.embedder import Embedder
from bertine.inference.export_scores import GraphScorer
from bertine.models.config_file import read_sentence_modules
from bertine.models.family import config_to_huggingface
from bertine.models.heads import Model
from bertine.models.pooling import Pooling
from bertine.options.inference import ExportOptions
from bertine.options.vectors import AnyVectors
from bertine.options.verbs import takes_options
from bertine.tasks import TASKS, task_class
from bertine.tasks.base import require_positions
from bertine.tokenization.tokenizer import Tokenizer

if TYPE_CHECKING:
    from bertine.hub.export import Difference
    from bertine.inference.export_scores import GraphScores


# Report: the result of ``export`` for people.


@dataclass(repr=False)
class ExportReport(Shown):
    """The result of an export.

    Attributes:
        output: the folder.
        what: the outputs of the graph, in words.
        differences: the differences from PyTorch in fp32, by file.
        sizes: the sizes in bytes, by file.
        vectors: whether the outputs are vectors, not logits.
        scores: the scores of model and graphs on each set of labelled examples, where these were
            given.
        notes: further notes.
    """

    output: Path
    what: str
    differences: dict[str, Difference] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    vectors: bool = False
    scores: list[GraphScores] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Return the report as lines of text."""
        lines = [f"exported to {self.output}: {self.what}"]
        for name, difference in self.differences.items():
            size = self.sizes[name] / 1e6
            lines.append(f"{name}: {size:.1f} MB; {difference.text(self.vectors)}")
        for scores in self.scores:
            lines += scores.lines()
        return lines + self.notes


#: The files of the folder.
ONNX, INT8, TORCH = "model.onnx", "model.int8.onnx", "model.pt2"

#: The largest difference from PyTorch in fp32, relative to the largest number, that counts as
#: rounding.
_TOLERANCE = 1e-3


def export_graph(
    model: Path | str,
    output: Path,
    *,
    format: ExportFormat,
    int8: bool,
    vectors: AnyVectors,
    normalize: bool | None,
    data: Path | str | TableLike | None,
    reading: DataConfig,
    show_progress: bool,
) -> ExportReport:
    """Export a model as :func:`bertine.export` describes, once its packages are known to be
    installed.

    Raises:
        BertineError: see :func:`bertine.export`.
    """
    check_replaceable(
        output, "folder of an exported model", lambda folder: (folder / ABOUT).is_file()
    )
    source = _open(model, vectors, normalize)
    scorer = None if data is None else _scorer(source, data, reading)
    about = _about(source)
    report = ExportReport(output, _what(source), vectors=source.pooling is not None)
    if source.prompt:
        report.notes.append(f"the graph sees no texts: put {source.prompt!r} before each")
    if (long_text := _long_text(source)) not in ("head", "tail"):
        report.notes.append(
            f"longer texts were read by {long_text!r} (long_text), but tokenizer.json keeps their "
            f"first {source.max_length} pieces"
        )
    graph = ExportModule(source.model, source.pooling).eval()
    program = exported_program(graph, source.model.config.longest_input)
    tokenizer = source.tokenizer
    around = tokenizer.template.one
    ends = (around.before, around.after)
    batches = example_inputs(source.model, ends, tokenizer.special_ids, source.max_length)
    with atomic_dir(output) as folder:
        if format == "torch":
            write_torch(program, folder / TORCH)
            runners = {TORCH: torch_runner(folder / TORCH)}
            about["file"] = TORCH
        else:
            write_onnx(program, folder / ONNX, output_names(source.model, source.pooling))
            runners = {ONNX: onnx_runner(folder / ONNX)}
            about |= {"file": ONNX, "opset": OPSET}
            if int8:
                quantize_onnx(folder / ONNX, folder / INT8)
                runners[INT8] = onnx_runner(folder / INT8)
                about["int8_file"] = INT8
        for name, runner in runners.items():
            difference = compare(source.model, source.pooling, batches, runner)
            report.differences[name] = difference
            report.sizes[name] = sum(file.stat().st_size for file in folder.glob(f"{name}*"))
            most = np.inf if name == INT8 else _TOLERANCE * difference.scale
            if not (difference.largest <= most and np.isfinite(difference.largest)):
                raise BertineError(
                    f"{model}: the exported graph answers otherwise than the model "
                    f"({difference.text(report.vectors)}); nothing was written. Please report this"
                )
        about["differences"] = {
            name: {key: getattr(difference, key) for key in ("largest", "cosine", "same")}
            for name, difference in report.differences.items()
        }
        if scorer is not None:
            report.scores = scorer.score(runners, show_progress=show_progress)
            about["scores"] = [scores.to_dict() for scores in report.scores]
        _write_tokenizer(folder, source)
        _write_config(folder, source)
        write_json(folder / ABOUT, about)
    return report


def _write_config(folder: Path, source: _Source) -> None:
    """Write the model's ``config.json``; a checkpoint folder of Google's has the same facts in
    another file."""
    if (source.folder / CONFIG).exists():
        shutil.copyfile(source.folder / CONFIG, folder / CONFIG)
        return
    model = source.model
    labels = () if source.task is None else source.task.labels
    values = config_to_huggingface(model.config, heads=model.heads.keys(), labels=labels)
    write_json(folder / CONFIG, values)


@dataclass(frozen=True)
class _Source:
    """A model that is to be exported.

    Attributes:
        folder: the folder with the ``config.json``.
        pooling: the pooling of vectors; None: the graph gives the logits of the task.
        max_length: the number of pieces at which texts are cut.
        prompt: the text to put before every text.
    """

    folder: Path
    model: Model
    tokenizer: Tokenizer
    task: TaskInfo | None
    pooling: Pooling | None
    max_length: int
    prompt: str = ""


def _open(path: Path | str, vectors: AnyVectors, normalize: bool | None) -> _Source:
    """Load the model to export.

    Raises:
        BertineError: the model cannot be loaded; it is a table of word or piece vectors, or an
            ELMo; a maximum length that the model does not support, or that leaves no room for text.
    """
    if (of_words := word_model_of(path)) is not None:
        raise BertineError(
            f"{path}: model_type is {of_words}, whose vectors are those of words or pieces; such "
            "are not exported: use it with embed or similar"
        )
    modules = read_sentence_modules(path)
    folder = model_folder(modules.transformer if modules else path)
    bare = vectors.pooling is None and vectors.layer is None and normalize is None
    if modules is None and bare:
        loaded = load_model(folder)
        kind = None if loaded.task is None else TASKS.get(loaded.task.name)
        if kind is not None and kind.writes:
            raise BertineError(
                f"{path}: writes texts by a search, which is no graph; its vectors can be "
                f"exported with {option('pooling', 'mean')}"
            )
        if loaded.task is not None and task_head(loaded.model):
            for line in loaded.report.lines():
                logger.info(line)
            longest = vectors.max_length
            if longest is None and loaded.task.max_length is None:  # the maximum of the task itself
                task = task_class(loaded.task.name).from_info(loaded.task, loaded.config)
                longest = task.max_length
            elif longest is None:
                longest = loaded.task.input_length(loaded.config.longest_input)
            require_positions(longest, loaded.config)
            if longest <= loaded.tokenizer.template.added():
                raise BertineError(f"max_length {longest} leaves no room for text")
            return _Source(folder, loaded.model, loaded.tokenizer, loaded.task, None, longest)
    embedder = Embedder.opened(
        path,
        **vectors.values(),
        normalize=normalize,
        prompt=None,
        device="cpu",
        precision="fp32",
    )
    return _Source(
        folder,
        embedder.model,
        embedder.tokenizer,
        None,
        embedder.pooling,
        embedder.max_length,
        embedder.prompt,
    )


def _scorer(source: _Source, data: Path | str | TableLike, reading: DataConfig) -> GraphScorer:
    """Read the labelled examples, before anything is computed.

    Raises:
        BertineError: the graph gives vectors; the examples cannot be read.
    """
    if source.task is None:
        raise BertineError(
            f"{source.folder}: is exported to give vectors, which have no labels to be scored on; "
            f"leave out {option('data')}"
        )
    info = replace(source.task, max_length=source.max_length)
    task = task_class(info.name).from_info(info, source.model.config)
    return GraphScorer(source.model, source.tokenizer, task, data, reading, info.training)


def _long_text(source: _Source) -> str:
    """Return which part of a long text the task reads (:mod:`bertine.tasks.base`)."""
    if source.pooling is not None or source.task is None:
        return "head"
    return source.task.setting("long_text", "head")


def _what(source: _Source) -> str:
    """Describe the outputs of the graph."""
    if source.pooling is not None:
        kind = "tokens" if source.pooling.tokens else "texts"
        width = source.pooling.width(source.model.config)
        return f"vectors of {kind} ({source.pooling.describe()}; {width} numbers)"
    assert source.task is not None
    labels = source.task.labels
    names = f" of {len(labels)} labels ({visible_list(labels[:8])}{', …' * (len(labels) > 8)})"
    return f"the logits of the task {source.task.name!r}" + (names if labels else "")


def _about(source: _Source) -> dict[str, Any]:
    """Return the contents of ``export.json``: inputs, outputs and their meaning."""
    shapes = {
        "logits": "float32 [batch, K]",
        "vectors": "float32 [batch, D]",
        "token_vectors": "float32 [batch, length, D]",
        "start_logits": "float32 [batch, length]",
        "end_logits": "float32 [batch, length]",
    }
    if source.pooling is None and "token_classifier" in source.model.heads:
        shapes["logits"] = "float32 [batch, length, K]"
    about: dict[str, Any] = {
        "bertine": __version__,
        "inputs": dict.fromkeys(INPUTS, "int64 [batch, length]"),
        "outputs": {name: shapes[name] for name in output_names(source.model, source.pooling)},
        "max_length": source.max_length,
        "max_positions": source.model.config.longest_input,
    }
    if source.pooling is not None:
        about["pooling"] = list(source.pooling.modes)
        about["layer"], about["normalize"] = source.pooling.layer, source.pooling.normalize
        about["dimensions"] = source.pooling.width(source.model.config)
        if source.prompt:
            about["prompt"] = source.prompt
    elif source.task is not None:
        about["task"] = source.task.name
        about["labels"] = list(source.task.labels)
        about["text_columns"] = list(source.task.text_columns)
        about["label_column"] = source.task.label_column
        about["metrics"], about["dataset"] = list(source.task.metrics), source.task.dataset
        about["settings"] = source.task.settings
    return about


def _write_tokenizer(folder: Path, source: _Source) -> None:
    """Write the tokenizer's files; tokenizer.json cuts at the maximum length and pads to the
    longest of a batch."""
    source.tokenizer.save(folder, model_max_length=source.max_length)
    backend = tokenizers.Tokenizer.from_str(source.tokenizer.backend.to_str())
    # With a question and its context, the question is kept whole.
    spans = source.pooling is None and "spans" in source.model.heads
    strategy = "only_second" if spans else "longest_first"
    direction = "left" if _long_text(source) == "tail" else "right"
    backend.enable_truncation(source.max_length, strategy=strategy, direction=direction)
    pad_id = source.tokenizer.pad_token_id
    backend.enable_padding(pad_id=pad_id, pad_token=source.tokenizer.id_to_token(pad_id))
    write_text(folder / "tokenizer.json", backend.to_str(pretty=True) + "\n")


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
    from bertine.datasets.readers import DataConfig
    from bertine.tasks.labels import TableOptions

    return export_graph(
        model,
        output,
        format=format,
        int8=int8,
        vectors=AnyVectors.of(options),
        normalize=options.normalize,
        data=data,
        reading=DataConfig.of(
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
