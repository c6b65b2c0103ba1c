"""Find the folder of a model from its name or path.

The model may be bundled with the package, in a folder of the Hugging Face cache, or in the folder
of a ``Trainer`` of transformers, with its checkpoints.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from bertine.core.console import logger
from bertine.core.errors import BertineError
from bertine.core.files import os_errors, read_json_object
from bertine.core.names import PRESETS

# Bundled models: ``bertine-en`` or ``bertine-zh`` in place of a folder's name.

#: Names of the bundled models; each is a model directory with its card, ``README.md``.
BUNDLED = ("bertine-en", "bertine-zh")

_FOLDER = Path(__file__).parents[1] / "weights"


def bundled_folder(name: str) -> Path:
    """Find the folder of the bundled model `name`, regardless of the current directory."""
    return _FOLDER / name


_CONFIG = "config.json"
_CHECKPOINT = re.compile(r"checkpoint-(\d+)")


def locate(model: Path | str) -> Path:
    """Find a model's folder: that of the bundled model named `model`; a run's model; the snapshot
    of the main branch in a Hugging Face cache folder; the best or only checkpoint in a Trainer's
    folder (a note names it); else `model` itself.

    A file or folder of that name in the current directory takes precedence over a bundled model.

    Raises:
        BertineError: there are several snapshots or checkpoints, and it is unclear which one to
            use.
    """
    path = Path(model)
    if str(model) in BUNDLED and not path.exists():
        return bundled_folder(str(model))
    with os_errors(path, "looking for a model"):
        if not path.is_dir() or (path / _CONFIG).exists():
            return path
        if (path / "model" / _CONFIG).is_file():
            return path / "model"
        return _snapshot(path) or _checkpoint(path) or path


def _snapshot(folder: Path) -> Path | None:
    """Return the model's snapshot in its folder of the cache; None if it is not such a folder."""
    place, main = folder / "snapshots", folder / "refs" / "main"
    held = [child for child in place.iterdir() if child.is_dir()] if place.is_dir() else []
    if main.is_file():
        name = main.read_text(encoding="utf-8", errors="replace").strip()
        held = [child for child in held if child.name == name] or held
    if len(held) > 1:
        names = ", ".join(sorted(str(child) for child in held))
        raise BertineError(f"{folder}: holds several snapshots of a model; give one: {names}")
    return held[0] if held else None


def _checkpoint(folder: Path) -> Path | None:
    """Choose the checkpoint in a ``Trainer``'s folder; None if it is not such a folder."""
    steps = {
        int(match[1]): child
        for child in folder.iterdir()
        if (match := _CHECKPOINT.fullmatch(child.name)) and (child / _CONFIG).is_file()
    }
    if not steps:
        return None
    last = steps[max(steps)]
    state = last / "trainer_state.json"
    facts = read_json_object(state, lenient=True) if state.exists() else {}
    best = re.split(r"[\\/]", str(facts.get("best_model_checkpoint")))[-1]
    if best in {step.name for step in steps.values()}:
        _say_once(f"{folder}: {best} is read, the best one by {last.name}/{state.name}")
        return folder / best
    if len(steps) > 1:
        names = ", ".join(steps[number].name for number in sorted(steps))
        raise BertineError(
            f"{folder}: holds {names}, and {state.name} names none as the best; give one of them, "
            f"such as the last, {last}"
        )
    _say_once(f"{folder}: {last.name} is read, the only one there")
    return last


@cache
def _say_once(line: str) -> None:
    """Log a line once, however often a folder is looked up."""
    logger.info(line)


# Published models: say how to get one that a user names in place of a folder.

#: The files that a model directory needs, in addition to those of the vocabulary.
_NEEDED = "config.json model.safetensors tokenizer.json tokenizer_config.json"
#: Prefix of model names → their organization on the Hugging Face hub, and their vocabulary files
#: ("": in tokenizer.json; None: depends on the rest of the name).
_PUBLISHED: dict[str, tuple[str, str | None]] = {
    "bert-": ("google-bert", "vocab.txt"),
    "roberta-": ("FacebookAI", "vocab.json merges.txt"),
    "xlm-roberta-": ("FacebookAI", "sentencepiece.bpe.model"),
    "camembert-": ("almanach", "sentencepiece.bpe.model"),
    "distilbert-": ("distilbert", "vocab.txt"),
    "distilroberta-": ("distilbert", "vocab.json merges.txt"),
    "albert-": ("albert", "spiece.model"),
    "electra-": ("google", "vocab.txt"),
    "mobilebert-": ("google", "vocab.txt"),
    "ModernBERT-": ("answerdotai", ""),
    "deberta-v3-": ("microsoft", "spm.model"),
    "openai-gpt": ("openai-community", "vocab.json merges.txt"),
    "xlnet-": ("xlnet", "spiece.model"),
    "all-": ("sentence-transformers", None),
    "paraphrase-": ("sentence-transformers", None),
    "multi-qa-": ("sentence-transformers", None),
}
#: Prefixes whose repositories have neither model.safetensors nor tokenizer.json.
_WITH_OLD_FILES = frozenset({"deberta-v3-"})
_OLD = "config.json pytorch_model.bin tokenizer_config.json"
#: Presets that are also the names of published models.
_BOTH = re.compile(
    r"(xlm-)?roberta-|camembert-|deberta-v3-|mobilebert-uncased|openai-gpt|xlnet-(base|large)"
)


def how_to_get(name: str) -> str | None:
    """Describe in one line how to get a model named in place of a folder; None if `name` does not
    look like the name of a published model."""
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", name):
        return None
    if name in PRESETS and not _BOTH.match(name):
        return (
            f"{name}: is a size to pre-train ('bertine pretrain'), not a folder with weights; "
            "give the folder of a trained model"
        )
    organization, _, model = name.rpartition("/")
    known = next((start for start in _PUBLISHED if model.startswith(start)), None)
    if not organization and known is not None:
        organization = _PUBLISHED[known][0]
    if not organization or Path(organization).exists():
        return None
    vocabulary = None if known is None else _PUBLISHED[known][1]
    if vocabulary is None:
        vocabulary = "vocab.json merges.txt" if "roberta" in model.lower() else "vocab.txt"
    needed = _OLD if known in _WITH_OLD_FILES else _NEEDED
    files = f"{needed} {vocabulary}".strip()
    return (
        f"{name}: there is no such folder, and Bertine downloads nothing; get the model with 'hf "
        f"download {organization}/{model} {files} --local-dir {model}' and give {model}"
    )
