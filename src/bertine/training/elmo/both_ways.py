"""Windows over a corpus for both directions, from which ELMo learns.

Shape legend: W words of the corpus with one mark for each sentence; B rows, T places of a window.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bertine import rng
from bertine.errors import BertineError
from bertine.inference.elmo.words import SPECIAL, UNKNOWN, Windows, WordCorpus, stream_of


class BothWays:
    """The windows of a corpus: a row goes on in the next window where it ended in the one before.

    In an epoch the documents are shuffled and laid end to end, B rows of equal length; what does
    not fill a window is left to other epochs, which cut elsewhere. Backwards the sentences come in
    the same order, and each from its end (published code: ``LMDataset`` with ``reverse``).

    Args:
        corpus: the words.
        vocabulary: of the targets.
        rows, window: B and T.
        seed: of the order.

    Raises:
        BertineError: there is too little text for one window.
    """

    def __init__(
        self,
        corpus: WordCorpus,
        vocabulary: Sequence[str],
        *,
        rows: int,
        window: int,
        seed: int,
    ) -> None:
        self.corpus, self.rows, self.window, self.seed = corpus, rows, window, seed
        known = {word: at for at, word in enumerate(vocabulary)}
        unknown = known[UNKNOWN]
        self._ids = np.array([known.get(word, unknown) for word in corpus.types], dtype=np.int64)
        self.steps_of_epoch = corpus.num_targets // rows // window
        if not self.steps_of_epoch:
            raise BertineError(
                f"the corpus has {corpus.num_targets:,} words and ends of sentences, too few for a "
                f"window of {window} in {rows} rows; lower batch_size or give more text"
            )
        self._epoch = -1
        self._streams: dict[str, tuple[np.ndarray, np.ndarray]] = {}

    @property
    def unknown_share(self) -> float:
        """The share of the words that the vocabulary does not have."""
        return float((self._ids[self.corpus.words] == SPECIAL.index(UNKNOWN)).mean())

    def at(self, step: int) -> dict[str, Windows]:
        """Return the windows of a step, by direction: a function of data, seed and step."""
        epoch, place = divmod(step, self.steps_of_epoch)
        if epoch != self._epoch:
            self._streams, self._epoch = self._laid_out(epoch), epoch
        here = slice(place * self.window, (place + 1) * self.window)
        return {
            direction: Windows(inputs[:, here].T.copy(), targets[:, here].T.copy())
            for direction, (inputs, targets) in self._streams.items()
        }

    def _laid_out(self, epoch: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Return inputs and targets of an epoch, [B, steps * T] each, by direction."""
        documents = [0, *self.corpus.documents.tolist()]
        draw = rng.generator(self.seed, "documents of ELMo", epoch)
        order = draw.permutation(len(documents) - 1)
        sentences = np.concatenate(
            [np.arange(documents[at], documents[at + 1], dtype=np.int64) for at in order]
        )
        width = self.steps_of_epoch * self.window
        spare = self.corpus.num_targets - self.rows * width
        begin = int(draw.integers(0, spare + 1))
        streams = {}
        for direction in ("forward", "backward"):
            inputs, targets = stream_of(self.corpus, self._ids, sentences, direction)
            kept = slice(begin, begin + self.rows * width)
            streams[direction] = (
                inputs[kept].reshape(self.rows, width),
                targets[kept].reshape(self.rows, width),
            )
        return streams
