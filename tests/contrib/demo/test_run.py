"""The demo: every stage really runs, what it writes works, and what it says is what it did."""

from __future__ import annotations

import dataclasses
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import bertine
from bertine.contrib.demo import texts
from bertine.contrib.demo.result import DemoResult, masked_from_articles, spoken_time
from bertine.contrib.demo.run import run_demo
from bertine.contrib.demo.texts import FAST, FULL, DemoScores
from bertine.core.errors import BertineError
from bertine.tokenization.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> DemoResult:
    out = tmp_path_factory.mktemp("demo") / "out"
    with pytest.MonkeyPatch.context() as patched:
        # Pre-training gets the least, which is little here.
        shorter = dataclasses.replace(FAST, budget_seconds=0.0, least_seconds=3.0)
        patched.setattr("bertine.contrib.demo.run.FAST", shorter)
        return run_demo(out, fast=True, seed=3)


@pytest.mark.slow
def test_the_model_answers(demo: DemoResult) -> None:
    predictor = bertine.Predictor.load(demo.model)
    assert predictor.task.labels == texts.count_texts().subjects
    answer = predictor.predict(["The band released its first album in 1994."])[0]
    assert answer.label == "music"
    assert sum(answer.probabilities.values()) == pytest.approx(1, abs=1e-4)
    report = bertine.evaluate(demo.model, demo.out / "passages" / "test.csv", show_progress=False)
    # Predicting and evaluating may compute in different precisions.
    assert report.metrics["accuracy"] == pytest.approx(demo.bundled.accuracies[0], abs=0.01)


@pytest.mark.slow
def test_the_bundled_model_is_far_ahead(demo: DemoResult) -> None:
    """The promise of the demo that does not depend on the machine's speed."""
    assert demo.bundled.ahead_of(demo.untrained)[0] > 0.15
    assert demo.bundled.accuracy > demo.tf_idf.accuracy
    assert demo.untrained.accuracy > demo.chance - 0.05


@pytest.mark.slow
def test_the_figures_agree(demo: DemoResult) -> None:
    store = bertine.TokenStore.open(demo.out / "store")
    assert demo.unigram_entropy == store.unigram_entropy
    log = (demo.out / "pretraining" / "log.jsonl").read_text().splitlines()
    losses = [json.loads(line)["loss"] for line in log]
    assert min(losses) <= demo.mlm_loss <= max(losses)
    assert demo.tokens == json.loads(log[-1])["tokens"]
    stages = ["labels", "text", "pre-training", "comparison", "answers"]
    assert list(demo.seconds) == stages
    written = json.loads((demo.out / "demo.json").read_text())
    assert written["finished"]
    assert written["pretrained"]["accuracy_of_each"] == demo.pretrained.accuracies
    assert written["mlm_loss"] == demo.mlm_loss
    for scores in [*demo.models, demo.tf_idf]:
        assert len(scores.right) == FAST.draws
        assert len(scores.articles) == len(texts.passages("test"))


@pytest.mark.slow
def test_models_are_shown_the_same_and_differ_in_their_start_alone(demo: DemoResult) -> None:
    settings = [
        json.loads((demo.out / "finetuning" / kind / "draw-1" / "run.json").read_text())["settings"]
        for kind in ("untrained", "pretrained", "bundled")
    ]
    untrained_run, new_run, bundled_run = settings

    def differ(other: dict[str, Any]) -> set[str]:
        keys = untrained_run.keys() - {"precision", "bf16_speedup", "threads"}  # measured
        return {key for key in keys if untrained_run[key] != other[key]}

    start = {"model_path", "weights_fingerprint"}
    assert differ(new_run) == start
    # The usual rate is that of a width; a head that is fitted alone takes none.
    assert differ(bundled_run) - {"learning_rate"} == start
    untrained, new = demo.out / "untrained", demo.pretrained_model
    assert bertine.load_model(untrained).config == bertine.load_model(new).config


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
def test_the_report_says_what_came_out(demo: DemoResult) -> None:
    page = _Words()
    page.feed(demo.report.read_text(encoding="utf-8"))
    for scores in [*demo.models, demo.tf_idf]:
        assert f"{scores.accuracy:.1%}" in page.text
        assert scores.name in page.text
    assert f"{demo.unigram_entropy:.3f}" in page.text
    assert demo.verdict() in page.text
    for subject in texts.count_texts().subjects:
        assert subject in page.text
    # What it is about comes before how it was made.
    assert page.text.index("Right answers") < page.text.index("What is this passage about?")
    assert page.text.index("What is this passage about?") < page.text.index(
        "How the new model learned"
    )
    assert not [source for source in page.loads if not source.startswith("data:")]


@pytest.mark.slow
def test_a_demo_replaces_a_demo_and_nothing_else(
    demo: DemoResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "thesis"
    other.mkdir()
    (other / "chapter-1.txt").write_text("mine")
    with pytest.raises(BertineError, match="is not empty and holds no demo"):
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
    monkeypatch.setattr("bertine.contrib.demo.run.DemoRuns.write_labelled", stop)
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
def test_masked_words_are_from_the_test_passages() -> None:
    tokenizer = Tokenizer.load("bertine-en")
    masked = masked_from_articles([tokenizer], 5, seed=0)
    assert len(masked) == 5
    passages = [passage.text for passage in texts.passages("test")]
    for one in masked:
        assert one.truth is not None
        whole = one.text.replace("[MASK]", one.truth)
        assert any(whole in passage for passage in passages)
        assert tokenizer.token_to_id(one.truth) is not None


def shares(name: str, right: int, of: int = 200) -> DemoScores:
    return DemoScores(name, [f"{n}" for n in range(of)], [[n < right for n in range(of)]])


def test_the_verdict_is_about_intervals() -> None:
    base = DemoResult(
        out=Path("out"),
        recipe=FULL,
        seed=0,
        subjects=("a", "b"),
        bundled=shares("bundled", 140),
        pretrained=shares("new", 80),
        untrained=shares("random", 40),
        tf_idf=shares("tf-idf", 70),
        unigram_entropy=6.4,
        mlm_loss=4.0,
        mlm_accuracy=0.3,
        tokens=1,
        reading_seconds=180.0,
        seconds={},
    )
    assert base.helped
    assert base.verdict() == (
        "After 3 minutes of pre-training a model gives 20 more right answers in 100 than one with "
        "random weights; bertine-en, a student of all-MiniLM-L6-v2, gives 50 more."
    )
    unclear = dataclasses.replace(base, pretrained=shares("new", 41))
    assert not unclear.helped
    assert "not clearly better than one with random weights (+0.5 points)" in unclear.verdict()


@pytest.mark.parametrize(
    ("seconds", "spoken"),
    [
        (8.2, "8 seconds"),
        (119, "119 seconds"),
        (120, "2 minutes"),
        (150, "2.5 minutes"),
        (237, "4 minutes"),
    ],
)
def test_times_are_rounded_for_a_sentence(seconds: float, spoken: str) -> None:
    assert spoken_time(seconds) == spoken


def test_fast_is_the_same_demo_with_less_of_all() -> None:
    assert FAST.pretraining == FULL.pretraining
    assert FAST.budget_seconds < FULL.budget_seconds
