"""Model directories with an odd `config.json`.

What a key means, `transformers` says: where it reads the odd form, it is the clean twin.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import torch

from bertine.hub.model_directory import load_model
from bertine.models.encoder import TextInputs
from bertine.models.family import family_of
from mistakes.odd.config_keys import CONFIGS, GONE, OWN
from mistakes.odd.models import IDS, TYPES, silenced, sound
from mistakes.odd_files import Answer, Case

#: Rates of dropout, as BERT and DistilBERT call them.
_RATES = (("hidden_dropout_prob", "dropout"), ("attention_probs_dropout_prob", "attention_dropout"))
#: Kinds of keys that do no harm, some of which stand beside another.
_HARMLESS = (
    *("transformers 3", "transformers 4", "_name_or_path", "sbert_ce null", "language"),
    *("null of all", "use_cache", "bos", "comment", "dates"),
)


def _content(logits: torch.Tensor, config: Any, labels: list[str], kind: str) -> Any:
    rates = [getattr(config, a) if hasattr(config, a) else getattr(config, b) for a, b in _RATES]
    return logits, [round(float(rate), 6) for rate in rates], labels, kind


def _ours(folder: Path) -> Any:
    loaded = load_model(folder)
    assert loaded.task is not None
    with torch.no_grad():
        encoded = loaded.model.encode(TextInputs(IDS, torch.ones_like(IDS), torch.zeros_like(IDS)))
        logits = loaded.model.read("classifier", encoded)
    return _content(logits, loaded.config, [*loaded.task.labels], loaded.task.name)


def _theirs(folder: Path) -> Any:
    """Return what transformers makes of a folder; None: it refuses it."""
    import transformers

    with silenced():
        try:
            model, info = transformers.AutoModelForSequenceClassification.from_pretrained(
                folder, output_loading_info=True, dtype=torch.float32, attn_implementation="eager"
            )
            if info["missing_keys"] or info["mismatched_keys"]:
                return None
            config = model.config
            kind = "multi-label" if config.problem_type == "multi_label_classification" else "text"
            labels = [str(config.id2label[n]) for n in range(config.num_labels)]
            with torch.no_grad():
                logits = model.eval()(IDS, return_dict=True).logits
            return _content(logits, config, labels, kind)
        except Exception:
            return None


def _same_config(odd: Any, clean: Any) -> bool:
    same = odd[0].shape == clean[0].shape and torch.allclose(odd[0], clean[0], atol=1e-4)
    return bool(same) and odd[1:] == clean[1:]


@functools.cache
def _clean(model_type: str) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        return _ours(_written(Path(folder), model_type, {}))


def _written(
    folder: Path, model_type: str, changes: Mapping[str, Any], name: str = "config.json"
) -> Path:
    """Write a sound model with other keys; without names of labels where `changes` say others."""
    model = folder / "model"
    shutil.copytree(sound(model_type), model, copy_function=os.link)
    values = json.loads((model / "config.json").read_text())
    for key in ("id2label", "label2id", "problem_type"):
        values.pop(key, None)
    if not {"label2id", "num_labels", "_num_labels"} & changes.keys():
        values["id2label"] = {str(n): f"LABEL_{n}" for n in range(3)}
    values = {k: v for k, v in {**values, **changes}.items() if v is not GONE}
    (model / "config.json").unlink()
    (model / name).write_text(json.dumps(values))
    (model / "bertine.json").unlink(missing_ok=True)
    return model


def draw(draw: Random, folder: Path) -> Case:
    """Draw a `config.json` with odd keys: one that may do harm, and some beside it."""
    model_type = draw.choice(["bert", "bert", *TYPES])
    own = OWN[model_type]
    main = draw.choice([*own] if own and draw.random() < 0.5 else [*CONFIGS])
    changes = own.get(main) or CONFIGS[main]
    if draw.random() < 0.7:  # as files of the type call it
        key = family_of(model_type).keys.key
        changes = {key(name): value for name, value in changes.items()}
    beside = draw.sample(_HARMLESS, 2) if draw.random() < 0.4 else []
    more: dict[str, Any] = {}
    for name in beside:
        more |= CONFIGS[name]
    file = draw.choice(["config.json"] * 9 + ["bert_config.json"])
    model = _written(folder, model_type, more | changes, file)
    theirs = _theirs(model) if file == "config.json" else None
    if theirs is None:  # for what stands beside it, or the name of the file
        theirs = _theirs(_written(folder / "main", model_type, changes))
    choices = {
        "kind": f"{model_type} {main}",
        "beside": ", ".join(beside),
        "file": file,
        "twin": "ours" if theirs is None else "theirs",
    }
    clean = _clean(model_type) if theirs is None else theirs
    return Case(choices, lambda: Answer(_ours(model)), clean, _same_config)
