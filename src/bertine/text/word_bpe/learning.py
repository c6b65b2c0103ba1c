"""Learn a vocabulary of BPE over words, as GPT-1 has it.

``<unk>`` is first, then come the characters, those that end a word, and the pieces in the order in
which the trainer of `tokenizers` has learnt them; the special tokens of fine-tuning are last, where
the published code adds them. Words are divided as BERT does, which needs no package.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from bertine.errors import BertineError
from bertine.options.corpus import Vocabulary
from bertine.options.names import option
from bertine.text.tokenizer import Tokenizer
from bertine.text.vocab_learner import VocabLearner
from bertine.text.word_bpe.tokenizing import ADDED, END, UNKNOWN, WordBpe
from bertine.text.wordpiece import normalizer

# Imported after `tokenizing`, which says how `tokenizers` is to use threads.
import tokenizers  # isort: skip
from tokenizers import models, pre_tokenizers, trainers  # isort: skip

#: The characters that are kept where nothing is said, with room for both forms of each.
_SHARE = 4


class WordBpeLearner(VocabLearner):
    """A learner of BPE over words; see :func:`bertine.train_vocab` for its arguments. The alphabet
    is the most frequent characters, a quarter of the vocabulary at the most.

    Raises:
        BertineError: an option that does not go with it.
    """

    has_unknown = True

    def __init__(self, options: Vocabulary) -> None:
        if options.lowercase is False:
            raise BertineError(
                f"{option('lowercase')} false does not go with word-bpe, which knows one case; "
                "leave it out"
            )
        if options.vocab_size < 2 * _SHARE + 1 + len(ADDED):
            raise BertineError(
                f"vocab_size {options.vocab_size} is too small; a few thousand are usual"
            )
        self._options = options

    def learn(self, lines: Iterator[list[str]]) -> Tokenizer:
        """Learn the pieces of the lines."""
        options = self._options
        backend = tokenizers.Tokenizer(models.BPE(unk_token=UNKNOWN, end_of_word_suffix=END))
        backend.normalizer = normalizer(True, options.strip_accents, options.split_chinese)
        backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        most = options.vocab_size - len(ADDED)
        trainer = trainers.BpeTrainer(
            vocab_size=most,
            min_frequency=options.min_frequency,
            show_progress=False,
            special_tokens=[UNKNOWN],
            limit_alphabet=options.limit_alphabet or most // _SHARE,
            end_of_word_suffix=END,
        )
        backend.train_from_iterator(lines, trainer)
        model = json.loads(backend.to_str())["model"]
        tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
        ids = {token: index for index, token in enumerate([*tokens, *ADDED])}
        merges = [(first, second) for first, second in model["merges"]]
        kind = WordBpe.build(
            ids,
            merges,
            exact=False,
            source="vocabulary",
            strip_accents=options.strip_accents,
            split_chinese=options.split_chinese,
        )
        self.alphabet_size = len({t.removesuffix(END) for t in tokens if _is_character(t)})
        self.characters_seen = self.alphabet_size
        return Tokenizer(kind, "vocabulary")


def _is_character(token: str) -> bool:
    """Tell whether a token is one character, at the end of a word or before it."""
    return len(token.removesuffix(END)) == 1
