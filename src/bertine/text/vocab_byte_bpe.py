"""Learn a vocabulary of byte-level BPE, as RoBERTa has it, or with special tokens like BERT's.

It begins with its special tokens (of RoBERTa ``<s> <pad> </s> <unk>``) and the 256 bytes, then come
the pieces in the order in which the trainer of `tokenizers` has learnt them, and the mask is last.
(RoBERTa's own order is by frequency; it has no bearing on a model.) Every text can be written with
the bytes, so there is no alphabet to choose, and the corpus is read once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy.typing as npt

from bertine.errors import BertineError
from bertine.options.corpus import Vocabulary
from bertine.text.byte_bpe import ALPHABET, STYLES, ByteBpe
from bertine.text.tokenizer import Tokenizer
from bertine.text.vocab_learner import WORD, VocabLearner

# Imported after `byte_bpe`, which says how `tokenizers` is to use threads.
import tokenizers  # isort: skip
from tokenizers import models, pre_tokenizers, trainers  # isort: skip


class ByteBpeLearner(VocabLearner):
    """A learner of byte-level BPE; see :func:`bertine.train_vocab` for its arguments.

    Raises:
        BertineError: `vocab_size` has no room for the bytes.
    """

    alphabet_size = characters_seen = len(ALPHABET)

    def __init__(self, options: Vocabulary) -> None:
        self._special, self._first = STYLES[options.special_tokens or "roberta"]
        least = len(self._first) + len(ALPHABET) + 2
        if options.vocab_size < least:
            raise BertineError(
                f"vocab_size {options.vocab_size} is too small for the {len(ALPHABET)} bytes and "
                f"the special tokens; give at least {least}"
            )
        self._options = options

    def learn(self, lines: Iterator[list[str]]) -> Tokenizer:
        """Learn the pieces of the lines."""
        backend = tokenizers.Tokenizer(models.BPE())
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = trainers.BpeTrainer(
            vocab_size=self._options.vocab_size - 1,
            min_frequency=self._options.min_frequency,
            show_progress=False,
            special_tokens=list(self._first),
            initial_alphabet=sorted(ALPHABET),
        )
        backend.train_from_iterator(lines, trainer)
        model = json.loads(backend.to_str())["model"]
        assert self._special.mask is not None
        ids = {**model["vocab"], self._special.mask: len(model["vocab"])}
        merges = [(first, second) for first, second in model["merges"]]
        kind = ByteBpe.build(ids, merges, add_prefix_space=False, source="vocabulary")
        return Tokenizer(kind, "vocabulary")

    def is_part(self, token: str) -> bool:
        try:
            bytes(ALPHABET[character] for character in token).decode("utf-8")
        except KeyError:  # a special token
            return False
        except UnicodeDecodeError:
            return True
        return False

    def count_words(self, lines: Sequence[str], begins_word: npt.NDArray[Any]) -> int:
        return sum(len(WORD.findall(line)) for line in lines)
