"""``feature-based``: tagging with a frozen encoder (paper, section 5.3), the table of its rows.

A two-layer BiLSTM of 768 units reads states of the encoder that are computed once: the embeddings,
one hidden layer, or several, summed with learned weights or joined. Its recipe is ours, for the
paper gives none: Adam, a rate that falls linearly to 0, dropout 0.5 as usual for BiLSTM taggers
(Ma and Hovy 2016). The row of fine-tuning is a run of :func:`bertine.finetune`.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, cast

import numpy as np

from bertine.cores.launch import launched
from bertine.datasets.labelled import read_labelled
from bertine.datasets.reading import Reading
from bertine.errors import BertineError
from bertine.files import read_json_object, write_json
from bertine.inference.evaluate import evaluate
from bertine.inference.word_states import StaticStates, word_states
from bertine.modeldir import load_config, load_model
from bertine.models.model import weights_fingerprint
from bertine.models.precision import precision_name, resolve_device, resolve_precision
from bertine.options.feature_based import BilstmRecipe, FeatureBasedOptions
from bertine.options.names import option
from bertine.options.verbs import takes_options
from bertine.records.conll import WordColumns, find_tagged, read_sentences
from bertine.records.sentences import Sentences
from bertine.tables.given import GivenTable
from bertine.tasks.options import TableOptions
from bertine.tasks.tagging.task import Tagging
from bertine.terminal.console import human_time, say, warn
from bertine.training.feature_based.bilstm_training import TaggedStates, train_row
from bertine.training.feature_based.table import (
    FINE_TUNING,
    ROWS,
    TABLE,
    WORD_VECTORS,
    FeatureBasedReport,
    chosen_rows,
)
from bertine.training.finetuning.finetune import finetune
from bertine.training.finetuning.setup import fitting
from bertine.training.run import refuse_changes
from bertine.word_vectors.vectors import WordVectors

#: Arguments that fine-tuning is given as they are.
_OF_FINETUNE = (
    *("text_columns", "label_column", "format", "strict", "word_column", "tag_column"),
    *("tag_scheme", "document_context", "batch_size", "device", "precision", "seed"),
)


@takes_options()
def feature_based(
    model: Path | str,
    *,
    data: Path | str,
    out: Path | str,
    options: FeatureBasedOptions,
) -> FeatureBasedReport:
    """Tag words with a frozen encoder and a BiLSTM over its states, in the paper's ways (section
    5.3, table 7), beside fine-tuning; the table is also written to ``out/feature-based.json``.

    The states are computed once and kept in ``out/states``, by a hash of all that they depend on.

    Args:
        model: the model directory of the encoder.
        data: tagged words, as for ``finetune("tagging")``; a test file in a folder is scored too.
        out: the folder of the results; the run of fine-tuning is ``out/fine-tuning``.
        options: what the other arguments say.

    Raises:
        BertineError: an unknown row; what reading the data or the model raises; `out` holds
            results already, or with `resume` those of other settings.
    """
    resume, precision, seed = options.resume, options.precision, options.seed
    if launched():
        raise BertineError("feature-based is one process; start it without torchrun")
    wanted = chosen_rows(options.rows)
    static = None if options.word_vectors is None else WordVectors.load(options.word_vectors)
    folder = Path(out)
    where = resolve_device(options.device)
    config = load_config(model)
    max_length = fitting(options.max_length, model, config)
    reading = Reading.of(
        options,
        glue_task=None,
        quotes=None,
        split_seed=None,
        options=TableOptions(),
        limits=None,
    )
    labelled = read_labelled(Tagging.name, data, seed=seed, reading=reading)
    train, validation = labelled.train, labelled.validation
    assert isinstance(train, Sentences)
    assert isinstance(validation, Sentences)
    task = cast(Tagging, labelled.build(max_length))
    sets = {"train": train, "validation": validation}
    test_file = find_tagged(data).test
    if test_file is not None:
        sets["test"] = read_sentences(
            test_file,
            WordColumns.trained_with(train.text_columns, train.label_column),
            scheme=options.tag_scheme if task.has_entities else "plain",
            format=options.format,
            strict=options.strict,
        )
    # An unknown tag of the test file is reported now, and not after hours.
    tags = {name: _tag_ids(task, sentences) for name, sentences in sets.items()}
    recipe = BilstmRecipe.of(options)
    loaded = load_model(model, heads=task.heads(config), seed=seed)
    settings = {
        "recipe": recipe.values(),
        "task": _without_training(task),
        "finetune": [options.finetune_epochs, options.finetune_learning_rate],
        "precision": precision_name(precision, where),
        "weights": weights_fingerprint(loaded.model.backbone),
        "sentences": {name: tagged.fingerprint() for name, tagged in sets.items()},
    }
    results = _begun(folder, settings, resume)
    if static is not None:
        wanted.append(WORD_VECTORS)
        row = results.get(WORD_VECTORS)
        if row is not None and row.get("vectors") != list(static.fingerprint()):
            raise BertineError(
                f"{folder / TABLE}: its row {WORD_VECTORS} was made with other vectors than "
                f"{options.word_vectors}; choose another folder"
            )
    report = FeatureBasedReport({}, "f1" if task.has_entities else "accuracy", folder)
    num_layers = len(config.passes)
    if num_layers < 4:
        report.notes.append(f"the encoder has {num_layers} layers: the last four are all of them")
    dtype = resolve_precision(precision, where)
    prepared: dict[str, TaggedStates] = {}
    if any(name not in results for name in wanted if name in ROWS):
        loaded.model.to(where)
        for name, sentences in sets.items():
            began = time.monotonic()
            states = word_states(
                loaded.model, loaded.tokenizer, task, sentences, folder / "states", dtype=dtype
            )
            prepared[name] = TaggedStates(sentences, states, tags[name])
            took = (
                "found" if states.found else f"computed in {human_time(time.monotonic() - began)}"
            )
            say(f"{sentences.source}: the states of {states.starts[-1]} words: {took}")
    for sentences in sets.values():
        for note in sentences.notes:
            warn(note)
    for name in wanted:
        if name in results:
            say(f"{name}: done before")
        else:
            say(f"{name} ({wanted.index(name) + 1} of {len(wanted)})")
            if name == WORD_VECTORS:
                assert static is not None
                results[name] = train_row(
                    name,
                    [0],
                    _static_sets(static, sets, tags),
                    task,
                    recipe,
                    where,
                    dtype,
                    report.metric,
                ) | {"vectors": list(static.fingerprint())}
            elif name == FINE_TUNING:
                assert not isinstance(test_file, GivenTable)
                results[name] = _finetuned(
                    model,
                    folder / FINE_TUNING,
                    test_file,
                    resume=resume,
                    arguments={
                        "data": data,
                        **{name: getattr(options, name) for name in _OF_FINETUNE},
                        "max_length": max_length,
                        "epochs": options.finetune_epochs,
                        "learning_rate": options.finetune_learning_rate,
                        "save_best": False,  # the paper's way
                    },
                )
            else:
                layers = ROWS[name].layers(num_layers)
                results[name] = train_row(
                    name, layers, prepared, task, recipe, where, dtype, report.metric
                )
        report.rows[name] = results[name]
        write_json(folder / TABLE, {"settings": settings, **report.to_dict(), "rows": results})
    return report


def _static_sets(
    vectors: WordVectors, sets: dict[str, Sentences], tags: dict[str, list[np.ndarray]]
) -> dict[str, TaggedStates]:
    """Return the vectors of the words of each of `sets`, with their tags; say how many words have
    none."""
    tagged = {}
    for name, sentences in sets.items():
        states = StaticStates.of(vectors, sentences)
        say(
            f"{sentences.source}: {states.unknown:,} of {states.starts[-1]:,} words have no "
            "vector: zeros"
        )
        tagged[name] = TaggedStates(sentences, states, tags[name])
    return tagged


def _without_training(task: Tagging) -> dict[str, Any]:
    info = task.task_info().to_dict()
    del info["training"]
    return info


def _begun(folder: Path, settings: dict[str, Any], resume: bool) -> dict[str, dict[str, Any]]:
    """Return the rows that `folder` has, when they may be kept; else none."""
    file = folder / TABLE
    if folder.exists() and not folder.is_dir():
        raise BertineError(f"{folder}: is a file; choose another folder for the results")
    if not file.exists():
        return {}
    if not resume:
        raise BertineError(
            f"{file}: is there already; go on with it by {option('resume', True)}, or choose "
            f"another"
        )
    known = read_json_object(file, lenient=True)
    if not isinstance(known.get("rows"), dict):
        raise BertineError(
            f"{file}: is not a table of feature-based; remove it, or choose another folder"
        )
    before = known.get("settings")
    new = json.loads(json.dumps(settings))  # tuples are lists, as in the file
    refuse_changes(file, "table was begun", _by_name(before), _by_name(new))
    rows: dict[str, dict[str, Any]] = known["rows"]
    return rows


def _by_name(settings: Any) -> dict[str, Any]:
    """Return settings by the names that a user has given them; empty where a file holds something
    else."""
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


def _tag_ids(task: Tagging, sentences: Sentences) -> list[np.ndarray]:
    return [
        np.array(
            [
                task.label_id(tag, sentences.where(item, place), word)
                for place, (tag, word) in enumerate(zip(item.tags or (), item.words, strict=True))
            ],
            dtype=np.int64,
        )
        for item in sentences.items
    ]


def _finetuned(
    model: Path | str,
    out: Path,
    test_file: Path | None,
    *,
    resume: bool,
    arguments: dict[str, Any],
) -> dict[str, Any]:
    """Return the row of fine-tuning."""
    resume = resume and (out / "run.json").exists()
    result = finetune("tagging", model=model, out=out, resume=resume, baselines=False, **arguments)
    row: dict[str, Any] = {"validation": result.metrics, "seconds": result.elapsed}
    if test_file is not None:
        named = {key: arguments[key] for key in ("format", "strict", "tag_scheme", "device")}
        # As the validation sentences were judged: by itself, evaluating may choose 8 bits.
        where = resolve_device(arguments["device"])
        named["precision"] = precision_name(arguments["precision"], where)
        scored = evaluate(result.model, test_file, show_progress=False, **named)
        row["test"] = dict(scored.metrics)
    return row
