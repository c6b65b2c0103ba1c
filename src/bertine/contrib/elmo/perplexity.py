"""Compute with ELMo: read a corpus as words, score text by perplexity.

Shape legend: W words of the corpus with one mark for each sentence; B rows, T places of a window.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bertine.contrib.elmo.files import LoadedElmo, load_elmo
from bertine.contrib.elmo.model import (
    BEGIN,
    DIRECTIONS,
    END,
    UNKNOWN,
    BidirectionalLm,
    LstmStates,
    WordSoftmax,
    character_ids,
    padded_ids,
)
from bertine.contrib.options import WordSplitting
from bertine.core.errors import BertineError
from bertine.core.spin_count import adapt_spin_count
from bertine.corpora.batch import token_budget_batches
from bertine.data.entities import split_words
from bertine.data.in_memory import Source
from bertine.inference.minimal_pairs.scoring import resolved_dtype
from bertine.models.precision import autocast, resolve_device, resolve_precision
from bertine.options.inference import EvaluateOptions
from bertine.tasks.report import EvaluationReport
from bertine.tokenization.documents import Corpus
from bertine.tokenization.sentences import iter_sentences

#: The first words of every vocabulary, as published.
SPECIAL = (BEGIN, END, UNKNOWN)


@dataclass(frozen=True)
class WordCorpus:
    """The sentences of a corpus as word indices, in their order.

    Attributes:
        types: the distinct words.
        words: int32, the words of all sentences one after the other, as indices of `types`.
        ends: int64, where each sentence ends in `words`.
        documents: int64, the number of sentences up to the end of each document.
        notes: notes on what was repaired or left out.
    """

    types: list[str]
    words: np.ndarray
    ends: np.ndarray
    documents: np.ndarray
    notes: list[str]

    def fingerprint(self) -> str:
        """Compute the SHA-256 of all words and of the ends of sentences and documents."""
        digest = hashlib.sha256("\n".join(self.types).encode("utf-8", "replace"))
        for part in (self.words, self.ends, self.documents):
            digest.update(np.ascontiguousarray(part).data)
        return digest.hexdigest()

    @property
    def num_targets(self) -> int:
        """The number of targets, W: every word is a target, and the end of every sentence."""
        return len(self.words) + len(self.ends)


def read_words(corpus: Corpus, splitting: WordSplitting, language: str = "en") -> WordCorpus:
    """Read a corpus as words. With "spaces" each line is a sentence and spaces separate words; with
    "punctuation" documents are divided into sentences, and these into words.

    Raises:
        BertineError: the corpus cannot be read, or has no words.
    """
    number: dict[str, int] = {}
    words, ends, documents = array("i"), array("q"), array("q")
    for document in corpus:
        for sentence in _sentences(document.text, splitting, language):
            if sentence:
                words.extend(number.setdefault(word, len(number)) for word in sentence)
                ends.append(len(words))
        documents.append(len(ends))
    if not len(words):
        raise corpus.no_text()
    return WordCorpus(
        list(number),
        np.array(words, dtype=np.int32),
        np.array(ends, dtype=np.int64),
        np.array(documents, dtype=np.int64),
        corpus.stats.lines()[1:],
    )


def _sentences(text: str, splitting: WordSplitting, language: str) -> Iterator[list[str]]:
    # This mark in the text itself would be read as the end of a sentence.
    if splitting == "spaces":
        for line in text.split("\n"):
            yield [word for word in line.split() if word not in SPECIAL]
        return
    for sentence in iter_sentences(text, language):
        yield [sentence[begin:end] for begin, end in split_words(sentence)]


def vocabulary_of(corpus: WordCorpus, min_count: int, most: int | None) -> list[str]:
    """Return the vocabulary of a softmax: the three marks, then words by frequency, as sampling
    needs them.

    Args:
        min_count: rarer words are left out.
        most: the maximum number of words, marks included; None: all.

    Raises:
        BertineError: no word is left.
    """
    counts = np.bincount(corpus.words, minlength=len(corpus.types))
    order = sorted(np.flatnonzero(counts >= min_count), key=lambda at: (-counts[at], at))
    kept = order if most is None else order[: max(0, most - len(SPECIAL))]
    if not kept:
        raise BertineError(
            f"no word is there {min_count} times, so the vocabulary is empty; lower min_count or "
            "give more text"
        )
    return [*SPECIAL, *(corpus.types[at] for at in kept)]


@dataclass(frozen=True)
class Windows:
    """The words of one training step in one direction.

    Attributes:
        inputs: int64 [T, B], indices of a corpus's types; -1 is the begin of a sentence, -2 its
            end.
        targets: int64 [T, B], ids of the vocabulary.
    """

    inputs: np.ndarray
    targets: np.ndarray


def stream_of(
    corpus: WordCorpus, ids: np.ndarray, sentences: np.ndarray, direction: str
) -> tuple[np.ndarray, np.ndarray]:
    """Concatenate sentences in one direction.

    Args:
        ids: int64, the vocabulary id of each type of the corpus.
        sentences: int64, the indices of the sentences in reading order.

    Returns:
        Inputs (types; -1 and -2 the ends of sentences) and targets (ids), int64 [W] of these
        sentences.
    """
    starts = np.concatenate([[0], corpus.ends[:-1]])
    forward = direction == "forward"
    lengths = corpus.ends[sentences] - starts[sentences]
    # Each sentence takes one place per word and one for the mark at which it begins.
    offsets = np.concatenate([[0], np.cumsum(lengths + 1)])
    inputs = np.empty(offsets[-1], dtype=np.int64)
    targets = np.empty(offsets[-1], dtype=np.int64)
    owner = np.repeat(np.arange(len(sentences)), lengths + 1)
    place = np.arange(offsets[-1]) - offsets[:-1][owner]
    first = starts[sentences][owner]
    last = first + lengths[owner] - 1

    def word(at: np.ndarray) -> np.ndarray:
        inside = (at >= 0) & (at < lengths[owner])
        where = first + at if forward else last - at
        return np.where(inside, corpus.words[np.where(inside, where, 0)], -3)

    inputs[:] = np.where(place == 0, -1 if forward else -2, word(place - 1))
    following = word(place)
    end = SPECIAL.index(END if forward else BEGIN)
    targets[:] = np.where(following == -3, end, ids[np.maximum(following, 0)])
    return inputs, targets


def rows_of(length: int, rows: int) -> list[tuple[int, int]]:
    """Divide a stream into rows of about equal length, longer ones first; return begin and end of
    each."""
    parts = [len(part) for part in np.array_split(np.arange(length), min(rows, length))]
    return list(pairwise(np.concatenate([[0], np.cumsum(parts)]).tolist()))


# Perplexity: scores of text in both directions, by the full softmax.
#
# Shape legend: N words of a window, T places of it; P width of a state.

#: Rows that are read at once, and places of a window; every word counts once.
_ROWS, _WINDOW = 16, 64
#: Places that the full softmax scores at once: logits of a large vocabulary take much memory.
_SCORED = 512


@dataclass(frozen=True)
class Perplexity:
    """The perplexity of text, in each direction.

    Attributes:
        forward, backward: the mean loss of a word in each direction, in nats.
        words: the number of targets of a direction, ends of sentences included.
        unknown: the share of words that are not in the vocabulary.
    """

    forward: float
    backward: float
    words: int
    unknown: float

    def scores(self) -> dict[str, float]:
        """Return losses and perplexities; the mean perplexity is that of the mean loss."""
        both = (self.forward + self.backward) / 2
        return {
            "forward_loss": self.forward,
            "backward_loss": self.backward,
            "perplexity": float(np.exp(both)),
            "forward_perplexity": float(np.exp(self.forward)),
            "backward_perplexity": float(np.exp(self.backward)),
        }


def full_loss_of(softmax: WordSoftmax, states: Tensor, targets: Tensor) -> float:
    """Compute the summed loss of all places, some of them at a time."""
    return sum(
        float(softmax.full_loss(x, y))
        for x, y in zip(states.split(_SCORED), targets.split(_SCORED), strict=True)
    )


def encoded_words(
    model: BidirectionalLm, types: Sequence[str], windows: Mapping[str, Windows]
) -> dict[str, Tensor]:
    """Compute the word encodings of each direction's window, fp32 [N, P]; each word is computed
    once.

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
    """Score the text of a corpus: sentences in their order, with the state carried on; words
    outside the vocabulary count as ``<UNK>``.

    Args:
        vocabulary: the vocabulary of the softmax.
        dtype: the type to compute in.
    """
    device = next(model.parameters()).device
    known = {word: at for at, word in enumerate(vocabulary)}
    unknown = known[UNKNOWN]
    ids = np.array([known.get(word, unknown) for word in corpus.types], dtype=np.int64)
    sentences = np.arange(len(corpus.ends))
    streams = {name: stream_of(corpus, ids, sentences, name) for name in DIRECTIONS}
    # One row for about every window, so that few words are read without their context.
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


# Evaluation: the perplexity of an ELMo's two language models on held-out text.


@dataclass(repr=False)
class BothWaysReport(EvaluationReport):
    """The scores of :func:`evaluate_text`: a :class:`~bertine.tasks.report.EvaluationReport`.

    Attributes:
        scored: the perplexity of all words.
        vocabulary: the number of words of the softmax.
        source: the text.
        notes: notes on what was repaired or left out.
        worst: empty; the text has no labels.
    """

    scored: Perplexity
    vocabulary: int

    json_keys = ("source", "**metrics", "words=scored.words", "unknown=scored.unknown", "notes")
    collapsed = False  # not checked here

    @property
    def metrics(self) -> dict[str, float]:
        """The losses of a word in nats and the perplexities, of both directions and of each."""
        return self.scored.scores()

    def lines(self) -> list[str]:
        """Return the scores as lines of text."""
        scores = self.metrics
        return [
            f"{self.scored.words:,} words and ends of sentences of {self.source}, "
            f"{self.scored.unknown:.1%} of the words not among the {self.vocabulary:,} of the "
            "softmax",
            f"perplexity {scores['perplexity']:.2f}: forwards {scores['forward_perplexity']:.2f}, "
            f"backwards {scores['backward_perplexity']:.2f}",
            *self.notes,
        ]


def evaluate_text(model: Path | str, data: Source, options: EvaluateOptions) -> BothWaysReport:
    """Score an ELMo that was trained here on a corpus, by its full softmax: sentences in their
    order, with the state carried from one to the next. Text is split into words as in its training.

    Raises:
        BertineError: the model has no softmax, as published ones have none; the text cannot be
            read; an option applies only to labelled examples.
    """
    if not isinstance(data, str | Path):
        raise BertineError("an ELMo is scored on files of text, not on a table in memory")
    loaded = load_elmo(model)
    if loaded.softmax is None:
        raise BertineError(
            f"{model}: has no softmax, as published ELMos have none, so it foretells no words; "
            "train one on (bertine pretrain-elmo)"
        )
    options.refuse_others("the text of an ELMo", options.changed(), "this is text for an ELMo")
    columns = options.text_columns
    if columns is not None and not isinstance(columns, str):
        if len(columns) != 1:
            raise BertineError(f"an ELMo reads one column of text, not {len(columns)}")
        columns = columns[0]
    where = resolve_device(options.device)
    # Scored in the same way as held-out text during training, so that both numbers are equal.
    dtype = resolve_precision("fp32" if options.precision == "auto" else options.precision, where)
    reading = {name: getattr(options, name) for name in ("quotes", "strict", "encoding")}
    corpus = Corpus(data, text_column=columns, **reading)
    corpus.check_options()
    language = loaded.training.get("language")
    text = read_words(
        corpus,
        loaded.model.config.word_splitting,
        language if isinstance(language, str) else "en",
    )
    scored = perplexity(loaded.model.to(where), loaded.softmax.to(where), loaded.words, text, dtype)
    return BothWaysReport(scored, len(loaded.words), source=str(data), notes=text.notes)


# ELMo: the probability of a sentence by its two language models.

#: Words of sentences that are computed together, and logits at once (64 MB in fp32).
_BATCH_WORDS, _MOST_LOGITS = 2048, 1 << 24


class BothWaysProbability:
    """The sum of the log-probabilities of a sentence in both directions, which ELMo is trained to
    maximize (Peters et al. 2018, section 3.1). Each sentence begins with a state of 0; its end
    counts as a word, and words outside the softmax count as ``<UNK>``.

    Raises:
        BertineError: the model has no softmax.
    """

    title = "log-probability forwards and backwards, added"

    def __init__(self, elmo: LoadedElmo, dtype: torch.dtype = torch.float32) -> None:
        if elmo.softmax is None:
            raise BertineError(
                f"{elmo.source}: has no softmax over words, so it gives sentences no probability; "
                "published files have none"
            )
        self.elmo, self.softmax, self.dtype = elmo.model.eval(), elmo.softmax, dtype
        self._ids = {word: number for number, word in enumerate(elmo.words)}
        for mark in (BEGIN, END, UNKNOWN):
            if mark not in self._ids:
                raise BertineError(f"{elmo.source}: its words lack {mark}")
        self._words = self._unknown = 0

    @classmethod
    def load(cls, path: Path | str, device: torch.device, precision: str) -> BothWaysProbability:
        """Load an ELMo.

        Raises:
            BertineError: it cannot be read, or has no softmax.
        """
        elmo = load_elmo(path)
        softmax = None if elmo.softmax is None else elmo.softmax.to(device)
        return cls(
            LoadedElmo(elmo.model.to(device), softmax, elmo.words, elmo.source),
            resolved_dtype(precision, elmo.model),
        )

    def notes(self) -> list[str]:
        if not self._unknown:
            return []
        return [
            f"{self._unknown:,} of {self._words:,} words are not among the "
            f"{len(self._ids):,} of the softmax and count as {UNKNOWN}"
        ]

    def __call__(
        self, texts: Sequence[str], on_batch: Callable[[int], None] | None = None
    ) -> np.ndarray:
        """Compute the natural logarithm for each text, fp64 [N].

        Raises:
            BertineError: a text has no word.
        """
        sentences = [self._split(text) for text in texts]
        totals = np.zeros(len(texts))
        lengths = [len(words) + 2 for words in sentences]
        for batch in token_budget_batches(lengths, _BATCH_WORDS):
            adapt_spin_count()
            totals[batch] = self._scores([sentences[at] for at in batch])
            if on_batch is not None:
                on_batch(len(batch))
        return totals

    def _split(self, text: str) -> list[str]:
        words = self.elmo.config.words_of(text)
        if not words:
            raise BertineError(f"{text!r}: has no word to score")
        self._words += len(words)
        self._unknown += sum(word not in self._ids for word in words)
        return words

    def _scores(self, sentences: Sequence[Sequence[str]]) -> np.ndarray:
        """Compute the scores, fp64 [B]."""
        device = self.softmax.weight.device
        ids, lengths = padded_ids(sentences, self.elmo.config.max_characters)
        known = torch.zeros(ids.shape[:2], dtype=torch.int64)
        unknown = self._ids[UNKNOWN]
        for row, words in enumerate(sentences):
            whole = [BEGIN, *words, END]
            known[row, : len(whole)] = torch.tensor([self._ids.get(w, unknown) for w in whole])
        # Every word except the mark at which a direction begins is predicted by the state before
        # it.
        owner = torch.repeat_interleave(torch.arange(len(sentences)), lengths - 1)
        first = torch.cumsum(lengths - 1, 0) - (lengths - 1)
        step = torch.arange(len(owner)) - first[owner]
        half = self.elmo.config.projection_size
        totals = np.zeros(len(sentences))
        with torch.inference_mode(), autocast(self.dtype, device):
            layers, _ = self.elmo.layers_of(ids.to(device), lengths)
            for number, direction in enumerate(DIRECTIONS):
                states = layers[:, :, -1, number * half : (number + 1) * half]
                forward = direction == DIRECTIONS[0]
                at, target = (step, step + 1) if forward else (step + 1, step)
                values = self._log_probabilities(states[owner, at], known[owner, target])
                np.add.at(totals, owner.numpy(), values)
        return totals

    def _log_probabilities(self, states: torch.Tensor, targets: torch.Tensor) -> np.ndarray:
        size = max(1, _MOST_LOGITS // len(self._ids))
        losses = [
            F.cross_entropy(
                F.linear(here, self.softmax.weight, self.softmax.bias).float(),
                right,
                reduction="none",
            )
            for here, right in zip(
                states.split(size), targets.to(states.device).split(size), strict=True
            )
        ]
        values: np.ndarray = -torch.cat(losses).double().cpu().numpy()
        return values
