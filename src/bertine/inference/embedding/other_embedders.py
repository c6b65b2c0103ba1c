"""Compute text vectors with an ELMo or word vectors, and open embedders of any kind."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bertine.core.console import logger, plural
from bertine.core.errors import BertineError
from bertine.core.names import WORD_MODELS, AnswerPrecision, PoolingName, option
from bertine.data.entities import split_words
from bertine.families.elmo import BEGIN, END, BidirectionalLm, character_ids, is_cut
from bertine.hub.elmo_files import load_elmo, word_model_of
from bertine.inference.embedding.embedder import Embedder, unit
from bertine.inference.embedding.vectors import Cosines, word_span
from bertine.inference.rows import Single, checked_singles, is_one, several
from bertine.models.heads import weights_fingerprint
from bertine.models.pooling import Pooling
from bertine.models.precision import autocast, finite, resolve_device
from bertine.options.verbs import check_types
from bertine.tasks.base import Features
from bertine.word_vectors.files import file_format
from bertine.word_vectors.vectors import WordVectors, is_word_vectors

#: The default maximum of words of a text: memory grows with it.
_MOST_WORDS = 4096
#: Words of texts that are computed together.
_BATCH_WORDS = 2048

_POOLINGS = ("mean", "max", "tokens")


@dataclass(frozen=True, slots=True)
class TextWords(Features):
    """The words of a text; ``input_ids`` only counts them.

    Attributes:
        words: the n words.
    """

    words: tuple[str, ...] = ()


class ElmoEmbedder(Embedder):
    """An ELMo and the pooling that makes vectors of words or texts. Each text is read by itself,
    from a state of 0; :meth:`~bertine.families.elmo.BidirectionalLm.layers_of` of the model carries
    states over.

    Attributes:
        elmo: the model in evaluation mode, on its device.
        pooling: how the states of words become a vector; without a layer, the mean of all layers,
            which is their mix before a task has weighted it.
        max_length: maximum words of a text; longer texts are cut at the end.
        precision: the precision it computes in, "fp32" or "bf16".
        name: the name of the folder it was loaded from.
        load_lines: lines about how it was loaded.
    """

    unit = "word"

    def __init__(
        self,
        model: BidirectionalLm,
        *,
        pooling: str = "mean",
        layer: int | None = None,
        normalize: bool = False,
        max_length: int | None = None,
        precision: str = "fp32",
    ) -> None:
        """
        Raises:
            BertineError: a pooling or layer that the model cannot give; an impossible length or
                precision.
        """
        count = model.config.num_hidden_layers
        if pooling not in _POOLINGS:
            raise BertineError(
                f"pooling {pooling!r} cannot be had of an ELMo, which has no such token or layers; "
                f"choose {', '.join(_POOLINGS)}"
            )
        if layer is not None and not -count - 1 <= layer <= count:
            raise BertineError(
                f"layer is {layer}, but the model has layers 1 to {count} (0: the words by "
                f"themselves; from the end: -1 to {-count - 1})"
            )
        if precision not in ("auto", "fp32", "bf16"):
            raise BertineError(f"precision {precision!r} is not for ELMo; choose fp32 or bf16")
        if max_length is not None and max_length < 1:
            raise BertineError(f"max_length is {max_length}, but must be at least 1")
        self.elmo = model.eval()
        self.pooling = Pooling((pooling,), layer, normalize)
        self.prompt, self.on_cpu = "", True
        self.max_length = _MOST_WORDS if max_length is None else max_length
        self.precision = "fp32" if precision == "auto" else precision
        self._device = next(model.parameters()).device
        self.load_lines = []
        self._shortened = 0

    @classmethod
    @check_types
    def load(  # type: ignore[override]
        cls,
        path: str | Path,
        *,
        pooling: PoolingName | None = None,
        layer: int | None = None,
        normalize: bool | None = None,
        max_length: int | None = None,
        prompt: str | None = None,
        dimensions: int | None = None,
        device: str | None = None,
        precision: AnswerPrecision = "auto",
        threads: int | None = None,
    ) -> ElmoEmbedder:
        """Load an ELMo: a model directory of Bertine's, a run's folder or the two published files.
        The arguments are those of :meth:`bertine.Embedder.load`; it computes with all threads.

        Raises:
            BertineError: the folder cannot be read; a prompt or dimensions are given, which ELMo
                does not have; another unsupported option.
        """
        if prompt:
            raise BertineError(f"{path}: there is no prompt {prompt!r}; an ELMo has none")
        if dimensions is not None:
            raise BertineError(
                f"{path}: is an ELMo, the first numbers of whose vectors say no more than the "
                f"others; leave out {option('dimensions')}"
            )
        loaded = load_elmo(path)
        embedder = cls(
            loaded.model.to(resolve_device(device)),
            pooling=pooling or "mean",
            layer=layer,
            normalize=bool(normalize),
            max_length=max_length,
            precision=precision,
        )
        parts = Path(path).parts
        embedder.name = "/".join(parts[-2:] if parts[-1:] == ("model",) else parts[-1:])
        words = (
            "words are what stands between spaces"
            if loaded.model.config.word_splitting == "spaces"
            else "punctuation is words of its own"
        )
        embedder.load_lines = [
            f"{loaded.source}: {loaded.model.config.num_parameters:,} parameters",
            f"vectors of {embedder.dimensions} numbers: {embedder._described()}; {words}; "
            f"texts are cut at {embedder.max_length:,} words",
        ]
        return embedder

    def lines(self) -> list[str]:
        """Return the lines that describe its vectors."""
        return [
            f"ElmoEmbedder {self.name}: vectors of {self.dimensions} numbers, "
            f"{self._described()}; computes in {self.precision}"
        ]

    def _described(self) -> str:
        which = ", mean of all layers" if self.pooling.layer is None else ""
        return f"{self.pooling.describe()}{which}"

    @property
    def dimensions(self) -> int:
        """The dimensions of a vector, D."""
        return self.elmo.config.width

    @property
    def pooled_layer(self) -> int | None:
        """The layer whose states are pooled, from 0; None: all layers."""
        layer = self.pooling.layer
        if layer is None or layer >= 0:
            return layer
        return self.elmo.config.num_hidden_layers + 1 + layer

    def fingerprints(self) -> tuple[str, str]:
        """Return the SHA-256 of the weights, and of the mapping from texts to ids, as hex
        digits."""
        config = self.elmo.config
        way = f"elmo characters, {config.max_characters} places, words by {config.word_splitting}"
        return weights_fingerprint(self.elmo), hashlib.sha256(way.encode()).hexdigest()

    def words(self, text: str) -> list[str]:
        """Split a text into words as in the model's training."""
        if self.elmo.config.word_splitting == "spaces":
            return text.split()
        return [text[begin:end] for begin, end in split_words(text)]

    def features(self, texts: Sequence[Single] | Single) -> list[Features]:
        """Return the words of each text, cut to the maximum length; one string is one text.

        Raises:
            BertineError: something that is not a text.
        """
        features: list[Features] = []
        places = self.elmo.config.max_characters
        for row, text in enumerate(checked_singles(several(texts))):
            words = self.words(text)
            cut = max(0, len(words) - self.max_length)
            kept = tuple(words[: self.max_length])
            self._shortened += sum(is_cut(word, places) for word in kept)
            ids, types = np.arange(len(kept), dtype=np.int32), np.zeros(len(kept), np.int8)
            features.append(TextWords(ids, types, row=row, num_truncated=cut, words=kept))
        return features

    def pieces(self, features: Features) -> list[str]:
        """Return the words of a text, under the name that embedders share."""
        return list(_words(features))

    def notes(self) -> list[str]:
        if not self._shortened:
            return []
        return [f"of {plural(self._shortened, 'word')} only the beginning was read"]

    def embed(self, texts: Sequence[Single] | Single) -> np.ndarray:
        """Compute the vector of each text, fp32 [N, D]; for one string fp32 [D].

        Raises:
            BertineError: something that is not a text; an embedder of words.
        """
        if self.pooling.tokens:
            raise BertineError("pooling is 'tokens': ask for the words' vectors (layers)")
        vectors = self.run(self.features(texts))
        return vectors[0] if is_one(texts) else vectors

    def layers(self, sentences: Sequence[Sequence[str]]) -> list[np.ndarray]:
        """Compute all layers of sentences that are already words: fp32 [n, L + 1, D] of each, the
        words without context first."""
        results: list[np.ndarray] = [np.zeros(0)] * len(sentences)
        for numbers in _batches([len(sentence) for sentence in sentences]):
            states = self._compute([sentences[number] for number in numbers])
            for number, state in zip(numbers, states, strict=True):
                results[number] = state.cpu().numpy()
        return results

    def word_in(self, texts: Sequence[Single], word: str) -> list[np.ndarray | None]:
        """Compute the vector of a word in the context of each text, for an embedder with the
        pooling ``tokens``; None where the text does not contain the word."""
        features = self.features(list(texts))
        result: list[np.ndarray | None] = []
        for feature, vectors in zip(features, self.run_tokens(features), strict=True):
            words = [item.casefold() for item in _words(feature)]
            there = word.casefold() in words
            result.append(vectors[words.index(word.casefold())] if there else None)
        return result

    def run(
        self, features: Sequence[Features], on_batch: Callable[[int], None] | None = None
    ) -> np.ndarray:
        """Compute vectors fp32 [N, D]; `on_batch` is called with the number of texts of each
        batch."""
        vectors = self.run_tokens(features, on_batch)
        return np.stack(vectors) if vectors else np.zeros((0, self.dimensions), np.float32)

    def run_tokens(
        self, features: Sequence[Features], on_batch: Callable[[int], None] | None = None
    ) -> list[np.ndarray]:
        """Compute the vector [D] of each of `features`; with ``tokens`` [n, D]."""
        results: list[np.ndarray] = [np.zeros(0)] * len(features)
        for numbers in _batches([len(feature.input_ids) for feature in features]):
            states = self._compute([_words(features[number]) for number in numbers])
            for number, state in zip(numbers, states, strict=True):
                results[number] = self._vectors_of(state).cpu().numpy()
            if on_batch is not None:
                on_batch(len(numbers))
        return results

    def agreement(self, features: Sequence[Features]) -> Cosines | None:
        """Compute the cosines between the vectors of bf16 and of fp32; None if the precision is
        fp32, or there are no features."""
        features = [feature for feature in features if len(feature.input_ids)]
        if self.precision == "fp32" or not features:
            return None
        rows = [np.atleast_2d(vector) for vector in self.run_tokens(features)]
        self.precision = "fp32"
        try:
            exact = [np.atleast_2d(vector) for vector in self.run_tokens(features)]
        finally:
            self.precision = "bf16"
        return Cosines.between(np.concatenate(rows), np.concatenate(exact))

    def _compute(self, sentences: Sequence[Sequence[str]]) -> list[Tensor]:
        """Compute fp32 [n, L + 1, D] of the n words of each sentence."""
        places = self.elmo.config.max_characters
        lengths = torch.tensor([len(sentence) + 2 for sentence in sentences])
        ids = torch.ones(len(sentences), int(lengths.max()), places, dtype=torch.int64)
        for row, sentence in zip(ids, sentences, strict=True):
            numbers = character_ids([BEGIN, *sentence, END], places)
            row[: len(numbers)] = torch.from_numpy(numbers)
        dtype = torch.bfloat16 if self.precision == "bf16" else torch.float32
        with torch.inference_mode(), autocast(dtype, self._device):
            states, _ = self.elmo.layers_of(ids.to(self._device), lengths)
        return [
            finite(state[1 : length - 1])
            for state, length in zip(states, lengths.tolist(), strict=True)
        ]

    def _vectors_of(self, states: Tensor) -> Tensor:
        """Pool states, fp32 [n, L + 1, D], into [D], with ``tokens`` [n, D]; 0 if there are no
        words."""
        layer = self.pooling.layer
        vectors = states.mean(1) if layer is None else states[:, layer]
        if not self.pooling.tokens:
            if not len(vectors):
                vectors = vectors.new_zeros(self.dimensions)
            else:
                vectors = vectors.amax(0) if self.pooling.modes == ("max",) else vectors.mean(0)
        return F.normalize(vectors, dim=-1) if self.pooling.normalize else vectors.clone()


def _words(features: Features) -> tuple[str, ...]:
    assert isinstance(features, TextWords)
    return features.words


def _batches(lengths: Sequence[int]) -> list[list[int]]:
    """Return the indices of texts that are computed together: similar in length, with about
    :data:`_BATCH_WORDS` words, padding included."""
    batches: list[list[int]] = []
    longest = 0
    for number in sorted(range(len(lengths)), key=lambda at: (-lengths[at], at)):
        longest = longest if batches else lengths[number] + 2
        if not batches or (len(batches[-1]) + 1) * longest > _BATCH_WORDS:
            batches.append([])
            longest = lengths[number] + 2
        batches[-1].append(number)
    return batches


# Word vectors: texts as means of their words' vectors, with the interface of an embedder.

#: The default maximum of words of a text.
_ALL = 1 << 31
#: The options of an embedder that apply to static vectors too.
_FITTING: dict[str, tuple[Any, ...]] = {
    "pooling": (None, "mean"),
    "layer": (None, 0),
    "prompt": (None, ""),
    "precision": ("auto", "fp32"),
    "device": (None, "cpu"),
}


class MeanWordEmbedder(Embedder):
    """Words with one vector each, independent of context; a text's vector is the mean of its words'
    vectors. Words without a vector are left out; a text without any gets zeros and is counted.

    Attributes:
        vectors: the vectors of words.
        normalize: whether a text's vector is scaled to length 1.
        empty: texts computed by :meth:`run` in which no word has a vector.
    """

    unit = "word"

    def __init__(
        self, vectors: WordVectors, *, max_length: int | None = None, normalize: bool | None = None
    ) -> None:
        self.vectors, self.normalize = vectors, bool(normalize)
        self.max_length = _ALL if max_length is None else max_length
        self.pooling = Pooling(("mean",), 0, self.normalize)
        self.prompt, self.precision, self.on_cpu = "", "fp32", True
        self.empty = 0
        self.load_lines = [
            *vectors.notes,
            f"vectors of {self.dimensions} numbers: the mean of a text's words, of which "
            f"{len(vectors):,} have one, the same wherever they stand",
        ]

    @classmethod
    def load_words(cls, model: Path | str, **options: Any) -> Self:
        """Load vectors of words with those options of :meth:`bertine.Embedder.load` that apply to
        them.

        Raises:
            BertineError: an option does not apply to vectors of words; the file is damaged.
        """
        for name, values in _FITTING.items():
            if options.get(name) not in (None, *values):
                raise BertineError(
                    f"{model}: is vectors of words, which have no {name} {options[name]!r}; leave "
                    "it out"
                )
        if options.get("dimensions") is not None:
            raise BertineError(
                f"{model}: is vectors of words, whose first numbers say no more than the others; "
                f"leave out {option('dimensions')}"
            )
        embedder = cls(
            WordVectors.load(model),
            max_length=options.get("max_length"),
            normalize=options.get("normalize"),
        )
        embedder.name = Path(model).name
        return embedder

    @property
    def dimensions(self) -> int:
        """The dimensions of a vector, D."""
        return self.vectors.dimensions

    def fingerprints(self) -> tuple[str, str]:
        return self.vectors.fingerprint()

    @property
    def pooled_layer(self) -> int | None:
        return 0

    def lines(self) -> list[str]:
        return [f"MeanWordEmbedder {self.name}".rstrip(), *self.load_lines]

    def features(self, texts: Sequence[Single] | Single) -> list[Features]:
        """Return the rows of each text's words; one string is one text."""
        features = []
        for row, text in enumerate(checked_singles(several(texts))):
            ids, _ = self.vectors.rows_of(text)
            kept = ids[: self.max_length].astype(np.int32)
            cut = len(ids) - len(kept)
            features.append(Features(kept, np.zeros(len(kept), np.int8), row, num_truncated=cut))
        return features

    def run(
        self, features: Sequence[Features], on_batch: Callable[[int], None] | None = None
    ) -> np.ndarray:
        """Compute vectors fp32 [N, D] of `features`."""
        result = np.zeros((len(features), self.dimensions), dtype=np.float32)
        for at, feature in enumerate(features):
            if len(feature.input_ids):
                result[at] = self.vectors.vectors[feature.input_ids].mean(0)
            else:
                self.empty += 1
        if on_batch is not None:
            on_batch(len(features))
        return unit(result) if self.normalize else result

    def word_in(self, texts: Sequence[Single], word: str) -> list[np.ndarray | None]:
        """Return the word's only vector for each text that contains it, None for others.

        Raises:
            BertineError: the word has no vector.
        """
        vector = self.vectors[word]
        return [
            None if word_span(text, word) is None else vector for text in checked_singles(texts)
        ]

    def agreement(self, features: Sequence[Features]) -> Cosines | None:
        return None

    def notes(self) -> list[str]:
        if not self.empty:
            return []
        return [f"{plural(self.empty, 'text')} without any word that has a vector: zeros"]


# Opening: an embedder for a model of any kind.


def open_embedder(model: Embedder | Path | str, **options: Any) -> Embedder:
    """Return `model` if it is an embedder already; else load it with `options`, those of
    :meth:`bertine.Embedder.load`, and print what was loaded.

    Raises:
        BertineError: the model cannot be loaded; `batch_invariant` is given for an ELMo.
    """
    if isinstance(model, Embedder):
        return model
    kind = word_model_of(model)
    if holds_word_vectors(model):
        embedder: Embedder = MeanWordEmbedder.load_words(model, **options)
    elif kind is not None:
        # The vectors of a table depend on no other texts.
        if options.pop("batch_invariant", False) and kind == "elmo":
            raise BertineError(f"{model}: an ELMo has no {option('batch_invariant')}")
        module, _, name = WORD_MODELS[kind].partition(":")
        embedder = getattr(import_module(module), name).load(model, **options)
    else:
        return Embedder.opened(model, **options)
    for line in embedder.load_lines:
        logger.info(line)
    return embedder


def holds_word_vectors(model: Embedder | Path | str) -> bool:
    """Return whether `model` is a folder of word vectors, or a file of the word2vec program."""
    if isinstance(model, Embedder):
        return isinstance(model, MeanWordEmbedder)
    return is_word_vectors(model) or (file_format(model) is not None and Path(model).is_file())
