"""Explaining answers with a loaded model: reading a text, computing in small units, joining."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence
from typing import Any

import torch

from bertine.data.batch import Batch
from bertine.errors import BertineError
from bertine.inference.compute.engine import Engine
from bertine.inference.compute.running import Computing, run_batch, run_features
from bertine.inference.explaining.attribution import (
    INTEGRATED_GRADIENTS,
    LEAVE_ONE_OUT,
    METHODS,
    Attribution,
    Forward,
    Gradients,
    Unit,
    compute_gradients,
    integrated_gradients,
    leave_one_out,
    mask_targets,
)
from bertine.inference.explaining.explained_answer import decide, outputs_of
from bertine.inference.explaining.explained_text import read_text
from bertine.inference.explaining.explanation import Explanation, WordContribution
from bertine.models.model import Model
from bertine.models.threads import using_threads
from bertine.options.names import option
from bertine.tasks.base import Task
from bertine.tasks.features import Features, pad_features
from bertine.text.tokenizer import Tokenizer


class Explainer:
    """A model that says which words an answer owes to. Holds no state between calls, so threads may
    share it.

    Args:
        model: in evaluation mode; gradients are taken of it.
        tokenizer: of the model.
        task: of the model; None: one that fills masks.
        computing: what computes outputs, an engine for example; None: `model`.
        dtype: that outputs are computed in; gradients are in fp32.
        max_tokens: of an input, at most; None: what the task takes.
        all_windows: of a long text that is read in windows; else the first alone.
    """

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer,
        task: Task[Any] | None,
        *,
        computing: Computing | None = None,
        dtype: torch.dtype = torch.float32,
        max_tokens: int | None = None,
        all_windows: bool = True,
    ) -> None:
        self.model, self.tokenizer, self.task = model, tokenizer, task
        self.computing: Computing = model if computing is None else computing
        self.dtype, self.all_windows = dtype, all_windows
        longest = model.config.longest_input if task is None else task.max_length
        self.max_tokens = longest if max_tokens is None else min(max_tokens, longest)
        # What a word is hidden with; where the vocabulary has no mask, padding.
        mask = tokenizer.mask_token_id
        self._hidden = tokenizer.pad_token_id if mask is None else mask
        self._runner = _Outputs(task, self.max_tokens, self._hidden)

    @property
    def answers(self) -> bool:
        """Whether there is an answer to explain; texts that the model writes are not explained."""
        if self.task is not None:
            return not self.task.writes
        return "mlm" in self.model.heads

    def check(self, method: str) -> None:
        """Refuse a method that is not known, or that this model cannot have.

        Raises:
            BertineError: it is.
        """
        if method not in METHODS:
            raise BertineError(f"method is {method!r}, but must be one of {', '.join(METHODS)}")
        apart = self.task is not None and self.task.reads_apart
        if method == INTEGRATED_GRADIENTS and apart:
            raise BertineError(
                "this model reads the two texts apart, which integrated gradients are not made "
                f"for; leave out {option('method')}"
            )
        if self.task is not None and self.task.writes:
            raise BertineError(f"answers of the task {self.task.name!r} cannot be explained")
        if not self.answers:
            raise BertineError("this model gives vectors only: there is no answer to explain")

    def explain(
        self,
        parts: Sequence[str],
        *,
        method: str = LEAVE_ONE_OUT,
        label: str | None = None,
        word: str | None = None,
    ) -> Explanation:
        """Explain the answer for a text, or for several texts that belong together.

        Args:
            parts: the texts, in the order of the task's columns.
            method: ``"leave-one-out"`` or ``"integrated-gradients"``.
            label: to explain in place of the answer; None: the answer.
            word: of a tagger: the word whose tag is explained; None: the tags of all entities.

        Raises:
            BertineError: an unknown method, label or word; not as many texts as the model takes; a
                text without words.
        """
        steps = self.steps(parts, method=method, label=label, word=word)
        try:
            units = next(steps)
            while True:
                units = steps.send(self.compute(units))
        except StopIteration as done:
            explanation: Explanation = done.value
            return explanation

    def steps(
        self,
        parts: Sequence[str],
        *,
        method: str = LEAVE_ONE_OUT,
        label: str | None = None,
        word: str | None = None,
    ) -> Generator[list[Unit], Sequence[Any], Explanation]:
        """Do as :meth:`explain` for a caller that computes by itself: yield units of work, want
        what :meth:`compute` gives for them, and return the explanation."""
        self.check(method)
        if self.task is None:
            self._check_mask(parts)
        text = read_text(
            self.task,
            self.tokenizer,
            parts,
            max_tokens=self.max_tokens,
            all_windows=self.all_windows,
        )
        outputs = yield [Forward(features) for features in text.inputs]
        answer = decide(self.task, self.tokenizer, text, outputs, label, word)
        if method == INTEGRATED_GRADIENTS:
            attribution: Attribution = yield from integrated_gradients(text, answer)
        else:
            attribution = yield from leave_one_out(text, answer, outputs, self._hidden)
        read = {number for n in answer.inputs for number in text.word_of[n].tolist()}
        words = tuple(
            WordContribution(word.text, word.part, word.start, word.end, float(value))
            for number, (word, value) in enumerate(
                zip(text.words, attribution.contributions, strict=True)
            )
            if number in read
        )
        return Explanation(
            text.parts,
            answer.name,
            answer.probability,
            words,
            method,
            answer.unit,
            attribution.score,
            attribution.baseline,
            attribution.error,
            text.pieces_cut,
        )

    def compute(self, units: Sequence[Unit], *, one_batch: bool = False) -> list[Any]:
        """Compute the result of each unit, in their order; `one_batch`: they are not divided."""
        results: dict[int, Any] = {}
        inputs = [(at, unit) for at, unit in enumerate(units) if isinstance(unit, Forward)]
        if inputs:
            run = run_batch if one_batch else run_features
            outputs = run(
                self.computing,
                self._runner,
                [unit.features for _, unit in inputs],
                pad_id=self.tokenizer.pad_token_id,
                dtype=self.dtype,
            )
            results |= {at: output for (at, _), output in zip(inputs, outputs, strict=True)}
        threads = (
            using_threads(self.computing.threads)
            if isinstance(self.computing, Engine)
            else contextlib.nullcontext()
        )
        with threads:
            for at, unit in enumerate(units):
                if isinstance(unit, Gradients):
                    results[at] = compute_gradients(self.model, self.task, unit, self._hidden)
        return [results[at] for at in range(len(units))]

    def _check_mask(self, parts: Sequence[str]) -> None:
        tokenizer = self.tokenizer
        mask = tokenizer.require_mask("filling masks")
        if mask not in tokenizer.encode(parts[0], max_length=self.max_tokens).input_ids:
            raise BertineError(f"the text has no {tokenizer.mask_text}; {tokenizer.mask_hint}")


class _Outputs:
    """The part of a task that running features takes."""

    def __init__(self, task: Task[Any] | None, max_length: int, mask: int) -> None:
        self._task, self._max_length, self._mask = task, max_length, mask

    def collate(self, features: Sequence[Features], pad_id: int) -> Batch:
        batch = pad_features(features, pad_id, self._max_length)
        batch.targets = mask_targets(self._task, batch.input_ids, self._mask)
        return batch

    def outputs(self, model: Any, batch: Batch) -> torch.Tensor:
        return outputs_of(self._task, model, batch)
