"""What more labels would bring: the draws, the outlook, and a curve that goes on."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bertine
import bertine.training.learning_curve.learning_curve as ways_module
import toys
from bertine import BertineError
from bertine.tasks.multi_label import MultiLabel
from bertine.training.learning_curve.learning_curve import _Curve, draw_examples, sizes_of_curve
from bertine.training.learning_curve.result import Cell, LearningCurve, extrapolate, point_of

labels = st.lists(st.sampled_from("abc"), min_size=1, max_size=60).map(
    lambda names: [[name] for name in names]
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toys.write_model(tmp_path_factory.mktemp("model") / "model")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toys.write_labelled(tmp_path_factory.mktemp("labels") / "few.csv", rows=60)


def curve(data: Path, model: Path, out: Path, **changes: Any) -> LearningCurve:
    settings: dict[str, Any] = {"repeats": 2, "methods": ["tf-idf", "frozen"], "precision": "fp32"}
    with toys.one_thread():
        return bertine.learning_curve(model=model, data=data, out=out, **{**settings, **changes})


@given(labels, st.integers(2, 9), st.integers(0, 3))
def test_a_draw_has_so_many_of_each_label_and_grows(
    names: list[list[str]], size: int, number: int
) -> None:
    chosen = draw_examples(names, size, 0, number)
    there, counts = Counter(n for each in names for n in each), Counter(names[a][0] for a in chosen)
    assert all(counts[name] == min(size, count) for name, count in there.items())
    assert set(chosen) <= set(draw_examples(names, size + 3, 0, number))


@given(labels, st.integers(2, 9), st.one_of(st.none(), st.integers(4, 60)))
def test_the_numbers_of_labels_grow_and_stay_within_the_bounds(
    names: list[list[str]], least: int, most: int | None
) -> None:
    sizes = sizes_of_curve(names, least, 2.0, most)
    numbers = [len(draw_examples(names, size, 0, 0)) for size in sizes]
    assert numbers == sorted(set(numbers))
    assert all(number <= (most or len(names)) for number in numbers)
    assert most is not None or sizes[-1] is None


label_sets = st.lists(
    st.sets(st.sampled_from("abc"), max_size=3).map(lambda names: "|".join(sorted(names))),
    min_size=1,
    max_size=60,
)


@given(label_sets, st.integers(2, 9), st.one_of(st.none(), st.integers(4, 60)))
def test_examples_without_labels_are_drawn_like_a_label(
    written: list[str], least: int, most: int | None
) -> None:
    names = [MultiLabel.names_in(each) for each in written]
    there = Counter(name for each in names for name in each)
    for size in sizes_of_curve(names, least, 2.0, most):
        for number in range(3):
            chosen = draw_examples(names, size, 0, number, most)
            assert len(chosen) <= (most or len(names))
            if size is not None and len(chosen) != most:
                counts = Counter(name for at in chosen for name in names[at])
                assert all(counts[name] >= min(size, count) for name, count in there.items())


def test_the_outlook_finds_the_power_law_that_the_errors_follow() -> None:
    # Two draws, one a little above the line and one as much below.
    errors = {n: 2 * n**-0.5 for n in (50, 100, 200, 400)}
    found = extrapolate([[(n, 1 - e * 1.01), (n, 1 - e / 1.01)] for n, e in errors.items()])
    assert found is not None
    expected = 2 * 400**-0.5 - 2 * 800**-0.5
    assert found.gain == pytest.approx(expected)
    assert found.low == pytest.approx(expected, abs=0.005)
    assert found.high == pytest.approx(expected, abs=0.005)
    assert found.low < expected < found.high
    # What lies on a line exactly, or is all right, does not say how far it may be wrong.
    assert extrapolate([[(n, 1 - e)] for n, e in errors.items()]) is None
    assert extrapolate([[(n, 1.0)] * 3 for n in errors]) is None


def test_the_outlook_is_wide_where_the_draws_lie_apart_and_open_where_there_are_few() -> None:
    sizes = (50, 100, 200, 400)
    found = extrapolate([[(n, 0.5 + n / 4_000), (n, 0.6 + n / 4_000)] for n in sizes])
    assert found is not None
    assert found.low < 0 < found.gain < found.high
    assert extrapolate([[(50, 0.5), (50, 0.6)]]) is None
    assert extrapolate([[(50, 0.5)], [(100, 0.6)]]) is None


@given(
    st.lists(
        st.lists(st.floats(0, 1), min_size=1, max_size=3),
        min_size=1,
        max_size=5,
    )
)
def test_the_outlook_keeps_to_what_errors_can_be(scores: list[list[float]]) -> None:
    found = extrapolate([[(8 * 2**at, s) for s in draws] for at, draws in enumerate(scores)])
    if found is not None:
        assert -1 <= found.low <= found.gain <= found.high <= 1


def test_sizes_count_examples_and_not_labels() -> None:
    # 12 examples that have all three labels: a draw of 8 has 8 examples and not 24.
    assert sizes_of_curve([["a", "b", "c"]] * 12, 8, 2.0, None) == [8, None]


def test_draws_of_one_size_are_one_point_of_the_line() -> None:
    # With several labels a text, draws of one size have different numbers of examples.
    errors = {n: 2 * n**-0.5 for n in (50, 100, 200)}
    draws = [[(n - 1, 1 - e / 1.01), (n, 1 - e), (n + 1, 1 - e * 1.01)] for n, e in errors.items()]
    found = extrapolate(draws)
    assert found is not None
    assert found.count == 200
    assert found.gain == pytest.approx(2 * 200**-0.5 - 2 * 400**-0.5, rel=1e-6)


def test_an_interval_of_no_errors_has_a_width() -> None:
    cell = Cell("tf-idf", 8, 0, 16, 1.0, {}, 1.0, 1.0)
    point = point_of([cell], 100, (0.0, 0))
    assert point.high == 1.0
    assert point.low == pytest.approx(0.963, abs=1e-3)


@pytest.mark.parametrize(
    ("slope", "noise", "said"),
    [
        (-0.5, 1.01, "Twice as many labels would bring about +3.1 points (+"),
        (0.0, 1.1, "which may be nothing, if its errors go on as they did."),
        (0.0, 3.0, "What more labels would bring cannot be said"),
    ],
)
def test_a_sentence_says_what_more_labels_would_bring(
    slope: float, noise: float, said: str, tmp_path: Path
) -> None:
    cells = [
        Cell("tf-idf", n, draw, 2 * n, 1 - 0.3 * (n / 8) ** slope * noise**sign, {}, 1.0, 1.0)
        for n in (8, 16, 32, 64)
        for draw, sign in enumerate((-1, 1))
    ]
    result = LearningCurve(cells, ("accuracy",), 500, "few.csv", tmp_path)
    assert said in result.sentences()[-1]


def test_a_curve_says_what_to_use_and_what_more_labels_would_bring(
    data: Path, model: Path, tmp_path: Path
) -> None:
    result = curve(data, model, tmp_path / "curve")
    assert {(cell.way, cell.size, cell.draw) for cell in result.cells} == {
        (way, size, draw)
        for way in ("tf-idf", "frozen")
        for size, draw in ((8, 0), (8, 1), (16, 0), (16, 1), (None, 0))
    }
    assert result.num_tested == 12
    kept = json.loads((tmp_path / "curve/learning-curve.json").read_text())
    assert len(kept["cells"]) == 10
    page = (tmp_path / "curve/learning-curve.html").read_text()
    assert "<svg" in page
    text = "\n".join(result.lines())
    assert "With 48 labels" in text
    assert "is best" in text
    assert "cannot be said: the points are too few, or they lie too far apart, or all is" in text
    for point in (point for way in result.ways for point in result.curve(way)):
        assert 0 <= point.low <= point.score <= point.high <= 1
        assert point.answers_per_second > 0


@pytest.mark.slow
def test_a_curve_that_was_stopped_goes_on_where_it_was(
    data: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done, train_one = [], _Curve._cell

    def stops(self: _Curve, *cell: Any) -> Any:
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(cell)
        return train_one(self, *cell)

    monkeypatch.setattr(_Curve, "_cell", stops)
    with pytest.raises(KeyboardInterrupt):
        curve(data, model, tmp_path / "curve")
    first = json.loads((tmp_path / "curve/learning-curve.json").read_text())["cells"]
    assert len(first) == 3
    with pytest.raises(BertineError, match="holds a learning curve already; add resume=True"):
        curve(data, model, tmp_path / "curve")
    with pytest.raises(BertineError, match="curve was started with"):
        curve(data, model, tmp_path / "curve", resume=True, min_labels=4)
    rest = []
    monkeypatch.setattr(
        _Curve, "_cell", lambda self, *cell: rest.append(cell) or train_one(self, *cell)
    )
    result = curve(data, model, tmp_path / "curve", resume=True)
    assert len(rest) == 7
    assert not set(rest) & set(done)
    assert [cell.to_dict() for cell in result.cells[:3]] == first


@pytest.mark.takes(6)
def test_models_are_trained_on_the_draws_and_their_folders_are_removed(
    data: Path, model: Path, tmp_path: Path
) -> None:
    result = curve(
        data, model, tmp_path / "curve", methods=["few-shot", "finetune"], repeats=1, max_labels=20
    )
    assert {(cell.way, cell.num_labels) for cell in result.cells} == {
        ("few-shot", 16),
        ("finetune", 16),
    }
    assert all(cell.train_seconds > 0 and cell.answer_seconds > 0 for cell in result.cells)
    names = {entry.name for entry in (tmp_path / "curve").iterdir()}
    assert names == {"learning-curve.json", "learning-curve.html"}


def test_labels_are_weighed_by_the_draw(
    data: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    ngrams = ways_module.ngrams

    def noted(task: Any, train: Any, *, weighted: bool) -> Any:
        seen.append((task.class_weights, task.balanced(train), weighted))
        return ngrams(task, train, weighted=weighted)

    monkeypatch.setattr(ways_module, "ngrams", noted)
    names = [line.rsplit(",", 1)[1] for line in data.read_text().splitlines()[1:]]
    uneven = tmp_path / "uneven.csv"
    lines = data.read_text().splitlines()
    kept = [line for at, line in enumerate(lines[1:]) if names[at] != names[0] or at % 3 == 0]
    uneven.write_text("\n".join([lines[0], *kept]) + "\n")
    curve(
        uneven,
        model,
        tmp_path / "curve",
        methods="tf-idf",
        repeats=1,
        min_labels=2,
        class_weights="balanced",
    )
    assert len({weights for weights, _, _ in seen}) > 1
    assert all(weights == balanced and weighted for weights, balanced, weighted in seen)


def test_fine_tuning_on_a_draw_is_weighed_by_it(
    data: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def noted(*_: Any, data: Any, **__: Any) -> Any:
        task = data.make_task(16)
        seen.append((task.class_weights, task.balanced(data.train)))
        raise KeyboardInterrupt

    lines = data.read_text().splitlines()
    uneven = tmp_path / "uneven.csv"
    uneven.write_text(
        "\n".join([lines[0], *lines[1:30], *(f"a dog {n},animal" for n in range(60))])
    )
    for name in ("finetune", "few_shot"):
        monkeypatch.setattr(ways_module, name, noted)
        with pytest.raises(KeyboardInterrupt):
            curve(
                uneven,
                model,
                tmp_path / name,
                methods=name.replace("_", "-"),
                class_weights="balanced",
            )
    assert len(seen) == 2
    assert all(weights == balanced and weights is not None for weights, balanced in seen)


def _stops(*_: Any) -> Any:
    raise KeyboardInterrupt


def test_mistakes_are_named_and_leave_nothing(
    data: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BertineError, match="'guess' is not known; choose tf-idf"):
        curve(data, model, tmp_path / "curve", methods="guess")
    with pytest.raises(BertineError, match="more than max_labels allows"):
        curve(data, model, tmp_path / "curve", max_labels=10)
    assert not (tmp_path / "curve").exists()
    (tmp_path / "empty").mkdir()
    for _ in range(2):  # what was stopped before its first cell can be begun again
        with monkeypatch.context() as patch:
            patch.setattr(_Curve, "_cell", _stops)
            with pytest.raises(KeyboardInterrupt):
                curve(data, model, tmp_path / "empty")
        assert list((tmp_path / "empty").iterdir()) == []
