"""``tools/bundle_model.py`` writes a model that the recipe made, and a card on it."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import bertine

ROOT = Path(__file__).resolve().parents[1]
SCORES = {
    "topics": [50.0, 60.0],
    "paraphrases": [55.0, 55.0],
    "entities": [40.0, 42.0],
    "questions": [30.0, 32.0],
}


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "tools")
    monkeypatch.chdir(ROOT)
    return importlib.import_module("bundle_model")


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """What ``recipes/hour --model bertine-zh`` leaves, of a model that has seen two batches."""
    folder = tmp_path / "made"
    corpus = tmp_path / "wiki-zh.jsonl"
    rows = [{"title": f"AMD K6 {n}", "text": "The king sees the old river."} for n in range(30)]
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows))
    bertine.train_vocab(corpus, out=tmp_path / "vocab", vocab_size=100)
    bertine.prepare(corpus, tokenizer=tmp_path / "vocab", out=tmp_path / "store")
    config = {
        **{"model_type": "modernbert", "hidden_size": 32, "num_hidden_layers": 1},
        **{"num_attention_heads": 2, "intermediate_size": 48, "vocab_size": 100},
        **{"pad_token_id": 0, "max_position_embeddings": 64},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    sizes: dict[str, Any] = {"steps": 2, "batch_size": 2, "max_seq_length": 16, "log_every": 1}
    for phase in ("short-sequences", "longer-sequences"):
        bertine.pretrain(
            tmp_path / "store",
            model=tmp_path / "config.json",
            out=folder / phase,
            objective="mlm",
            **sizes,
        )
    seconds = {"vocabulary": 5.0, "preparation": 5.0}
    seconds |= {"short-sequences": 1750.0, "longer-sequences": 240.0}
    phases = [{"name": "short-sequences"}, {"name": "longer-sequences"}]
    clock = {
        **{"model": "bertine-zh", "recipe": {"phases": phases}},
        **{"corpus": [str(corpus)], "seconds": seconds},
    }
    (folder / "hour.json").write_text(json.dumps(clock))
    without = {task: [scores[0] - 10] for task, scores in SCORES.items()}
    ways = {"pre-trained": SCORES, "random weights": SCORES, "no model": without}
    (folder / "scores.json").write_text(json.dumps(ways))
    return folder


def test_the_card_has_the_scores_and_the_folder_opens(
    tool: ModuleType, made: Path, tmp_path: Path
) -> None:
    out = tmp_path / "bertine-zh"
    tool.pack("bertine-zh", made, out, machine="one core of a toaster", blimp="")
    card = (out / "README.md").read_text(encoding="utf-8")
    assert (
        "| topics, accuracy | what is a sentence about? | 55.0 ± 7.1 | 55.0 ± 7.1 | 40.0 |" in card
    )
    assert "| **average** | | **45.5 ± 2.5** | **45.5 ± 2.5** | **33.8** |" in card
    assert "30 articles of the Chinese Wikipedia (`wiki-zh.jsonl`, sha256 `" in card
    assert re.search(r"in 33 min 20 s on one core of a\s+toaster", card)
    assert "All weights trained, 2 seeds" in card
    assert not re.search(r"[{}]", card)
    model = bertine.load_model(out)
    assert model.config.num_hidden_layers == 1
    assert json.loads((out / "config.json").read_text())["mlp_dropout"] == 0.1


def test_what_must_not_be_bundled_is_refused(tool: ModuleType, made: Path, tmp_path: Path) -> None:
    def refused(match: str, name: str = "bertine-zh") -> None:
        with pytest.raises(SystemExit, match=match):
            tool.pack(name, made, tmp_path / "out", machine="", blimp="")
        assert not (tmp_path / "out").exists()

    refused("was made with --model bertine-zh, not bertine-en", "bertine-en")
    scores = (made / "scores.json").read_text()
    (made / "scores.json").unlink()
    refused("its fine-tuning is not complete")
    (made / "scores.json").write_text(scores)
    # English articles that the demo asks about.
    title = sorted(tool.demo_articles())[0]
    corpus = tmp_path / "wiki.jsonl"
    corpus.write_text(json.dumps({"title": title, "text": ""}) + "\n")
    clock = json.loads((made / "hour.json").read_text())
    (made / "hour.json").write_text(json.dumps(clock | {"corpus": [str(corpus)]}))
    refused("has articles of the demo")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("sys.argv", ["leave_out_demo.py", str(corpus), str(tmp_path / "w.zst")])
        importlib.import_module("leave_out_demo").main()
    assert list(importlib.import_module("compressed_rows").read_rows(tmp_path / "w.zst")) == []
