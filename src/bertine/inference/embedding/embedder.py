"""Load an encoder's model directory and compute the vectors of texts: :class:`Embedder`."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch

from bertine.core.console import Shown, logger
from bertine.core.errors import BertineError
from bertine.core.names import WORD_MODELS, AnswerPrecision, PoolingName, option
from bertine.core.text import visible
from bertine.hub.elmo_files import word_model_of
from bertine.hub.model_directory import LoadedModel, load_model
from bertine.inference.compute import Computing, Engine, run_batch, sample_inputs, unmeasured_choice
from bertine.inference.embedding.vectors import Cosines, PooledTexts, Prompts, word_span
from bertine.inference.rows import Single, checked_singles, is_one, several
from bertine.models.config_file import SentenceModules, read_sentence_modules
from bertine.models.heads import Model
from bertine.models.pooling import Pooling
from bertine.models.precision import Rates, precision_name, rates_for, resolve_device
from bertine.options.verbs import check_types
from bertine.tasks.base import Features, require_positions
from bertine.tasks.unknown_text import UnknownText
from bertine.tokenization.tokenizer import Tokenizer


@dataclass(frozen=True)
class TokenVectors:
    """The tokens of a text and their vectors.

    Attributes:
        tokens: n pieces, special tokens included.
        offsets: n pairs (begin, end) of characters of the text; (0, 0) for special tokens and for
            the pieces of a prompt.
        vectors: fp32 [n, D].
    """

    tokens: list[str]
    offsets: list[tuple[int, int]]
    vectors: np.ndarray


class Embedder(Shown):
    """A model, its tokenizer and the pooling that makes vectors of texts. Threads may share it.

    Attributes:
        model: the model in fp32, in evaluation mode, on its device. On a CPU an engine computes,
            made from it at the first call (:mod:`bertine.inference.compute`).
        tokenizer: the tokenizer of the model.
        pooling: how the states of tokens become a vector.
        max_length: maximum pieces of a text, special tokens included; longer texts are cut at the
            end.
        prompt: the text that is put before every text.
        prompts: the prompts of its directory, by name.
        precision: the precision it computes in, "fp32", "bf16" or "int8".
        on_cpu: whether an engine computes, not the model.
        trained_shorter: whether its directory says that the first numbers of its vectors were
            trained to be vectors by themselves, or a warning has been given.
        load_lines: lines about how it was loaded.
        name: the name of the folder it was loaded from; "" if it was made of parts in memory.
    """

    name = ""
    prompts = Prompts()
    unit = "piece"
    trained_shorter = False

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer,
        pooling: Pooling | None = None,
        *,
        max_length: int | None = None,
        prompt: str = "",
        precision: str = "fp32",
    ) -> None:
        """
        Raises:
            BertineError: a pooling that the model cannot give; a maximum length beyond its
                positions, or one that leaves no room for text after the prompt; an unknown
                precision, or int8 on a GPU.
        """
        self._device = next(model.parameters()).device
        if precision == "int8" and self._device.type != "cpu":
            raise BertineError("precision 'int8' is for the CPU; choose bf16 or fp32")
        self._rates: Rates | None = None
        if precision != "int8":
            self._rates = rates_for(precision, model)
            precision = precision_name(precision, self._device, self._rates)
        self.precision = precision
        self.on_cpu = self._device.type == "cpu"
        self._engine: Engine | None = None
        self._threads: int | None = None
        self.batch_invariant = False
        self._making = threading.Lock()
        self.model, self.tokenizer = model.eval(), tokenizer
        self.pooling = pooling or Pooling()
        self.pooling.check(model.config)
        if self.pooling.dimensions == replace(self.pooling, dimensions=None).width(model.config):
            self.pooling = replace(self.pooling, dimensions=None)
        if tokenizer.template.sums_up_at_end:
            self.pooling = self.pooling.of_last_token()
        positions = model.config.longest_input
        self.max_length = positions if max_length is None else max_length
        require_positions(self.max_length, model.config)
        self._put_before(prompt)
        self.load_lines: list[str] = []

    def _put_before(self, prompt: str) -> None:
        """Set the prompt.

        Raises:
            BertineError: it leaves no room for text.
        """
        self.prompt = prompt
        taken = self.tokenizer.template.added() + len(self.tokenizer.encode_plain([prompt])[0])
        if self.max_length <= taken:
            raise BertineError(
                f"max_length {self.max_length} leaves no room for text: special tokens"
                f"{' and prompt' if prompt else ''} take {taken}"
            )

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a pickle or a copy: everything but the lock and the engine, which
        the first call makes."""
        return {**self.__dict__, "_making": None, "_engine": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._making = threading.Lock()

    @classmethod
    @check_types
    def load(
        cls,
        model_dir: str | Path,
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
        batch_invariant: bool = False,
        loaded: LoadedModel | None = None,
        engine: Engine | None = None,
    ) -> Embedder:
        """Load a model directory of any kind: pre-trained, fine-tuned, or of sentence-transformers,
        whose modules (pooling, normalizing, maximum length, default prompt) then apply; an ELMo; or
        static vectors of Bertine or model2vec.

        Args:
            model_dir: the folder.
            pooling: ``mean``, ``cls``, ``max``, ``mean-last-4`` or ``tokens``; None: as the
                directory says, else ``mean``.
            layer: the layer whose states are pooled: 0 is the embeddings, -1 the last layer. None:
                the last.
            normalize: scale vectors to length 1; None: as the directory says, else not.
            max_length: maximum pieces of a text; None: as the directory says, else as in
                fine-tuning, else the number of positions of the model.
            prompt: the name of one of the directory's prompts, ``""`` for none; None: its default.
            dimensions: keep this many of a vector's first numbers, and scale them to length 1 where
                whole vectors have it; for models trained for it. None: as the directory says, else
                all.
            device: ``"cpu"``, ``"cuda"`` or ``"cuda:1"``; None: the GPU if there is one.
            precision: ``"auto"`` (bf16 where it is measured to be clearly faster), ``"fp32"``,
                ``"bf16"``, or on a CPU ``"int8"``, which changes vectors more than ``"auto"`` may.
            threads: number of threads on a CPU; None: the fastest number, measured.
            batch_invariant: compute each text separately, so that the bits of its vector do not
                depend on other texts; slower. ``"auto"`` is then fp32, and threads are not
                measured.
            loaded: the folder with the weights, already loaded: `model_dir` or the one that its
                modules name (its model is used, not copied).
            engine: an engine made from that model; it is used if it computes in the same precision.

        Raises:
            BertineError: not a model directory; unsupported modules, unless a `pooling` is named;
                an unknown pooling, layer, prompt, device or precision; more dimensions than vectors
                have, or any of an ELMo.
        """
        kind = word_model_of(model_dir) if loaded is None and cls is Embedder else None
        if kind == "elmo" and batch_invariant:
            raise BertineError(f"{model_dir}: an ELMo has no {option('batch_invariant')}")
        if kind is not None:
            module, _, name = WORD_MODELS[kind].partition(":")
            other: Embedder = getattr(import_module(module), name).load(
                model_dir,
                pooling=pooling,
                layer=layer,
                normalize=normalize,
                max_length=max_length,
                prompt=prompt,
                dimensions=dimensions,
                device=device,
                precision=precision,
                threads=threads,
            )
            return other
        where = resolve_device(device)
        if batch_invariant:
            precision, threads = unmeasured_choice(precision, threads)
        modules = read_sentence_modules(model_dir)
        folder = modules.transformer if modules else Path(model_dir)
        if loaded is None:
            loaded, engine = load_model(folder, heads={}), None
        positions = loaded.config.longest_input
        if max_length is None:
            longest = modules.max_length if modules else loaded.task and loaded.task.max_length
            max_length = min(longest or positions, positions)
        prompts = Prompts.of(model_dir, modules)
        embedder = cls(
            loaded.model.to(where),
            loaded.tokenizer,
            _pooling(modules, pooling, layer, normalize, dimensions),
            max_length=max_length,
            prompt=prompts.text(prompt),
            precision=precision,
        )
        embedder.name, embedder.prompts = _name(model_dir), prompts
        if modules and modules.lowercase and not loaded.tokenizer.lowercase:
            raise BertineError(
                f"{model_dir}: do_lower_case asks for lower case, but the vocabulary is cased; set "
                "it where the tokenizer's is (tokenizer_config.json)"
            )
        # Vectors in 8 bits depend on the samples that the engine was made with.
        if engine is not None and engine.precision == embedder.precision != "int8":
            embedder._engine = engine
        embedder._threads = threads
        embedder.batch_invariant = batch_invariant
        embedder.load_lines = loaded.report.lines() + embedder._lines(modules)
        trained = {} if loaded.task is None else loaded.task.training
        embedder.trained_shorter = bool(
            (modules and modules.dimensions) or trained.get("vector_lengths")
        )
        if embedder.pooling.dimensions is not None:
            embedder.warn_of_shorter(embedder.dimensions)
        return embedder

    @classmethod
    def opened(cls, model: Embedder | Path | str, **options: Any) -> Embedder:
        """Return `model` if it is an embedder already; else :meth:`load` it with `options`, and
        print what was loaded."""
        if isinstance(model, Embedder):
            return model
        embedder = cls.load(model, **options)
        for line in embedder.load_lines:
            logger.info(line)
        return embedder

    def with_prompt(self, name: str) -> Embedder:
        """Return an embedder of the same model with another of the directory's prompts before every
        text: ``query`` for queries, for example, and ``passage`` for the texts that are searched;
        "" for none.

        Raises:
            BertineError: there is no such prompt, or it leaves no room for text.
        """
        prompt = self.prompts.text(name)
        if prompt == self.prompt:
            return self
        other = copy.copy(self)
        other._put_before(prompt)
        if self.on_cpu:
            self._computing()
            other._engine = self._engine
        return other

    def lines(self) -> list[str]:
        """Return the lines that describe its vectors."""
        name = f" {visible(self.name)}" if self.name else ""
        prompt = f", prompt {visible(self.prompt)!r}" if self.prompt else ""
        return [
            f"Embedder{name}: vectors of {self.dimensions} numbers, {self.pooling.describe()}",
            f"at most {self.max_length} pieces{prompt}; computes in {self.precision}",
        ]

    @property
    def dimensions(self) -> int:
        """The dimensions of a vector, D."""
        return self.pooling.width(self.model.config)

    def embed(self, texts: Sequence[Single] | Single) -> np.ndarray:
        """Compute the vector of each text, fp32 [N, D], in their order; for one string or
        dictionary fp32 [D]. Longer texts are cut. A dictionary has its text under ``text`` or
        ``sentence``, or as its only entry.

        Raises:
            BertineError: something that is not a text; an embedder of tokens.
        """
        if self.pooling.tokens:
            raise BertineError("pooling is 'tokens': ask for the tokens' vectors (embed_tokens)")
        vectors = self.run(self.features(texts))
        return vectors[0] if is_one(texts) else vectors

    __call__ = embed

    @overload
    def embed_tokens(self, texts: Single) -> TokenVectors: ...  # type: ignore[overload-overlap]
    @overload
    def embed_tokens(self, texts: Sequence[Single]) -> list[TokenVectors]: ...
    def embed_tokens(self, texts: Sequence[Single] | Single) -> TokenVectors | list[TokenVectors]:
        """Compute every token's vector, for an embedder with the pooling ``tokens``; for one string
        or dictionary a single result, not a list.

        Raises:
            BertineError: something that is not a text; another pooling.
        """
        if not self.pooling.tokens:
            raise BertineError(f"pooling is {self.pooling.describe()!r}, which has no tokens")
        shift = len(self.prompt)
        singles = checked_singles(several(texts))
        features, results = self.features(singles), []
        for feature, text, vectors in zip(
            features, singles, self.run_tokens(features), strict=True
        ):
            encoding = self.tokenizer.encode(self.prompt + text, max_length=self.max_length)
            offsets = [
                (a - shift, b - shift) if a >= shift and b > a else (0, 0)
                for a, b in encoding.offsets
            ]
            tokens = [self.tokenizer.tokens[index] for index in feature.input_ids.tolist()]
            results.append(TokenVectors(tokens, offsets, vectors))
        return results[0] if is_one(texts) else results

    def word_in(self, texts: Sequence[Single], word: str) -> list[np.ndarray | None]:
        """Compute the vector [D] of a word in the context of each text, for an embedder with the
        pooling ``tokens``: the mean of its pieces' vectors, at its first place; None where the text
        does not contain the word, or is cut before it.

        Raises:
            BertineError: something that is not a text; another pooling.
        """
        result: list[np.ndarray | None] = []
        for text, tokens in zip(
            checked_singles(texts), self.embed_tokens(list(texts)), strict=True
        ):
            begin, end = word_span(text, word) or (0, 0)
            rows = [
                vector
                for vector, (a, b) in zip(tokens.vectors, tokens.offsets, strict=True)
                if max(a, begin) < min(b, end)
            ]
            result.append(np.mean(rows, axis=0) if rows else None)
        return result

    def warn_of_shorter(self, dimensions: int) -> None:
        """Warn, once, if the model directory does not say that the first `dimensions` numbers were
        trained to be used alone."""
        if not self.trained_shorter:
            self.trained_shorter = True
            logger.warning(
                f"{self.name or 'the model'}: nothing in its directory says that it was trained "
                f"for shorter vectors; the first {dimensions} numbers say no more than any others"
            )

    @property
    def pooled_layer(self) -> int | None:
        """The layer whose states are pooled; 0 is the embeddings. None: several layers."""
        if "mean-last-4" in self.pooling.modes:
            return None
        layers, layer = len(self.model.config.passes), self.pooling.layer
        last = layers if layer is None else layer
        return last if last >= 0 else layers + 1 + last

    def fingerprints(self) -> tuple[str, str]:
        """Return the SHA-256 of the weights and of the tokenizer, as hex digits. Takes about a
        third of a second for bert-base."""
        return self.model.fingerprint(), self.tokenizer.fingerprint

    def pieces(self, features: Features) -> list[str]:
        """Return the pieces of a text."""
        names = self.tokenizer.tokens
        return [names[index] for index in features.input_ids]

    def notes(self) -> list[str]:
        """Return notes on the texts that were computed."""
        return []

    def features(self, texts: Sequence[Single] | Single) -> list[Features]:
        """Return the pieces of each text after the prompt, cut to the maximum length; one string is
        one text.

        Raises:
            BertineError: something that is not a text.
        """
        listed = several(texts)
        prompted = [self.prompt + text for text in checked_singles(listed)]
        encoded = self.tokenizer.encode_arrays(prompted, max_length=self.max_length)
        # For an empty text a vocabulary without special tokens makes no piece.
        empty = np.array([self.model.config.pad_token_id], np.int32), np.zeros(1, np.int8)
        return [
            Features(*((ids, types) if len(ids) else empty), row=row, num_truncated=cut)
            for row, (ids, types, cut) in enumerate(encoded)
        ]

    def run(
        self, features: Sequence[Features], on_batch: Callable[[int], None] | None = None
    ) -> np.ndarray:
        """Compute vectors fp32 [N, D] of `features`; `on_batch` is called with the number of texts
        of each finished batch."""
        return self._joined(self.run_tokens(features, on_batch))

    def run_batch(self, features: Sequence[Features]) -> np.ndarray:
        """Compute vectors fp32 [N, D] of `features`, all of them in one batch."""
        outputs = run_batch(
            self._computing(),
            self._pooled,
            features,
            pad_id=self._pad_id,
            dtype=self._dtype,
            alone=self.batch_invariant,
        )
        return self._joined(outputs)

    def run_tokens(
        self, features: Sequence[Features], on_batch: Callable[[int], None] | None = None
    ) -> Sequence[np.ndarray]:
        """Compute vectors fp32 [n, D] of the n tokens of each of `features`."""
        return self._pooled.run(
            self._computing(),
            features,
            pad_id=self._pad_id,
            dtype=self._dtype,
            alone=self.batch_invariant,
            on_batch=on_batch,
        )

    def agreement(self, features: Sequence[Features]) -> Cosines | None:
        """Compute the cosines between the vectors of `features` in this precision and in fp32; None
        if the precision is fp32, or there are no features."""
        if self.precision == "fp32" or not features:
            return None
        ours = np.concatenate([np.atleast_2d(v) for v in self.run_tokens(features)])
        precise = self._pooled.run(self.model, features, pad_id=self._pad_id, dtype=torch.float32)
        exact = np.concatenate([np.atleast_2d(v) for v in precise])
        return Cosines.between(ours, exact)

    @property
    def _pooled(self) -> PooledTexts:
        return PooledTexts(self.pooling, self.model.config.longest_input)

    @property
    def _pad_id(self) -> int:
        return self.tokenizer.pad_token_id

    @property
    def _dtype(self) -> torch.dtype:
        """Return the type in which the model computes."""
        return torch.float32 if self.precision == "fp32" else torch.bfloat16

    def _computing(self) -> Computing:
        """Return the model, or on a CPU an engine, made at the first call."""
        if not self.on_cpu:
            return self.model
        with self._making:
            if self._engine is None:
                # The same for all texts, so that a text's vector does not depend on others.
                samples = sample_inputs(self.tokenizer, self.max_length)
                self._engine = Engine(
                    self.model, precision=self.precision, threads=self._threads, samples=samples
                )
        return self._engine

    def _joined(self, vectors: Sequence[np.ndarray]) -> np.ndarray:
        """Return N vectors as fp32 [N, D]."""
        table = np.empty((len(vectors), self.dimensions), dtype=np.float32)
        for at, vector in enumerate(vectors):
            table[at] = vector
        return table

    def _lines(self, modules: SentenceModules | None) -> list[str]:
        """Return the lines about the resolved settings."""
        source = " (modules.json is read)" if modules else ""
        lines = [
            f"vectors of {self.dimensions} numbers: {self.pooling.describe()}; texts are cut at "
            f"{self.max_length} pieces{source}"
        ]
        if self.prompt:
            lines.append(f"before every text: {self.prompt!r}")
        elif modules and modules.prompts:
            lines.append(f"no prompt is put before texts; there are {', '.join(modules.prompts)}")
        if self._rates is not None:
            lines.append(self._rates.line())
        return lines


def unknown_text(embedder: Embedder) -> UnknownText | None:
    """Return the counter of pieces unknown to the vocabulary of an embedder; None for word vectors,
    which count words without a vector themselves."""
    return UnknownText(embedder.tokenizer) if embedder.unit == "piece" else None


def empty_texts(embedder: Embedder, texts: Sequence[str]) -> list[int]:
    """Find the texts without content, before any prompt: blank ones, and those without a letter or
    a digit for which the tokenizer makes no piece."""
    odd = [row for row, text in enumerate(texts) if not any(map(str.isalnum, text))]
    if embedder.unit != "piece":
        return [row for row in odd if not texts[row].strip()]
    special = embedder.tokenizer.special_ids - {embedder.tokenizer.unk_token_id}
    pieces = embedder.tokenizer.encode_plain([texts[row] for row in odd])
    return [
        row
        for row, ids in zip(odd, pieces, strict=True)
        if special.issuperset(ids) or not texts[row].strip()
    ]


def _name(model_dir: Path | str) -> str:
    """Return the name of a model's folder, with that of its parent where it is only ``model``."""
    parts = Path(model_dir).parts
    return "/".join(parts[-2:] if parts[-1:] == ("model",) else parts[-1:])


def unit(vectors: np.ndarray) -> np.ndarray:
    """Scale vectors fp32 [N, D] to length 1 in fp32; zeros stay zeros."""
    vectors = vectors.astype(np.float32, copy=False)
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.where(norms > 0, norms, 1.0)


def _pooling(
    modules: SentenceModules | None,
    pooling: str | None,
    layer: int | None,
    normalize: bool | None,
    dimensions: int | None,
) -> Pooling:
    """Return the pooling that was asked for, with the directory's settings as defaults."""
    if modules is None:
        asked = Pooling((pooling or "mean",), layer, bool(normalize))
    elif pooling is None and modules.refused:
        raise BertineError(modules.refused)
    else:
        asked = Pooling(
            modules.modes or ("mean",),
            layer,
            modules.normalize if normalize is None else normalize,
            modules.dimensions,
        )
        if pooling is not None:
            asked = replace(asked, modes=(pooling,))
    if dimensions is None:
        return asked
    return replace(asked, dimensions=dimensions, normalize_kept=True)
