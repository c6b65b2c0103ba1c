"""Prepare models for the server: their operations, and the inputs and answers of requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from bertine.core.console import logger
from bertine.core.contrib import job_of_model
from bertine.core.errors import BertineError
from bertine.core.names import AnswerPrecision, option
from bertine.hub.model_directory import LoadedModel, load_model
from bertine.hub.weights import is_model_directory
from bertine.inference.compute import check_precision
from bertine.inference.embedding.embedder import Embedder
from bertine.inference.explaining.explainer import Explainer
from bertine.inference.explaining.nearest import NearestExamples, head_vectors, nearest_of
from bertine.inference.fill_mask import FilledMasks, fill_mask
from bertine.inference.predictor import Predictor, PreparedExamples
from bertine.inference.rows import in_order
from bertine.models.config_file import read_sentence_modules
from bertine.models.encoder import Encoder
from bertine.models.precision import precision_name, resolve_device
from bertine.options.inference import DecisionOptions, NearExamples
from bertine.serving.address import Limits
from bertine.serving.attention import AttentionReader
from bertine.serving.batcher import Operation
from bertine.serving.requests import ApiError
from bertine.serving.schemas import reads_chinese_only, sample_text
from bertine.tasks import TASKS
from bertine.tasks.base import Features
from bertine.tasks.unknown_text import mostly_unknown

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


def asked_of_labels(deciding: DecisionOptions | None, near: NearExamples | None) -> list[str]:
    """Return the options, as a user writes them, that apply to models with labels."""
    asked = {
        name: getattr(deciding, name, None) for name in ("abstain_below", "cost_matrix", "coverage")
    }
    if near is not None and near.nearest_examples:
        asked["nearest_examples"] = near.nearest_examples
    return [option(name, value) for name, value in asked.items() if value is not None]


def say_no_labels(name: str, deciding: DecisionOptions | None, near: NearExamples | None) -> None:
    """Report that options do not apply to a model without labels."""
    if asked := asked_of_labels(deciding, near):
        logger.info(
            f"{name}: gives no labels, so its answers are the same without {' and '.join(asked)}"
        )


class ModelHandle:
    """A model of the server.

    Args:
        name: the name by which requests choose it.
        model: the loaded directory; its model in fp32, in evaluation mode.
        predictor: the predictor of the same model; None where it was not fine-tuned for a task.
        embedder: the embedder of the same model; None where there are no vectors.
        limits: the limits of the server.
        nearest: finds the labelled examples that are shown with an explanation; None: none.

    Attributes:
        judge: scores the relevance of a text to a query, both read together: the predictor of a
            model of pairs, or of a published one with a single output, which is probably a
            cross-encoder; None: their vectors are compared.
        operations: its operations, by name, for its batcher.
        unpadded: the operations that compute no padding.
    """

    def __init__(
        self,
        name: str,
        model: LoadedModel,
        predictor: Predictor | None,
        embedder: Embedder | None,
        limits: Limits,
        nearest: NearestExamples | None = None,
    ) -> None:
        self.nearest = nearest
        self.name, self.model, self.predictor, self.embedder = name, model, predictor, embedder
        self.limits = limits
        self._chinese = reads_chinese_only(model.tokenizer)
        task = None if predictor is None else predictor.task
        self.attention = AttentionReader(model.model, model.tokenizer, task, limits.explain_tokens)
        self.explainer = Explainer(
            model.model,
            model.tokenizer,
            task,
            computing=None if predictor is None else predictor.computing,
            dtype=torch.float32 if predictor is None else predictor.dtype,
            max_tokens=limits.explain_tokens,
            all_windows=False,
        )
        # Layers of another kind are not packed, and perhaps not supported by explanations.
        known = isinstance(model.model.backbone, Encoder)
        shown = model.model.backbone.shows_attention
        self.operations: dict[str, Operation] = {"attention": self._attention} if shown else {}
        if embedder is not None:
            self.operations["embed"] = self._embed
        if predictor is not None:
            self.operations["predict"] = self._predict
        if "mlm" in model.model.heads:
            self.operations["fill-mask"] = self._fill_mask
        self.unpadded: set[str] = set()
        if known and predictor is not None and predictor.engine is not None:
            self.unpadded |= {"predict", "explain"}
        if known and embedder is not None and embedder.on_cpu:
            self.unpadded.add("embed")
        self.judge = self._judge()
        # A model of pairs reads query and text together, other models compare their vectors.
        same = "predict" if self.judge else "embed" if predictor is None else ""
        if same in self.operations:
            self.operations["rerank"] = self.operations[same]
            if same in self.unpadded:
                self.unpadded.add("rerank")
        if self.explainer.answers:
            self.operations["explain"] = partial(self.explainer.compute, one_batch=True)
        if nearest is not None:
            self.operations["nearest"] = self._head_vectors

    @classmethod
    def load(
        cls,
        name: str,
        path: Path,
        limits: Limits,
        *,
        device: str | None,
        precision: AnswerPrecision,
        deciding: DecisionOptions | None = None,
        near: NearExamples | None = None,
        batch_invariant: bool = False,
    ) -> ModelHandle:
        """Load a model directory and print what was loaded; `deciding` has the decision rules for
        labels, and `near` the examples to show with explanations.

        Raises:
            BertineError: not a model directory; an unknown device or precision.
        """
        check_precision(precision)
        loaded = load_model(_weights(path))
        logger.info(f"{name}: {path}")
        predictor = None
        engine = None
        computes: list[str] = []
        if loaded.task is None or loaded.task.name not in TASKS:
            say_no_labels(name, deciding, near)
        if loaded.task is not None and loaded.task.name in TASKS:
            predictor = Predictor.load(
                path, device, precision, batch_invariant=batch_invariant, loaded=loaded
            )
            if deciding is not None:
                try:
                    predictor = predictor.deciding(deciding)
                except BertineError as error:
                    raise BertineError(f"{name}: {error}") from error
            for line in predictor.lines():
                logger.info(line)
            engine = predictor.engine
            where = resolve_device(device)
            chosen = engine.precision if engine else precision_name(precision, where)
            computes.append(f"predictions in {chosen}")
        else:
            for line in loaded.report.lines():
                logger.info(line)
            loaded.model.to(resolve_device(device))
        if "mlm" in loaded.model.heads:
            computes.append("masks in fp32")
        embedder = None
        try:
            embedder = Embedder.load(
                path,
                device=device,
                precision=precision,
                batch_invariant=batch_invariant,
                loaded=loaded,
                engine=engine,
            )
            computes.append(f"vectors in {embedder.precision}")
        except BertineError as error:
            if predictor is None and "mlm" not in loaded.model.heads:
                raise  # the model has no other operation
            logger.info(f"{name}: no vectors: {error}")
        nearest = None
        if near is not None and predictor is not None:
            try:
                nearest = nearest_of(predictor, near, show=True)
            except BertineError as error:
                raise BertineError(f"{name}: {error}") from error
        served = cls(name, loaded, predictor, embedder, limits, nearest)
        logger.info(f"{name}: does {', '.join(sorted(served.operations))}; {', '.join(computes)}")
        return served

    @property
    def task(self) -> str:
        """The name of its task; for a model without one ``fill-mask`` or ``embed``."""
        if self.predictor is not None:
            return self.predictor.task.name
        return "fill-mask" if "fill-mask" in self.operations else "embed"

    def _judge(self) -> Predictor | None:
        predictor, info = self.predictor, self.model.task
        if predictor is None or info is None or predictor.task.name not in PAIR_TASKS:
            return None
        if predictor.task.name == "regression" and not info.text_columns:
            try:
                pairs = replace(cast(Any, predictor.task), text_columns=("query", "text"))
                pairs.heads(self.model.config)
            except BertineError:  # it has no room for pairs
                return None
            return predictor.with_task(pairs)
        return predictor if len(predictor.task.text_columns) == 2 else None

    @property
    def has_probabilities(self) -> bool:
        """Whether the answers of its task are labels with probabilities."""
        return self.predictor is not None and bool(self.predictor.task.labels)

    @property
    def dimensions(self) -> int:
        """The dimensions of a vector."""
        return self.embedder.dimensions if self.embedder else self.model.config.hidden_size

    def describe(self) -> dict[str, Any]:
        """Return the description of the model for clients and the page."""
        config = self.model.config
        task = None if self.predictor is None else self.predictor.task
        labels = [] if task is None else list(task.labels)
        choices = 0 if task is None else len(task.choice_columns)
        parts = [] if task is None else list(task.text_columns)
        if task is not None and task.reads_words:
            parts = ["text"]
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
            "max_length": config.longest_input if task is None else task.max_length,
            "long_text": "head" if task is None else task.long_text,
            "example": sample_text(
                self.task,
                labels,
                len(parts),
                choices,
                self._chinese,
                self.model.tokenizer.mask_text,
            ),
            "mask": self.model.tokenizer.mask_text if "fill-mask" in self.operations else "",
            "dimensions": self.dimensions,
            "prompts": [] if self.embedder is None else list(self.embedder.prompts.texts),
            "layers": len(config.passes),
            "heads": config.num_attention_heads,
        }

    def check(self, texts: Sequence[str | Sequence[str]], key: str = "texts") -> None:
        """Check that texts fit the task; `key` is their key in the request.

        Raises:
            BertineError: a text does not fit; the message names the first one, from 0.
        """
        assert self.predictor is not None
        for at, text in enumerate(texts):
            if reason := self.predictor.task.misfit(text):
                raise BertineError(f"{key}[{at}]: {reason}")

    def prepare(
        self, texts: Sequence[AskedText], judge: Predictor | None = None, key: str = "texts"
    ) -> PreparedExamples:
        """Tokenize the texts under the `key` of a request, like the predictor or `judge`.

        Raises:
            BertineError: see :meth:`check`; or an error of the task.
        """
        predictor = judge or self.predictor
        assert predictor is not None
        parts = [in_order(predictor.task, text, f"{key}[{at}]") for at, text in enumerate(texts)]
        if judge is None:
            self.check(parts, key)
        examples = predictor.task.examples_of(parts, key, range(len(parts)))
        return predictor.prepare(examples)

    def finish(
        self, prepared: PreparedExamples, outputs: Sequence[np.ndarray], details: bool
    ) -> list[dict[str, Any]]:
        """Turn the outputs for the features into an answer to each text."""
        assert self.predictor is not None
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
        item = 4 if text.isascii() else 2
        about = self.model.tokenizer.template.added() + len(text) // item
        return min(about, self.model.config.longest_input)

    def check_masks(self, texts: Sequence[str], key: str = "texts") -> None:
        """Check that texts have masks, not too many, and not too many pieces for the model; `key`
        is their key in the request.

        Raises:
            BertineError: a text does not fit; the message names the first one, from 0.
        """
        tokenizer, longest = self.model.tokenizer, self.model.config.longest_input
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

    def _predict(self, features: Sequence[Features]) -> list[np.ndarray]:
        assert self.predictor is not None
        return self.predictor.compute_batch(features)

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
        width = len(self.model.tokenizer.mask_text)
        return [_masks(fill_mask(self.model, text, top_k=top_k), width) for text, top_k in inputs]

    def _attention(self, inputs: Sequence[Any]) -> list[dict[str, Any]]:
        return [self.attention(item) for item in inputs]


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
                {
                    "token": candidate.token,
                    "id": candidate.id,
                    "probability": round(candidate.probability, 6),
                }
                for candidate in mask.candidates
            ],
        }
        for mask in filled
    ]


def load_handle(
    name: str,
    path: Path,
    limits: Limits,
    *,
    device: str | None,
    precision: AnswerPrecision,
    deciding: DecisionOptions | None = None,
    near: NearExamples | None = None,
    batch_invariant: bool = False,
) -> ModelHandle:
    """Load a directory for the server, a table of static vectors or a model, and print what it is.
    The arguments are those of :meth:`ModelHandle.load`.

    Raises:
        BertineError: the directory cannot be read.
    """
    own = job_of_model(path, "serve")
    if own is None:
        return ModelHandle.load(
            name,
            path,
            limits,
            device=device,
            precision=precision,
            deciding=deciding,
            near=near,
            batch_invariant=batch_invariant,
        )
    logger.info(f"{name}: {path}")
    say_no_labels(name, deciding, near)
    served: ModelHandle = own(name, path, limits)
    logger.info(f"{name}: does {', '.join(sorted(served.operations))}; vectors in fp32")
    return served
