"""Compute the features of frozen models, and hold the table of results of ``feature_based``.

The table is that of the BERT paper's section 5.3, and of ELMo's paper.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from bertine.contrib.elmo.encoder import ElmoEncoder
from bertine.contrib.elmo.model import is_cut
from bertine.contrib.options import FeatureBasedOptions
from bertine.contrib.word2vec.vectors import WordVectors, words_of
from bertine.core.console import Report, human_time, logger, plural
from bertine.core.errors import BertineError
from bertine.core.files import atomic_file
from bertine.core.foreign_files import open_tensors
from bertine.corpora.batch import check_batch
from bertine.data.entities import OUTSIDE, Sentences, split_words
from bertine.data.examples import Examples, find_splits
from bertine.data.tagged_sentences import WordColumns, find_tagged, read_sentences
from bertine.datasets.readers import read_evaluation, read_labelled
from bertine.hub.model_directory import LoadedModel
from bertine.inference.compute import (
    batch_tokens,
    computing_with,
    device_of,
    in_batches,
)
from bertine.models.heads import Model, weights_fingerprint
from bertine.options.data import DataConfig
from bertine.tasks.base import Features, Task
from bertine.tasks.tagged_words import WordFeatures
from bertine.tasks.tagging import Tagging
from bertine.tokenization.tokenizer import Tokenizer

# States of words: every layer's state of every word by a frozen encoder, computed once and kept on
# disk. A word's state is that of its first piece (paper, section 5.3). One safetensors file has the
# words of one file of sentences, a tensor ``layer_0`` (the embeddings), ``layer_1``, … of fp16
# [words, H] each; its name is a hash of all that it depends on.

#: Version of the file contents; it is part of the hash.
_FORMAT = 2


def word_starts(sentences: Sentences) -> np.ndarray:
    """Return the first word of each of N sentences, and the number of all words, int64 [N + 1]."""
    sizes = [len(item.words) for item in sentences.items]
    starts: np.ndarray = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
    return starts


@dataclass(frozen=True)
class StaticStates:
    """Vectors of words in place of states: a word's vector is the same in all sentences.

    Attributes:
        starts: int64 [N + 1], the first word of each sentence, and the number of all words.
        vectors: fp32 [words, D]; zeros for words without a vector.
        unknown: the number of words without a vector.
    """

    starts: np.ndarray
    vectors: Tensor
    unknown: int

    @classmethod
    def of(cls, vectors: WordVectors, sentences: Sentences) -> StaticStates:
        """Look up the words of `sentences`, as written or in lower case."""
        starts = word_starts(sentences)
        rows = [vectors.row(word) for item in sentences.items for word in item.words]
        table = np.zeros((len(rows), vectors.dimensions), dtype=np.float32)
        for at, row in enumerate(rows):
            if row is not None:
                table[at] = vectors.vectors[row]
        return cls(starts, torch.from_numpy(table), rows.count(None))

    def layers(self, numbers: Sequence[int]) -> list[Tensor]:
        """Return the vectors, for each of `numbers`."""
        return [self.vectors for _ in numbers]


@dataclass(frozen=True)
class WordStates:
    """The states of the words of some sentences, one after the other, mapped from a file.

    Attributes:
        path: the path of the file.
        starts: int64 [N + 1], the first word of each sentence, and the number of all words.
        found: whether the file existed before.
    """

    path: Path
    starts: np.ndarray
    found: bool

    def layers(self, numbers: Sequence[int]) -> list[Tensor]:
        """Return the tensors fp16 [words, H] of these layers; 0 is the embeddings."""
        with open_tensors(self.path, "pt") as file:
            return [file.get_tensor(f"layer_{number}") for number in numbers]


#: The states of the words of some sentences, one after the other.
KnownStates = WordStates | StaticStates


def states_key(
    model: Model, tokenizer: Tokenizer, task: Tagging, sentences: Sentences, dtype: torch.dtype
) -> str:
    """Compute the SHA-256, as hex digits, of all that the states of `sentences` depend on: the
    weights of the backbone, the tokenizer, the words and their documents, the windows, whether
    words that normalization leaves empty are read as unknown ones, and the precision."""
    digest = hashlib.sha256()
    parts = [_FORMAT, tokenizer.fingerprint, task.max_length, task.document_context, str(dtype)]
    parts += ["no outside"] * (OUTSIDE not in task.labels)
    digest.update(repr(parts).encode())
    digest.update(weights_fingerprint(model.backbone).encode())
    for item in sentences.items:
        digest.update(repr((item.words, item.document)).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def word_states(
    model: Model,
    tokenizer: Tokenizer,
    task: Tagging,
    sentences: Sentences,
    folder: Path | str,
    *,
    dtype: torch.dtype = torch.float32,
    max_tokens: int | None = None,
    on_batch: Callable[[int], None] | None = None,
) -> WordStates:
    """Return the states of the words of `sentences`: from the file in `folder`, else computed and
    written there.

    Words that normalization leaves empty have states of zeros where a tag says "nothing" (O), else
    those of an unknown word. Memory holds all states, two bytes a number.

    Args:
        model: a model with a backbone, on any device; put into evaluation mode and back into the
            mode it was in.
        tokenizer: the tokenizer of the model.
        task: defines how sentences are cut into windows.
        sentences: the N sentences; their notes are extended.
        folder: the folder of the files.
        dtype: the type to compute in.
        max_tokens: maximum tokens of a batch, padding included; None: by the kind of device.
        on_batch: called with the number of windows of each finished batch.

    Raises:
        BertineError: an unknown tag, an input that does not fit the model, a file that cannot be
            written.
    """
    features = cast(list[WordFeatures], task.featurize(sentences, tokenizer))
    starts = word_starts(sentences)
    key = states_key(model, tokenizer, task, sentences, dtype)
    path = Path(folder) / f"states-{key[:24]}.safetensors"
    num_layers = len(model.config.passes) + 1
    if states_are_whole(path, key, num_layers):
        return WordStates(path, starts, True)
    shape = (int(starts[-1]), model.config.hidden_size)
    layers = [torch.zeros(shape, dtype=torch.float16) for _ in range(num_layers)]
    device = device_of(model)

    def keep(chosen: list[Features]) -> list[None]:
        """Put the states of the words of one batch into their places."""
        windows = cast(list[WordFeatures], chosen)
        batch = task.collate(windows, tokenizer.pad_token_id)
        check_batch(batch, model.config)
        output = model.encode(batch.to(device), all_states=True)
        assert output.hidden_states is not None
        rows = [np.full(len(f.positions), at) for at, f in enumerate(windows)]
        sequences = torch.from_numpy(np.concatenate(rows)).to(device)
        places = np.concatenate([f.positions for f in windows]).astype(np.int64)
        positions = torch.from_numpy(places).to(device)
        words = torch.from_numpy(np.concatenate([starts[f.row] + f.words for f in windows]))
        for layer, states in zip(layers, output.hidden_states, strict=True):
            layer[words] = states[sequences, positions].to("cpu", torch.float16)
        return [None] * len(chosen)

    with computing_with(model, dtype):
        in_batches(features, batch_tokens(device, max_tokens), keep, on_batch)
    save_states(path, key, layers)
    return WordStates(path, starts, False)


def save_states(path: Path, key: str, layers: Sequence[Tensor]) -> None:
    """Write the states of words, fp16 [words, H] of each layer, to the file that `key` names.

    Raises:
        BertineError: a number is not finite; the file cannot be written.
    """
    if not all(bool(layer.isfinite().all()) for layer in layers):
        raise BertineError("the encoder's states do not fit into 16 bits; are its weights broken?")
    tensors = {f"layer_{number}": layer for number, layer in enumerate(layers)}
    with atomic_file(path) as temporary:
        save_file(tensors, temporary, metadata={"key": key})


def states_are_whole(path: Path, key: str, num_layers: int) -> bool:
    """Return whether the file exists and matches `key`."""
    if not path.is_file():
        return False
    try:
        with open_tensors(path, "pt") as file:
            names = set(file.keys())
            return (file.metadata() or {}).get("key") == key and len(names) == num_layers
    except BertineError:
        return False  # computed again


#: Version of the file contents for an ELMo.
_ELMO_FORMAT = 1
#: Sentences whose states are in memory in fp32 at once.
_SENTENCES = 256


def elmo_states(encoder: ElmoEncoder, sentences: Sentences, folder: Path | str) -> WordStates:
    """Return the layers of an ELMo for the words of `sentences`, each sentence from a state of 0:
    from the file in `folder`, else computed and written there. Layer 0 is the word without context.
    Words longer than the maximum are counted in the notes of `sentences`.

    Raises:
        BertineError: a number does not fit into 16 bits; the file cannot be written.
    """
    config = encoder.model.config
    starts = word_starts(sentences)
    digest = hashlib.sha256()
    digest.update(repr((_ELMO_FORMAT, encoder.precision, *encoder.fingerprints())).encode())
    for item in sentences.items:
        digest.update(repr(item.words).encode("utf-8", "surrogatepass"))
    key = digest.hexdigest()
    cut = sum(
        is_cut(word, config.max_characters) for item in sentences.items for word in item.words
    )
    if cut:
        sentences.note(f"{sentences.source}: of {plural(cut, 'word')} only the beginning was read")
    path = Path(folder) / f"states-{key[:24]}.safetensors"
    num_layers = config.num_hidden_layers + 1
    if states_are_whole(path, key, num_layers):
        return WordStates(path, starts, True)
    layers = [
        torch.zeros(int(starts[-1]), config.width, dtype=torch.float16) for _ in range(num_layers)
    ]
    items = sentences.items
    for begin in range(0, len(items), _SENTENCES):
        chosen = items[begin : begin + _SENTENCES]
        states = encoder.layers([item.words for item in chosen])
        for row, state in enumerate(states, begin):
            for layer, of_layer in enumerate(torch.from_numpy(state).unbind(1)):
                layers[layer][int(starts[row]) : int(starts[row + 1])] = of_layer.half()
    save_states(path, key, layers)
    return WordStates(path, starts, False)


# The table: its rows, and what each of them reads.

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


def _last(count: int, wanted: int) -> list[int]:
    return list(range(max(1, count - wanted + 1), count + 1))


def _every(count: int) -> list[int]:
    return list(range(count + 1))


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
    "mix": StatesRow("mix of all layers", _every),
    "mix-both": StatesRow("mix at input and output", _every, mix_output=True),
    "mix-output": StatesRow(
        "words at input, mix at output", _every, mix_output=True, mix_input=False
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
        kind: of the model, as :class:`~bertine.contrib.feature_based.features.WordSource` has it.
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

    def __init__(self, encoder: ElmoEncoder) -> None:
        self.num_layers = encoder.model.config.num_hidden_layers
        self._encoder = encoder

    def fingerprint(self) -> str:
        """Return the fingerprint of the weights and of how words are read."""
        return " ".join(self._encoder.fingerprints())

    def words(self, text: str) -> list[str]:
        """Split a text as in the model's training."""
        return self._encoder.model.config.words_of(text)

    def states(self, sentences: Sentences, folder: Path) -> KnownStates:
        """Return the word embedding and the layers of the LSTMs."""
        began = time.monotonic()
        states = elmo_states(self._encoder, sentences, folder)
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


#: A frozen model that computes states of words: its ``kind``; ``num_layers``, L, whose layers are 0
#: (the word embeddings) to L; ``fingerprint()``, the SHA-256 of everything that the states depend
#: on; how it splits texts into ``words``; and their ``states``, which are kept in a folder.
WordSource = EncoderSource | ElmoSource | StaticSource


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
    config = DataConfig.of(options, DataConfig(known_rows=known))
    labelled = read_labelled(options.task, data, config)
    task = labelled.make_task(max_length)
    sets = {"train": labelled.train, "validation": labelled.validation}
    if options.task == "tagging":
        test_file = find_tagged(data).test
        if test_file is not None:
            scheme = config.tag_scheme if task.has_entities else "plain"
            columns = labelled.train.text_columns, labelled.train.label_column
            sets["test"] = read_sentences(
                test_file,
                DataConfig.of(config, tag_scheme=scheme),
                WordColumns.trained_with(*columns),
            )
        return task, sets, cast("Path | None", test_file)
    if options.task == "glue":
        return task, sets | labelled.others, None
    test_file = find_splits(data).test
    if test_file is None:
        return task, sets, None
    try:
        sets["test"] = read_evaluation(task, test_file, config)[""]
    except BertineError as error:  # test files often have no labels
        logger.warning(f"the test file is left out: {error}")
        return task, sets, None
    return task, sets, cast(Path, test_file)
