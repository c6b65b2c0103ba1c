"""Choose the tokens that are guessed in any order, and the order.

As in Yang et al. 2019, arXiv 1906.08237, sections 2.2, 2.3 and 2.6, and the published code
(zihangdai/xlnet, ``data_utils.py``: ``_sample_mask``, ``_local_perm``).

Nothing is hidden by a mask: a token that is guessed is seen by those alone that are guessed after
it. All others are known from the beginning, but for special tokens, which become known at a random
time like those that are guessed, and are not guessed themselves.

Tokens are guessed in runs of whole words, within a context that is not guessed. The text is gone
through once: a length of n words is drawn with a probability proportional to 1/n, then a context of
`context` times as many tokens, of which a random part stands before the run and the rest behind it.
Where the text ends before there are enough, single tokens make up for the rest. In two points that
differs from the published code: there are never more than asked for (a run is cut), and a run may
reach the end of the text.

Shape legend: B sequences in the batch, T tokens of the longest one, P guessed tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bertine.data.batch import Batch
from bertine.data.corruption.base import Draws, idle_options
from bertine.data.corruption.ngrams import starts_of_words
from bertine.data.corruption.padded import ForeignId, Padder
from bertine.data.instances.instance import Instance
from bertine.errors import BertineError
from bertine.names import InputFormat
from bertine.options.instances import InstanceSettings
from bertine.options.names import option
from bertine.options.objectives import PermutationOptions

if TYPE_CHECKING:
    from bertine.text.tokenizer import Tokenizer

#: The format whose sequences have a text before and behind them.
_WITH_MEMORY: InputFormat = "full-sentences"


class PermutedTokens:
    """The corruption of XLNet: some tokens of each sequence are guessed in a random order.

    Args:
        tokenizer: says which ids are special.
        settings: of the sequences.
        options: what is guessed, and in which order; None: as in the paper.

    Attributes:
        memory_length: as :class:`bertine.data.corruption.base.ReadsAround` has it.

    Raises:
        BertineError: there is to be a memory, and sequences have no text beside them.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        settings: InstanceSettings,
        options: PermutationOptions | None = None,
    ) -> None:
        self.options = options or PermutationOptions()
        self.memory_length = self.options.memory_length
        if self.memory_length and settings.input_format != _WITH_MEMORY:
            raise BertineError(
                f"{option('memory_length', self.memory_length)} needs "
                f"{option('input_format', _WITH_MEMORY)}, whose sequences follow each other in the "
                f"text; the format is {settings.input_format}"
            )
        self._pad, self._vocab_size = tokenizer.pad_token_id, tokenizer.vocab_size
        self._padder = Padder(tokenizer, settings.input_format)
        self._is_ordinary = np.ones(tokenizer.vocab_size, np.bool_)
        self._is_ordinary[list(tokenizer.special_ids)] = False
        self._is_around = np.zeros(tokenizer.vocab_size, np.bool_)
        frame = self._padder.frame
        self._is_around[[*frame.before, *frame.between, *frame.after]] = True
        self._is_continuation = tokenizer.continues
        self._idle = idle_options(settings)

    def warnings(self, samples: Iterable[tuple[Sequence[Instance], Draws]]) -> list[str]:
        """List the options that do nothing: those of masks."""
        return [
            f"{name}: does nothing with objective plm, which hides tokens by their order alone"
            for name in self._idle
        ]

    def sides(self, count: int) -> list[int]:
        """Tell on which side the memory of each instance is: before it, or behind one that is read
        from its end."""
        return [1 if turned else -1 for turned in self._backwards(count).tolist()]

    def _backwards(self, count: int) -> npt.NDArray[np.bool_]:
        """Tell which of `count` instances are read from their end, bool [count]."""
        backwards = np.zeros(count, np.bool_)
        if self.options.both_directions:
            backwards[(count + 1) // 2 :] = True
        return backwards

    def __call__(self, instances: Sequence[Instance], draws: Draws) -> Batch:
        """Make the batch.

        Its targets: ``plm_positions`` int64 [P], the places of the tokens that are guessed, as
        ascending indices into the flattened [B*T], and ``plm_labels`` int64 [P], what stands there;
        ``guessing_order`` int64 [B, T], when each token becomes known, -1 from the beginning on;
        ``backwards`` bool [B], which sequences are read from their end, with both directions;
        ``memory_ids`` int64 [B, M] and ``memory_mask`` bool [B, M], the text that is looked at
        besides, its last token last, with a memory.
        """
        options, rng = self.options, draws.of_batch("permutation")
        backwards = self._backwards(len(instances))
        if options.both_directions:
            instances = [
                _reversed(instance) if turned else instance
                for instance, turned in zip(instances, backwards.tolist(), strict=True)
            ]
        padded = self._padder.pad(instances)
        choosable = self._is_ordinary[padded.input_ids] & padded.real
        continues = padded.continues(self._is_continuation)
        if backwards.any():
            # Of a text from its end, a piece goes on with the word if the one before it does so in
            # the order of the text.
            moved = np.zeros_like(continues)
            moved[:, 1:] = continues[:, :-1]
            continues = np.where(backwards[:, None], moved, continues)
        guessed = choose_spans(
            choosable,
            starts_of_words(choosable, continues),
            np.maximum(1, np.rint(padded.lengths * options.guessed_share)).astype(np.int64),
            rng,
            longest=options.longest_span,
            context=options.span_context,
        )
        timed = guessed | (self._is_around[padded.input_ids] & padded.real)
        order = draw_order(timed, rng, options.permuted_length)
        positions = np.flatnonzero(guessed)
        targets = {"guessing_order": order, **self._memory(instances)}
        if options.both_directions:
            targets["backwards"] = backwards
        return padded.batch(
            padded.input_ids,
            plm_positions=positions,
            plm_labels=padded.input_ids.reshape(-1)[positions],
            **targets,
        )

    def _memory(self, instances: Sequence[Instance]) -> dict[str, npt.NDArray[Any]]:
        """Lay out the texts beside the instances, each to the right; nothing where there are
        none."""
        texts = [instance.context for instance in instances if instance.context is not None]
        longest = max(map(len, texts), default=0)
        if not longest:
            return {}
        ids = np.full((len(texts), longest), self._pad, np.int64)
        for row, text in enumerate(texts):
            ids[row, longest - len(text) :] = text
        if ids.max() >= self._vocab_size:
            raise ForeignId
        lengths = np.array([len(text) for text in texts])
        mask = np.arange(longest) >= longest - lengths[:, None]
        return {"memory_ids": ids, "memory_mask": mask}


def choose_spans(
    choosable: npt.NDArray[np.bool_],
    first: npt.NDArray[np.bool_],
    wanted: npt.NDArray[np.int64],
    rng: np.random.Generator,
    *,
    longest: int,
    context: int,
) -> npt.NDArray[np.bool_]:
    """Choose runs of words in each sequence.

    Args:
        choosable: bool [B, T], true where a token may be chosen.
        first: bool [B, T], true where a word of such tokens begins.
        wanted: int64 [B], tokens to choose; fewer where there are no more.
        rng: draws the lengths, the contexts, and the single tokens at the end.
        longest: most words of a run.
        context: tokens that are not chosen for each word of a run.

    Returns:
        bool [B, T].
    """
    shares = 1.0 / np.arange(1, longest + 1)
    shares /= shares.sum()
    chosen = np.zeros_like(choosable)
    length = choosable.shape[1]
    # Not a draw for each run: as many as there may be, of all sequences at once.
    draws = int(wanted.max(initial=1))
    sizes = rng.choice(longest, size=(len(wanted), draws), p=shares) + 1
    before = rng.random((len(wanted), draws))
    order = rng.random(choosable.shape)
    for row in range(len(wanted)):
        places = np.flatnonzero(first[row]).tolist()
        # Behind the last place a word begins that does not count.
        closed = np.append(~choosable[row], True)
        left = min(int(wanted[row]), int(choosable[row].sum()))
        at = 0
        for words, share in zip(sizes[row].tolist(), before[row].tolist(), strict=True):
            around = words * context
            ahead = int(share * around)
            number = int(np.searchsorted(places, at + ahead))
            if not left or number == len(places):
                break
            begin = places[number]
            end = places[number + words] if number + words < len(places) else length
            # A run does not go over a special token.
            end = min(end, begin + int(closed[begin:].argmax()), begin + left)
            chosen[row, begin:end] = True
            left -= end - begin
            at = end + around - ahead
        if left:
            free = np.flatnonzero(choosable[row] & ~chosen[row])
            chosen[row, free[np.argsort(order[row, free], kind="stable")[:left]]] = True
    return chosen


def draw_order(
    timed: npt.NDArray[np.bool_], rng: np.random.Generator, permuted_length: int | None
) -> npt.NDArray[np.int64]:
    """Draw when tokens become known.

    Args:
        timed: bool [B, T], true at those that do so at a random time; the others are known from the
            beginning.
        rng: of the batch.
        permuted_length: tokens that are permuted among themselves: those of each stretch of this
            length are known before those of the next. None: all of a sequence.

    Returns:
        int64 [B, T], -1 for what is known from the beginning; no number comes twice in a sequence.
    """
    rows, length = timed.shape
    keys = rng.random((rows, length))
    if permuted_length is not None:
        keys += np.arange(length) // permuted_length
    ranks = np.empty((rows, length), np.int64)
    np.put_along_axis(ranks, keys.argsort(1, kind="stable"), np.arange(length)[None], 1)
    return np.where(timed, ranks, -1)


def _reversed(instance: Instance) -> Instance:
    """Return the text of an instance from its end to its beginning."""
    goes_on = instance.goes_on
    return instance._replace(
        segments=tuple(ids[::-1] for ids in reversed(instance.segments)),
        documents=instance.documents[::-1],
        goes_on=None if goes_on is None else tuple(marks[::-1] for marks in reversed(goes_on)),
    )
