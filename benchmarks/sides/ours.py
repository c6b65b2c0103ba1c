"""Our side: ``bertine.finetune`` and the predictor of its model, as a user calls them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from common import Turn, peak_memory, reset_peak_memory

import bertine
from bertine.core.console import console
from bertine.reports.run_files import read_log
from bertine.training.finetuning.learner import Learner
from sides.scores import judge
from sides.settings import Setting, read_file


def finetune(setting: Setting, out: Path, log_every: int = 10) -> Learner:
    """The run that a user would start, but for what the other side has no part of: the baselines,
    and the head alone in place of the trained model."""
    task = setting.task
    naming: dict[str, Any] = {"glue_task": task.name} if task.verb == "glue" else {}
    if task.kind == "spans":
        naming = {
            "doc_stride": setting.doc_stride,
            "max_answer_length": setting.max_answer_length,
        }
    return bertine.finetune(
        task.verb,
        model=setting.model,
        # A folder of SQuAD may have the files of both versions.
        data=setting.data / task.train if task.kind == "spans" else setting.data,
        out=out,
        epochs=setting.epochs,
        batch_size=setting.batch_size,
        max_length=setting.max_length,
        learning_rate=setting.learning_rate,
        warmup_ratio=setting.warmup_ratio,
        weight_decay=setting.weight_decay,
        adam_epsilon=setting.adam_epsilon,
        max_grad_norm=setting.max_grad_norm,
        seed=setting.seed,
        save_best=False,
        baselines=False,
        frozen=False,
        log_every=log_every,
        **naming,
    )


def answers(setting: Setting, model: Path) -> Any:
    """What the model directory answers to the held-out file; see :func:`sides.scores.judge`."""
    task = setting.task
    predictor = bertine.Predictor.load(model)
    examples = read_file(task, setting.data / task.held)
    found, _ = predictor.run(examples)
    if task.kind == "spans":
        return {
            item.id: (given.best_span.text if given.best_span else "", given.null_odds)
            for item, given in zip(examples.items, found, strict=True)
        }
    name = {"text": "label", "regression": "score", "choice": "choice", "tagging": "tags"}
    return [getattr(given, name[task.kind]) for given in found]


def whole_run(turn: Turn, setting: Setting, out: Path) -> None:
    """Train, and be judged."""
    console.quiet = True
    turn.end({})
    reset_peak_memory()
    result = finetune(setting, out)
    peak = peak_memory()
    scores = judge(setting, answers(setting, result.model))
    turn.end({"elapsed": result.elapsed, "scores": scores, "peak": peak})


def epochs_by_turns(turn: Turn, setting: Setting, out: Path) -> None:
    """A turn an epoch. The evaluation after it, which the clock does not see, ends the turn; that
    of the first epoch begins with loading and tokenizing, unseen too."""
    import bertine.training.finetuning.run as running

    console.quiet = True
    evaluate = running.evaluate_examples
    before = 0.0

    def evaluate_and_wait(*args: Any, **kwargs: Any) -> Any:
        nonlocal before
        # The last step's line is in the log when fit asks for an evaluation.
        lines = [line for line in read_log(out / "log.jsonl") if "elapsed" in line]
        elapsed = float(lines[-1]["elapsed"])
        report = evaluate(*args, **kwargs)
        turn.end({"seconds": elapsed - before})
        before = elapsed
        return report

    running.evaluate_examples = evaluate_and_wait
    turn.end({})
    finetune(setting, out, log_every=1)
    raise SystemExit("bertine: the run has ended before the turns did")
