"""Which examples are read of which data, and what cannot be said of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import tagged
import toys
from bertine.errors import BertineError
from bertine.tasks.labelled import Reading, has_validation, read_labelled
from glue_files import write_glue
from squad_files import write_squad


def write_choices(path: Path) -> None:
    rows = [f"the cat,sleeps,boils {number},0" for number in range(8)]
    path.write_text("\n".join(["question,choice0,choice1,label", *rows]) + "\n", encoding="utf-8")


def data_of(task: str, folder: Path) -> tuple[Path, Path]:
    """A data set with a validation file, and that file."""
    folder.mkdir()
    if task == "glue":
        return write_glue(folder, "RTE"), folder / "RTE" / "dev.tsv"
    if task in ("squad", "spans"):
        return write_squad(folder, articles=4, dev=2), folder / "dev-v1.1.json"
    if task == "tagging":
        tagged.write_columns(folder / "train.conll", 16)
        tagged.write_columns(folder / "dev.conll", 4, seed=1)
        return folder, folder / "dev.conll"
    write = write_choices if task == "choice" else toys.write_labelled
    for part in ("train", "dev"):
        write(folder / f"{part}.csv")
    return folder, folder / "dev.csv"


@pytest.mark.parametrize("task", ["text", "choice", "tagging", "squad", "spans", "glue"])
def test_a_split_seed_is_for_data_of_which_some_are_held_out(task: str, tmp_path: Path) -> None:
    data, validation = data_of(task, tmp_path / "data")
    named: dict[str, Any] = {"glue_task": "RTE"} if task == "glue" else {}
    plain, split = Reading(**named), Reading(**named, split_seed=3)
    assert has_validation(task, data, plain)
    judged_on = read_labelled(task, data, seed=0, reading=plain).validation
    assert judged_on.source == str(validation)
    with pytest.raises(BertineError, match=r"has validation examples of its own, so that split_se"):
        read_labelled(task, data, seed=0, reading=split)
    os.remove(validation)
    assert not has_validation(task, data, plain)
    found = [
        read_labelled(task, data, seed=seed, reading=reading).validation.fingerprint()
        for seed, reading in ((0, split), (5, split), (3, plain), (0, plain))
    ]
    assert found[0] == found[1] == found[2]
