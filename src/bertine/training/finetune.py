"""``finetune``: a model directory and labelled examples in, a model directory that answers out."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from bertine import rng
from bertine.console import human_time, say, warn
from bertine.data.batching import FeatureBatches
from bertine.errors import BertineError
from bertine.files import read_json, write_json
from bertine.inference.evaluate import add_metrics, evaluate_examples
from bertine.inference.losses import write_worst
from bertine.modeldir import LoadedModel, load_config, load_model, save_model
from bertine.models.model import Model
from bertine.models.precision import precision_name, resolve_precision
from bertine.taskinfo import TaskInfo
from bertine.tasks.base import Features, Report, Task
from bertine.tasks.examples import Examples
from bertine.tasks.labelled import Labelled, TaggedReading, read_labelled
from bertine.tasks.metrics import official_score
from bertine.tasks.options import TableOptions
from bertine.tasks.regression import TextRegression
from bertine.tasks.span_report import SpanReport
from bertine.tasks.span_windows import unaligned_answers
from bertine.tasks.spans import SpanExtraction, SpanLimits
from bertine.training.best import Choice, load_best
from bertine.training.display import Display
from bertine.training.fit import FitConfig, fit
from bertine.training.freezing import check_freezing, frozen
from bertine.training.run import Run
from bertine.training.schedule import WARMUP_RATIO
from bertine.training.schedule import schedule as schedule_of
from bertine.training.tracking import read_log
from bertine.training.world import join, together


@dataclass(frozen=True)
class FinetuneResult:
    """What a fine-tuning run ended with.

    Attributes:
        model: the model directory; of all of GLUE, the folder with a run for each task.
        scores: the metrics on the validation examples after each epoch, with ``step``.
        report: the evaluation of the model in `model`; None when a finished run was found, and
            in all processes but the first.
        elapsed: seconds of training, evaluation not counted.
        metric_names: the metrics by which the task is judged.
        runs: of all of GLUE, the result of each task by its name.
        final: the metrics of the model in `model` on the validation examples; of all of GLUE empty.
    """

    model: Path
    scores: list[dict[str, Any]]
    report: Report | None
    elapsed: float
    metric_names: tuple[str, ...] = ()
    runs: dict[str, FinetuneResult] = field(default_factory=dict)
    final: dict[str, float] = field(default_factory=dict)

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics of the final model on the validation examples."""
        return dict(self.final if self.report is None else self.report.metrics)

    @property
    def score(self) -> float:
        """The mean of the metrics by which the task is judged: in GLUE, its score; of all of GLUE,
        the average over the tasks."""
        return official_score(self.metrics, self.metric_names)

    def lines(self) -> list[str]:
        """What the command prints at the end."""
        lines = self.report.lines() if self.report is not None else []
        if len(self.metric_names) > 1:
            lines.append(f"score: {self.score:.4f}, the mean of {' and '.join(self.metric_names)}")
        return [
            *lines,
            f"trained in {human_time(self.elapsed)}",
            f"model: {self.model}",
        ]


@together
def finetune(
    task: str,
    *,
    model: Path | str,
    data: Path | str | Labelled,
    out: Path | str,
    glue_task: str | None = None,
    fresh_weights: bool = False,
    text_columns: Sequence[str] | str | None = None,
    label_column: str | None = None,
    format: str | None = None,
    quotes: bool | None = None,
    strict: bool = False,
    word_column: int | None = None,
    tag_column: int | None = None,
    tag_scheme: str | None = None,
    document_context: bool = False,
    choice_columns: Sequence[str] | str | None = None,
    label_columns: Sequence[str] | str | None = None,
    label_separator: str | None = None,
    threshold: float = 0.5,
    class_weights: str | None = None,
    long_text: str = "head",
    epochs: int = 3,
    batch_size: int = 32,
    max_length: int | None = None,
    doc_stride: int | None = None,
    max_question_length: int | None = None,
    max_answer_length: int | None = None,
    learning_rate: float = 5e-5,
    warmup_steps: int | None = None,
    warmup_ratio: float | None = None,
    schedule: str = "linear",
    layer_decay: float = 1.0,
    freeze_layers: int = 0,
    freeze_embeddings: bool = False,
    weight_decay: float = 0.01,
    adam_beta1: float = 0.9,
    adam_beta2: float = 0.999,
    adam_epsilon: float = 1e-6,
    bias_correction: bool = True,
    max_grad_norm: float = 1.0,
    max_tokens_per_micro_batch: int | None = None,
    dropout: float | None = None,
    device: str | None = None,
    precision: str = "auto",
    shard: bool = False,
    seed: int = 0,
    checkpoint_every: int | None = None,
    keep_checkpoints: int = 2,
    save_best: bool = False,
    patience: int | None = None,
    log_every: int = 10,
    tensorboard: bool = False,
    resume: bool = False,
) -> FinetuneResult:
    """Fine-tune every weight on labelled examples (paper, sections 3.2 and A.3).

    Args:
        task: a name of :data:`bertine.tasks.TASKS`, or ``"glue"``, ``"squad"`` or ``"swag"``.
        model: the model directory to start from.
        data: a labelled file, or a folder with a training and a validation file. Where there is
            no validation file, a tenth of the training examples is held out. For GLUE the folder
            with its tasks' folders, or one of those, as gluebenchmark.com gives them out.
            For SQuAD its training file, beside which the dev file is found, or their folder.
            For SWAG the folder of its files, or one of them. Or :class:`Labelled` examples that
            are read already; where there are none for validation, nothing is evaluated.
        out: the run's folder; the model directory is ``out/model``.
        glue_task: with ``"glue"``: the name of its task, or ``"all"``: one run after the other, in
            ``out/CoLA``, ``out/SST-2``, …, for each task that `data` has, and the table of
            scores. With `resume` those that are finished are not run again.
        fresh_weights: take only the architecture and the vocabulary of `model`, and begin with
            random weights: what a model without pre-training reaches.
        text_columns: one, or two for pairs; of multiple choice what stands before the choices, the
            second of two beginning each of them; None: found by the usual names.
        label_column: None: found by the usual names.
        format: csv, tsv or jsonl, for tagging columns or jsonl; None: told as
            :class:`~bertine.tasks.tables.Table` does.
        quotes: whether ``"`` quotes cells; None: as usual for the format.
        strict: refuse invalid UTF-8 and NUL bytes instead of mending and counting them.
        word_column: for tagging, of column files: the number of the column of the words, from 1 on;
            None: the first.
        tag_column: that of the tags; None: the last.
        tag_scheme: how the tags mark entities, IOB1, IOB2 or IOBES, or plain for tags that do
            not; None: detected.
        document_context: for tagging, fill the input with the sentences around, of the same
            document (paper, section 5.3).
        choice_columns: of multiple choice: a column for each choice; None: ending0, choice1, ….
        label_columns: of many labels: a column of 0 and 1 for each, under its name.
        label_separator: of many labels in one column: what stands between them; None: told.
        threshold: of many labels: the probability from which on a label is given.
        class_weights: ``"balanced"``: every class (of many labels, the presence and the absence of
            each) counts the same in the loss, however rare; None: every example does.
        long_text: what is read of a text longer than `max_length`: ``"head"``, ``"tail"``,
            ``"head-tail"`` or ``"windows"`` (:mod:`bertine.tasks.long_text`).
        epochs: passes over the training examples.
        max_length: pieces of an input; longer ones are cut, and counted; None: 128, or for spans,
            whose contexts are read in windows, 384.
        doc_stride: of spans: pieces from one window of a long context to the next; None: 128.
        max_question_length: of spans: pieces of a question; longer ones are cut, and counted;
            None: 64.
        max_answer_length: of spans: pieces of the longest answer; None: 30.
        warmup_ratio: share of the steps with a rising rate, where `warmup_steps` is None; None:
            0.1, of a cycle 0.3.
        schedule: of the rate: linear, constant, cosine or one-cycle (with the momentum), see
            :mod:`bertine.training.schedule`.
        layer_decay: share of the rate that each layer has of the one above it.
        freeze_layers: so many of the lowest layers are not trained.
        freeze_embeddings: neither are the embeddings.
        dropout: on hidden states and attention, in place of the model's own rates.
        device: as PyTorch calls it; None: the GPU if there is one.
        shard: where ``torchrun`` started several processes, divide weights, gradients and
            moments among them in place of keeping all in each.
        checkpoint_every: steps; None: one after each epoch. They are removed when the model
            directory has been written.
        save_best: the model directory gets the weights of the epoch with the best score on the
            validation examples (the first metric by which the task is judged: of CoLA Matthews),
            not the last ones. The examples have then been used to choose: judge the model on
            others.
        patience: end before the last epoch where the score on the validation examples has not been
            better for so many; the model of the best epoch is saved, as with `save_best`.

    The others are described at :class:`~bertine.training.fit.FitConfig`.

    Raises:
        BertineError: no such task, model or file; a missing column; a label of the validation
            file that the training file lacks; `out` holds another run.
    """
    given = dict(locals())  # every argument, before there are other names
    options = TableOptions(
        choice_columns, label_columns, label_separator, threshold, class_weights, long_text
    )
    schedule_of(schedule)
    save_best = save_best or patience is not None
    if task == "glue" and glue_task is not None and glue_task.lower() == "all":
        from bertine.training.glue import finetune_all

        return finetune_all(given)
    world = join(device)
    where = world.device
    world.alone(lambda: Run.check(out, resume))
    config = load_config(model, dropout=dropout)
    labelled = (
        data
        if isinstance(data, Labelled)
        else read_labelled(
            task,
            data,
            glue=glue_task,
            seed=seed,
            text_columns=text_columns,
            label_column=label_column,
            format=format,
            quotes=quotes,
            strict=strict,
            limits=SpanLimits.given(
                doc_stride=doc_stride,
                max_question_length=max_question_length,
                max_answer_length=max_answer_length,
            ),
            tagging=TaggedReading(word_column, tag_column, tag_scheme, document_context),
            options=options,
        )
    )
    train, validation = labelled.train, labelled.validation
    if max_length is None:
        max_length = labelled.max_length
    if max_length > config.max_position_embeddings:
        max_length = config.max_position_embeddings
        say(f"{model}: has {max_length} positions, so max_length is {max_length}")
    built = labelled.build(max_length)
    heads = built.heads(config)
    loaded = load_model(model, heads=heads, seed=seed, dropout=dropout)
    if not _same_outputs(loaded.task, built):
        # A head for other labels is of no use, even where it has the right shape.
        loaded = load_model(
            model, heads=built.heads(config), fresh=list(heads), seed=seed, dropout=dropout
        )
    if fresh_weights:
        loaded = _with_fresh_weights(loaded, built, seed)
    check_freezing(loaded.model, freeze_layers)
    loaded.model.to(where)
    features = built.featurize(train, loaded.tokenizer)
    held = built.featurize(validation, loaded.tokenizer)
    if save_best and not held:
        raise BertineError("without validation examples there is no best epoch to save")
    others = {
        word: (examples, built.featurize(examples, loaded.tokenizer))
        for word, examples in labelled.others.items()
    }
    _say_what(loaded, train, validation, built.notes(features))

    batches = FeatureBatches(
        features,
        lambda chosen: built.collate(chosen, loaded.tokenizer.pad_token_id),
        batch_size=batch_size,
        seed=seed,
    )
    steps = epochs * batches.steps_per_epoch
    rising = WARMUP_RATIO[schedule] if warmup_ratio is None else warmup_ratio
    fit_config = FitConfig(
        steps=steps,
        learning_rate=learning_rate,
        warmup_steps=round(rising * steps) if warmup_steps is None else warmup_steps,
        schedule=schedule,
        layer_decay=layer_decay,
        patience=patience,
        weight_decay=weight_decay,
        adam_beta1=adam_beta1,
        adam_beta2=adam_beta2,
        adam_epsilon=adam_epsilon,
        bias_correction=bias_correction,
        max_grad_norm=max_grad_norm,
        max_tokens_per_micro_batch=max_tokens_per_micro_batch,
        precision=precision_name(precision, where),
        seed=seed,
        log_every=log_every,
        checkpoint_every=batches.steps_per_epoch if checkpoint_every is None else checkpoint_every,
        keep_checkpoints=keep_checkpoints,
        tensorboard=tensorboard,
    )
    settings = {
        "task": built.task_info().dataset or task,
        "data_path": labelled.train.source if data is labelled else str(data),
        "model_path": str(model),
        "num_examples": len(train),
        "examples_fingerprint": train.fingerprint(),
        "weights_fingerprint": loaded.model.fingerprint(),
        "device": where.type,
        "labels_and_columns": dataclasses.asdict(built.task_info()),
        "epochs": epochs,
        "batch_size": batch_size,
        "dropout": dropout,
        "save_best": save_best,
        **dataclasses.asdict(fit_config),
    }
    if fresh_weights:
        settings["fresh_weights"] = True
    given_too = {
        "class_weights": class_weights,
        "freeze_layers": freeze_layers,
        "freeze_embeddings": freeze_embeddings,
    }
    settings |= {name: value for name, value in given_too.items() if value}
    names = built.task_info().metrics or (built.primary_metric,)
    run = Run.open(out, settings, resume, world=world, shard=shard)
    if run.finished:
        say(f"{run.folder}: the run was finished already")

        def look() -> tuple[list[dict[str, Any]], float, dict[str, float]]:
            run.remove_checkpoints()  # it may have been killed on the way
            return _scores(run), _elapsed(run), _final(run)

        scores, elapsed, final = world.alone(look)
        return FinetuneResult(run.model, scores, None, elapsed, names, final=final)

    unaligned = [*unaligned_answers(train, features), *unaligned_answers(validation, held)]
    if unaligned:
        world.alone(lambda: write_json(run.folder / "not_aligned.json", unaligned))
    reports: list[Report] = []

    def score_on(examples: Examples, made: Sequence[Features]) -> Report:
        return evaluate_examples(
            loaded.model,
            built,
            examples,
            loaded.tokenizer,
            features=made,
            dtype=resolve_precision(precision, where),
        )

    def score() -> Report:
        report = score_on(validation, held)
        for word, (examples, made) in others.items():
            add_metrics(report, word, score_on(examples, made))
        return report

    def evaluate(display: Display, step: int) -> dict[str, float]:
        reports.append(score())
        scores = reports[-1].metrics
        display.note("validation: " + ", ".join(f"{k} {v:.4f}" for k, v in scores.items()))
        return scores

    with frozen(loaded.model, layers=freeze_layers, embeddings=freeze_embeddings):
        fit(
            loaded.model,
            built,
            batches.batch,
            fit_config,
            run,
            title="finetune",
            evaluate=evaluate if held else None,
            evaluate_every=batches.steps_per_epoch,
            # Also where it is not asked for yet: it may be when the run is resumed.
            choose=Choice(names[0], highest=True),
            world=world,
            shard=shard,
        )

    def save() -> tuple[list[dict[str, Any]], float, dict[str, float]]:
        best = load_best(run.checkpoints, loaded.model) if save_best else None
        if best is not None:
            epoch = best.step // batches.steps_per_epoch
            say(f"best on the validation examples: epoch {epoch}, {best.metric} {best.value:.4f}")
            if best.step != steps:
                reports.clear()
        # None was made where the run was resumed from a checkpoint of its last step.
        if held and not reports:
            reports.append(score())
        scores = _scores(run)
        facts = {**settings, "elapsed": _elapsed(run), "scores": scores}
        report = reports[-1] if reports else None
        told = {} if report is None else report.to_dict()
        write_json(run.folder / "scores.json", {"scores": scores, "final": told})
        saved = _finished(built, loaded.model, report)
        write_worst(
            run.folder,
            loaded.model,
            saved,
            validation,
            loaded.tokenizer,
            features=held,
            dtype=resolve_precision(precision, where),
        )
        save_model(run.model, loaded.model, loaded.tokenizer, task=saved.task_info(facts))
        run.remove_checkpoints()
        return scores, _elapsed(run), {} if report is None else dict(report.metrics)

    scores, elapsed, metrics = world.alone(save)
    report = reports[-1] if reports else None
    return FinetuneResult(run.model, scores, report, elapsed, names, final=metrics)


def _same_outputs(info: TaskInfo | None, built: Task[Any]) -> bool:
    """Whether a head trained for `info` answers what `built` asks. Never for a regression, whose
    head learns standardized scores and is saved with their mean and scale in it."""
    if info is None or isinstance(built, TextRegression):
        return False
    wanted = built.task_info()
    return (info.name, info.labels) == (wanted.name, wanted.labels)


def _finished(built: Task[Any], model: Model, report: Report | None) -> Task[Any]:
    """The task as it is saved with the trained `model`, of which `report` is the evaluation."""
    if isinstance(built, TextRegression):
        return built.unscaled(model)
    if isinstance(built, SpanExtraction) and isinstance(report, SpanReport):
        return built.tuned(report)
    return built


def _with_fresh_weights(loaded: LoadedModel, built: Task[Any], seed: int) -> LoadedModel:
    """The same architecture and tokenizer, with random weights of `seed`, as pre-training begins
    with."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(rng.key(seed, "initial weights") & 0x7FFF_FFFF_FFFF_FFFF)
        pooler = loaded.model.backbone.pooler is not None
        model = Model(loaded.config, built.heads(loaded.config), add_pooler=pooler)
    say("fresh weights: of the model only the architecture and the vocabulary are taken")
    report = dataclasses.replace(
        loaded.report,
        loaded=[],
        new=[*loaded.report.loaded, *loaded.report.new],
        dropped=[*loaded.report.loaded, *loaded.report.dropped],
    )
    return dataclasses.replace(loaded, model=model.eval(), report=report)


def _say_what(
    loaded: LoadedModel,
    train: Examples,
    validation: Examples,
    notes: Sequence[str],
) -> None:
    for line in loaded.report.lines():
        say(line)
    columns = " + ".join(train.text_columns)
    say(
        f"{len(train)} training and {len(validation)} validation examples; "
        f"text: {columns}; label: {train.label_column}"
    )
    for note in [*train.notes, *validation.notes, *(f"{train.source}: {note}" for note in notes)]:
        warn(note)


def _scores(run: Run) -> list[dict[str, Any]]:
    """The evaluations in the run's log, those before a resume included."""
    found = []
    for entry in read_log(run.folder / "log.jsonl"):
        scores = {k.removeprefix("eval_"): v for k, v in entry.items() if k.startswith("eval_")}
        if scores:
            found.append({"step": entry["step"], **scores})
    return found


def _final(run: Run) -> dict[str, float]:
    """The metrics of the model of a finished run: not the last ones where the best was saved."""
    metrics: dict[str, float] = read_json(run.folder / "scores.json")["final"].get("metrics", {})
    return metrics


def _elapsed(run: Run) -> float:
    lines = [e for e in read_log(run.folder / "log.jsonl") if "elapsed" in e]
    return float(lines[-1]["elapsed"]) if lines else 0.0
