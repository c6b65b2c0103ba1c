"""Write the modules of a directory of sentence-transformers, so that it and
:mod:`bertine.interop.sentence_modules` compute the same vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bertine.files import write_json
from bertine.interop.sentence_modules import MODULES, SETTINGS, TRANSFORMER, SentenceModules

_OLD_KEYS = {
    "cls": "pooling_mode_cls_token",
    "max": "pooling_mode_max_tokens",
    "mean": "pooling_mode_mean_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}
_TYPE = "sentence_transformers.models."


def write_sentence_modules(folder: Path, modules: SentenceModules, width: int) -> None:
    """Write what `modules` say into the `folder` of a model directory.

    The keys are those of version 2, which all later ones read.

    Args:
        folder: of the model directory; the encoder is in it.
        modules: pooling, normalizing and the rest; ``transformer`` is not read.
        width: hidden size of the encoder.
    """
    kinds = [("Transformer", ""), ("Pooling", "1_Pooling")]
    if modules.normalize:
        kinds.append(("Normalize", "2_Normalize"))
    listed = [
        {"idx": number, "name": str(number), "path": path, "type": _TYPE + kind}
        for number, (kind, path) in enumerate(kinds)
    ]
    for _, path in kinds[1:]:
        (folder / path).mkdir()
    pooling = {
        "word_embedding_dimension": width,
        **{key: mode in modules.modes for mode, key in _OLD_KEYS.items()},
        "include_prompt": modules.include_prompt,
    }
    write_json(folder / "1_Pooling" / "config.json", pooling)
    if modules.normalize:
        write_json(folder / "2_Normalize" / "config.json", {})
    settings = {"max_seq_length": modules.max_length, "do_lower_case": modules.lowercase}
    write_json(folder / TRANSFORMER, settings)
    about: dict[str, Any] = {
        "prompts": dict(modules.prompts),
        "default_prompt_name": modules.default_prompt,
        "similarity_fn_name": "cosine",
    }
    if modules.dimensions is not None:
        about["truncate_dim"] = modules.dimensions
    write_json(folder / SETTINGS, about)
    write_json(folder / MODULES, listed)
