"""Tag words, or classify texts, with a frozen model: ``feature_based``.

A BiLSTM reads states that are computed once: those of an encoder (paper, section 5.3: two layers of
768 units over the embeddings, one hidden layer, or several, summed with learned weights or joined),
the layers of an ELMo (Peters et al. 2018), or vectors of words. The training recipe is this
package's own, because BERT's paper gives none: Adam, a rate that falls linearly to 0, dropout 0.5
as usual for BiLSTM taggers (Ma and Hovy 2016). The row of fine-tuning is a run of
:func:`bertine.finetune`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch

from bertine.contrib.elmo.encoder import ElmoEncoder
from bertine.contrib.feature_based.features import (
    BAG_OF_VECTORS,
    FINE_TUNING,
    TABLE,
    WORD_VECTORS,
    ElmoSource,
    EncoderSource,
    FeatureBasedReport,
    StaticSource,
    WordSource,
    chosen_rows,
    read_sets,
    row_of,
)
from bertine.contrib.feature_based.problems import (
    DeviceAndType,
    ExampleStates,
    Problem,
    TaggingProblem,
    TextProblem,
    bag_of_vectors_row,
    train_row,
)
from bertine.contrib.options import BilstmRecipe, FeatureBasedOptions
from bertine.contrib.word2vec.vectors import WordVectors
from bertine.core.console import log_all, logger
from bertine.core.contrib import kind_of_model, registered
from bertine.core.cpu import launched
from bertine.core.errors import BertineError
from bertine.core.files import read_json_object, write_json, write_text
from bertine.core.names import Precision, option
from bertine.core.strict_json import check_shape
from bertine.data.examples import Examples
from bertine.data.in_memory import InMemoryTable
from bertine.hub.model_directory import LoadedModel, load_config, load_model
from bertine.inference.embedding.encoder import EncoderOptions
from bertine.inference.evaluate import evaluate
from bertine.inference.train_overlap import overlap_notes, rows_known_by
from bertine.models.precision import (
    precision_name,
    rates_for,
    resolve_device,
    resolve_precision,
)
from bertine.options.declare import shared_values
from bertine.options.finetuning import FinetuneOptions
from bertine.options.verbs import takes_options
from bertine.tasks.base import Task
from bertine.tasks.tagging import Tagging
from bertine.tasks.whole_text import WholeTextTask
from bertine.training.finetuning.finetune import finetune
from bertine.training.finetuning.setup import fitting
from bertine.training.job_folder import JobFolder

#: The subfolder with the answers of each row.
ANSWERS = "answers"
#: Options that fine-tuning has too, but of which it does not take over the values: two are those of
#: the BiLSTM, and `resume` is given to it by itself.
_OWN = ("dropout", "max_grad_norm", "resume")
#: The λ of ELMo's paper for named entities (appendix).
_ELMO_PENALTY = 0.1
#: Tags for texts: a text is treated as one sentence to get the states of its words; the tags are
#: not used.
_NO_TAGS = ("O", "B", "I")


def _by_name(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings by the names of the user's options; empty if they are something else."""
    try:
        epochs, rate = settings["finetune"]
        return {
            **settings["task"],
            **settings["recipe"],
            "finetune_epochs": epochs,
            "finetune_learning_rate": rate,
            "precision": settings["precision"],
            "weights_fingerprint": settings["weights"],
            **{f"{name}_sentences_fingerprint": v for name, v in settings["sentences"].items()},
        }
    except (AttributeError, LookupError, TypeError, ValueError):
        return {}


_JOB = JobFolder("table", TABLE, own=frozenset({ANSWERS, FINE_TUNING, "states"}), by_name=_by_name)


@takes_options()
def feature_based(
    model: Path | str,
    *,
    data: Path | str,
    out: Path | str,
    options: FeatureBasedOptions,
) -> FeatureBasedReport:
    """Train a BiLSTM on the states of a frozen model.

    It tags words in the ways of BERT's paper (section 5.3, table 7), with fine-tuning for
    comparison; or as in ELMo's, with a mix of the layers; or over vectors of words. Or it does the
    same for texts, with one vector each, the maximum over the words. The table is also written to
    ``out/feature-based.json``, and the answers of each row to ``out/answers``. The taggers and
    classifiers themselves are not kept.

    The states are computed once and kept in ``out/states``, by a hash of everything that they
    depend on.

    Args:
        model: the model directory of an encoder or an ELMo, or vectors of words
            (:func:`~bertine.word2vec`).
        data: as for ``finetune`` of the task; a test file in a folder is scored too.
        out: the folder of the results; the run of fine-tuning is ``out/fine-tuning``.
        options: the values of the other arguments.

    Raises:
        BertineError: an unknown row; what reading the data or the model raises; an option that the
            model or the task does not take; `out` holds results already, or with `resume` those of
            other settings.
    """
    resume = options.resume
    if launched():
        raise BertineError("feature-based is one process; start it without torchrun")
    kind = _kind_of(model)
    _refuse(options, kind)
    static_path = model if kind == "word-vectors" else options.word_vectors
    wanted = chosen_rows(
        options.rows, kind, vectors=static_path is not None, texts=options.task != "tagging"
    )
    static = None if static_path is None else WordVectors.load(static_path)
    folder = Path(out)
    where = resolve_device(options.device)
    max_length = options.max_length
    if kind == "encoder":
        max_length = fitting(max_length, model, load_config(model))
    known = rows_known_by(model) if kind == "encoder" else frozenset()
    task, sets, test_file = read_sets(data, options, max_length, known)
    problem = _problem(task, options, max_length)
    # Before training, so that an unknown label of the test file is reported now, not after hours.
    targets = {name: problem.targets(part) for name, part in sets.items()}
    loaded = None
    if kind == "encoder":
        # States need no head, and some models have none for tags.
        loaded = load_model(model, heads={}, seed=options.seed)
        loaded.model.to(where)
    precision = _precision(options, folder, loaded, where)
    how = DeviceAndType(where, resolve_precision(precision))
    source = _source(model, loaded, kind, problem, static, max_length, how)
    recipe = BilstmRecipe.of(options)
    if recipe.layer_penalty is None:
        recipe = replace(recipe, layer_penalty=_ELMO_PENALTY if kind == "elmo" else 0.0)
    settings = {
        "recipe": _recorded(recipe),
        "task": _without_training(task),
        "finetune": [options.finetune_epochs, options.finetune_learning_rate],
        "precision": precision,
        "weights": source.fingerprint(),
        "sentences": {name: part.fingerprint() for name, part in sets.items()},
    }
    with _JOB.open(folder, settings, resume) as known_table:
        check_shape(known_table, {"rows?": {"*?": {}}}, folder / TABLE)
        results: dict[str, dict[str, Any]] = known_table.get("rows", {})
        own = (WORD_VECTORS, BAG_OF_VECTORS)
        vectors = [] if static is None else list(static.fingerprint())
        for name in own if static is not None else ():
            row = results.get(name)
            if row is not None and row.get("vectors") != vectors:
                raise BertineError(
                    f"{folder / TABLE}: its row {name} was made with other vectors than "
                    f"{static_path}; choose another folder"
                )
        report = FeatureBasedReport({}, problem.metric, folder)
        report.notes += overlap_notes(sets["train"].items, sets["validation"].items, known)
        if kind == "encoder" and source.num_layers < 4:
            report.notes.append(
                f"the encoder has {source.num_layers} layers: the last four are all of them"
            )
        prepared: dict[str, dict[str, ExampleStates]] = {}

        def states_of(source: WordSource) -> dict[str, ExampleStates]:
            """Compute the states of all examples, once for each source."""
            if source.kind not in prepared:
                width = problem.width if isinstance(problem, TextProblem) else 1
                prepared[source.kind] = {
                    name: ExampleStates(
                        part,
                        source.states(problem.sentences(part, source), folder / "states"),
                        targets[name],
                        width,
                    )
                    for name, part in sets.items()
                }
            return prepared[source.kind]

        if any(name not in results for name in wanted if name not in (FINE_TUNING, *own)):
            states_of(source)
        for part in sets.values():
            log_all(part.notes, logger.warning)
        for name in wanted:
            if name in results:
                logger.info(f"{name}: done before")
                report.rows[name] = results[name]
                continue
            logger.info(f"{name} ({wanted.index(name) + 1} of {len(wanted)})")
            answers: dict[str, list[Any]] = {}
            if name == FINE_TUNING:
                assert not isinstance(test_file, InMemoryTable)
                results[name] = _finetuned(
                    model,
                    folder / FINE_TUNING,
                    test_file,
                    options.task,
                    resume=resume,
                    arguments={
                        "data": data,
                        **shared_values(FinetuneOptions, options, but=_OWN),
                        "precision": precision,
                        "max_length": max_length,
                        "epochs": options.finetune_epochs,
                        "learning_rate": options.finetune_learning_rate,
                        "save_best": False,  # as in the paper
                    },
                )
            elif name in own:
                assert static is not None
                if name == BAG_OF_VECTORS:
                    assert isinstance(problem, TextProblem)
                    made, answers = bag_of_vectors_row(static, problem, sets)
                else:
                    parts = states_of(StaticSource(static))
                    made, answers = train_row(name, [0], parts, problem, recipe, how)
                results[name] = made | {"vectors": vectors}
            else:
                layers = row_of(name).layers(source.num_layers)
                results[name], answers = train_row(
                    name, layers, states_of(source), problem, recipe, how
                )
            _write_answers(folder / ANSWERS, name, answers, sets, problem)
            report.rows[name] = results[name]
            write_json(folder / TABLE, {"settings": settings, **report.to_dict(), "rows": results})
    return report


def _kind_of(model: Path | str) -> str:
    """Return the kind of a model: "encoder", "elmo" or "word-vectors".

    Raises:
        BertineError: it is a table of vectors of pieces.
    """
    kind = kind_of_model(model) or "encoder"
    if kind not in ("encoder", "elmo", "word-vectors"):
        raise BertineError(
            f"{model}: is {registered('MODELS')[kind]['title']}, which has a vector for each piece "
            "and none for a word; give vectors of words, an encoder or an ELMo"
        )
    return kind


def _refuse(options: FeatureBasedOptions, kind: str) -> None:
    """Refuse options that the model or the task does not take.

    Raises:
        BertineError: there is one.
    """
    if options.crf and options.task != "tagging":
        raise BertineError(f"{option('crf')} is for tagging, but the task is {options.task}")
    if kind == "encoder":
        return
    for name in ("document_context", "finetune_epochs", "finetune_learning_rate"):
        if name in options.changed():
            raise BertineError(f"{option(name)} is for an encoder, which the model is not")
    if kind == "word-vectors" and options.word_vectors is not None:
        raise BertineError(
            f"{option('word_vectors')} is given, but the model is vectors of words already"
        )


def _problem(task: Task[Any], options: FeatureBasedOptions, max_length: int) -> Problem[Any]:
    if options.task == "tagging":
        return TaggingProblem(cast(Tagging, task), crf=options.crf)
    return TextProblem(cast(WholeTextTask[Any], task), max_length=max_length)


def _precision(
    options: FeatureBasedOptions, folder: Path, loaded: LoadedModel | None, where: torch.device
) -> Precision:
    """Return the precision: measured on an encoder, or read from the table in `folder` if it was
    begun; without an encoder, ``"auto"`` is fp32 on a CPU."""
    if options.resume and options.precision == "auto" and (folder / TABLE).is_file():
        settings = read_json_object(folder / TABLE, lenient=True).get("settings")
        begun = settings.get("precision") if isinstance(settings, dict) else None
        if begun in ("fp32", "bf16"):
            return cast(Precision, begun)
    rates = None if loaded is None else rates_for(options.precision, loaded.model)
    if rates is not None:
        logger.info(rates.line())
    return precision_name(options.precision, where, rates)


def _source(
    model: Path | str,
    loaded: LoadedModel | None,
    kind: str,
    problem: Problem[Any],
    static: WordVectors | None,
    max_length: int,
    how: DeviceAndType,
) -> WordSource:
    """Return the frozen model as a source of word states; an encoder has been `loaded`."""
    if kind == "word-vectors":
        assert static is not None
        return StaticSource(static)
    if kind == "elmo":
        name: Precision = "bf16" if how.dtype == torch.bfloat16 else "fp32"
        options = EncoderOptions(device=str(how.device), precision=name)
        return ElmoSource(ElmoEncoder.load(model, options))
    task = problem.task
    windows = Tagging(_NO_TAGS, max_length=max_length)
    if isinstance(problem, TaggingProblem):
        windows = cast(Tagging, task)
    assert loaded is not None
    return EncoderSource(loaded, windows, how.device, how.dtype)


def _recorded(recipe: BilstmRecipe) -> dict[str, Any]:
    """Return the recipe as JSON, without recently added options that have their former value."""
    values = recipe.values()
    new = {"layer_penalty": 0.0, "crf": False}
    return {name: value for name, value in values.items() if new.get(name, ...) != value}


def _write_answers(
    folder: Path,
    name: str,
    answers: Mapping[str, list[Any]],
    sets: Mapping[str, Examples[Any]],
    problem: Problem[Any],
) -> None:
    """Write the answers of a row, a JSON line for each example, a file for each set."""
    for word, given in answers.items():
        lines = [
            json.dumps(problem.answer_row(item, answer), ensure_ascii=False)
            for item, answer in zip(sets[word].items, given, strict=True)
        ]
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / f"{name}-{word}.jsonl", "".join(f"{line}\n" for line in lines))


def _without_training(task: Task[Any]) -> dict[str, Any]:
    info = task.task_info().to_dict()
    del info["training"]
    return info


def _finetuned(
    model: Path | str,
    out: Path,
    test_file: Path | None,
    task: str,
    *,
    resume: bool,
    arguments: dict[str, Any],
) -> dict[str, Any]:
    """Return the row of fine-tuning."""
    result = finetune(task, model=model, out=out, resume=resume, baselines=False, **arguments)
    row: dict[str, Any] = {"validation": result.metrics, "seconds": result.elapsed}
    if test_file is not None:
        named = {key: arguments[key] for key in ("format", "strict", "tag_scheme", "device")}
        # As for the validation sentences: evaluation by itself might choose 8 bits.
        named["precision"] = arguments["precision"]
        scored = evaluate(result.model, test_file, show_progress=False, **named)
        row["test"] = dict(scored.metrics)
    return row
