"""A fine-tuned model, ready to answer."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, cast, overload

import numpy as np
import torch

from bertine.core.console import Shown, logger, visible_list
from bertine.core.errors import BertineError
from bertine.core.files import check_replaceable
from bertine.core.names import AnswerPrecision, ExplanationMethod, option
from bertine.data.examples import Examples
from bertine.hub.modeldir import CONFIG, LoadedModel, load_model, model_folder, save_model
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
from bertine.inference.explaining.target import LEAVE_ONE_OUT
from bertine.inference.rows import (
    Single,
    Text,
    TextOrDict,
    checked_texts,
    is_one,
    several,
    with_names,
)
from bertine.models.heads import Model
from bertine.models.precision import resolve_device, resolve_precision, trained_precision
from bertine.options.inference import DecisionOptions
from bertine.options.verbs import check_types
from bertine.tasks import TASKS, task_class
from bertine.tasks.answer import Answer, Answers
from bertine.tasks.base import Features, Task
from bertine.tasks.calibration import NO_ANSWER, Conformal, Costs
from bertine.tasks.unknown_text import with_flags
from bertine.tokenization.tokenizer import Tokenizer

# Compare a model's answers in a lower precision with those in fp32, in words for people.

#: Texts → their answers.
Answerer = Callable[[Sequence[Text]], list[Any]]


def answer_agreement(
    task: Task[Any], tokenizer: Tokenizer, answer: Answerer, exact: Answerer
) -> str:
    """Say for how many sample inputs `answer` and `exact` agree, e.g. "the same label as in fp32
    for 20 of 20 sample texts". For a regression: how far the scores are apart at most.

    Args:
        task: of the model; says what its inputs are made of.
        tokenizer: of the model; some samples are made of its vocabulary.
        answer: a predictor in the lower precision.
        exact: the same model in fp32.
    """
    inputs = task.sample_inputs(sample_texts(tokenizer))
    ours, theirs = answer(inputs), exact(inputs)
    kind: type[Answer] = type(theirs[0])
    return kind.agreement(ours, theirs)


# The one way from examples to answers: features, the model's outputs, predictions.


@dataclass(frozen=True)
class PreparedExamples:
    """A set of examples and what a model reads of them.

    Attributes:
        examples: N of them.
        features: one or more of each example, in their order.
    """

    examples: Examples[Any]
    features: Sequence[Features]

    @property
    def costs(self) -> list[int]:
        """Tokens of each feature."""
        return [len(feature.input_ids) for feature in self.features]

    @property
    def pieces_cut(self) -> list[int]:
        """Pieces of each example that the model does not read."""
        cut = [0] * len(self.examples)
        for feature in self.features:
            cut[feature.row] += feature.num_truncated
        return cut


@dataclass(frozen=True)
class Pipeline:
    """A model with a task, which answers. Training, evaluation, prediction and the server all go
    through its three steps.

    Attributes:
        computing: the model, or an engine made of it.
        task: says what is computed and how it is decided.
        tokenizer: of the model.
        dtype: that a model computes in; an engine has its own.
        alone: whether each input is computed by itself, and its outputs have the same bits
            whatever others there are.
    """

    computing: Computing
    task: Task[Any]
    tokenizer: Tokenizer
    dtype: torch.dtype = torch.float32
    alone: bool = False

    def prepare(
        self, examples: Examples[Any], features: Sequence[Features] | None = None
    ) -> PreparedExamples:
        """Tokenize examples, unless their `features` have been made before."""
        if features is None:
            features = self.task.featurize(examples, self.tokenizer)
        return PreparedExamples(examples, features)

    def compute(
        self,
        features: Sequence[Features],
        *,
        max_tokens: int | None = None,
        on_batch: Callable[[int], None] | None = None,
    ) -> list[np.ndarray]:
        """Compute the outputs for `features`; the arguments are those of
        :func:`~bertine.inference.compute.run_features`."""
        return run_features(
            self.computing,
            self.task,
            features,
            pad_id=self.tokenizer.pad_token_id,
            dtype=self.dtype,
            max_tokens=max_tokens,
            alone=self.alone,
            on_batch=on_batch,
        )

    def compute_batch(self, features: Sequence[Features]) -> list[np.ndarray]:
        """Compute the outputs for features that are one batch already."""
        pad_id = self.tokenizer.pad_token_id
        return run_batch(
            self.computing,
            self.task,
            features,
            pad_id=pad_id,
            dtype=self.dtype,
            alone=self.alone,
        )

    def finish(self, prepared: PreparedExamples, outputs: Sequence[np.ndarray]) -> list[Any]:
        """Decide: outputs for the features → the answer to each example, flagged where the
        vocabulary knows little of the text, or there is none."""
        predictions = self.task.decode(outputs, prepared.features)
        answers = self.task.answers(prepared.examples, predictions)
        texts = [item.texts for item in prepared.examples.items]
        return with_flags(answers, texts, prepared.features, self.tokenizer)

    def answer(self, examples: Examples[Any]) -> tuple[list[Any], Sequence[Features]]:
        """Prepare, compute and finish; return the answers and the features."""
        prepared = self.prepare(examples)
        return self.finish(prepared, self.compute(prepared.features)), prepared.features


#: Texts that :meth:`Predictor.stream` holds: enough to sort by length.
STREAM_TEXTS = 4096


class Predictor(Shown):
    """A fine-tuned model, its tokenizer and its task, ready to answer. Holds no state between
    calls, so threads may share it.

    Attributes:
        model: in evaluation mode, on `device`.
        tokenizer: of the model.
        task: what the model was trained to do.
        dtype: the type it computes in, torch.float32, torch.bfloat16 or torch.int8.
        engine: what computes on a CPU, its weights packed when it was loaded. It shares the word
            embeddings with `model` and nothing else, so do not train that: make a predictor of the
            parts instead. None on a GPU, and when it was made of parts in memory: then the model
            itself computes.
        load_lines: the four lines about the tensors that were loaded (none when it was made of
            parts in memory).
        training: facts of the training that the model directory tells, for the reader.
    """

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer,
        task: Task[Any],
        *,
        dtype: torch.dtype = torch.float32,
        engine: Engine | None = None,
    ) -> None:
        self.model = model.eval()
        self.tokenizer, self.task, self.engine = tokenizer, task, engine
        self.dtype = dtype if engine is None else engine.backbone.dtype
        self.batch_invariant = False
        self.load_lines: list[str] = []
        self.training: dict[str, Any] = {}
        self.folder: Path | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return what a pickle or a copy is made of: of the engine its precision."""
        engine = self.engine and (self.engine.precision, self.engine.threads)
        return {**self.__dict__, "engine": engine}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if state["engine"] is not None:
            precision, threads = state["engine"]
            self.engine = _engine(self.model, self.tokenizer, self.task, precision, threads)

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
        """Read a model directory that ``bertine finetune``, or transformers for sequence or token
        classification, has written.

        Args:
            model_dir: the folder.
            device: ``"cpu"``, ``"cuda"`` or ``"cuda:1"``; None: the GPU if there is one.
            precision: ``"auto"``, ``"fp32"``, ``"bf16"``, or on a CPU ``"int8"``. There ``"auto"``
                is the fastest whose outputs a check finds close to those in fp32
                (:attr:`precision_check`); on a GPU it is bf16 where that is fast.
            threads: number of threads on a CPU; None: the fastest number, measured.
            batch_invariant: compute each text by itself, so that its answer has the same bits
                whatever others there are; slower. ``"auto"`` is then fp32, and threads are not
                measured.
            loaded: what has been read of the folder already (its model is taken, not copied).

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
        if loaded.task is None or loaded.task.name not in TASKS:
            name = "was not fine-tuned" if loaded.task is None else f"is for {loaded.task.name!r}"
            raise BertineError(
                f"{model_dir}: the model {name}, so it has no task to answer for; "
                "fine-tune it first (bertine finetune); 'bertine evaluate' scores a pre-trained "
                "model on a token store, and its vectors on pairs of texts"
            )
        task = task_class(loaded.task.name).from_info(loaded.task, loaded.config)
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
        predictor.training = dict(loaded.task.training)
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
        """Return `model` if it is one already; else :meth:`load` it and say what was loaded."""
        if isinstance(model, Predictor):
            return model
        predictor = cls.load(model, device, precision, **others)
        for line in predictor.lines():
            logger.info(line)
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
        """Do as :meth:`opened` for scoring: ``"auto"`` is the precision the model was trained in,
        so that a score is the model's and not that of a faster approximation. `loaded` is what has
        been read of the folder already."""
        if isinstance(model, Predictor):
            return model
        if precision != "auto":
            return cls.opened(model, device, precision, loaded=loaded)
        loaded = loaded or load_model(model)
        training = {} if loaded.task is None else loaded.task.training
        as_trained = trained_precision(training, loaded.model, resolve_device(device))
        return cls.opened(model, device, as_trained, loaded=loaded)

    def lines(self) -> list[str]:
        """Return what was loaded, what it computes in, and for how many sample inputs that gives
        the answers of fp32 (some dozen texts are computed for it, unless it is fp32)."""
        lines = [*self.load_lines, *(self.engine.lines() if self.engine else [])]
        check = self.precision_check
        if check is not None and check.precision in check.differences:
            exact = Predictor(self.model, self.tokenizer, self.task)
            agreement = answer_agreement(self.task, self.tokenizer, self.predict, exact.predict)
            lines[-1] += f": {agreement}"
        return lines

    def shown_lines(self) -> list[str]:
        """Return what it answers, and where it computes; nothing is computed for it."""
        info = self.task.task_info()
        lines = [
            f"Predictor: {info.name} from {visible_list(self.task.text_columns)}, at most "
            f"{self.task.max_length} pieces"
        ]
        if info.labels:
            more = ", …" if len(info.labels) > 20 else ""
            lines.append(f"labels ({len(info.labels)}): {visible_list(info.labels[:20])}{more}")
        return [*lines, f"computes in {str(self.dtype).removeprefix('torch.')}"]

    def save(self, model_dir: str | Path) -> None:
        """Write model, tokenizer and task as a model directory, which :meth:`load` and
        transformers read; a model directory that is there is replaced as a whole.

        Raises:
            BertineError: the folder holds something else, or cannot be written.
        """
        check_replaceable(model_dir, "model directory", lambda folder: (folder / CONFIG).is_file())
        model, task = self.model, self.task
        if task.unsaved:
            # A directory has no place for it but the head's weights.
            model = copy.deepcopy(model)
            task = task.finished(model, None)
        save_model(model_dir, model, self.tokenizer, task=task.task_info(dict(self.training)))

    @property
    def computing(self) -> Computing:
        """What computes: the engine, or the model itself."""
        return self.engine or self.model

    def fingerprint(self) -> dict[str, Any]:
        """Return what answers depend on: hashes of weights and tokenizer, the task, the precision.
        Takes about a third of a second for bert-base."""
        decided = {
            name: value
            for name in ("abstain_below", "costs", "least_probability")
            if (value := getattr(self.task, name, None))
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
        """How far outputs are from fp32, and why this precision was chosen. None if it is fp32,
        or if there is no engine."""
        return None if self.engine is None else self.engine.check

    @overload
    def predict(self, texts: Single) -> Any: ...
    @overload
    def predict(self, texts: Iterable[TextOrDict]) -> list[Any]: ...
    def predict(self, texts: Iterable[TextOrDict] | TextOrDict) -> Any:
        """Answer each text, or each pair of texts, in their order; one string or dictionary gets
        one answer, a list of them (or a generator) a list.

        An answer is a
        :class:`~bertine.tasks.classification.Prediction`, of a regression a
        :class:`~bertine.tasks.whole_text.Score`, of many labels a
        :class:`~bertine.tasks.multi_label.LabelSet`, of multiple choice (what is given and
        the choices in one tuple) a :class:`~bertine.tasks.choice.ChoicePrediction`, of a pair of
        question and context a :class:`~bertine.tasks.span_scores.SpanPrediction`, of tagging a
        :class:`~bertine.tasks.tagged_words.TaggedText` (a text may also be a list of words
        there).

        A dictionary has its texts under the names of the model's columns (``question`` and
        ``context`` for spans; the names in the training file); so has a data frame or a dictionary
        of columns. Texts longer than the model's
        maximum length are cut; contexts are read in windows.

        Raises:
            BertineError: something that is not a text, such as None or NaN; a dictionary lacks a
                column; pairs for a model of single texts, or the other way round.
        """
        if is_one(texts):
            return self._answers([cast(TextOrDict, texts)], 1)[0]
        examples = several(texts)
        return Answers(self._answers(examples, 1), examples)

    __call__ = predict

    def _answers(self, texts: Iterable[TextOrDict], first: int) -> list[Any]:
        """Do as :meth:`predict` for a list; in messages the first text has the number `first`."""
        return self.answers_and_features(texts, first)[0]

    def answers_and_features(
        self, texts: Iterable[TextOrDict], first: int = 1
    ) -> tuple[list[Any], Sequence[Features]]:
        """Return the answers of :meth:`predict`, and the features they were made of."""
        unnamed = (self.unnamed(text, f"input:{at}") for at, text in enumerate(texts, first))
        checked = checked_texts(unnamed, first)
        lines = range(first, first + len(checked))
        return self.run(self.task.examples_of(checked, lines=lines))

    def unnamed(self, texts: Any, where: str) -> Any:
        """Return the texts of a dictionary in the order of the model's columns; anything else as it
        is. In messages the dictionary is `where`."""
        if not isinstance(texts, Mapping):
            return texts
        columns, optional = self.task.columns_in(texts)
        return with_names(texts, columns, optional, where)

    def predict_one(self, text: TextOrDict) -> Any:
        """Answer one text, or one pair: :meth:`predict` for a list of it alone."""
        return self._answers([text], 1)[0]

    def explainer(self) -> Explainer:
        """Return what explains answers of this model."""
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
        """Say what each word of one text, or of several that belong together, contributes to the
        answer; in a notebook the result shows the text with coloured words.

        Args:
            text: as :meth:`predict_one` takes it; of a tagger a string.
            method: ``"leave-one-out"``: what the score loses without a word; or
                ``"integrated-gradients"``: contributions that add up, from a text of nothing but
                [MASK].
            label: to explain in place of the answer; of a tagger the type of the entities.
            word: of a tagger: explain the tag of this word alone, at its first place in the text.

        Raises:
            BertineError: an unknown method, label or word; not as many texts as the model takes; a
                text without words.
        """
        (example,) = checked_texts([self.unnamed(text, "input:1")])
        parts = (example,) if isinstance(example, str) else example
        return self.explainer().explain(parts, method=method, label=label, word=word)

    def stream(self, texts: Iterable[TextOrDict], hold: int = STREAM_TEXTS) -> Iterator[Any]:
        """Answer for any number of texts, in their order, in bounded memory.

        Args:
            texts: read as answers are taken, `hold` of them at a time.
            hold: texts that are sorted by length together. A thousand and more leave hardly any
                padding.

        Raises:
            BertineError: what :meth:`predict` raises, or `hold` is less than 1.
        """
        if is_one(texts):
            raise BertineError("stream takes many texts; predict_one takes one")
        if hold < 1:
            raise BertineError(f"hold is {hold}, but must be at least 1")
        waiting, done = iter(texts), 0
        while part := list(islice(waiting, hold)):
            yield from self._answers(part, done + 1)
            done += len(part)

    @check_types
    def abstaining(self, below: float) -> Predictor:
        """Return the same model, which leaves its answer open where the probability is lower than
        `below`; 0: nowhere.

        Raises:
            BertineError: it is not between 0 and 1; the task does not choose one of several
                answers.
        """
        if not 0 <= below <= 1:
            raise BertineError(f"{option('abstain_below')} is {below:g}, but must be from 0 to 1")
        if not hasattr(self.task, "abstain_below"):
            raise BertineError(
                f"{option('abstain_below')} is for models that choose one label, choice or span, "
                f"or mark entities, but the task is {self.task.name!r}"
            )
        if self.task.reads_words and not getattr(self.task, "has_entities", False):
            raise BertineError(
                f"{option('abstain_below')} leaves out entities, but the tags of this model mark "
                "none"
            )
        return self._with(abstain_below=below)

    @check_types
    def covering(self, coverage: float) -> Predictor:
        """Return the same model, which also gives sets of labels that hold the right one with the
        probability `coverage` (:mod:`bertine.tasks.calibration`).

        Raises:
            BertineError: it is not from 0.5 to 0.995; the task does not choose one of several
                answers; the model was fine-tuned with too few validation examples.
        """
        if not 0.5 <= coverage <= 0.995:
            raise BertineError(
                f"{option('coverage')} is {coverage:g}, but must be from 0.5 to 0.995"
            )
        if not hasattr(self.task, "least_probability"):
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

    def by_cost(self, file: Path | str) -> Predictor:
        """Return the same model, which gives the label of least expected cost.

        Args:
            file: csv with the costs (:class:`bertine.tasks.calibration.Costs`).

        Raises:
            BertineError: the task does not choose one label of a text; an answer abstains by its
                probability already; what reading the costs raises.
        """
        if not hasattr(self.task, "costs"):
            raise BertineError(
                f"{option('cost_matrix')} is for models that choose one label of a text, but the "
                f"task is {self.task.name!r}"
            )
        return self._with(costs=Costs.read(file, self.task.labels))

    def deciding(self, options: DecisionOptions) -> Predictor:
        """Return the same model, which decides as `options` say.

        Raises:
            BertineError: what :meth:`covering`, :meth:`by_cost` and :meth:`abstaining` raise; the
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
        return predictor

    def _with(self, **values: Any) -> Predictor:
        """Return the same model with other fields of its task."""
        return self._for(dataclasses.replace(cast(Any, self.task), **values))

    def _for(self, task: Task[Any]) -> Predictor:
        """Return the same model and engine with another task."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__, task=task)
        return other

    def over(self, columns: Sequence[str]) -> Predictor:
        """Return the same model over a table with these text columns: of multiple choice with as
        many choices as they are (:meth:`~bertine.tasks.choice.MultipleChoice.over`), of another
        task itself.

        Raises:
            BertineError: of multiple choice: there are fewer than two choices among them.
        """
        task = self.task.over(columns)
        return self if task is self.task else self._for(task)

    def over_pairs(self, columns: tuple[str, str]) -> Predictor:
        """Return the same model over two texts: of a published one that does not say what it reads
        (:attr:`~bertine.core.taskinfo.TaskInfo.text_columns`).

        Raises:
            BertineError: it takes one text alone.
        """
        other = self._with(text_columns=columns)
        other.task.heads(self.model.config)
        return other

    @property
    def answering(self) -> Pipeline:
        """The steps from examples to answers."""
        return Pipeline(
            self.computing, self.task, self.tokenizer, self.dtype, alone=self.batch_invariant
        )

    def run(self, examples: Examples) -> tuple[list[Any], Sequence[Features]]:
        """Answer `examples`, and the features they were made of (which know what was
        cut)."""
        return self.answering.answer(examples)


def _engine(
    model: Model, tokenizer: Tokenizer, task: Task[Any], precision: str, threads: int | None
) -> Engine:
    """Make the engine of a model, compared with it on texts as long as the task reads."""
    samples = sample_inputs(tokenizer, task.max_length)
    return Engine(model, precision=precision, threads=threads, samples=samples)
