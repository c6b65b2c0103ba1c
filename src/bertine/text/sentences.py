"""Splitting documents into sentences, for next-sentence prediction.

The splitting is done by `sentencex`, which knows the abbreviations and the marks of some two
hundred languages and falls back to related ones, English at the last.
"""

from __future__ import annotations

from collections.abc import Iterator

import sentencex

#: Lines of a document are taken together up to about so many characters, not all at once.
_CHARACTERS_AT_A_TIME = 1 << 16


def split_sentences(text: str, language: str = "en") -> list[str]:
    """Split `text` into sentences.

    A line end always ends a sentence. No character is lost or changed but the white space around
    sentences (and lone surrogates, which become U+FFFD).

    Args:
        text: any text.
        language: a language code such as ``"en"`` or ``"zh"``; of ``"zh-Hans"`` or ``"pt_BR"`` the
            first part counts. Unknown ones are split like English.

    Returns:
        The sentences, stripped, none of them empty.
    """
    return list(iter_sentences(text, language))


def iter_sentences(text: str, language: str = "en") -> Iterator[str]:
    """The sentences of :func:`split_sentences`, one at a time: a document of any length takes no
    more memory than its text."""
    code = language.strip().lower().replace("_", "-").split("-")[0]
    begin = 0
    while begin < len(text):
        line_end = text.find("\n", begin + _CHARACTERS_AT_A_TIME)
        end = line_end + 1 if line_end >= 0 else len(text)
        for line in text[begin:end].splitlines():
            line = line.strip()
            if line:
                yield from (s for piece in _segment(line, code) if (s := piece.strip()))
        begin = end


def _segment(line: str, code: str) -> list[str]:
    try:
        pieces = sentencex.segment(code, line)
    except UnicodeEncodeError:  # a lone surrogate, which UTF-8 cannot hold
        return _segment(line.encode("utf-16", "surrogatepass").decode("utf-16", "replace"), code)
    except BaseException as error:
        # A Rust panic is a BaseException of pyo3; it must not end a preparation of hours.
        if type(error).__name__ != "PanicException":
            raise
        return [line]
    # What a splitter may do to a training text is cut it, and nothing else.
    return pieces if "".join(pieces) == line else [line]
