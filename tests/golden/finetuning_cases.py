"""Cases of fine-tuning, of answering and of scoring."""

from __future__ import annotations

import csv
import json
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bertine
from golden import made, taken

SETTINGS: dict[str, Any] = {
    "epochs": 2,
    "batch_size": 8,
    "learning_rate": 1e-3,
    "max_length": 48,
    "log_every": 1,
    "device": "cpu",
    "precision": "fp32",
    "seed": 5,
    "frozen": False,
    "baselines": False,
}


def _tables(
    folder: Path, columns: tuple[str, ...], rows: Callable[[str, int], Any], count: int = 24
) -> Path:
    """Write ``train.csv`` and ``dev.csv`` into the new folder `folder`."""
    folder.mkdir()
    for name, size in (("train", count), ("dev", 10)):
        made.write_table(folder / f"{name}.csv", columns, rows(f"{folder.name} {name}", size))
    return folder


def _tuned(folder: Path, task: Any, data: Path, texts: list[Any], **changes: Any) -> dict[str, Any]:
    """Fine-tune a made model; record the run, the model's answers and its scores."""
    model = folder / "model"
    if not model.exists():
        made.write_model(model)
    run = folder / f"run-{data.stem}"
    bertine.finetune(task, model=model, data=data, out=run, **SETTINGS | changes)
    judge = data / "dev.csv" if (data / "dev.csv").exists() else data
    return {
        "run": taken.run(run),
        "answers": taken.answered(run / "model", texts),
        "evaluate": taken.judged(run / "model", judge),
    }


def text(folder: Path) -> dict[str, Any]:
    """Fine-tune on the shop's messages by the paper's protocol, beside the baselines; label a file
    and explain answers."""
    made.write_model(folder / "model")
    plan = {"epochs": None, "batch_size": None, "learning_rate": None, "frozen": None}
    learner = bertine.finetune(
        "text",
        model=folder / "model",
        data=made.copy_messages(folder),
        out=folder / "run",
        **SETTINGS | plan | {"paper": True, "baselines": True, "log_every": 2},
        text_columns="message",
        label_column="team",
    )
    model = folder / "run" / "model"
    more = made.copy_messages(folder, "more-messages.csv")
    asked = [line["message"] for line in _rows(more)]
    labelled = folder / "labelled.csv"
    bertine.predict(model, more, labelled, device="cpu", precision="fp32", show_progress=False)
    return {
        "run": taken.run(folder / "run"),
        "answers": taken.answered(model, asked),
        "evaluate": taken.judged(model, more, worst=3),
        "file": {"bits": taken.digest(labelled.read_bytes())},
        "worst": taken.answers([each.loss for each in learner.top_losses(4)]),
    } | _explained(model, asked[:3])


def _rows(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8", newline="") as opened:
        return list(csv.DictReader(opened))


def _explained(model: Path, texts: list[Any]) -> dict[str, Any]:
    """Record what the words of texts say for a model's answers."""
    found = {}
    for method in ("leave-one-out", "integrated-gradients"):
        items = bertine.explain(
            model, texts, method=method, device="cpu", precision="fp32", show_progress=False
        ).items
        found[method] = taken.answers(items)
    return {"explain": found}


def defaults(folder: Path) -> dict[str, Any]:
    """Fine-tune as is usual where nothing is said: plan, baselines, the head alone where it is
    better. In fp32, for what is usual depends on the machine."""
    made.write_model(folder / "model")
    table = made.write_table(
        folder / "texts.csv", ("text", "label"), made.text_rows("defaults", 40)
    )
    bertine.finetune(
        "text", model=folder / "model", data=table, out=folder / "run", device="cpu",
        precision="fp32",
    )  # fmt: skip
    return {"run": taken.run(folder / "run")}


def pairs(folder: Path) -> dict[str, Any]:
    """Fine-tune on pairs of texts: one cycle, rates by layer, balanced classes, focal loss."""
    data = _tables(folder / "pairs", ("premise", "hypothesis", "label"), made.pair_rows)
    asked = [(a, b) for a, b, _ in made.pair_rows("asked", 30)]
    return _tuned(
        folder,
        "text",
        data,
        asked,
        schedule="one-cycle",
        warmup_ratio=0.3,
        layer_decay=0.8,
        class_weights="balanced",
        focal_gamma=1.5,
        dropout=0.2,
    )


def windows(folder: Path) -> dict[str, Any]:
    """Fine-tune in bf16 on texts longer than the model, read in windows, in micro-batches; and on
    their beginnings and ends."""
    data = _tables(folder / "windows", ("text", "label"), made.text_rows)
    asked = [text for text, _ in made.text_rows("asked", 30)]
    changes = {"precision": "bf16", "max_length": 24, "epochs": 1}
    found = _tuned(
        folder, "text", data, asked, long_text="windows", max_tokens_per_micro_batch=96, **changes
    )
    other = _tables(folder / "ends", ("text", "label"), made.text_rows)
    return {
        "bf16": {
            "windows": found,
            "ends": _tuned(folder, "text", other, asked, long_text="head-tail", **changes),
        }
    }


def regression(folder: Path) -> dict[str, Any]:
    """Fine-tune on numbers: cosine, patience."""
    data = _tables(folder / "numbers", ("text", "price"), made.number_rows)
    asked = [text for text, _ in made.number_rows("asked", 30)]
    named = {"text_columns": "text", "label_column": "price"}
    return _tuned(folder, "regression", data, asked, schedule="cosine", patience=3, **named)


def multi_label(folder: Path) -> dict[str, Any]:
    """Fine-tune on several labels: balanced, focal, with a threshold; the best epoch is saved."""
    data = _tables(folder / "sets", ("text", "labels"), made.set_rows, 32)
    asked = [text for text, _ in made.set_rows("asked", 30)]
    return _tuned(
        folder,
        "multi-label",
        data,
        asked,
        class_weights="balanced",
        focal_gamma=2.0,
        threshold=0.4,
        save_best=True,
    )


def choice(folder: Path) -> dict[str, Any]:
    """Fine-tune on multiple choice, the embeddings and one layer left as they are."""
    columns = ("question", "choice0", "choice1", "choice2", "label")
    data = _tables(folder / "choices", columns, made.choice_rows)
    asked = [tuple(each for each in row[:4] if each) for row in made.choice_rows("asked", 30)]
    return _tuned(folder, "choice", data, asked, freeze_layers=1, freeze_embeddings=True)


def spans(folder: Path) -> dict[str, Any]:
    """Fine-tune on questions about contexts that are read in windows, some without an answer."""
    data = _tables(folder / "questions", ("question", "context", "answer"), made.question_rows)
    asked = [(question, context) for question, context, _ in made.question_rows("asked", 12)]
    short = {"max_question_length": 10, "max_answer_length": 6}
    return _tuned(folder, "spans", data, asked, max_length=32, doc_stride=8, **short)


def tagging(folder: Path) -> dict[str, Any]:
    """Fine-tune on tagged words, with the document around each sentence; and the table of a frozen
    encoder."""
    data = folder / "tags"
    data.mkdir()
    for name, size in (("train", 32), ("dev", 12)):
        made.write_tagged(data / f"{name}.conll", name, size)
    model = made.write_model(folder / "model")
    run = folder / "run"
    bertine.finetune("tagging", model=model, data=data, out=run, document_context=True, **SETTINGS)
    asked = [" ".join(words) for words, _ in made.tagged_sentences("asked", 12)]
    table = bertine.feature_based(
        model,
        data=data,
        out=folder / "table",
        rows=["embeddings", "last", "sum-all", "concat-last-four"],
        max_length=48,
        epochs=2,
        lstm_size=12,
        device="cpu",
        precision="fp32",
        seed=5,
    )
    return {
        "run": taken.run(run),
        "answers": taken.answered(run / "model", asked),
        "evaluate": taken.judged(run / "model", data / "dev.conll"),
        "feature_based": {"bits": taken.without_clock(taken.plain(table.rows))},
    }


def frozen(folder: Path) -> dict[str, Any]:
    """Fit the head alone, of each task that has one, on an encoder that stays as it is."""
    model = made.write_model(folder / "model")
    columns = ("question", "choice0", "choice1", "choice2", "label")
    conll = folder / "tags.conll"
    made.write_tagged(conll, "frozen", 24)
    found: dict[str, Any] = {}
    tasks: tuple[tuple[str, Any, Path, list[Any]], ...] = (
        (
            "text",
            "text",
            _tables(folder / "texts", ("text", "label"), made.text_rows),
            [text for text, _ in made.text_rows("asked", 12)],
        ),
        (
            "pairs",
            "text",
            _tables(folder / "pairs", ("premise", "hypothesis", "label"), made.pair_rows),
            [(a, b) for a, b, _ in made.pair_rows("asked", 12)],
        ),
        (
            "regression",
            "regression",
            _tables(folder / "numbers", ("text", "label"), made.number_rows),
            [text for text, _ in made.number_rows("asked", 12)],
        ),
        (
            "multi-label",
            "multi-label",
            _tables(folder / "sets", ("text", "labels"), made.set_rows),
            [text for text, _ in made.set_rows("asked", 12)],
        ),
        (
            "choice",
            "choice",
            _tables(folder / "choices", columns, made.choice_rows),
            [tuple(each for each in row[:4] if each) for row in made.choice_rows("asked", 12)],
        ),
        ("tagging", "tagging", conll, ["Mia Berg saw the old tea near the cup ."]),
    )
    for name, task, data, asked in tasks:
        run = folder / f"run {name}"
        bertine.finetune(
            task, model=model, data=data, out=run, frozen=True, baselines=False, max_length=48,
            device="cpu", precision="fp32", seed=5,
        )  # fmt: skip
        recorded = taken.run(run)
        # Of the encoder nothing is trained; a layer may have come on top of it.
        same = ("bert.encoder.layer.0", "bert.encoder.layer.1", "bert.embeddings")
        tensors = {k: v for k, v in recorded["model"].items() if not k.startswith(same)}
        found[name] = {
            "run": recorded | {"model": tensors},
            "answers": taken.answered(run / "model", asked),
        }
    # A tagger's fit ends near its best place, on other machines at another one.
    return found | {"tagging": {"bits": found["tagging"]}}


def resumed(folder: Path) -> dict[str, Any]:
    """Interrupt a fine-tuning run, and go on with it; and the same without a stop."""
    model = made.write_model(folder / "model")
    table = made.write_table(folder / "texts.csv", ("text", "label"), made.text_rows("resumed", 60))
    given = {
        **SETTINGS,
        **{"task": "text", "model": model, "data": table, "batch_size": 4, "log_every": 3},
        "checkpoint_every": 2,
    }
    bertine.finetune(out=folder / "whole", **given)
    run = interrupted(lambda out: bertine.finetune(out=out, **given), folder)
    bertine.finetune(out=run, resume=True, **given)
    whole = taken.run(folder / "whole")
    if taken.run(run) != whole:
        raise AssertionError("the resumed run is not the undisturbed one")
    return {"run": whole}


def interrupted(call: Callable[[Path], Any], folder: Path) -> Path:
    """Start a run by `call` in a folder within `folder`, and interrupt it (Ctrl-C) when it has
    written a checkpoint. Which one is the last depends on the machine, and must not matter.

    Returns:
        The run's folder.
    """
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        # It may have ended before the interruption came.
        for number in range(5):
            run = folder / f"interrupted-{number}"
            over = threading.Event()

            def watch(run: Path = run, over: threading.Event = over) -> None:
                while not over.wait(0.001):
                    if any((run / "checkpoints").glob("step-*/state.json")):
                        os.kill(os.getpid(), signal.SIGINT)
                        return

            watching = threading.Thread(target=watch, daemon=True)
            try:
                watching.start()
                call(run)
                over.set()
                watching.join()
            except KeyboardInterrupt:
                pass
            finally:
                over.set()
            if not (run / "model").exists():
                return run
    finally:
        signal.signal(signal.SIGINT, usual)
    raise AssertionError("the run always ended before it was interrupted")


def datasets(folder: Path) -> dict[str, Any]:
    """Fine-tune on files in the formats of public data sets: RTE of GLUE, SQuAD v2.0, SWAG."""
    model = made.write_model(folder / "model")
    rte, squad, swag = folder / "RTE", folder / "squad", folder / "swag"
    for each in (rte, squad, swag):
        each.mkdir()
    for part, count in (("train", 16), ("dev", 8)):
        rows = [
            f"{number}\t{a}\t{b}\t{'entailment' if label == 'same' else 'not_entailment'}"
            for number, (a, b, label) in enumerate(made.pair_rows(f"RTE {part}", count))
        ]
        header = "index\tsentence1\tsentence2\tlabel"
        (rte / f"{part}.tsv").write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
        questions = [
            {
                "context": context,
                "qas": [
                    {
                        "id": f"{part}-{number}",
                        "question": question,
                        "is_impossible": not answer,
                        "answers": [{"text": answer, "answer_start": context.index(answer)}]
                        if answer
                        else [],
                    }
                ],
            }
            for number, (question, context, answer) in enumerate(made.question_rows(part, count))
        ]
        content = {"version": "v2.0", "data": [{"title": "T", "paragraphs": questions}]}
        (squad / f"{part}-v2.0.json").write_text(json.dumps(content), encoding="utf-8")
        header = ",video-id,fold-ind,startphrase,sent1,sent2,gold-source"
        columns = (*header.split(","), *(f"ending{n}" for n in range(4)), "label")
        choices = [
            (number, "v", number, f"{a} the", a, "the", "gold", b, c, "waits", "is", min(right, 1))
            for number, (a, b, c, _, right) in enumerate(made.choice_rows(part, count))
        ]
        made.write_table(swag / f"{'val' if part == 'dev' else part}.csv", columns, choices)
    found = {}
    settings = SETTINGS | {"epochs": 1, "max_length": 56}
    sets: tuple[tuple[Any, Path, dict[str, Any]], ...] = (
        ("glue", rte, {"glue_task": "RTE"}),
        ("squad", squad / "train-v2.0.json", {"max_question_length": 12}),
        ("swag", swag, {}),
    )
    for name, data, options in sets:
        run = folder / f"run {name}"
        bertine.finetune(name, model=model, data=data, out=run, **settings | options)
        found[name] = taken.brief(run)
    return found
