"""Options of running a table of a paper."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bertine.options.fields import OptionGroup, declare


class PaperScale(OptionGroup):
    """Options that say at what scale a table is run."""

    title = "scale"

    model: str = declare(
        "bert-mini",
        "preset, or configuration file, whose sizes stand for those of the paper's base model; of "
        "ELMo's tables elmo-tiny, elmo-mini, …",
        metavar="PRESET",
    )
    vocab_size: int = declare(8192, "pieces of the vocabulary that is trained", least=100)
    hours: float | None = declare(
        None, "of pre-training for each row, instead of tokens", otherwise="tokens decide", above=0
    )
    steps: int | None = declare(
        None,
        "of pre-training for each row, instead of tokens",
        otherwise="tokens decide",
        least=1,
    )
    tokens: int | None = declare(
        None, "of pre-training for each row", otherwise="30 million", least=1, most=10**15
    )
    max_seq_length: int | None = declare(
        None,
        "tokens of a sequence of pre-training; a batch has 2,048 tokens whatever their length",
        otherwise="128; short runs learn more with 64",
        least=8,
    )
    seeds: int = declare(3, "runs of fine-tuning for each row and column", least=1)
    epochs: int | None = declare(
        None,
        "of fine-tuning, and of what is trained on frozen states",
        otherwise="as finetune and feature-based by themselves",
        least=1,
    )


class GivenWeights(OptionGroup):
    """Options of the tables that fine-tune weights that are there."""

    title = "tables of given weights (bert-1 to bert-4, distilbert-1, -3)"

    weights: Sequence[Path | str] | None = declare(
        None,
        "model directories, each a row of the table",
        otherwise="none; other tables pre-train their rows",
        metavar="DIR",
    )
    paper_grid: bool = declare(
        False,
        "for every cell search as the paper does: batches of 16 and 32, four rates, 2 to 4 epochs, "
        "as many restarts as there are seeds; the scores are those of the best setting",
    )


class PaperRunning(OptionGroup):
    """Options that say which part of a table is run, and by whom."""

    title = "run"

    rows: Sequence[str] | None = declare(
        None, "names of the rows to run, instead of all", otherwise="all"
    )
    columns: Sequence[str] | None = declare(
        None, "names of the columns to run, instead of all", otherwise="all whose data are there"
    )
    again: Sequence[str] | None = declare(
        None,
        "rows, or cells as ROW/COLUMN, to run anew although they are done",
        otherwise="what is done stays",
    )
    held_out: Path | str | None = declare(
        None,
        "token store of other text, where the corpus is a token store too",
        otherwise="documents of the corpus",
        metavar="STORE",
    )
    processes: int = declare(1, "steps at a time, in processes that share the cores", least=1)
    ray: str | None = declare(
        None,
        "let a Ray cluster do the steps (not followed by an address: auto), or 'local'; needs the "
        "package ray, and all folders where all its machines see them",
        metavar="ADDRESS",
    )
    resume: bool = declare(
        False, "go on with the table in the output folder; what is done is not done again"
    )


class PaperOptions(PaperScale, GivenWeights, PaperRunning):
    """All options of ``paper``."""
