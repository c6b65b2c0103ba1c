"""Options of training ELMo."""

from __future__ import annotations

from pathlib import Path

from bertine.names import SoftmaxName, WordSplitting
from bertine.options.corpus import CorpusReading
from bertine.options.fields import declare, like
from bertine.options.machine import Machine
from bertine.options.run import Resuming, RunOutput, Seed


class ElmoOptions(CorpusReading, Machine, Seed, RunOutput, Resuming):
    """All options of ``pretrain_elmo``."""

    steps: int | None = declare(
        None, "updates of the weights", otherwise="as many as `epochs` has", least=1, title="length"
    )
    epochs: float = declare(
        10.0, "passes over the corpus, where `steps` is not given", above=0, title="length"
    )
    word_splitting: WordSplitting = declare(
        "punctuation",
        "how text becomes words: punctuation apart, or what stands between spaces, each line being "
        "a sentence",
        title="reading",
    )
    language: str = declare("en", "of the text, for where sentences end", title="reading")
    min_count: int = declare(
        2, "rarer words are unknown to the softmax, not to the model", least=1, title="vocabulary"
    )
    vocab_size: int | None = declare(
        None, "words of the softmax at most", otherwise="all", least=4, title="vocabulary"
    )
    softmax: SoftmaxName = declare(
        "auto",
        "full: every word is compared with all others; sampled: with `negatives` of them; auto: "
        "full where there are not four times as many words as these",
        title="recipe",
    )
    negatives: int = declare(
        8192, "words that a sampled softmax compares with, drawn anew each step", least=1,
        title="recipe",
    )  # fmt: skip
    batch_size: int = declare(128, "rows that are read at once", least=1, title="recipe")
    window: int = declare(
        20, "words of a row in a step; the state goes on, gradients do not", least=1, title="recipe"
    )
    learning_rate: float = declare(0.2, "of Adagrad", above=0, title="recipe")
    max_grad_norm: float = declare(
        10.0,
        "gradients are scaled down to this norm; 0 does not clip",
        more="They are those of the loss times `window`, as published.",
        least=0,
        title="recipe",
    )
    dropout: float | None = declare(
        None, "on what goes into each LSTM and comes out of the last",
        otherwise="0.1", least=0, below=1, title="recipe",
    )  # fmt: skip
    held_out: Path | str | None = declare(
        None, "text to score along the way and at the end", metavar="PATH", title="run"
    )
    evaluate_every: int | None = declare(
        None, "steps between scores of `held_out`", otherwise="at the end", least=1, title="run"
    )
    checkpoint_every: int | None = like(
        RunOutput, "checkpoint_every", default=500, otherwise="none", more=""
    )
    log_every: int = like(RunOutput, "log_every", default=20)
