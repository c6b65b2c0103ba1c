"""The JSON file beside a file of vectors: which model made them, and how."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertine.errors import BertineError
from bertine.files import read_json_object, write_json
from bertine.inference.embedding.embedder import Embedder

#: Version of the layout of the file; a reader refuses another one.
_FORMAT = 1


def hashed(texts: Iterable[str]) -> bytes:
    """Return what of texts goes into the fingerprint of their table: the length of each, and it."""
    raws = [text.encode("utf-8", "surrogatepass") for text in texts]
    return b"".join(len(raw).to_bytes(8, "little") + raw for raw in raws)


@dataclass(frozen=True)
class VectorOrigin:
    """The origin of a file of vectors: how it was made.

    Attributes:
        model: the name of the model's folder, for messages.
        weights, tokenizer: SHA-256 of the model's weights and of its tokenizer, as hex digits.
        pooling: its modes, in the order in which their vectors are joined.
        layer: whose states were pooled; 0 are the embeddings. None: several layers'.
        keep: how many numbers of each vector were kept; None: all.
        normalize: whether the vectors have length 1.
        prompt: what was put before every text.
        max_length: pieces at which texts were cut.
        precision: "fp32", "bf16" or "int8", computed in.
        dtype: "fp32" or "fp16", of the numbers in the file.
        rows: texts.
        dimensions: numbers of a vector.
        texts: SHA-256 of the texts in their order (:func:`hashed`), as hex digits; "": of an
            older version.
    """

    model: str
    weights: str
    tokenizer: str
    pooling: tuple[str, ...]
    layer: int | None
    keep: int | None
    normalize: bool
    prompt: str
    max_length: int
    precision: str
    dtype: str
    rows: int
    dimensions: int
    texts: str = ""

    @classmethod
    def of(cls, embedder: Embedder, *, dtype: str, rows: int, texts: str = "") -> VectorOrigin:
        """Return the origin of `rows` vectors that `embedder` makes. Hashes the weights, which
        takes about a third of a second for bert-base."""
        pooling = embedder.pooling
        weights, tokenizer = embedder.fingerprints()
        return cls(
            model=embedder.name,
            weights=weights,
            tokenizer=tokenizer,
            pooling=pooling.modes,
            layer=embedder.pooled_layer,
            keep=pooling.dimensions,
            normalize=pooling.normalize,
            prompt=embedder.prompt,
            max_length=embedder.max_length,
            precision=embedder.precision,
            dtype=dtype,
            rows=rows,
            dimensions=embedder.dimensions,
            texts=texts,
        )

    def write(self, vectors: Path | str) -> None:
        """Write the file beside `vectors`."""
        write_json(origin_path(vectors), {"format": _FORMAT} | dataclasses.asdict(self))

    @classmethod
    def read(cls, vectors: Path | str) -> VectorOrigin | None:
        """Read the file beside `vectors`; None where there is none: another program, or an older
        version, has made them.

        Raises:
            BertineError: the file is broken, or of another version.
        """
        path = origin_path(vectors)
        if not path.exists():
            return None
        values = read_json_object(path)
        if values.pop("format", None) != _FORMAT:
            raise BertineError(
                f"{path}: is of another version; embed the texts again, or remove this file"
            )
        if not _fits(values):
            raise BertineError(
                f"{path}: does not say how vectors were made; embed the texts again, or remove "
                "this file"
            )
        return cls(**{**values, "pooling": tuple(values["pooling"])})

    def check(
        self, vectors: Path | str, embedder: Embedder, shape: Sequence[int] | None
    ) -> list[str]:
        """Refuse an embedder that does not give vectors like these.

        Args:
            vectors: the file, for messages.
            embedder: that is to be compared with it.
            shape: of the array in the file; None: it is a table.

        Returns:
            What a person should know: a prompt that differs, unless it is the model's for documents
            and its one for queries.

        Raises:
            BertineError: another model, tokenizer, pooling or layer; the array is not the one that
                was described.
        """
        if shape is not None and tuple(shape) != (self.rows, self.dimensions):
            raise BertineError(
                f"{origin_path(vectors)}: describes {self.rows:,} vectors of {self.dimensions}, "
                f"but {vectors} has the shape {list(shape)}; embed the texts again, or remove the "
                "description"
            )
        asked = VectorOrigin.of(embedder, dtype=self.dtype, rows=self.rows)
        if (asked.weights, asked.tokenizer) != (self.weights, self.tokenizer):
            raise BertineError(
                f"{vectors}: was made with another model ({self.model or 'without a name'}); give "
                "that one, or embed the texts again with this one"
            )
        for name in ("pooling", "layer", "keep"):
            theirs, wanted = getattr(self, name), getattr(asked, name)
            if theirs != wanted:
                name = "dimensions" if name == "keep" else name
                raise BertineError(
                    f"{vectors}: was made with {name} {_plain(theirs)}, but the query has "
                    f"{name} {_plain(wanted)}; choose the same for both"
                )
        if self.prompt != asked.prompt and (self.prompt, asked.prompt) != embedder.prompts.meant():
            return [
                f"before the texts of {vectors} stands {self.prompt!r}, before the query "
                f"{asked.prompt!r}"
            ]
        return []


def origin_path(vectors: Path | str) -> Path:
    """Return the JSON file beside `vectors`: ``vectors.npy.json``."""
    return Path(f"{vectors}.json")


def _fits(values: dict[str, Any]) -> bool:
    """Return whether `values` are those of a :class:`VectorOrigin`, of the right types."""
    kinds: dict[str, tuple[type, ...]] = {
        **dict.fromkeys(("model", "weights", "tokenizer", "prompt", "precision", "dtype"), (str,)),
        "texts": (str,),
        **dict.fromkeys(("max_length", "rows", "dimensions"), (int,)),
        **dict.fromkeys(("layer", "keep"), (int, type(None))),
        "normalize": (bool,),
        "pooling": (list,),
    }
    values.setdefault("texts", "")
    return (
        values.keys() == kinds.keys()
        and all(isinstance(values[name], kind) for name, kind in kinds.items())
        and all(isinstance(mode, str) for mode in values["pooling"])
    )


def _plain(value: Any) -> str:
    return "+".join(value) if isinstance(value, tuple) else str(value)
