"""Check that inputs of a length fit a model and leave room for text."""

from __future__ import annotations

from bertine.errors import BertineError
from bertine.models.config import Config
from bertine.text.tokenizer import Tokenizer

#: The shortest inputs that a task over one text or two is made for; whether the special tokens of
#: a vocabulary leave room in them is seen when texts are encoded (:func:`check_room`).
LEAST_LENGTH = {1: 4, 2: 6}


def require_positions(max_length: int, config: Config) -> None:
    """Refuse a `max_length` that is more than the positions of the model.

    Raises:
        BertineError: it is.
    """
    if max_length > config.longest_input:
        raise BertineError(
            f"max_length is {max_length}, but the model has positions for {config.longest_input}"
        )


def check_room(max_length: int, texts: int, tokenizer: Tokenizer, what: str = "text") -> None:
    """Refuse a `max_length` in which the special tokens leave no room for a piece of each text;
    `what` is the message's word for what stands there.

    Raises:
        BertineError: they leave none.
    """
    if max_length < tokenizer.template.added(texts) + texts:
        raise BertineError(f"max_length {max_length} leaves no room for {what}")
