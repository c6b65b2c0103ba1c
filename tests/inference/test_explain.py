"""Explanations: the word that decides is found, contributions add up, and words are whole."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import toys
from bertine.cli import main
from bertine.core.errors import BertineError
from bertine.data.examples import Example, Examples
from bertine.hub.model_directory import save_model
from bertine.inference.explaining.explainer import Explanation, WordContribution
from bertine.inference.explaining.target import METHODS, TOLERANCE, TOLERANCE_SHARE
from bertine.inference.predictor import Predictor
from bertine.models.heads import Model
from bertine.tasks.choice import MultipleChoice
from bertine.tasks.classification import TextClassification
from bertine.tasks.multi_label import MultiLabel
from bertine.tasks.spans import SpanExtraction, SpanLimits
from bertine.tasks.tagging import Tagging
from bertine.tasks.whole_text import TextRegression
from bertine.tokenization.tokenizer import SPECIAL_TOKENS, Tokenizer

FILLERS = ("the", "a", "in", "cat", "soup", "sofa", "pot", "dog", "bread")
DECIDING = {"old": "animal", "warm": "dish", "brown": "other"}


def random_predictor(task: object, tokenizer: Tokenizer | None = None, seed: int = 0) -> Predictor:
    """A tiny model with random weights that are large enough for it to be decided."""
    torch.manual_seed(seed)
    words = toys.tokenizer() if tokenizer is None else tokenizer
    config = toys.config(vocab_size=words.vocab_size)
    model = Model(config, task.heads(config))  # type: ignore[attr-defined]
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(5)
    return Predictor(model, words, task)  # type: ignore[arg-type]


def sentences(number: int, seed: int) -> list[tuple[str, str]]:
    """Texts in which one word alone decides the label; those without one are of the last label."""
    draw = random.Random(seed)
    made = []
    for _ in range(number):
        word = draw.choice(list(DECIDING))
        words = [*draw.choices(FILLERS, k=draw.randint(2, 7)), *([word] if word != "brown" else [])]
        draw.shuffle(words)
        made.append((" ".join(words), word))
    return made


@pytest.fixture(scope="module")
def trained() -> Predictor:
    """A tiny classifier that has learned which word decides."""
    task = TextClassification(("animal", "dish", "other"), ("text",), "label", 16)
    torch.manual_seed(0)
    config = toys.config(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    model = Model(config, task.heads(config))
    words = toys.tokenizer()
    items = [Example((text,), DECIDING[word]) for text, word in sentences(256, seed=1)]
    features = task.featurize(Examples("toy", ("text",), "label", items), words)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for step in range(100):
        at = step * 32 % 256
        batch = task.collate(features[at : at + 32], 0)
        optimizer.zero_grad()
        loss = F.cross_entropy(task.outputs(model, batch), batch.targets["labels"])
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.1
    return Predictor(model, words, task)


@pytest.mark.parametrize("method", METHODS)
def test_the_word_that_decides_comes_first(method: str, trained: Predictor) -> None:
    first = []
    for text, word in sentences(30, seed=2):
        if word == "brown":
            continue
        found = trained.explain(text, method=method)
        assert found.answer == DECIDING[word]
        strongest = found.strongest(1)[0]
        first.append(strongest.word == word and strongest.contribution > 0)
    assert np.mean(first) >= 0.95


def log_odds(predictor: Predictor, text: str, label: str) -> float:
    p = predictor.predict_one(text).probabilities[label]
    return math.log(p) - math.log1p(-p)


def test_a_contribution_is_what_the_answer_loses_without_the_word() -> None:
    predictor = random_predictor(TextClassification(("a", "b", "c"), ("text",), None, 24))
    text = toys.sentence("cat", "old")
    found = predictor.explain(text)
    before = log_odds(predictor, text, found.answer)
    assert found.score == pytest.approx(before, abs=1e-4)
    for word in found.words:
        without = text[: word.start] + text[word.end :]
        fall = before - log_odds(predictor, without, found.answer)
        assert word.contribution == pytest.approx(fall, abs=1e-3)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    ("task", "text"),
    [
        (TextClassification(("a", "b", "c"), ("text",), None, 24), "the old cat sleeps in a pot"),
        (TextRegression(("one", "two"), "score", 24), ("the old cat", "a soup boils")),
        (
            TextClassification(("a", "b"), ("text",), None, 10, long_text="windows"),
            "the old cat sleeps in a pot and the soup boils in the river . the cow grazes",
        ),
        (
            MultipleChoice(("q",), ("x", "y", "z"), max_length=24),
            ("the cat", "sleeps", "boils", "bakes"),
        ),
    ],
    ids=["text", "pair", "windows", "choice"],
)
def test_gradients_add_up_to_the_difference_of_the_scores(
    seed: int, task: object, text: str | tuple[str, ...]
) -> None:
    predictor = random_predictor(task, seed=seed)
    found = predictor.explain(text, method="integrated-gradients")
    assert found.baseline is not None
    assert found.error is not None
    total = sum(word.contribution for word in found.words)
    difference = found.score - found.baseline
    assert total - difference == pytest.approx(found.error, abs=1e-6)
    assert abs(found.error) <= max(TOLERANCE, TOLERANCE_SHARE * abs(difference))
    # The baseline is the score of the text with every word masked.
    if task.name == "regression":  # type: ignore[attr-defined]
        masked = tuple(" ".join("[MASK]" for _ in part.split()) for part in text)
        assert predictor.predict_one(masked).score == pytest.approx(found.baseline, abs=1e-3)
        assert predictor.predict_one(text).score == pytest.approx(found.score, abs=1e-3)


TAGS = ("B-PET", "B-FOOD", "I-PET", "I-FOOD", "O")
LIMITS = SpanLimits(doc_stride=8, max_question_length=10, max_answer_length=6)


@pytest.mark.parametrize(
    ("task", "text", "asked"),
    [
        (TextClassification(("a", "b", "c"), ("text",), None, 24), "the old cat sleeps", {}),
        (TextClassification(("a", "b"), ("one", "two"), None, 24), ("a cat", "the soup"), {}),
        (TextRegression(("text",), "score", 24), "the old cat sleeps", {}),
        (MultiLabel(("a", "b", "c"), ("text",), None, 24), "the old cat", {"label": "c"}),
        (MultipleChoice(("q",), ("x", "y"), max_length=24), ("the cat", "sleeps", "boils"), {}),
        (SpanExtraction(max_length=24, limits=LIMITS), ("the cat", "the old cat sleeps"), {}),
        (Tagging(TAGS, max_length=24), "the old cat sleeps", {}),
        (Tagging(TAGS, max_length=24), "the old cat sleeps", {"word": "cat"}),
        (Tagging(TAGS, max_length=24), "the old cat sleeps", {"word": "old", "label": "B-PET"}),
    ],
    ids=["text", "pair", "number", "labels", "choice", "span", "tags", "tag", "another-tag"],
)
def test_the_sum_rule_holds_for_every_task(task: object, text: object, asked: dict) -> None:  # type: ignore[type-arg]
    predictor = random_predictor(task, seed=3)
    found = predictor.explain(text, method="integrated-gradients", **asked)  # type: ignore[arg-type]
    assert found.baseline is not None
    difference = found.score - found.baseline
    total = sum(word.contribution for word in found.words)
    assert abs(total - difference) <= max(TOLERANCE, TOLERANCE_SHARE * abs(difference))
    # The same number is what leaving words out starts from, so both methods explain one quantity.
    left_out = predictor.explain(text, **asked)  # type: ignore[arg-type]
    assert left_out.score == pytest.approx(found.score, abs=1e-3)
    assert (left_out.answer, left_out.unit) == (found.answer, found.unit)


def test_the_tag_of_one_word_has_its_own_log_odds() -> None:
    tagger = random_predictor(Tagging(TAGS, max_length=24), seed=1)
    text = "the old cat sleeps"
    answer = tagger.predict_one(text)
    for at, word in enumerate(text.split()):
        found = tagger.explain(text, word=word)
        assert found.answer == answer.tags[at]
        assert found.probability == pytest.approx(answer.probabilities[at], abs=1e-4)
        odds = math.log(answer.probabilities[at]) - math.log1p(-answer.probabilities[at])
        assert found.score == pytest.approx(odds, abs=1e-3)
    with pytest.raises(BertineError, match="no word of the text is 'car'"):
        tagger.explain(text, word="car")
    other = random_predictor(TextClassification(("a", "b"), ("text",), None, 24))
    with pytest.raises(BertineError, match="no word has an answer of its own"):
        other.explain(text, word="cat")


def test_predict_explains_beside_its_answers(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = tmp_path / "texts.csv", tmp_path / "answered.jsonl"
    source.write_text("id,text\n1,the old cat\n2,\n", encoding="utf-8")
    call = ["predict", str(folder), "--explain", "--input", str(source), "--output"]
    assert main([*call, str(target)]) == 0
    first, second = (json.loads(line) for line in target.read_text(encoding="utf-8").splitlines())
    assert first["label"] == first["explanation"]["answer"] == "animal"
    strongest = max(first["explanation"]["words"], key=lambda word: word["contribution"])
    assert strongest["word"] == "old"
    assert second["explanation"] is None
    capsys.readouterr()
    assert main([*call, str(tmp_path / "answered.csv")]) == 2
    assert "name the output .jsonl" in capsys.readouterr().err
    assert not (tmp_path / "answered.csv").exists()
    assert main(["predict", str(folder), "--explain", "the warm soup"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert row["explanation"]["words"][1]["word"] == "warm"


@pytest.mark.parametrize("method", METHODS)
def test_words_are_whole_however_many_pieces_they_have(method: str) -> None:
    pieces = [*SPECIAL_TOKENS, "un", "##want", "##ed", "cat", "##s", "don", "'", "t", "!", "the"]
    words = Tokenizer.from_vocab(pieces)
    predictor = random_predictor(TextClassification(("a", "b"), ("text",), None, 24), words)
    text = "The unwanted cats don't!!"
    found = predictor.explain(text, method=method)
    assert [word.word for word in found.words] == ["The", "unwanted", "cats", "don't", "!!"]
    assert [text[word.start : word.end] for word in found.words] == [w.word for w in found.words]
    assert found.pieces_cut == 0


def test_of_windows_every_word_is_explained_and_of_a_cut_text_what_is_read() -> None:
    text = " ".join(toys.sentence(topic, "warm") for topic in toys.TOPICS)
    for mode, read in (("windows", len(text.split())), ("head", 8), ("tail", 8)):
        task = TextClassification(("a", "b"), ("text",), None, 10, long_text=mode)
        predictor = random_predictor(task)
        found = predictor.explain(text)
        assert len(found.words) == read
        assert found.pieces_cut == len(text.split()) - read
        assert found.answer == predictor.predict_one(text).label


def test_a_choice_is_explained_by_what_is_given_and_by_all_choices() -> None:
    task = MultipleChoice(("first", "second"), ("x", "y"), max_length=24)
    predictor = random_predictor(task)
    texts = ("the old cat", "it", "sleeps", "boils in the pot")
    found = predictor.explain(texts)
    assert found.answer == predictor.predict_one(texts).label
    words = [(word.part, word.word) for word in found.words]
    assert words == [(part, word) for part, text in enumerate(texts) for word in text.split()]
    # A word of the second text stands before both choices; leaving it out changes both.
    assert any(word.contribution for word in found.words if word.part == 1)


def test_spans_and_tags_name_what_they_explain() -> None:
    limits = SpanLimits(doc_stride=8, max_question_length=10, max_answer_length=6)
    spans = random_predictor(SpanExtraction(max_length=24, limits=limits))
    pair = ("the cat", toys.sentence("cat", "old"))
    assert spans.explain(pair).answer == spans.predict_one(pair).answer
    tags = ("B-PET", "B-FOOD", "I-PET", "I-FOOD", "O")
    tagger = random_predictor(Tagging(tags, max_length=24), seed=1)
    text = toys.sentence("cat", "old")
    there = {tag[2:] for tag in tagger.predict_one(text).tags if tag != "O"}
    found = tagger.explain(text)
    assert set(found.answer.split(", ")) == (there or {"O"})
    assert len(found.words) == len(text.split())
    kind = sorted(there)[0]
    assert tagger.explain(text, label=kind).answer == kind
    with pytest.raises(BertineError, match="unknown tag 'CAR'"):
        tagger.explain(text, label="CAR")


def test_mistakes_end_in_one_line(trained: Predictor) -> None:
    for call, message in (
        (lambda: trained.explain("  "), "there is no word"),
        (lambda: trained.explain(("a", "b")), "takes one text"),
        (lambda: trained.explain("the cat", method="lime"), "must be one of"),
        (lambda: trained.explain("the cat", label="car"), "unknown label 'car'"),
        (lambda: trained.explain(3), "is not a text"),  # type: ignore[arg-type]
    ):
        with pytest.raises(BertineError, match=message):
            call()


def test_what_a_notebook_and_a_program_see(trained: Predictor) -> None:
    found = trained.explain("the <b> old cat")
    page = found._repr_html_()
    assert "&lt;" in page
    assert "<b> " not in page
    assert page.count("<span") == len(found.words)
    assert json.loads(json.dumps(found.to_dict()))["words"][0]["word"] == "the"
    assert str(found).splitlines()[0].startswith("animal (")


def test_small_effects_have_short_bars_and_are_said_to_be_small() -> None:
    def lines(*values: float, unit: str = "log-odds") -> list[str]:
        words = tuple(
            WordContribution(f"w{at}", 0, at, at + 1, value) for at, value in enumerate(values)
        )
        return Explanation(
            ("text",), "joy", 0.5, words, "leave-one-out", unit, 0.0, None, None, 0
        ).lines()

    small = lines(0.1, -0.05)
    assert [line.count("+") + line.count("-") - 1 for line in small[1:3]] == [2, 1]
    assert small[3] == "  all effects are small: no word changes the log-odds by more than 0.10"
    large = lines(3.0, 0.5)
    assert [line.count("+") - 1 for line in large[1:]] == [24, 4]
    assert lines(0.1, unit="score")[1].count("+") == 25  # a score has its own scale


@pytest.fixture(scope="module")
def folder(trained: Predictor, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("explained") / "model"
    save_model(path, trained.model, trained.tokenizer, task=trained.task.task_info())
    return path


def test_on_the_command_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(folder), "--label", "dish", "the warm cat", "an old soup"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "the warm cat"
    assert lines[1].startswith("dish (")
    assert lines[2].split()[0] == "warm"
    assert lines[2].rstrip().endswith("+")
    assert "an old soup" in lines
    assert main(["explain", str(folder), "--method", "lime", "a"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_files_become_json_lines_with_their_columns(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = tmp_path / "texts.csv", tmp_path / "explained.jsonl"
    source.write_text("id,text\n1,the old cat\n2,\n3,a warm soup\n", encoding="utf-8")
    assert main(["explain", str(folder), "--input", str(source), "--output", str(target)]) == 0
    rows = [json.loads(line) for line in target.read_text(encoding="utf-8").splitlines()]
    assert [row["id"] for row in rows] == ["1", "2", "3"]
    assert rows[1]["explanation"] is None
    assert rows[0]["explanation"]["answer"] == "animal"
    best = max(rows[2]["explanation"]["words"], key=lambda word: word["contribution"])
    assert best["word"] == "warm"
    assert "1 text has nothing that could be explained" in capsys.readouterr().err
    for arguments, message in (
        (["--input", str(source), "--output", str(tmp_path / "a.csv")], "JSON lines"),
        (["--input", str(source), "a text"], "either texts or an input"),
        (["--input", str(source), "--text-columns", "txt"], "no column 'txt'"),
    ):
        assert main(["explain", str(folder), *arguments]) == 2
        assert message in capsys.readouterr().err
    assert not (tmp_path / "a.csv").exists()


def test_by_cost_the_label_that_is_answered_is_explained(
    trained: Predictor, tmp_path: Path
) -> None:
    labels = list(trained.task.labels)
    texts = [text for text, _ in sentences(6, seed=3)]
    # One label costs nothing, whatever is right.
    costs = tmp_path / "costs.csv"
    prices = ["0" if answer == labels[-1] else "1" for answer in labels]
    rows = [[label, *prices] for label in labels]
    costs.write_text("\n".join(",".join(row) for row in [["label", *labels], *rows]) + "\n")
    by_cost = trained.by_cost(costs)
    assert {answer.label for answer in trained.predict(texts)} != {labels[-1]}
    for text in texts:
        explanation = by_cost.explain(text)
        assert explanation.answer == by_cost.predict(text).label == labels[-1]
        plain = trained.explain(text, label=labels[-1])
        assert [word.contribution for word in explanation.words] == pytest.approx(
            [word.contribution for word in plain.words]
        )
