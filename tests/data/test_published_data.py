"""Published data sets by name: Parquet as `datasets` writes it, from a hub on loopback."""

from __future__ import annotations

import io
import json
import logging
from pathlib import Path
from typing import Any

import pytest

import bertine
from bertine.core import published
from bertine.core.errors import BertineError
from bertine.data.examples import judged_table, read_examples
from bertine.data.in_memory import DataParts, as_data, as_source
from bertine.data.published import published_data
from bertine.data.tables import Table
from hub_server import Hub
from toys import write_model

NAMES = ["animal", "dish"]
CARD = b"""---
license: cc-by-4.0
configs:
- config_name: small
  data_files:
  - split: train
    path: small/train-*
  - split: validation
    path: small/held-*
  default: true
- config_name: large
  data_files: {train: [large/a*.parquet], unsupervised: large/b.parquet}
---
# Animals and dishes
"""


def parquet(*topics: str, named: bool = True) -> bytes:
    """A table as the library writes it, with the names of the labels unless `named` is False."""
    import datasets

    features = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=NAMES)}
    )
    labels = [int(topic in ("soup", "bread")) for topic in topics]
    rows = {"text": [f"the {topic} in the garden" for topic in topics], "label": labels}
    data = datasets.Dataset.from_dict(rows, features=features)
    whole = io.BytesIO()
    if named:
        data.to_parquet(whole)
    else:
        data.to_pandas().to_parquet(whole)
    return whole.getvalue()


def texts_of(data: DataParts, part: str) -> list[str]:
    with Table(getattr(data, part)) as table:
        return [str(row.values["text"]).split()[1] for row in table]


@pytest.fixture
def animals(hub: Hub) -> str:
    """A data set with two configurations; its revision."""
    files = {
        "README.md": CARD,
        "load.py": b"raise SystemExit",
        "small/train-00000-of-00002.parquet": parquet("cat", "soup"),
        "small/train-00001-of-00002.parquet": parquet("dog", "bread"),
        "small/held-00000-of-00001.parquet": parquet("cow"),
        "large/a.parquet": parquet("fish"),
        "large/b.parquet": parquet("rice"),
    }
    return hub.add("org/animals", files, kind="dataset")


def test_parts_by_the_card(hub: Hub, animals: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    data = as_data("hf:org/animals")
    assert isinstance(data, DataParts)
    assert str(data) == f"hf:org/animals/small@{animals}"
    assert f"{data}: train 4 and validation 1 rows; licence: cc-by-4.0" in caplog.text
    assert texts_of(data, "train") == ["cat", "soup", "dog", "bread"]
    assert judged_table(data) == data.validation
    assert data.train is not None
    examples = read_examples(data.train)
    assert examples.source == "hf:org/animals/small/train-*-of-00002*.parquet"
    assert [item.label for item in examples.items] == ["animal", "dish", "animal", "dish"]
    assert hub.asked(r"resolve/.*(load\.py|large/)") == 0
    # Another configuration, whose parts are called otherwise.
    data = published_data(published.PublishedName("hf", "org/animals", part="large"))
    assert texts_of(data, "train") == ["fish"]
    assert "train 1 rows (unsupervised not used)" in caplog.text


def test_a_part_by_its_name(hub: Hub, animals: str) -> None:
    held = as_data("hf:org/animals/validation")
    assert isinstance(held, DataParts)
    assert texts_of(held, "train") == ["cow"]
    assert judged_table(held) == held.train == as_source("hf:org/animals/validation", "input")
    unlabelled = as_data(f"hf:org/animals/large/unsupervised@{animals}")
    assert isinstance(unlabelled, DataParts)
    assert texts_of(unlabelled, "train") == ["rice"]
    for name, told in {
        "hf:org/animals/tiny": "there is no 'tiny' in it; it has the parts train and validation$",
        "hf:org/animals/large/test": "no 'large/test' in it; it has the parts train and unsup",
        "hf:org/animals/huge/test": "no 'huge/test' in it; it has the configurations small and la",
    }.items():
        with pytest.raises(BertineError, match=told):
            as_data(name)
    with pytest.raises(BertineError, match="parts; name one, as in hf:org/animals/small/valida"):
        as_source("hf:org/animals", "input")


def test_parts_by_the_names_of_files(hub: Hub, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    table = parquet("cat", "soup")
    hub.add("org/tasks", {f"{c}/train-00000-of-00001.parquet": table for c in "ab"}, kind="dataset")
    with pytest.raises(BertineError, match="configurations a and b; name one, as in hf:org/tasks/"):
        as_data("hf:org/tasks")
    assert str(as_data("hf:org/tasks/b")).startswith("hf:org/tasks/b@")
    csv = b"text,label\nthe cat sleeps,animal\n"
    hub.add("org/csv", {"data/train.csv": csv, "notes.json": b"{}"}, kind="dataset")
    data = as_data("hf:org/csv")
    assert f"{data}: train in train.csv; licence: not stated" in caplog.text
    assert isinstance(data, DataParts)
    assert texts_of(data, "train") == ["cat"]
    hub.add("org/odd", {"data/all-00000-of-00001.parquet": table}, kind="dataset")
    with pytest.raises(BertineError, match=r"parts all, none of which.*hf:org/odd/"):
        as_data("hf:org/odd")
    assert texts_of(as_data("hf:org/odd/all"), "train") == ["cat", "soup"]  # type: ignore[arg-type]


def test_what_the_hub_has_converted(hub: Hub) -> None:
    hub.add("org/script", {"script.py": b"1"}, kind="dataset")
    with pytest.raises(BertineError, match=r"not converted .*; its script script\.py is not run"):
        as_data("hf:org/script")
    files = {"default/train/0000.parquet": parquet("cat"), "default/train/0001.parquet": parquet()}
    files["default/partial-test/0000.parquet"] = parquet("dog")
    published._FETCHED.clear()
    hub.add("org/script", files, kind="dataset", revision="refs/convert/parquet")
    data = as_data("hf:org/script")
    assert isinstance(data, DataParts)
    assert texts_of(data, "train") == ["cat"]
    assert texts_of(data, "test") == ["dog"]


def test_names_of_labels_that_only_the_card_has(hub: Hub) -> None:
    card = b"""---
dataset_info:
  features:
  - {name: text, dtype: string}
  - name: label
    dtype: {class_label: {names: {'0': animal, '1': dish}}}
---
"""
    files = {"README.md": card, "data/train.parquet": parquet("cat", "soup", named=False)}
    hub.add("org/named", files, kind="dataset")
    data = as_data("hf:org/named")
    assert isinstance(data, DataParts)
    assert data.train is not None
    assert read_examples(data.train).class_names == ("animal", "dish")


@pytest.mark.parametrize(
    "card",
    [
        b"---\na: [\n---\n",
        b"---\na: &x 1\nb: *x\n---\n",
        b"\xff\xfe",
        b"---\nconfigs: [{data_files: 5, config_name: [1]}, 3]\n---\n",
        b"---\ndataset_info: [{config_name: [1], features: 3}, {features: [4, {name: a}]}]\n---\n",
    ],
)
def test_a_card_that_cannot_be_read(hub: Hub, card: bytes) -> None:
    hub.add("org/card", {"README.md": card, "train.parquet": parquet("cat")}, kind="dataset")
    data = as_data("hf:org/card")
    assert isinstance(data, DataParts)
    assert data.train is not None
    assert texts_of(data, "train") == ["cat"]
    assert len(read_examples(data.train)) == 1


@pytest.mark.takes(3.0)
def test_a_run_records_the_data_and_goes_on_without_the_network(
    hub: Hub, animals: str, tmp_path: Path
) -> None:
    topics = ["cat", "soup", "dog", "bread"] * 4
    files = {f"{part}.parquet": parquet(*topics) for part in ("train", "validation")}
    commit = hub.add("org/toys", files, kind="dataset")
    given: dict[str, Any] = {"model": write_model(tmp_path / "model"), "out": tmp_path / "run"}
    given |= {"epochs": 1, "baselines": False, "data": "hf:org/toys"}
    first = bertine.finetune("text", **given)
    settings = json.loads((tmp_path / "run" / "run.json").read_text())["settings"]
    assert settings["data_path"] == f"hf:org/toys@{commit}"
    assert len(settings["data_files"]) == 2
    card = (tmp_path / "run" / "model" / "README.md").read_text()
    assert f"trained on `hf:org/toys@{commit}`" in card
    assert settings["data_files"]["hf:org/toys/train.parquet"] in card
    # The data set has changed since, and the hub cannot be reached.
    files["train.parquet"] = parquet("cat")
    hub.add("org/toys", files, kind="dataset")
    published._FETCHED.clear()
    asked = len(hub.requests)
    again = bertine.finetune("text", **given, resume=True)
    # As equal as fp32 is (docs/explanation/trust.md); on a busy machine 1e-10 apart was seen.
    assert again.metrics == pytest.approx(first.metrics, rel=1e-5)
    assert len(hub.requests) == asked
    report = bertine.evaluate(first.model, f"hf:org/toys@{commit}")
    assert report.metrics["accuracy"] == first.metrics["accuracy"]
