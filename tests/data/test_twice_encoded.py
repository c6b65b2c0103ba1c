"""Text that was encoded twice is told, and nothing else is."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bertine.data.encodings import twice_encoded
from bertine.data.tables import Table
from bertine.tokenization.documents import Corpus

#: By the encoding that UTF-8 was read in: words.
WORDS = {
    "cp1252": ("Grüße", "don’t", "café", "“ok”", "日本", "łódź", "да", "😀", "10€", "ça"),
    "latin-1": ("Grüße", "été", "naïve", "не"),
    "cp1250": ("Grüße", "później", "příště"),
    "cp1251": ("доставка", "да", "Київ", "schön"),
    "mac-roman": ("Grüße", "ça", "élève", "доставка", "atención"),
}


def _twice(word: str, codec: str) -> str:
    raw = word.encode()
    if codec == "cp1252":  # five bytes are none of its characters
        return "".join(bytes([byte]).decode(codec, "ignore") or chr(byte) for byte in raw)
    return raw.decode(codec)


@pytest.mark.parametrize(
    ("word", "codec"), [(word, codec) for codec, words in WORDS.items() for word in words]
)
def test_a_word_that_was_encoded_twice_is_found(word: str, codec: str) -> None:
    shown = _twice(word, codec)
    assert twice_encoded(f"ok, a fine\n{shown} here")[1:] == (word,)  # type: ignore[index]


@pytest.mark.parametrize(
    "text",
    [
        "Grüße, Fußball, Straße„ und “Spaß”…",
        "CAFÉ… CAFÉ® NOËL™ Ã Õ Â°C — à\xa0« là\xa0»",
        "Різдво СССР Рівне РІ Сё рік — Россия",
        "2√πr, √π, √2, ∫ƒ(x) ≈ √ß",
        "você, NÃO, ÀÉÎ, Ñandú, ½ “ok”",
        "日本語の文、中文，한국어 ไทย हिन्दी ελληνικά עברית العربية",
        "“MINHA IRMÃ” ATÉ AMANHÃ… AMANHÃ» SIELLÄ… “DE SMÅ” «NÝ BORÐ» VARÐ“ « la lettre Î»",
        "√≤x, x√≥2, √•x, HUMANITÉ… NÃO",
        "I ❤️ it 👍🏽 🇩🇪",
        "\ufffd\x85\x9f",
        "plain",
        "",
    ],
)
def test_other_text_is_not(text: str) -> None:
    assert twice_encoded(text) is None


def test_rows_are_counted_in_every_kind_of_file(tmp_path: Path) -> None:
    rows = [{"text": "GrÃ¼ÃŸe", "n": "1"}, {"text": "fine", "n": "2"}, {"text": "schÃ¶n", "n": "3"}]
    (tmp_path / "a.csv").write_text("text,n\n" + "".join(f"{r['text']},{r['n']}\n" for r in rows))
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    for name in ("a.csv", "a.jsonl", "a.parquet"):
        with Table(tmp_path / name) as table:
            assert len(list(table)) == 3
            (note,) = table.stats.notes(table.name)
        assert "2 rows hold text that was encoded twice ('GrÃ¼ÃŸe' for 'Grüße')" in note
        corpus = Corpus([tmp_path / name])
        assert len(list(corpus)) == 3
        assert "2 documents hold text that was encoded twice" in corpus.stats.lines()[-1]
