"""A model directory, ready to answer; and its scores on labelled data."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count, islice
from pathlib import Path
from typing import Any, cast, overload

import torch

from bertine.data.store import is_store
from bertine.datasets.labelled import read_evaluation
from bertine.datasets.readers import Sets
from bertine.datasets.reading import Reading
from bertine.errors import BertineError
from bertine.files import check_replaceable
from bertine.inference.agreement import answer_agreement
from bertine.inference.answering import Answering
from bertine.inference.compute.choosing import PrecisionCheck, check_precision
from bertine.inference.compute.engine import Engine
from bertine.inference.compute.running import Computing
from bertine.inference.compute.samples import sample_inputs
from bertine.inference.evaluate import add_metrics, evaluate_examples
from bertine.inference.explaining.attribution import LEAVE_ONE_OUT
from bertine.inference.explaining.explainer import Explainer
from bertine.inference.explaining.explanation import Explanation
from bertine.inference.files.given_texts import (
    Single,
    TextOrDict,
    checked_texts,
    is_one,
    with_names,
)
from bertine.inference.heldout import evaluate_store
from bertine.inference.seen_in_training import seen_note
from bertine.modeldir import CONFIG, LoadedModel, load_model, save_model
from bertine.models.model import Model
from bertine.models.precision import resolve_device, resolve_precision, trained_precision
from bertine.names import AnswerPrecision, ExplanationMethod
from bertine.options.answering import EvaluateOptions
from bertine.options.types import check_types
from bertine.options.verbs import takes_options
from bertine.records.examples import Examples
from bertine.tables.given import TableLike, as_data, as_table, is_frame
from bertine.tasks import TASKS, task_class
from bertine.tasks.answer import Answers
from bertine.tasks.base import Features, Task
from bertine.tasks.baseline_scores import baseline_lines
from bertine.tasks.options import TableOptions
from bertine.tasks.report import MAJORITY, ClassificationReport, EvaluationReport
from bertine.terminal.console import progress, say, visible_list
from bertine.terminal.shown import Shown
from bertine.text.tokenizer import Tokenizer

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
        self.load_lines: list[str] = []
        self.training: dict[str, Any] = {}

    @classmethod
    @check_types
    def load(
        cls,
        model_dir: str | Path,
        device: str | None = None,
        precision: AnswerPrecision = "auto",
        *,
        threads: int | None = None,
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
            loaded: what has been read of the folder already (its model is taken, not copied).

        Raises:
            BertineError: not a model directory, no task in it, an unknown device or precision.
        """
        where = resolve_device(device)
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
                "model on a token store"
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
            samples = sample_inputs(loaded.tokenizer, task.max_length)
            engine = Engine(model, precision=precision, threads=threads, samples=samples)
        predictor = cls(model, loaded.tokenizer, task, dtype=dtype, engine=engine)
        predictor.load_lines = loaded.report.lines()
        predictor.training = dict(loaded.task.training)
        return predictor

    @classmethod
    def opened(
        cls,
        model: Predictor | Path | str,
        device: str | None,
        precision: AnswerPrecision,
        threads: int | None = None,
    ) -> Predictor:
        """`model` if it is one already; else :meth:`load` it and say what was loaded."""
        if isinstance(model, Predictor):
            return model
        predictor = cls.load(model, device, precision, threads=threads)
        for line in predictor.lines():
            say(line)
        return predictor

    @classmethod
    def for_scores(
        cls, model: Predictor | Path | str, device: str | None, precision: AnswerPrecision
    ) -> Predictor:
        """:meth:`opened` for scoring: ``"auto"`` is the precision the model was trained in, so that
        a score is the model's and not that of a faster approximation."""
        if isinstance(model, Predictor):
            return model
        if precision != "auto":
            return cls.opened(model, device, precision)
        loaded = load_model(model)
        training = {} if loaded.task is None else loaded.task.training
        as_trained = trained_precision(training, resolve_device(device))
        predictor = cls.load(model, device, as_trained, loaded=loaded)
        for line in predictor.lines():
            say(line)
        return predictor

    def lines(self) -> list[str]:
        """What was loaded, what it computes in, and for how many sample inputs that gives the
        answers of fp32 (some dozen texts are computed for it, unless it is fp32)."""
        lines = [*self.load_lines, *(self.engine.lines() if self.engine else [])]
        check = self.precision_check
        if check is not None and check.precision in check.differences:
            exact = Predictor(self.model, self.tokenizer, self.task)
            said = answer_agreement(self.task, self.tokenizer, self.predict, exact.predict)
            lines[-1] += f": {said}"
        return lines

    def shown_lines(self) -> list[str]:
        """What it answers, and where it computes; nothing is computed for it."""
        info = self.task.task_info()
        return [
            f"Predictor: {info.name} from {visible_list(self.task.text_columns)}, at most "
            f"{self.task.max_length} pieces",
            *(
                f"labels ({len(info.labels)}): {visible_list(info.labels[:20])}"
                + (", …" if len(info.labels) > 20 else "")
                for _ in info.labels[:1]
            ),
            f"computes in {str(self.dtype).removeprefix('torch.')}",
        ]

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
        """What answers depend on: hashes of weights and tokenizer, the task, the precision. Takes
        about a third of a second for bert-base."""
        return {
            "weights": self.model.fingerprint(),
            "tokenizer": self.tokenizer.fingerprint,
            "task": self.task.task_info().to_dict(),
            "precision": str(self.dtype).removeprefix("torch."),
        }

    @property
    def precision_check(self) -> PrecisionCheck | None:
        """How far outputs are from fp32, and why this precision was chosen. None if it is fp32,
        or if there is no engine."""
        return None if self.engine is None else self.engine.check

    @overload
    def __call__(self, texts: Single) -> Any: ...
    @overload
    def __call__(self, texts: Sequence[TextOrDict]) -> list[Any]: ...
    def __call__(self, texts: Sequence[TextOrDict] | TextOrDict) -> Any:
        """The same as :meth:`predict`."""
        return self.predict(texts)

    @overload
    def predict(self, texts: Single) -> Any: ...
    @overload
    def predict(self, texts: Sequence[TextOrDict]) -> list[Any]: ...
    def predict(self, texts: Sequence[TextOrDict] | TextOrDict) -> Any:
        """Answer each text, or each pair of texts, in their order; one string or dictionary gets
        one answer, a list of them a list.

        An answer is a
        :class:`~bertine.tasks.texts.classification.Prediction`, of a regression a
        :class:`~bertine.tasks.texts.regression.Score`, of many labels a
        :class:`~bertine.tasks.texts.multi_label.LabelSet`, of multiple choice (what is given and
        the choices in one tuple) a :class:`~bertine.tasks.choice.ChoicePrediction`, of a pair of
        question and context a :class:`~bertine.tasks.spans.decoding.SpanPrediction`, of tagging a
        :class:`~bertine.tasks.tagging.tagged_text.TaggedText` (a text may also be a list of words
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
        if is_frame(texts):
            texts = list(as_table(texts, "texts").rows())
        return Answers(self._answers(texts, 1), cast(Sequence[TextOrDict], texts))

    def _answers(self, texts: Iterable[TextOrDict], first: int) -> list[Any]:
        """:meth:`predict` of a list; in messages the first text has the number `first`."""
        return self.answers_and_features(texts, first)[0]

    def answers_and_features(
        self, texts: Iterable[TextOrDict], first: int = 1
    ) -> tuple[list[Any], Sequence[Features]]:
        """The answers of :meth:`predict`, and the features they were made of."""
        given = checked_texts(map(self.unnamed, texts, count(first)), first)
        lines = range(first, first + len(given))
        return self.run(self.task.examples_of(given, lines=lines))

    def unnamed(self, texts: Any, number: int) -> Any:
        """The texts of a dictionary in the order of the model's columns; anything else as it is."""
        if not isinstance(texts, Mapping):
            return texts
        columns, optional = self.task.columns_in(texts)
        return with_names(texts, columns, optional, number)

    def predict_one(self, text: TextOrDict) -> Any:
        """Answer one text, or one pair: :meth:`predict` for a list of it alone."""
        return self._answers([text], 1)[0]

    def explainer(self) -> Explainer:
        """What explains answers of this model."""
        return Explainer(
            self.model, self.tokenizer, self.task, computing=self.computing, dtype=self.dtype
        )

    def explain(
        self,
        text: TextOrDict,
        *,
        method: ExplanationMethod = LEAVE_ONE_OUT,
        label: str | None = None,
    ) -> Explanation:
        """Say what each word of one text, or of several that belong together, contributes to the
        answer; in a notebook the result shows the text with coloured words.

        Args:
            text: as :meth:`predict_one` takes it; of a tagger a string.
            method: ``"leave-one-out"``: what the score loses without a word; or
                ``"integrated-gradients"``: contributions that add up, from a text of nothing but
                [MASK].
            label: to explain in place of the answer; of a tagger the type of the entities.

        Raises:
            BertineError: an unknown method or label; not as many texts as the model takes; a text
                without words.
        """
        (given,) = checked_texts([self.unnamed(text, 1)])
        parts = (given,) if isinstance(given, str) else given
        return self.explainer().explain(parts, method=method, label=label)

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

    def over(self, columns: Sequence[str]) -> Predictor:
        """The same model over a table with these text columns: of multiple choice with as many
        choices as they are (:meth:`~bertine.tasks.choice.MultipleChoice.over`), of another task
        itself.

        Raises:
            BertineError: of multiple choice: there are fewer than two choices among them.
        """
        task = self.task.over(columns)
        if task is self.task:
            return self
        other = copy.copy(self)
        other.task = task
        return other

    @property
    def answering(self) -> Answering:
        """The steps from examples to answers."""
        return Answering(self.computing, self.task, self.tokenizer, self.dtype)

    def run(self, examples: Examples) -> tuple[list[Any], Sequence[Features]]:
        """Answer `examples`, and the features they were made of (which know what was
        cut)."""
        return self.answering.answer(examples)


@takes_options()
def evaluate(
    model: Predictor | Path | str,
    data: Path | str | TableLike,
    *,
    show_progress: bool = True,
    options: EvaluateOptions,
) -> EvaluationReport:
    """Score a fine-tuned model on a labelled file, or on the validation (else test) file of a
    folder; or a pre-trained one on a token store of held-out text. A model that was trained on a
    task of GLUE takes its official dev files as they are (a model for MNLI both, and AX's too), one
    for spans those of SQuAD.

    Args:
        model: a model directory, or a loaded one.
        data: the file or folder, or the store; or a table in memory, as for `finetune`.
        show_progress: on stderr.
        options: what the other arguments say; a loaded model keeps its device and precision.

    Returns:
        The scores. Its notes begin by saying so if the model was trained on these examples.

    Raises:
        BertineError: no such model or data, a missing column, a label that the model does not
            know; `worst` is below 0; `worst` or `baselines` is given for a token store.
    """
    reading = Reading.of(
        options,
        glue_task=None,
        document_context=False,
        split_seed=None,
        options=TableOptions(),
        limits=None,
    )
    device, precision, worst = options.device, options.precision, options.worst
    data = as_data(data)
    if isinstance(data, str | Path) and not isinstance(model, Predictor) and is_store(Path(data)):
        for name, wanted in (("worst", worst), ("baselines", options.baselines)):
            if wanted:
                raise BertineError(
                    f"{data}: is a token store, which has no labels; leave out {name}"
                )
        for name in reading.given():
            raise BertineError(
                f"{data}: is a token store, which is read as it is; leave out {name}"
            )
        return evaluate_store(
            model, data, device=device, precision=precision, show_progress=show_progress
        )
    predictor = Predictor.for_scores(model, device, precision)
    sets = read_evaluation(predictor.task, data, reading)
    predictor = predictor.over(next(iter(sets.values())).text_columns)
    report = evaluate_sets(predictor, sets, show_progress=show_progress, worst=worst)
    if seen := seen_note(predictor.training, next(iter(sets.values()))):
        report.notes.insert(0, seen)
    if options.baselines:
        report.notes.extend(_baseline_notes(predictor, sets, report))
    return report


def _baseline_notes(predictor: Predictor, sets: Sets, report: EvaluationReport) -> list[str]:
    """The table of the baselines beside the model's scores, or why there is none."""
    from bertine.inference.baselines.again import baselines_again

    dtype = torch.bfloat16 if predictor.dtype == torch.bfloat16 else torch.float32
    packed = predictor.engine is not None  # computes on a CPU
    device = torch.device("cpu") if packed else next(predictor.model.parameters()).device
    try:
        scores = baselines_again(predictor.task, predictor.training, sets, dtype, device)
    except BertineError as error:
        return [f"no baselines: {error}"]
    judged = predictor.task.task_info().metrics or (predictor.task.primary_metric,)
    return baseline_lines(report.metrics, judged, scores)


def evaluate_sets(
    predictor: Predictor, sets: Sets, *, show_progress: bool, worst: int = 0
) -> EvaluationReport:
    """Score a fine-tuned model on the sets of examples that
    :func:`~bertine.datasets.labelled.read_evaluation` has read: the report on the first, with the
    metrics of the others. `worst` as for :func:`evaluate`, of the first.

    Raises:
        BertineError: a label that the model does not know, or no examples.
    """
    made = {
        word: predictor.task.featurize(examples, predictor.tokenizer)
        for word, examples in sets.items()
    }
    reports: dict[str, EvaluationReport] = {}
    with progress(show=show_progress) as bar:
        job = bar.add_task("evaluate", total=sum(map(len, made.values())))
        for word, examples in sets.items():
            reports[word] = evaluate_examples(
                predictor.computing,
                predictor.task,
                examples,
                predictor.tokenizer,
                features=made[word],
                dtype=predictor.dtype,
                on_batch=lambda done: bar.advance(job, done),
                worst=0 if reports else worst,
            )
    (_, report), *others = reports.items()
    if isinstance(report, ClassificationReport):
        report.training_majority = predictor.training.get(MAJORITY)
    for word, other in others:
        add_metrics(report, word, other)
    return report
