"""Compute the features of frozen models, and hold the table of results of ``feature_based``.

The table is that of the BERT paper's section 5.3, and of ELMo's paper.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast

import torch

from bertine.core.console import Report, human_time, logger
from bertine.core.errors import BertineError
from bertine.data.entities import Sentences, split_words
from bertine.data.examples import Examples, find_splits
from bertine.data.tagged_sentences import WordColumns, find_tagged, read_sentences
from bertine.datasets.readers import DataConfig, DatasetSplits, read_evaluation, read_labelled
from bertine.hub.model_directory import LoadedModel
from bertine.inference.elmo import elmo_states
from bertine.inference.embedding.other_embedders import ElmoEmbedder
from bertine.inference.word_states import KnownStates, StaticStates, WordStates, word_states
from bertine.models.heads import weights_fingerprint
from bertine.options.experiments import FeatureBasedOptions
from bertine.tasks.base import Task
from bertine.tasks.labels import TableOptions
from bertine.tasks.tagging import Tagging
from bertine.word_vectors.vectors import WordVectors, words_of

#: The file of the results, in the folder of the runs.
TABLE = "feature-based.json"
FINE_TUNING = "fine-tuning"


@dataclass(frozen=True)
class StatesRow:
    """A row of the table: which states are read (of a model of L layers; layer 0 is the word
    embeddings), whether they are joined or summed, whether they are summed again for the output of
    the BiLSTM, and whether its input is their sum or the word embeddings."""

    title: str
    layers: Callable[[int], list[int]]
    concatenate: bool = False
    mix_output: bool = False
    mix_input: bool = True


#: The rows in the paper's order, by the names of the command line.
ROWS: dict[str, StatesRow] = {
    "embeddings": StatesRow("embeddings", lambda count: [0]),
    "second-to-last": StatesRow("second-to-last hidden", lambda count: [max(0, count - 1)]),
    "last": StatesRow("last hidden", lambda count: [count]),
    "sum-last-four": StatesRow("weighted sum last four hidden", lambda count: _last(count, 4)),
    "concat-last-four": StatesRow("concat last four hidden", lambda count: _last(count, 4), True),
    "sum-all": StatesRow("weighted sum all layers", lambda count: _last(count, count)),
}


#: Rows of all layers, including the word embeddings, as in ELMo's paper: summed with learned
#: weights at the input of the BiLSTM, at its input and output, or at its output only.
MIX_ROWS: dict[str, StatesRow] = {
    "mix": StatesRow("mix of all layers", lambda count: list(range(count + 1))),
    "mix-both": StatesRow(
        "mix at input and output", lambda count: list(range(count + 1)), mix_output=True
    ),
    "mix-output": StatesRow(
        "words at input, mix at output",
        lambda count: list(range(count + 1)),
        mix_output=True,
        mix_input=False,
    ),
}

#: The rows of word vectors, if such vectors are given: a BiLSTM over them; for texts also their
#: mean.
WORD_VECTORS, BAG_OF_VECTORS = "word-vectors", "bag-of-vectors"
_STATIC = StatesRow("vectors of words", lambda count: [0])
_TITLES = {FINE_TUNING: "fine-tuning", BAG_OF_VECTORS: "mean of vectors of words"}

#: All rows by the kinds of models that have them, in the order of the table; and the default ones.
_OF_KINDS: dict[str, tuple[list[str], list[str]]] = {
    "encoder": ([FINE_TUNING, *ROWS, *MIX_ROWS], [FINE_TUNING, *ROWS]),
    "elmo": (
        ["embeddings", "second-to-last", "last", *MIX_ROWS],
        ["embeddings", "second-to-last", "last", "mix", "mix-both"],
    ),
    "word-vectors": ([], []),
}


def row_of(name: str) -> StatesRow:
    """Return the row called `name`; not that of fine-tuning, nor of the mean of vectors."""
    return _STATIC if name == WORD_VECTORS else (ROWS | MIX_ROWS)[name]


def _last(count: int, wanted: int) -> list[int]:
    return list(range(max(1, count - wanted + 1), count + 1))


@dataclass(repr=False)
class FeatureBasedReport(Report):
    """The table of results.

    Attributes:
        rows: for each row its ``validation`` (and ``test``) metrics, ``best`` (the highest main
            metric of an epoch on the validation examples), ``layer_weights`` of the mixes (by their
            position: the weights, and the factor at the end) and ``seconds``.
        metric: the name of the main metric; for tagging ``f1`` or ``accuracy``.
        folder: of the runs.
        notes: further notes.
    """

    rows: dict[str, dict[str, Any]]
    metric: str
    folder: Path
    notes: list[str] = field(default_factory=list)

    json_keys = ("metric", "rows", "notes")

    def lines(self) -> list[str]:
        """Return a line for each row: the main metric, times 100, on the validation and test
        sentences."""
        titles = {name: _TITLES.get(name) or row_of(name).title for name in self.rows}
        width = max(len(titles[name]) for name in self.rows)
        test = any("test" in row for row in self.rows.values())
        head = f"{'':{width}}  {'dev ' + self.metric:>9}" + ("  test " + self.metric) * test
        lines = [head]
        for name, row in self.rows.items():
            line = f"{titles[name]:{width}}  {100 * row['validation'][self.metric]:>9.2f}"
            if "test" in row:
                line += f"  {100 * row['test'][self.metric]:>{5 + len(self.metric)}.2f}"
            lines.append(f"{line}  {human_time(row['seconds'])}")
        return [*lines, *self.notes, f"results: {self.folder / TABLE}"]


def chosen_rows(
    rows: Sequence[str] | None, kind: str = "encoder", *, vectors: bool = False, texts: bool = False
) -> list[str]:
    """Return the names of the wanted rows, in the order of the table.

    Args:
        rows: the requested ones; None: the default ones of a model of this kind.
        kind: of the model, as :class:`~bertine.training.feature_based.features.WordSource` has it.
        vectors: whether there are word vectors, whose rows are then included. If they are not the
            model itself, these rows are always included.
        texts: whether labels are of texts.

    Raises:
        BertineError: there is no such row, or not for such a model.
    """
    known, usual = _OF_KINDS[kind]
    own = [WORD_VECTORS, *([BAG_OF_VECTORS] if texts else [])] if vectors else []
    for name in rows or ():
        if name not in [*known, *own]:
            raise BertineError(f"there is no row {name!r}; there are {', '.join([*known, *own])}")
    wanted = [name for name in known if name in (usual if rows is None else rows)]
    named = rows is not None and any(name in rows for name in own)
    always = rows is None or (kind != "word-vectors" and not named)
    return wanted + [name for name in own if always or name in (rows or ())]


# Sources: the states of words from an encoder of pieces, an ELMo, or word vectors.


class WordSource(Protocol):
    """A frozen model that computes states of words.

    Attributes:
        kind: "encoder", "elmo" or "word-vectors".
        num_layers: L; its layers are 0 (the word embeddings) to L.
    """

    kind: str
    num_layers: int

    def fingerprint(self) -> str:
        """Return the SHA-256 of everything that the states depend on, as hex digits."""
        ...

    def words(self, text: str) -> list[str]:
        """Split a text into words."""
        ...

    def states(self, sentences: Sentences, folder: Path) -> KnownStates:
        """Return the states of the words of `sentences`; computed states are kept in `folder`, and
        the duration is printed."""
        ...


class EncoderSource:
    """An encoder of pieces; the states of a word are those of its first piece.

    Args:
        loaded: the model, on any device.
        windows: the task that defines how sentences are cut into windows.
        device, dtype: to compute on and in.
    """

    kind = "encoder"

    def __init__(
        self, loaded: LoadedModel, windows: Tagging, device: torch.device, dtype: torch.dtype
    ) -> None:
        self.num_layers = len(loaded.config.passes)
        self._loaded, self._windows = loaded, windows
        self._device, self._dtype = device, dtype

    def fingerprint(self) -> str:
        """Return the fingerprint of the backbone."""
        return weights_fingerprint(self._loaded.model.backbone)

    def words(self, text: str) -> list[str]:
        """Split a text at spaces, with punctuation as separate words."""
        return [text[begin:end] for begin, end in split_words(text)]

    def states(self, sentences: Sentences, folder: Path) -> KnownStates:
        """Return the states of all layers."""
        began = time.monotonic()
        model = self._loaded.model.to(self._device)
        tokenizer, windows = self._loaded.tokenizer, self._windows
        states = word_states(model, tokenizer, windows, sentences, folder, dtype=self._dtype)
        _say_time(sentences, states, began)
        return states


class ElmoSource:
    """An ELMo, which reads each sentence or text from a state of 0."""

    kind = "elmo"

    def __init__(self, embedder: ElmoEmbedder) -> None:
        self.num_layers = embedder.elmo.config.num_hidden_layers
        self._embedder = embedder

    def fingerprint(self) -> str:
        """Return the fingerprint of the weights and of how words are read."""
        return " ".join(self._embedder.fingerprints())

    def words(self, text: str) -> list[str]:
        """Split a text as in the model's training."""
        return self._embedder.words(text)

    def states(self, sentences: Sentences, folder: Path) -> KnownStates:
        """Return the word embedding and the layers of the LSTMs."""
        began = time.monotonic()
        states = elmo_states(self._embedder, sentences, folder)
        _say_time(sentences, states, began)
        return states


class StaticSource:
    """Vectors of words, as the only layer."""

    kind = "word-vectors"
    num_layers = 0

    def __init__(self, vectors: WordVectors) -> None:
        self._vectors = vectors

    def fingerprint(self) -> str:
        """Return the fingerprint of the vectors and of the words."""
        return " ".join(self._vectors.fingerprint())

    def words(self, text: str) -> list[str]:
        """Split a text as the corpus of the vectors was split; punctuation is left out."""
        return words_of(text, lowercase=self._vectors.lowercase)

    def states(self, sentences: Sentences, folder: Path) -> KnownStates:
        """Return the vectors; print how many words have none."""
        states = StaticStates.of(self._vectors, sentences)
        logger.info(
            f"{sentences.source}: {states.unknown:,} of {states.starts[-1]:,} words have no "
            "vector: zeros"
        )
        return states


def _say_time(sentences: Sentences, states: WordStates, began: float) -> None:
    took = "found" if states.found else f"computed in {human_time(time.monotonic() - began)}"
    logger.info(f"{sentences.source}: the states of {states.starts[-1]} words: {took}")


# Examples: read the training and evaluation sets of a table.


def read_sets(
    data: Path | str, options: FeatureBasedOptions, max_length: int, known: frozenset[int]
) -> tuple[Task[Any], dict[str, Examples[Any]], Path | None]:
    """Read the examples of `data`, and create the task that they describe.

    Returns:
        The task; the examples: "train", "validation", "test" if a file has labelled ones, and
        further validation sets; and the file of "test", if there is one.

    Raises:
        BertineError: what reading the data raises.
    """
    reading = DataConfig.of(
        options,
        quotes=None,
        split_seed=None,
        options=TableOptions(),
        whole=False,
        known=known,
        limits=None,
    )
    labelled = read_labelled(options.task, data, seed=options.seed, reading=reading)
    task = labelled.build(max_length)
    sets = {"train": labelled.train, "validation": labelled.validation}
    if options.task == "tagging":
        test_file = find_tagged(data).test
        if test_file is not None:
            sets["test"] = _tagged_test(
                cast(Path, test_file), labelled, cast(Tagging, task), options
            )
        return task, sets, cast("Path | None", test_file)
    if options.task == "glue":
        return task, sets | labelled.others, None
    test_file = find_splits(data).test
    if test_file is None:
        return task, sets, None
    try:
        sets["test"] = read_evaluation(task, test_file, reading)[""]
    except BertineError as error:  # test files often have no labels
        logger.warning(f"the test file is left out: {error}")
        return task, sets, None
    return task, sets, cast(Path, test_file)


def _tagged_test(
    path: Path, labelled: DatasetSplits, task: Tagging, options: FeatureBasedOptions
) -> Sentences:
    train = labelled.train
    return read_sentences(
        path,
        WordColumns.trained_with(train.text_columns, train.label_column),
        scheme=options.tag_scheme if task.has_entities else "plain",
        format=options.format,
        strict=options.strict,
    )
