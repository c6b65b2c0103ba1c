"""Score a model on labelled data, held-out text or minimal pairs, and rank its worst examples."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bertine.core.console import progress
from bertine.core.contrib import job_of_model
from bertine.core.errors import BertineError
from bertine.core.files import write_json
from bertine.corpora.store import is_store
from bertine.data.examples import Examples
from bertine.data.in_memory import TableLike, as_data
from bertine.datasets.readers import Sets, read_evaluation
from bertine.hub.model_directory import load_model
from bertine.inference.embedding.embedder import Embedder
from bertine.inference.embedding.evaluate_vectors import (
    evaluate_vectors,
    gives_vectors,
    holds_text_pairs,
)
from bertine.inference.heldout import evaluate_store
from bertine.inference.minimal_pairs.evaluate_pairs import evaluate_pairs, holds_pairs
from bertine.inference.predictor import Pipeline, Predictor
from bertine.inference.ranking import ranked
from bertine.inference.train_overlap import overlap_note
from bertine.options.data import DEFAULTS, DataConfig
from bertine.options.inference import EvaluateOptions
from bertine.options.verbs import takes_options
from bertine.tasks import TASKS
from bertine.tasks.answer import WorstExample, WorstExamples
from bertine.tasks.base import Features, Task
from bertine.tasks.report import MAJORITY, ClassificationReport, EvaluationReport, baseline_lines
from bertine.tasks.unknown_text import UnknownText

# Worst examples: those with the highest loss.
#
# The loss is that of training, without dropout and class weights, so numbers are comparable with
# the training log; the highest ones are examples that were not learned. Wrong labels are often
# among them, unless the model has learned these by heart.
#
# In nats: cross-entropy of a text's class, of a choice among those of its example; binary
# cross-entropy, the mean over the labels; for tags, the mean over the words; for spans, the mean of
# start and end. For a regression the squared error in standard deviations of the training scores.
# An example that is read in several windows has their mean; a question the smallest of the windows
# that hold its answer, or, where none does, the mean of all.

#: The file of the worst examples in a run's folder, and the number of examples in it.
WORST = "worst.json"
_KEPT = 20


def worst_examples(
    pipeline: Pipeline, examples: Examples[Any], n: int
) -> tuple[list[WorstExample], list[float]]:
    """Compute the `n` labelled examples with the highest loss, highest first (of equals the first),
    and the losses of all of them, highest first.

    Raises:
        BertineError: an unknown label, or an input that does not fit the model.
    """
    features = pipeline.prepare(examples).features
    return worst_of(pipeline.task, examples, features, pipeline.compute(features), n)


def write_worst(
    folder: Path,
    task: Task[Any],
    examples: Examples[Any],
    features: Sequence[Features],
    outputs: Sequence[np.ndarray],
) -> list[WorstExample]:
    """Write the worst examples into a run's `folder`, as ``worst.json``: ``mean_loss`` and
    ``num_examples`` of all, and at most 20 under ``examples``, their texts cut at 400 characters.
    Nothing where there are no labelled examples.

    The other arguments are those of :func:`worst_of`.

    Returns:
        The data that was written, with whole texts.
    """
    worst, losses = worst_of(task, examples, features, outputs, _KEPT)
    if not worst:
        return []
    shown = [item.to_dict() for item in worst]
    mean = math.fsum(losses) / len(losses)
    write_json(folder / WORST, {"num_examples": len(losses), "mean_loss": mean, "examples": shown})
    return worst


def worst_of(
    task: Task[Any],
    examples: Examples[Any],
    features: Sequence[Features],
    outputs: Sequence[np.ndarray],
    n: int,
) -> tuple[list[WorstExample], list[float]]:
    """Rank labelled examples by the model's `outputs` for their `features`: the `n` worst, and the
    losses of all of them, highest first."""
    answers = task.decode(outputs, features)
    # The first column of a file of predictions is the answer itself.
    value, *_ = task.output_columns(False).values()
    values = [value(answer) for answer in answers]
    return ranked(task.answer, examples, task.losses(outputs, features), answers, values, n)


# ``evaluate``: scores by the kind of the data.

#: The kinds of data that a pre-trained model is scored on.
_STORE, _PAIRS = "is a token store", "is a set of minimal pairs"


@takes_options()
def evaluate(
    model: Predictor | Embedder | Path | str,
    data: Path | str | TableLike,
    *,
    show_progress: bool = True,
    options: EvaluateOptions,
) -> EvaluationReport:
    """Score a fine-tuned model on a labelled file, or on the validation (else test) file of a
    folder; or a pre-trained one on a token store of held-out text, an ELMo on raw text, both on
    minimal pairs. A model that was trained on a task of GLUE reads its official dev files (a model
    for MNLI both, and AX's too), one for spans those of SQuAD. A directory of
    sentence-transformers, static vectors or a pre-trained model is scored on pairs of texts: with a
    score by the order of the cosines (Spearman), without one by the results of a search (nDCG@10,
    recall, MRR@10).

    Args:
        model: a model directory, or a loaded one.
        data: the file or folder, or the store; or a table in memory, as for `finetune`. Minimal
            pairs are JSON lines in the format of BLiMP, with ``sentence_good`` and
            ``sentence_bad``, or a folder of such files.
        show_progress: on stderr.
        options: the options described below; a loaded model keeps its device and precision.

    Returns:
        The scores. If the model was trained on these examples, the first note says so.

    Raises:
        BertineError: no such model or data, a missing column, a label that the model does not
            know; `worst` is below 0; `worst` or `baselines` is given for a token store or for
            minimal pairs.
    """
    config = DataConfig.of(options, DEFAULTS)
    if not isinstance(model, Predictor) and gives_vectors(model):
        return evaluate_vectors(model, as_data(data), options, show_progress=show_progress)
    device, precision, changed = options.device, options.precision, options.changed()
    data = as_data(data)
    if isinstance(data, str | Path) and not isinstance(model, Predictor | Embedder):
        what = _without_labels(data)
        if what:
            options.refuse_others("token stores and minimal pairs", changed, f"{data} {what}")
            score = evaluate_store if what == _STORE else evaluate_pairs
            return score(
                model, data, device=device, precision=precision, show_progress=show_progress
            )
    assert not isinstance(model, Embedder)
    if not isinstance(model, Predictor) and (own := job_of_model(model, "evaluate")):
        report: EvaluationReport = own(model, data, options)
        return report
    loaded = None
    if not isinstance(model, Predictor):
        loaded = load_model(model)
        answers = loaded.task is not None and loaded.task.name in TASKS
        # Without pairs to score vectors on, the predictor reports what the model lacks.
        if not answers and holds_text_pairs(data, options):
            return evaluate_vectors(model, data, options, show_progress=show_progress)
    options.refuse_others("labelled examples", changed, "this model answers")
    predictor = Predictor.for_scores(model, device, precision, loaded=loaded).deciding(options)
    sets = read_evaluation(predictor.task, data, config)
    predictor = predictor.over(next(iter(sets.values())).text_columns)
    report = evaluate_sets(predictor, sets, show_progress=show_progress, worst=options.worst)
    seen = overlap_note(predictor.training, next(iter(sets.values())))
    if seen:
        report.notes.insert(0, seen)
    if options.baselines:
        report.notes.extend(_baseline_notes(predictor, sets, report, fair=not seen))
    return report


def _without_labels(data: Path | str) -> str:
    """Return the kind of `data` for a pre-trained model; "" for labelled examples."""
    if is_store(Path(data)):
        return _STORE
    return _PAIRS if holds_pairs(data) else ""


def _baseline_notes(
    predictor: Predictor, sets: Sets, report: EvaluationReport, *, fair: bool
) -> list[str]:
    """Return the table of the baselines with the model's scores, or why there is none. If the
    comparison is not `fair`, as the model has seen the examples, none wins."""
    from bertine.inference.baselines.measure import refit_baselines

    dtype = torch.bfloat16 if predictor.dtype == torch.bfloat16 else torch.float32
    packed = predictor.engine is not None  # computes on a CPU
    device = torch.device("cpu") if packed else next(predictor.model.parameters()).device
    try:
        scores = refit_baselines(predictor.task, predictor.training, sets, dtype, device)
    except BertineError as error:
        return [f"no baselines: {error}"]
    judged = predictor.task.task_info().metrics or (predictor.task.primary_metric,)
    scores = [replace(score, may_win=fair) for score in scores]
    return baseline_lines(report.metrics, judged, scores)


def evaluate_sets(
    predictor: Predictor, sets: Sets, *, show_progress: bool, worst: int = 0
) -> EvaluationReport:
    """Score a fine-tuned model on the sets of examples that
    :func:`~bertine.datasets.readers.read_evaluation` has read: the report on the first set, with
    the metrics of the others. `worst` as for :func:`evaluate`, of the first.

    Raises:
        BertineError: a label that the model does not know, or no examples.
    """
    features_of = {
        word: predictor.task.featurize(examples, predictor.tokenizer)
        for word, examples in sets.items()
    }
    reports: dict[str, EvaluationReport] = {}
    with progress(show=show_progress) as bar:
        job = bar.add_task("evaluate", total=sum(map(len, features_of.values())))
        for word, examples in sets.items():
            reports[word] = evaluate_examples(
                predictor,
                examples,
                features=features_of[word],
                on_batch=lambda done: bar.advance(job, done),
                worst=0 if reports else worst,
            )
    unknown = UnknownText(predictor.tokenizer)
    for word, examples in sets.items():
        unknown.count(features_of[word], [item.texts for item in examples.items])
    (_, report), *others = reports.items()
    if note := unknown.note():
        report.notes.append(f"{report.source}: {note}")
    if isinstance(report, ClassificationReport):
        report.training_majority = predictor.training.get(MAJORITY)
    for word, other in others:
        add_metrics(report, word, other)
    return report


def evaluate_examples(
    pipeline: Pipeline,
    examples: Examples,
    *,
    features: Sequence[Features] | None = None,
    on_batch: Callable[[int], None] | None = None,
    worst: int = 0,
    outputs: Sequence[np.ndarray] | None = None,
) -> EvaluationReport:
    """Score a model on labelled examples.

    Args:
        pipeline: the model with its task.
        features: the features of the examples, if they exist already (an evaluation each epoch);
            None: they are computed.
        on_batch: called with the number of features of each finished batch.
        worst: the number of worst predicted examples in the report.
        outputs: the outputs for the features, if they exist already.

    Raises:
        BertineError: an unknown label, an input that does not fit the model, or no examples.
    """
    task, prepared = pipeline.task, pipeline.prepare(examples, features)
    if outputs is None:
        outputs = pipeline.compute(prepared.features, on_batch=on_batch)
    report = task.judge(pipeline.finish(prepared, outputs), examples)
    report.source = examples.source
    if worst:
        report.worst = WorstExamples(worst_of(task, examples, prepared.features, outputs, worst)[0])
    report.notes.extend([*examples.notes, *task.notes(prepared.features)])
    return report


def add_metrics(report: EvaluationReport, word: str, other: EvaluationReport) -> None:
    """Add the metrics of a further set to `report`, with the prefix `word`, and its notes."""
    report.metrics.update({f"{word}_{name}": value for name, value in other.metrics.items()})
    report.notes.extend(other.notes)
