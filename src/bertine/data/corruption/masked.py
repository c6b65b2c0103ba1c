"""Choose and hide the tokens that the masked language model has to guess.

Tokens are chosen one by one, as whole words, or as runs of either
(:mod:`bertine.data.corruption.ngrams`). What becomes of a chosen token is decided token by token in
all cases.

Whole words are chosen as in the published code (google-research/bert,
``create_pretraining_data.py``, ``do_whole_word_mask``): a word is a token and the pieces after it
that go on with it (:attr:`bertine.Tokenizer.continues`); words are taken in a random order until
as many tokens are chosen as without whole words; a word that would make them more is passed over.
One thing differs: where a segment was cut so that it begins inside a word, its first pieces are a
word of their own, while
the published code adds them to the word before the [SEP]. So the first word behind a special token
is a word, too, where spaces belong to pieces and nothing marks its beginning.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from bertine.data.batch import Batch
from bertine.data.corruption.base import Draws
from bertine.data.corruption.ngrams import LOW_BITS, choose_runs, starts_of_words
from bertine.data.corruption.padded import Padder
from bertine.data.instances.instance import Instance
from bertine.options.instances import InstanceSettings

if TYPE_CHECKING:
    from bertine.text.tokenizer import Tokenizer

#: Whether a sequence is masked anew at every step, or in a number of ways and these again.
MASKINGS = ("dynamic", "static")
#: Sequences that are made to tell whether whole words are chosen at the rate that is asked for.
_PROBES = 256


@dataclass(frozen=True)
class MaskedTokens:
    """A batch with some of its tokens hidden.

    Attributes:
        input_ids: int64 [B, T], the batch with the chosen tokens replaced.
        positions: int64 [P], the chosen tokens as ascending indices into the flattened [B*T].
        labels: int64 [P], what was there.
    """

    input_ids: npt.NDArray[np.int64]
    positions: npt.NDArray[np.int64]
    labels: npt.NDArray[np.int64]


class InstanceDraws:
    """The random numbers that belong to an instance, not to the batch it stands in: static masking.

    It makes the choices that a :class:`numpy.random.Generator` makes for a batch as a whole, for
    each sequence from words of its own, so that a sequence is masked alike in any batch.

    Args:
        words: uint64 [B, 2 * W], random; W is at least the number of columns of the batch.
    """

    def __init__(self, words: npt.NDArray[np.uint64]) -> None:
        self._order, self._action = np.split(words, 2, axis=1)

    def order(self, shape: tuple[int, ...]) -> npt.NDArray[np.uint64]:
        """Return numbers to sort the tokens by, uint64 `shape` [B, T]."""
        return self._order[:, : shape[1]]

    def actions(
        self, positions: npt.NDArray[np.int64], shape: tuple[int, ...], choices: int
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
        """Return for each of the chosen tokens `positions` [P] a number in [0, 1), float64 [P], and
        one in ``range(choices)``, int64 [P]."""
        words = self._action[positions // shape[1], positions % shape[1]]
        uniform = (words >> np.uint64(32)).astype(np.float64) * 2.0**-32
        picked = (words & np.uint64(0xFFFFFFFF)) * np.uint64(choices) >> np.uint64(32)
        return uniform, picked.astype(np.int64)


class TokenMasking:
    """The corruption of BERT and RoBERTa: some tokens of each sequence are hidden.

    Dynamic masking draws the tokens to predict anew at every step (Liu et al. 2019, section 4.1);
    static masking hides the same ones whenever a sequence comes again.

    Args:
        tokenizer: says which ids are special, and has the mask.
        settings: of the sequences and their masks.
        odds: fp64 [V], above 0: how much sooner one token of a sequence is chosen than another;
            None: all alike. See :func:`rarer_first`.

    Raises:
        BertineError: a share is outside its range, the masking is not known, or the vocabulary has
            no mask.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        settings: InstanceSettings,
        odds: npt.NDArray[np.float64] | None = None,
    ) -> None:
        self.settings, self._odds = settings, odds
        self.mask_token_id = tokenizer.require_mask("masked language modelling")
        self._padder = Padder(tokenizer, settings.input_format)
        # The unknown token is special here too: there is nothing to learn from guessing that a
        # word was unknown, and a random replacement should be a word.
        self._is_ordinary = np.ones(tokenizer.vocab_size, np.bool_)
        self._is_ordinary[list(tokenizer.special_ids)] = False
        self._ordinary_ids = np.flatnonzero(self._is_ordinary)
        self._is_continuation = tokenizer.continues

    def __call__(self, instances: Sequence[Instance], draws: Draws) -> Batch:
        """Make the batch, with targets ``mlm_positions`` [P] and ``mlm_labels`` [P]."""
        padded, settings = self._padder.pad(instances), self.settings
        whole_words = settings.whole_word_mask
        masked = mask_tokens(
            padded.input_ids,
            padded.lengths,
            self._is_ordinary[padded.input_ids] & padded.real,
            self._numbers(draws),
            mask_token_id=self.mask_token_id,
            random_ids=self._ordinary_ids,
            continues=padded.continues(self._is_continuation) if whole_words else None,
            odds=None if self._odds is None else self._odds[padded.input_ids],
            masked_lm_prob=settings.masked_lm_prob,
            max_predictions_per_seq=settings.max_predictions_per_seq,
            mask_split=settings.mask_split,
            ngrams=settings.ngrams,
        )
        return padded.batch(
            masked.input_ids, mlm_positions=masked.positions, mlm_labels=masked.labels
        )

    def _numbers(self, draws: Draws) -> np.random.Generator | InstanceDraws:
        """Take the random numbers of the step, or of each of its instances."""
        if self.settings.masking != "static":
            return draws.of_batch("masking")
        # Two words a token, for an even number of tokens.
        words = 4 * -(-self.settings.max_seq_length // 2)
        return InstanceDraws(draws.of_instances("static masking", words))

    def warnings(self, samples: Iterable[tuple[Sequence[Instance], Draws]]) -> list[str]:
        """List what a person should know of the rates."""
        lines = []
        share, length = self.settings.masked_lm_prob, self.settings.max_seq_length
        full, limit = round(share * length), self.settings.max_predictions_per_seq
        if limit is not None and full > limit:
            lines.append(
                f"max_predictions_per_seq {limit} limits a full sequence to "
                f"{limit / length:.1%} predictions instead of "
                f"{share:.0%} ({full} tokens); raise it to {full} or more"
            )
        whole = self.settings.whole_word_mask
        chosen = self._chosen_of_whole_words(samples) if whole else 1.0
        if chosen < 0.9:
            lines.append(
                f"with whole words only {chosen:.0%} as many tokens are predicted as with single "
                "ones: many words have more pieces than are chosen of a sequence; use longer "
                "sequences, a larger vocabulary, or single tokens"
            )
        return lines

    def _chosen_of_whole_words(self, samples: Iterable[tuple[Sequence[Instance], Draws]]) -> float:
        """Compare how many tokens are chosen as whole words with how many one by one, in a few
        hundred sequences: a share."""
        single = copy.copy(self)
        single.settings = dataclasses.replace(self.settings, whole_word_mask=False, ngrams=1)
        words = tokens = seen = 0
        for instances, draws in samples:
            words += self(instances, draws).targets["mlm_labels"].numel()
            tokens += single(instances, draws).targets["mlm_labels"].numel()
            seen += len(instances)
            if seen >= _PROBES:
                break
        return words / max(1, tokens)


def mask_tokens(
    input_ids: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
    choosable: npt.NDArray[np.bool_],
    rng: np.random.Generator | InstanceDraws,
    *,
    mask_token_id: int,
    random_ids: npt.NDArray[np.int64],
    continues: npt.NDArray[np.bool_] | None = None,
    odds: npt.NDArray[np.float64] | None = None,
    masked_lm_prob: float = 0.15,
    max_predictions_per_seq: int | None = 20,
    mask_split: Sequence[float] = (0.8, 0.1, 0.1),
    ngrams: int = 1,
) -> MaskedTokens:
    """Choose and replace tokens (Devlin et al. 2018, section 3.1, Task 1).

    As in the published code, a sequence of n tokens, special ones counted, has
    ``max(1, round(masked_lm_prob * n))`` of them chosen without replacement, but not more than
    `max_predictions_per_seq`, nor than can be chosen. Whole words may make them fewer, where no
    word is short enough for what is left.

    Args:
        input_ids: [B, T], padded; not changed.
        lengths: [B], tokens of each sequence without padding.
        choosable: [B, T], True where a token may be chosen: no special token, no padding.
        rng: of the batch, draws 3 numbers a token; or the draws of each of its sequences.
        mask_token_id: replaces a chosen token with probability ``mask_split[0]``.
        random_ids: [R], a uniform one of them replaces it with probability ``mask_split[1]``;
            else it is kept.
        continues: [B, T], True where a token is part of the word of the token before it; whole
            words are chosen then. None: single tokens.
        odds: fp64 [B, T], above 0: tokens are chosen one after the other, each with a probability
            in proportion to its own among those that are left; of whole words that of the first
            piece counts. None: all alike.
        masked_lm_prob: the share of tokens to choose.
        max_predictions_per_seq: the most chosen in a sequence; None for no limit.
        mask_split: masked, random, kept; adds up to 1.
        ngrams: the most tokens, or whole words, of a run that is chosen together
            (:mod:`bertine.data.corruption.ngrams`).
    """
    wanted = np.maximum(1, np.rint(lengths * masked_lm_prob).astype(np.int64))
    if max_predictions_per_seq is not None:
        wanted = np.minimum(wanted, max_predictions_per_seq)
    wanted = np.minimum(wanted, choosable.sum(axis=1))
    order: npt.NDArray[np.uint64]
    if isinstance(rng, InstanceDraws):
        order = rng.order(input_ids.shape)
    else:
        order = rng.integers(1 << 63, size=input_ids.shape, dtype=np.uint64)
    if odds is not None:
        bits = 64 if isinstance(rng, InstanceDraws) else 63
        order = _by_odds(order, bits, odds)
    if ngrams > 1:
        positions = choose_runs(order, choosable, continues, wanted, ngrams)
    elif continues is None:
        positions = _choose_tokens(order, choosable, wanted)
    else:
        positions = _choose_words(order, choosable, continues, wanted)

    masked = input_ids.copy()
    flat = masked.reshape(-1)
    labels = flat[positions]
    if isinstance(rng, InstanceDraws):
        action, picked = rng.actions(positions, input_ids.shape, len(random_ids))
    else:
        action = rng.random(len(positions))
        picked = rng.integers(len(random_ids), size=len(positions))
    hidden, swapped = mask_split[0], mask_split[0] + mask_split[1]
    flat[positions] = np.where(
        action < hidden, mask_token_id, np.where(action < swapped, random_ids[picked], labels)
    )
    return MaskedTokens(masked, positions, labels)


def rarer_first(counts: npt.NDArray[np.int64], power: float) -> npt.NDArray[np.float64]:
    """Return the odds with which rarer tokens are chosen more often, fp64 [V]: their `counts`
    [V], at least 1, to minus `power` (transformers, ``research_projects/distillation``:
    ``mlm_smoothing``, 0.7 there; Lample and Conneau 2019, after word2vec). There the tokens of a
    whole batch are drawn from together, here those of each sequence by itself, so that a sequence
    has the same share of them as without odds, and a limit holds."""
    return np.asarray(np.maximum(counts, 1).astype(np.float64) ** -power)


def _by_odds(
    order: npt.NDArray[np.uint64], bits: int, odds: npt.NDArray[np.float64]
) -> npt.NDArray[np.uint64]:
    """Return numbers to sort by in place of the uniform `order`, integers of so many `bits`, so
    that the first ones are a draw without replacement in proportion to `odds`: times of exponential
    clocks (Efraimidis and Spirakis 2006)."""
    uniform = ((order >> np.uint64(bits - 52)).astype(np.float64) + 0.5) * 2.0**-52
    clocks = -np.log(uniform) / odds
    # The bits of positive numbers are in the order of the numbers.
    return clocks.view(np.uint64)


def _shuffled(
    order: npt.NDArray[np.uint64], candidates: npt.NDArray[np.bool_], most: int
) -> npt.NDArray[np.int64]:
    """Return the columns of each row's candidates in a random order, [B, most]; what follows after
    the last candidate of a row means nothing."""
    # Sorting random numbers with the column in their low bits: no two keys are equal, so every
    # machine sorts them alike.
    keys = (order & ~LOW_BITS) | np.arange(order.shape[1], dtype=np.uint64)
    keys[~candidates] = ~np.uint64(0)
    keys.sort(axis=1)
    return (keys[:, :most] & LOW_BITS).astype(np.int64)


def _choose_tokens(
    order: npt.NDArray[np.uint64],
    choosable: npt.NDArray[np.bool_],
    wanted: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """Return as many tokens of each row as wanted: ascending flat positions [P]."""
    num_rows, num_columns = order.shape
    columns = _shuffled(order, choosable, int(wanted.max(initial=0)))
    taken = np.arange(columns.shape[1]) < wanted[:, None]
    return np.sort((np.arange(num_rows)[:, None] * num_columns + columns)[taken])


def _choose_words(
    order: npt.NDArray[np.uint64],
    choosable: npt.NDArray[np.bool_],
    continues: npt.NDArray[np.bool_],
    wanted: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """Return whole words of each row, in a random order, each that still fits: ascending flat
    positions [P] of their tokens."""
    num_rows, num_columns = order.shape
    first = starts_of_words(choosable, continues)
    # Words are numbered through the batch; word_of is right wherever a token may be chosen.
    word_of = np.cumsum(first.reshape(-1)) - 1
    size_of = np.bincount(word_of[choosable.reshape(-1)], minlength=1)
    counts = first.sum(axis=1)
    columns = _shuffled(order, first, int(counts.max(initial=0)))
    real = np.arange(columns.shape[1]) < counts[:, None]
    columns[~real] = 0
    words = word_of[np.arange(num_rows)[:, None] * num_columns + columns]
    chosen = np.zeros(len(size_of), np.bool_)
    left = wanted.copy()
    sizes = np.where(real, size_of[words], 0)
    rows = np.arange(num_rows)
    # Taken in their order as long as they fit, words leave room for smaller ones only; so the
    # next round begins with those. Three or four rounds leave nothing.
    while True:
        sizes[sizes > left[rows, None]] = 0
        alive = sizes.any(axis=1)
        if not alive.any():
            break
        if not alive.all():
            rows, sizes, words = rows[alive], sizes[alive], words[alive]
        fits = (sizes > 0) & (np.cumsum(sizes, axis=1) <= left[rows, None])
        chosen[words[fits]] = True
        left[rows] -= np.where(fits, sizes, 0).sum(axis=1)
        sizes[fits] = 0
    return np.flatnonzero(choosable.reshape(-1) & chosen[word_of])
