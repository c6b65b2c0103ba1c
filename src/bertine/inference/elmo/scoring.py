"""Perplexity of text, forwards and backwards, by the full softmax.

Shape legend: N words of a window, T places of it; P width of a state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bertine.inference.elmo.words import (
    SPECIAL,
    UNKNOWN,
    Windows,
    WordCorpus,
    rows_of,
    stream_of,
)
from bertine.models.elmo.bilm import DIRECTIONS, BidirectionalLm, LstmStates
from bertine.models.elmo.characters import BEGIN, END, character_ids
from bertine.models.elmo.softmax import WordSoftmax
from bertine.models.precision import autocast

#: Rows that text is read in at once, and places of a window; every word counts once.
_ROWS, _WINDOW = 16, 64
#: Places that the full softmax scores at once: logits of a large vocabulary take much memory.
_SCORED = 512


@dataclass(frozen=True)
class Perplexity:
    """How well text was foretold, each direction by itself.

    Attributes:
        forward, backward: mean losses of a word, in nats.
        words: targets of a direction, the ends of sentences among them.
        unknown: the share of the words that the vocabulary does not have.
    """

    forward: float
    backward: float
    words: int
    unknown: float

    def scores(self) -> dict[str, float]:
        """Return losses and perplexities; the mean of both is that of the losses."""
        both = (self.forward + self.backward) / 2
        return {
            "forward_loss": self.forward,
            "backward_loss": self.backward,
            "perplexity": float(np.exp(both)),
            "forward_perplexity": float(np.exp(self.forward)),
            "backward_perplexity": float(np.exp(self.backward)),
        }


def full_loss_of(softmax: WordSoftmax, states: Tensor, targets: Tensor) -> float:
    """Return the sum of the losses of all places, some of them at a time."""
    return sum(
        float(softmax.full_loss(x, y))
        for x, y in zip(states.split(_SCORED), targets.split(_SCORED), strict=True)
    )


def encoded_words(
    model: BidirectionalLm, types: Sequence[str], windows: Mapping[str, Windows]
) -> dict[str, Tensor]:
    """Return the words of each direction's window, fp32 [N, P]; each is computed once.

    Args:
        types: words by their numbers in the corpus.
    """
    device = next(model.parameters()).device
    flat = [windows[direction].inputs.ravel() for direction in DIRECTIONS]
    distinct, which = np.unique(np.concatenate(flat), return_inverse=True)
    names = [BEGIN if at == -1 else END if at == -2 else types[at] for at in distinct.tolist()]
    ids = torch.from_numpy(character_ids(names, model.config.max_characters))
    words = model.words(ids.to(device)).float()
    where = torch.from_numpy(which).to(device)
    first, second = words.index_select(0, where).split([len(part) for part in flat])
    return {DIRECTIONS[0]: first, DIRECTIONS[1]: second}


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
            words = encoded_words(model, corpus.types, windows)
            for name in DIRECTIONS:
                outputs, states[name] = model.read(name, words[name], sizes, states[name])
                targets = torch.from_numpy(windows[name].targets).to(device)
                totals[name] += full_loss_of(softmax, outputs[-1], targets)
    model.train(was_training)
    count = corpus.num_targets
    share = float((ids[corpus.words] == SPECIAL.index(UNKNOWN)).mean())
    return Perplexity(totals["forward"] / count, totals["backward"] / count, count, share)
