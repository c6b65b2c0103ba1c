"""Training vocabularies: what they hold, that they repeat, and what their report says."""

import random
import re
import shutil
import subprocess
import sys
from collections import Counter

import pytest

from bertine.core.errors import BertineError
from bertine.tokenization.tokenizer import Tokenizer
from bertine.tokenization.vocab import train_vocab
from bertine.tokenization.wordpiece import SPECIAL_TOKENS

TEXT = """
the of and to in that was his he it with is for as had you not be her on at by which have or
from this him but all she they were my are me one their so an said them we who would been will
no when there if more out up into do any your what has man could other than our some very time
upon about may its only now like little then can should made did us such great before walking
walked talking talked jumping jumped unbelievable believable Éclair naïve façade
"""
WORDS = TEXT.split()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    draw = random.Random(0)
    file = tmp_path_factory.mktemp("corpus") / "c.txt"
    lines = [" ".join(draw.choices(WORDS, k=12)).capitalize() + "." for _ in range(2000)]
    file.write_text("\n".join(line + "\n" * (i % 5 == 0) for i, line in enumerate(lines)))
    return file


def test_uncased_vocabulary(corpus, tmp_path):
    report = train_vocab([corpus], tmp_path / "out", vocab_size=300)
    tokenizer = Tokenizer.load(tmp_path / "out")
    assert tuple(tokenizer.tokens[:5]) == SPECIAL_TOKENS
    assert report.size == tokenizer.vocab_size
    assert tokenizer.lowercase
    assert {"the", "unbelievable", "a", "##a", "."} <= set(tokenizer.tokens)
    assert "##." not in tokenizer.tokens, "a mark is never inside a word"
    assert not any(c.isupper() or c in "éïç" for t in tokenizer.tokens[5:] for c in t)
    ids = tokenizer.encode_plain(["Walking THE eclair, naïve!"])[0]
    assert [tokenizer.tokens[i] for i in ids][:3] == ["walking", "the", "eclair"]
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == (
        ["tokenizer.json", "tokenizer_config.json", "vocab.txt"]
    )


def test_cased_vocabulary(corpus, tmp_path):
    train_vocab(corpus, tmp_path / "out", vocab_size=400, lowercase=False)
    tokenizer = Tokenizer.load(tmp_path / "out")
    assert not tokenizer.lowercase
    assert {"The", "the", "Éclair", "façade"} <= set(tokenizer.tokens)


def test_report_of_held_out_text(corpus, tmp_path):
    report = train_vocab([corpus], tmp_path / "out", vocab_size=120)
    tokenizer = Tokenizer.load(tmp_path / "out")
    # The same figures, counted plainly over the lines held out.
    lines = [line for line in corpus.read_text().split("\n") if line.strip()][49::50]
    words = [word for line in lines for word in line.rstrip(".").split()]
    pieces = [i for word in words for i in tokenizer.encode_plain([word])[0]]
    marks = len(lines)
    bare = [tokenizer.tokens[i].removeprefix("##") for i in pieces]
    assert report.held_out
    assert report.held_out_words == len(words)
    assert report.fertility == pytest.approx(len(pieces) / len(words))
    assert report.fertility > 1.2
    unknown = pieces.count(tokenizer.unk_token_id)
    assert report.unknown_share == pytest.approx(unknown / (len(pieces) + marks))
    singles = sum(len(token) == 1 for token in bare)
    assert report.single_character_share == pytest.approx(singles / len(pieces))
    text = "\n".join(report.lines())
    assert "120 tokens, uncased" in text
    assert f"{report.fertility:.3f} pieces per word" in text


def test_held_out_lines_are_not_trained_on(tmp_path):
    lines = [f"common words here {'' if (i + 1) % 50 else 'zyzzyva'}" for i in range(1000)]
    (tmp_path / "c.txt").write_text("\n".join(lines))
    report = train_vocab([tmp_path / "c.txt"], tmp_path / "out", vocab_size=500)
    tokens = Tokenizer.load(tmp_path / "out").tokens
    assert "common" in tokens
    assert "zyzzyva" not in tokens
    assert report.fertility > 1


def test_a_corpus_too_small_to_hold_out_says_so(tmp_path):
    (tmp_path / "c.txt").write_text("a few words, a few words\n\nand no more")
    report = train_vocab([tmp_path / "c.txt"], tmp_path / "out", vocab_size=500)
    assert not report.held_out
    text = "\n".join(report.lines())
    assert "the text trained on" in text
    assert report.size < 500
    assert f"only {report.size} of the 500 tokens asked for" in text


def test_mended_text_is_reported(tmp_path):
    (tmp_path / "c.txt").write_bytes(b"some words and more words \xff\0\n" * 200)
    report = train_vocab([tmp_path], tmp_path / "out", vocab_size=60)
    assert any(line.startswith("200 bytes that are not valid UTF-8") for line in report.lines())
    assert "200 NUL bytes were removed" in report.lines()


def test_one_line_of_many_megabytes(tmp_path):
    (tmp_path / "c.txt").write_text("one line of words without an end " * 30_000 + "z" * 1_000_000)
    report = train_vocab([tmp_path / "c.txt"], tmp_path / "out", vocab_size=200)
    assert {"line", "words", "without"} <= set(Tokenizer.load(tmp_path / "out").tokens)
    assert not report.held_out
    assert (report.corpus.files, report.corpus.documents) == (1, 1)


def test_the_same_corpus_gives_the_same_vocabulary_in_another_process(corpus, tmp_path):
    train_vocab([corpus], tmp_path / "a", vocab_size=300)
    code = f"from bertine.tokenization.vocab import train_vocab; train_vocab([{str(corpus)!r}], "
    code += f"{str(tmp_path / 'b')!r}, vocab_size=300)"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    for name in ("vocab.txt", "tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def chinese(tmp_path):
    draw = random.Random(1)
    rank = [chr(0x4E00 + i) for i in range(800)]
    weights = [1.0] * 400 + [0.01] * 400  # the latter half is one character in a hundred
    lines = ["".join(draw.choices(rank, weights, k=40)) + "。" for _ in range(2000)]
    file = tmp_path / "zh.txt"
    file.write_text("\n".join(lines), encoding="utf-8")
    return file


def test_chinese_characters_take_one_token_each(tmp_path):
    report = train_vocab([chinese(tmp_path)], tmp_path / "out", vocab_size=2000)
    tokens = Tokenizer.load(tmp_path / "out").tokens
    assert report.coverage >= 0.9999
    assert report.unknown_share < 0.001
    assert report.fertility == 1
    assert not any(token.startswith("##") for token in tokens)
    assert report.alphabet_size == len(tokens) - 5


def words_of_rare_letters(tmp_path):
    """Text of 800 letters in words, half of them rare; they can be merged to pieces."""
    draw = random.Random(1)
    rank = [chr(0xAC00 + i) for i in range(800)]  # Hangul: letters that stand inside words
    weights = [1.0] * 400 + [0.01] * 400
    lines = [
        " ".join("".join(draw.choices(rank, weights, k=4)) for _ in range(10)) for _ in range(2000)
    ]
    file = tmp_path / "words.txt"
    file.write_text("\n".join(lines), encoding="utf-8")
    return file


@pytest.mark.slow
def test_the_alphabet_leaves_room_for_pieces_and_can_be_limited(tmp_path):
    file = words_of_rare_letters(tmp_path)
    report = train_vocab([file], tmp_path / "out", vocab_size=1800, lowercase=False)
    assert 0.99 <= report.coverage < 0.9999
    assert report.alphabet_size == (1800 // 2 - 5) // 2  # two tokens each: at the begin and inside
    assert report.unknown_share > 0
    # It is said how large a vocabulary would have to be, and that is so.
    assert f"a vocabulary of {report.full_size:,} has room for 99.99% of them" in report.lines()[-2]
    full = train_vocab([file], tmp_path / "f", vocab_size=report.full_size, lowercase=False)
    assert full.coverage >= 0.9999
    assert full.full_size == 0
    limited = train_vocab(
        [file], tmp_path / "out", vocab_size=300, limit_alphabet=100, lowercase=False
    )
    assert (limited.alphabet_size, limited.full_size) == (100, 0)
    assert limited.unknown_share > 0.05


def test_chinese_is_not_displaced_by_rare_words_of_letters(tmp_path):
    """A Chinese character is never joined to longer pieces, so what room is kept for pieces is for
    the share of the text that is words of letters; here a tenth."""
    draw = random.Random(2)
    lines = chinese(tmp_path).read_text("utf-8").splitlines()
    letters = "abcdefghijklmnopqrstuvwxyz"
    latin = ["".join(draw.choices(letters, k=draw.randint(3, 9))) for _ in range(600)]
    mixed = [f"{line}{draw.choice(latin)} {draw.choice(latin)[:1]}" for line in lines]
    file = tmp_path / "mixed.txt"
    file.write_text("\n".join(mixed), encoding="utf-8")
    report = train_vocab([file], tmp_path / "out", vocab_size=1000)
    tokens = Tokenizer.load(tmp_path / "out").tokens
    assert report.coverage >= 0.9999
    assert report.unknown_share < 0.001
    # Those of the 800 that are left out are the very rare ones.
    assert sum("\u4e00" <= token[0] <= "\u9fff" for token in tokens) > 700
    # And there are pieces of the other words too.
    assert sum(len(token.removeprefix("##")) > 1 for token in tokens if token.isascii()) > 50


def test_a_vocabulary_too_small_for_its_alphabet_is_refused(tmp_path):
    file = chinese(tmp_path)
    with pytest.raises(BertineError, match="vocab_size 100 is too small") as error:
        train_vocab([file], tmp_path / "out", vocab_size=100)
    advised = int(re.search("give at least ([0-9,]+),", str(error.value))[1].replace(",", ""))
    with pytest.raises(BertineError, match="too small"):
        train_vocab([file], tmp_path / "out", vocab_size=advised - 2)
    assert not (tmp_path / "out").exists()
    assert train_vocab([file], tmp_path / "out", vocab_size=advised).coverage >= 0.99
    shutil.rmtree(tmp_path / "out")
    with pytest.raises(BertineError, match="give at least 505, or a smaller limit_alphabet"):
        train_vocab([file], tmp_path / "out", vocab_size=100, limit_alphabet=500)
    with pytest.raises(BertineError, match="too small"):
        train_vocab([file], tmp_path / "out", vocab_size=5)
    assert [p.name for p in tmp_path.iterdir()] == ["zh.txt"], "nothing half-written is left"


def test_an_extension_has_room_for_the_characters_it_says_it_has(tmp_path):
    """What the old tokens hold takes none; new characters are taken by how frequent they are."""
    file = chinese(tmp_path)
    old = train_vocab([file], tmp_path / "old", vocab_size=200, limit_alphabet=60)
    with pytest.raises(BertineError, match="too small for the") as error:
        train_vocab([file], tmp_path / "new", vocab_size=old.size + 20, extend=old.out)
    advised = int(re.search("give at least ([0-9,]+),", str(error.value))[1].replace(",", ""))
    new = train_vocab([file], tmp_path / "new", vocab_size=advised, extend=old.out)
    assert 0.99 <= new.coverage < 1
    assert new.unknown_share == pytest.approx(1 - new.coverage, abs=0.005)
    few = train_vocab(
        [file], tmp_path / "few", vocab_size=old.size + 20, extend=old.out, limit_alphabet=80
    )
    assert (few.alphabet_size, few.size) == (80, old.size + 20)
    known = set(Tokenizer.load(few.out).tokens)
    counts = Counter(file.read_text("utf-8"))
    for character, _ in counts.most_common(75):
        assert character.isspace() or character in known


def test_bad_corpora_leave_nothing_behind(tmp_path):
    bad = tmp_path / "c.jsonl"
    bad.write_text('{"text": "fine"}\n{"txt": 1}\n')
    with pytest.raises(BertineError, match=r"c\.jsonl:2: there is no column 'text'"):
        train_vocab([bad], tmp_path / "out")
    with pytest.raises(BertineError, match="No such file"):
        train_vocab([tmp_path / "none"], tmp_path / "out")
    (tmp_path / "controls.txt").write_text("\u200b\u200b\n")
    with pytest.raises(BertineError, match="no visible character"):
        train_vocab([tmp_path / "controls.txt"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_words_that_will_always_be_unknown_do_not_shape_the_vocabulary(tmp_path):
    draw = random.Random(2)
    blob = "".join(draw.choices("qxjz", k=20_000))
    (tmp_path / "c.txt").write_text(f"some common words\n{blob}\n" * 20)
    train_vocab([tmp_path / "c.txt"], tmp_path / "out", vocab_size=200)
    pieces = [t.removeprefix("##") for t in Tokenizer.load(tmp_path / "out").tokens[5:]]
    assert "common" in pieces
    assert not any(len(piece) > 1 and set(piece) <= set("qxjz") for piece in pieces)
