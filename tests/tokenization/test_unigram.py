"""What is Bertine's own in Unigram: layouts, ids, settings, names of pieces, whole words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import unigrams
from bertine.core.errors import BertineError
from bertine.tokenization.base import goes_on, run_together
from bertine.tokenization.tokenizer import Tokenizer
from bertine.tokenization.unigram_files import ALBERT, DEBERTA, FAIRSEQ
from unigrams import CONTROL, NORMAL, PIECES, UNKNOWN, UNUSED, USER_DEFINED, model_bytes


def pieces(tokenizer: Tokenizer, text: str) -> list[str]:
    return [tokenizer.tokens[i] for i in tokenizer.encode_plain([text])[0]]


def test_pieces_ids_and_specials(albert: Tokenizer) -> None:
    assert (albert.kind, albert.title) == ("unigram", "Unigram")
    assert pieces(albert, "The  Cáts [MASK] sat") == ["▁the", "▁cat", "s", "[MASK]", "▁sat"]
    encoding = albert.encode("the", "cat sat")
    assert [albert.tokens[i] for i in encoding.input_ids] == (
        ["[CLS]", "▁the", "[SEP]", "▁cat", "▁sat", "[SEP]"]
    )
    assert encoding.token_type_ids == [0, 0, 0, 1, 1, 1]
    assert encoding.offsets == [(0, 0), (0, 3), (0, 0), (0, 3), (4, 7), (0, 0)]
    assert (albert.pad_token_id, albert.unk_token_id, albert.cls_token_id) == (0, 1, 2)
    assert (albert.sep_token_id, albert.mask_token_id, albert.mask_text) == (3, 4, "[MASK]")
    assert (albert.lowercase, albert.strip_accents, albert.keeps_spaces) == (True, True, False)


def test_fairseq_numbers_the_pieces_anew(xlm_r: Tokenizer, tmp_path: Path) -> None:
    first = ["<s>", "<pad>", "</s>", "<unk>"]
    texts = [text for text, _ in PIECES]
    assert xlm_r.tokens == [*first, *texts, "<mask>"]
    ids = xlm_r.encode("the cat", "sat").input_ids
    assert [xlm_r.tokens[i] for i in ids] == ["<s>", "▁the", "▁cat", "</s>", "</s>", "▁sat", "</s>"]
    assert pieces(xlm_r, "The") == ["▁", "<unk>", "h", "e"]  # it has no capitals, and keeps them
    # CamemBERT's file looks the same; what is beside it tells.
    unigrams.write_fairseq(tmp_path)
    for name, value in (
        ("tokenizer_config.json", {"tokenizer_class": "CamembertTokenizer"}),
        ("tokenizer_config.json", {"tokenizer_class": "CamembertTokenizerFast"}),
        ("config.json", {"model_type": "camembert"}),
    ):
        (tmp_path / name).write_text(json.dumps(value))
        tokenizer = Tokenizer.load(tmp_path)
        begin = ["<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED", "<s>", "</s>"]
        assert tokenizer.tokens == [*begin, *texts, "<mask>"]
        assert tokenizer.encode("the").input_ids == [5, 7, 6]
        assert (tokenizer.pad_token_id, tokenizer.unk_token_id) == (1, 3)
        (tmp_path / name).unlink()


XLNET_SPECIALS = [
    ("<unk>", 0.0, UNKNOWN),
    *((text, 0.0, CONTROL) for text in ("<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>")),
    *((text, 0.0, CONTROL) for text in ("<eod>", "<eop>")),
    ("(", 0.0, USER_DEFINED),
]


def test_xlnet_puts_cls_last_and_keeps_case(tmp_path: Path) -> None:
    brackets = [("<", -9.0, NORMAL), (">", -9.0, NORMAL)]
    listed = [*XLNET_SPECIALS, *((text, score, NORMAL) for text, score in PIECES), *brackets]
    (tmp_path / "spiece.model").write_bytes(model_bytes(listed))
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.tokens == [text for text, _, _ in listed]
    assert (tokenizer.pad_token_id, tokenizer.unk_token_id, tokenizer.mask_token_id) == (5, 0, 6)
    assert (tokenizer.lowercase, tokenizer.strip_accents) == (False, True)
    one, two = tokenizer.encode("the cat"), tokenizer.encode("the cat", "sat")
    names = [[tokenizer.tokens[i] for i in each.input_ids] for each in (one, two)]
    assert names == [
        ["▁the", "▁cat", "<sep>", "<cls>"],
        ["▁the", "▁cat", "<sep>", "▁sat", "<sep>", "<cls>"],
    ]
    assert (one.token_type_ids, two.token_type_ids) == ([0, 0, 0, 2], [0, 0, 0, 1, 1, 2])
    cut = tokenizer.encode("the cat sat the cat", "sat", max_length=6)
    assert cut.token_type_ids == [0, 0, 0, 1, 1, 2]
    # A comma behind a digit is a piece by itself, as in the published program; what is written like
    # a mark of the vocabulary is text, but for the special tokens around texts.
    assert pieces(tokenizer, "19,") == ["▁1", "9", ","]
    assert "<eod>" not in pieces(tokenizer, "the <eod>")
    assert pieces(tokenizer, "Cat") != pieces(tokenizer, "cat")
    assert tokenizer.continues[tokenizer.tokens.index("s")]
    assert not tokenizer.continues[tokenizer.tokens.index("(")]
    (tmp_path / "saved").mkdir()
    tokenizer.save(tmp_path / "saved", model_max_length=512)
    again = Tokenizer.load(tmp_path / "saved")
    assert again.fingerprint == tokenizer.fingerprint
    assert again.encode("the cat", "sat") == two


def test_deberta_adds_the_mask_to_its_file(tmp_path: Path) -> None:
    (tmp_path / "spm.model").write_bytes(unigrams.deberta_bytes())
    tokenizer = Tokenizer.load(tmp_path)
    specials = [text for text, _, _ in unigrams.DEBERTA_SPECIALS]
    assert tokenizer.tokens == [*specials, *(text for text, _ in PIECES), "[MASK]"]
    assert tokenizer.encode("the", "cats").input_ids == [1, 4, 2, 5, 9, 2]
    assert tokenizer.encode("the", "cats").token_type_ids == [0, 0, 0, 1, 1, 1]
    assert (tokenizer.pad_token_id, tokenizer.unk_token_id) == (0, 3)
    assert pieces(tokenizer, "the [MASK] Z") == ["▁the", "[MASK]", "▁", "[UNK]"]
    # A file that has the mask keeps it where it is.
    listed = [*unigrams.DEBERTA_SPECIALS, ("[MASK]", 0.0, CONTROL), ("▁the", -1.0, NORMAL)]
    (tmp_path / "spm.model").write_bytes(model_bytes(listed))
    assert Tokenizer.load(tmp_path).mask_token_id == 4


def test_settings_beside_the_file_of_deberta(tmp_path: Path) -> None:
    (tmp_path / "spm.model").write_bytes(unigrams.deberta_bytes())
    settings = tmp_path / "tokenizer_config.json"
    settings.write_text('{"do_lower_case": false, "vocab_type": "spm", "split_by_punct": false}')
    assert pieces(Tokenizer.load(tmp_path), "The") == ["▁", "[UNK]", "h", "e"]
    settings.write_text('{"do_lower_case": true}')
    tokenizer = Tokenizer.load(tmp_path)
    assert (pieces(tokenizer, "The"), tokenizer.lowercase) == (["▁the"], True)
    settings.write_text('{"split_by_punct": true}')
    with pytest.raises(BertineError, match=r"tokenizer_config.json: split_by_punct is true, but"):
        Tokenizer.load(tmp_path)


def test_unknown_characters_become_their_bytes(tmp_path: Path) -> None:
    """Where the file has pieces for bytes, as DeBERTa-v3's has."""
    (tmp_path / "spm.model").write_bytes(unigrams.deberta_bytes(falls_back=True))
    tokenizer = Tokenizer.load(tmp_path)
    text = "the 中é cats"
    encoding = tokenizer.encode(text)
    shown = [tokenizer.tokens[i] for i in encoding.input_ids[1:-1]]
    assert shown == (["▁the", "▁", "<0xE4>", "<0xB8>", "<0xAD>", "<0xC3>", "<0xA9>", "▁cat", "s"])
    assert tokenizer.encode_plain([text]) == [encoding.input_ids[1:-1]]
    assert {encoding.offsets[place] for place in range(3, 8)} == {(4, 6)}
    assert tokenizer.unk_token_id not in encoding.input_ids
    assert tokenizer.decode(encoding.input_ids) == text
    place = tokenizer.token_to_id("<0xE4>")
    assert place is not None
    assert tokenizer.continues[place]
    tokenizer.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert again.fingerprint == tokenizer.fingerprint
    assert again.decode(again.encode(text).input_ids) == text


def test_a_mask_that_is_only_added_to_the_pieces(tmp_path: Path) -> None:
    """As the classes of transformers write it that read ``spm.model``; the normalization and the
    division are those of its version 4."""
    (tmp_path / "spm.model").write_bytes(unigrams.deberta_bytes())
    ours = Tokenizer.load(tmp_path)
    ours.save(tmp_path)
    file = tmp_path / "tokenizer.json"
    value = json.loads(file.read_text(encoding="utf-8"))
    assert value["model"]["vocab"].pop() == ["[MASK]", 0.0]
    steps = [
        {"type": "Strip", "strip_left": True, "strip_right": True},
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
    ]
    value["normalizer"] = {"type": "Sequence", "normalizers": steps}
    value["pre_tokenizer"]["pretokenizers"].pop(0)
    file.write_text(json.dumps(value))
    theirs = Tokenizer.load(tmp_path)
    assert theirs.tokens == ours.tokens
    for text in ("  the  cats [MASK] sat ", "19, unbelievable", ""):
        assert theirs.encode(text).input_ids == ours.encode(text).input_ids
        assert theirs.encode_plain([text]) == ours.encode_plain([text])


def test_case_and_accents_are_kept_where_the_settings_say_so(tmp_path: Path) -> None:
    unigrams.write_albert(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    cased = Tokenizer.load(tmp_path)
    assert pieces(cased, "Thé thé")[-1] == "▁the"
    assert (cased.lowercase, cased.strip_accents) == (False, True)
    (tmp_path / "tokenizer_config.json").write_text('{"keep_accents": true}')
    assert pieces(Tokenizer.load(tmp_path), "THé")[-1] == "<unk>"
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": 1}')
    with pytest.raises(BertineError, match="do_lower_case is 1, but must be true, false or null"):
        Tokenizer.load(tmp_path)


def test_saving_and_loading_gives_the_same(
    tmp_path: Path, albert: Tokenizer, xlm_r: Tokenizer
) -> None:
    text = "The unbelievable cat (sat)  19, <mask> [MASK] ''quoted'' é½ﬁ"
    for name, tokenizer in (("a", albert), ("x", xlm_r)):
        folder = tmp_path / name
        folder.mkdir()
        tokenizer.save(folder)
        again = Tokenizer.load(folder)
        assert again.fingerprint == tokenizer.fingerprint
        assert again.encode(text, text) == tokenizer.encode(text, text)
        assert again.tokens == tokenizer.tokens
    assert albert.fingerprint != xlm_r.fingerprint


def test_whole_words_of_albert_follow_its_published_rule(albert: Tokenizer) -> None:
    begins = ["▁the", "▁", ",", "9", "'s", "<x>", "–", "€", "(", "中", "a1", "ไ"]
    inside = ["s", "ing", "S", ".com", "a-b", "é", "и"]
    assert not any(map(ALBERT.goes_on, begins))
    assert all(map(ALBERT.goes_on, inside))
    ids = albert.encode("The unbelievable cats, 19 [MASK]").input_ids
    names = [albert.names[i] for i in ids]
    assert names == (
        ["[CLS]", "the", "un", "##believ", "##able", "cat", "##s", ",", "1", "9", "[MASK]", "[SEP]"]
    )
    assert [bool(albert.continues[i]) for i in ids] == [goes_on(name) for name in names]
    assert run_together(names[1:-1]) == "the unbelievable cats , 1 9 [MASK]"


def test_whole_words_of_deberta_follow_its_published_rule() -> None:
    assert not any(map(DEBERTA.goes_on, ["▁the", "▁", ",", "–", "$", "中", "か"]))
    assert all(map(DEBERTA.goes_on, ["s", "é", "1", "...", "<0xE4>", "№", "가"]))


def test_whole_words_of_xlm_r_begin_at_spaces(xlm_r: Tokenizer) -> None:
    assert not any(map(FAIRSEQ.goes_on, ["▁the", "▁", "中", "中文", "か", "ไท"]))
    assert all(map(FAIRSEQ.goes_on, ["s", ",", "é", "1", "가"]))
    assert xlm_r.names[xlm_r.token_to_id(",")] == "##,"
    assert xlm_r.names[xlm_r.token_to_id("▁")] == "␣"


def test_a_piece_is_put_where_the_mask_was(albert: Tokenizer, xlm_r: Tokenizer) -> None:
    for tokenizer in (albert, xlm_r):
        text = f"the {tokenizer.mask_text}."
        encoding = tokenizer.encode(text)
        start, end = encoding.offsets[encoding.input_ids.index(tokenizer.mask_token_id)]
        assert text[start:end] == tokenizer.mask_text
        cat, ing = (tokenizer.token_to_id(token) for token in ("▁cat", "ing"))
        assert tokenizer.put_piece(text, start, end, cat) == "the cat."
        assert tokenizer.put_piece(text, start, end, ing) == "theing."
        assert tokenizer.show(encoding.input_ids[1:-1]) == f"the {tokenizer.mask_text} ."
        assert tokenizer.decode(tokenizer.encode("the cats").input_ids) == "the cats"


def test_pieces_that_are_not_used_are_found_in_no_text(tmp_path: Path) -> None:
    listed = [*unigrams.ALBERT_SPECIALS, *((t, s, NORMAL) for t, s in PIECES)]
    listed.append(("▁cats", -0.1, UNUSED))
    (tmp_path / "spiece.model").write_bytes(model_bytes(listed))
    tokenizer = Tokenizer.load(tmp_path)
    assert pieces(tokenizer, "cats cats") == ["▁cat", "s"] * 2
    assert tokenizer.vocab_size == len(listed)
