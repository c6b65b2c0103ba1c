"""Export a model as a graph that runs without Bertine: ``export``; and answer by such a graph.

The format and the packages are checked before PyTorch is loaded, which takes seconds; so the module
that needs it is imported inside the function.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from bertine.core.errors import BertineError, require_packages
from bertine.core.files import sha256_file
from bertine.core.foreign_files import reading_outside
from bertine.core.names import INT8, ONNX, ExportFormat, option
from bertine.core.process import keep_freed_memory
from bertine.core.task_info import TASK, TaskInfo
from bertine.data.in_memory import TableLike
from bertine.inference.predictor import Pipeline, Predictor, graph_outputs, onnx_runner
from bertine.models.config import Config
from bertine.options.data import DEFAULTS, DataConfig
from bertine.options.inference import ExportOptions, PredictOptions
from bertine.options.vectors import AnyVectors
from bertine.options.verbs import takes_options
from bertine.tasks import task_class
from bertine.tasks.base import Features
from bertine.tokenization.tokenizer import Tokenizer

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


# ``predict`` by an exported folder: ONNX Runtime computes between the features and the decisions.


class ExportedPredictor(Predictor):
    """A predictor whose model is an exported graph. It needs onnxruntime and no PyTorch, which
    takes a second to import.

    Args:
        folder: the folder that :func:`bertine.export` has written.
        options: those of ``predict``; int8 is the precision of the second graph.

    Raises:
        BertineError: the folder has no such graph, or none of a task; a damaged file; onnxruntime
            is not installed; an option that needs the model itself.
    """

    def __init__(self, folder: Path, options: PredictOptions) -> None:
        file = folder / (INT8 if options.precision == "int8" else ONNX)
        usual: dict[str, tuple[Any, ...]] = {
            **{"precision": ("auto", "fp32", "int8"), "device": (None, "cpu")},
            **{"explain": (False,), "nearest_examples": (0,)},
            **{"familiarity": (False,), "abstain_unfamiliar": (None,)},
        }
        for name, values in usual.items():
            if (value := getattr(options, name)) not in values:
                problem = f"{option(name, value)} is for the model directory that it was made of"
                raise BertineError(f"{folder}: is an exported model; {problem}")
        if not (file.is_file() and (folder / TASK).is_file()):
            raise BertineError(
                f"{folder}: 'bertine predict' answers by the ONNX file of a fine-tuned model, "
                f"{file.name} with {TASK}; export it to that, or give the model directory"
            )
        require_packages("answering by an exported graph", ("onnxruntime",))
        info = TaskInfo.read(folder / TASK)
        config = Config(max_position_embeddings=info.max_length or 1)
        task = task_class(info.name).from_info(info, config)
        keep_freed_memory()
        with reading_outside(file):
            self._run = onnx_runner(file)
        # Large weights stand in a file of their own.
        parts = [part for part in (file, Path(f"{file}.data")) if part.is_file()]
        digest = partial("".join, map(sha256_file, parts))
        self.model = cast(Any, SimpleNamespace(fingerprint=digest))
        self.engine, self.load_lines, self.training, self.folder = None, [], info.training, folder
        precision: Any = "int8" if file.name == INT8 else "fp32"
        Pipeline.__init__(self, self.model, task, Tokenizer.load(folder), precision)
        self.batch_invariant = options.batch_invariant

    def compute(self, features: Sequence[Features], **options: Any) -> list[np.ndarray]:
        """Compute the outputs for `features` by the graph; see :meth:`Pipeline.compute`."""
        pad_id, alone = self.tokenizer.pad_token_id, self.batch_invariant
        return graph_outputs(self._run, features, pad_id, alone=alone, **options)
