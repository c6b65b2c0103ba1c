"""Prepare models for the server: their operations, and the inputs and answers of requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from threading import Lock, Thread
from typing import Any, cast

import numpy as np
import torch

from bertine.core.console import log_all, logger, plural
from bertine.core.contrib import job_of_model
from bertine.core.errors import BertineError, naming
from bertine.core.names import option
from bertine.hub.model_directory import LoadedModel, load_model
from bertine.hub.weights import is_model_directory
from bertine.inference.embedding.collection import Collection
from bertine.inference.embedding.embedder import Embedder
from bertine.inference.explaining.explainer import Explainer
from bertine.inference.explaining.nearest import NearestExamples, head_vectors, nearest_of
from bertine.inference.fill_mask import FilledMasks, fill_mask
from bertine.inference.predictor import Predictor, PreparedExamples
from bertine.inference.rows import in_order
from bertine.models.config import Config
from bertine.models.config_file import read_sentence_modules
from bertine.models.encoder import Encoder
from bertine.models.precision import precision_name, resolve_device
from bertine.options.inference import ServeOptions
from bertine.serving.address import Limits
from bertine.serving.attention import AttentionReader
from bertine.serving.batcher import Operation
from bertine.serving.drift import Watch
from bertine.serving.requests import ApiError
from bertine.serving.schemas import reads_chinese_only, sample_text
from bertine.tasks import TASKS, task_of_model
from bertine.tasks.base import Features, Task
from bertine.tasks.classification import SentencePairs
from bertine.tasks.unknown_text import mostly_unknown
from bertine.tokenization.tokenizer import Tokenizer

#: Tasks that may read two texts and answer with labels or a number.
PAIR_TASKS = ("text", "regression", "multi-label")
#: A text of a request, its parts, or these by the names of their columns.
AskedText = str | Sequence[str] | Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Embedded:
    """A text as a vector.

    Attributes:
        vector: the vector, fp32 [D].
        tokens: the computed tokens, special tokens and those of the prompt included.
        pieces_cut: the pieces cut from the text at the maximum length.
        unknown: the share of the text's pieces that the vocabulary does not know, if it is more
            than half; else 0.
    """

    vector: np.ndarray
    tokens: int
    pieces_cut: int
    unknown: float = 0.0


def asked_of_labels(options: ServeOptions) -> list[str]:
    """Return the options, as a user writes them, that apply to models with labels."""
    names = (
        *("abstain_below", "familiarity", "abstain_unfamiliar"),
        *("cost_matrix", "coverage", "nearest_examples"),
    )
    changed = options.changed()
    return [option(name, changed[name]) for name in names if name in changed]


class ModelHandle:
    """A model of the server, or a table of vectors.

    Args:
        name: the name by which requests choose it.
        limits: the limits of the server.
        model: the loaded directory, its model in fp32, in evaluation mode; None: a table.
        predictor: the predictor of the same model; None where it answers for no task.
        embedder: the embedder of the same model; None where there are no vectors.
        nearest: finds the labelled examples that are shown with an explanation; None: none.

    Attributes:
        judge: scores the relevance of a text to a query, both read together: the predictor of a
            model of pairs, or of a published one with a single output, which is probably a
            cross-encoder; None: their vectors are compared.
        operations: its operations, by name, for its batcher.
        watch: counts what is answered, to compare with the training; None: it cannot be compared.
        unpadded: the operations that compute no padding.
        collection: the collection that is searched with its vectors; None: none.
    """

    collection: ServedCollection | None = None

    def __init__(
        self,
        name: str,
        limits: Limits,
        model: LoadedModel | None,
        predictor: Predictor | None,
        embedder: Embedder | None,
        nearest: NearestExamples | None = None,
    ) -> None:
        self.name, self.limits, self.model = name, limits, model
        self.predictor, self.embedder, self.nearest = predictor, embedder, nearest
        self.judge = self._judge()
        attention: Operation | None = None
        self.explainer: Explainer | None = None
        if model is not None:
            attention, self.explainer = self._readers(model)
        vectors: Operation | None = self._embed if embedder else None
        held = predictor.recorded() if predictor else None
        self.watch = Watch(predictor, held) if predictor and held else None
        answering = self.watch or predictor
        answers: Operation | None = answering.compute_batch if answering else None
        words: Operation | None = None
        if self.explainer and self.explainer.answers:
            words = partial(self.explainer.compute, one_batch=True)
        can: dict[str, Operation | None] = {
            "embed": vectors,
            "predict": answers,
            # A model of pairs reads query and text together, other models compare their vectors.
            "rerank": answers if self.judge else None if self.tuned else vectors,
            "explain": words,
            "attention": attention,
            "fill-mask": self._fill_mask if model and "mlm" in model.model.heads else None,
            "nearest": self._head_vectors if nearest else None,
        }
        self.operations = {key: operation for key, operation in can.items() if operation}
        # Layers of other kinds than BERT's are not packed.
        packed = model is None or type(model.model.backbone) is Encoder
        free = [vectors] if packed and embedder and embedder.on_cpu else []
        free += [answers, words] if packed and predictor and predictor.engine else []
        self.unpadded = {key for key, operation in self.operations.items() if operation in free}

    def _readers(self, model: LoadedModel) -> tuple[Operation | None, Explainer]:
        """Return what reads the attention of the model, if it can be shown, and its explainer."""
        task, most = self.tuned, self.limits.explain_tokens
        predictor = self.predictor if task else None
        reader = AttentionReader(model.model, model.tokenizer, task, most)
        explainer = Explainer(
            model.model,
            model.tokenizer,
            task,
            computing=None if predictor is None else predictor.computing,
            dtype=torch.float32 if predictor is None else predictor.dtype,
            max_tokens=most,
            all_windows=False,
        )
        if not model.model.backbone.shows_attention:
            return None, explainer
        return lambda items: [reader(item) for item in items], explainer

    @classmethod
    def load(cls, name: str, path: Path, options: ServeOptions, limits: Limits) -> ModelHandle:
        """Load a directory, of a model or a table of vectors, and print what was loaded.

        Raises:
            BertineError: the directory cannot be read; an unknown device or precision; an option
                that does not apply to the model.
        """
        model = None if job_of_model(path, "serve") else load_model(_weights(path))
        logger.info(f"{name}: {path}")
        predictor = nearest = None
        if model is not None and task_of_model(model.task, model.model):
            predictor, nearest = _answering(name, path, options, model)
        tuned = model is not None and model.task is not None and model.task.name in TASKS
        if not tuned and (asked := asked_of_labels(options)):
            logger.info(
                f"{name}: gives no labels, so its answers are the same without "
                f"{' and '.join(asked)}"
            )
        embedder = _embedder(name, path, options, model, predictor)
        computes: list[str] = []
        if predictor is not None:
            engine, where = predictor.engine, resolve_device(options.device)
            chosen = engine.precision if engine else precision_name(options.precision, where)
            computes.append(f"predictions in {chosen}")
        if model is not None and "mlm" in model.model.heads:
            computes.append("masks in fp32")
        if embedder is not None:
            computes.append(f"vectors in {embedder.precision}")
        served = cls(name, limits, model, predictor, embedder, nearest)
        logger.info(f"{name}: does {', '.join(sorted(served.operations))}; {', '.join(computes)}")
        return served

    @property
    def tuned(self) -> Task[Any] | None:
        """The task that it was fine-tuned for; None: it was pre-trained, though it may answer for
        pairs."""
        task = None if self.predictor is None else self.predictor.task
        return None if isinstance(task, SentencePairs) else task

    @property
    def task(self) -> str:
        """The name of its task; for a model without one ``fill-mask`` or ``embed``."""
        if self.tuned is not None:
            return self.tuned.name
        return "fill-mask" if "fill-mask" in self.operations else "embed"

    @property
    def answers_for(self) -> str:
        """The name of the task of its predictions."""
        return self.task if self.predictor is None else self.predictor.task.name

    def _judge(self) -> Predictor | None:
        predictor, info = self.predictor, None if self.model is None else self.model.task
        if predictor is None or info is None or predictor.task.name not in PAIR_TASKS:
            return None
        if not predictor.task.num_classes and not info.text_columns:
            try:
                pairs = replace(cast(Any, predictor.task), text_columns=("query", "text"))
                pairs.heads(predictor.model.config)
            except BertineError:  # it has no room for pairs
                return None
            return predictor.with_task(pairs)
        return predictor if len(predictor.task.text_columns) == 2 else None

    @property
    def has_probabilities(self) -> bool:
        """Whether the answers of its task are labels with probabilities."""
        return self.tuned is not None and self.tuned.num_classes > 0

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the model."""
        source = self.model or self.embedder
        assert source is not None
        return source.tokenizer

    @cached_property
    def _chinese(self) -> bool:
        return reads_chinese_only(self.tokenizer)

    @property
    def config(self) -> Config | None:
        """The config of the model; None: a table."""
        return None if self.model is None else self.model.config

    @property
    def dimensions(self) -> int:
        """The dimensions of a vector."""
        embedder, config = self.embedder, self.config
        return embedder.dimensions if embedder else cast(Config, config).hidden_size

    def describe(self) -> dict[str, Any]:
        """Return the description of the model for clients and the page."""
        config, task = self.config, None if self.predictor is None else self.predictor.task
        labels = [] if task is None else list(task.labels)
        choices = 0 if task is None else len(task.choice_columns)
        parts = [] if task is None else list(task.columns_in(())[0])
        task = self.tuned
        if task is not None:
            longest: int | None = task.max_length
        else:
            longest = config.longest_input if config else cast(Embedder, self.embedder).limit
        mask = self.tokenizer.mask_text if "fill-mask" in self.operations else ""
        return {
            "id": self.name,
            "object": "model",
            "created": 0,
            "owned_by": "bertine",
            "task": self.task,
            "operations": sorted(set(self.operations) - {"nearest"}),  # a part of explaining
            "labels": labels,
            "text_columns": parts,
            "max_choices": choices,
            "max_length": longest,
            "long_text": "head" if task is None else task.long_text,
            "example": sample_text(self.task, labels, len(parts), choices, self._chinese, mask),
            "mask": mask,
            "dimensions": self.dimensions,
            "prompts": [] if self.embedder is None else list(self.embedder.prompts.texts),
            "layers": len(config.passes) if config else 0,
            "heads": config.num_attention_heads if config else 0,
        }

    def prepare(
        self, texts: Sequence[AskedText], judge: Predictor | None = None, key: str = "texts"
    ) -> PreparedExamples:
        """Tokenize the texts under the `key` of a request, like the predictor or `judge`.

        Raises:
            BertineError: a text does not fit the task; the message names the first one, from 0.
        """
        predictor = judge or self.predictor
        assert predictor is not None
        parts = [in_order(predictor.task, text, f"{key}[{at}]") for at, text in enumerate(texts)]
        for at, part in enumerate(parts if judge is None else ()):
            if reason := predictor.task.misfit(part):
                raise BertineError(f"{key}[{at}]: {reason}")
        examples = predictor.task.examples_of(parts, key)
        return predictor.prepare(examples)

    def finish(
        self, prepared: PreparedExamples, outputs: Sequence[np.ndarray], details: bool
    ) -> list[dict[str, Any]]:
        """Turn the outputs for the features into an answer to each text."""
        assert self.predictor is not None
        if self.watch is not None:
            outputs = self.watch.add(prepared, outputs)
        answers = self.predictor.finish(prepared, outputs)
        return [
            {**answer.to_json(details), "pieces_cut": cut}
            for answer, cut in zip(answers, prepared.pieces_cut, strict=True)
        ]

    def prompted(self, texts: Sequence[str], prompt: str | None) -> list[str]:
        """Return texts with one of the model's prompts before each.

        Args:
            prompt: its name, "" for none; None: the default prompt.

        Raises:
            ApiError: there is no prompt of this name, or it cannot be used (422).
        """
        assert self.embedder is not None
        prompts = replace(self.embedder.prompts, where=f"prompt_name: the model {self.name!r}")
        try:
            before = self.embedder.prompt if prompt is None else prompts.text(prompt)
        except BertineError as error:
            raise ApiError(422, str(error), param="prompt_name") from None
        return [before + text for text in texts]

    def tokens(self, text: str) -> int:
        """Estimate the number of tokens of a text, without tokenizing it."""
        pieces = len(text) // (4 if text.isascii() else 2)
        if self.config is None:
            return 1 + pieces // _PIECES_OF_A_TOKEN
        return min(self.tokenizer.template.added() + pieces, self.config.longest_input)

    def check_masks(self, texts: Sequence[str], key: str = "texts") -> None:
        """Check that texts have masks, not too many, and not too many pieces for the model; `key`
        is their key in the request.

        Raises:
            BertineError: a text does not fit; the message names the first one, from 0.
        """
        assert self.config is not None
        tokenizer, longest = self.tokenizer, self.config.longest_input
        tokenizer.require_mask("filling masks")
        _, pieces = tokenizer.encode_flat(texts)
        lengths = (pieces + tokenizer.template.added()).tolist()
        most, mask = self.limits.max_masks, tokenizer.mask_text
        for at, (text, length) in enumerate(zip(texts, lengths, strict=True)):
            result = text.count(mask)
            if not result:
                raise BertineError(f"{key}[{at}]: has no {mask}; {tokenizer.mask_hint}")
            if result > most:
                raise BertineError(
                    f"{key}[{at}]: has {result} {mask}, but at most {most} are taken"
                )
            if length > longest:
                raise BertineError(
                    f"{key}[{at}]: has {length} pieces, but the model takes {longest}; shorten it"
                )

    def _head_vectors(self, inputs: Sequence[Sequence[Features]]) -> list[np.ndarray]:
        assert self.predictor is not None
        return [head_vectors(self.predictor, part, one_batch=True)[0] for part in inputs]

    def _embed(self, texts: Sequence[str]) -> list[Embedded]:
        assert self.embedder is not None
        embedder = self.embedder.with_prompt("")  # the texts have their prompts
        features = embedder.features(texts)
        vectors = embedder.run_batch(features)
        unknown = mostly_unknown(features, embedder.tokenizer)
        return [
            Embedded(vector, len(item.input_ids), item.num_truncated, unknown.get(item.row, 0.0))
            for vector, item in zip(vectors, features, strict=True)
        ]

    def _fill_mask(self, inputs: Sequence[tuple[str, int]]) -> list[list[dict[str, Any]]]:
        # As JSON at once: every candidate for a mask has the whole filled text.
        model, width = self.model, len(self.tokenizer.mask_text)
        assert model is not None
        return [_masks(fill_mask(model, text, top_k=top_k), width) for text, top_k in inputs]


class ServedCollection:
    """A collection that is searched. When its file is replaced, the new one is opened beside it,
    and then takes its place.

    Args:
        path: the file that ``embed`` wrote.
        embedder: the embedder of the model that made its vectors.

    Raises:
        BertineError: see :meth:`Collection.open`.
    """

    def __init__(self, path: Path, embedder: Embedder) -> None:
        self._path, self._embedder, self._opening = path, embedder, Lock()
        self._file = self._on_disk()
        self._collection = self._opened()

    @property
    def current(self) -> Collection:
        """The collection; if its file was replaced, the new one is being opened from now on."""
        if self._file != (now := self._on_disk()) and self._opening.acquire(blocking=False):
            self._file = now
            Thread(target=self._open_again, daemon=True).start()
        return self._collection

    def _on_disk(self) -> tuple[int, ...] | None:
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns, status.st_size

    def _opened(self) -> Collection:
        collection = Collection.open(self._path, self._embedder)
        if find_spec("bm25s"):
            _ = collection.words  # made now, not while the first request waits
        logger.info(f"{self._path}: {plural(collection.rows, 'text')} to search")
        log_all(collection.notes)
        return collection

    def _open_again(self) -> None:
        try:
            self._collection = self._opened()
        except BertineError as error:
            logger.warning(f"{error}; the collection as it was is searched on")
        finally:
            self._opening.release()


def search_with(models: Sequence[ModelHandle], path: Path | str) -> None:
    """Open a collection, to be searched with the first of the models that made its vectors.

    Raises:
        BertineError: no model gives vectors; the error of the first that does, if none made them.
    """
    errors = list[BertineError]()
    for model, embedder in [(model, model.embedder) for model in models if model.embedder]:
        try:
            model.collection = ServedCollection(Path(path), embedder)
            model.operations["search"] = model.operations["embed"]
            return
        except BertineError as error:
            errors.append(error)
    nothing = BertineError(f"{path}: none of the models gives vectors to search by")
    raise errors[0] if errors else nothing


#: The number of pieces of a table that cost the time of a token of a small encoder, a safe value.
_PIECES_OF_A_TOKEN = 20


def _answering(
    name: str, path: Path, options: ServeOptions, model: LoadedModel
) -> tuple[Predictor, NearestExamples | None]:
    """Load the predictor of a model, and, if it was fine-tuned, the examples to show with
    explanations; print what was loaded."""
    batch_invariant = options.batch_invariant
    predictor = Predictor.load(
        _weights(path),
        options.device,
        options.precision,
        batch_invariant=batch_invariant,
        loaded=model,
    )
    tuned = not isinstance(predictor.task, SentencePairs)
    with naming(name):
        predictor = predictor.deciding(options) if tuned else predictor
        log_all(predictor.lines())
        return predictor, nearest_of(predictor, options, show=True) if tuned else None


def _embedder(
    name: str,
    path: Path,
    options: ServeOptions,
    model: LoadedModel | None,
    predictor: Predictor | None,
) -> Embedder | None:
    """Load the embedder of the `model`, or of a table of vectors (None), and print what was loaded
    if there is no predictor; None where the model gives no vectors, but has another operation."""
    if model is None:
        return Embedder.opened(path)
    if predictor is None:
        log_all(model.report.lines())
        model.model.to(resolve_device(options.device))
    try:
        return Embedder.load(
            path,
            device=options.device,
            precision=options.precision,
            batch_invariant=options.batch_invariant,
            loaded=model,
            engine=None if predictor is None else predictor.engine,
        )
    except BertineError as error:
        if predictor is None and "mlm" not in model.model.heads:
            raise  # the model has no other operation
        logger.info(f"{name}: no vectors: {error}")
        return None


def _weights(path: Path) -> Path:
    """Return the folder of the encoder, which in a directory of sentence-transformers may be a
    subfolder."""
    try:
        modules = read_sentence_modules(path)
    except BertineError:
        if not is_model_directory(path):
            raise
        return path  # the embedder reports the fault of the modules
    return path if modules is None else modules.transformer


def _masks(filled: FilledMasks, width: int) -> list[dict[str, Any]]:
    return [
        {
            "start": mask.start,
            "end": mask.start + width,
            "candidates": [
                {"token": one.token, "id": one.id, "probability": round(one.probability, 6)}
                for one in mask.candidates
            ],
        }
        for mask in filled
    ]
