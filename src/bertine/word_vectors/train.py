"""Train word2vec's vectors on a corpus: ``word2vec``."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bertine.errors import BertineError
from bertine.files import os_errors
from bertine.names import WordVectorModel
from bertine.options.corpus import CorpusReading
from bertine.options.names import option
from bertine.options.verbs import takes_options
from bertine.options.word_vectors import Word2VecOptions, WordVectorRecipe
from bertine.terminal.console import counted, human_count, human_time, progress, say
from bertine.terminal.shown import Shown
from bertine.text.corpus import Corpus, CorpusStats
from bertine.word_vectors import checkpoint
from bertine.word_vectors.checkpoint import (
    checkpoint_path,
    load_checkpoint,
    save_checkpoint,
    text_fingerprint,
)
from bertine.word_vectors.counting import CountedWords, count_words, write_ids
from bertine.word_vectors.sampling import (
    Sampler,
    blocks,
    keep_probabilities,
    negative_probabilities,
)
from bertine.word_vectors.steps import CHUNK, SHARED, Steps, Weights, batch_words
from bertine.word_vectors.vectors import WordVectors, check_target

_RATES: dict[WordVectorModel, float] = {"skip-gram": 0.025, "cbow": 0.05}
#: The share of the learning rate below which it does not fall (word2vec.c).
_LOWEST = 1e-4


@dataclass(frozen=True, repr=False)
class Word2VecReport(Shown):
    """The result of training word2vec's vectors.

    Attributes:
        out: the folder or file.
        words: that have a vector.
        dimensions: numbers of a vector.
        total: words of the corpus.
        different: different ones of them.
        covered: how many of `total` have a vector.
        forgotten: different words that were forgotten while counting, since there were too many.
        words_per_second: that were trained on, before occurrences are left out.
        seconds: time taken, in all.
        corpus: documents, bytes and what was mended or skipped.
    """

    out: Path
    words: int
    dimensions: int
    total: int
    different: int
    covered: int
    forgotten: int
    words_per_second: float
    seconds: float
    corpus: CorpusStats

    def lines(self) -> list[str]:
        """Return the report for people."""
        lines = [
            *self.corpus.lines(),
            f"{counted(self.words, 'word')} with vectors of {self.dimensions} numbers, which are "
            f"{self.covered / self.total:.2%} of the text's {self.total:,}; "
            f"{self.different - self.words:,} rarer ones have none",
            f"{self.out}: written after {human_time(self.seconds)}, "
            f"{human_count(self.words_per_second)} words a second in training",
        ]
        if self.forgotten:
            lines.insert(
                -1, f"{self.forgotten:,} rare words were forgotten while counting; there are many"
            )
        return lines


@takes_options()
def word2vec(
    corpus: Sequence[Path | str] | Path | str,
    out: Path | str,
    *,
    show_progress: bool = True,
    options: Word2VecOptions,
) -> Word2VecReport:
    """Train a vector for each word of a corpus, with negative sampling, on one thread.

    The same corpus, options and seed give the same vectors on the same machine. The corpus is read
    twice; between, the numbers of its words stand in a temporary file beside `out`, four bytes a
    word, so memory holds the vectors and not the text. Where a run stands is written each minute to
    ``.NAME.unfinished`` beside `out`: a run that was stopped or killed goes on with `resume`, bit
    for bit.

    Args:
        corpus: files and folders, as for :class:`bertine.text.corpus.Corpus`.
        out: the folder of the vectors (:class:`bertine.WordVectors`), or a file of word2vec's:
            ``.bin``, ``.txt`` or ``.vec``. Vectors that are there are replaced.
        show_progress: on stderr.
        options: what the other arguments say.

    Returns:
        The report; its `lines()` are for people.

    Raises:
        BertineError: something is wrong with the corpus; too few words come often enough; the
            learning rate is too high; `out` is a folder of something else; with `resume` the run
            that was stopped had other settings or another text.
    """
    out = Path(out)
    check_target(out)
    started = time.monotonic()
    documents = Corpus(corpus, **CorpusReading.of(options).values())
    documents.check_options()
    recipe = WordVectorRecipe.of(options)
    parent = out.resolve().parent
    with contextlib.ExitStack() as stack:
        with os_errors(out, "writing it"):
            parent.mkdir(parents=True, exist_ok=True)
            # Without a name, so that nothing of it is left, however the process ends.
            scratch = stack.enter_context(tempfile.TemporaryFile(dir=parent))
        display = stack.enter_context(progress(show=show_progress))
        task = display.add_task("counting words", total=documents.size_on_disk)
        known = count_words(
            documents,
            lowercase=options.lowercase,
            min_count=options.min_count,
            max_words=options.max_words,
            on_document=lambda: display.update(task, completed=documents.position),
        )
        stats = documents.stats
        task = display.add_task("numbering words", total=documents.size_on_disk)
        ids = write_ids(
            documents,
            known,
            scratch,
            parent,
            lowercase=options.lowercase,
            on_document=lambda: display.update(task, completed=documents.position),
        )
        began = time.monotonic()
        total = len(ids) * options.epochs
        task = display.add_task("training (words)", total=total)
        weights = Weights(len(known.counts), options.dimensions, options.seed)
        settings = {
            **WordVectorRecipe.of(options).values(),
            "seed": options.seed,
            "text": text_fingerprint(known, ids),
        }
        unfinished = checkpoint_path(out)
        blocks, before = _begun(unfinished, weights, settings, options.resume)
        saved = began
        for done in train_vectors(ids, known.counts, recipe, options.seed, weights, blocks):
            display.update(task, completed=done)
            blocks += 1
            if time.monotonic() - saved >= checkpoint.EVERY and done < total:
                seconds = before + time.monotonic() - began
                save_checkpoint(unfinished, weights, blocks, seconds, settings)
                saved = time.monotonic()
        del ids  # the file is mapped
        trained = before + time.monotonic() - began
        covered = int(known.counts.sum())
        result = _checked(known, weights.words.numpy(), options, covered)
        result.save(out)
        unfinished.unlink(missing_ok=True)
    return Word2VecReport(
        out=out,
        words=len(result),
        dimensions=options.dimensions,
        total=known.total,
        different=known.different,
        covered=covered,
        forgotten=known.forgotten,
        words_per_second=covered * options.epochs / max(trained, 1e-9),
        seconds=time.monotonic() - started,
        corpus=stats,
    )


def _begun(
    path: Path, weights: Weights, settings: dict[str, Any], resume: bool
) -> tuple[int, float]:
    """Return the blocks that a run that was stopped has done, and its seconds of training; its
    vectors are put into `weights`.

    Raises:
        BertineError: it had other settings or another text.
    """
    if not path.exists():
        return 0, 0.0
    if not resume:
        say(f"{path}: a run that was stopped; beginning anew ({option('resume', True)} goes on)")
        return 0, 0.0
    blocks, seconds = load_checkpoint(path, weights, settings)
    say(f"{path}: going on after {human_time(seconds)} of training")
    return blocks, seconds


def _checked(
    known: CountedWords, vectors: np.ndarray, options: Word2VecOptions, covered: int
) -> WordVectors:
    if not np.isfinite(vectors).all():
        raise BertineError(
            f"the vectors grew beyond all numbers; give a lower {option('learning_rate')}"
        )
    training = {
        **WordVectorRecipe.of(options).values(),
        "learning_rate": options.learning_rate or _RATES[options.method],
        "seed": options.seed,
        "text_words": covered,
    }
    return WordVectors(
        known.words,
        vectors,
        counts=known.counts,
        lowercase=options.lowercase,
        training=training,
    )


def train_vectors(
    ids: np.ndarray,
    counts: np.ndarray,
    recipe: WordVectorRecipe,
    seed: int,
    weights: Weights,
    begin: int = 0,
) -> Iterator[int]:
    """Train vectors on the words of a text, with one thread.

    Args:
        ids: int32 [n], numbers of words and :data:`~bertine.word_vectors.sampling.BREAK` between
            documents.
        counts: int64 [V].
        recipe: what is learned.
        seed: of all that is drawn.
        weights: the vectors, which are changed.
        begin: blocks that are done already.

    Yields:
        After each block how many of `n * epochs` are done.
    """
    keep = keep_probabilities(counts, recipe.subsample)
    negative = negative_probabilities(counts, recipe.negative_exponent)
    rate = recipe.learning_rate or _RATES[recipe.method]
    staying = counts * keep
    batch = batch_words(
        recipe.method,
        float(staying.max() / staying.sum()),
        float(negative.max()),
        negatives=recipe.negatives,
        window=recipe.window,
        learning_rate=rate,
    )
    chunk, shared = min(CHUNK[recipe.method], batch), SHARED[recipe.method]
    sampler = Sampler(keep, negative, recipe.window, chunk, shared, seed)
    steps = Steps(
        weights, recipe.method, window=recipe.window, negatives=recipe.negatives, batch=batch
    )
    total, done = len(ids) * recipe.epochs, 0
    with torch.inference_mode():
        for epoch in range(recipe.epochs):
            for number, part in blocks(ids):
                if begin:
                    begin, done = begin - 1, done + len(part)
                    continue
                before = torch.get_num_threads()
                torch.set_num_threads(1)
                try:
                    drawn = sampler.draw(part, epoch, number)
                    batches = -(-len(drawn.words) // batch)
                    places = done + torch.arange(batches) * (len(part) / max(1, batches))
                    rates = rate * (1 - places / total).clamp(min=_LOWEST)
                    steps.run(drawn, rates)
                finally:
                    torch.set_num_threads(before)
                done += len(part)
                yield done
