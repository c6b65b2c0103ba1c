"""``finetune``: a model directory and labelled examples in, a model directory that answers out."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from bertine.datasets.reading import Labelled
from bertine.errors import BertineError
from bertine.models.precision import precision_name
from bertine.names import (
    ClassWeights,
    LabelledFormat,
    LongText,
    Precision,
    ScheduleName,
    TagScheme,
    TaskName,
)
from bertine.options.types import check_types
from bertine.tables.given import TableLike, as_data
from bertine.training.arguments import made, reading_of
from bertine.training.distributed.world import join, together
from bertine.training.finetuning.frozen_head import check_frozen
from bertine.training.finetuning.glue import finetune_all
from bertine.training.finetuning.learner import Learner, Origin
from bertine.training.finetuning.plan import Wishes
from bertine.training.finetuning.run import found, train
from bertine.training.finetuning.run_baselines import kept_baselines
from bertine.training.finetuning.setup import Start, prepare, read_or_given
from bertine.training.finetuning.start_file import write_start
from bertine.training.loop.fit import FitConfig
from bertine.training.loop.schedule import WARMUP_RATIO, warmup
from bertine.training.loop.schedule import schedule as schedule_of
from bertine.training.run import Run

#: Arguments that a run's settings name where they are not as usual.
_GIVEN_TOO = (
    "fresh_weights",
    "class_weights",
    "focal_gamma",
    "freeze_layers",
    "freeze_embeddings",
    "frozen",
)


@check_types
@together
def finetune(
    task: TaskName,
    *,
    model: Path | str,
    data: Path | str | Labelled | TableLike,
    out: Path | str,
    glue_task: str | None = None,
    fresh_weights: bool = False,
    text_columns: Sequence[str] | str | None = None,
    label_column: str | None = None,
    format: LabelledFormat | None = None,
    quotes: bool | None = None,
    strict: bool = False,
    word_column: int | None = None,
    tag_column: int | None = None,
    tag_scheme: TagScheme | None = None,
    document_context: bool = False,
    choice_columns: Sequence[str] | str | None = None,
    label_columns: Sequence[str] | str | None = None,
    label_separator: str | None = None,
    threshold: float = 0.5,
    class_weights: ClassWeights | None = None,
    focal_gamma: float = 0.0,
    long_text: LongText = "head",
    epochs: int | None = None,
    batch_size: int | None = None,
    max_length: int | None = None,
    doc_stride: int | None = None,
    max_question_length: int | None = None,
    max_answer_length: int | None = None,
    learning_rate: float | None = None,
    paper: bool = False,
    warmup_steps: int | None = None,
    warmup_ratio: float | None = None,
    schedule: ScheduleName = "linear",
    layer_decay: float = 1.0,
    freeze_layers: int = 0,
    freeze_embeddings: bool = False,
    frozen: bool | None = None,
    weight_decay: float = 0.01,
    adam_beta1: float = 0.9,
    adam_beta2: float = 0.999,
    adam_epsilon: float = 1e-6,
    bias_correction: bool = True,
    max_grad_norm: float = 1.0,
    max_tokens_per_micro_batch: int | None = None,
    dropout: float | None = None,
    device: str | None = None,
    precision: Precision = "auto",
    shard: bool = False,
    seed: int = 0,
    split_seed: int | None = None,
    checkpoint_every: int | None = None,
    keep_checkpoints: int = 2,
    save_best: bool | None = None,
    patience: int | None = None,
    baselines: bool = True,
    log_every: int = 10,
    tensorboard: bool = False,
    resume: bool = False,
) -> Learner:
    """Fine-tune every weight on labelled examples (paper, sections 3.2 and A.3).

    Args:
        task: a name of :data:`bertine.tasks.TASKS`, or ``"glue"``, ``"squad"`` or ``"swag"``.
        model: the model directory to start from.
        data: a labelled file, or a folder with a training and a validation file. Where there is
            no validation file, a tenth of the training examples is held out. For GLUE the folder
            with its tasks' folders, or one of those, as gluebenchmark.com gives them out.
            For SQuAD its training file, beside which the dev file is found, or their folder.
            For SWAG the folder of its files, or one of them. Or a table in memory
            (:mod:`~bertine.tables.given`): a pandas or polars frame, an Arrow table, a
            ``datasets.Dataset``, a list of dictionaries, a dictionary of columns; a dictionary of
            such tables has the parts ``train`` and ``validation``. Or
            :class:`~bertine.datasets.reading.Labelled` examples, read already; how to read them
            (columns, format, and the options of tables, spans and tags) must then not be said.
            Where they have none for validation, nothing is evaluated.
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
            :class:`~bertine.tables.table.Table` does.
        quotes: whether ``"`` quotes cells; None: as usual for the format.
        strict: refuse invalid UTF-8, NUL bytes and rows without a label, in place of mending,
            leaving out and counting them.
        word_column: for tagging, of column files: the number of the column of the words, from 1 on;
            None: the first.
        tag_column: that of the tags; None: the last.
        tag_scheme: how the tags mark entities, IOB1, IOB2 or IOBES, or plain for tags that do
            not; None: detected.
        document_context: for tagging, fill the input with the sentences around, of the same
            document (paper, section 5.3).
        choice_columns: of multiple choice: a column for each choice; None: ending0, choice1, ….
        label_columns: of many labels: a column of 0 and 1 for each, under its name.
        label_separator: of many labels in one column: what stands between them; None: detected.
        threshold: of many labels: the probability from which on a label is given.
        class_weights: ``"balanced"``: every class (of many labels, the presence and the absence of
            each) counts the same in the loss, however rare; None: every example does.
        focal_gamma: of the focal loss, for texts of one label or many: what is predicted well
            already counts less, the more so the higher it is; 0: cross-entropy.
        long_text: what is read of a text longer than `max_length`: ``"head"``, ``"tail"``,
            ``"head-tail"`` or ``"windows"`` (:mod:`bertine.tasks.long_text`).
        epochs: passes over the training examples; None: more passes over fewer examples
            (:mod:`bertine.training.finetuning.plan`).
        batch_size: examples in an update; None: 16, or 32 with more than 4,000 examples.
        max_length: pieces of an input; longer ones are cut, and counted; None: 128, or for spans,
            whose contexts are read in windows, 384.
        doc_stride: of spans: pieces from one window of a long context to the next; None: 128.
        max_question_length: of spans: pieces of a question; longer ones are cut, and counted;
            None: 64.
        max_answer_length: of spans: pieces of the longest answer; None: 30.
        learning_rate: its highest value; None: by the width of the model.
        paper: where `epochs`, `batch_size`, `learning_rate` and `save_best` are None, use the
            paper's protocol: 3 epochs in batches of 32 at 5e-5, and the last weights.
        warmup_steps: with a rising rate; None: by `warmup_ratio`.
        warmup_ratio: share of the steps with a rising rate, where `warmup_steps` is None; None:
            0.1, of a cycle 0.3.
        schedule: of the rate: linear, constant, cosine or one-cycle (with the momentum), see
            :mod:`bertine.training.loop.schedule`.
        layer_decay: share of the rate that each layer has of the one above it.
        freeze_layers: so many of the lowest layers are not trained.
        freeze_embeddings: neither are the embeddings.
        frozen: train no layer: fit the head alone, to convergence, on what the encoder says
            already (:mod:`bertine.training.finetuning.frozen_head`), of pairs on the vectors of
            both texts. Takes seconds, and can be better than training all weights where there are
            few labels. What is about training (`epochs`, `learning_rate` and the like) is refused
            beside it.
            None: all weights are trained, but the head alone is saved where it is better on the
            validation examples (:mod:`bertine.training.finetuning.head_alone`; not without
            `baselines`, not with `paper` or `focal_gamma`, not in several processes). False: the
            trained model is saved, whatever it is worth.
        weight_decay: of AdamW; none on biases and norms.
        adam_beta1, adam_beta2, adam_epsilon: settings of AdamW, as in the paper's code.
        bias_correction: of Adam; the paper's code has none.
        max_grad_norm: gradients are scaled down to this global norm; 0 does not clip.
        max_tokens_per_micro_batch: compute each update in parts of at most so many tokens: the
            same result in less memory; None: by the device.
        dropout: on hidden states and attention, in place of the model's own rates.
        device: ``"cpu"``, ``"cuda"`` or ``"cuda:1"``; None: the GPU if there is one.
        precision: ``"auto"`` (bf16 where the machine has it), ``"bf16"`` or ``"fp32"``.
        shard: where ``torchrun`` started several processes, divide weights, gradients and
            moments among them in place of keeping all in each.
        seed: random seed: for new weights, the order of the examples, dropout.
        split_seed: by which validation examples are held out where the data has none (else it is
            refused); None: `seed`. Runs of several seeds are compared on the same ones.
        checkpoint_every: steps; None: one after each epoch. They are removed when the model
            directory has been written.
        keep_checkpoints: older ones are removed, but for that of the best evaluation.
        save_best: save the weights of the epoch with the best score on the validation examples
            (the first metric by which the task is judged: of CoLA Matthews), not those of the
            last epoch. The examples have then been used to choose: judge the model on others.
            None: where that score is better than the last epoch's by more than chance: by more
            than its standard error on so many examples, and by three examples or more.
        patience: end before the last epoch where the score on the validation examples has not been
            better for so many; the model of the best epoch is saved, unless `save_best` is False.
        baselines: also score the cheap baselines of the task (the most frequent label, a linear
            model on tf-idf, one on the vectors of the model before training) on the validation
            examples, which takes some seconds; of all of GLUE none.
        log_every: steps between lines of ``log.jsonl``.
        tensorboard: write TensorBoard files as well.
        resume: go on from the last checkpoint in `out`, exactly as if never stopped.

    Returns:
        What the run ended with, and what is done with it next: a
        :class:`~bertine.training.finetuning.learner.Learner`.

    Raises:
        BertineError: no such task, model or file; a missing column; a label of the validation
            file that the training file lacks; `out` holds another run; a value is out of range
            (:class:`~bertine.training.loop.fit.FitConfig`).
    """
    if not isinstance(data, Labelled):
        data = as_data(data)
    given = dict(locals())  # every argument, before there are other names
    start, reading, wishes = made(Start, given), reading_of(given), made(Wishes, given)
    schedule_of(schedule)
    if task == "glue" and glue_task is not None and glue_task.lower() == "all":
        return finetune_all(finetune, given)
    world = join(device)
    where = world.device
    world.alone(lambda: Run.check(out, resume))
    prepared = prepare(
        task,
        data,
        start=start,
        reading=reading,
        wishes=wishes,
        max_length=max_length,
        seed=seed,
        where=where,
    )
    plan = prepared.plan
    if frozen:
        check_frozen(prepared.task, start, wishes, focal_gamma=focal_gamma, shard=shard)
    if plan.save_best and not prepared.validation.features:
        raise BertineError("without validation examples there is no best epoch to save")
    epoch = prepared.batches.steps_per_epoch
    rising = WARMUP_RATIO[schedule] if warmup_ratio is None else warmup_ratio
    config = made(
        FitConfig,
        given,
        steps=1 if frozen else plan.epochs * epoch,
        learning_rate=plan.learning_rate,
        warmup_steps=0 if frozen else warmup(plan.epochs * epoch, warmup_steps, rising),
        precision=precision_name(precision, where),
        checkpoint_every=epoch if checkpoint_every is None else checkpoint_every,
    )
    info = prepared.task.task_info()
    settings = {
        "task": info.dataset or task,
        "data_path": prepared.data_path,
        "model_path": str(model),
        "num_examples": len(prepared.train.examples),
        "examples_fingerprint": prepared.train.examples.fingerprint(),
        "weights_fingerprint": prepared.loaded.model.fingerprint(),
        "device": where.type,
        "labels_and_columns": dataclasses.asdict(info),
        "epochs": plan.epochs,
        "batch_size": plan.batch_size,
        "dropout": dropout,
        "save_best": False if frozen else plan.save_best,
        **dataclasses.asdict(config),
    }
    settings |= {name: given[name] for name in _GIVEN_TOO if given[name]}
    if frozen is False:
        settings["frozen"] = False
    if split_seed is not None:
        settings["split_seed"] = split_seed
    with Run.held(out, settings, resume, world=world, shard=shard) as run:
        if run.finished:
            outcome = found(run, world, save_best=bool(save_best))
        else:
            world.alone(lambda: write_start(run.folder, finetune, given, prepared))
            outcome = train(
                prepared,
                config,
                run,
                settings,
                save_best=False if frozen else plan.save_best,
                baselines=baselines,
                world=world,
                shard=shard,
            )
    return Learner(
        run.model,
        outcome.scores,
        outcome.report,
        outcome.elapsed,
        prepared.metric_names,
        final=outcome.final,
        baselines=kept_baselines(run.folder),
        saved=outcome.saved,
        origin=Origin(
            read=lambda: read_or_given(task, data, seed=seed, reading=reading),
            fingerprint=prepared.validation.examples.fingerprint(),
            train_fingerprint=prepared.train.examples.fingerprint(),
            device=str(where),
            precision=config.precision,  # as it was judged: answering chooses 8 bits as well
        ),
    )
