"""Text that grows by tokens: which part of it is sure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from bertine.text.tokenizer import Tokenizer

#: Stands for bytes that are no whole character yet.
_UNFINISHED = "\ufffd"


class GrowingText:
    """What tokens add to a text, as they come.

    Args:
        tokenizer: of the tokens.
        prompt: the tokens before them; none: they are a text of their own.
        tokens: those that are there already.
    """

    def __init__(
        self, tokenizer: Tokenizer, prompt: Sequence[int] = (), tokens: Sequence[int] = ()
    ) -> None:
        self._tokenizer, self._prompt = tokenizer, list(prompt)
        self._before = tokenizer.decode(self._prompt) if prompt else ""
        # What is unknown is not decoded, and so does not say that a space follows it.
        unknown = bool(prompt) and self._prompt[-1] == tokenizer.unk_token_id
        self._gap = " " if unknown else ""
        self._tokens = list(tokens)
        self._shown = ""

    def add(self, token: int) -> str:
        """Take a token more; return what is sure now and was not before: whole characters."""
        self._tokens.append(token)
        return self._more(self.text.rstrip(_UNFINISHED))

    def rest(self) -> str:
        """Return what has not been given out, as no token follows; from where the text is another
        than what was given out, if it is."""
        text = self.text
        same = takewhile(lambda pair: pair[0] == pair[1], zip(text, self._shown, strict=False))
        return text[sum(1 for _ in same) :]

    @property
    def text(self) -> str:
        """All that the tokens add to the prompt's text, a space before it where one belongs
        there."""
        whole = self._tokenizer.decode([*self._prompt, *self._tokens])
        if whole.startswith(self._before):
            added = whole[len(self._before) :]
            return added if not added or added[0].isspace() else self._gap + added
        return " " + self._tokenizer.decode(self._tokens)

    def _more(self, text: str) -> str:
        # What joins two tokens may take the end of the first away; that waits for the end.
        if not text.startswith(self._shown):
            return ""
        more = text[len(self._shown) :]
        self._shown = text
        return more
