"""Text to pieces by the `tokenizers` library, in bounded memory: many texts in batches, a long one
in parts that are cut where no piece crosses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tokenizers

#: The ids of a text's pieces, and the characters (begin, end) that each comes from.
Pieces = tuple[list[int], list[tuple[int, int]]]

# What is given to `tokenizers` at a time. It takes some hundred bytes of memory a character.
_TEXTS_AT_A_TIME = 4096
_CHARS_AT_A_TIME = 1 << 20
_CHARS_OF_A_PART = 1 << 16

# Where a text can be cut without a change to its pieces: after a space or a mark, which are never
# part of a word (brackets are, of special tokens), and after a Chinese character if they are set
# apart.
_CUT = re.compile(r"""[ \n\t\r!"#$%&'()*+,\-./:;<=>?@\\^_`{|}~\u3001\u3002\uff0c]""")
_CUT_CHINESE = re.compile(_CUT.pattern.replace("]", r"\u4e00-\u9fff]"))
# Such a run is inside one word, or is one, of more than `MAX_CHARS_PER_WORD` characters: [UNK].
_ENDLESS_WORD = re.compile(r"[A-Za-z0-9]{1024,}")
_SURROGATES = re.compile(r"[\ud800-\udfff]")


class BoundedEncoder:
    """What `tokenizers` gives for texts of any number and length.

    Args:
        backend: the object of the `tokenizers` library.
        split_chinese: whether it makes every Chinese character a word, so that texts may be cut
            there.
    """

    def __init__(self, backend: tokenizers.Tokenizer, split_chinese: bool) -> None:
        self._backend = backend
        self._cut = _CUT_CHINESE if split_chinese else _CUT

    def encode(self, texts: Sequence[str], *, offsets: bool = True) -> Iterator[Pieces]:
        """The pieces of each text in turn, without special tokens, not truncated; the offsets are
        empty unless asked for."""
        encode = self._backend.encode_batch if offsets else self._backend.encode_batch_fast
        ids: list[int] = []
        spans: list[tuple[int, int]] = []
        for batch in self._batches(texts):
            strings = [part for part, _, _ in batch]
            if not offsets:
                strings = [_shortened(part) for part in strings]
            try:
                encodings = encode(strings, add_special_tokens=False)
            except TypeError:
                # Lone surrogates, which UTF-8 cannot hold. U+FFFD is removed by normalization.
                strings = [_SURROGATES.sub("\ufffd", part) for part in strings]
                encodings = encode(strings, add_special_tokens=False)
            for encoding, (_, begin, ends) in zip(encodings, batch, strict=True):
                if begin == 0:
                    ids = encoding.ids
                    spans = encoding.offsets if offsets else []
                else:
                    ids += encoding.ids
                    if offsets:
                        spans += [(a + begin, b + begin) for a, b in encoding.offsets]
                if ends:
                    yield ids, spans

    def _batches(self, texts: Sequence[str]) -> Iterator[list[tuple[str, int, bool]]]:
        """(part of a text, position of its first character, whether it is the last of its text)
        in batches of bounded size. Nearly every text is one part."""
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
        """`text` in parts of about `_CHARS_OF_A_PART` characters, cut where no piece crosses."""
        begin = 0
        while len(text) - begin > _CHARS_OF_A_PART:
            match = self._cut.search(text, begin + _CHARS_OF_A_PART)
            if match is None or match.end() == len(text):
                break
            yield text[begin : match.end()], begin
            begin = match.end()
        yield (text[begin:] if begin else text), begin


def _shortened(part: str) -> str:
    """`part` with the same pieces, at less cost if it has a word of a million letters."""
    if len(part) <= 2 * _CHARS_OF_A_PART:
        return part
    return _ENDLESS_WORD.sub(lambda match: match.group()[:1024], part)
