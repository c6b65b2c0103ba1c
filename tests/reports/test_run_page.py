"""The page of a run: whatever the run has left so far is on it, and nothing breaks it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

import toys
from bertine import finetune, pretrain, report
from bertine.core.errors import BertineError
from bertine.reports.plots import curve
from reports.run_pages import (
    SETTINGS,
    line,
    page_of,
    sample,
    titles,
    words,
    write_run,
    write_samples,
)
from reports.test_html import HOSTILE, Page


def test_a_finished_pretraining_run(tmp_path: Path) -> None:
    held = {"eval_mlm_loss": 4.125, "eval_mlm_perplexity": 61.87, "eval_nsp_accuracy": 0.61}
    log = [line(step) for step in range(10, 1001, 10)]
    log += [{"step": step, **held, "eval_mlm_count": 31_000} for step in (500, 1000)]
    run = write_run(tmp_path / "run", log)
    (run / "model").mkdir()
    write_samples(run, [(step, [sample(step / 2000)]) for step in range(100, 1001, 100)])
    shown = words(run)
    for text in (
        *("Pre-training: run", "2 layers of 128", "1.2M tokens", "all 1,000 steps are done"),
        *("nats; unigram entropy 6.25", "25.0%", "62.5%", "61.9", "MLM loss 4.125", "1.0M"),
        *("Nothing stands out", "held-out", "31,000 masked tokens", "61.87", "1 min 40 s"),
        *("the [MASK] sleeps.", "Original word: cat", "step 100", "step 1,000", "cat 50%"),
        *("right for 0 of 1", "learning rate 0.001", "hidden size 128", "torch 2.13.0"),
        *("0.8, 0.1, 0.1", "unigram entropy 6.25", "clipped to 1", "linear, 10 steps"),
    ):
        assert text in shown, text
    assert "not set" not in shown  # what is not set is left out
    assert titles(run) == [
        *("MLM loss", "MLM accuracy", "NSP loss", "NSP accuracy", "Loss"),
        *("Learning rate", "Gradient norm", "Speed"),
    ]


def test_training_and_evaluation_of_a_step_are_both_kept(tmp_path: Path) -> None:
    """Two lines of the log have the same step; neither hides the other."""
    log = [line(10), {"step": 10, "eval_mlm_loss": 4.75, "eval_mlm_perplexity": 115.6}]
    shown = words(write_run(tmp_path / "run", log))
    assert "6.000" in shown
    assert "4.7500" in shown


def test_a_run_that_was_killed(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [line(10), line(20)], tail='{"step": 30, "lo')
    result = report(run)
    assert (result.steps, result.total_steps) == (20, 1000)
    assert result.lines()[0] == "20 of 1,000 steps done"
    assert result.lines()[-1] == f"report: {run / 'report.html'}"
    shown = words(run)
    assert "Not finished: 20 of 1,000 steps" in shown
    assert "--resume" in shown


@pytest.mark.parametrize(
    ("limit", "why"),
    [
        ({"patience": 2}, ", as the score on the validation examples got no better."),
        ({"budget_seconds": 60.0}, ", as the time was up."),
        ({}, "."),
    ],
)
def test_a_run_that_ended_before_its_last_step(
    limit: dict[str, object], why: str, tmp_path: Path
) -> None:
    run = write_run(tmp_path / "run", [line(10), line(20)], {**SETTINGS, **limit})
    (run / "model").mkdir()
    assert f"Finished after 20 of 1,000 steps{why}" in words(run)
    assert report(run).lines()[0] == "20 of 1,000 steps done; finished"


def test_a_short_log_is_not_called_healthy(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [line(step) for step in range(10, 70, 10)])
    told = "too little is logged to tell a stall or a divergence: 6 lines"
    assert told in report(run).lines()
    assert told[1:] in words(run)
    assert "othing stands out" not in words(run)


def test_a_run_that_has_only_begun(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [])
    assert "Nothing logged yet" in words(run)
    (run / "log.jsonl").unlink()
    shown = words(run)
    assert "Nothing logged yet" in shown
    assert "Too little is logged" in shown


def test_an_mlm_only_run_has_no_word_of_nsp(tmp_path: Path) -> None:
    log = [
        {"step": s, "loss": 5.0, "accuracy": 0.2, "eval_loss": 5.5, "learning_rate": 1e-3}
        for s in range(1, 20)
    ]
    run = write_run(tmp_path / "run", log)
    assert titles(run) == ["MLM loss", "MLM accuracy", "Learning rate"]
    assert "step MLM loss 1 5.5000" in words(run), "the loss of all is that of MLM, told once"
    assert "MLM loss 5.000" in words(run)
    assert "NSP" not in words(run)


def test_lines_may_lack_anything(tmp_path: Path) -> None:
    log = [{"step": 1}, {"step": 2, "mlm_loss": None}, {"step": 3, "loss": float("nan")}]
    shown = words(write_run(tmp_path / "run", log, settings={}))
    assert "loss is nan at step 3" in shown.lower()


def test_the_diagnosis_is_on_the_page_and_in_the_terminal(tmp_path: Path) -> None:
    log = [{**line(step), "mlm_loss": 6.25} for step in range(10, 1001, 10)]
    run = write_run(tmp_path / "run", log)
    assert "at the unigram entropy 6.25" in words(run)
    assert [finding.kind for finding in report(run).findings] == ["stalled"]
    assert report(run).lines()[1].startswith("warning: MLM loss 6.25 from step")


@pytest.mark.slow
def test_real_runs(tmp_path: Path) -> None:
    """What `pretrain` and `finetune` write today is what the page reads."""
    store, model = toys.write_store(tmp_path / "store"), toys.write_model(tmp_path / "model")
    toys.write_labelled(tmp_path / "train.csv")
    with toys.one_thread():
        pretrain(store, model=model, out=tmp_path / "a", steps=4, log_every=1, max_seq_length=32)
        finetune("text", model=model, data=tmp_path / "train.csv", out=tmp_path / "b", epochs=1)
    before = {file: file.read_bytes() for file in (tmp_path / "a").glob("*.json*")}
    assert "Finished: all 4 steps" in words(tmp_path / "a")
    shown = words(tmp_path / "b")
    assert "Confusion matrix" in shown
    assert "label precision recall F1 examples predicted animal" in shown
    assert "Predicted worst" in shown
    assert {file: file.read_bytes() for file in (tmp_path / "a").glob("*.json*")} == before
    # The page in the folder does not stand in the way of going on.
    pretrain(
        store, model=model, out=tmp_path / "a", steps=4, max_seq_length=32, log_every=1, resume=True
    )


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    settings = {**SETTINGS, HOSTILE: HOSTILE, "architecture": {HOSTILE: [HOSTILE]}}
    run = write_run(tmp_path / "run", [{**line(10), f"eval_{HOSTILE}": 1.0}], settings)
    write_samples(run, [(1, [sample(0.5, HOSTILE, f"{HOSTILE} [MASK] {HOSTILE}")])])
    page = Page(page_of(run))
    assert "img" not in {tag for tag, _ in page.tags}
    page.check_scripts()
    assert not [a for _, attrs in page.tags for a in attrs if a.startswith("on")]


def test_chinese_is_written_without_spaces(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [line(10)])
    text = "在 2019 年 ， [MASK] 京 人 口"
    write_samples(run, [(1, [sample(0.1, "北", text)]), (2, [sample(0.5, "北", text)])])
    assert "在 2019 年， [MASK] 京人口 Original word: 北" in words(run)
    page = page_of(run)
    assert "在 2019 年，<mark>[MASK]</mark>京人口" in page


def test_pieces_are_explained_where_they_are_guessed(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [line(10)])
    write_samples(run, [(1, [sample(0.5)])])
    assert "continues the word before it" not in words(run)
    guesses = [{"token": "##s", "probability": 0.5}]
    write_samples(run, [(1, [{**sample(0.5), "guesses": guesses}])])
    shown = words(run)
    assert "…s 50%" in shown
    assert "“…s” continues the word before it" in shown
    assert "##" not in shown


def test_sentences_that_have_changed_are_not_mixed(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [line(10)])
    write_samples(
        run, [(1, [sample(0.5, text="an old [MASK].")]), (2, [sample(0.5, text="a new [MASK].")])]
    )
    assert "a new" in words(run)
    assert "an old" not in words(run)


def test_mistakes_are_one_line_that_names_the_file(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [line(10)])
    (run / "model").mkdir()
    with pytest.raises(BertineError, match=r"no run\.json; its run is .*run"):
        report(run / "model")
    with pytest.raises(BertineError, match="no such folder"):
        report(tmp_path / "nowhere")
    (tmp_path / "search").mkdir()
    (tmp_path / "search/search.html").touch()
    with pytest.raises(BertineError, match=r"no run\.json; its own page is .*search\.html"):
        report(tmp_path / "search")
    with pytest.raises(BertineError, match="is a folder"):
        report(run, out=tmp_path)
    for file, text, said in (
        ("samples.jsonl", '{"step": 1, "samples": [{"text": "no mask"}]}\n', "samples.jsonl: dam"),
        ("samples.jsonl", "{}\n", "line 1"),
        ("scores.json", "[]", "scores.json: damaged"),
        ("scores.json", "{", "not valid JSON"),
        ("run.json", "[]", r"run\.json: damaged"),
        ("run.json", '{"settings": 3}', r"run\.json: damaged"),
        ("log.jsonl", "x\n", "line 1"),
    ):
        other = tmp_path / "other"
        shutil.copytree(run, other)
        (other / file).write_text(text)
        with pytest.raises(BertineError, match=said):
            report(other)
        shutil.rmtree(other)


def test_a_long_log_makes_no_large_page_and_loses_no_peak() -> None:
    steps = list(range(1, 200_001))
    values = [1.0] * len(steps)
    values[123_456] = 999.0
    svg = curve([float(step) for step in steps], values)
    assert len(svg) < 200_000
    flat = curve([float(step) for step in steps], [1.0] * len(steps))
    assert b">800<" in svg
    assert b">800<" not in flat


def test_a_logarithmic_axis_of_a_small_range_has_numbers_too() -> None:
    svg = curve([1.0, 2.0], [0.62, 1.1], reference=1.0, reference_label="one", log_scale=True)
    numbers = re.findall(rb">(\d[\d.]*)<", svg)
    assert any(0.5 < float(number) < 1 for number in numbers)


def test_replaced_tokens_stand_beside_guessing(tmp_path: Path) -> None:
    log = [
        {
            key.replace("mlm", "generator"): value
            for key, value in line(step).items()
            if not key.startswith("nsp")
        }
        | {"rtd_loss": 0.3, "rtd_accuracy": 0.92, "rtd_replaced": 0.1, "rtd_detected": 0.04}
        for step in range(10, 1001, 10)
    ]
    run = write_run(tmp_path / "run", log, {**SETTINGS, "objective": "rtd"})
    assert titles(run)[:6] == [
        *("RTD loss", "RTD accuracy", "RTD: replaced", "RTD: detected"),
        *("Generator MLM loss", "Generator MLM accuracy"),
    ]
    text = words(run)
    assert "RTD accuracy 92.0% guessing gives 90%" in text
    headline = text.index("RTD loss 0.300 nats")
    assert headline < text.index("Generator MLM loss 4.")
    assert "unigram entropy" in text


def test_a_logarithmic_axis_leaves_out_what_it_cannot_show() -> None:
    assert b"nothing logged yet" in curve([1.0, 2.0], [0.0, 0.0], log_scale=True)
    assert b">100<" in curve([1.0, 2.0, 3.0], [0.0, 1.0, 150.0], log_scale=True)
