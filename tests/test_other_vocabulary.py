"""A vocabulary of another kind, RoBERTa's, through the rooms that asked for BERT's before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import bertine
import toys
from bertine.core.errors import BertineError
from bertine.corpora.prepare import prepare
from bertine.corpora.store import TokenStore
from bertine.data.examples import Example, Examples
from bertine.data.squad import Gold, SpanExamples
from bertine.families.bert import BertConfig
from bertine.hub.model_directory import LoadedModel, load_model, save_model
from bertine.models.heads import Model
from bertine.objectives.losses import Mlm
from bertine.tasks.classification import TextClassification
from bertine.tasks.span_windows import SpanFeatures
from bertine.tasks.spans import SpanExtraction, SpanLimits
from bertine.tokenization.base import bare, goes_on
from bertine.tokenization.sentences import split_sentences
from bertine.tokenization.tokenizer import Tokenizer
from roberta import write_vocabulary

DOCUMENTS = [
    "The lighthouse keeper climbed the narrow stairs. He carried an old lamp, a coil of rope and "
    'his dinner. "Unbelievable," he said; nobody answered.\nThe sea was quiet that night.',
    "Zürich's trams don't run after midnight! On weekends, however, buses do. They are blue 😀.",
    "In 1893 the bridge was rebuilt. It has seven arches. Trains crossed it twice a day.",
] * 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """With RoBERTa's vocabulary, a corpus and its store."""
    root = tmp_path_factory.mktemp("other")
    write_vocabulary(root / "vocabulary")
    (root / "corpus.jsonl").write_text(
        "".join(json.dumps({"text": text}) + "\n" for text in DOCUMENTS), encoding="utf-8"
    )
    prepare(root / "corpus.jsonl", tokenizer=root / "vocabulary", out=root / "store")
    return root


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer.load(folder / "vocabulary")


@pytest.fixture(scope="module")
def store(folder: Path, tokenizer: Tokenizer) -> TokenStore:
    return TokenStore.open(folder / "store", tokenizer)


@pytest.fixture(scope="module")
def model(folder: Path, tokenizer: Tokenizer) -> LoadedModel:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=16,
        max_position_embeddings=64,
        pad_token_id=tokenizer.pad_token_id,
    )
    save_model(folder / "model", Model(config, Mlm.heads(config)), tokenizer)
    return load_model(folder / "model")


@pytest.mark.parametrize("input_format", ["segment-pair", "sentence-pair", "full-sentences"])
def test_sequences_have_the_templates_special_tokens(
    store: TokenStore, tokenizer: Tokenizer, input_format: str
) -> None:
    data = toys.instances_of(
        store,
        tokenizer,
        batch_size=16,
        max_seq_length=40,
        input_format=input_format,
    )
    longest = 0
    for step in range(4):
        batch = data.batch(step)
        ids = batch.input_ids.reshape(-1)
        ids[batch.targets["mlm_positions"]] = batch.targets["mlm_labels"]
        for row, instance in enumerate(data.instances(step)):
            found = ids.reshape(batch.input_ids.shape)[row].tolist()
            texts = [segment.tolist() for segment in instance.segments]
            if data.format.pairs:
                expected = [0, *texts[0], 2, 2, *texts[1], 2]
                kinds = [0] * (len(texts[0]) + 3) + [1] * (len(texts[1]) + 1)
            else:
                expected = [0, *(i for text in texts for i in (*text, 2))]
                kinds = [0] * len(expected)
            size = len(expected)
            longest = max(longest, size)
            assert found == [*expected, *[1] * (len(found) - size)]
            assert batch.token_type_ids[row, :size].tolist() == kinds
            assert batch.attention_mask[row].tolist() == [i < size for i in range(len(found))]
    assert longest <= 40
    if input_format == "segment-pair":
        assert longest == 40


def test_whole_words_go_from_space_to_space(store: TokenStore, tokenizer: Tokenizer) -> None:
    data = toys.instances_of(
        store,
        tokenizer,
        batch_size=32,
        max_seq_length=64,
        whole_word_mask=True,
        masked_lm_prob=0.3,
        max_predictions_per_seq=None,
        mask_split=(1.0, 0.0, 0.0),
    )
    words = 0
    for step in range(5):
        batch = data.batch(step)
        hidden = (batch.input_ids == tokenizer.mask_token_id).numpy()
        assert hidden.sum() == len(batch.targets["mlm_positions"])
        ids = batch.input_ids.reshape(-1).clone()
        ids[batch.targets["mlm_positions"]] = batch.targets["mlm_labels"]
        for row, original in enumerate(ids.reshape(hidden.shape).tolist()):
            before = True  # a special token
            for place, index in enumerate(original):
                special = index in tokenizer.special_ids
                inside = not special and tokenizer.tokens[index][0] != "Ġ" and not before
                if inside:
                    assert hidden[row, place] == hidden[row, place - 1]
                    words += hidden[row, place]
                before = special
    assert words > 20


def test_masks_are_filled(model: LoadedModel, tokenizer: Tokenizer) -> None:
    text = "The capital of  <mask> is <mask>."
    found = bertine.fill_mask(model, text, top_k=200)
    assert len(found) == 2
    for mask in found:
        end = mask.start + len("<mask>")
        assert text[mask.start : end] == "<mask>"
        before, after = text[: mask.start], text[end:]
        for each in mask.candidates:
            assert "Ġ" not in each.token
            inside = goes_on(each.token)
            joined = before.rstrip() + bare(each.token) if inside else before + each.token
            assert each.text == joined + after
    first = bertine.fill_mask(model, "<mask> it is", top_k=200)[0]
    assert not any(goes_on(c.token) for c in first.candidates if c.token.strip("#"))
    assert all(c.text == f"{c.token} it is" for c in first.candidates)
    with pytest.raises(BertineError, match="has no <mask>; write it, for the word"):
        bertine.fill_mask(model, "The capital [MASK]")


def test_answers_have_their_characters(tokenizer: Tokenizer) -> None:
    context = "Anna lives in Zürich, not in São Paulo; e\u0301t\u0301é 😀 is her word. " * 6
    answers = [("Zürich", 0), ("São Paulo", 0), ("😀", 0), ("Zürich", 3)]
    examples: list[Example[Gold]] = []
    for text, skip in answers:
        begin = -1
        for _ in range(skip + 1):
            begin = context.index(text, begin + 1)
        gold = Gold((text,), (begin, begin + len(text)))
        examples.append(Example(("Where does Anna live?", context), gold))
    given: Any = SpanExamples("test", ("question", "context"), None, examples)
    limits = SpanLimits(max_question_length=8, doc_stride=16)
    task = SpanExtraction(max_length=48, limits=limits)
    features = task.featurize(given, tokenizer)
    met = set()
    for window in features:
        assert isinstance(window, SpanFeatures)
        assert len(window.input_ids) <= 48
        question = tokenizer.encode_plain(["Where does Anna live?"])[0]
        inside = window.input_ids[window.first : -1].tolist()
        assert window.input_ids.tolist() == [0, *question, 2, 2, *inside, 2]
        assert window.token_type_ids.tolist() == [
            int(i >= window.first) for i in range(len(inside) + window.first + 1)
        ]
        assert len(window.offsets) == len(inside)
        if window.span not in (None, (0, 0)):
            first, last = (place - window.first for place in window.span)
            start, end = window.offsets[first][0], window.offsets[last][1]
            assert window.context[start:end] == answers[window.row][0]
            met.add(window.row)
    assert met == {0, 1, 2, 3}
    with pytest.raises(BertineError, match="leaves no room for the context"):
        SpanExtraction(max_length=12, limits=limits).featurize(given, tokenizer)


def test_no_room_for_a_pair_is_one_line(tokenizer: Tokenizer) -> None:
    examples: Any = Examples("test", ("a", "b"), None, [Example(("x", "y"))])
    task = TextClassification(("0", "1"), ("a", "b"), "label", 6)
    (feature,) = task.featurize(examples, tokenizer)
    assert len(feature.input_ids) == 6


def test_a_store_holds_running_text(store: TokenStore, tokenizer: Tokenizer) -> None:
    """The space before a sentence is there, so the document reads as it was written."""
    for number, text in enumerate(DOCUMENTS):
        document = store.document(number)
        assert tokenizer.decode(document.input_ids.tolist()) == " ".join(text.split())
        assert len(document.sentence_lengths) == len(split_sentences(text))
        assert document.input_ids.tolist() == tokenizer.encode_plain([" ".join(text.split())])[0]
