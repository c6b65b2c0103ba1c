"""Pre-training batches: sequences of one of the input formats, masked, a pure function of the step.

Shape legend: B sequences in the batch, T tokens of the longest one, P chosen tokens.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt
import torch

from bertine.data.batch import Batch
from bertine.data.instances.formats import (
    PAIR_FORMATS,
    Instance,
    make_instances,
    sequence_frame,
)
from bertine.data.instances.masking import InstanceDraws, check_masking, mask_tokens
from bertine.data.store import TokenStore
from bertine.errors import BertineError
from bertine.options.names import option
from bertine.rng import generator, key

if TYPE_CHECKING:
    from bertine.text.tokenizer import Tokenizer

#: Whether a sequence is masked anew at every step, or in a number of ways and these again.
MASKINGS = ("dynamic", "static")
#: What applies to segment pairs and to static masking alone, where nobody says otherwise.
_SHORT_SEQ_PROB, _DUPE_FACTOR = 0.1, 10
#: Sequences that are made to tell whether whole words are chosen at the rate that is asked for.
_PROBES = 256


class PretrainingData:
    """Batches for masked language modelling, with or without next-sentence prediction.

    ``batch(step)`` depends on the store, the seed and the step, and on nothing else: not on which
    steps were asked for before, nor on the process that asks. A run is resumed at any step, and
    several workers share the work, without a state to keep. It can be pickled.

    Dynamic masking draws the tokens to predict anew at every step (Liu et al. 2019, section 4.1).
    Static masking is that of the published code (google-research/bert), which writes the corpus
    down `dupe_factor` times, with other cuts, pairs and masks each time, and trains on that again
    and again: here the first `dupe_factor` epochs are those copies, and epoch ``dupe_factor`` is
    epoch 0 once more, in the same order and with the same masks. The published code shuffles the
    copies among each other; here each epoch sees the whole corpus.

    Args:
        store: made by `tokenizer`; for a format of pairs with at least two documents.
        tokenizer: says which ids are special.
        batch_size: B, sequences a batch.
        max_seq_length: most tokens of a sequence with its special tokens; at least 8.
        seed: random seed.
        masked_lm_prob: share of tokens chosen for prediction.
        max_predictions_per_seq: the most of them in a sequence; None for no limit.
        mask_split: shares of the chosen that become the mask, become a random token, stay.
        short_seq_prob: share of segment pairs made shorter at random; other formats have none.
        input_format: what a sequence is made of, one of
        `bertine.data.instances.formats.INPUT_FORMATS`.
        whole_word_mask: choose whole words, see :mod:`bertine.data.instances.masking`.
        masking: "dynamic" or "static".
        dupe_factor: with static masking, in how many ways; the paper's is ten.

    Attributes:
        segments: the instances of the format.
        frame: the special tokens of a sequence.
        has_pairs: whether a sequence is a pair, so that batches have ``next_sentence_label``.

    Raises:
        BertineError: an argument is out of range, the tokenizer is not the store's, or the store
            has too few documents for the format.
    """

    def __init__(
        self,
        store: TokenStore,
        tokenizer: Tokenizer,
        *,
        batch_size: int = 32,
        max_seq_length: int = 128,
        seed: int = 0,
        masked_lm_prob: float = 0.15,
        max_predictions_per_seq: int | None = 20,
        mask_split: tuple[float, float, float] = (0.8, 0.1, 0.1),
        short_seq_prob: float = _SHORT_SEQ_PROB,
        input_format: str = "segment-pair",
        whole_word_mask: bool = False,
        masking: str = "dynamic",
        dupe_factor: int = _DUPE_FACTOR,
    ) -> None:
        if batch_size < 1:
            raise BertineError(f"batch_size is {batch_size}, but must be at least 1")
        check_masking(masked_lm_prob, max_predictions_per_seq, mask_split)
        if masking not in MASKINGS:
            raise BertineError(f"masking is {masking!r}, but must be one of {', '.join(MASKINGS)}")
        if dupe_factor < 1:
            raise BertineError(f"dupe_factor is {dupe_factor}, but must be at least 1")
        store.check_tokenizer(tokenizer)
        self.store = store
        self.segments = make_instances(
            input_format,
            store,
            tokenizer.template,
            max_seq_length=max_seq_length,
            short_seq_prob=short_seq_prob,
            seed=seed,
        )
        self.input_format = input_format
        self.has_pairs = input_format in PAIR_FORMATS
        self.short_seq_prob = short_seq_prob if input_format == "segment-pair" else None
        self.masking = masking
        self.dupe_factor = dupe_factor if masking == "static" else None
        self._idle: list[str] = []  # what was given and does nothing
        if self.short_seq_prob is None and short_seq_prob != _SHORT_SEQ_PROB:
            self._idle.append(
                f"short_seq_prob {short_seq_prob:g} does nothing: only segment pairs are made "
                f"shorter at random, and the format is {input_format}"
            )
        if self.dupe_factor is None and dupe_factor != _DUPE_FACTOR:
            self._idle.append(
                f"dupe_factor {dupe_factor} does nothing: dynamic masking masks anew at every "
                f"step; {option('masking', 'static')} has copies"
            )
        self.whole_word_mask = whole_word_mask
        self.batch_size = batch_size
        self.max_seq_length = max_seq_length
        self.seed = seed
        self.masked_lm_prob = masked_lm_prob
        self.max_predictions_per_seq = max_predictions_per_seq
        self.mask_split = mask_split
        self.pad_token_id = tokenizer.pad_token_id
        self.mask_token_id = tokenizer.require_mask("masked language modelling")
        self.frame = sequence_frame(input_format, tokenizer.template)
        self._around = self.frame.arrays(store.manifest["token_dtype"])
        # The unknown token is special here too: there is nothing to learn from guessing that a
        # word was unknown, and a random replacement should be a word.
        self._is_ordinary = np.ones(store.vocab_size, np.bool_)
        self._is_ordinary[list(tokenizer.special_ids)] = False
        self._ordinary_ids = np.flatnonzero(self._is_ordinary)
        self._is_continuation = tokenizer.continues

    @property
    def instances_per_epoch(self) -> int:
        """Sequences after which the corpus has been seen about once."""
        return self.segments.instances_per_epoch

    @property
    def steps_per_epoch(self) -> int:
        """Batches in an epoch, the last one shared with the next epoch."""
        return math.ceil(self.instances_per_epoch / self.batch_size)

    def numbers(self, step: int) -> Iterator[tuple[int, int]]:
        """Which instances make batch `step`, as runs of consecutive ones: (first, how many).

        With static masking they are numbers within the copies of the corpus, and begin again at
        0 after the last.
        """
        first, left = step * self.batch_size, self.batch_size
        if self.dupe_factor is None:
            yield first, left
            return
        period = self.dupe_factor * self.instances_per_epoch
        while left:
            first %= period
            run = min(left, period - first)
            yield first, run
            first, left = first + run, left - run

    def instances(self, step: int) -> list[Instance]:
        """The instances of batch `step`, B of them, without special tokens and masks."""
        return [
            instance for run in self.numbers(step) for instance in self.segments.instances(*run)
        ]

    def batch(self, step: int) -> Batch:
        """Batch number `step`, from 0 without end: instances ``step * B`` to ``step * B + B - 1``.

        Returns:
            input_ids, attention_mask, token_type_ids [B, T], padded to the longest of the batch,
            and the targets ``mlm_positions`` [P], ``mlm_labels`` [P] and, of pairs,
            ``next_sentence_label`` [B] (see :class:`~bertine.data.batch.Batch`).

        Raises:
            BertineError: the store holds an id outside its vocabulary, or is damaged.
        """
        instances = self.instances(step)
        before, between, after = self._around
        pieces: list[Any] = []
        sizes: list[int] = []
        ends, gap = len(before) + len(after), len(between)
        for instance in instances:
            first, *others = instance.segments
            pieces += (before, first)
            size = ends + len(first)
            for segment in others:
                pieces += (between, segment)
                size += gap + len(segment)
            pieces.append(after)
            sizes.append(size)
        lengths = np.array(sizes)
        column = np.arange(lengths.max())
        real = column < lengths[:, None]
        input_ids = np.full(real.shape, self.pad_token_id, np.int64)
        input_ids[real] = np.concatenate(pieces)
        if input_ids.max() >= self.store.vocab_size:
            self._refuse(input_ids, instances)
        choosable = self._is_ordinary[input_ids] & real
        masked = mask_tokens(
            input_ids,
            lengths,
            choosable,
            self._draws(step),
            mask_token_id=self.mask_token_id,
            random_ids=self._ordinary_ids,
            continues=self._is_continuation[input_ids] if self.whole_word_mask else None,
            masked_lm_prob=self.masked_lm_prob,
            max_predictions_per_seq=self.max_predictions_per_seq,
            mask_split=self.mask_split,
        )
        targets = {
            "mlm_positions": torch.from_numpy(masked.positions),
            "mlm_labels": torch.from_numpy(masked.labels),
        }
        if self.has_pairs:
            length_a = np.array([len(instance.segments[0]) for instance in instances])
            begin_b = length_a + len(before) + len(between)
            types = torch.from_numpy((real & (column >= begin_b[:, None])).astype(np.int64))
            targets["next_sentence_label"] = torch.tensor(
                [int(instance.documents[0] != instance.documents[1]) for instance in instances],
                dtype=torch.int64,
            )
        else:
            types = torch.zeros(real.shape, dtype=torch.int64)
        return Batch(torch.from_numpy(masked.input_ids), torch.from_numpy(real), types, targets)

    def _draws(self, step: int) -> np.random.Generator | InstanceDraws:
        """The random numbers that masking takes: of the step, or of each of its instances."""
        if self.dupe_factor is None:
            return generator(self.seed, "masking", step)
        # Two words a token; the counters of Philox give four words each.
        counters = -(-self.max_seq_length // 2)
        secret = key(self.seed, "static masking")
        words = [
            np.random.Philox(key=secret, counter=first * counters).random_raw(count * counters * 4)
            for first, count in self.numbers(step)
        ]
        return InstanceDraws(np.concatenate(words).reshape(self.batch_size, counters * 4))

    def _refuse(self, input_ids: npt.NDArray[np.int64], instances: Sequence[Instance]) -> NoReturn:
        """Name the document that an id outside the vocabulary came from."""
        row, column = np.argwhere(input_ids >= self.store.vocab_size)[0]
        instance = instances[row]
        starts = self.frame.starts([len(segment) for segment in instance.segments])
        document = instance.documents[int(np.searchsorted(starts, column, side="right")) - 1]
        raise BertineError(
            f"{self.store.path}: document {document} holds the id {input_ids[row, column]}, but "
            f"the vocabulary has {self.store.vocab_size} tokens; prepare it again"
        )

    def describe(self) -> dict[str, Any]:
        """What a run's log should say of its data: JSON values only."""
        return {
            "store": str(self.store.path),
            "tokenizer_fingerprint": self.store.manifest["tokenizer_fingerprint"],
            "num_documents": self.store.num_documents,
            "num_sentences": self.store.num_sentences,
            "num_tokens": self.store.num_tokens,
            "unigram_entropy": self.store.unigram_entropy,
            "batch_size": self.batch_size,
            "max_seq_length": self.max_seq_length,
            "seed": self.seed,
            "masked_lm_prob": self.masked_lm_prob,
            "max_predictions_per_seq": self.max_predictions_per_seq,
            "mask_split": list(self.mask_split),
            "short_seq_prob": self.short_seq_prob,
            "input_format": self.input_format,
            "whole_word_mask": self.whole_word_mask,
            "masking": self.masking,
            "dupe_factor": self.dupe_factor,
            "instances_per_epoch": self.instances_per_epoch,
            "steps_per_epoch": self.steps_per_epoch,
        }

    def _chosen_of_whole_words(self) -> float:
        """Tokens that are chosen as whole words, as a share of those chosen one by one; of a few
        hundred sequences."""
        if not self.whole_word_mask:
            return 1.0
        single = copy.copy(self)
        single.whole_word_mask = False
        words, tokens = (
            sum(
                data.batch(step).targets["mlm_labels"].numel()
                for step in range(math.ceil(_PROBES / self.batch_size))
            )
            for data in (self, single)
        )
        return words / max(1, tokens)

    def warnings(self) -> list[str]:
        """What a person should know before the run begins; empty when all is well."""
        found = list(self._idle)
        full = round(self.masked_lm_prob * self.max_seq_length)
        limit = self.max_predictions_per_seq
        if limit is not None and full > limit:
            found.append(
                f"max_predictions_per_seq {limit} limits a full sequence to "
                f"{limit / self.max_seq_length:.1%} predictions instead of "
                f"{self.masked_lm_prob:.0%} ({full} tokens); raise it to {full} or more"
            )
        share = self._chosen_of_whole_words()
        if share < 0.9:
            found.append(
                f"with whole words only {share:.0%} as many tokens are predicted as with single "
                "ones: many words have more pieces than are chosen of a sequence; use longer "
                "sequences, a larger vocabulary, or single tokens"
            )
        single = self.store.manifest["single_sentence_documents"]
        if self.has_pairs and single > 0.1 * self.store.num_documents:
            found.append(
                f"{single:,} of {self.store.num_documents:,} documents have one sentence only, so "
                "their next sentence is always random; next-sentence prediction will be easier "
                "to guess than on running text"
            )
        return found
