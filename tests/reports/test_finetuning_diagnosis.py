"""The diagnosis of real fine-tuning runs: good ones, and ones that were spoiled on purpose.

``finetuning_runs.json`` has the losses, rates and scores of runs of all-MiniLM-L6-v2 on parts of
public data sets (no texts). The name says what was done: the data set, the number of training
examples, and "good", "paper" (3 epochs in batches of 32 at 5e-5: far too few updates), the rate, or
what is wrong with the data.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from bertine.cli import COMMANDS, parse_arguments
from bertine.reports.diagnosis import Finding, diagnose
from bertine.reports.findings import Asked
from bertine.reports.run_files import by_step

RUNS: dict[str, Any] = json.loads(
    (Path(__file__).parent / "finetuning_runs.json").read_text(encoding="utf-8")
)
#: What stands out in runs that are neither good nor spoiled in one of the usual ways.
OTHERS = {
    "emotion-400-leak": "leak",
    "emotion-500-mislabelled": "by-heart",
    "mrpc-500-hard": "by-heart",
    "rte-400": "by-heart",
    "sst-400-random-labels": "by-heart",
    "sst-400-told": "suspicious-score",
    # 95% of one class, and at 5e-5 too few updates to find the other.
    "sst-400-unbalanced": "few-updates",
}
ENDINGS = {
    "paper": "few-updates",
    "steps": "few-updates",
    "1e-6": "rate-too-low",
    "1e-3": "rate-too-high",
    "2e-3": "rate-too-high",
    "5e-3": "rate-too-high",
}


def found(name: str, **changes: Any) -> list[Finding]:
    run = RUNS[name]
    log = run["log"]
    rows = [
        {"step": step, "loss": loss, "learning_rate": rate}
        for step, loss, rate in zip(log["step"], log["loss"], log["learning_rate"], strict=True)
    ]
    arguments = {"task": "text", "model": "my model", "data": "train.csv"}
    facts = {
        **run["settings"],
        **{key: run[key] for key in ("final", "data", "constant_loss")},
        **{"folder": Path("run"), "hidden_size": 384, "arguments": arguments},
    }
    return diagnose(by_step([*rows, *log["evaluations"]]), facts | changes)


def expected(name: str) -> str | None:
    """The gravest finding there must be; None: the run is good."""
    if name in OTHERS:
        return OTHERS[name]
    return next((kind for ending, kind in ENDINGS.items() if name.endswith(ending)), None)


@pytest.mark.parametrize("name", RUNS)
def test_real_runs_are_named_rightly(name: str) -> None:
    findings = found(name)
    wanted = expected(name)
    if wanted is None:
        assert [one.kind for one in findings if one.severity != "advice"] == [], findings
    else:
        assert findings[0].kind == wanted, findings
        assert [one.kind for one in findings[1:] if one.severity != "advice"] == [], findings


@pytest.mark.parametrize("name", RUNS)
def test_every_finding_ends_with_a_command_that_is_understood(name: str) -> None:
    for finding in found(name):
        assert str(finding).endswith(finding.command)
        words = shlex.split(finding.command)
        assert words[0] == "bertine"
        values = parse_arguments(COMMANDS[words[1]], words[2:])
        if words[1] == "finetune":
            assert str(values["model"]) == "my model"
            assert str(values["out"]) == "run-2"
        assert len(finding.text.split(". ")) <= 3, finding.text
        compile(finding.call, "a call", "eval")


def test_what_is_wrong_is_what_the_command_changes() -> None:
    low = found("emotion-400-rate-1e-6")[0]
    assert "1e-6" in low.text
    assert "--learning-rate 0.0002" in low.command
    high = found("emotion-400-rate-5e-3")[0]
    assert "--learning-rate 0.0002" in high.command
    assert "learning_rate=0.0002" in high.call
    short = found("emotion-100-4-steps")[0]
    assert "only 4 updates" in short.text
    words = shlex.split(short.command)
    assert int(words[words.index("--epochs") + 1]) >= 20
    assert int(words[words.index("--batch-size") + 1]) <= 16


def test_labels_that_are_never_predicted_are_named_with_their_cause() -> None:
    first = found("emotion-300-paper")[0]
    assert "never predicted (anger, fear, love, surprise)" in first.text
    assert first.severity == "fault"


def test_a_baseline_that_is_better_is_said() -> None:
    baselines = [
        {"name": "majority", "metrics": {"accuracy": 0.3}, "seconds": 0.0},
        {"name": "tf-idf", "metrics": {"accuracy": 0.6}, "seconds": 1.0},
    ]
    assert "under-baseline" not in [f.kind for f in found("emotion-300-good", baselines=baselines)]
    findings = found("emotion-300-paper", baselines=baselines)
    (under,) = [one for one in findings if one.kind == "under-baseline"]
    # The scores themselves stand in the table of the baselines, once.
    assert under.text.startswith("the baseline 'tf-idf' is better than the model")
    assert "%" not in under.text
    assert "trained as said above" in under.text  # one cause, one cure, one command
    assert findings[0].command
    assert under.command == ""


FROZEN = [{"name": "frozen vectors", "metrics": {"accuracy": 0.99}, "seconds": 1.0}]


def test_where_frozen_vectors_win_the_head_alone_is_fitted() -> None:
    asked = {"task": "text", "model": "m", "data": "d.csv", "epochs": 2, "patience": 1}
    findings = found("emotion-300-paper", baselines=FROZEN, arguments=asked)
    (under,) = [one for one in findings if one.kind == "under-baseline"]
    assert under.command == "bertine finetune text --model m --data d.csv --out run-2 --frozen"
    info = {"name": "spans", "metrics": ["accuracy"]}  # a task that has no such head
    findings = found("emotion-300-paper", baselines=FROZEN, labels_and_columns=info)
    assert not any("--frozen" in one.command for one in findings)


def test_where_the_head_alone_loses_all_weights_are_trained() -> None:
    asked = {"task": "text", "model": "m", "data": "d.csv", "frozen": True}
    baselines = [{"name": "tf-idf", "metrics": {"accuracy": 0.99}, "seconds": 1.0}]
    findings = found("emotion-300-good", baselines=baselines, arguments=asked, frozen=True)
    (under,) = [one for one in findings if one.kind == "under-baseline"]
    assert "Train all weights" in under.text
    assert "--frozen" not in under.command


def test_a_baseline_wins_by_the_mean_of_the_scores_that_judge() -> None:
    final = dict(RUNS["emotion-300-good"]["final"])
    final["metrics"] = {**final["metrics"], "accuracy": 0.8, "macro_f1": 0.7}
    info = {"name": "text", "metrics": ["accuracy", "macro_f1"]}
    for other, wins in ((0.3, False), (0.9, True)):
        metrics = {"accuracy": 0.81, "macro_f1": other}
        baselines = [{"name": "tf-idf", "metrics": metrics, "seconds": 1.0}]
        kinds = [
            one.kind
            for one in found(
                "emotion-300-good", baselines=baselines, final=final, labels_and_columns=info
            )
        ]
        assert ("under-baseline" in kinds) is wins


def test_what_is_learned_by_heart_is_told_with_the_scores_of_the_same_epoch() -> None:
    """The saved weights may be those of an epoch before the examples were learned."""
    run = RUNS["sst-400-random-labels"]
    first, last = run["log"]["evaluations"][0], run["log"]["evaluations"][-1]
    assert first["eval_accuracy"] != last["eval_accuracy"]
    metrics = {name: first[f"eval_{name}"] for name in ("accuracy", "loss")}
    final = {**run["final"], "metrics": metrics}
    for saved, shown, when in (
        (first["step"], last["eval_accuracy"], "by heart at the end of the training (loss"),
        (last["step"], metrics["accuracy"], "by heart (loss"),
        (None, metrics["accuracy"], "by heart (loss"),  # a run of an older version
    ):
        findings = found("sst-400-random-labels", final=final, saved_step=saved)
        (one,) = [one for one in findings if one.kind == "by-heart"]
        assert f"accuracy {shown:.2%}" in one.text
        assert when in one.text


def few(right: int, **changes: Any) -> list[str]:
    """The findings of a run that knows its examples by heart and has so many of 4 others right."""
    wrong = {"per_label": {}, "confusion": [[]], "num_examples": 4, "majority_share": 0.5}
    final = {**wrong, "metrics": {"accuracy": right / 4, "loss": 0.1}, **changes}
    log = [{"step": step, "loss": 0.01, "learning_rate": 1e-4} for step in range(1, 201)]
    facts = {"final": final, "constant_loss": 1.1, "folder": Path("run"), "task": "text"}
    return [one.kind for one in diagnose(by_step(log), facts)]


def test_few_examples_that_are_all_right_are_no_sign_of_learning_by_heart() -> None:
    assert few(4) == []
    assert few(4, majority_share=0.75) == []
    assert few(2) == ["by-heart"]
    # Where the most frequent training label is none of the four, one right answer is still chance.
    assert few(1, majority_share=0.0) == ["by-heart"]
    assert few(3, majority_share=0.0) == []


def advised(labels: dict[str, int], data: list[str] | None = None, **changes: Any) -> list[str]:
    """The kinds of findings that advise class weights, in a run with so many training examples of
    each label, whose last label is never predicted."""
    table = {name: {"support": 5, "predicted": 5} for name in labels}
    table[list(labels)[-1]]["predicted"] = 0
    final = {"num_examples": 400, "per_label": table, "confusion": [[]], "majority_share": 0.3}
    final |= {"metrics": {"accuracy": 0.7, "loss": 0.6}}
    train = {"labels": labels, "examples": sum(labels.values())}
    facts = {
        "final": final,
        "data": {"train": train, "findings": data or []},
        "constant_loss": 1.1,
        "folder": Path("run"),
        "task": "text",
        **changes,
    }
    log = [{"step": step, "loss": 0.3, "learning_rate": 1e-4} for step in range(1, 201)]
    findings = diagnose(by_step(log), facts)
    told = ("labels-never-predicted", "few-examples")
    assert set(told) & {one.kind for one in findings}
    return [one.kind for one in findings if "as frequent ones" in one.text]


def test_class_weights_are_advised_once_and_only_of_uneven_labels() -> None:
    assert advised({"a": 8, "b": 8, "c": 8}) == []
    assert advised({"a": 30, "b": 9, "c": 20}) == ["labels-never-predicted"]
    assert advised({"a": 30, "b": 20, "c": 9}) == ["few-examples"]
    seen = ["labels are uneven: …, and try --class-weights balanced"]
    assert advised({"a": 30, "b": 20, "c": 9}, seen) == []
    assert advised({"a": 30, "b": 9, "c": 20}, class_weights="balanced") == []
    several = {"labels_and_columns": {"name": "multi-label"}}
    assert advised({"a": 8, "b": 8, "c": 8, "d": 9}, **several) == ["few-examples"]


def test_a_teacher_stands_for_labels_that_are_few() -> None:
    """A student that agrees with a teacher whose answers are nearly all the same is not at fault,
    and the examples without a label are the teacher's."""
    final = {
        "num_examples": 40,
        "per_label": {"a": {"support": 38, "predicted": 39}, "b": {"support": 2, "predicted": 1}},
        "confusion": [[38, 0], [1, 1]],
        "majority_share": 0.95,
        "metrics": {"accuracy": 0.975, "loss": 0.1},
    }
    train = {"labels": {"a": 3, "b": 2}, "examples": 5}
    log = [{"step": step, "loss": 0.3, "learning_rate": 1e-4} for step in range(1, 201)]

    def kinds(**facts: Any) -> set[str]:
        data = {"train": train, "findings": []}
        known = {"final": final, "data": data, "folder": Path("run"), "task": "text", **facts}
        return {one.kind for one in diagnose(by_step(log), known)}

    assert "few-examples" in kinds()
    assert kinds() - kinds(distillation={"label_weight": 0.0}) >= {"few-examples"}
    assert "few-examples" not in kinds(distillation={"label_weight": 0.5})
    assert not kinds(distillation={"label_weight": 0.0})


def test_one_example_does_not_make_an_epoch_the_best() -> None:
    """Of four examples four are right in an epoch, and three at the end."""
    run = RUNS["emotion-300-good"]
    steps = [row["step"] for row in run["log"]["evaluations"]][-3:]

    def kinds(count: int) -> list[str]:
        rows = [
            {"step": step, "eval_accuracy": accuracy}
            for step, accuracy in zip(steps, (0.5, 1.0, 0.75), strict=True)
        ]
        final = {"num_examples": count, "metrics": {"accuracy": 0.75}}
        facts = {**run["settings"], "final": final, "folder": Path("run")}
        log = [{"step": steps[-1], "loss": 0.1, "learning_rate": 1e-5}]
        return [one.kind for one in diagnose(by_step([*log, *rows]), facts)]

    assert "overfitting" in kinds(400)
    assert "overfitting" not in kinds(4)


def test_a_rate_that_is_usual_for_the_trained_weights_is_not_too_low() -> None:
    name = next(name for name in RUNS if name.endswith("1e-6"))
    assert "rate-too-low" in {finding.kind for finding in found(name)}
    usual = found(name, usual_learning_rate=1e-6)
    assert "rate-too-low" not in {finding.kind for finding in usual}
    # As a tenth of what is usual for biases, which is a hundred times that of all weights.
    low = found(name, usual_learning_rate=1e-5, usual_rate_factor=100.0)
    assert "rate-too-low" in {finding.kind for finding in low}


def test_a_run_that_goes_on_is_not_told_to_train_longer() -> None:
    assert found("emotion-300-paper", final={}, data={}) == []


def test_a_run_from_python_says_the_call(tmp_path: Path) -> None:
    asked = Asked("text", tmp_path / "run", {"model": "a b", "text_columns": ["q", "a"]})
    command = asked.again(epochs=9)
    assert command is not None
    assert command.python == (
        "bertine.finetune('text', data=…, model='a b', text_columns=['q', 'a'], "
        f"out='{tmp_path / 'run-2'}', epochs=9)"
    )
    assert "--text-columns q a" in command.shell
    (tmp_path / "run-2").mkdir()
    again = asked.again(seed=1)
    assert again is not None
    assert str(tmp_path / "run-3") in again.shell


@pytest.mark.parametrize(
    ("verb", "arguments", "changes", "same"),
    [
        ("finetune", {"model": "m", "data": "d"}, {}, True),
        ("finetune", {"model": "m", "epochs": 9}, {"epochs": 9}, True),
        ("finetune", {"model": "m"}, {"patience": None}, True),
        ("few-shot", {"model": "m"}, {"epochs": 9}, True),  # it has none
        ("finetune", {"model": "m"}, {"class_weights": "balanced"}, False),
        ("finetune", {"model": "m", "epochs": 9}, {"epochs": 18}, False),
        ("finetune", {"model": "m", "patience": 3}, {"patience": None}, False),
        ("distill", {"teacher": "t"}, {"epochs": 9}, False),
    ],
)
def test_the_command_to_run_next_is_never_the_one_that_was_run(
    verb: str, arguments: dict[str, Any], changes: dict[str, Any], same: bool
) -> None:
    assert (Asked("text", Path("run"), arguments, verb).again(**changes) is None) == same


def test_no_two_findings_have_the_same_command() -> None:
    baselines = [{"name": "tf-idf", "metrics": {"accuracy": 0.99}, "seconds": 1.0}]
    for name in RUNS:
        commands = [one.command for one in found(name, baselines=baselines) if one.command]
        assert len(commands) == len(set(commands))
