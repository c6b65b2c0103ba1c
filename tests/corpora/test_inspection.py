from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import bertine
import toys
from bertine.core.errors import BertineError
from bertine.corpora.formats import FORMATS, INPUT_FORMATS
from bertine.corpora.pretraining_data import predictions
from bertine.options.pretraining import InstanceSettings
from bertine.reports.inspect import as_text, inspect_store, marked_segments
from bertine.tokenization.tokenizer import Tokenizer

from .conftest import MakeStore


def with_tokenizer(made):
    store, tokenizer = made
    store.tokenizer_path.mkdir()
    tokenizer.save(store.tokenizer_path)
    return store


def test_the_facts_and_lengths_are_shown(make_store: MakeStore):
    store = with_tokenizer(make_store([[10] * 19 + [40], [20] * 20, [3]]))
    text = "\n".join(
        inspect_store(store.path, num_instances=2, settings=InstanceSettings(max_seq_length=32))
    )
    assert "documents      3 (1 of one sentence)" in text
    assert "sentences      41" in text
    assert "tokens         633" in text
    assert "verified" in text
    assert "tokens in a sentence: 5% 10, 25% 10, 50% 20, 75% 20, 95% 20, longest 40" in text
    assert "tokens in a document: 5% 3, 25% 3, 50% 230, 75% 400, 95% 400, longest 400" in text
    assert f"unigram entropy {store.unigram_entropy:.3f} nats" in text
    assert "instance 0: A from document" in text
    assert "instance 1: A from document" in text
    assert "instance 2" not in text


def test_an_instance_shows_what_was_done_to_each_token(make_store: MakeStore):
    store, tokenizer = make_store([[9] * 40] * 4)
    marks = {"MASK": 0, "kept": 0, "random": 0}
    data = toys.instances_of(
        store, tokenizer, batch_size=32, mask_split=(0.4, 0.3, 0.3), masked_lm_prob=0.3
    )
    batch = data.batch(0)
    pairs = data.segments.instances(0, 32)
    for row, pair in enumerate(pairs):
        a, b = map(as_text, marked_segments(batch, row, pair, tokenizer, data.frame))
        assert a.startswith("[CLS] ")
        shown = a.removeprefix("[CLS] ").removesuffix(" [SEP]").split()
        shown += b.removesuffix(" [SEP]").split()
        original = [*pair.segments[0].tolist(), *pair.segments[1].tolist()]
        assert len(shown) == len(original)
        for word, token_id in zip(shown, original, strict=True):
            token = tokenizer.id_to_token(token_id)
            if word == f"[MASK→{token}]":
                marks["MASK"] += 1
            elif word == f"[={token}]":
                marks["kept"] += 1
            elif word != token:
                assert word.startswith("[t")
                assert word.endswith(f"→{token}]")
                marks["random"] += 1
    assert sum(marks.values()) == len(batch.targets["mlm_labels"])
    assert all(count > 50 for count in marks.values())


def test_a_single_document_is_described_without_instances(make_store: MakeStore):
    store = with_tokenizer(make_store([[3, 2]]))
    assert "at least two documents" in inspect_store(store.path)[-1]


@pytest.mark.parametrize("input_format", INPUT_FORMATS)
@pytest.mark.parametrize("masking", ["dynamic", "static"])
def test_instances_are_those_that_a_run_sees(make_store: MakeStore, input_format, masking):
    store = with_tokenizer(make_store([[9, 8, 7] * 40] * 5))
    found = inspect_store(
        store.path,
        num_instances=4,
        settings=InstanceSettings(
            max_seq_length=200, seed=3, input_format=input_format, masking=masking
        ),
    )
    tokenizer = Tokenizer.load(store.tokenizer_path)
    data = toys.instances_of(
        store,
        tokenizer,
        max_seq_length=200,
        max_predictions_per_seq=predictions(0.15, 200),
        seed=3,
        input_format=input_format,
        masking=masking,
    )
    assert f"{data.instances_per_epoch:,} an epoch; {masking} masking" in "\n".join(found)
    batch = data.batch(0)
    for number, instance in enumerate(data.instances(0)[:4]):
        at = next(i for i, line in enumerate(found) if line.startswith(f"instance {number}: "))
        for segment, tokens in enumerate(
            marked_segments(batch, number, instance, tokenizer, data.frame)
        ):
            name, _, shown = found[at + 1 + segment].partition(": ")
            assert shown == as_text(tokens)
            expected = f"document {instance.documents[segment]}"
            assert name.strip() == ("AB"[segment] if FORMATS[input_format].pairs else expected)
            words = [tokenizer.id_to_token(int(i)) for i in instance.segments[segment]]
            assert [token.was for token in tokens if token.kind != "added"] == words


class Page(HTMLParser):
    """What a browser shows, and what it would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.rubies: list[tuple[str, str]] = []
        self.text: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.fetched += [values[name] for name in ("src", "href") if name in values]
        if tag not in ("meta", "br"):
            self.open.append(tag)
        if tag == "ruby":
            self.rubies.append((values["class"], ""))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not {"style", "script"} & set(self.open):
            self.text.append(data)
        if self.open[-1:] == ["rt"]:
            self.rubies[-1] = (self.rubies[-1][0], data)


def test_the_page_shows_the_same_and_loads_nothing(make_store: MakeStore, tmp_path: Path):
    store = with_tokenizer(make_store([[20] * 30] * 4))
    file = tmp_path / "pages" / "seen.html"
    lines = inspect_store(
        store.path, num_instances=40, settings=InstanceSettings(max_seq_length=64), html=file
    )
    assert lines[-1] == f"page: {file}"
    text = file.read_text(encoding="utf-8")
    page = Page()
    page.feed(text)
    assert page.open == []
    assert page.fetched == []
    assert "url(" not in text
    assert "prefers-color-scheme: dark" in text
    told = "\n".join(lines)
    marked = re.findall(r"\[MASK→(\w+)\]", told)
    kept = re.findall(r"\[=(\w+)\]", told)
    replaced = re.findall(r"\[t\d+→(\w+)\]", told)
    assert min(len(marked), len(kept), len(replaced)) > 10
    by_kind = {
        kind: [was for found, was in page.rubies[3:] if found == kind]
        for kind in ("masked", "kept", "replaced")
    }
    assert by_kind == {"masked": marked, "kept": kept, "replaced": replaced}
    shown = "".join(page.text)
    for fact in ("instance 39", "unigram entropy", "next_sentence_label", str(store.path)):
        assert fact in shown


def test_a_page_of_a_model_is_refused(tmp_path: Path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(BertineError, match="is a model, but html"):
        bertine.inspect(tmp_path, html=tmp_path / "x.html")
    assert not (tmp_path / "x.html").exists()


def test_a_tokenizer_is_told_as_such(tmp_path: Path):
    (tmp_path / "vocab.txt").write_text("[UNK]\n")
    with pytest.raises(BertineError, match="is a tokenizer alone"):
        bertine.inspect(tmp_path)


def test_a_single_document_is_shown_in_formats_without_pairs(make_store: MakeStore):
    store = with_tokenizer(make_store([[3, 2]]))
    found = inspect_store(
        store.path, settings=InstanceSettings(input_format="doc-sentences", max_seq_length=16)
    )
    assert "instance 0: 5 tokens of document 0" in found


def test_a_damaged_store_is_not_described(make_store: MakeStore):
    store = with_tokenizer(make_store([[30] * 50] * 3))
    shard = store.path / "tokens-00000.arrow"
    raw = bytearray(shard.read_bytes())
    raw[len(raw) // 2] ^= 1
    shard.write_bytes(raw)
    with pytest.raises(BertineError, match="checksum"):
        inspect_store(store.path)


def test_what_is_no_store_is_told(tmp_path: Path):
    (tmp_path / "vocab.txt").write_text("[UNK]\n")
    with pytest.raises(BertineError, match="is a tokenizer alone"):
        bertine.inspect(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(BertineError, match="is a model, but html"):
        bertine.inspect(tmp_path, html=tmp_path / "x.html")
