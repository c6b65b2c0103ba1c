"""Vectors trained on pairs, scores, labels and texts."""

from __future__ import annotations

import csv
import itertools
import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import bertine
import toys
from bertine.core.errors import BertineError
from bertine.data.text_pairs import PairRow, PairRows
from bertine.inference.embedding.embedder import Embedder
from bertine.models.dropout import stream
from bertine.options.data import DataConfig
from bertine.tasks.base import Features
from bertine.training.similarity import objective
from bertine.training.similarity.data import MinedNegatives, PairFile, PairSampler, hold_out
from bertine.training.similarity.objective import (
    Pair,
    PairLoss,
    PairObjective,
    order_loss,
    pair_batch,
    ranking_losses,
    right_as_well,
)
from bertine.training.step import accumulate

SETTINGS: dict[str, Any] = {"learning_rate": 2e-3, "precision": "fp32", "batch_size": 8}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toys.write_model(tmp_path_factory.mktemp("model") / "model")


def sentences() -> list[tuple[str, str]]:
    return [
        (topic, toys.sentence(topic, word)) for topic in toys.TOPICS for word in toys.ADJECTIVES
    ]


def write(path: Path, header: list[str], rows: list[list[str]]) -> Path:
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    kinds = {topic: number < 4 for number, topic in enumerate(toys.TOPICS)}
    rows = [
        [a, b, "5" if kinds[one] == kinds[two] else "1"]
        for n, (one, a) in enumerate(sentences())
        for two, b in (sentences()[(n + 4) % 32], sentences()[(n + 17) % 32])
    ]
    folder = tmp_path_factory.mktemp("scored")
    return write(folder / "scored.csv", ["sentence1", "sentence2", "score"], rows)


def test_losses_are_those_worked_out_by_hand() -> None:
    cosines = torch.tensor([[0.5, 0.1], [0.2, 0.4]])
    total, correct = ranking_losses(cosines, torch.zeros(2, 2, dtype=torch.bool), 10.0)
    wanted = np.log(1 + np.exp(-4.0)) + np.log(1 + np.exp(-2.0))
    assert total.item() == pytest.approx(wanted, rel=1e-5)
    assert correct.item() == 2
    found = order_loss(torch.tensor([0.3, 0.5]), torch.tensor([1.0, 0.0]), 10.0)
    assert found.item() == pytest.approx(np.log(1 + np.exp(2.0)), rel=1e-5)


def test_first_numbers_are_trained_beside_whole_vectors() -> None:
    """The loss is the mean over the lengths, whole vectors always among them."""
    generator = torch.Generator().manual_seed(0)
    features = [Features(np.array([n]), np.array([0]), n) for n in range(6)]
    pairs = [Pair(features[n], features[n + 1]) for n in (0, 2, 4)]
    batch = pair_batch(pairs, 0, 8)
    vectors = torch.randn(6, 8, generator=generator)
    of = {
        lengths: PairLoss(lengths=lengths).of(vectors, batch)["ranking"].total.item()
        for lengths in ((), (3,), (8, 3), (3, 3))
    }
    alone = PairLoss().of(vectors[:, :3], batch)["ranking"].total.item()
    for lengths in ((3,), (8, 3), (3, 3)):
        assert of[lengths] == pytest.approx((of[()] + alone) / 2)


def test_what_is_right_too_is_no_wrong_answer() -> None:
    known = right_as_well(
        torch.tensor([-1, -1, -1]),
        torch.tensor([1, 1, 2]),
        torch.tensor([5, 6, 5]),
        torch.tensor([1, 9]),
    )
    assert known.tolist() == [
        [False, True, True, True, False],  # same first text, same match, itself
        [True, False, False, True, False],
        [True, False, False, False, False],
    ]


@pytest.mark.slow
def test_parts_give_the_gradients_of_the_whole(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with dropout, whose masks the second pass draws again."""
    for dropout in (0.0, 0.1):
        loaded = bertine.load_model(model, heads={}, dropout=dropout)
        embedder = Embedder.load(model, precision="fp32", loaded=loaded)
        texts = embedder.features([text for _, text in sentences()])
        pairs = [Pair(texts[n], texts[n + 1], (texts[n + 9],)) for n in range(10)]
        batch = pair_batch(pairs, embedder.tokenizer.pad_token_id, embedder.max_length)
        found = []
        for most in (40, 40, 10**6) if dropout == 0 else (40, 40):
            with monkeypatch.context() as patch:
                if len(found) == 1:  # the parts as one graph, without caching
                    patch.setattr(
                        objective._Cached,
                        "apply",
                        lambda _, encode, whole, parts: objective._forward(
                            encode, whole, parts, stream.position
                        ),
                    )
                loaded.model.train()
                loaded.model.zero_grad()
                loss = PairObjective(PairLoss(symmetric=True), embedder.pooling, most)
                accumulate(loaded.model, loss, [batch], dtype=torch.float32, seeds=[0, 1])
            grads = [p.grad.flatten() for p in loaded.model.parameters() if p.grad is not None]
            found.append(torch.cat(grads))
        assert found[0].norm() > 0
        for other in found[1:]:
            torch.testing.assert_close(found[0], other, rtol=1e-4, atol=1e-5)


def test_an_epoch_has_every_row_once_and_none_that_is_held_out(model: Path, tmp_path: Path) -> None:
    embedder = Embedder.load(model, precision="fp32")
    rows = [PairRow(n, (text, text), score=float(n)) for n, (_, text) in enumerate(sentences())]
    with PairFile(tmp_path / "pieces").write(rows, embedder) as file:
        held = hold_out(file.pair_column(), 5, 5, seed=1)
        draws = PairSampler(file, "scores", batch_size=3, seed=1, held=held)
        steps = range(draws.steps_per_epoch)
        drawn = [row for step in steps for row in draws.rows(step)]
        assert len(drawn) == len(set(drawn)) == 27
        assert len(held) == 5
        assert not set(drawn) & set(held.rows.tolist())
        again = PairSampler(file, "scores", batch_size=3, seed=1, held=held)
        assert again.rows(7) == draws.rows(7) != draws.rows(7 + draws.steps_per_epoch)
        (texts,) = file.read([9])
        assert (
            texts[0].input_ids.tolist() == embedder.features(rows[9].texts[0])[0].input_ids.tolist()
        )


def test_what_would_go_wrong_in_silence_is_refused(model: Path, tmp_path: Path) -> None:
    texts = write(tmp_path / "texts.csv", ["text"], [[a] for a, _ in sentences()])
    start = {"model": model, "out": tmp_path / "run"}
    with pytest.raises(BertineError, match=r"no dropout; give dropout=0.1"):
        bertine.finetune_similarity(**start, data=texts, dropout=0.0)
    pairs = write(tmp_path / "pairs.csv", ["query", "match"], [[*p] for p in sentences()])
    with pytest.raises(BertineError, match=r"here .*pairs\.csv judges"):
        bertine.finetune_similarity(**start, data=pairs, validation=pairs, held_out_pairs=5)
    empty = write(tmp_path / "empty.csv", ["query", "match"], [["fox", ""]])
    with pytest.raises(BertineError, match=r"empty\.csv: has no row to judge by"):
        bertine.finetune_similarity(**start, data=pairs, validation=empty)
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(BertineError, match=r"pipe\.csv: is read several times"):
        bertine.finetune_similarity(**start, data=tmp_path / "pipe.csv")
    with pytest.raises(BertineError, match=r"pipe\.csv: is read several times"):
        bertine.evaluate(bertine.Embedder.load(model), data=tmp_path / "pipe.csv")
    with pytest.raises(BertineError, match=r"empty\.csv: has no row to evaluate on"):
        bertine.evaluate(bertine.Embedder.load(model), data=empty)
    with pytest.raises(BertineError, match="coverage is for labelled examples, but this"):
        bertine.evaluate(bertine.Embedder.load(model), data=pairs, coverage=0.9)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("header", "column"),
    [
        (["question1", "question2", "is_duplicate"], "is_duplicate"),
        (["first", "second", "topic"], "topic"),
    ],
)
def test_a_label_beside_two_texts_may_say_that_they_are_no_match(
    header: list[str], column: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "rows.csv", header, [["a fox", "a dog", "0"]])
    with pytest.raises(BertineError, match=f"two texts and a column '{column}'"):
        PairRows(path).open_columns()


def test_mended_text_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "damaged.csv"
    path.write_bytes(b"query,match\nle caf\xff,la tasse\n")
    rows = PairRows(path)
    assert [row.texts[1] for row in rows] == ["la tasse"]
    assert any("not valid UTF-8" in note for note in rows.notes())


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=60),
    st.integers(0, 12),
    st.integers(0, 5),
)
def test_no_text_is_held_out_and_trained_on(
    pairs: list[tuple[int, int]], count: int, seed: int
) -> None:
    held = hold_out(np.array(pairs), min(count, len(pairs)), 1, seed)
    rows = held.rows.tolist()
    trained = held.trained(range(len(pairs) - len(rows))).tolist()
    assert sorted([*rows, *trained]) == [*range(len(pairs))]
    assert len(rows) <= count
    if held.apart:
        assert not {t for row in rows for t in pairs[row]} & {t for r in trained for t in pairs[r]}
    else:
        assert len(rows) == min(count, len(pairs))


def test_how_many_steps_and_how_many_pairs_are_held_out(model: Path, tmp_path: Path) -> None:
    rows = [[*pair, 1.0] for pair in sentences()] + [["fox", "river", 0.0]]
    path = write(tmp_path / "rows.csv", ["sentence1", "sentence2", "score"], rows)
    start = {"model": model, "data": path}
    with toys.one_thread():
        none = bertine.finetune_similarity(
            **start, out=tmp_path / "none", steps=3, held_out_pairs=0, **SETTINGS
        )
        some = bertine.finetune_similarity(
            **start, out=tmp_path / "some", steps=3, held_out_pairs=4, **SETTINGS
        )
    assert (none.rows, none.steps, none.metric) == (len(rows), 3, "")
    assert some.rows == len(rows) - 4
    assert some.metric == "spearman"
    with pytest.raises(BertineError, match="held_out_pairs=40 leaves too few of 33 pairs"):
        bertine.finetune_similarity(**start, out=tmp_path / "x", held_out_pairs=40)
    with pytest.raises(BertineError, match="give steps or epochs, not both"):
        bertine.finetune_similarity(**start, out=tmp_path / "x", steps=3, epochs=1)
    texts = write(tmp_path / "texts.csv", ["text"], [[a] for a, _ in sentences()])
    with pytest.raises(BertineError, match="held_out_pairs=4 is for pairs; these are texts alone"):
        bertine.finetune_similarity(model=model, data=texts, out=tmp_path / "x", held_out_pairs=4)


@pytest.mark.parametrize(
    ("header", "kind"),
    [
        (["sentence1", "sentence2", "score"], "scores"),
        (["query", "match", "negative_1"], "pairs"),
        (["title", "body"], "pairs"),
        (["text", "label"], "labels"),
        (["text"], "texts"),
    ],
)
def test_the_kind_is_recognized(header: list[str], kind: str, tmp_path: Path) -> None:
    path = write(tmp_path / "rows.csv", header, [["1"] * len(header)])
    assert PairRows(path).open_columns().kind == kind


@pytest.mark.takes(4)
def test_scores_are_learned_and_the_directory_opens(
    model: Path, scored: Path, tmp_path: Path
) -> None:
    with toys.one_thread():
        result = bertine.finetune_similarity(
            model=model, data=scored, validation=scored, out=tmp_path / "run", epochs=4, **SETTINGS
        )
        assert result.after["spearman"] > result.before["spearman"]
        report = bertine.evaluate(tmp_path / "run", scored, show_progress=False)
        assert report.metrics["spearman"] == pytest.approx(result.after["spearman"], abs=0.02)
        ours = Embedder.load(result.model, precision="fp32")(["the old cat sleeps"])
    assert (result.model / "modules.json").is_file()
    pytest.importorskip("sentence_transformers")
    from sentence_transformers import SentenceTransformer

    theirs = SentenceTransformer(str(result.model), device="cpu").encode(["the old cat sleeps"])
    cosine = (ours * theirs).sum() / np.linalg.norm(ours) / np.linalg.norm(theirs)
    assert cosine > 0.99999


def mean_cosine(model: Path | str, texts: list[str]) -> float:
    """Average the cosines of every two texts."""
    vectors = Embedder.load(model, precision="fp32", normalize=True)(texts)
    cosines = vectors @ vectors.T
    return float((cosines.sum() - len(texts)) / (len(texts) * (len(texts) - 1)))


@pytest.mark.slow
def test_texts_alone_move_apart(model: Path, tmp_path: Path) -> None:
    """Each is its own match under another dropout, and no match of all others."""
    texts = [text for _, text in sentences()]
    rows = write(tmp_path / "texts.csv", ["text"], [[text] for text in texts])
    with toys.one_thread():
        result = bertine.finetune_similarity(
            model=model, data=rows, out=tmp_path / "run", epochs=6, **SETTINGS
        )
        assert (result.kind, result.rows) == ("texts", len(texts))
        assert mean_cosine(result.model, texts) < mean_cosine(model, texts) - 0.2
    log = [json.loads(line) for line in (tmp_path / "run/log.jsonl").read_text().splitlines()]
    losses = [entry["loss"] for entry in log if "loss" in entry]
    assert losses[-1] < losses[0]


@pytest.mark.slow
def test_pairs_of_labels_are_drawn_and_searched(model: Path, tmp_path: Path) -> None:
    """Topics of one label find one another, which random weights do not know."""
    kinds = {topic: number < 4 for number, topic in enumerate(toys.TOPICS)}
    listed = [[text, "animal" if kinds[topic] else "dish"] for topic, text in sentences()]
    texts = write(tmp_path / "texts.csv", ["text", "label"], listed)
    rows = [
        [toys.sentence(one, "old"), toys.sentence(two, "warm")]
        for one in toys.TOPICS
        for two in toys.TOPICS
        if one != two and kinds[one] == kinds[two]
    ]
    pairs = write(tmp_path / "pairs.csv", ["query", "match"], rows)
    with toys.one_thread():
        result = bertine.finetune_similarity(
            model=model, data=texts, validation=pairs, out=tmp_path / "run", epochs=8, **SETTINGS
        )
    assert result.after["ndcg@10"] > result.before["ndcg@10"]


@pytest.mark.slow
def test_neighbouring_sentences_are_pairs(model: Path, tmp_path: Path) -> None:
    """Topics of one kind, which stand beside each other in the documents, find one another."""
    kinds = {topic: number < 4 for number, topic in enumerate(toys.TOPICS)}
    alike = [
        (one, two)
        for one in toys.TOPICS
        for two in toys.TOPICS
        if one != two and kinds[one] == kinds[two]
    ]
    documents = [
        [f"{toys.sentence(one, word)} {toys.sentence(two, word)} {toys.sentence(one, word)}"]
        for one, two in alike
        for word in toys.ADJECTIVES
    ]
    held = [[toys.sentence(one, "old"), toys.sentence(two, "warm")] for one, two in alike]
    rows = write(tmp_path / "texts.csv", ["text"], [*documents, ["the cat sleeps"]])
    pairs = write(tmp_path / "pairs.csv", ["query", "match"], held)
    with toys.one_thread():
        result = bertine.finetune_similarity(
            model=model, data=rows, kind="sentences", validation=pairs, out=tmp_path / "run",
            epochs=3, **{**SETTINGS, "batch_size": 32},
        )  # fmt: skip
    # The last document has one sentence, so no pair.
    assert (result.kind, result.rows) == ("sentences", 2 * len(documents))
    assert result.after["ndcg@10"] > result.before["ndcg@10"]


@pytest.mark.slow
def test_a_run_that_was_stopped_ends_with_the_same_bits(
    model: Path, scored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"model": model, "data": scored, "epochs": 1, "mine_negatives": 2, **SETTINGS}
    settings |= {"kind": "pairs", "vector_lengths": [32, 8], "checkpoint_every": 3}
    with toys.one_thread():
        whole = bertine.finetune_similarity(out=tmp_path / "whole", **settings)
        call = PairSampler.__call__

        def stopped(draws: PairSampler, step: int) -> list[Pair]:
            if step == 4:
                os.kill(os.getpid(), signal.SIGINT)
            return call(draws, step)

        monkeypatch.setattr(PairSampler, "__call__", stopped)
        with pytest.raises(KeyboardInterrupt):
            bertine.finetune_similarity(out=tmp_path / "again", **settings)
        monkeypatch.setattr(PairSampler, "__call__", call)
        again = bertine.finetune_similarity(out=tmp_path / "again", resume=True, **settings)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
    assert toys.same_weights(whole.model, again.model)


@pytest.mark.slow
def test_shorter_vectors_are_scored_as_evaluate_scores_them(
    model: Path, scored: Path, tmp_path: Path
) -> None:
    run: dict[str, Any] = {"model": model, "data": scored, "validation": scored, "epochs": 2}
    run |= {"out": tmp_path / "run", "vector_lengths": [8, 4], **SETTINGS}
    with toys.one_thread():
        result = bertine.finetune_similarity(**run)
        assert list(result.shortened) == [8, 4]
        for length, value in result.shortened.items():
            found = bertine.evaluate(
                tmp_path / "run", scored, dimensions=length, precision="fp32"
            ).metrics
            assert found["spearman"] == pytest.approx(value, abs=1e-5)
            line = f"spearman {value:.4f} with the first {length} numbers of a vector"
            assert line in result.lines()
        again = bertine.finetune_similarity(**run, resume=True)
        # The model that it began with has no task, and its vectors are scored all the same.
        before = bertine.evaluate(model, scored, precision="fp32").metrics
        # But not what only looks like pairs.
        rows = [["where is it", "delivery"], ["pay me", "payment"]]
        labelled = write(tmp_path / "labelled.csv", ["message", "team"], rows)
        with pytest.raises(BertineError, match="was not fine-tuned"):
            bertine.evaluate(model, labelled)
    assert again.shortened == result.shortened
    assert before["spearman"] == pytest.approx(result.before["spearman"], abs=1e-5)
    with pytest.raises(BertineError, match="cannot be shortened"):
        bertine.evaluate(Embedder.load(result.model), scored, dimensions=4)


def test_mistakes_are_named(model: Path, scored: Path, tmp_path: Path) -> None:
    with pytest.raises(BertineError, match="pairs without scores"):
        bertine.finetune_similarity(
            model=model, data=scored, out=tmp_path / "run", loss="ranking", **SETTINGS
        )
    bad = write(tmp_path / "bad.csv", ["sentence1", "sentence2", "score"], [["a", "b", "high"]])
    with pytest.raises(BertineError, match=r"bad.csv:2: the score 'score' is 'high'"):
        bertine.finetune_similarity(model=model, data=bad, out=tmp_path / "run", **SETTINGS)


def test_training_that_does_harm_keeps_the_weights_of_before(
    model: Path, scored: Path, tmp_path: Path
) -> None:
    """Scores that say the opposite of those that it is judged by; and so it is when asked again."""
    with open(scored, encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    opposite = [[a, b, {"5": "1", "1": "5"}[score]] for a, b, score in rows]
    wrong = write(tmp_path / "wrong.csv", header, opposite)
    run: dict[str, Any] = {"model": model, "data": wrong, "validation": scored, "epochs": 2}
    with toys.one_thread():
        result = bertine.finetune_similarity(**run, out=tmp_path / "run", **SETTINGS)
        again = bertine.finetune_similarity(**run, out=tmp_path / "run", resume=True, **SETTINGS)
    assert result.kept_start
    assert result.after == result.before
    assert result == again
    assert any("so the weights of before training are saved" in line for line in result.lines())
    before = bertine.load_model(model, heads={}).model
    after = bertine.load_model(result.model, heads={}).model
    for name, weight in before.state_dict().items():
        assert torch.equal(weight, after.state_dict()[name]), name


def test_mined_negatives_are_neither_held_out_nor_right(model: Path, tmp_path: Path) -> None:
    """Of queries with several matches no match is a wrong answer."""
    rows = [
        [toys.sentence(one, "old"), toys.sentence(two, word)]
        for one in [*toys.TOPICS][:4]
        for two in [*toys.TOPICS][4:]
        for word in toys.ADJECTIVES[:2]
    ]
    path = write(tmp_path / "rows.csv", ["query", "match"], rows)
    embedder = Embedder.load(model, precision="fp32")
    with PairFile(tmp_path / "pieces").write(PairRows(path), embedder) as file:
        mined = MinedNegatives(tmp_path / "mined.bin", 3)
        mined.mine(file, embedder, margin=2.0, seed=0)
        assert mined.found == 0  # every second text is a match of every query
    different = [[f"{query} {number % 7}", match] for number, (query, match) in enumerate(rows)]
    path = write(tmp_path / "other.csv", ["query", "match"], different)
    with PairFile(tmp_path / "more").write(PairRows(path), embedder) as file:
        mined = MinedNegatives(tmp_path / "mined.bin", 3)
        held = [2, 5, 11]
        mined.mine(file, embedder, margin=2.0, seed=0, held=held)
        found = mined.of(range(len(file)))
        assert mined.found > 0
        assert not {*held} & {row for of in found for row in of}


def test_mined_negatives_are_different_texts(model: Path, tmp_path: Path) -> None:
    """As in a list of questions, many of which have the same answer."""
    answers = [toys.sentence(topic, "old") for topic in [*toys.TOPICS][:4]]
    rows = [[f"{answers[number % 4]} {number}", answers[number % 4]] for number in range(40)]
    path = write(tmp_path / "rows.csv", ["query", "match"], rows)
    embedder = Embedder.load(model, precision="fp32")
    with PairFile(tmp_path / "pieces").write(PairRows(path), embedder) as file:
        mined = MinedNegatives(tmp_path / "mined.bin", 3)
        mined.mine(file, embedder, margin=2.0, seed=0)
        for number, negatives in enumerate(mined.of(range(40))):
            assert {rows[row][1] for row in negatives} == {*answers} - {answers[number % 4]}


@pytest.mark.parametrize(
    ("header", "asked", "kind", "texts"),
    [
        (["review", "gold"], {"config": DataConfig(label_column="gold")}, "labels", ("review",)),
        (["a", "b", "gold"], {"config": DataConfig(label_column="gold")}, "scores", ("a", "b")),
        (["a", "b", "hard"], {"negative_columns": "hard"}, "pairs", ("a", "b")),
        (["title", "body", "category"], {}, "pairs", ("title", "body")),
        (["premise", "hypothesis", "label"], {"kind": "pairs"}, "pairs", ("premise", "hypothesis")),
    ],
)
def test_columns_that_are_named_are_no_texts(
    header: list[str], asked: dict[str, Any], kind: str, texts: tuple[str, ...], tmp_path: Path
) -> None:
    path = write(tmp_path / "rows.csv", header, [["1"] * len(header)])
    columns = PairRows(path, **asked).open_columns()
    assert (columns.kind, columns.texts) == (kind, texts)


def test_validation_is_read_as_the_training_rows_are(
    model: Path, scored: Path, tmp_path: Path
) -> None:
    with open(scored, encoding="utf-8", newline="") as file:
        _, *rows = csv.reader(file)
    folder = tmp_path / "data"
    folder.mkdir()
    for name in ("train", "dev"):
        write(folder / f"{name}.csv", ["id", "one", "two", "gold"], [["x", *row] for row in rows])
    with toys.one_thread():
        result = bertine.finetune_similarity(
            model=model,
            data=folder,
            out=tmp_path / "run",
            epochs=1,
            text_columns=["one", "two"],
            label_column="gold",
            **SETTINGS,
        )
    assert result.metric == "spearman"
    settings = json.loads((tmp_path / "run" / "run.json").read_text())["settings"]
    assert settings["metric"] == "spearman"


def test_texts_in_memory_are_not_written_into_the_run(model: Path, tmp_path: Path) -> None:
    texts = [text for _, text in sentences()]
    rows = [{"query": a, "match": b} for a, b in itertools.pairwise(texts)]
    with toys.one_thread():
        bertine.finetune_similarity(
            model=model, data=rows, out=tmp_path / "run", epochs=1, **SETTINGS
        )
    for name in ("run.json", "model/bertine.json", "model/README.md"):
        assert rows[3]["query"] not in (tmp_path / "run" / name).read_text()


def test_a_mistake_in_the_validation_leaves_no_run(
    model: Path, scored: Path, tmp_path: Path
) -> None:
    labels = write(tmp_path / "labels.csv", ["text", "label"], [["a cat", "x"], ["a dog", "y"]])
    run: dict[str, Any] = {"model": model, "data": scored, "out": tmp_path / "run", "epochs": 1}
    with pytest.raises(BertineError, match="these are texts with a label"):
        bertine.finetune_similarity(**run, validation=labels, **SETTINGS)
    with pytest.raises(BertineError, match="vectors of 9999 numbers are asked for"):
        bertine.finetune_similarity(**run, vector_lengths=[9999], **SETTINGS)
    assert not (tmp_path / "run").exists()
