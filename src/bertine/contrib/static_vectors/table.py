"""Compute text vectors from a table of piece vectors, and read and write its directory (model2vec).

The layout is that of model2vec: ``config.json`` (``model_type`` model2vec), ``model.safetensors``
with ``embeddings`` [R, D] in fp32, fp16 or int8 (optionally ``mapping`` [V] and ``weights`` [V]),
``tokenizer.json``. Directories of sentence-transformers with a module ``StaticEmbedding`` have
``embedding.weight``.

Shape legend: V pieces of the vocabulary, R rows of the table, D numbers of a vector.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
import yaml
from safetensors.numpy import save_file

from bertine.contrib.options import StaticPrecision
from bertine.contrib.recognize import STATIC, static_folder
from bertine.core.console import plural
from bertine.core.errors import BertineError
from bertine.core.files import (
    read_json,
    read_json_object,
    write_json,
    write_text,
)
from bertine.core.foreign_files import open_tensors
from bertine.core.names import __version__
from bertine.core.process import check_memory
from bertine.core.text import briefly
from bertine.inference.embedding.encoder import EncoderOptions, TableEncoder
from bertine.models.config_file import CONFIG, MODULES
from bertine.tasks.base import Features
from bertine.tokenization.base import check_added_tokens
from bertine.tokenization.tokenizer import SPECIAL_TOKENS, Tokenizer
from bertine.tokenization.wordpiece import WordPiece

# Table: a vector for each piece of a vocabulary, and the means of a text's pieces.
#
# Shape legend: N texts.

#: The types of numbers of a table in a file, by name.
DTYPES: dict[StaticPrecision, type[np.number]] = {
    "fp32": np.float32,
    "fp16": np.float16,
    "int8": np.int8,
}


@dataclass(frozen=True)
class StaticTable:
    """A vector for each piece.

    Attributes:
        vectors: the vectors, fp32 [R, D].
        mapping: int64 [V], the row of each piece; None: each has its own, and R is V.
        weights: fp32 [V], a factor for the vector of each piece; None: no factors.
        unk_token_id: the id of the unknown piece, which is ignored; None: there is none.
    """

    vectors: np.ndarray
    mapping: np.ndarray | None = None
    weights: np.ndarray | None = None
    unk_token_id: int | None = None

    @property
    def pieces(self) -> int:
        """The number of pieces with a vector, V."""
        return len(self.vectors if self.mapping is None else self.mapping)

    @property
    def dimensions(self) -> int:
        """The dimensions of a vector, D."""
        return int(self.vectors.shape[1])

    def first(self, dimensions: int) -> StaticTable:
        """Return the table of the first `dimensions` numbers of each vector. In the order of the
        principal components these vary most.

        Raises:
            BertineError: the vectors have fewer numbers.
        """
        if not 1 <= dimensions <= self.dimensions:
            raise BertineError(
                f"{dimensions} dimensions are asked for, but vectors have {self.dimensions}"
            )
        return replace(self, vectors=np.ascontiguousarray(self.vectors[:, :dimensions]))

    def means(self, ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Compute the mean of the vectors of each text's pieces; pieces without one are left out.

        Args:
            ids: int [pieces], the pieces of one text after the other.
            lengths: int [N], the number of pieces of each text.

        Returns:
            fp32 [N, D]; zeros for a text in which no piece has a vector.
        """
        known = ids < self.pieces
        if self.unk_token_id is not None:
            known &= ids != self.unk_token_id
        if not known.all():
            texts = np.repeat(np.arange(len(lengths)), lengths)
            lengths = np.bincount(texts[known], minlength=len(lengths))
            ids = ids[known]
        offsets = np.zeros(len(lengths), np.int64)
        np.cumsum(lengths[:-1], out=offsets[1:])
        pieces = torch.from_numpy(np.ascontiguousarray(ids, dtype=np.int64))
        rows = pieces if self.mapping is None else torch.from_numpy(self.mapping)[pieces]
        with torch.inference_mode():
            if self.weights is None:
                means = F.embedding_bag(
                    rows, torch.from_numpy(self.vectors), torch.from_numpy(offsets), mode="mean"
                )
                return np.asarray(means.numpy())
            sums = F.embedding_bag(
                rows,
                torch.from_numpy(self.vectors),
                torch.from_numpy(offsets),
                mode="sum",
                per_sample_weights=torch.from_numpy(self.weights)[pieces],
            ).numpy()
        return np.asarray(sums / np.maximum(lengths, 1)[:, None].astype(np.float32))

    def fingerprint(self) -> str:
        """Compute the SHA-256 of the table, as hex digits."""
        digest = hashlib.sha256(np.ascontiguousarray(self.vectors).data)
        for part in (self.mapping, self.weights):
            digest.update(b"none" if part is None else np.ascontiguousarray(part).data)
        return digest.hexdigest()


def as_stored(vectors: np.ndarray, precision: StaticPrecision) -> np.ndarray:
    """Convert vectors fp32 [R, D] to the number type of a file. In int8 the largest number of the
    table becomes 127; the scale is not kept, as only directions count."""
    if precision == "int8":
        scale = float(np.abs(vectors).max()) / 127 or 1.0
        return np.rint(vectors / scale).astype(np.int8)
    return vectors.astype(DTYPES[precision])


# Tokenizer: that of a table of vectors, which may lack tokens that a model needs.
#
# model2vec removes [CLS], [SEP] and [MASK], which no text has. Here they are appended to the
# vocabulary, without vectors, so that the tokenizer is like any other.

_FILE = "tokenizer.json"


def static_tokenizer(folder: Path) -> tuple[Tokenizer, int | None]:
    """Return the tokenizer of a folder, and the id of its unknown piece; None: it has none.

    Raises:
        BertineError: there is no supported tokenizer.
    """
    file = folder / _FILE
    value: dict[str, Any] = read_json_object(file) if file.is_file() else {}
    model = value.get("model")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocab, dict) and WordPiece.is_of_json(value):
        missing = [token for token in SPECIAL_TOKENS if token not in vocab]
        if missing and "[UNK]" in vocab:
            tokenizer = _completed(file, value, vocab, missing)
            return tokenizer, tokenizer.unk_token_id
    tokenizer = Tokenizer.load(folder)
    return tokenizer, tokenizer.unk_token_id


def _completed(
    file: Path, value: dict[str, Any], vocab: dict[str, Any], missing: list[str]
) -> Tokenizer:
    first = len(vocab)
    added = value.get("added_tokens") or []
    check_added_tokens(file, added)
    behind = sum(1 for entry in added if entry["id"] >= first)
    if behind:
        raise BertineError(
            f"{file}: {behind} added tokens stand behind the vocabulary, which is not read here"
        )
    vocab |= {token: first + at for at, token in enumerate(missing)}
    return Tokenizer(WordPiece.from_json(file, value, {}), str(file))


# Model card: the README.md of a table's directory, with the metadata of the hub.

CARD = "README.md"
_CODE = """```python
import bertine

vectors = bertine.Embedder.load("FOLDER")(["a text", "another"])  # FOLDER: where this file is
print(vectors.shape)
```

`model2vec.StaticModel.from_pretrained("FOLDER")` opens it too."""


def static_card(table: StaticTable, precision: str, facts: Mapping[str, Any]) -> str:
    """Describe a table of vectors for its README.md.

    Args:
        table: the table as it is saved.
        precision: the type of the numbers in the file.
        facts: the facts of its training.
    """
    title = "Static vectors" + (f" of {facts['teacher']}" if facts.get("teacher") else "")
    front = yaml.safe_dump(
        {
            "library_name": "model2vec",
            "pipeline_tag": "feature-extraction",
            "tags": ["bertine", "model2vec", "static-embeddings", "sentence-transformers"],
        },
        sort_keys=False,
    )
    parts = [
        f"---\n{front}---",
        f"# {title}",
        f"{plural(table.pieces, 'piece')} with a vector of {table.dimensions} numbers each "
        f"({precision}), {table.vectors.size:,} numbers. A text's vector is the mean of its "
        f"pieces', brought to length 1. Written by Bertine {__version__}.",
        _CODE,
    ]
    recipe = "\n".join(_recipe(facts))
    if recipe:
        parts.append(f"{'#' * 2} Recipe\n\n{recipe}")
    return "\n\n".join(parts) + "\n"


def _recipe(facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield the steps of the training, in words."""
    for key, text in (
        ("explained_variance", "share of the variance that the principal components keep: {:.1%}"),
        ("weights", "weights of pieces: {}"),
        ("data_path", "texts: `{}`"),
        ("texts", "texts that were counted: {:,}"),
        ("trained_on", "texts whose vectors by the teacher were learned from: {:,}"),
        ("words_added", "words of the texts with a vector of their own: {:,}"),
        ("cosine_before", "cosine with the teacher's vectors of held-out texts, before: {:.3f}"),
        ("cosine_after", "and after learning from the teacher: {:.3f}"),
    ):
        if facts.get(key) is not None:
            yield "- " + text.format(facts[key])


TENSORS = "model.safetensors"
# Directory: written and read in the layout of model2vec.

#: The name of the table of vectors: in model2vec, in sentence-transformers.
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
    """The contents of a directory of static vectors.

    Attributes:
        table: the table of vectors.
        tokenizer: the tokenizer; it may have special tokens after the pieces that have vectors.
        normalize: whether a text's vector is scaled to length 1.
        max_length: the number of pieces of a text that count; None: all.
        precision: the type of the numbers in the file.
        training: the facts of the table's training, for information; {}: not known.
    """

    table: StaticTable
    tokenizer: Tokenizer
    normalize: bool = True
    max_length: int | None = None
    precision: str = "fp32"
    training: Mapping[str, Any] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """Describe the table."""
        table, most = self.table, self.max_length
        cut = "all of its pieces" if most is None else f"at most {plural(most, 'piece')}"
        return [
            f"static vectors: {plural(table.pieces, 'piece')} ({self.tokenizer.title}), vectors of "
            f"{table.dimensions} numbers in {self.precision}; of a text {cut} count",
            f"parameters: {table.vectors.size:,}",
        ]


def save_static(model: StaticModel, folder: Path, precision: StaticPrecision) -> None:
    """Write a directory that model2vec and sentence-transformers open too.

    Args:
        model: the model; each piece of its tokenizer has a row.
        folder: an existing empty folder.
        precision: the type of the numbers.
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


#: The facts of the training in model2vec's own files.
_SHARED_FACTS = ("apply_pca", "sif_coefficient")


def load_static(path: Path | str) -> StaticModel:
    """Read a directory written by :func:`save_static`, model2vec or sentence-transformers.

    Raises:
        BertineError: the folder is not such a directory, or is damaged; its tokenizer is of an
            unsupported kind.
    """
    folder = static_folder(path)
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
    """Read the arrays of a file, with the table as ``embeddings``, and the type of its numbers."""
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
        parts = {item: file.get_tensor(item) for item in names & {"mapping", "weights"} | {name}}
    parts["embeddings"] = np.ascontiguousarray(parts.pop(name), dtype=np.float32)
    return parts, {"F16": "fp16", "I8": "int8"}.get(kind, "fp32")


def _normalizes(folder: Path) -> bool:
    """Return whether a directory of sentence-transformers makes vectors of length 1. Only its list
    of modules shows it, as the module's own folder is empty, and git drops empty folders."""
    if not (folder / MODULES).is_file():
        return (folder / "1_Normalize").exists()
    modules = read_json(folder / MODULES)
    return isinstance(modules, list) and any(
        isinstance(item, dict) and str(item.get("type", "")).endswith(".Normalize")
        for item in modules
    )


def _table(
    path: Path, parts: Mapping[str, np.ndarray], tokenizer: Tokenizer, unknown: int | None
) -> StaticTable:
    """Build the table after a check that the arrays fit together and to the vocabulary.

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
    """Refuse a table of another vocabulary; special tokens at its end have no vector."""
    tail: Sequence[int] = range(min(count, tokenizer.vocab_size), tokenizer.vocab_size)
    if count > tokenizer.vocab_size or any(index not in tokenizer.special_ids for index in tail):
        raise BertineError(
            f"{path}: has vectors of {count:,} pieces, but the vocabulary beside it has "
            f"{tokenizer.vocab_size:,}; they are not of one model"
        )


# Encoder: texts as the means of their pieces' vectors.

#: Texts that are computed together.
_TEXTS = 4096


class StaticEncoder(TableEncoder):
    """Pieces with one vector each, without special tokens. Threads may share it.

    Attributes:
        table: the table of vectors.
        tokenizer: the tokenizer of the pieces.
    """

    #: Their numbers are in the order of the principal components.
    trained_shorter = True

    def __init__(self, model: StaticModel, options: EncoderOptions) -> None:
        """
        Raises:
            BertineError: more dimensions than the vectors have.
        """
        dimensions, normalize = options.dimensions, options.normalize
        super().__init__(
            normalize=model.normalize if normalize is None else normalize,
            max_length=options.max_length or model.max_length,
        )
        self.table = model.table if dimensions is None else model.table.first(dimensions)
        self.tokenizer = model.tokenizer

    @classmethod
    def load(cls, path: Path | str, options: EncoderOptions) -> StaticEncoder:
        """Load a directory of static vectors, of Bertine or model2vec.

        Raises:
            BertineError: it is damaged; more dimensions than the vectors have.
        """
        return cls(load_static(path), options)

    def __len__(self) -> int:
        return self.table.pieces

    @property
    def dimensions(self) -> int:
        return self.table.dimensions

    def fingerprints(self) -> tuple[str, str]:
        return self.table.fingerprint(), self.tokenizer.fingerprint

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        # Without features, which take longer than the means.
        result = np.empty((len(texts), self.dimensions), np.float32)
        for start in range(0, len(texts), _TEXTS):
            ids, lengths = self._encoded(texts[start : start + _TEXTS])
            kept = np.minimum(lengths, self.max_length)
            result[start : start + len(kept)] = self.finished(self.table.means(ids, kept))
        return result

    def features(self, texts: Sequence[str]) -> list[Features]:
        ids, lengths = self._encoded(texts)
        types = np.zeros(int(lengths.max(initial=0)), np.int8)
        features, start = [], 0
        for row, length in enumerate(lengths.tolist()):
            kept = min(length, self.max_length)
            features.append(
                Features(ids[start : start + kept], types[:kept], row, None, length - kept)
            )
            start += kept
        return features

    def means(self, features: Sequence[Features]) -> np.ndarray:
        ids = [feature.input_ids for feature in features]
        lengths = np.fromiter(map(len, ids), np.int64, len(ids))
        return self.table.means(np.concatenate([np.empty(0, np.int32), *ids]), lengths)

    def fixed_vector(self, word: str) -> np.ndarray:
        raise BertineError(
            f"a table of static vectors has the same vector for {word!r} in every text; compare "
            "whole texts"
        )

    def _encoded(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return the pieces of the texts one after the other, each cut to the maximum length, and
        how many each text has before that."""
        ids, lengths = self.tokenizer.encode_flat(texts)
        if int(lengths.max(initial=0)) > self.max_length:
            place = np.arange(len(ids)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
            ids = ids[place < self.max_length]
        return ids, lengths
