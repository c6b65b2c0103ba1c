"""Pre-training batches: pairs of segments, packed and masked, a pure function of the step.

Shape legend: B sequences in the batch, T tokens of the longest one, P chosen tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt
import torch

from bertine.data.batch import Batch
from bertine.data.masking import check_masking, mask_tokens
from bertine.data.segments import NspInstance, NspSegments
from bertine.data.store import TokenStore
from bertine.errors import BertineError
from bertine.rng import generator

if TYPE_CHECKING:
    from bertine.text.tokenizer import Tokenizer


class PretrainingData:
    """Batches for masked language modelling and next-sentence prediction.

    ``batch(step)`` depends on the store, the seed and the step, and on nothing else: not on which
    steps were asked for before, nor on the process that asks. A run is resumed at any step, and
    several workers share the work, without a state to keep. It can be pickled.

    Args:
        store: made by `tokenizer`, with at least two documents.
        tokenizer: says which ids are special.
        batch_size: B, sequences a batch.
        max_seq_length: tokens of a sequence with [CLS] and two [SEP]; at least 8.
        seed: of all that is random.
        masked_lm_prob: share of tokens chosen for prediction.
        max_predictions_per_seq: the most of them in a sequence; None for no limit.
        mask_split: shares of the chosen that become [MASK], become a random token, stay.
        short_seq_prob: share of sequences made shorter at random.

    Raises:
        BertineError: an argument is out of range, the tokenizer is not the store's, or the store
            has fewer than two documents.
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
        short_seq_prob: float = 0.1,
    ) -> None:
        if batch_size < 1:
            raise BertineError(f"batch_size is {batch_size}, but must be at least 1")
        check_masking(masked_lm_prob, max_predictions_per_seq, mask_split)
        store.check_tokenizer(tokenizer)
        self.store = store
        self.segments = NspSegments(
            store, max_seq_length=max_seq_length, short_seq_prob=short_seq_prob, seed=seed
        )
        self.batch_size = batch_size
        self.max_seq_length = max_seq_length
        self.seed = seed
        self.masked_lm_prob = masked_lm_prob
        self.max_predictions_per_seq = max_predictions_per_seq
        self.mask_split = mask_split
        self.pad_token_id = tokenizer.pad_token_id
        self.mask_token_id = tokenizer.mask_token_id
        self._cls = np.array([tokenizer.cls_token_id], store.manifest["token_dtype"])
        self._sep = np.array([tokenizer.sep_token_id], store.manifest["token_dtype"])
        # [UNK] is special here too: there is nothing to learn from guessing that a word was
        # unknown, and a random replacement should be a word.
        self._is_ordinary = np.ones(store.vocab_size, np.bool_)
        self._is_ordinary[list(tokenizer.special_ids)] = False
        self._ordinary_ids = np.flatnonzero(self._is_ordinary)

    @property
    def instances_per_epoch(self) -> int:
        """Sequences after which every document has had its turn."""
        return self.segments.instances_per_epoch

    @property
    def steps_per_epoch(self) -> int:
        """Batches in an epoch, the last one shared with the next epoch."""
        return math.ceil(self.instances_per_epoch / self.batch_size)

    def batch(self, step: int) -> Batch:
        """Batch number `step`, from 0 without end: the pairs ``step * B`` to ``step * B + B - 1``.

        Returns:
            input_ids, attention_mask, token_type_ids [B, T], padded to the longest of the batch,
            and the targets ``mlm_positions`` [P], ``mlm_labels`` [P], ``next_sentence_label`` [B]
            (see :class:`~bertine.data.batch.Batch`).

        Raises:
            BertineError: the store holds an id outside its vocabulary, or is damaged.
        """
        pairs = self.segments.instances(step * self.batch_size, self.batch_size)
        pieces: list[Any] = []
        for pair in pairs:
            pieces += (self._cls, pair.tokens_a, self._sep, pair.tokens_b, self._sep)
        length_a = np.array([len(pair.tokens_a) for pair in pairs])
        length_b = np.array([len(pair.tokens_b) for pair in pairs])
        lengths = length_a + length_b + 3
        column = np.arange(lengths.max())
        real = column < lengths[:, None]
        input_ids = np.full(real.shape, self.pad_token_id, np.int64)
        input_ids[real] = np.concatenate(pieces)
        if input_ids.max() >= self.store.vocab_size:
            self._refuse(input_ids, pairs)
        is_b = real & (column >= length_a[:, None] + 2)
        masked = mask_tokens(
            input_ids,
            lengths,
            self._is_ordinary[input_ids] & real,
            generator(self.seed, "masking", step),
            mask_token_id=self.mask_token_id,
            random_ids=self._ordinary_ids,
            masked_lm_prob=self.masked_lm_prob,
            max_predictions_per_seq=self.max_predictions_per_seq,
            mask_split=self.mask_split,
        )
        return Batch(
            torch.from_numpy(masked.input_ids),
            torch.from_numpy(real),
            torch.from_numpy(is_b.astype(np.int64)),
            {
                "mlm_positions": torch.from_numpy(masked.positions),
                "mlm_labels": torch.from_numpy(masked.labels),
                "next_sentence_label": torch.tensor(
                    [int(pair.is_random_next) for pair in pairs], dtype=torch.int64
                ),
            },
        )

    def _refuse(self, input_ids: npt.NDArray[np.int64], pairs: Sequence[NspInstance]) -> NoReturn:
        """Name the documents that an id outside the vocabulary came from."""
        row, column = np.argwhere(input_ids >= self.store.vocab_size)[0]
        pair = pairs[row]
        in_b = column >= len(pair.tokens_a) + 2
        raise BertineError(
            f"{self.store.path}: document {pair.document_b if in_b else pair.document_a} holds the "
            f"id {input_ids[row, column]}, but the vocabulary has {self.store.vocab_size} tokens; "
            "prepare it again"
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
            "short_seq_prob": self.segments.short_seq_prob,
            "instances_per_epoch": self.instances_per_epoch,
            "steps_per_epoch": self.steps_per_epoch,
        }

    def warnings(self) -> list[str]:
        """What a person should know before the run begins; empty when all is well."""
        found = []
        full = round(self.masked_lm_prob * self.max_seq_length)
        limit = self.max_predictions_per_seq
        if limit is not None and full > limit:
            found.append(
                f"max_predictions_per_seq {limit} limits a full sequence to "
                f"{limit / self.max_seq_length:.1%} predictions instead of "
                f"{self.masked_lm_prob:.0%} ({full} tokens); raise it to {full} or more"
            )
        single = self.store.manifest["single_sentence_documents"]
        if single > 0.1 * self.store.num_documents:
            found.append(
                f"{single:,} of {self.store.num_documents:,} documents have one sentence only, so "
                "their next sentence is always random; next-sentence prediction will be easier "
                "to guess than on running text"
            )
        return found
