"""Define the options of all training: runs, devices, learning rate and updates."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from bertine.core.names import AnswerPrecision, OptimizerName, Precision, ScheduleName
from bertine.options.declare import MOST_SEED, NOT_KNOWN, OptionGroup, declare, like

# Training runs: seed, checkpoints, logs, and batches made ahead.


class Seed(OptionGroup):
    """The seed of random numbers."""

    title = "run"

    seed: int = declare(0, "random seed", least=0, most=MOST_SEED, not_in=("search",))


class Saving(OptionGroup):
    """The weights that are saved."""

    title = "run"

    save_best: bool | None = declare(
        None,
        "save the weights of the epoch with the best score on the validation examples, not those "
        "of the last one",
        otherwise="where that score is better than the last epoch's by more than chance",
        more="This means by more than its standard error on that number of examples, and by three "
        "examples or more. The score is the first metric by which the task is judged: for CoLA, "
        "Matthews. The examples have then been used to choose: judge the model on others.",
        free="run",
        not_in=("lr-find",),
    )


class RunOutput(OptionGroup):
    """The output of a run, and how often it is written."""

    title = "run"

    checkpoint_every: int | None = declare(
        None,
        "steps between checkpoints",
        otherwise="one after each epoch",
        more="They are removed when the model directory has been written.",
        least=1,
        free=True,
        not_in=("lr-find",),
    )
    keep_checkpoints: int = declare(
        2,
        "number of checkpoints to keep; older ones are removed, except that of the best evaluation",
        least=1,
        free=True,
        each_process=True,
        not_in=("lr-find",),
    )
    log_every: int = declare(
        10,
        "steps between lines of the log",
        more="It is ``log.jsonl``.",
        least=1,
        free=True,
        not_in=("lr-find",),
    )
    tensorboard: bool = declare(
        False,
        "write TensorBoard files as well (needs the package tensorboard)",
        free=True,
        each_process=True,
        not_in=("lr-find",),
    )


class Notes(OptionGroup):
    """What a run prints."""

    title = "run"

    quiet: bool = declare(
        False,
        "print no notes and no progress; warnings and errors are printed all the same",
        free=True,
        each_process=True,
        not_in=("search", "lr-find"),
    )


class Loading(OptionGroup):
    """The processes that make the batches, and the compilation of the model."""

    title = "run"

    workers: int | None = declare(
        None,
        "processes that make the coming batches while the model computes; the result is the same "
        "with any number",
        otherwise="0 on a CPU, whose cores training uses itself; on a GPU up to four",
        more="See :func:`bertine.corpora.loader.default_workers`.",
        least=0,
        free=True,
        each_process=True,
        not_in=("lr-find",),
    )
    compile: bool = declare(
        True,
        "on a GPU, compile the model's parts: it starts slower, to be faster from then on",
        more="With ``torch.compile``; a CPU does without.",
        not_in=("lr-find",),
    )


class TeacherModel(OptionGroup):
    """The model that a student learns from."""

    title = "teacher and student"

    teacher: Path | str | None = declare(
        None,
        "model directory to learn from: on a store one that fills masks, on texts a fine-tuned one "
        "of any task",
        metavar="DIR",
    )


class Resuming(OptionGroup):
    """Whether to resume."""

    title = "run"

    resume: bool = declare(
        False,
        "go on from the last checkpoint in the output folder, exactly as if never stopped",
        not_in=("search", "lr-find"),
    )


# Devices and number types.


class Device(OptionGroup):
    """The device to compute on."""

    title = "run"

    device: str | None = declare(
        None, "cpu, cuda or cuda:1", otherwise="the GPU if there is one", free="search"
    )


class Machine(Device):
    """The device and the number type of training."""

    title = "run"

    precision: Precision = declare(
        "auto",
        "number format to compute in; auto is bf16 where it is measured to be clearly faster here",
        unknown=NOT_KNOWN,
    )


class AnsweringMachine(Device):
    """The device and the number type of predicting."""

    precision: AnswerPrecision = declare(
        "auto",
        "number format to compute in; auto is the fastest whose outputs a check finds close to "
        "those in fp32",
        unknown=NOT_KNOWN,
    )


class ScoringMachine(Device):
    """The device and the number type of scoring."""

    precision: AnswerPrecision = declare(
        "auto",
        "number format to compute in; auto is the one the model was trained in (bf16 or fp32), and "
        "fp32 where bf16 is not measured to be clearly faster",
    )


class TrainedMachine(Device):
    """The device of predicting, with the number type of training."""

    precision: Precision = like(ScoringMachine, "precision")


class VectorMachine(Device):
    """The device and the number type of computing vectors."""

    precision: AnswerPrecision = declare(
        "auto",
        "number format to compute in; auto is bf16 where it is measured to be clearly faster "
        "here; int8, on CPUs, turns vectors a little",
        unknown=NOT_KNOWN,
    )


class Sharding(OptionGroup):
    """How several processes divide the model."""

    title = "run"

    shard: bool = declare(
        False,
        "under torchrun: divide weights, gradients and moments among the processes (FSDP), in "
        "place of keeping all in each",
        not_in=("search", "lr-find"),
    )


#: An optimizer's default rate as a multiple of AdamW's. LAMB's rate is the share of its size by
#: which a matrix moves. Muon's updates are as large as AdamW's in the long run, but AdamW's first
#: ones are larger (measurements: docs/guides/learning-rate.md).
USUAL_RATE: Mapping[OptimizerName, float] = {"adamw": 1.0, "lamb": 10.0, "muon": 3.0}


class Rate(OptionGroup):
    """The learning rate."""

    title = "optimizer"

    learning_rate: float | None = declare(
        None,
        "highest learning rate",
        otherwise="by the width of the model",
        least=0,
        not_in=("search", "lr-find"),
    )


class WarmUp(OptionGroup):
    """The steps in which the learning rate rises."""

    title = "optimizer"
    alternatives: ClassVar[tuple[str, ...]] = ("warmup_steps", "warmup_ratio")

    warmup_steps: int | None = declare(
        None,
        "steps with a rising rate",
        otherwise="by `warmup_ratio`",
        least=0,
        not_in=("lr-find",),
    )
    warmup_ratio: float | None = declare(
        None,
        "share of the steps with a rising rate, where `warmup_steps` is not given",
        otherwise="0.1, of one-cycle 0.5",
        least=0,
        most=1,
        not_in=("lr-find",),
    )


class Updates(OptionGroup):
    """How the weights are updated: AdamW with decoupled decay, or another optimizer."""

    title = "optimizer"

    optimizer: OptimizerName = declare(
        "adamw",
        "AdamW; LAMB, for large batches; or Muon for the matrices of the layers, with AdamW for "
        "the rest",
        more="See :mod:`bertine.training.optimizers`.",
        recorded=True,
        unknown=NOT_KNOWN,
    )
    weight_decay: float = declare(0.01, "decay of the weights; none on biases and norms", least=0)
    adam_beta1: float = declare(
        0.9, "of AdamW and LAMB: how long the first moment remembers", least=0, below=1
    )
    adam_beta2: float = declare(
        0.999, "of AdamW and LAMB: how long the second moment remembers", least=0, below=1
    )
    adam_epsilon: float = declare(1e-6, "of AdamW and LAMB; as in the paper's code", least=0)
    bias_correction: bool = declare(True, "of AdamW and LAMB; Google's programs have none")
    max_grad_norm: float = declare(
        1.0, "gradients are scaled down to this global norm; 0 does not clip", least=0
    )
    max_tokens_per_micro_batch: int | None = declare(
        None,
        "compute each update in parts of at most this many tokens: the same result in less memory",
        otherwise="by the device",
        least=1,
    )
    schedule: ScheduleName = declare(
        "linear",
        "how the rate changes after the warm-up; one-cycle: up for half of the steps, then down to "
        "almost nothing, and momentum the other way",
        more="See :mod:`bertine.training.schedules`.",
        not_in=("lr-find",),
        title="schedule and layers",
        unknown=NOT_KNOWN,
    )
    layer_decay: float = declare(
        1.0,
        "the rate of each layer as a share of that of the one above",
        above=0,
        most=1,
        title="schedule and layers",
    )


class DropoutRate(OptionGroup):
    """The rate of the model's dropout."""

    title = "optimizer"

    dropout: float | None = declare(
        None,
        "rate of dropout on hidden states and attention",
        otherwise="the model's own rates",
        least=0,
        most=1,
    )


class Patience(OptionGroup):
    """When to stop early."""

    title = "schedule and layers"

    patience: int | None = declare(
        None,
        "stop when the task's score on the validation examples has not improved for this many "
        "epochs, and save the model of the best",
        more="Unless `save_best` is False.",
        least=1,
        not_in=("lr-find",),
    )
