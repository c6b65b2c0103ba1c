"""Say before pre-training begins that it is too short to learn more than frequencies.

A new model first learns how frequent pieces are, then stays on a plateau until its attention has
found the neighbours, and only then begins to use context. After how many tokens was measured
(docs/results.md, "What a healthy run looks like", and docs/hour.md); the figures here are from
there.
"""

from __future__ import annotations

from bertine.models.config import Config
from bertine.options.names import option
from bertine.terminal.console import human_count

#: Smaller vocabularies are those of toys, which were not measured and learn sooner.
_LEAST_VOCABULARY = 1000
#: Initial weights from which a model counts as begun with large ones: 0.06 was measured.
_LARGE_WEIGHTS = 0.05
#: What is said of objectives that were not measured.
_OTHERS = {
    "rtd": " with masked words, not with replaced ones",
    "plm": " with masked words, not with words in any order",
}


def tokens_until_context(config: Config, initialization: str) -> tuple[float, float]:
    """Return after how many tokens a new model of this size began to use context: from, to.

    Args:
        config: of the model.
        initialization: "normal" or "mimetic".
    """
    if initialization == "mimetic":
        return 1.7e6, 3e6  # 2 x 256: pairs of sentences; running text
    if config.initializer_range >= _LARGE_WEIGHTS:
        return 3e6, 6e6  # 2 x 256 with 0.06: after 3 million
    if config.hidden_size >= 256:
        return 5e6, 8e6  # bert-mini and bert-small: after 6 million
    return 10e6, 15e6  # bert-tiny: not within 12 million


def too_short(
    config: Config,
    initialization: str,
    tokens: float,
    *,
    timed: bool = False,
    objective: str = "mlm",
) -> str | None:
    """Return what a person should know of a run that sees so few `tokens`; None where they are
    enough.

    Args:
        config: of a model with new weights.
        initialization: of these, "normal" or "mimetic".
        tokens: real tokens that the run will see.
        timed: whether they follow from the time for the run and the machine's speed.
        objective: of the run; with replaced tokens it was not measured.
    """
    # Neither measured; every token is a target, not one in seven.
    if config.reads_forward or config.encodes_and_decodes:
        return None
    least, most = tokens_until_context(config, initialization)
    if tokens >= least or config.vocab_size < _LEAST_VOCABULARY:
        return None
    faster = ""
    if initialization == "normal" and not config.projects_embeddings:
        low, high = tokens_until_context(config, "mimetic")
        faster = (
            f", or begin with {option('initialization', 'mimetic')} ({_millions(low)} to "
            f"{_millions(high)} M)"
        )
    return (
        f"{'at this speed the' if timed else 'the'} run sees {human_count(tokens)} tokens, but "
        f"models of this size begin to use context after {_millions(least)} to {_millions(most)} M "
        f"(measured on English{_OTHERS.get(objective, '')}); before that they learn little but how "
        f"frequent words are. Train longer{faster}"
    )


def _millions(tokens: float) -> str:
    return f"{tokens / 1e6:g}"
