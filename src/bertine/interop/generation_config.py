"""``generation_config.json``: how texts are written, for ``generate`` of transformers, which
without it stops at 20 tokens and follows one text alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from bertine.models.bart.config import BartConfig
from bertine.models.config import Config
from bertine.options.generation import Choosing
from bertine.taskinfo import TaskInfo

#: The name of the file.
GENERATION_CONFIG = "generation_config.json"
#: The tokens that texts are forced to begin and to end with.
FORCED = ("forced_bos_token_id", "forced_eos_token_id")


def generation_config(
    config: Config,
    task: TaskInfo | None,
    *,
    pieces: int,
    separator: int | None,
    special: Collection[int],
) -> Mapping[str, Any]:
    """Return what lets a model that writes texts answer there as here: as it was fine-tuned to, or
    as ``bertine generate`` does where nothing else is said.

    Args:
        config: of the model.
        task: that it was trained to do.
        pieces: of its tokenizer; a model may have more rows.
        separator: the id that ends a text in running text; None: none does.
        special: ids of special tokens.
    """
    choosing, never = Choosing(), set(range(pieces, config.vocab_size))
    if task is not None and task.name == "seq2seq":
        never = set()  # they are left out of the text
        choosing = Choosing(
            max_new_tokens=task.setting("max_target_length", 64),
            beams=task.setting("beams", choosing.beams),
            length_penalty=task.setting("length_penalty", choosing.length_penalty),
            no_repeat_ngram_size=task.setting(
                "no_repeat_ngram_size", choosing.no_repeat_ngram_size
            ),
        )
    values: dict[str, Any] = {
        "do_sample": choosing.sample,
        "early_stopping": choosing.early_stopping,
        "length_penalty": choosing.length_penalty,
        "no_repeat_ngram_size": choosing.no_repeat_ngram_size,
        "num_beams": choosing.beams,
        "pad_token_id": config.pad_token_id,
    }
    if isinstance(config, BartConfig):
        first, last = config.forced_tokens
        values |= {
            "bos_token_id": config.bos_token_id,
            "decoder_start_token_id": config.decoder_start_token_id,
            "eos_token_id": _one_or_list(last, config.eos_token_id),
            **dict(zip(FORCED, (first, last), strict=True)),
            # The token that the decoder begins with counts there.
            "max_length": 1 + choosing.max_new_tokens,
        }
    else:  # a prompt is gone on with
        never |= {*special} - {separator}
        values |= {"eos_token_id": separator, "max_new_tokens": choosing.max_new_tokens}
    if never:
        values["suppress_tokens"] = sorted(never)
    return dict(sorted(values.items()))


def _one_or_list(*ids: int | None) -> int | list[int]:
    """Return the ids that are there, each once; one by itself."""
    known = list(dict.fromkeys(token for token in ids if token is not None))
    return known[0] if len(known) == 1 else known
