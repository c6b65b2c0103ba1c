"""Cases of raw text: vocabularies, token ids, stores."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import bertine
from golden import made, taken

_MORE = {"vocab_size": 420, "text_column": "message"}


def vocabulary(folder: Path) -> dict[str, Any]:
    """Train vocabularies: uncased, cased, and one that extends another."""
    corpus = made.write_corpus(folder / "corpus.txt", 200)
    tricky = folder / "tricky.jsonl"
    rows = [json.dumps({"text": text}) + "\n" for text in made.TRICKY]
    tricky.write_text("".join(rows), encoding="utf-8")
    found = {}
    for name, sources, options in (
        ("uncased", [corpus], {"vocab_size": 260}),
        ("cased", [corpus, tricky], {"vocab_size": 400, "lowercase": False, "min_frequency": 3}),
        ("extended", [made.copy_messages(folder)], _MORE | {"extend": folder / "uncased"}),
        ("limited", [corpus, tricky], {"vocab_size": 200, "limit_alphabet": 30}),
    ):
        report = bertine.train_vocab(sources, folder / name, **options)
        tokens = (folder / name / "vocab.txt").read_bytes()
        found[name] = {
            "size": report.size,
            "alphabet_size": report.alphabet_size,
            "coverage": report.coverage,
            "fertility": report.fertility,
            "unknown_share": report.unknown_share,
            "vocab.txt": hashlib.sha256(tokens).hexdigest(),
            "ids": _ids(folder / name),
        }
    return found


def _ids(tokenizer: Path) -> list[list[int]]:
    loaded = bertine.Tokenizer.load(tokenizer)
    return [loaded.encode(text).input_ids for text in made.TRICKY]


def tokens(folder: Path) -> dict[str, Any]:
    """Tokenize tricky texts, by themselves and as pairs, cut and whole."""
    tokenizer = bertine.Tokenizer.load(made.write_vocabulary(folder / "vocabulary"))
    texts = list(made.TRICKY)
    pairs = texts[3:] + texts[:3]
    found: dict[str, Any] = {"fingerprint": tokenizer.fingerprint}
    for name, encodings in (
        ("single", tokenizer.encode_batch(texts)),
        ("pairs", tokenizer.encode_batch(texts, pairs, max_length=24)),
    ):
        found[name] = [
            {
                "ids": each.input_ids,
                "types": "".join(map(str, each.token_type_ids)),
                "offsets": [place for pair in each.offsets for place in pair],
                "cut": each.num_truncated,
            }
            for each in encodings
        ]
    found["plain"] = taken.digest(json.dumps(tokenizer.encode_plain(texts)))
    found["decoded"] = [tokenizer.decode(each.input_ids) for each in tokenizer.encode_batch(texts)]
    return found


def store(folder: Path) -> dict[str, Any]:
    """Prepare stores: plain text in two files, JSON lines without duplicates, other languages."""
    vocabulary = made.write_vocabulary(folder / "vocabulary")
    texts = folder / "texts"
    texts.mkdir()
    for number in range(2):
        made.write_corpus(texts / f"{number}.txt", 24, f"corpus {number}")
    rows = [" ".join(each) for each in made.documents("corpus 0", 12)]
    rows += [rows[3], rows[5], *made.TRICKY[2:]]
    lines = folder / "lines.jsonl"
    content = "".join(json.dumps({"text": row}) + "\n" for row in rows)
    lines.write_text(content, encoding="utf-8")
    (folder / "sentences.txt").write_text(_SENTENCES, encoding="utf-8")
    found = {}
    for name, corpus, options in (
        ("texts", texts, {"shard_tokens": 1500, "part_bytes": 4000}),
        ("lines", lines, {"drop_duplicates": True}),
        ("one document a file", texts, {"document_per_file": True}),
        ("sentences", folder / "sentences.txt", {}),
        ("chinese", folder / "sentences.txt", {"language": "zh"}),
    ):
        out = folder / f"store {name}"
        bertine.prepare(corpus, tokenizer=vocabulary, out=out, processes=1, **options)
        found[name] = described(out)
    return found


#: Where sentences end, and where they do not.
_SENTENCES = """Dr. Ada saw 3.5 cats, e.g. the old one. Why? "It sleeps!" said Tom. He left...
Mr. Berg lives at No. 5, Main St. in the garden. a sentence that begins small. U.S. cows graze.

你好。世界!the cat sleeps.你好?世界

A line without an end
and its next line; then: another one (in brackets.) And more!
"""


def described(store: Path) -> dict[str, Any]:
    """Record a store: counts, and checksums of its arrays."""
    manifest = json.loads((store / "manifest.json").read_text(encoding="utf-8"))
    found = {key: value for key, value in sorted(manifest.items()) if key.startswith("num_")}
    found["token_dtype"] = manifest["token_dtype"]
    found["shards"] = []
    for file in sorted(store.glob("tokens-*.arrow")):
        with pa.memory_map(str(file)) as source:
            table = pa.ipc.open_file(source).read_all()
        arrays = {
            name: np.concatenate([np.asarray(row) for row in table[name].to_pylist()])
            for name in ("input_ids", "sentence_lengths")
        }
        sizes = {name: [len(row) for row in table[name].to_pylist()] for name in arrays}
        found["shards"].append(
            {
                "types": [str(table.schema.field(name).type) for name in table.column_names],
                "documents": taken.digest(json.dumps(sizes)),
                **{
                    name: taken.digest(array.astype("<i8").tobytes())
                    for name, array in arrays.items()
                },
                "first": arrays["input_ids"][:20].astype(int).tolist(),
            }
        )
    counts = np.load(store / "unigram_counts.npy")
    return found | {"unigram_counts": taken.digest(counts.astype("<i8").tobytes())}
