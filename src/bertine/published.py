"""Say how a published model is had, for a user who names one where a folder is expected."""

from __future__ import annotations

import re
from pathlib import Path

from bertine.registry import PRESETS

#: The files of a model directory that are needed, besides those of the vocabulary.
_NEEDED = "config.json model.safetensors tokenizer.json tokenizer_config.json"
#: Beginnings of the names of models → their organizations on the Hugging Face hub, and the files
#: of their vocabularies ("": they are in tokenizer.json; None: by what the name says besides).
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
#: Of these the repositories have neither model.safetensors nor tokenizer.json.
_WITH_OLD_FILES = frozenset({"deberta-v3-"})
_OLD = "config.json pytorch_model.bin tokenizer_config.json"
#: Presets that are also the names of published models.
_BOTH = re.compile(
    r"(xlm-)?roberta-|camembert-|deberta-v3-|mobilebert-uncased|openai-gpt|xlnet-(base|large)"
)


def how_to_get(name: str) -> str | None:
    """Return how to get a model that is named in place of a folder, as one line; None where `name`
    does not look like the name of a published model."""
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
