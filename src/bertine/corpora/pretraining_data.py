"""Make the batches of pre-training, each a pure function of the step.

Shape legend: B sequences in the batch, T tokens of the longest one.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bertine.core.errors import BertineError
from bertine.core.names import option
from bertine.corpora.batch import Batch
from bertine.corpora.collators import (
    Collator,
    Draws,
    ForeignId,
    MakeCorruption,
    ReadsAround,
    TokenMasking,
    WarningCollator,
)
from bertine.corpora.formats import (
    FORMATS,
    NEXT_SENTENCE,
    SENTENCE_ORDER,
    FullSentences,
    make_instances,
    sequence_frame,
)
from bertine.corpora.sequences import Instance
from bertine.corpora.store import TokenStore
from bertine.options.pretraining import InstanceSettings
from bertine.tokenization.base import Frame

if TYPE_CHECKING:
    from bertine.tokenization.tokenizer import Tokenizer


class PretrainingData:
    """The batches of pre-training from a store.

    ``batch(step)`` depends only on the store, the seed and the step, not on earlier steps or on the
    process. So a run can be resumed at any step, and several workers can share the work without any
    state. It can be pickled.

    Dynamic masking draws the tokens to predict anew at every step (Liu et al. 2019, section 4.1).
    Static masking is that of the published code (google-research/bert), which writes the corpus
    `dupe_factor` times, with other cuts, pairs and masks each time, and trains on that repeatedly:
    here the first `dupe_factor` epochs are those copies, and epoch ``dupe_factor`` equals epoch 0,
    in the same order and with the same masks. The published code shuffles the copies together; here
    each epoch sees the whole corpus.

    Args:
        store: made by `tokenizer`; for a format of pairs with at least two documents.
        tokenizer: determines which ids are special.
        settings: how the batches are made; here None for `max_predictions_per_seq` means no limit.
        corruption: creates the corruption of the instances, such as an objective's method of this
            name.

    Attributes:
        segments: the instances of the format.
        format: the description of the format.
        frame: the special tokens of a sequence.
        corruption: turns instances into batches.

    Raises:
        BertineError: an argument is out of range, the tokenizer is not the store's, or the store
            has too few documents for the format.
    """

    def __init__(
        self,
        store: TokenStore,
        tokenizer: Tokenizer,
        settings: InstanceSettings | None = None,
        *,
        corruption: MakeCorruption = TokenMasking,
    ) -> None:
        self.settings = settings = settings or InstanceSettings()
        store.check_tokenizer(tokenizer)
        self.store = store
        self.segments = make_instances(
            settings.input_format,
            store,
            tokenizer.template,
            max_seq_length=settings.max_seq_length,
            short_seq_prob=settings.short_seq_prob,
            seed=settings.seed,
        )
        self.format = FORMATS[settings.input_format]
        if self.format.neighbours and settings.batch_size % 2:
            raise BertineError(
                f"batch_size is {settings.batch_size}, but must be even with "
                f"{option('input_format', settings.input_format)}, whose sequences come in twos"
            )
        self.dupe_factor = settings.dupe_factor if settings.masking == "static" else None
        self._idle: list[str] = []  # options given without effect
        usual, short = InstanceSettings(), settings.short_seq_prob
        if not self.format.shortened and short != usual.short_seq_prob:
            self._idle.append(
                f"short_seq_prob {short:g} does nothing: only segment pairs are made shorter at "
                f"random, and the format is {settings.input_format}"
            )
        if self.dupe_factor is None and settings.dupe_factor != usual.dupe_factor:
            self._idle.append(
                f"dupe_factor {settings.dupe_factor} does nothing: dynamic masking masks anew at "
                f"every step; {option('masking', 'static')} has copies"
            )
        self.batch_size = settings.batch_size
        self.max_seq_length = settings.max_seq_length
        self.frame = sequence_frame(settings.input_format, tokenizer.template)
        self.corruption: Collator = corruption(tokenizer, settings)

    @property
    def instances_per_epoch(self) -> int:
        """Number of sequences that see the corpus about once."""
        return self.segments.instances_per_epoch

    @property
    def steps_per_epoch(self) -> int:
        """Number of batches in an epoch; the last one is shared with the next epoch."""
        return math.ceil(self.instances_per_epoch / self.batch_size)

    def numbers(self, step: int) -> Iterator[tuple[int, int]]:
        """Yield the instances of batch `step` as runs of consecutive numbers: (first, count).

        With static masking they are numbers within the copies of the corpus, and restart at 0 after
        the last.
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
        """Return the instances of batch `step`, B of them, without special tokens and masks."""
        instances = [
            instance for run in self.numbers(step) for instance in self.segments.instances(*run)
        ]
        if self.store.segmenter is not None:
            instances = list(map(self._unmarked, instances))
        if isinstance(self.corruption, ReadsAround) and self.corruption.memory_length:
            numbers = [first + i for first, count in self.numbers(step) for i in range(count)]
            sides = self.corruption.sides(len(instances))
            instances = [
                instance._replace(
                    context=self._context(number, side, self.corruption.memory_length)
                )
                for instance, number, side in zip(instances, numbers, sides, strict=True)
            ]
        return instances

    def _context(self, number: int, side: int, most: int) -> npt.NDArray[Any]:
        """Return the ids of the text around instance `number`, `most` of them, in reading order:
        the nearest last."""
        assert isinstance(self.segments, FullSentences), "the corruption refuses other formats"
        other = self.segments.neighbour(number, side)
        if other is None:
            return np.zeros(0, np.int64)
        if self.store.segmenter is not None:
            other = self._unmarked(other)
        text = Frame((), self.frame.between, ()).join([ids.tolist() for ids in other.segments])
        ids = np.array(text, np.int64)
        return ids[-most:] if side < 0 else ids[:most][::-1]

    def _unmarked(self, instance: Instance) -> Instance:
        """Remove the word marks from the ids of an instance."""
        pairs = [self.store.unmark(segment) for segment in instance.segments]
        return instance._replace(
            segments=tuple(ids for ids, _ in pairs),
            goes_on=tuple(marks for _, marks in pairs if marks is not None),
        )

    def draws(self, step: int) -> Draws:
        """Return the random numbers of batch `step`."""
        return Draws(self.settings.seed, step, tuple(self.numbers(step)))

    def batch(self, step: int) -> Batch:
        """Make batch number `step`, from 0 without end: instances ``step * B`` to
        ``step * B + B - 1``.

        Returns:
            input_ids, attention_mask, token_type_ids [B, T], padded to the longest of the batch,
            and the targets that the corruption and the format's labels make (see
            :class:`~bertine.corpora.batch.Batch`).

        Raises:
            BertineError: the store holds an id outside its vocabulary, or is damaged.
        """
        instances = self.instances(step)
        try:
            return self.corruption(instances, self.draws(step))
        except ForeignId:
            raise self._foreign(instances) from None

    def _known(self, step: int) -> list[Instance]:
        """Return the instances of batch `step`, whose ids are all in the vocabulary."""
        instances, size = self.instances(step), self.store.vocab_size
        if any(ids.max() >= size for instance in instances for ids in instance.segments):
            raise self._foreign(instances)
        return instances

    def _foreign(self, instances: Sequence[Instance]) -> BertineError:
        """Return the error that names the document of an id outside the vocabulary."""
        size = self.store.vocab_size
        held = (
            (ids, document)
            for instance in instances
            for ids, document in zip(instance.segments, instance.documents, strict=True)
            if ids.max() >= size
        )
        ids, document = next(held, (None, None))
        if ids is None:
            return BertineError(
                f"{self.store.path}: holds an id that the vocabulary of {size} tokens does not "
                "have; prepare it again"
            )
        return BertineError(
            f"{self.store.path}: document {document} holds the id {ids[ids >= size][0]}, but the "
            f"vocabulary has {size} tokens; prepare it again"
        )

    def describe(self) -> dict[str, Any]:
        """Return facts on the data for a run's log: JSON values only."""
        return {
            "store": str(self.store.path),
            "tokenizer_fingerprint": self.store.manifest["tokenizer_fingerprint"],
            "num_documents": self.store.num_documents,
            "num_sentences": self.store.num_sentences,
            "num_tokens": self.store.num_tokens,
            "unigram_entropy": self.store.unigram_entropy,
            **self.settings.to_dict(),
            "instances_per_epoch": self.instances_per_epoch,
            "steps_per_epoch": self.steps_per_epoch,
        }

    def warnings(self) -> list[str]:
        """Return notes for the user before the run begins; empty if there are none."""
        lines = list(self._idle)
        if isinstance(self.corruption, WarningCollator):
            lines += self.corruption.warnings(
                (self._known(step), self.draws(step)) for step in itertools.count()
            )
        single = self.store.manifest["single_sentence_documents"]
        if self.format.label == NEXT_SENTENCE and single > 0.1 * self.store.num_documents:
            lines.append(
                f"{single:,} of {self.store.num_documents:,} documents have one sentence only, so "
                "their next sentence is always random; next-sentence prediction will be easier "
                "to guess than on running text"
            )
        if self.format.label == SENTENCE_ORDER and single > 0.1 * self.store.num_documents:
            lines.append(
                f"{single:,} of {self.store.num_documents:,} documents have one sentence only and "
                "get a random one beside it, labelled as swapped; the order will be easier to "
                "guess than on running text"
            )
        return lines


# Phases of different lengths, as one sequence of batches.
#
# The paper trains with short sequences for nine tenths of the steps and with long ones for the
# last tenth, to learn the positions that only those have (Devlin et al. 2018, appendix A.2).

#: Sequences made to estimate the tokens of a batch: lengths of sentence pairs vary by a half, their
#: mean over this number by 2%.
_PROBES = 1024


class PhasedData:
    """The batches of several data sets in turn, each from its beginning.

    Args:
        phases: at least one data set, in order.
        shares: the share of all steps of each; they add up to 1.
        steps: of all phases together.

    Attributes:
        starts: for each phase, the number of its first step.
    """

    def __init__(
        self, phases: Sequence[PretrainingData], shares: Sequence[float], steps: int
    ) -> None:
        if steps < 1:
            raise BertineError(f"steps is {steps}, but must be at least 1")
        self.phases, self.shares, self.steps = list(phases), list(shares), steps
        ends = [round(sum(self.shares[: i + 1]) * steps) for i in range(len(self.phases))]
        self.starts = [0, *ends[:-1]]

    def batch(self, step: int) -> Batch:
        """Return the batch of `step`, counted over all phases; see :class:`PretrainingData`."""
        phase = max(i for i, start in enumerate(self.starts) if start <= step)
        return self.phases[phase].batch(step - self.starts[phase])

    def counts(self, done: int) -> list[int]:
        """Return how many of the first `done` steps belong to each phase."""
        ends = [*self.starts[1:], self.steps]
        return [
            max(0, min(done, end) - start) for start, end in zip(self.starts, ends, strict=True)
        ]

    @property
    def epochs(self) -> float:
        """The approximate number of times that all steps together see the corpus."""
        counts = self.counts(self.steps)
        return sum(
            count * phase.batch_size / phase.instances_per_epoch
            for phase, count in zip(self.phases, counts, strict=True)
        )

    def describe(self) -> dict[str, Any]:
        """Return facts on the data for a run's log: lengths and sizes of the first phase, and the
        differences of later phases."""
        facts = self.phases[0].describe()
        if len(self.phases) > 1:
            facts["phase_starts"] = self.starts[1:]
            facts["phase_lengths"] = [phase.max_seq_length for phase in self.phases]
            facts["phase_batch_sizes"] = [phase.batch_size for phase in self.phases]
        return facts

    def warnings(self) -> list[str]:
        """Return notes for the user before the run begins; empty if there are none."""
        without = [
            f"of {self.steps} steps none is left for sequences of {phase.max_seq_length} tokens; "
            "give them a larger share, or the run more steps"
            for phase, count in zip(self.phases, self.counts(self.steps), strict=True)
            if count == 0
        ]
        lines = [line for phase in self.phases for line in phase.warnings()]
        return list(dict.fromkeys(without + lines))


def steps_for_tokens(
    tokens: int, phases: Sequence[PretrainingData], shares: Sequence[float]
) -> int:
    """Return the number of steps that see about this number of real tokens, each phase with its
    share of the steps."""
    return max(1, round(tokens / tokens_per_step(phases, shares)))


def tokens_per_step(phases: Sequence[PretrainingData], shares: Sequence[float]) -> float:
    """Return the mean number of real tokens per step, each phase with its share of the steps."""
    mean = 0.0
    for phase, share in zip(phases, shares, strict=True):
        probes = math.ceil(_PROBES / phase.batch_size)
        mean += share * sum(phase.batch(i).num_tokens for i in range(probes)) / probes
    return mean


def predictions(masked_lm_prob: float, max_seq_length: int) -> int:
    """Return the most predictions in a sequence of a length by the paper's recipe: 20 for 128 and
    77 for 512 (google-research/bert, README)."""
    return math.ceil(masked_lm_prob * max_seq_length)


def at_length(settings: InstanceSettings, max_seq_length: int) -> InstanceSettings:
    """Return `settings` for a phase of this length, with the number of predictions of its full
    sequences."""
    limit = settings.max_predictions_per_seq
    if limit is None:
        limit = predictions(settings.masked_lm_prob, max_seq_length)
    return dataclasses.replace(
        settings, max_seq_length=max_seq_length, max_predictions_per_seq=limit
    )
