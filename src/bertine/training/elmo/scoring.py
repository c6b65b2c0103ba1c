"""Perplexity of text, forwards and backwards, by the full softmax.

Shape legend: T places of a window; P width of a state.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from bertine.models.elmo.bilm import DIRECTIONS, BidirectionalLm, LstmStates
from bertine.models.elmo.softmax import WordSoftmax
from bertine.models.precision import autocast
from bertine.training.elmo.learner import ElmoLearner, Perplexity, full_loss_of
from bertine.training.elmo.words import SPECIAL, UNKNOWN, Windows, WordCorpus, rows_of, stream_of

#: Rows that text is read in at once, and places of a window; every word counts once.
_ROWS, _WINDOW = 16, 64


@torch.no_grad()
def perplexity(
    model: BidirectionalLm,
    softmax: WordSoftmax,
    vocabulary: Sequence[str],
    corpus: WordCorpus,
    dtype: torch.dtype = torch.float32,
) -> Perplexity:
    """Score the text of a corpus, sentences in their order and the state carried on; words that the
    vocabulary does not have count as ``<UNK>``.

    Args:
        vocabulary: of the softmax.
        dtype: to compute in.
    """
    learner = ElmoLearner(model, softmax, corpus.types, 0)
    device = next(model.parameters()).device
    known = {word: at for at, word in enumerate(vocabulary)}
    unknown = known[UNKNOWN]
    ids = np.array([known.get(word, unknown) for word in corpus.types], dtype=np.int64)
    sentences = np.arange(len(corpus.ends))
    streams = {name: stream_of(corpus, ids, sentences, name) for name in DIRECTIONS}
    # A row for about every window, so that few words are read without what stands before them.
    rows = rows_of(corpus.num_targets, min(_ROWS, max(1, corpus.num_targets // (4 * _WINDOW))))
    longest = rows[0][1] - rows[0][0]
    states = {name: LstmStates.zero(model.config, len(rows), device) for name in DIRECTIONS}
    totals = dict.fromkeys(DIRECTIONS, 0.0)
    was_training = model.training
    model.eval()
    for begin in range(0, longest, _WINDOW):
        places = [
            np.array([low + at for low, high in rows if low + at < high])
            for at in range(begin, min(begin + _WINDOW, longest))
        ]
        sizes = [len(part) for part in places]
        flat = np.concatenate(places)
        windows = {
            name: Windows(inputs[flat], targets[flat])
            for name, (inputs, targets) in streams.items()
        }
        with autocast(dtype, device):
            words = learner.encoded(windows)
            for name in DIRECTIONS:
                outputs, states[name] = model.read(name, words[name], sizes, states[name])
                targets = torch.from_numpy(windows[name].targets).to(device)
                totals[name] += full_loss_of(softmax, outputs[-1], targets)
    model.train(was_training)
    count = corpus.num_targets
    share = float((ids[corpus.words] == SPECIAL.index(UNKNOWN)).mean())
    return Perplexity(totals["forward"] / count, totals["backward"] / count, count, share)
