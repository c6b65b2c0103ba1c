"""Load a fine-tuned model and answer texts with it: :class:`Predictor`."""

from __future__ import annotations

import copy
import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, overload

import numpy as np

from bertine.core.console import Shown, log_all, visible_list
from bertine.core.cpu import cores
from bertine.core.errors import BertineError
from bertine.core.files import check_replaceable
from bertine.core.model_folders import CONFIG
from bertine.core.names import LEAVE_ONE_OUT, AnswerPrecision, ExplanationMethod, later, option
from bertine.core.text import Index
from bertine.corpora.batch import restore_order, token_budget_batches
from bertine.data.examples import Examples
from bertine.inference.rows import (
    Single,
    Text,
    TextOrDict,
    checked_texts,
    is_one,
    several,
)
from bertine.options.inference import DecisionOptions
from bertine.options.verbs import check_types
from bertine.tasks import TASKS, task_of_model
from bertine.tasks.answer import Answer, Answers
from bertine.tasks.base import Features, Task, inputs_of, padded
from bertine.tasks.calibration import NO_ANSWER, Conformal, Costs
from bertine.tasks.drift import Reader, Reference
from bertine.tasks.familiarity import Familiarity
from bertine.tasks.unknown_text import with_flags
from bertine.tokenization.tokenizer import Tokenizer

if TYPE_CHECKING:
    import torch

    from bertine.hub.export import Runner
    from bertine.hub.model_directory import LoadedModel, load_model, model_folder, save_model
    from bertine.inference.compute import (
        Computing,
        Engine,
        PrecisionCheck,
        check_precision,
        run_batch,
        run_features,
        sample_inputs,
        sample_texts,
        unmeasured_choice,
    )
    from bertine.inference.explaining.explainer import Explainer, Explanation
    from bertine.models.heads import Model
    from bertine.models.precision import resolve_device, resolve_precision, trained_precision
else:
    later(
        globals(),
        "torch hub.model_directory:load_model,model_folder,save_model "
        "inference.compute:Engine,check_precision,run_batch,run_features,sample_inputs "
        "inference.compute:sample_texts,unmeasured_choice inference.explaining.explainer:Explainer "
        "models.precision:resolve_device,resolve_precision,trained_precision",
    )

# Agreement: a model's answers in a lower precision compared with those in fp32, in words.

#: Maps texts to their answers.
Answerer = Callable[[Sequence[Text]], list[Any]]


def answer_agreement(
    task: Task[Any], tokenizer: Tokenizer, answer: Answerer, exact: Answerer
) -> str:
    """Report for how many sample inputs `answer` and `exact` agree, e.g. "the same label as in fp32
    for 20 of 20 sample texts". For a regression: the largest difference of the scores.

    Args:
        task: the task of the model, which defines its inputs.
        tokenizer: the tokenizer of the model; some samples are drawn from its vocabulary.
        answer: a predictor in the lower precision.
        exact: the same model in fp32.
    """
    inputs = inputs_of(sample_texts(tokenizer), len(task.text_columns))
    ours, theirs = answer(inputs), exact(inputs)
    kind: type[Answer] = type(theirs[0])
    return kind.agreement(ours, theirs)


# Pipeline: the only path from examples to answers: features, the model's outputs, predictions.


@dataclass(frozen=True)
class PreparedExamples:
    """Examples and their features.

    Attributes:
        examples: the N examples.
        features: one or more features of each example, in their order.
    """

    examples: Examples[Any]
    features: Sequence[Features]

    @property
    def costs(self) -> list[int]:
        """The number of tokens of each feature."""
        return [len(feature.input_ids) for feature in self.features]

    @property
    def pieces_cut(self) -> list[int]:
        """The number of pieces of each example that the model does not read."""
        cut = [0] * len(self.examples)
        for feature in self.features:
            cut[feature.row] += feature.num_truncated
        return cut


@dataclass(eq=False, repr=False)
class Pipeline:
    """A model with a task: the three steps that training, evaluation, prediction and the server
    share.

    Attributes:
        computing: the model, or an engine made from it.
        task: defines the outputs and the decision on answers.
        tokenizer: the tokenizer of the model.
        dtype: the type in which a model computes; an engine has its own.
        batch_invariant: whether each input is computed separately, so that the bits of its outputs
            do not depend on the others.
    """

    computing: Computing
    task: Task[Any]
    tokenizer: Tokenizer
    dtype: torch.dtype = dataclasses.field(default_factory=lambda: torch.float32)
    batch_invariant: bool = False

    def prepare(
        self, examples: Examples[Any], features: Sequence[Features] | None = None
    ) -> PreparedExamples:
        """Tokenize examples, unless their `features` exist already."""
        if features is None:
            features = self.task.featurize(examples, self.tokenizer)
        return PreparedExamples(examples, features)

    def compute(
        self, features: Sequence[Features], *, on_batch: Callable[[int], None] | None = None
    ) -> list[np.ndarray]:
        """Compute the outputs for `features`; `on_batch` is called with the number of features of
        each finished batch."""
        return self._computed(run_features, features, on_batch=on_batch)

    def compute_batch(self, features: Sequence[Features]) -> list[np.ndarray]:
        """Compute the outputs for features that are one batch already."""
        return self._computed(run_batch, features)

    def _computed(
        self, run: Callable[..., list[np.ndarray]], features: Sequence[Features], **more: Any
    ) -> list[np.ndarray]:
        return run(
            self.computing,
            self.task.answering,
            features,
            pad_id=self.tokenizer.pad_token_id,
            dtype=self.dtype,
            alone=self.batch_invariant,
            **more,
        )

    def finish(self, prepared: PreparedExamples, outputs: Sequence[np.ndarray]) -> list[Any]:
        """Decide on the answer to each example from the outputs for the features, flagged where the
        vocabulary knows little of the text, or the text is empty."""
        predictions = self.task.decode(outputs, prepared.features)
        answers = prepared.examples.answers(predictions)
        texts = [item.texts for item in prepared.examples.items]
        return with_flags(answers, texts, prepared.features, self.tokenizer)

    def run(self, examples: Examples[Any]) -> tuple[list[Any], Sequence[Features]]:
        """Prepare, compute and finish: return the answers to `examples`, and the features, which
        record what was cut."""
        prepared = self.prepare(examples)
        return self.finish(prepared, self.compute(prepared.features)), prepared.features


#: Texts that :meth:`Predictor.stream` holds: enough to sort by length.
STREAM_TEXTS = 4096


class Predictor(Pipeline, Shown):
    """A fine-tuned model with its tokenizer and its task: a pipeline that is loaded from a folder,
    and takes texts as users have them. It keeps no state between calls, so threads may share it.
    It also has the attributes of a :class:`Pipeline`.

    Attributes:
        model: the model in evaluation mode, on `device`.
        dtype: the type it computes in: torch.float32, torch.bfloat16 or torch.int8.
        engine: the engine that computes on a CPU, whose weights were packed at loading. It shares
            only the word embeddings with `model`, so do not train that: make a predictor of the
            parts instead. None on a GPU, and if the predictor was made of parts in memory: then the
            model itself computes.
        load_lines: the four lines about the tensors that were loaded (none if it was made of parts
            in memory).
        training: facts of the training from the model directory, for information.
    """

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer,
        task: Task[Any],
        *,
        dtype: torch.dtype | None = None,
        engine: Engine | None = None,
    ) -> None:
        self.model, self.engine = model.eval(), engine
        dtype = (dtype or torch.float32) if engine is None else engine.backbone.dtype
        super().__init__(engine or model, task, tokenizer, dtype)
        self.load_lines: list[str] = []
        self.training: dict[str, Any] = {}
        self.folder: Path | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a pickle or a copy: of the engine only its precision."""
        engine = self.engine and (self.engine.precision, self.engine.threads)
        return {**self.__dict__, "engine": engine, "computing": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if state["engine"] is not None:
            self.engine = _engine(self.model, self.tokenizer, self.task, *state["engine"])
        self.computing = self.engine or self.model

    @classmethod
    @check_types
    def load(
        cls,
        model_dir: str | Path,
        device: str | None = None,
        precision: AnswerPrecision = "auto",
        *,
        threads: int | None = None,
        batch_invariant: bool = False,
        loaded: LoadedModel | None = None,
    ) -> Predictor:
        """Load a model directory written by ``bertine finetune``, or by transformers for sequence
        or token classification; or a pre-trained model whose head answers for pairs
        (:class:`~bertine.tasks.classification.SentencePairs`).

        Args:
            model_dir: the folder.
            device: ``"cpu"``, ``"cuda"`` or ``"cuda:1"``; None: the GPU if there is one.
            precision: ``"auto"``, ``"fp32"``, ``"bf16"``, or on a CPU ``"int8"``. There ``"auto"``
                is the fastest whose outputs a check finds close to those in fp32
                (:attr:`precision_check`); on a GPU it is bf16 where that is fast.
            threads: number of threads on a CPU; None: the fastest number, measured.
            batch_invariant: compute each text separately, so that the bits of its answer do not
                depend on other texts; slower. ``"auto"`` is then fp32, and threads are not
                measured.
            loaded: the folder, already loaded (its model is used, not copied).

        Raises:
            BertineError: not a model directory, no task in it, an unknown device or precision.
        """
        where = resolve_device(device)
        if batch_invariant:
            precision, threads = unmeasured_choice(precision, threads)
        packed = where.type == "cpu"
        if packed:
            check_precision(precision)
            dtype = torch.float32
        elif precision == "int8":
            raise BertineError("precision 'int8' is for the CPU; choose bf16 or fp32")
        else:
            dtype = resolve_precision(precision, where)
        if loaded is None:
            loaded = load_model(model_dir)
        task = task_of_model(loaded.task, loaded.model)
        if task is None:
            raise _no_task(model_dir, loaded)
        missing = set(task.heads(loaded.config)) - set(loaded.model.heads)
        if missing:
            raise BertineError(
                f"{model_dir}: bertine.json names the task {task.name!r}, but the weights lack "
                f"its head ({', '.join(sorted(missing))})"
            )
        model = loaded.model.to(where).eval()
        engine = None
        if packed:
            engine = _engine(model, loaded.tokenizer, task, precision, threads)
        predictor = cls(model, loaded.tokenizer, task, dtype=dtype, engine=engine)
        predictor.batch_invariant = batch_invariant
        predictor.load_lines = loaded.report.lines()
        predictor.training = {} if loaded.task is None else dict(loaded.task.training)
        predictor.folder = model_folder(model_dir)
        return predictor

    @classmethod
    def opened(
        cls,
        model: Predictor | Path | str,
        device: str | None,
        precision: AnswerPrecision,
        **others: Any,
    ) -> Predictor:
        """Return `model` if it is a predictor already; else :meth:`load` it and print what was
        loaded."""
        if isinstance(model, Predictor):
            return model
        predictor = cls.load(model, device, precision, **others)
        log_all(predictor.lines())
        return predictor

    @classmethod
    def for_scores(
        cls,
        model: Predictor | Path | str,
        device: str | None,
        precision: AnswerPrecision,
        *,
        loaded: LoadedModel | None = None,
    ) -> Predictor:
        """Open a predictor like :meth:`opened`, for scoring: ``"auto"`` is the precision in which
        the model was trained, so that a score is the model's and not that of a faster
        approximation. `loaded` is the folder, already loaded.

        Raises:
            BertineError: the model was not fine-tuned.
        """
        if isinstance(model, Predictor):
            return model
        loaded = loaded or load_model(model)
        if loaded.task is None or loaded.task.name not in TASKS:
            raise _no_task(model, loaded)
        if precision != "auto":
            return cls.opened(model, device, precision, loaded=loaded)
        training = loaded.task.training
        as_trained = trained_precision(training, loaded.model, resolve_device(device))
        return cls.opened(model, device, as_trained, loaded=loaded)

    def lines(self) -> list[str]:
        """Return lines on what was loaded, the precision, and for how many sample inputs that gives
        the answers of fp32 (some dozen texts are computed for it, unless it is fp32)."""
        lines = [*self.load_lines, *(self.engine.lines() if self.engine else [])]
        check = self.precision_check
        if check is not None and check.precision in check.differences:
            exact = Predictor(self.model, self.tokenizer, self.task)
            agreement = answer_agreement(self.task, self.tokenizer, self.predict, exact.predict)
            lines[-1] += f": {agreement}"
        return lines

    def shown_lines(self) -> list[str]:
        """Return lines on its answers and where it computes; nothing is computed for them."""
        info = self.task.task_info()
        lines = [
            f"Predictor: {info.name} from {visible_list(self.task.text_columns)}, at most "
            f"{self.task.max_length} pieces"
        ]
        if info.labels:
            more = ", …" if len(info.labels) > 20 else ""
            lines.append(f"labels ({len(info.labels)}): {visible_list(info.labels[:20])}{more}")
        return [*lines, f"computes in {str(self.dtype).removeprefix('torch.')}"]

    @property
    def labels(self) -> list[str]:
        """The labels of the task, in the order of the head's outputs; empty if it has none."""
        return list(self.task.task_info().labels)

    def save(self, model_dir: str | Path) -> None:
        """Write model, tokenizer and task as a model directory, which :meth:`load` and transformers
        read; an existing model directory is replaced as a whole.

        Raises:
            BertineError: the folder holds something else, or cannot be written.
        """
        check_replaceable(model_dir, "model directory", lambda folder: (folder / CONFIG).is_file())
        model, task = self.model, self.task
        if task.unsaved:
            # A directory has room only for the head's weights.
            model = copy.deepcopy(model)
            task = task.finished(model, None)
        save_model(model_dir, model, self.tokenizer, task=task.task_info(dict(self.training)))

    def fingerprint(self) -> dict[str, Any]:
        """Return everything that answers depend on: hashes of weights and tokenizer, the task, the
        precision. Takes about a third of a second for bert-base."""
        decided = {
            name: value
            for name in ("abstain_below", "abstain_unfamiliar", "costs", "least_probability")
            if (value := getattr(self.task, name))
        }
        if "costs" in decided:
            decided["costs"] = [decided["costs"].table, decided["costs"].no_answer]
        return {
            "weights": self.model.fingerprint(),
            "tokenizer": self.tokenizer.fingerprint,
            "task": self.task.task_info().to_dict(),
            "precision": str(self.dtype).removeprefix("torch."),
            **decided,
            **({"batch_invariant": True} if self.batch_invariant else {}),
        }

    @property
    def precision_check(self) -> PrecisionCheck | None:
        """The distance of outputs from fp32, and the reason for the precision. None if it is fp32,
        or if there is no engine."""
        return None if self.engine is None else self.engine.check

    @overload
    def predict(self, texts: Single) -> Any: ...
    @overload
    def predict(self, texts: Iterable[TextOrDict]) -> list[Any]: ...
    def predict(self, texts: Iterable[TextOrDict] | TextOrDict) -> Any:
        """Answer each text, or each pair of texts, in their order; one string or dictionary gets
        one answer, a list of them (or a generator) a list.

        An answer is a :class:`~bertine.tasks.classification.Prediction`, of a regression a
        :class:`~bertine.tasks.whole_text.Score`, of several labels a
        :class:`~bertine.tasks.multi_label.LabelSet`, of multiple choice (the given text and the
        choices in one tuple) a :class:`~bertine.tasks.choice.ChoicePrediction`, of a pair of
        question and context a :class:`~bertine.tasks.span_scores.SpanPrediction`, of tagging a
        :class:`~bertine.tasks.tagged_words.TaggedText` (a text may also be a list of words there).

        A dictionary, a data frame or a dictionary of columns has its texts under the names of the
        model's columns (``question`` and ``context`` for spans; the names in the training file).
        Texts longer than the model's maximum length are cut; contexts are read in windows.

        Raises:
            BertineError: something that is not a text, such as None or NaN; a dictionary lacks a
                column; pairs for a model of single texts, or the other way round.
        """
        if is_one(texts):
            return self.predict_one(cast(TextOrDict, texts))
        examples = several(texts)
        return Answers(self._answers(examples), examples)

    __call__ = predict

    def predict_one(self, text: TextOrDict) -> Any:
        """Answer one text, or one pair: :meth:`predict` for a list of it alone."""
        return self._answers([text])[0]

    def _answers(self, texts: Iterable[TextOrDict], first: int = 0) -> list[Any]:
        """Answer texts; in messages the first one has the index `first`."""
        checked = checked_texts(self.task, texts, first)
        lines = [Index(first + at) for at in range(len(checked))]
        return self.run(self.task.examples_of(checked, lines=lines))[0]

    def explainer(self) -> Explainer:
        """Return the explainer of this model's answers."""
        return Explainer(
            self.model, self.tokenizer, self.task, computing=self.computing, dtype=self.dtype
        )

    def explain(
        self,
        text: TextOrDict,
        *,
        method: ExplanationMethod = LEAVE_ONE_OUT,
        label: str | None = None,
        word: str | None = None,
    ) -> Explanation:
        """Explain how each word of one text, or of several that belong together, contributes to the
        answer; in a notebook the result shows the text with coloured words.

        Args:
            text: a text as for :meth:`predict_one`; for a tagger a string.
            method: ``"leave-one-out"``: the loss of score without a word; or
                ``"integrated-gradients"``: contributions that add up, from a text of only [MASK].
            label: the label to explain in place of the answer; for a tagger the type of the
                entities.
            word: for a tagger: explain the tag of this word alone, at its first place in the text.

        Raises:
            BertineError: an unknown method, label or word; a number of texts that does not fit the
                model; a text without words.
        """
        (example,) = checked_texts(self.task, [text])
        parts = (example,) if isinstance(example, str) else example
        return self.explainer().explain(parts, method=method, label=label, word=word)

    def stream(self, texts: Iterable[TextOrDict], hold: int = STREAM_TEXTS) -> Iterator[Any]:
        """Answer any number of texts, in their order, in bounded memory.

        Args:
            texts: texts that are read as answers are taken, `hold` of them at a time.
            hold: the number of texts that are sorted by length together. A thousand and more leave
                hardly any padding.

        Raises:
            BertineError: see :meth:`predict`; or `hold` is less than 1.
        """
        if is_one(texts):
            raise BertineError("stream takes many texts; predict_one takes one")
        if hold < 1:
            raise BertineError(f"hold is {hold}, but must be at least 1")
        waiting, done = iter(texts), 0
        while part := list(islice(waiting, hold)):
            yield from self._answers(part, done)
            done += len(part)

    @check_types
    def abstaining(self, below: float) -> Predictor:
        """Return the same model with an abstention rule: no answer where the probability is lower
        than `below`; 0: always an answer.

        Raises:
            BertineError: `below` is not between 0 and 1; the task does not choose one of several
                answers.
        """
        if not 0 <= below <= 1:
            raise BertineError(f"{option('abstain_below')} is {below:g}, but must be from 0 to 1")
        if "abstain_below" not in self.task.rules:
            raise BertineError(
                f"{option('abstain_below')} is for models that choose one label, choice or span, "
                f"or mark entities; this one, of the task {self.task.name!r}, does not"
            )
        return self._with(abstain_below=below)

    @check_types
    def covering(self, coverage: float) -> Predictor:
        """Return the same model with sets of labels that contain the right one with the probability
        `coverage` (:mod:`bertine.tasks.calibration`).

        Raises:
            BertineError: `coverage` is not from 0.5 to 0.995; the task does not choose one of
                several answers; the model was fine-tuned with too few validation examples.
        """
        if not 0.5 <= coverage <= 0.995:
            raise BertineError(
                f"{option('coverage')} is {coverage:g}, but must be from 0.5 to 0.995"
            )
        if "coverage" not in self.task.rules:
            raise BertineError(
                f"{option('coverage')} is for models that choose one label or choice, but the task "
                f"is {self.task.name!r}"
            )
        conformal = Conformal.from_facts(self.training.get("conformal"))
        if conformal is None:
            raise BertineError(
                f"{option('coverage')} needs a model that was fine-tuned with 50 validation "
                "examples or more, by this Bertine; bertine.json has no bounds of them"
            )
        least = conformal.bound(coverage)
        return self._with(coverage=coverage, least_probability=least)

    @check_types
    def judging_familiarity(self, abstain_below: float = 0.0) -> Predictor:
        """Return the same model whose answers say how much a text is like the training texts
        (:mod:`bertine.tasks.familiarity`), and abstain where that is lower than `abstain_below`.

        Raises:
            BertineError: `abstain_below` is not between 0 and 1; the task does not choose one label
                of one text; the model has no record of its training texts.
        """
        if not 0 <= abstain_below <= 1:
            raise BertineError(
                f"{option('abstain_unfamiliar')} is {abstain_below:g}, but must be from 0 to 1"
            )
        one = "familiarity" in self.task.rules and len(self.task.text_columns) == 1
        if not (one and hasattr(self.model, "config")):
            raise BertineError(
                f"{option('familiarity', True)} is for models that choose one label of one text; "
                f"this one, of the task {self.task.name!r}, does not, or is an exported one"
            )
        width = self.model.config.hidden_size
        familiarity = Familiarity.from_facts(self.training.get("familiarity"), width)
        if familiarity is None:
            raise BertineError(
                f"{self.folder or 'the model'}: bertine.json has no record of the training texts, "
                f"which {option('familiarity', True)} needs; fine-tune the model again, with 50 "
                "validation examples or more"
            )
        least = 1 / (len(familiarity.held_out) + 1)
        if 0 < abstain_below <= least:
            raise BertineError(
                f"{option('abstain_unfamiliar')} is {abstain_below:g}, but must be above "
                f"{least:.3g}: with so few validation examples no text is less familiar"
            )
        return self._with(familiarity=familiarity, abstain_unfamiliar=abstain_below)

    def recorded(self) -> Reference | None:
        """Return the record of held-out texts with which new ones are compared
        (:mod:`bertine.tasks.drift`); None: the model has none."""
        if not hasattr(self.model, "config"):
            return None  # an exported model
        width = self.model.config.hidden_size
        familiarity = Familiarity.from_facts(self.training.get("familiarity"), width)
        if familiarity is None:
            return None
        reader = Reader(familiarity, self.labels, self.tokenizer.template.added())
        return Reference.from_facts(self.training.get("drift"), reader)

    def by_cost(self, file: Path | str) -> Predictor:
        """Return the same model with decisions by cost: the label of least expected cost.

        Args:
            file: the csv file of the costs (:class:`bertine.tasks.calibration.Costs`).

        Raises:
            BertineError: the task does not choose one label of a text; answers abstain by their
                probability already; the costs cannot be read.
        """
        if "costs" not in self.task.rules:
            raise BertineError(
                f"{option('cost_matrix')} is for models that choose one label of a text, but the "
                f"task is {self.task.name!r}"
            )
        return self._with(costs=Costs.read(file, self.task.labels))

    def deciding(self, options: DecisionOptions) -> Predictor:
        """Return the same model with the decision rules of `options`.

        Raises:
            BertineError: see :meth:`covering`, :meth:`by_cost` and :meth:`abstaining`; or the
                options contradict each other.
        """
        below = getattr(options, "abstain_below", None)
        if below is not None and options.cost_matrix is not None:
            raise BertineError(
                f"{option('abstain_below')} and {option('cost_matrix')} both decide what is left "
                f"open; give the costs of that in a column {NO_ANSWER!r}, and leave the first out"
            )
        predictor = self if below is None else self.abstaining(below)
        if options.cost_matrix is not None:
            predictor = predictor.by_cost(options.cost_matrix)
        if options.coverage is not None:
            predictor = predictor.covering(options.coverage)
        unfamiliar = getattr(options, "abstain_unfamiliar", None)
        if unfamiliar is not None or getattr(options, "familiarity", False):
            predictor = predictor.judging_familiarity(unfamiliar or 0.0)
        return predictor

    def _with(self, **values: Any) -> Predictor:
        """Return the same model with other fields of its task."""
        return self.with_task(dataclasses.replace(cast(Any, self.task), **values))

    def with_task(self, task: Task[Any]) -> Predictor:
        """Return the same model and engine with another task."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__, task=task)
        return other

    def over(self, columns: Sequence[str] | int) -> Predictor:
        """Return the same model over a table with these text columns, or so many of them: for
        multiple choice with one choice for each column
        (:meth:`~bertine.tasks.choice.MultipleChoice.over`), for another task unchanged.

        Raises:
            BertineError: for multiple choice: fewer than two of the columns are choices.
        """
        task = self.task.over(columns)
        return self if task is self.task else self.with_task(task)


def _no_task(folder: Path | str, loaded: LoadedModel) -> BertineError:
    name = "was not fine-tuned" if loaded.task is None else f"is for {loaded.task.name!r}"
    return BertineError(
        f"{folder}: the model {name}, so it has no task to answer for; fine-tune it first (bertine "
        "finetune); of models that were only pre-trained those answer 'bertine predict', on pairs, "
        "that learned which sentence is next or the order of two (BERT, MobileBERT, ALBERT; "
        f"{option('objective', 'mlm-nsp')} or mlm-sop); 'bertine evaluate' scores a pre-trained "
        "model on a token store, and its vectors on pairs of texts"
    )


def _engine(
    model: Model, tokenizer: Tokenizer, task: Task[Any], precision: str, threads: int | None
) -> Engine:
    """Make the engine of a model, compared with the model on texts as long as the task reads."""
    samples = sample_inputs(tokenizer, task.max_length)
    return Engine(model, precision=precision, threads=threads, samples=samples)


# Exported graphs (:class:`bertine.inference.export.ExportedPredictor`).

#: Tokens in a batch of a graph, padding included.
_GRAPH_TOKENS = 4096


def onnx_runner(path: Path) -> Runner:
    """Load an ONNX file to run on the CPU with onnxruntime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    options.intra_op_num_threads = min(cores(), int(wanted)) if wanted.isdigit() else cores()
    # Its threads sleep while they wait: they would take longer to start than a short text takes.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda inputs: session.run(None, dict(inputs))


def graph_outputs(
    run: Runner,
    features: Sequence[Features],
    pad_id: int,
    *,
    alone: bool = False,
    on_batch: Callable[[int], None] | None = None,
) -> list[np.ndarray]:
    """Compute by a graph what ``task.outputs`` returns for each of `features`, in their order; each
    separately if `alone`."""
    most = 1 if alone else _GRAPH_TOKENS
    batches = token_budget_batches([len(item.input_ids) for item in features], most)
    results: list[list[np.ndarray]] = []
    for indices in batches:
        ids, mask, types = padded([features[index] for index in indices], pad_id, 0)
        mask = mask.astype(np.int64)
        first, *others = run({"input_ids": ids, "attention_mask": mask, "token_type_ids": types})
        # Two of [B, T]: start and end of a span. For one number a sequence, [B, 1], the number.
        if others:
            first = np.stack([first, *others], -1)
        results.append(list(first[:, 0] if first.shape[1:] == (1,) else first))
        if on_batch is not None:
            on_batch(len(indices))
    return restore_order(batches, results)
