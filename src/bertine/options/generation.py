"""Options of writing texts."""

from __future__ import annotations

from bertine.options.answering import PlainTexts
from bertine.options.fields import MOST_SEED, OptionGroup, declare
from bertine.options.machine import Device


class Choosing(OptionGroup):
    """Options that say how tokens are chosen, one after the other."""

    title = "choosing"

    max_new_tokens: int = declare(40, "tokens to write at most", title="length", least=1)
    min_new_tokens: int = declare(
        0, "tokens to write before an end token may end the text", title="length", least=0
    )
    sample: bool = declare(
        False, "draw tokens by their probabilities in place of taking the most probable one"
    )
    temperature: float = declare(
        1.0,
        "with `sample`: divides the scores before the softmax; below 1 probable tokens become more "
        "probable, and at 0 the most probable one is taken",
        least=0,
    )
    top_k: int | None = declare(
        None, "with `sample`: draw among so many most probable tokens", otherwise="all", least=1
    )
    top_p: float = declare(
        1.0,
        "with `sample`: draw among the fewest most probable tokens that have this probability "
        "together",
        above=0,
        most=1,
    )
    seed: int = declare(
        0,
        "with `sample`: of what is drawn; each text has its own draws",
        metavar="N",
        least=0,
        most=MOST_SEED,
    )
    beams: int = declare(
        1, "sequences that are followed at once; the most probable ones are kept", least=1, most=256
    )
    length_penalty: float = declare(
        1.0,
        "with `beams`: sequences are compared by their log-probability divided by their length to "
        "this power; above 0 long ones win, below 0 short ones",
        metavar="X",
        least=-10,
        most=10,
    )
    early_stopping: bool = declare(
        False,
        "with `beams`: end as soon as that many sequences have ended, and not when none that goes "
        "on is better than these",
    )
    no_repeat_ngram_size: int = declare(
        0,
        "never write a run of so many tokens twice, those of a prompt that is gone on with "
        "included; 0: no limit",
        least=0,
    )
    sequences: int = declare(
        1, "texts for each prompt: the best of the beams, or as many draws", least=1, most=256
    )


class GenerateOptions(Choosing, PlainTexts, Device):
    """All options of ``generate``."""

    end_token: str | None = declare(
        None,
        "a token of the vocabulary that ends a text, besides the model's own end",
        otherwise="what stood behind documents in pre-training, or the end of a BART's texts",
        title="length",
    )
