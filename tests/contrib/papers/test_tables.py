"""The tables of the papers as data: each can be read, and says nothing that cannot be done."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from bertine import BertineError
from bertine.contrib.elmo.model import PRESETS as ELMO_PRESETS
from bertine.contrib.options import ElmoOptions, FeatureBasedOptions
from bertine.contrib.papers.model_steps import config_of
from bertine.contrib.papers.table import (
    AVERAGE,
    MEASURES,
    PaperResult,
    PaperTable,
    compare_order,
    kendall,
    paper_tables,
    read_table,
    table_names,
)
from bertine.families.presets import preset
from bertine.models.family import family_of
from bertine.models.heads import Model
from bertine.objectives import choose
from bertine.options.data import PrepareOptions, VocabOptions
from bertine.options.declare import declared
from bertine.options.distillation import DistillOptions
from bertine.options.finetuning import FinetuneOptions
from bertine.options.pretraining import PretrainOptions

OPTIONS: dict[str, Any] = {
    "train_vocab": VocabOptions,
    "prepare": PrepareOptions,
    "pretrain": PretrainOptions,
    "finetune": FinetuneOptions,
    "distill": DistillOptions,
    "pretrain_elmo": ElmoOptions,
    "feature_based": FeatureBasedOptions,
}


@pytest.fixture(params=table_names())
def table(request: pytest.FixtureRequest) -> PaperTable:
    return read_table(request.param)


def test_columns_and_published_scores_are_of_measures(table: PaperTable) -> None:
    assert set(table.columns) <= set(MEASURES)
    for row in table.rows:
        assert set(row.published) <= {*table.columns, AVERAGE}
        assert all(isinstance(value, float) for value in row.published.values())
    elsewhere = "no table of a paper" in table.paper or "tasks are others than here" in table.note
    assert any(row.published for row in table.rows) or elsewhere
    assert re.fullmatch(r"https://\S+", table.url)
    assert "table" in table.paper or "figure" in table.paper


@pytest.mark.parametrize(
    ("name", "averages"),
    [
        # Of nine columns: MNLI counts twice.
        ("bert-1", [71.0, 75.1, 79.6, 82.1]),
        ("bert-2", [None] * 14),
        ("bert-6", [None] * 6),
        ("distilbert-1", [68.7, 79.5, 77.0]),
        ("gpt-5", [74.7, 59.9, 75.0, 69.1]),
        ("albert-5", [79.0, 79.2, 80.1]),
        ("elmo-2", [None] * 5),
        ("roberta-2", [None] * 4),
    ],
)
def test_averages_are_those_that_the_paper_prints(
    name: str, averages: list[float | None], tmp_path: Path
) -> None:
    table = read_table(name)
    assert [row.published.get(AVERAGE) for row in table.rows] == averages
    scores = {row.name: {column: [0.5] for column in table.columns} for row in table.rows}
    head, *rows = PaperResult(table, tmp_path, table.columns, scores, "").cells()
    at = head.index(AVERAGE)
    printed = [f"50.0 ({value:g})" if value else "50.0" for value in averages]
    assert [row[at] for row in rows] == printed
    if name == "bert-1":  # which is the mean of its columns, to a digit
        for row in table.rows:
            columns = [row.published[column] for column in table.columns]
            assert sum(columns) / 9 == pytest.approx(row.published[AVERAGE], abs=0.1)


@pytest.mark.parametrize(
    ("name", "column", "ours", "theirs", "gain"),
    [
        ("bert-2", "SQuAD 1.1", "bert-large-triviaqa-ensemble-test", "nlnet-test", 1.5),
        ("bert-3", "SQuAD 2.0", "bert-large-test", "f-net-test", 5.1),
        ("bert-4", "SWAG", "bert-large-test", "esim-elmo-test", 27.1),
        ("bert-4", "SWAG", "bert-large-test", "gpt-test", 8.3),
    ],
)
def test_what_the_paper_of_bert_gains_is_in_its_test_scores(
    name: str, column: str, ours: str, theirs: str, gain: float
) -> None:
    table = read_table(name)
    rows = [table.row(f"published-{row}") for row in (ours, theirs)]
    assert all(row.title.endswith("(test)") for row in rows)
    first, second = (row.published[column] for row in rows)
    assert first - second == pytest.approx(gain)
    assert f"{first:g}" in table.note
    assert f"{gain:g}" in table.note


def test_seconds_are_no_shares(tmp_path: Path) -> None:
    table = read_table("distilbert-3")
    scores = {"published-elmo": {"seconds": [0.01234, 0.01236]}, "x": {}}
    result = PaperResult(table, tmp_path, table.columns, scores, "")
    assert result.cells()[1][-1] == "0.0123 ± 0.0000 (895)"
    assert "times 100" not in result.caption()


def test_rows_have_names_for_folders_and_name_each_other(table: PaperTable) -> None:
    names = [row.name for row in table.rows]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z0-9-]+", name) for name in names)
    for row in table.rows:
        for other in (row.teacher, row.model_of, row.begins_with):
            # What a row is made of comes before it.
            assert other is None or names.index(other) < names.index(row.name)


def test_arguments_are_those_of_the_verbs(table: PaperTable) -> None:
    for row in table.rows:
        for verb, given in row.arguments.items():
            # The size of an ELMo is no option.
            arguments = {key: value for key, value in given.items() if key != "model"}
            known = {entry.name for entry in declared(OPTIONS[verb])}
            assert set(arguments) <= known, (row.name, verb)
            OPTIONS[verb](**arguments)


def test_a_rate_is_one_of_an_optimizer(table: PaperTable) -> None:
    """The usual one is not AdamW, whose rates are others."""
    for row in table.rows:
        given = row.arguments.get("pretrain", {})
        assert "learning_rate" not in given or "optimizer" in given


def test_every_model_can_be_built_and_has_its_objective(table: PaperTable) -> None:
    base = preset("bert-mini")
    for row in table.rows:
        if "pretrain_elmo" in row.arguments:
            assert row.arguments["pretrain_elmo"]["model"] in ELMO_PRESETS
            continue
        config = config_of(row.sizes, base)
        assert config.hidden_size % config.num_attention_heads == 0
        chosen = row.arguments.get("pretrain", {})
        objective, _ = choose(config, chosen.get("objective"), chosen.get("input_format"))
        with torch.device("meta"):
            Model(config, objective.heads(config))


def test_the_tables_are_listed() -> None:
    lines = paper_tables().lines()
    assert len(lines) == len(table_names())
    assert any(re.match(r"bert-5 .* 4 rows +Devlin et al. 2018", line) for line in lines)
    with pytest.raises(BertineError, match="there is no table 'bert-55'; there are albert-11"):
        read_table("bert-55")


def test_sizes_are_relative_to_those_that_were_chosen() -> None:
    base = preset("bert-mini")  # 4 layers of 256 with 4 heads
    assert config_of({}, base) == base
    half = config_of({"layers": 0.5, "width": 2, "heads": 2}, base)
    assert (half.num_hidden_layers, half.hidden_size, half.num_attention_heads) == (2, 512, 8)
    assert half.intermediate_size == 2048
    wider = config_of({"width": 1.3333, "heads": 1.3333}, base)
    assert wider.num_attention_heads == 5
    assert wider.hidden_size == 340
    albert = config_of({"type": "albert", "embedding": 0.5, "num_hidden_groups": "own"}, base)
    assert family_of("albert").config is type(albert)
    assert albert.embedding_width == 128
    assert albert.to_dict()["num_hidden_groups"] == 4
    with pytest.raises(BertineError, match="no models of type 'gpt-9'"):
        config_of({"type": "gpt-9"}, base)


def test_kendalls_tau_says_how_far_two_orders_agree() -> None:
    assert kendall([1, 2, 3, 4], [10, 20, 30, 40]) == pytest.approx(1)
    assert kendall([1, 2, 3, 4], [40, 30, 20, 10]) == pytest.approx(-1)
    # One of six pairs is the other way round.
    assert kendall([1, 2, 4, 3], [10, 20, 30, 40]) == pytest.approx(4 / 6)
    assert kendall([1, 1, 1], [1, 2, 3]) is None


@pytest.mark.slow
def test_the_interval_of_an_order_is_that_of_the_seeds() -> None:
    published = {"a": 80.0, "b": 85.0, "c": 90.0, "d": 91.0}
    apart = {"a": [0.1, 0.11], "b": [0.2, 0.21], "c": [0.3, 0.31], "d": [0.4, 0.41]}
    order = compare_order(apart, published)
    assert order is not None
    assert (order.tau, order.low, order.high, order.rows) == pytest.approx((1, 1, 1, 4))
    noisy = {**apart, "d": [0.0, 0.8]}
    order = compare_order(noisy, published)
    assert order is not None
    assert order.tau == pytest.approx(1)
    assert order.low == pytest.approx(0)  # d may be the last
    assert order.high == pytest.approx(1)
    # What only one of the two has is left out.
    order = compare_order({**apart, "e": [0.5]}, published)
    assert order is not None
    assert order.rows == 4
    assert compare_order({"a": [1.0], "b": [2.0]}, published) is None
