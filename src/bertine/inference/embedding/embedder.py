"""Load a model of any kind and compute the vectors of texts: :class:`Embedder`."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, overload

import numpy as np

from bertine.core.console import Shown, log_all, logger, plural
from bertine.core.contrib import kind_of_model, registered
from bertine.core.errors import BertineError
from bertine.core.names import AnswerPrecision, PoolingName, implementation
from bertine.core.text import visible
from bertine.hub.model_directory import LoadedModel
from bertine.inference.compute import Engine
from bertine.inference.embedding.encoder import (
    UNLIMITED,
    EncoderOptions,
    ModelEncoder,
    OnBatch,
    TextEncoder,
    Vectors,
    stacked,
)
from bertine.inference.embedding.vectors import Cosines, word_span
from bertine.inference.rows import Single, checked_singles, is_one, several
from bertine.models.heads import Model
from bertine.models.pooling import Pooling
from bertine.options.verbs import check_types
from bertine.tasks.base import Features
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
    """A model of any kind and the pooling that makes vectors of texts. Threads may share it.

    Attributes:
        encoder: the part that differs between kinds of models.
        pooling: how the states of tokens become a vector.
        max_length: maximum pieces of a text, special tokens included; longer texts are cut at the
            end.
        unit: what texts are divided into, "piece" or "word".
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

    def __init__(
        self,
        model: Model | TextEncoder,
        tokenizer: Tokenizer | None = None,
        pooling: Pooling | None = None,
        *,
        max_length: int | None = None,
        prompt: str = "",
        precision: str = "fp32",
    ) -> None:
        """
        Args:
            model: a model with layers; or an encoder of any kind, which has all but the prompt.
            tokenizer: the tokenizer of a model with layers.
            pooling, max_length, prompt, precision: see above.

        Raises:
            BertineError: a pooling that the model cannot give; a maximum length beyond its
                positions, or one that leaves no room for text after the prompt; an unknown
                precision, or int8 on a GPU.
        """
        if isinstance(model, Model):
            assert tokenizer is not None, "a model needs its tokenizer"
            model = ModelEncoder(
                model, tokenizer, pooling, max_length=max_length, precision=precision
            )
        self.encoder = model
        self.pooling, self.max_length = model.pooling, model.max_length
        self.unit, self.prompts, self.precision = model.unit, model.prompts, model.precision
        self.on_cpu, self.trained_shorter = model.on_cpu, model.trained_shorter
        model.check_prompt(prompt)
        self.prompt = prompt
        self.load_lines: list[str] = []

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
        whose modules (pooling, normalizing, maximum length, default prompt) then apply; an ELMo;
        static vectors of Bertine or model2vec; or vectors of words.

        Args:
            model_dir: the folder, or the file of vectors of words.
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
                have; an option that this kind of model does not take.
        """
        options = EncoderOptions(
            pooling=pooling,
            layer=layer,
            normalize=normalize,
            max_length=max_length,
            prompt=prompt,
            dimensions=dimensions,
            device=device,
            precision=precision,
            threads=threads,
            batch_invariant=batch_invariant,
        )
        encoder: TextEncoder
        if loaded is not None or (kind := kind_of_model(model_dir)) is None:
            encoder = ModelEncoder.load(model_dir, options, loaded, engine)
        else:
            known = registered("MODELS")[kind]
            encoder_class = implementation(known["vectors"])
            options.check(model_dir, known["title"], encoder_class.takes)
            encoder = encoder_class.load(model_dir, options)
        embedder = cls(encoder, prompt=encoder.prompts.text(prompt))
        embedder.name = _name(model_dir)
        embedder.load_lines = [*encoder.load_lines, *embedder._settings_lines()]
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
        log_all(embedder.load_lines)
        return embedder

    @property
    def model(self) -> Model:
        """The model in fp32, in evaluation mode, on its device; tables of vectors have none."""
        return cast(ModelEncoder, self.encoder).model

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of a model of pieces."""
        return cast(ModelEncoder, self.encoder).tokenizer

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
        self.encoder.check_prompt(prompt)
        other = copy.copy(self)
        other.prompt = prompt
        return other

    def lines(self) -> list[str]:
        """Return the lines that describe its vectors."""
        name = f" {visible(self.name)}" if self.name else ""
        return [f"Embedder{name}, computes in {self.precision}", *self._settings_lines()]

    def _settings_lines(self) -> list[str]:
        """Return the lines about the resolved settings."""
        cut = "" if self.limit is None else f"; texts are cut at {plural(self.limit, self.unit)}"
        lines = [f"vectors of {self.dimensions} numbers: {self.encoder.describe()}{cut}"]
        if self.prompt:
            lines.append(f"before every text: {visible(self.prompt)!r}")
        elif self.prompts.texts:
            names = ", ".join(self.prompts.texts)
            lines.append(f"no prompt is put before texts; there are {names}")
        return lines

    @property
    def limit(self) -> int | None:
        """The maximum pieces of a text; None: all of them count."""
        return None if self.max_length == UNLIMITED else self.max_length

    @property
    def dimensions(self) -> int:
        """The dimensions of a vector, D."""
        return self.encoder.dimensions

    def embed(self, texts: Sequence[Single] | Single) -> np.ndarray:
        """Compute the vector of each text, fp32 [N, D], in their order; for one string or
        dictionary fp32 [D]. Longer texts are cut. A dictionary has its text under ``text`` or
        ``sentence``, or as its only entry.

        Raises:
            BertineError: something that is not a text; an embedder of tokens.
        """
        if self.pooling.tokens:
            raise BertineError("pooling is 'tokens': ask for the tokens' vectors (embed_tokens)")
        vectors = self.encoder.embed(self._prompted(several(texts)))
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
        shift, results = len(self.prompt), []
        prompted = self._prompted(several(texts))
        features = self.encoder.features(prompted)
        for text, item, vectors in zip(prompted, features, self.run_tokens(features), strict=True):
            offsets = [
                (a - shift, b - shift) if a >= shift and b > a else (0, 0)
                for a, b in self.encoder.offsets(text)
            ]
            results.append(TokenVectors(self.pieces(item), offsets, vectors))
        return results[0] if is_one(texts) else results

    def word_in(self, texts: Sequence[Single], word: str) -> list[np.ndarray | None]:
        """Compute the vector [D] of a word in the context of each text, for an embedder with the
        pooling ``tokens``: the mean of its pieces' vectors, at its first place; None where the text
        does not contain the word, or is cut before it. In vectors of words it is the same in each.

        Raises:
            BertineError: something that is not a text; another pooling; a table in which the word
                has no vector.
        """
        singles = checked_singles(texts)
        spans = [word_span(text, word) for text in singles]
        fixed = self.encoder.fixed_vector(word)
        if fixed is not None:
            return [None if span is None else fixed for span in spans]
        result: list[np.ndarray | None] = []
        for span, tokens in zip(spans, self.embed_tokens(singles), strict=True):
            begin, end = span or (0, 0)
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

    def fingerprints(self) -> tuple[str, str]:
        """Return the SHA-256 of the weights and of the tokenizer, as hex digits. Takes about a
        third of a second for bert-base."""
        return self.encoder.fingerprints()

    def pieces(self, features: Features) -> list[str]:
        """Return the pieces of a text."""
        return self.encoder.pieces(features)

    def notes(self) -> list[str]:
        """Return notes on the texts that were computed."""
        return self.encoder.notes()

    def features(self, texts: Sequence[Single] | Single) -> list[Features]:
        """Return the pieces of each text after the prompt, cut to the maximum length; one string is
        one text.

        Raises:
            BertineError: something that is not a text.
        """
        return self.encoder.features(self._prompted(several(texts)))

    def run(self, features: Sequence[Features], on_batch: OnBatch = None) -> np.ndarray:
        """Compute vectors fp32 [N, D] of `features`; `on_batch` is called with the number of texts
        of each finished batch."""
        return stacked(self.run_tokens(features, on_batch), self.dimensions)

    def run_batch(self, features: Sequence[Features]) -> np.ndarray:
        """Compute vectors fp32 [N, D] of `features`, all of them in one batch."""
        return stacked(self.encoder.run_batch(features), self.dimensions)

    def run_tokens(self, features: Sequence[Features], on_batch: OnBatch = None) -> Vectors:
        """Compute vectors fp32 [n, D] of the n tokens of each of `features`."""
        return self.encoder.run(features, on_batch)

    def agreement(self, features: Sequence[Features]) -> Cosines | None:
        """Compute the cosines between the vectors of `features` in this precision and in fp32; None
        if the precision is fp32, or there are no features."""
        features = [item for item in features if len(item.input_ids)]
        if self.precision == "fp32" or not features:
            return None
        ours, exact = (
            np.concatenate([np.atleast_2d(v) for v in self.encoder.run(features, exact=exact)])
            for exact in (False, True)
        )
        return Cosines.between(ours, exact)

    def _prompted(self, texts: Sequence[Single]) -> list[str]:
        """Put the prompt before each text.

        Raises:
            BertineError: something that is not a text.
        """
        return [self.prompt + text for text in checked_singles(texts)]


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
