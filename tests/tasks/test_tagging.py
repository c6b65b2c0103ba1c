"""Tagging: first pieces, windows, document context, decoding, scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from bertine.core.errors import BertineError
from bertine.core.task_info import TaskInfo
from bertine.corpora.batch import check_batch, split
from bertine.data.entities import Counts, Entity, Sentence, Sentences
from bertine.families.bert import BertConfig
from bertine.models.heads import Model
from bertine.tasks.tagged_words import Tags, WordFeatures
from bertine.tasks.tagging import IGNORED, Tagging
from bertine.tokenization.tokenizer import SPECIAL_TOKENS, Tokenizer

# A word of n letters a has n pieces.
TOKENIZER = Tokenizer.from_vocab([*SPECIAL_TOKENS, "a", "##a", "b", "##b", "."])
CONFIG = BertConfig(
    vocab_size=TOKENIZER.vocab_size,
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=32,
)
LABELS = ("O", "B-x", "I-x")
A, MORE, B = (TOKENIZER.token_to_id(token) for token in ("a", "##a", "b"))
CLS, SEP = TOKENIZER.cls_token_id, TOKENIZER.sep_token_id


def examples_of(
    rows: Sequence[tuple[Sequence[str], Sequence[str] | None]], documents: Sequence[int] = ()
) -> Sentences:
    items = [
        Sentence(
            tuple(words),
            None if tags is None else tuple(tags),
            10 * line,
            documents[line - 1] if documents else None,
        )
        for line, (words, tags) in enumerate(rows, 1)
    ]
    return Sentences("train.conll", ("column 1",), "column 2", items, word_a_line=True)


def features_of(task: Tagging, examples: Sentences) -> list[WordFeatures]:
    return cast(list[WordFeatures], task.featurize(examples, TOKENIZER))


def test_the_first_piece_predicts_and_the_others_have_no_label() -> None:
    task = Tagging(LABELS, max_length=16)
    examples = examples_of([(["aaa", "b", "aa"], ["B-x", "I-x", "O"]), (["b"], ["O"])])
    features = features_of(task, examples)
    assert features[0].input_ids.tolist() == [CLS, A, MORE, MORE, B, A, MORE, SEP]
    batch = task.collate(features, TOKENIZER.pad_token_id)
    ignored = IGNORED
    assert batch.targets["labels"].tolist() == [
        [ignored, 1, ignored, ignored, 2, 0, ignored, ignored],
        [ignored, 0, *[ignored] * 6],
    ]
    assert task.counts(batch) == {"token_classifier": 4}
    check_batch(batch, CONFIG, num_labels=3)
    assert not examples.notes


@st.composite
def sentences(draw: st.DrawFn) -> Sentences:
    words = st.one_of(
        st.integers(1, 9).map(lambda n: "a" * n), st.sampled_from(["b", ".", "\u200b", "", "?"])
    )
    rows = draw(st.lists(st.lists(words, max_size=30), min_size=1, max_size=6))
    documents = sorted(draw(st.integers(0, 2)) for _ in rows)
    tags = [draw(st.lists(st.sampled_from(LABELS), min_size=len(r), max_size=len(r))) for r in rows]
    return examples_of(list(zip(rows, tags, strict=True)), documents)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(sentences(), st.integers(3, 20), st.booleans())
def test_every_word_is_predicted_once_whatever_its_place(
    examples: Sentences, max_length: int, context: bool
) -> None:
    task = Tagging(LABELS, max_length=max_length, document_context=context)
    features = features_of(task, examples)
    assert sorted({window.row for window in features}) == list(range(len(examples)))
    outputs = []
    for row, item in enumerate(examples.items):
        windows = [window for window in features if window.row == row]
        predicted = [word for window in windows for word in window.words.tolist()]
        readable = [i for i, word in enumerate(item.words) if word not in ("", "\u200b")]
        assert predicted == readable
        for window in windows:
            assert len(window.input_ids) <= max_length
            assert (window.input_ids[0], window.input_ids[-1]) == (CLS, SEP)
            for place, word in zip(window.positions.tolist(), window.words.tolist(), strict=True):
                first = TOKENIZER.encode_plain([item.words[word]])[0][0]
                assert window.input_ids[place] == first
            # A model that answers right at these places, and nonsense at others.
            answer = np.full((len(window.input_ids), 3), 0.5, np.float32)
            answer[:, 1] = 9.0
            assert window.tags is not None
            answer[window.positions] = np.eye(3, dtype=np.float32)[window.tags] * 20
            outputs.append(answer)
    found = task.decode(outputs, features)
    for item, tags in zip(examples.items, found, strict=True):
        assert len(tags.tags) == len(tags.probabilities) == len(item.words)
        assert item.tags is not None
        for at, (tag, answer_tag) in enumerate(zip(item.tags, tags.tags, strict=True)):
            assert answer_tag == tag or (at in tags.unread and answer_tag in ("O", "I-x"))
        assert all(item.words[at] in ("", "\u200b") for at in tags.unread)


def test_words_around_in_the_document_are_read_but_not_predicted() -> None:
    rows = [(["a", "b"], ["O", "B-x"]), (["b"], ["B-x"]), (["a", "a"], ["O", "O"]), (["."], ["O"])]
    examples = examples_of(rows, documents=[0, 0, 0, 1])
    alone = features_of(Tagging(LABELS, max_length=10), examples)
    assert [len(window.input_ids) for window in alone] == [4, 3, 4, 3]
    task = Tagging(LABELS, max_length=10, document_context=True)
    wide = features_of(task, examples)
    assert [window.input_ids.tolist() for window in wide[:3]] == [[CLS, A, B, B, A, A, SEP]] * 3
    assert [window.positions.tolist() for window in wide] == [[1, 2], [3], [4, 5], [1]]
    assert len(wide[3].input_ids) == 3


def test_document_context_needs_documents() -> None:
    examples = examples_of([(["a"], ["O"]), (["b"], ["B-x"])])
    with pytest.raises(BertineError, match=r"train\.conll: tells no documents.*-DOCSTART-"):
        Tagging.from_examples(examples, document_context=True)
    features_of(Tagging(LABELS, document_context=True), examples)
    assert examples.notes == ["train.conll: tells no documents, so each sentence is read by itself"]


def test_where_no_tag_says_nothing_a_word_without_pieces_is_unknown() -> None:
    task = Tagging(("NOUN", "VERB"), max_length=12)
    features = features_of(task, examples_of([(["a", "\u200b", "aa"], None)]))
    unknown = TOKENIZER.unk_token_id
    assert features[0].input_ids.tolist() == [CLS, A, unknown, A, MORE, SEP]
    assert features[0].words.tolist() == [0, 1, 2]


def test_the_loss_is_the_cross_entropy_of_the_words_in_any_micro_batch() -> None:
    torch.manual_seed(0)
    task = Tagging(LABELS, max_length=24)
    model = Model(CONFIG, task.heads(CONFIG), add_pooler=False).eval()
    rows = [(["a" * n, "b", "aa"], ["B-x", "I-x", "O"]) for n in (1, 2, 9, 15)]
    batch = task.collate(features_of(task, examples_of(rows)), TOKENIZER.pad_token_id)
    with torch.no_grad():
        whole = task.terms(model, batch)["token_classifier"]
        parts = [task.terms(model, part)["token_classifier"] for part in split(batch, 24)]
        logits = task.outputs(model, batch)
    labels = batch.targets["labels"]
    places = labels != IGNORED
    expected = F.cross_entropy(logits[places], labels[places], reduction="sum")
    assert whole.count == 12
    assert float(whole.total) == pytest.approx(float(expected), rel=1e-5)
    assert whole.correct is not None
    assert int(whole.correct) == int((logits[places].argmax(-1) == labels[places]).sum())
    assert len(parts) > 1
    assert sum(part.count for part in parts) == 12
    assert sum(float(part.total) for part in parts) == pytest.approx(float(expected), rel=1e-4)


def test_tags_of_the_task() -> None:
    rows = [(["a", "b", "a"], ["B-y", "O", "B-x"])]
    task = Tagging.from_examples(examples_of(rows))
    assert task.labels == ("O", "B-x", "I-x", "B-y", "I-y")
    assert task.has_entities
    plain = Tagging.from_examples(examples_of([(["a", "b"], ["VERB", "NOUN"])]))
    assert plain.labels == ("NOUN", "VERB")
    assert not plain.has_entities
    with pytest.raises(BertineError, match=r"train\.conll: column 2 holds only the tag 'O'"):
        Tagging.from_examples(examples_of([(["a"], ["O"])]))


def test_an_unknown_tag_is_named_with_its_line() -> None:
    task = Tagging(LABELS)
    with pytest.raises(
        BertineError, match=r"train\.conll:11: unknown tag 'B-y' of 'b' \(did you mean 'B-x'\?\)"
    ):
        features_of(task, examples_of([(["a", "b"], ["O", "B-y"])]))
    with pytest.raises(BertineError, match=r"train\.conll:10: 2 words, but 1 tag"):
        features_of(task, examples_of([(["a", "b"], ["O"])]))


def test_tags_of_a_model_in_iob1_are_known() -> None:
    task = Tagging(("O", "I-x"))
    features = features_of(task, examples_of([(["a", "b"], ["B-x", "I-x"])]))
    assert features[0].tags is not None
    assert features[0].tags.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("labels", "guess"),
    [
        (("O", "I-x", "B-y", "I-y"), ("I-x", "I-x", "O", "B-y")),
        (("O", "B-x", "I-x", "E-x", "S-x", "S-y"), ("B-x", "E-x", "O", "S-y")),
        (("O", "I"), ("I", "I", "O", "I")),
    ],
)
def test_words_tagged_in_another_scheme_are_right_where_their_entities_are(
    labels: tuple[str, ...], guess: tuple[str, ...]
) -> None:
    typed = guess[0] != "I"
    truth = ("B-x", "I-x", "O", "B-y") if typed else ("B", "I", "O", "B")
    scores = Tagging(labels).report([Tags(guess, (1.0,) * 4)], [truth]).metrics
    assert scores == {"precision": 1, "recall": 1, "f1": 1, "accuracy": 1}


def test_scores_and_the_report() -> None:
    task = Tagging(("O", "B-x", "I-x", "B-y", "I-y"))
    truth = [("B-x", "I-x", "O"), ("B-y", "O")]
    right = [Tags(tags, (1.0,) * len(tags)) for tags in truth]
    scores = task.report(right, truth).metrics
    assert scores == {"precision": 1, "recall": 1, "f1": 1, "accuracy": 1}
    half = [Tags(("B-x", "O", "O"), (1.0,) * 3), right[1]]
    report = task.report(half, truth)
    assert report.metrics == {"precision": 0.5, "recall": 0.5, "f1": 0.5, "accuracy": 0.8}
    text = "\n".join(report.lines())
    assert "2 sentences, 5 words: precision 50.00%, recall 50.00%, f1 50.00%" in text
    assert "2 entities; found 2; correct 1" in text
    assert "collapsed" not in text
    assert report.to_dict()["types"]["y"]["f1"] == 1.0
    nothing = task.report([Tags(("O",) * 3, (1.0,) * 3), Tags(("O",) * 2, (1.0,) * 2)], truth)
    assert nothing.collapsed
    assert "collapsed: no entity is found" in "\n".join(nothing.lines())
    with pytest.raises(BertineError, match="there are no sentences"):
        task.report([], [])
    with pytest.raises(BertineError, match="sentence 1: 2 tags for 3 words"):
        task.report(half[:1], [("O", "O")])


def test_entities_given_by_characters_are_judged_by_these() -> None:
    """What tags of words cannot mark is missed, though the tags are those of the training."""
    text = "bs ab a"
    given = (Entity(0, 1, "x"), Entity(3, 5, "x"), Entity(3, 7, "x"))
    offsets = ((0, 2), (3, 5), (6, 7))
    item = Sentence(
        ("bs", "ab", "a"), ("B-x", "B-x", "I-x"), 1, text=text, offsets=offsets, spans=given
    )
    examples = Sentences("in.csv", ("text",), "entities", [item])
    report = Tagging(LABELS).judge([Tags(("B-x", "B-x", "I-x"), (0.9, 0.8, 0.7))], examples)
    assert report.types == {"x": Counts(correct=1, predicted=2, true=3)}
    assert report.metrics["accuracy"] == 1
    assert report.reliability is not None


def test_a_word_without_pieces_belongs_to_the_entity_around_it() -> None:
    task = Tagging(LABELS, max_length=16)
    words = ["\u200b", "a", "\ufe0f", "b", "\u200b", "b", "\u200b"]
    features = features_of(task, examples_of([(words, None)]))
    logits = np.zeros((len(features[0].input_ids), 3), np.float32)
    for position, tag in zip(features[0].positions, ("B-x", "I-x", "B-x"), strict=True):
        logits[position, LABELS.index(tag)] = 5
    (answer,) = task.decode([logits], features)
    assert answer.tags == ("O", "B-x", "I-x", "I-x", "O", "B-x", "O")
    assert answer.unread == (0, 2, 4, 6)


def test_plain_tags_are_scored_by_words() -> None:
    task = Tagging(("N", "V"))
    report = task.report([Tags(("N", "N", "N"), (1.0,) * 3)], [("N", "V", "N")])
    assert report.metrics == {"accuracy": pytest.approx(2 / 3), "f1": pytest.approx(0.4)}
    assert report.collapsed


@pytest.mark.parametrize(
    ("labels", "max_length", "message"),
    [
        (("O",), 16, "at least two tags"),
        (("O", "O", "B-x"), 16, "the tag 'O' is given twice"),
        (LABELS, 2, "leaves no room for words"),
    ],
)
def test_what_is_no_task(labels: tuple[str, ...], max_length: int, message: str) -> None:
    with pytest.raises(BertineError, match=message):
        Tagging(labels, max_length=max_length)


def test_the_tags_of_entities_are_complete() -> None:
    """A type that only occurs in single words may be met in longer entities."""
    task = Tagging.from_examples(examples_of([(["a", "b", "a"], ["B-y", "O", "B-x"])]))
    assert task.labels == ("O", "B-x", "I-x", "B-y", "I-y")


def test_what_is_met_is_noted_once() -> None:
    rows = [(["a"] * 30, ["O"] * 30), (["a" * 20, "\u200b"], ["B-x", "O"])]
    examples = examples_of(rows)
    task = Tagging(LABELS, max_length=12)
    for _ in range(2):
        features = features_of(task, examples)
        assert task.notes(features) == []
    assert examples.notes == [
        "train.conll: 1 of 2 sentences are longer than 12 pieces; they are read in 6 windows, so "
        "that every word is predicted",
        "train.conll: of 1 of 32 words normalization leaves nothing; their tag is O, "
        "except inside of entities",
        "train.conll: 1 word has more than 10 pieces; the last ones are left out (10 pieces lost)",
    ]


@pytest.mark.parametrize("written", ["O B_x M_x E_x S_x", "o b-x i-x e-x s-x", "O B-x I-x L-x U-x"])
def test_a_model_from_elsewhere_may_spell_its_tags_otherwise(written: str) -> None:
    task = Tagging.from_info(TaskInfo("tagging", tuple(written.split())), CONFIG)
    assert task.labels == ("O", "B-x", "I-x", "E-x", "S-x")
    assert task.has_entities
    ours = TaskInfo("tagging", tuple(written.split()), text_columns=("words",))
    assert Tagging.from_info(ours, CONFIG).labels == ours.labels  # as it was trained
    plain = Tagging.from_info(TaskInfo("tagging", ("NOUN", "VERB")), CONFIG)
    assert (plain.labels, plain.has_entities) == (("NOUN", "VERB"), False)
