"""Read and write the directory of a table of vectors, in the layout of model2vec.

``config.json`` (``model_type`` model2vec), ``model.safetensors`` with ``embeddings`` [R, D] in
fp32, fp16 or int8 (by option of model2vec ``mapping`` [V] and ``weights`` [V]), ``tokenizer.json``.
Directories of sentence-transformers with a module ``StaticEmbedding`` hold ``embedding.weight``.

Shape legend: V pieces of the vocabulary, R rows of the table, D numbers of a vector.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from bertine.errors import BertineError
from bertine.files import (
    read_json,
    read_json_object,
    write_json,
    write_text,
)
from bertine.inference.static_vectors.card import CARD, static_card
from bertine.inference.static_vectors.table import StaticTable, as_stored
from bertine.inference.static_vectors.vocabulary import static_tokenizer
from bertine.interop.config_file import CONFIG
from bertine.interop.sentence_modules import MODULES
from bertine.interop.word_models import STATIC, static_folder
from bertine.model_folders import locate
from bertine.names import StaticPrecision
from bertine.outside import open_tensors
from bertine.system.memory import check_memory
from bertine.terminal.text import briefly
from bertine.text.tokenizer import Tokenizer

TENSORS = "model.safetensors"
#: What the table of vectors is called: by model2vec, by sentence-transformers.
_TABLES = ("embeddings", "embedding.weight")
#: The types of numbers in a safetensors file that a table may have, and their bytes.
_TYPES = {"F32": 4, "F16": 2, "F64": 8, "I8": 1}
#: Modules of sentence-transformers for a table of vectors.
_MODULES = [
    {"idx": 0, "name": "0", "path": ".", "type": "sentence_transformers.models.StaticEmbedding"},
    {
        "idx": 1,
        "name": "1",
        "path": "1_Normalize",
        "type": "sentence_transformers.models.Normalize",
    },
]


@dataclass(frozen=True)
class StaticModel:
    """What a directory holds.

    Attributes:
        table: the vectors.
        tokenizer: of the pieces; it may have special tokens behind those that have vectors.
        normalize: whether a text's vector is brought to length 1.
        max_length: pieces of a text that count; None: all.
        precision: of the numbers in the file.
        training: how the table was made, for the reader; {}: not known.
    """

    table: StaticTable
    tokenizer: Tokenizer
    normalize: bool = True
    max_length: int | None = None
    precision: str = "fp32"
    training: Mapping[str, Any] = field(default_factory=dict)


def save_static(model: StaticModel, folder: Path, precision: StaticPrecision) -> None:
    """Write a directory that model2vec and sentence-transformers open, too.

    Args:
        model: of which each piece of the tokenizer has a row.
        folder: that exists, and is empty.
        precision: of the numbers.
    """
    vectors = model.table.vectors
    save_file({_TABLES[0]: as_stored(vectors, precision)}, folder / TENSORS)
    model.tokenizer.save(folder, model_max_length=model.max_length)
    write_json(
        folder / CONFIG,
        {
            "model_type": STATIC,
            "architectures": ["StaticModel"],
            "hidden_dim": int(vectors.shape[1]),
            "seq_length": model.max_length or 1_000_000,
            "max_length": model.max_length,
            "normalize": model.normalize,
            "embedding_dtype": {"fp32": "float32", "fp16": "float16"}.get(precision, "int8"),
            **{key: model.training[key] for key in _SHARED_FACTS if key in model.training},
            "bertine": dict(model.training),
        },
    )
    write_json(folder / MODULES, _MODULES[: 1 + model.normalize])
    write_text(folder / CARD, static_card(model.table, precision, model.training))


#: What model2vec's own files say of how they were made.
_SHARED_FACTS = ("apply_pca", "sif_coefficient")


def load_static(path: Path | str) -> StaticModel:
    """Read a directory that :func:`save_static`, model2vec or sentence-transformers has written.

    Raises:
        BertineError: it is none, or damaged; its tokenizer is of a kind that is not known.
    """
    folder = static_folder(locate(path))
    if folder is None:
        raise BertineError(f"{path}: holds no table of static vectors (model2vec's config.json)")
    config: dict[str, Any] = {}
    if (folder / CONFIG).is_file():
        config = read_json_object(folder / CONFIG)
    place = folder
    if not (folder / TENSORS).is_file() and (folder / "0_StaticEmbedding").is_dir():
        place = folder / "0_StaticEmbedding"
    parts, precision = _tensors(place / TENSORS)
    tokenizer, unknown = static_tokenizer(place)
    table = _table(place / TENSORS, parts, tokenizer, unknown)
    normalize = config.get("normalize", _normalizes(folder))
    length = config.get("max_length", 512 if config else None)
    if type(normalize) is not bool or not (length is None or (type(length) is int and length > 0)):
        raise BertineError(
            f"{folder / CONFIG}: normalize must be true or false, and max_length a whole number "
            f"from 1 on or null, but they are {briefly(normalize)} and {briefly(length)}"
        )
    training = config.get("bertine")
    return StaticModel(
        table,
        tokenizer,
        normalize=normalize,
        max_length=length,
        precision=precision,
        training=training if isinstance(training, dict) else {},
    )


def _tensors(path: Path) -> tuple[dict[str, np.ndarray], str]:
    """Read the arrays of a file: the table as ``embeddings``; and the type of its numbers."""
    with open_tensors(path, "np") as file:
        names = set(file.keys())
        name = next((name for name in _TABLES if name in names), None)
        if name is None:
            raise BertineError(f"{path}: has no tensor {' or '.join(_TABLES)}")
        look = file.get_slice(name)
        shape, kind = look.get_shape(), look.get_dtype()
        if kind not in _TYPES or len(shape) != 2 or 0 in shape:
            raise BertineError(
                f"{path}: {name} is {kind} {shape}, but must be rows of fp32, fp16 or int8"
            )
        count = int(np.prod(shape))
        check_memory(f"{path}: the table of vectors", count * (4 + _TYPES[kind]))
        parts = {each: file.get_tensor(each) for each in names & {"mapping", "weights"} | {name}}
    parts["embeddings"] = np.ascontiguousarray(parts.pop(name), dtype=np.float32)
    return parts, {"F16": "fp16", "I8": "int8"}.get(kind, "fp32")


def _normalizes(folder: Path) -> bool:
    """Tell whether a directory of sentence-transformers makes vectors of length 1: by its list of
    modules, as the module's own folder is empty, and lost on the way through git."""
    if not (folder / MODULES).is_file():
        return (folder / "1_Normalize").exists()
    modules = read_json(folder / MODULES)
    return isinstance(modules, list) and any(
        isinstance(each, dict) and str(each.get("type", "")).endswith(".Normalize")
        for each in modules
    )


def _table(
    path: Path, parts: Mapping[str, np.ndarray], tokenizer: Tokenizer, unknown: int | None
) -> StaticTable:
    """Check that the arrays fit together and to the vocabulary.

    Raises:
        BertineError: they do not.
    """
    vectors, mapping, weights = parts["embeddings"], parts.get("mapping"), parts.get("weights")
    if not np.isfinite(vectors).all():
        raise BertineError(f"{path}: the table has a number that is not finite")
    if mapping is not None:
        mapping = mapping.astype(np.int64)
        if (
            mapping.ndim != 1
            or not len(mapping)
            or not 0 <= mapping.min() <= mapping.max() < len(vectors)
        ):
            raise BertineError(
                f"{path}: mapping must be rows of the table, from 0 to {len(vectors) - 1}"
            )
    count = len(vectors if mapping is None else mapping)
    if weights is not None:
        weights = np.ascontiguousarray(weights, dtype=np.float32)
        if weights.shape != (count,) or not np.isfinite(weights).all():
            raise BertineError(f"{path}: weights must be {count:,} finite numbers, one a piece")
    _check_count(path, count, tokenizer)
    return StaticTable(vectors, mapping, weights, unknown)


def _check_count(path: Path, count: int, tokenizer: Tokenizer) -> None:
    """Refuse a table that is not of this vocabulary; special tokens behind it have no vector."""
    tail: Sequence[int] = range(min(count, tokenizer.vocab_size), tokenizer.vocab_size)
    if count > tokenizer.vocab_size or any(index not in tokenizer.special_ids for index in tail):
        raise BertineError(
            f"{path}: has vectors of {count:,} pieces, but the vocabulary beside it has "
            f"{tokenizer.vocab_size:,}; they are not of one model"
        )
