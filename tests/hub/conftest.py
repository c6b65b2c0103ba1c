"""The tokenizer of the tiny models."""

from __future__ import annotations

import pytest

from bertine.tokenization.tokenizer import Tokenizer
from hub.models import VOCABULARY


@pytest.fixture
def tokenizer() -> Tokenizer:
    return Tokenizer.from_vocab(VOCABULARY)
