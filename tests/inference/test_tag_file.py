"""Tags for JSON lines whose texts are damaged, or whose keys are those of the answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from bertine.errors import BertineError
from bertine.inference.predict import predict
from bertine.inference.predictor import Predictor
from bertine.models.config import BertConfig
from bertine.models.model import Model
from bertine.tasks.tagging import Tagging
from bertine.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def predictor(config: BertConfig, tokenizer: Tokenizer) -> Predictor:
    task = Tagging(("O", "B-x", "I-x"), max_length=24)
    torch.manual_seed(5)
    return Predictor(Model(config, task.heads(config)), tokenizer, task)


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("row", ['{"words": ["cat", "a\\ud800"]}', '{"text": "cat a\\ud800"}'])
def test_half_characters_are_mended_and_counted(
    predictor: Predictor, tmp_path: Path, row: str
) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text(f"{row}\n\n{row}\n")
    report = predict(predictor, source, out)
    assert report.notes[-2:] == [
        f"{source}: 2 invalid UTF-8 sequences were replaced by U+FFFD",
        f"{source}: 1 blank lines were skipped",
    ]
    for found in rows_of(out):
        assert found.get("text", " ".join(found.get("words", []))) == "cat a\ufffd"
    with pytest.raises(BertineError, match=r"in\.jsonl:1: half a surrogate pair"):
        predict(predictor, source, out, strict=True)


def test_keys_that_are_there_are_kept(predictor: Predictor, tmp_path: Path) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text('{"words": ["cat"], "tags": 1}\n{"words": ["a", "dog"]}\n')
    report = predict(predictor, source, out)
    first, second = rows_of(out)
    assert report.columns == ["predicted_tags", "entities"]
    assert first["tags"] == 1
    assert (len(first["predicted_tags"]), len(second["predicted_tags"])) == (1, 2)
    source.write_text('{"words": ["cat"]}\n{"words": ["a", "dog"], "tags": 1}\n')
    with pytest.raises(BertineError, match=r"in\.jsonl:2: has a key 'tags', but the first row has"):
        predict(predictor, source, out)
