"""SQuAD through the command line: what is trained is saved, loaded, and answers the same, here
and in transformers; its files are those that the official scripts take."""

from __future__ import annotations

import csv
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import bertine
import toys
from bertine.cli import main
from bertine.core.errors import BertineError
from bertine.tasks.spans import SpanExtraction
from bertine.training.finetuning.learner import Learner
from squad_files import toy_squad, write_squad
from squad_scorers import scorer

RECIPE: dict[str, Any] = {
    "batch_size": 16,
    "max_length": 24,
    "doc_stride": 8,
    "max_question_length": 8,
    "learning_rate": 3e-3,
    "dropout": 0.0,
    "precision": "fp32",
}


def train(model: Path, data: Path, out: Path, epochs: int, **more: Any) -> Learner:
    return bertine.finetune(
        "squad", model=model, data=data, out=out, epochs=epochs, **RECIPE, **more
    )


@pytest.fixture(scope="module", params=["1.1", "2.0"])
def run(
    request: pytest.FixtureRequest, model: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path, Path, Learner]:
    """Version, training file, run's folder, result."""
    home = tmp_path_factory.mktemp("squad")
    data = write_squad(home / "data", v2=request.param == "2.0", articles=60)
    return request.param, data, home / "run", train(model, data, home / "run", 8)


def test_it_learns_to_answer(run: tuple[str, Path, Path, Learner]) -> None:
    version, _, out, result = run
    assert [score["f1"] for score in result.scores][-1] == pytest.approx(result.metrics["f1"])
    assert result.metrics["f1"] > 0.6  # one of three places by chance
    assert result.score == result.metrics["f1"]
    info = json.loads((out / "model" / "bertine.json").read_text())
    assert (info["name"], info["dataset"]) == ("spans", f"squad/v{version}")
    assert info["settings"]["doc_stride"] == 8
    assert any("doc_stride 8" in line for line in bertine.inspect(out / "model").lines())
    assert info["settings"]["unanswerable"] == (version == "2.0")
    report = result.report
    assert report is not None
    assert info["settings"]["null_threshold"] == report.to_dict()["null_threshold"]
    assert (info["settings"]["null_threshold"] is None) == (version == "1.1")
    kinds = {"has_answer_f1", "no_answer_f1"} & set(result.metrics)
    assert len(kinds) == (2 if version == "2.0" else 0)
    assert not (out / "not_aligned.json").exists()


def test_evaluate_gives_the_score_that_training_ended_with(
    run: tuple[str, Path, Path, Learner], capsys: pytest.CaptureFixture[str]
) -> None:
    version, data, out, result = run
    report = bertine.evaluate(out, data.parent, precision="fp32", show_progress=False)
    assert report.metrics == pytest.approx(result.metrics)
    assert main(["evaluate", str(out), "--data", str(data), "--precision", "fp32"]) == 0
    shown = capsys.readouterr().out
    assert f"questions of {data}: exact_match" in shown
    assert ("null threshold" in shown and "from the model" in shown) == (version == "2.0")


def test_predictions_are_the_official_file_and_score_the_same(
    run: tuple[str, Path, Path, Learner], tmp_path: Path
) -> None:
    version, data, out, result = run
    official = scorer(version)
    dev = data.with_name(f"dev-v{version}.json")
    answers = tmp_path / "answers.json"
    given = ("predict", out, "--data", dev, "--out", answers, "--nbest", "--precision", "fp32")
    assert main([str(word) for word in given]) == 0
    written = json.loads(answers.read_text())
    content = json.loads(dev.read_text())
    paragraphs = [p for article in content["data"] for p in article["paragraphs"]]
    asked = {qa["id"]: p["context"] for p in paragraphs for qa in p["qas"]}
    assert list(written) == list(asked)
    assert all(text in asked[name] for name, text in written.items())
    best = json.loads((tmp_path / "answers.nbest.json").read_text())
    for name, entries in best.items():
        assert sum(entry["probability"] for entry in entries) == pytest.approx(1, abs=1e-4)
        for entry in entries:
            if entry["start"] is not None:
                assert asked[name][entry["start"] : entry["end"]] == entry["text"]
    odds = tmp_path / "answers.null_odds.json"
    if version == "1.1":
        theirs = official.evaluate(content["data"], written)
        assert result.metrics["exact_match"] * 100 == pytest.approx(theirs["exact_match"])
        assert not odds.exists()
        assert all(written.values())
    else:
        exact, theirs = official.get_raw_scores(content["data"], written)
        assert result.metrics["exact_match"] == pytest.approx(sum(exact.values()) / len(exact))
        assert result.metrics["f1"] == pytest.approx(sum(theirs.values()) / len(theirs))
        info = json.loads((out / "model" / "bertine.json").read_text())
        threshold = info["settings"]["null_threshold"]
        for name, value in json.loads(odds.read_text()).items():
            assert (written[name] == "") == (value > threshold)
    assert sorted(path.name for path in tmp_path.iterdir())[0] == "answers.json"


def test_transformers_opens_it_and_gives_the_same_scores(
    run: tuple[str, Path, Path, Learner],
) -> None:
    _, _, out, _ = run
    other, info = transformers.AutoModelForQuestionAnswering.from_pretrained(
        out / "model", output_loading_info=True
    )
    assert type(other) is transformers.BertForQuestionAnswering
    assert not info["missing_keys"]
    assert not info["mismatched_keys"]
    predictor = bertine.Predictor.load(out, precision="fp32")
    context = toys.sentence("cat", "old") + " " + toys.sentence("dog", "small")
    encoded = transformers.AutoTokenizer.from_pretrained(out / "model")(
        "the dog barks in", context, return_tensors="pt"
    )
    with torch.no_grad():
        theirs = other.eval()(**encoded)
        hidden = predictor.model.backbone(
            encoded["input_ids"], encoded["attention_mask"], encoded["token_type_ids"]
        )
        ours = predictor.model.heads["spans"](hidden.last_hidden_state)[0]
    torch.testing.assert_close(ours[:, 0], theirs.start_logits[0], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(ours[:, 1], theirs.end_logits[0], rtol=1e-4, atol=1e-4)
    (answer,) = predictor.predict([("the dog barks in", context)])
    assert answer.best_span.text in context
    # What transformers saves is opened, and goes on with the same head.
    saved = out.parent / "theirs"
    other.save_pretrained(saved)
    predictor.tokenizer.save(saved)
    again = bertine.Predictor.load(saved, precision="fp32")
    assert again.task.name == "spans"


def test_a_table_is_answered_in_its_own_format(
    run: tuple[str, Path, Path, Learner], tmp_path: Path
) -> None:
    version, _, out, _ = run
    context = toys.sentence("cat", "old") + " " + toys.sentence("dog", "small")
    source, answered = tmp_path / "in.csv", tmp_path / "out.csv"
    source.write_text(
        "id,question,context,answer\n"
        f"1,the cat sleeps in,{context},sofa\n"
        f"2,the dog barks in,{context},garden\n"
        f"3,{'the ' * 9}dog barks in,,\n",
        encoding="utf-8",
    )
    report = bertine.predict(out, source, answered, all_probabilities=True, precision="fp32")
    with open(answered, encoding="utf-8", newline="") as handle:
        rows = list(csv.DictReader(handle))
    for row in rows[:2]:
        text = row["predicted_answer"]
        best = json.loads(row["n_best"])
        assert text in {entry["text"] for entry in best}
        if row["start"]:
            assert context[int(row["start"]) : int(row["end"])] == text
    assert rows[2]["predicted_answer"] == ""
    assert ("null_odds" in rows[0]) == (version == "2.0")
    text = "\n".join(report.lines())
    assert "1 of 3 questions were cut at 8 pieces (4 pieces lost)" in text
    scored = bertine.evaluate(out, source, precision="fp32", show_progress=False)
    assert scored.to_dict()["num_examples"] == 3


@pytest.mark.takes(3)
def test_a_killed_run_goes_on_to_the_same_bits(model: Path, tmp_path: Path) -> None:
    data = write_squad(tmp_path / "data", v2=True, articles=12, dev=4)
    whole = train(model, data, tmp_path / "whole", 2)
    with toys.interrupted_at(8, SpanExtraction, "terms"):
        train(model, data, tmp_path / "broken", 2, checkpoint_every=5)
    resumed = train(model, data, tmp_path / "broken", 2, checkpoint_every=5, resume=True)
    assert resumed.metrics == whole.metrics
    assert toys.same_weights(whole.model, resumed.model)


def test_answers_that_do_not_align_are_in_a_file_of_the_run(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_squad(tmp_path / "data", articles=6, dev=3)
    content = toy_squad(6)
    first, second = (content["data"][i]["paragraphs"][0]["qas"][0] for i in (0, 1))
    first["answers"][0]["answer_start"] += 9000
    second["answers"][0]["text"] = "moon"
    data.write_text(json.dumps(content))
    out = tmp_path / "run"
    result = train(model, data, out, 1)
    listed = json.loads((out / "not_aligned.json").read_text())
    assert [entry["id"] for entry in listed] == [first["id"], second["id"]]
    assert [entry["found"] for entry in listed][1] == "not in the context"
    assert result.report is not None
    said = capsys.readouterr().err.replace("\n", " ")
    assert "1 of 18 questions are not trained on" in said
    assert "1 of 18 gold answers are not where answer_start says" in said


def test_the_answers_are_json_and_the_n_best_need_a_file(
    run: tuple[str, Path, Path, Learner], tmp_path: Path
) -> None:
    _, data, out, _ = run
    with pytest.raises(BertineError, match=r"a\.parquet: answers to a file in SQuAD's format ar"):
        bertine.predict(out, data, tmp_path / "a.parquet", precision="fp32")
    with pytest.raises(BertineError, match="the n best answers go to a file"):
        bertine.predict(out, data, all_probabilities=True, precision="fp32")


def test_nothing_is_written_beside_a_pipe(
    run: tuple[str, Path, Path, Learner], tmp_path: Path
) -> None:
    version, data, out, _ = run
    dev, pipe = data.with_name(f"dev-v{version}.json"), tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    bertine.predict(out, dev, pipe, precision="fp32", show_progress=False)
    reader.join(timeout=60)
    assert len(json.loads(read[0])) == (40 if version == "2.0" else 30)
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]
    with pytest.raises(BertineError, match="the n best answers go to a file"):
        bertine.predict(out, dev, pipe, all_probabilities=True, precision="fp32")


def test_answers_to_stdout_are_the_json_alone(
    run: tuple[str, Path, Path, Learner], capsys: pytest.CaptureFixture[str]
) -> None:
    version, data, out, _ = run
    capsys.readouterr()
    assert main(["predict", str(out), "--data", str(data.with_name(f"dev-v{version}.json"))]) == 0
    assert len(json.loads(capsys.readouterr().out)) == (40 if version == "2.0" else 30)


def test_a_table_of_ones_own(model: Path, tmp_path: Path) -> None:
    source, out = tmp_path / "train.csv", tmp_path / "run"
    with open(source, "w", encoding="utf-8", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(["question", "passage", "reply", "answer_start"])
        for article in toy_squad(12)["data"]:
            for paragraph in article["paragraphs"]:
                for qa in paragraph["qas"]:
                    (answer,) = qa["answers"]
                    row = [qa["question"], paragraph["context"]]
                    writer.writerow([*row, answer["text"], answer["answer_start"]])
    result = bertine.finetune(
        "spans",
        model=model,
        data=source,
        out=out,
        text_columns=["question", "passage"],
        label_column="reply",
        epochs=1,
        **RECIPE,
    )
    info = json.loads((out / "model" / "bertine.json").read_text())
    assert (info["dataset"], info["text_columns"]) == (None, ["question", "passage"])
    assert info["label_column"] == "reply"
    assert result.report is not None
    assert 3 <= result.report.to_dict()["num_examples"] <= 6  # a tenth, by whole contexts
    # Evaluating reads the columns of training.
    report = bertine.evaluate(out, source, precision="fp32", show_progress=False)
    assert report.to_dict()["num_examples"] == 36
    answered = tmp_path / "answered.csv"
    done = bertine.predict(out, source, answered, precision="fp32")
    assert done.columns == ["answer", "start", "end", "probability"]
