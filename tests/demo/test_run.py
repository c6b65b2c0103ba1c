"""The demo: every stage really runs, what it writes works, and what it says is what it did."""

from __future__ import annotations

import dataclasses
import json
from html.parser import HTMLParser
from pathlib import Path

import pytest

import bertine
from bertine.demo import texts
from bertine.demo.budget import Plan, Work, plan
from bertine.demo.examples import masked_from_books
from bertine.demo.recipe import FAST, FULL
from bertine.demo.result import DemoResult, Scores
from bertine.demo.run import run_demo
from bertine.errors import BertineError
from bertine.text.tokenizer import Tokenizer

WORK = Work(tokens_per_step=2_000, trained_tokens=900_000, evaluated_tokens=300_000)


def planned(tokens_per_second: float, **changes: float) -> Plan:
    """What the budget gives on a machine of this speed."""
    values = {"budget_seconds": 270.0, "spent_seconds": 10.0, **changes}
    return plan(
        WORK, tokens_per_second=tokens_per_second, steps=5_000, least_steps=300, repeats=3, **values
    )


def test_a_fast_machine_does_the_whole_recipe() -> None:
    found = planned(1e6)
    assert (found.steps, found.repeats, found.shortened) == (5_000, 3, False)
    assert len(found.lines()) == 1


@pytest.mark.parametrize("speed", [20e3, 30e3, 50e3, 70e3])
def test_the_plan_keeps_the_budget_and_uses_it(speed: float) -> None:
    found = planned(speed)
    expected = 10 + found.pretrain_seconds + found.finetune_seconds
    assert expected <= 270
    if found.steps < 5_000:
        assert expected > 250, "time was left, but pre-training was cut short"


def test_a_slow_machine_does_less_and_is_told() -> None:
    quick, slow = planned(50e3), planned(15e3)
    assert slow.steps < quick.steps
    assert slow.repeats < quick.repeats
    assert slow.shortened
    assert "the recipe asks for 5,000 steps and 3 runs" in slow.lines()[-1]


def test_however_slow_there_is_something_to_see() -> None:
    found = planned(10.0)
    assert (found.steps, found.repeats) == (300, 1)
    assert planned(50e3, spent_seconds=1e4).steps == 300


def test_intervals_belong_to_the_passages_and_not_to_the_runs() -> None:
    one = Scores("with", [0.5], [0.6], 1_000)
    three = Scores("with", [0.5, 0.7, 0.6], [0.6, 0.6, 0.6], 1_000)
    assert one.interval == three.interval
    assert one.interval[0] == pytest.approx(0.569, abs=0.002)
    assert three.best == 1


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> DemoResult:
    return run_demo(tmp_path_factory.mktemp("demo") / "out", fast=True, seed=3)


@pytest.mark.slow
def test_the_model_answers(demo: DemoResult) -> None:
    predictor = bertine.Predictor.load(demo.model)
    assert predictor.task.labels == texts.facts().authors
    prediction = predictor.predict(["It is a truth universally acknowledged."])[0]
    assert sum(prediction.probabilities.values()) == pytest.approx(1, abs=1e-4)
    kept = demo.pretrained.test[demo.pretrained.best]
    report = bertine.evaluate(demo.model, demo.out / "passages" / "test.csv", show_progress=False)
    assert report.metrics["accuracy"] == pytest.approx(kept), "another model was kept"


@pytest.mark.slow
def test_the_pretrained_model_fills_masks(demo: DemoResult) -> None:
    filled = bertine.fill_mask(demo.pretrained_model, "He opened the [MASK].")
    assert len(filled[0].candidates) == 5


@pytest.mark.slow
def test_the_figures_agree(demo: DemoResult) -> None:
    store = bertine.TokenStore.open(demo.out / "store")
    assert demo.unigram_entropy == store.unigram_entropy
    assert demo.majority == pytest.approx(1 / len(texts.facts().authors))
    assert demo.pretrained.num_test == texts.facts().passages["test"]
    log = (demo.pretrained_model.parent / "log.jsonl").read_text().splitlines()
    losses = [json.loads(line)["mlm_loss"] for line in log]
    assert min(losses) <= demo.mlm_loss <= max(losses)
    steps = sum(
        json.loads((run / "log.jsonl").read_text().splitlines()[-1])["step"]
        for run in (demo.out / "pretraining").iterdir()
    )
    assert steps == pytest.approx(demo.plan.steps, abs=len(demo.recipe.phases))
    assert list(demo.seconds) == ["vocabulary", "store", "pre-training", "fine-tuning", "answers"]
    written = json.loads((demo.out / "demo.json").read_text())
    assert written["finished"]
    assert written["pretrained"]["test"] == list(demo.pretrained.test)
    assert written["mlm_loss"] == demo.mlm_loss


@pytest.mark.slow
def test_both_kinds_are_trained_alike_but_for_the_start(demo: DemoResult) -> None:
    runs = [
        json.loads((demo.out / "finetuning" / f"{kind}-pretraining-1" / "run.json").read_text())
        for kind in ("with", "without")
    ]
    with_it, without = (run["settings"] for run in runs)
    other = {key for key in with_it if with_it[key] != without[key]}
    assert other <= {"model_path", "weights_fingerprint", "learning_rate"}
    assert "untrained" in without["model_path"]
    assert "untrained" not in with_it["model_path"]


class _Words(HTMLParser):
    """The text of a page, and what it loads from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        self.loads: list[str] = []

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [
            value or "" for name, value in attrs if name in ("src", "href") and tag != "a"
        ]


@pytest.mark.slow
def test_the_report_says_what_was_found(demo: DemoResult) -> None:
    page = _Words()
    page.feed(demo.report.read_text(encoding="utf-8"))
    for share in (demo.pretrained.accuracy, demo.untrained.accuracy, demo.majority):
        assert f"{share:.1%}" in page.text
    assert f"{demo.unigram_entropy:.3f}" in page.text
    assert f"{demo.mlm_loss:.3f}" in page.text
    assert demo.verdict() in page.text
    for author in texts.facts().authors:
        assert author in page.text
    assert not [source for source in page.loads if not source.startswith("data:")]


@pytest.mark.slow
def test_a_demo_replaces_a_demo_and_nothing_else(
    demo: DemoResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "thesis"
    other.mkdir()
    (other / "chapter-1.txt").write_text("mine")
    with pytest.raises(BertineError, match="not made by 'bertine demo'"):
        run_demo(other, fast=True)
    assert [path.name for path in other.iterdir()] == ["chapter-1.txt"]

    class Reached(Exception):
        pass

    def stop(*_: object, **__: object) -> None:
        raise Reached

    # A folder of a demo is accepted, its leftovers go, and what is not the demo's stays.
    again = tmp_path / "again"
    (again / "model").mkdir(parents=True)
    (again / "model" / "config.json").write_text("{}")
    (again / "notes.txt").write_text("mine")
    (again / "demo.json").write_text((demo.out / "demo.json").read_text())
    monkeypatch.setattr("bertine.demo.run.train_vocab", stop)
    with pytest.raises(Reached):
        run_demo(again, fast=True)
    assert sorted(path.name for path in again.iterdir()) == ["demo.json", "notes.txt"]
    assert not json.loads((again / "demo.json").read_text())["finished"]


@pytest.mark.slow
def test_the_lines_lead_somewhere(demo: DemoResult) -> None:
    lines = demo.lines()
    assert demo.verdict() in lines
    assert any(line == f"report: {demo.report}" for line in lines)
    assert demo.report.is_file()
    assert (demo.out / "passages" / "test.csv").is_file()


@pytest.mark.slow
def test_masked_words_are_from_the_test_books(demo: DemoResult) -> None:
    tokenizer = Tokenizer.load(demo.out / "tokenizer")
    masked = masked_from_books(tokenizer, 5, seed=0)
    assert len(masked) == 5
    passages = [passage.text for passage in texts.passages("test")]
    for one in masked:
        assert one.truth is not None
        whole = one.text.replace("[MASK]", one.truth)
        assert any(whole in passage for passage in passages)
        assert tokenizer.token_to_id(one.truth) is not None


def test_the_verdict_is_about_intervals() -> None:
    far, near = Scores("with", [0.6], [0.6], 1_000), Scores("with", [0.52], [0.52], 1_000)
    base = DemoResult(
        out=Path("out"),
        recipe=FULL,
        plan=planned(50e3),
        seed=0,
        unigram_entropy=6.4,
        mlm_loss=4.0,
        mlm_accuracy=0.3,
        nsp_accuracy=0.6,
        tokens=1,
        tokens_per_second=1.0,
        majority=0.2,
        pretrained=far,
        untrained=Scores("without", [0.5], [0.5], 1_000),
        seconds={},
    )
    assert base.helped
    assert "+10.0 points" in base.verdict()
    unclear = dataclasses.replace(base, pretrained=near)
    assert not unclear.helped
    assert "No clear gain" in unclear.verdict()


def test_fast_is_the_same_demo_with_less_of_all() -> None:
    assert [phase.max_seq_length for phase in FAST.phases] == [
        phase.max_seq_length for phase in FULL.phases
    ]
    assert FAST.steps < FULL.steps
