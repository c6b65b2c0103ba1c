"""Text to pieces by the `tokenizers` library, in bounded memory: many texts in batches, a long one
in parts that are cut where no piece crosses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from bertine.text.kind import Kind

# Imported after `kind`, which says how `tokenizers` is to use threads.
import tokenizers  # isort: skip

#: The ids of a text's pieces, and the characters (begin, end) that each comes from.
Pieces = tuple[list[int], list[tuple[int, int]]]

# What is given to `tokenizers` at a time. It takes some hundred bytes of memory a character.
_TEXTS_AT_A_TIME = 4096
_CHARS_AT_A_TIME = 1 << 20
_CHARS_OF_A_PART = 1 << 16

_SURROGATES = re.compile(r"[\ud800-\udfff]")


class BoundedEncoder:
    """The library `tokenizers` for texts of any number and length, in bounded memory.

    Args:
        kind: the tokenizer; says where texts may be cut.
    """

    def __init__(self, kind: Kind) -> None:
        self._kind, self._cut = kind, kind.cut

    def encode(self, texts: Sequence[str], *, offsets: bool = True) -> Iterator[Pieces]:
        """Yield the pieces of each text in turn, without special tokens, not truncated; the offsets
        are empty unless asked for."""
        backend, prepared = self._kind.encoder, self._kind.prepared
        encode = backend.encode_batch if offsets else backend.encode_batch_fast
        ids: list[int] = []
        spans: list[tuple[int, int]] = []
        for batch in self._batches(texts):
            strings = [part for part, _, _ in batch]
            if not offsets:
                strings = [self._shortened(part) for part in strings]
            try:
                encodings = encode(prepared(strings), add_special_tokens=False)
            except TypeError:
                # Lone surrogates, which UTF-8 cannot hold.
                strings = [_SURROGATES.sub("\ufffd", part) for part in strings]
                encodings = encode(prepared(strings), add_special_tokens=False)
            for encoding, (part, begin, ends) in zip(encodings, batch, strict=True):
                if begin == 0:
                    ids = encoding.ids
                    spans = self._spans(encoding, part) if offsets else []
                else:
                    ids += encoding.ids
                    if offsets:
                        first = len(spans)
                        spans += [(a + begin, b + begin) for a, b in self._spans(encoding, part)]
                        # The space that a part begins with is none of its first piece, though the
                        # library may take it for one that was put before the text.
                        if part[0] == " " and spans[first:] and spans[first][0] == begin:
                            spans[first] = begin + 1, max(begin + 1, spans[first][1])
                if ends:
                    yield ids, spans

    def _spans(self, encoding: tokenizers.Encoding, part: str) -> list[tuple[int, int]]:
        return self._kind.spans(encoding.ids, encoding.offsets, part)

    def _batches(self, texts: Sequence[str]) -> Iterator[list[tuple[str, int, bool]]]:
        """Yield (part of a text, position of its first character, whether it is the last of its
        text) in batches of bounded size. Nearly every text is one part."""
        batch: list[tuple[str, int, bool]] = []
        size = 0
        for text in texts:
            for part, begin in self._cuts(text):
                batch.append((part, begin, begin + len(part) == len(text)))
                size += len(part)
                if len(batch) >= _TEXTS_AT_A_TIME or size >= _CHARS_AT_A_TIME:
                    yield batch
                    batch, size = [], 0
        if batch:
            yield batch

    def _cuts(self, text: str) -> Iterator[tuple[str, int]]:
        """Yield `text` in parts of about `_CHARS_OF_A_PART` characters, cut where no piece
        crosses."""
        begin = 0
        while len(text) - begin > _CHARS_OF_A_PART:
            match = self._cut.search(text, begin + _CHARS_OF_A_PART)
            if match is None or match.end() == len(text):
                break
            yield text[begin : match.end()], begin
            begin = match.end()
        yield (text[begin:] if begin else text), begin

    def _shortened(self, part: str) -> str:
        return part if len(part) <= 2 * _CHARS_OF_A_PART else self._kind.shortened(part)
