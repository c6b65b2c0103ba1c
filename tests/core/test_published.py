"""Published models and data sets by name, from a hub on loopback with the real client."""

from __future__ import annotations

from pathlib import Path

import pytest

from bertine.core.published import PublishedName, fetch
from hub_server import Hub


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("hf:bert-base-uncased", PublishedName("hf", "bert-base-uncased")),
        ("hf:hfl/rbt3@0123abc", PublishedName("hf", "hfl/rbt3", "0123abc")),
        ("hf:nyu-mll/glue/cola@v1", PublishedName("hf", "nyu-mll/glue", "v1", "cola")),
        (Path("hf://hfl/rbt3"), PublishedName("hf", "hfl/rbt3")),
        ("hf:a/b@refs/pr/1", PublishedName("hf", "a/b", "refs/pr/1")),
        ("modelscope:a/b.c", PublishedName("modelscope", "a/b.c")),
        ("hfl/rbt3", None),
    ],
)
def test_a_name_is_read(text: str, name: PublishedName | None) -> None:
    assert PublishedName.parse(text) == name


def test_files_of_a_data_set_are_fetched(hub: Hub) -> None:
    files = {"data/train.parquet": b"PAR1", "data/[x] y.parquet": b"PAR2", "load.py": b"x"}
    commit = hub.add("org/data", files, kind="dataset", revision="refs/convert/parquet")
    name = PublishedName("hf", "org/data", "refs/convert/parquet", "part")
    folder = fetch(name, lambda names: [n for n in names if n.endswith(".parquet")], "dataset")
    assert folder.name == commit
    assert (folder / "data/[x] y.parquet").read_bytes() == b"PAR2"
    assert not (folder / "load.py").exists()
