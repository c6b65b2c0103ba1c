"""Options of a training run: seed, checkpoints, logs, batches made ahead."""

from __future__ import annotations

from bertine.options.fields import MOST_SEED, OptionGroup, declare


class Seed(OptionGroup):
    """Options that say where random numbers come from."""

    title = "run"

    seed: int = declare(0, "random seed", least=0, most=MOST_SEED, not_in=("search",))


class Saving(OptionGroup):
    """Options that say which weights are saved."""

    title = "run"

    save_best: bool | None = declare(
        None,
        "save the weights of the epoch with the best score on the validation examples, not those "
        "of the last one",
        otherwise="where that score is better than the last epoch's by more than chance",
        more="By more than its standard error on so many examples, that is, and by three examples "
        "or more. The score is the first metric by which the task is judged: of CoLA Matthews. "
        "The examples have then been used to choose: judge the model on others.",
        free="run",
        not_in=("lr-find",),
    )


class RunOutput(OptionGroup):
    """Options that say what a run writes, and how often."""

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
        "older ones are removed, but for that of the best evaluation",
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
    """Options that say what a run prints."""

    title = "run"

    quiet: bool = declare(
        False,
        "print no notes and no progress; warnings and errors are printed all the same",
        free=True,
        each_process=True,
        not_in=("search", "lr-find"),
    )


class Loading(OptionGroup):
    """Options that say who makes the batches, and whether the model is compiled."""

    title = "run"

    workers: int | None = declare(
        None,
        "processes that make the coming batches while the model computes; the result is the same "
        "with any number",
        otherwise="0 on a CPU, whose cores training uses itself; on a GPU up to four",
        more="See :func:`bertine.data.loader.default_workers`.",
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


class Resuming(OptionGroup):
    """Options that say whether to go on."""

    title = "run"

    resume: bool = declare(
        False,
        "go on from the last checkpoint in the output folder, exactly as if never stopped",
        not_in=("search", "lr-find"),
    )
