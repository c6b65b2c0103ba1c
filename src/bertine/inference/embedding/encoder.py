"""Turn texts into features and features into vectors, each kind of model in its own way.

:class:`TextEncoder` is the protocol, :class:`ModelEncoder` implements it for models with layers,
and :class:`TableEncoder` is the base of tables with a vector for each word or piece.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import torch

from bertine.core.console import Report, plural
from bertine.core.errors import BertineError
from bertine.core.names import AnswerPrecision, option
from bertine.hub.model_directory import LoadedModel, load_model
from bertine.inference.compute import Computing, Engine, run_batch, sample_inputs, unmeasured_choice
from bertine.inference.embedding.vectors import PooledTexts, Prompts, unit
from bertine.models.config_file import SentenceModules, read_sentence_modules
from bertine.models.heads import Model, weights_fingerprint
from bertine.models.pooling import Pooling
from bertine.models.precision import Rates, precision_name, rates_for, resolve_device
from bertine.options.vectors import VectorOptions
from bertine.tasks.base import Features, require_positions
from bertine.tokenization.tokenizer import Tokenizer

#: The maximum length that cuts no text.
UNLIMITED = 1 << 31

#: Options that a kind of model takes with some values only, by name: these, and the default.
Takes = Mapping[str, Sequence[str | int]]
#: Called with the number of texts of each finished batch.
OnBatch = Callable[[int], None] | None
#: The vector [D] of each of N texts, or with the pooling ``tokens`` those of its tokens, [n, D].
Vectors = Sequence[np.ndarray] | np.ndarray


class EncoderOptions(VectorOptions):
    """The options with which a model is loaded for vectors: those of
    :meth:`bertine.Embedder.load`."""

    precision: AnswerPrecision = "auto"
    threads: int | None = None
    batch_invariant: bool = False

    def check(self, path: Path | str, title: str, takes: Takes) -> None:
        """Refuse what a kind of model does not take.

        Args:
            path: the model, for messages.
            title: what it is.
            takes: see :class:`TextEncoder`.

        Raises:
            BertineError: there is such an option.
        """
        for entry in fields(self):
            value, known = getattr(self, entry.name), takes.get(entry.name)
            if known is not None and value not in (entry.default, *known):
                advice = (
                    f"choose {', '.join(map(str, known))}" if len(known) > 1 else "leave it out"
                )
                raise BertineError(
                    f"{path}: is {title}, which takes no {option(entry.name, value)}; {advice}"
                )
        if self.max_length is not None and self.max_length < 1:
            raise BertineError(f"max_length is {self.max_length}, but must be at least 1")


class TextEncoder(Protocol):
    """The part of a :class:`bertine.Embedder` that differs between kinds of models.

    Attributes:
        takes: the options that it takes with some values only.
        unit: what texts are divided into, "piece" or "word".
        pooling: how the states of pieces become a vector.
        pooled_layer: the layer whose states are pooled; 0 is the embeddings. None: several layers.
        max_length: maximum pieces of a text; longer texts are cut at the end.
        precision: the precision it computes in, "fp32", "bf16" or "int8".
        on_cpu: whether an engine computes, or what needs none.
        trained_shorter: whether the first numbers of its vectors were trained to be vectors by
            themselves.
        prompts: the prompts of its directory.
        load_lines: lines about how it was loaded.
    """

    takes: ClassVar[Takes] = {}
    unit: ClassVar[str] = "piece"
    pooling: Pooling
    pooled_layer: int | None
    max_length: int
    precision: str = "fp32"
    on_cpu: bool = True
    trained_shorter: bool = False
    prompts: Prompts = Prompts()
    load_lines: Sequence[str] = ()

    @property
    def dimensions(self) -> int:
        """The dimensions of a vector, D."""
        ...

    def describe(self) -> str:
        """Describe how vectors are made, in words."""
        ...

    def fingerprints(self) -> tuple[str, str]:
        """Return the SHA-256 of the weights, and of the mapping from texts to ids, as hex
        digits."""
        ...

    def features(self, texts: Sequence[str]) -> list[Features]:
        """Return the pieces of each text, cut to the maximum length."""
        ...

    def run(
        self, features: Sequence[Features], on_batch: OnBatch = None, *, exact: bool = False
    ) -> Vectors:
        """Compute the vector fp32 [D] of each of `features`; with the pooling ``tokens`` [n, D].

        Args:
            features: N of them.
            on_batch: called with the number of texts of each finished batch.
            exact: compute in fp32, whatever the precision.
        """
        ...

    def run_batch(self, features: Sequence[Features]) -> Vectors:
        """Compute the same for features that are one batch already."""
        return self.run(features)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Compute the vectors of texts, fp32 [N, D]."""
        return stacked(self.run(self.features(texts)), self.dimensions)

    def check_prompt(self, prompt: str) -> None:
        """Refuse a prompt that leaves no room for text.

        Raises:
            BertineError: it does.
        """

    def pieces(self, features: Features) -> list[str]:
        """Return the pieces of a text, for the pooling ``tokens``."""
        raise NotImplementedError

    def offsets(self, text: str) -> Sequence[tuple[int, int]]:
        """Return the begin and end of each piece in a text, for the pooling ``tokens``."""
        raise NotImplementedError

    def fixed_vector(self, word: str) -> np.ndarray | None:
        """Return the vector [D] that a word has in every text; None: it depends on the text.

        Raises:
            BertineError: the word has no vector.
        """
        return None

    def nearest_words(self, query: str, top: int) -> Report:
        """Find the words whose vectors are nearest to that of `query`.

        Raises:
            BertineError: there are no vectors of words.
        """
        raise nothing_to_compare()

    def notes(self) -> list[str]:
        """Return notes on the texts that were computed."""
        return []


def nothing_to_compare() -> BertineError:
    """Return the error for a query without texts, to a model that has no vectors of words."""
    return BertineError(
        f"nothing to compare with; give the texts ({option('input')}), or vectors of words as the "
        "model"
    )


def stacked(vectors: Vectors, dimensions: int) -> np.ndarray:
    """Return N vectors of D `dimensions` as fp32 [N, D]."""
    if isinstance(vectors, np.ndarray):
        return vectors
    table = np.empty((len(vectors), dimensions), dtype=np.float32)
    for at, vector in enumerate(vectors):
        table[at] = vector
    return table


class ModelEncoder(TextEncoder):
    """A model with layers, its tokenizer, and the pooling that makes vectors of its states. Threads
    may share it.

    Attributes:
        model: the model in fp32, in evaluation mode, on its device. On a CPU an engine computes,
            made from it at the first call (:mod:`bertine.inference.compute`).
        tokenizer: the tokenizer of the model.
        engine: the engine; None: it is not made yet, or the model itself computes.
    """

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer,
        pooling: Pooling | None = None,
        *,
        max_length: int | None = None,
        precision: str = "fp32",
        threads: int | None = None,
        batch_invariant: bool = False,
    ) -> None:
        """
        Raises:
            BertineError: a pooling that the model cannot give; a maximum length beyond its
                positions, or one that leaves no room for text; an unknown precision, or int8 on a
                GPU.
        """
        device = next(model.parameters()).device
        self.on_cpu = device.type == "cpu"
        if precision == "int8" and not self.on_cpu:
            raise BertineError("precision 'int8' is for the CPU; choose bf16 or fp32")
        self._rates: Rates | None = None
        if precision != "int8":
            self._rates = rates_for(precision, model)
            precision = precision_name(precision, device, self._rates)
        self.precision = precision
        self.engine: Engine | None = None
        self._threads = threads
        self._making = threading.Lock()
        self.model, self.tokenizer = model.eval(), tokenizer
        self.pooling = pooling or Pooling()
        self.pooling.check(model.config)
        if self.pooling.dimensions == replace(self.pooling, dimensions=None).width(model.config):
            self.pooling = replace(self.pooling, dimensions=None)
        if tokenizer.template.sums_up_at_end:
            self.pooling = self.pooling.of_last_token()
        layers, layer = len(model.config.passes), self.pooling.layer
        last = layers if layer is None else layer
        several = "mean-last-4" in self.pooling.modes
        self.pooled_layer = None if several else last if last >= 0 else layers + 1 + last
        self.max_length = model.config.longest_input if max_length is None else max_length
        require_positions(self.max_length, model.config)
        self._read = ""
        self._pooled = PooledTexts(self.pooling, model.config.longest_input)
        self._how: dict[str, Any] = {
            "pad_id": tokenizer.pad_token_id,
            "dtype": torch.float32 if precision == "fp32" else torch.bfloat16,
            "alone": batch_invariant,
        }

    @classmethod
    def load(
        cls,
        model_dir: Path | str,
        options: EncoderOptions,
        loaded: LoadedModel | None = None,
        engine: Engine | None = None,
    ) -> ModelEncoder:
        """Load a model directory, or take the `loaded` one with an `engine` of its model.

        Raises:
            BertineError: see :meth:`bertine.Embedder.load`.
        """
        precision, threads = options.precision, options.threads
        if options.batch_invariant:
            precision, threads = unmeasured_choice(precision, threads)
        where = resolve_device(options.device)
        modules = read_sentence_modules(model_dir)
        if loaded is None:
            folder = modules.transformer if modules else Path(model_dir)
            loaded, engine = load_model(folder, heads={}), None
        length, positions = options.max_length, loaded.config.longest_input
        if length is None:
            longest = modules.max_length if modules else loaded.task and loaded.task.max_length
            length = min(longest or positions, positions)
        encoder = cls(
            loaded.model.to(where),
            loaded.tokenizer,
            _pooling(modules, options),
            max_length=length,
            precision=precision,
            threads=threads,
            batch_invariant=options.batch_invariant,
        )
        encoder.prompts = Prompts.of(model_dir, modules)
        if modules and modules.lowercase and not loaded.tokenizer.lowercase:
            raise BertineError(
                f"{model_dir}: do_lower_case asks for lower case, but the vocabulary is cased; set "
                "it where the tokenizer's is (tokenizer_config.json)"
            )
        # Vectors in 8 bits depend on the samples that the engine was made with.
        if engine is not None and engine.precision == encoder.precision != "int8":
            encoder.engine = engine
        encoder._read = " (modules.json is read)" if modules else ""
        rates = encoder._rates
        encoder.load_lines = [*loaded.report.lines(), *([] if rates is None else [rates.line()])]
        trained = {} if loaded.task is None else loaded.task.training
        encoder.trained_shorter = bool(
            (modules and modules.dimensions) or trained.get("vector_lengths")
        )
        return encoder

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a pickle or a copy: everything but the lock and the engine, which
        the first call makes."""
        return {**self.__dict__, "_making": None, "engine": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._making = threading.Lock()

    @property
    def dimensions(self) -> int:
        return self.pooling.width(self.model.config)

    def describe(self) -> str:
        return f"{self.pooling.describe()}{self._read}"

    def fingerprints(self) -> tuple[str, str]:
        # A model that does more than vectors is loaded with its heads.
        return weights_fingerprint(self.model, heads=False), self.tokenizer.fingerprint

    def check_prompt(self, prompt: str) -> None:
        taken = self.tokenizer.template.added() + len(self.tokenizer.encode_plain([prompt])[0])
        if self.max_length <= taken:
            raise BertineError(
                f"max_length {self.max_length} leaves no room for text: special tokens"
                f"{' and prompt' if prompt else ''} take {taken}"
            )

    def features(self, texts: Sequence[str]) -> list[Features]:
        encoded = self.tokenizer.encode_arrays(texts, max_length=self.max_length)
        # For an empty text a vocabulary without special tokens makes no piece.
        empty = np.array([self.model.config.pad_token_id], np.int32), np.zeros(1, np.int8)
        return [
            Features(*((ids, types) if len(ids) else empty), row=row, num_truncated=cut)
            for row, (ids, types, cut) in enumerate(encoded)
        ]

    def pieces(self, features: Features) -> list[str]:
        names = self.tokenizer.tokens
        return [names[index] for index in features.input_ids]

    def offsets(self, text: str) -> Sequence[tuple[int, int]]:
        return self.tokenizer.encode(text, max_length=self.max_length).offsets

    def run(
        self, features: Sequence[Features], on_batch: OnBatch = None, *, exact: bool = False
    ) -> Vectors:
        computing, how = self._computing(), self._how
        if exact:
            computing, how = self.model, {**how, "dtype": torch.float32, "alone": False}
        return self._pooled.run(computing, features, on_batch=on_batch, **how)

    def run_batch(self, features: Sequence[Features]) -> Vectors:
        outputs = run_batch(self._computing(), self._pooled, features, **self._how)
        return self._pooled.decode(outputs, features)

    def _computing(self) -> Computing:
        """Return the model, or on a CPU an engine, made at the first call."""
        if not self.on_cpu:
            return self.model
        with self._making:
            if self.engine is None:
                # The same for all texts, so that a text's vector does not depend on others.
                samples = sample_inputs(self.tokenizer, self.max_length)
                self.engine = Engine(
                    self.model, precision=self.precision, threads=self._threads, samples=samples
                )
        return self.engine


def _pooling(modules: SentenceModules | None, options: EncoderOptions) -> Pooling:
    """Return the pooling that was asked for, with the directory's settings as defaults."""
    asked = Pooling(layer=options.layer)
    if modules is not None:
        if options.pooling is None and modules.refused:
            raise BertineError(modules.refused)
        modes = modules.modes or asked.modes
        asked = Pooling(modes, options.layer, modules.normalize, modules.dimensions)
    if options.pooling is not None:
        asked = replace(asked, modes=(options.pooling,))
    if options.normalize is not None:
        asked = replace(asked, normalize=options.normalize)
    if options.dimensions is None:
        return asked
    return replace(asked, dimensions=options.dimensions, normalize_kept=True)


class TableEncoder(TextEncoder):
    """A vector for each word or piece, the same in every text; a text's vector is the mean of those
    of its units. Units without a vector are left out.

    Attributes:
        empty: the number of computed texts in which no unit has a vector: they get zeros.
    """

    takes: ClassVar[Takes] = {
        "pooling": ("mean",),
        "layer": (0,),
        "prompt": ("",),
        "precision": ("fp32",),
        "device": ("cpu",),
    }
    pooled_layer = 0

    def __init__(self, *, normalize: bool, max_length: int | None) -> None:
        self.pooling = Pooling(("mean",), 0, normalize)
        self.max_length = max_length or UNLIMITED
        self.empty = 0

    def __len__(self) -> int:
        """Return the number of words or pieces that have a vector."""
        raise NotImplementedError

    def means(self, features: Sequence[Features]) -> np.ndarray:
        """Compute the mean of the vectors of each text's units, fp32 [N, D]; zeros without any."""
        raise NotImplementedError

    def describe(self) -> str:
        return (
            f"the mean of a text's {self.unit}s, of which {len(self):,} have one, the same "
            "wherever they stand"
        )

    def run(
        self, features: Sequence[Features], on_batch: OnBatch = None, *, exact: bool = False
    ) -> Vectors:
        vectors = self.finished(self.means(features))
        if on_batch is not None:
            on_batch(len(features))
        return vectors

    def finished(self, vectors: np.ndarray) -> np.ndarray:
        """Count the zeros among means [N, D], and scale the others to length 1 if they should
        be."""
        self.empty += int((~vectors.any(1)).sum())
        return unit(vectors) if self.pooling.normalize else vectors

    def notes(self) -> list[str]:
        if not self.empty:
            return []
        return [f"{plural(self.empty, 'text')} without any {self.unit} that has a vector: zeros"]
