"""Tagging from files to files: what is trained is saved, loaded, scores the same, and says the
same in transformers; column files, JSON lines and plain text are answered in their own form."""

from __future__ import annotations

import csv
import io
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import bertine
import tagged
import toys
from bertine.cli import main
from bertine.core.errors import BertineError
from bertine.data.entities import entities
from bertine.data.tagged_sentences import read_sentences
from bertine.hub.model_directory import load_model
from bertine.inference import predict_files
from bertine.tasks.tagged_words import Mention
from bertine.training.finetuning.learner import Learner

QUICK: dict[str, Any] = {
    "epochs": 6,
    "batch_size": 8,
    "max_length": 24,
    "learning_rate": 3e-3,
    "precision": "fp32",
}
LABELS = ("O", "B-animal", "I-animal", "B-dish", "I-dish")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with train.conll and dev.conll."""
    folder = tmp_path_factory.mktemp("tagged")
    tagged.write_columns(folder / "train.conll")
    tagged.write_columns(folder / "dev.conll", 24, seed=1)
    return folder


@pytest.fixture(scope="module")
def trained(data: Path, model: Path, tmp_path_factory: pytest.TempPathFactory) -> Learner:
    out = tmp_path_factory.mktemp("tagging") / "run"
    return bertine.finetune("tagging", model=model, data=data, out=out, **QUICK)


@pytest.fixture(scope="module")
def tagger(trained: Learner) -> bertine.Predictor:
    return bertine.Predictor.load(trained.model, precision="fp32")


def test_a_toy_language_is_learned(trained: Learner) -> None:
    assert trained.metrics["f1"] > 0.9
    assert trained.score == trained.metrics["f1"]
    assert "24 sentences, 192 words" in trained.lines()[0]


def test_what_was_saved_scores_as_in_training(trained: Learner, data: Path) -> None:
    for path in (data, data / "dev.conll"):
        report = bertine.evaluate(trained.model, path, precision="fp32", show_progress=False)
        assert report.metrics == trained.metrics
    written = json.loads((trained.model.parent / "scores.json").read_text())
    assert written["final"]["metrics"] == trained.metrics
    info = json.loads((trained.model / "bertine.json").read_text())
    assert (info["name"], tuple(info["labels"])) == ("tagging", LABELS)
    assert (info["text_columns"], info["label_column"]) == (["column 1"], "column 3")


def test_transformers_says_the_same(trained: Learner, tagger: bertine.Predictor) -> None:
    other, info = transformers.AutoModelForTokenClassification.from_pretrained(
        trained.model, output_loading_info=True
    )
    assert type(other) is transformers.BertForTokenClassification
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert other.config.id2label == dict(enumerate(LABELS))
    words = [toys.sentence("cat", "old").split(), toys.sentence("soup", "warm").split()[:4]]
    tokenizer = transformers.AutoTokenizer.from_pretrained(trained.model)
    batch = tokenizer(words, is_split_into_words=True, padding=True, return_tensors="pt")
    with torch.no_grad():
        chances = other.eval()(**batch).logits.softmax(-1)
    for row, answer in enumerate(tagger(words)):
        places = [batch.word_to_tokens(row, at).start for at in range(len(words[row]))]
        best = chances[row, places].max(-1)
        assert answer.tags == tuple(LABELS[i] for i in best.indices.tolist())
        np.testing.assert_allclose(answer.probabilities, best.values.numpy(), atol=1e-5)


def test_their_token_classifier_answers_with_us(tmp_path: Path, model: Path) -> None:
    torch.manual_seed(0)
    names = {0: "O", 1: "B-x", 2: "I-x"}
    config = transformers.BertConfig(**toys.config().to_dict(), id2label=names)
    other = transformers.BertForTokenClassification(config).eval()
    other.save_pretrained(tmp_path / "m")
    for name in ("vocab.txt", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(model / name, tmp_path / "m" / name)
    loaded = load_model(tmp_path / "m")
    assert list(loaded.model.heads) == ["token_classifier"]
    (line,) = loaded.report.lines()
    assert not ({"new", "dropped"} & set(line.split()))
    predictor = bertine.Predictor.load(tmp_path / "m", precision="fp32")
    words = toys.sentence("cow", "small").split()
    tokenizer = toys.tokenizer()
    ids = torch.tensor([tokenizer.encode(" ".join(words)).input_ids])
    with torch.no_grad():
        best = other(input_ids=ids).logits[0, 1:-1].softmax(-1).max(-1)
    answer = predictor([words])[0]
    assert answer.tags == tuple(names[i] for i in best.indices.tolist())
    np.testing.assert_allclose(answer.probabilities, best.values.numpy(), atol=1e-5)


@pytest.mark.takes(3)
def test_a_tagger_goes_on_from_a_tagger_and_not_from_a_classifier(
    trained: Learner, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short = {**QUICK, "epochs": 1}
    bertine.finetune("tagging", model=trained.model, data=data, out=tmp_path / "again", **short)
    assert "new (random)" not in capsys.readouterr().err
    toys.write_labelled(tmp_path / "train.csv")
    bertine.finetune(
        "text", model=trained.model, data=tmp_path / "train.csv", out=tmp_path / "text", **short
    )
    said = capsys.readouterr().err
    assert "new (random): pooler, classifier" in said
    assert "dropped: token classifier (5 labels)" in said
    bertine.finetune("tagging", model=tmp_path / "text", data=data, out=tmp_path / "back", **short)
    said = capsys.readouterr().err
    assert "new (random): token classifier" in said
    assert "dropped: pooler, classifier (2 labels)" in said


def test_texts_and_words_are_answered(tagger: bertine.Predictor) -> None:
    text = "The old cat  sleeps in the sofa."
    found, listed = tagger([text, ["the", "old", "cat", "sleeps"]])
    assert found.words == ("The", "old", "cat", "sleeps", "in", "the", "sofa", ".")
    least = min(found.probabilities[2:4])
    assert found.entities == [Mention("animal", "cat  sleeps", least, 2, 4, 8, 19)]
    least = min(listed.probabilities[2:4])
    assert listed.entities == [Mention("animal", "cat sleeps", least, 2, 4)]
    assert tagger([]) == []
    empty = tagger(["", []])
    assert [answer.tags for answer in empty] == [(), ()]
    assert tagger.predict("The old cat  sleeps in the sofa.") == found  # one text, one answer


# Files of answers


def predict(model: Path, source: Path, target: Path, *options: str) -> list[str]:
    arguments = [str(model), "--input", str(source), "--output", str(target), *options]
    assert main(["predict", *arguments, "--precision", "fp32"]) == 0
    return target.read_text(encoding="utf-8").split("\n")


def test_column_files_get_a_column(trained: Learner, tmp_path: Path) -> None:
    source = tmp_path / "in.conll"
    source.write_text(
        "-DOCSTART-\t-X-\n\t\nthe\tDT\nold\tJJ\ncat\tNN\nsleeps\tVB\n\n# from here on\n"
        "the\tDT\nwarm\tJJ\n\u200b\tX\nsoup\tNN"
    )
    lines = predict(trained.model, source, tmp_path / "out.conll")
    given = source.read_text().split("\n")
    assert lines[-1] == ""
    tags = ["O", None, "O", "O", "B-animal", "I-animal", None, None, "O", None, "O", None]
    assert len(lines) - 1 == len(given) == len(tags)
    for line, before, tag in zip(lines[:-1], given, tags, strict=True):
        if tag is not None:
            assert line == f"{before}\t{tag}"
        elif not before.strip() or before.startswith("#"):
            assert line == before
        else:
            assert line.startswith(f"{before}\t")


def test_lines_of_conllu_that_are_no_words_get_no_tag(trained: Learner, tmp_path: Path) -> None:
    words = [("1-2", "theold"), (1, "the"), (2, "old"), (3, "cat"), (4, "sleeps")]
    rows = ["\t".join([str(number), word, *["_"] * 8]) for number, word in words]
    (tmp_path / "in.conllu").write_text("\n".join(rows) + "\n")
    lines = predict(trained.model, tmp_path / "in.conllu", tmp_path / "out", "--word-column", "2")
    assert [line.split("\t")[10:] for line in lines[:-1]] == [
        [tag] for tag in ("_", "O", "O", "B-animal", "I-animal")
    ]
    with pytest.raises(BertineError, match=r"is a column file.* not text_columns"):
        bertine.predict(trained.model, tmp_path / "in.conllu", "-", text_columns="form")


def test_the_added_column_scores_as_evaluate_does(
    trained: Learner, data: Path, tmp_path: Path
) -> None:
    predict(trained.model, data / "dev.conll", tmp_path / "out.conll", "--all-probabilities")
    for line in (tmp_path / "out.conll").read_text().splitlines():
        cells = line.split(" ")
        assert len(cells) in (1, 5)
        assert len(cells) == 1 or 0 < float(cells[4]) <= 1
    right = [
        cells[2] == cells[3]
        for line in (tmp_path / "out.conll").read_text().splitlines()
        if len(cells := line.split(" ")) == 5
    ]
    assert sum(right) / len(right) == pytest.approx(trained.metrics["accuracy"])


def test_plain_text_becomes_json_lines_with_entities(trained: Learner, tmp_path: Path) -> None:
    source = tmp_path / "in.txt"
    source.write_text("the old cat sleeps in the sofa .\n\nNothing here.\n", encoding="utf-8")
    rows = [json.loads(line) for line in predict(trained.model, source, tmp_path / "out")[:-1]]
    assert [row["text"] for row in rows] == source.read_text().split("\n")[:-1]
    (entity,) = rows[0]["entities"]
    chance = entity.pop("probability")
    assert entity == {"start": 8, "end": 18, "label": "animal", "text": "cat sleeps"}
    assert set(rows[0]) == {"text", "entities"}
    assert rows[1]["entities"] == []
    detailed = predict(trained.model, source, tmp_path / "more", "--all-probabilities")
    row = json.loads(detailed[0])
    assert [row["text"][start:end] for start, end in row["offsets"]] == row["words"]
    assert len(row["tags"]) == len(row["probabilities"]) == len(row["words"]) == 8
    assert chance == min(row["probabilities"][2:4])  # of the least certain tag


def test_json_lines_get_tags_and_keep_their_keys(trained: Learner, tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    words = ["the", "warm", "soup", "boils"]
    rows = [{"id": 7, "words": words, "tags": ["?"]}, {"id": 8, "words": [], "tags": []}]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = [json.loads(line) for line in predict(trained.model, source, tmp_path / "out")[:-1]]
    assert 0 < found[0]["entities"][0].pop("probability") <= 1
    assert found[0] == {
        **rows[0],
        "predicted_tags": ["O", "O", "B-dish", "I-dish"],
        "entities": [{"first_word": 2, "end_word": 4, "label": "dish", "text": "soup boils"}],
    }
    assert found[1] == {**rows[1], "predicted_tags": [], "entities": [], "empty": True}


@pytest.mark.slow
def test_entities_by_characters_from_a_csv_to_a_csv(
    model: Path, data: Path, tmp_path: Path
) -> None:
    """A table of texts with their entities is learned by heart: the answers are what was given."""
    rows = []
    for item in read_sentences(data / "train.conll").items:
        text = "\U0001f600\u00a0" + "  ".join(item.words)
        (entity,) = entities(item.tags or ())
        words = "  ".join(item.words[entity.begin : entity.end])
        start = text.index(words)
        span = {"start": start, "end": start + len(words), "label": entity.type}
        rows.append({"id": len(rows), "text": text, "entities": json.dumps([span])})
    for name in ("train.csv", "validation.csv"):
        with open(tmp_path / name, "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, ["id", "text", "entities"])
            writer.writeheader()
            writer.writerows(rows)
    run = bertine.finetune("tagging", model=model, data=tmp_path, out=tmp_path / "run", **QUICK)
    assert run.metrics["f1"] == 1
    report = bertine.predict(run.model, tmp_path / "train.csv", tmp_path / "out.csv")
    assert report.entities.total() == len(rows)
    with open(tmp_path / "out.csv", encoding="utf-8", newline="") as file:
        answered = list(csv.DictReader(file))
    for row, before in zip(answered, rows, strict=True):
        assert (row["id"], row["text"]) == (str(before["id"]), before["text"])
        assert row["entities"] == before["entities"]
        (found,) = json.loads(row["predicted_entities"])
        assert row["text"][found["start"] : found["end"]] == found["text"]
        assert [{name: found[name] for name in ("start", "end", "label")}] == json.loads(
            before["entities"]
        )


# Documents


def test_document_context_is_remembered(model: Path, tmp_path: Path) -> None:
    tagged.write_columns(tmp_path / "train.conll", 40, documents=True)
    result = bertine.finetune(
        "tagging",
        model=model,
        data=tmp_path / "train.conll",
        out=tmp_path / "run",
        document_context=True,
        **{**QUICK, "epochs": 1},
    )
    predictor = bertine.Predictor.load(result.model, precision="fp32")
    assert predictor.task.task_info().settings == {"document_context": True}
    held = tagged.write_columns(tmp_path / "held.conll", 8, seed=5, documents=True)
    whole = predict(result.model, held, tmp_path / "whole", "--all-probabilities")
    alone = tmp_path / "alone.conll"
    alone.write_text(held.read_text().replace("-DOCSTART- -X- O\n\n", ""))
    single = predict(result.model, alone, tmp_path / "single", "--all-probabilities")

    def chances(lines: list[str]) -> list[str]:
        return [line.split(" ")[4] for line in lines if line.count(" ") == 4 and "DOC" not in line]

    assert len(chances(whole)) == len(chances(single)) == 64
    assert chances(whole) != chances(single)


# Mistakes


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tag-column", "9"], "train.conll: has 3 columns, so the tag cannot be in column 9"),
        (["--tag-scheme", "IOB2", "--tag-column", "2"], "the tag '3' is not one of IOB2"),
        (["--document-context"], "train.conll: tells no documents"),
    ],
)
def test_mistakes_are_one_line(
    data: Path,
    model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    message: str,
) -> None:
    given = ["--model", str(model), "--data", str(data), "--out", str(tmp_path / "run")]
    assert main(["finetune", "tagging", *given, *options]) == 2
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("bertine: error: ")
    assert message in last
    assert not (tmp_path / "run").exists()


def test_a_long_file_is_tagged_in_parts_with_the_same_answers(
    trained: Learner, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = tmp_path / "in.txt"
    text.write_text("the old cat sleeps .\n" * 20 + "a warm soup boils .\n" * 20, encoding="utf-8")
    sources = [data / "dev.conll", text]
    whole = [predict(trained.model, source, tmp_path / "whole") for source in sources]
    monkeypatch.setattr(sys.modules["bertine.inference.predict"], "CHUNK_WORDS", 10)
    monkeypatch.setattr(predict_files, "CHUNK_CHARACTERS", 40)
    parts = [predict(trained.model, source, tmp_path / "parts") for source in sources]
    assert parts == whole


def test_the_command_line_from_files_to_answers_on_stdin(
    model: Path,
    data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = tmp_path / "run"
    given = ["--model", str(model), "--data", str(data / "train.conll"), "--out", str(run)]
    recipe = ["--epochs", "1", "--max-length", "24", "--precision", "fp32"]
    assert main(["finetune", "tagging", *given, "--tag-column", "2", *recipe]) == 0
    said = capsys.readouterr()
    assert "86 training and 10 validation examples; text: column 1; label: column 2" in said.err
    assert "10 sentences, 80 words" in said.out
    assert main(["evaluate", str(run), "--data", str(data)]) == 0
    assert "tag  precision" in capsys.readouterr().out
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"the old cat .\n")))
    assert main(["predict", str(run), "--input", "-"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert row["words"] == ["the", "old", "cat", "."]
    assert len(row["tags"]) == 4
    assert set(row) == {"text", "words", "offsets", "tags"}
