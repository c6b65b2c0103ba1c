"""What the cases are given: texts, a vocabulary, weights and tables, the same on every machine.

All of it comes from SHA-2 and SHA-3 of names: no library's random numbers, which may change.
"""

from __future__ import annotations

import csv
import hashlib
import json
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

_EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
#: What a text is about: it does what, where; the first half are animals, the others dishes.
TOPICS = {
    "cat": ("sleeps", "sofa"),
    "dog": ("barks", "garden"),
    "cow": ("grazes", "meadow"),
    "fish": ("swims", "river"),
    "owl": ("hoots", "barn"),
    "soup": ("boils", "pot"),
    "bread": ("bakes", "oven"),
    "rice": ("steams", "bowl"),
    "cake": ("cools", "table"),
    "tea": ("brews", "cup"),
}
ANIMALS = list(TOPICS)[:5]
ADJECTIVES = ("old", "small", "warm", "brown", "quiet")
NAMES = ("Ada", "Tom", "Mia Berg", "Li Wei")
SENTENCES = (
    "The {adjective} {topic} {verb} in the {place}.",
    "{name} saw the {topic} near the {place}, and it {verb}!",
    "Why does a {adjective} {topic} look so {other}?",
    "In {year} there were {count} of them, each with a {topic} in the {place}.",
    "It {verb}, said {name}.",
)
#: Texts that tokenizers have got wrong.
TRICKY = (
    "",
    "   ",
    "The old cat sleeps in the sofa.",
    "Don't re-brew tea... it's £3.50 (or 4,20 €)!",
    "Crème brûlée, naïve façade, Ångström, ЁЖИК, İstanbul",
    "你好,世界!the cat在sofa上 ㍿ 𠀀",
    "ｆｕｌｌ　ｗｉｄｔｈ and ligature ﬁsh",
    "tab\tnew\nline\r\nno\u00a0break zero\u200bwidth soft\u00adhyphen",
    "a\x00b \ufffd c\x07d \x1f e\x85f",
    "emoji 😀👩\u200d👩\u200d👧 flags 🇩🇪 e\u0301 versus \u00e9",
    "[MASK] [CLS]sleeps[SEP] [mask] [UNK] [PAD]",
    "sofasleepsgardenmeadow " + "x" * 120,
    "http://example.org/?a=1&b=2 user@example.org C++ #tag a_b",
    "ສະບາຍດີ नमस्ते שלום مرحبا สวัสดี 안녕하세요 こんにちは",
)


class Draw:
    """Numbers that follow from a name."""

    def __init__(self, name: str) -> None:
        self._name, self._at = name, 0

    def below(self, end: int) -> int:
        """Draw one of 0, 1, …, `end` - 1."""
        self._at += 1
        digest = hashlib.sha256(f"{self._name} {self._at}".encode()).digest()
        return int.from_bytes(digest[:8], "big") % end

    def of(self, values: Sequence[str]) -> str:
        """Draw one of `values`."""
        return values[self.below(len(values))]


def signs(name: str, count: int) -> np.ndarray:
    """Return float64 [count] of 1 and -1."""
    found = np.frombuffer(hashlib.shake_256(name.encode()).digest(count), np.uint8)
    return (found & 1) * 2.0 - 1.0


def _numbers(name: str, shape: Sequence[int], width: float) -> np.ndarray:
    """Return fp32 numbers of `shape`, evenly spread from -`width` to `width`."""
    count = int(np.prod(shape))
    found = np.frombuffer(hashlib.shake_256(name.encode()).digest(4 * count), "<u4")
    return ((found / 2.0**31 - 1.0) * width).astype(np.float32).reshape(shape)


def sentence(draw: Draw, topic: str) -> str:
    """Return a sentence about `topic`."""
    verb, place = TOPICS[topic]
    return draw.of(SENTENCES).format(
        topic=topic,
        verb=verb,
        place=place,
        adjective=draw.of(ADJECTIVES),
        other=draw.of(ADJECTIVES),
        name=draw.of(NAMES),
        year=1800 + draw.below(200),
        count=2 + draw.below(90),
    )


def documents(name: str, count: int) -> list[list[str]]:
    """Return `count` documents of 3 to 8 sentences, each about one topic."""
    draw = Draw(name)
    topics = list(TOPICS)
    return [
        [sentence(draw, topics[number % len(topics)]) for _ in range(3 + draw.below(6))]
        for number in range(count)
    ]


def copy_messages(folder: Path, name: str = "messages.csv") -> Path:
    """Copy messages to a shop and the team that should answer, which the repository ships."""
    return Path(shutil.copy(_EXAMPLES / name, folder / name))


def write_corpus(path: Path, count: int = 40, name: str = "corpus") -> Path:
    """Write documents with a blank line between them, a line each."""
    found = [" ".join(each) for each in documents(name, count)]
    path.write_text("\n\n".join(found) + "\n", encoding="utf-8")
    return path


def vocabulary() -> list[str]:
    """Return special tokens, the letters, and the words of the sentences."""
    draw = Draw("vocabulary")
    text = " ".join(sentence(draw, topic) for topic in TOPICS for _ in range(60)).lower()
    words = "".join(each if each.isalpha() else " " for each in text).split()
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    return [
        *SPECIAL,
        *".,!?'()-:$£#@/_+",
        *letters,
        *(f"##{each}" for each in letters),
        *("##s", "##ing", "##er", "你", "好", "世", "é"),
        *sorted({*words, "premise", "is", "not", "where", "what", "who", "has"}),
    ]


def unique(values: Iterable[str]) -> list[str]:
    """Return `values`, each once, in the order in which they came first."""
    return list(dict.fromkeys(values))


def write_vocabulary(folder: Path) -> Path:
    """Write ``vocab.txt`` into the new folder `folder`."""
    folder.mkdir(parents=True)
    tokens = unique(vocabulary())
    (folder / "vocab.txt").write_text("".join(f"{each}\n" for each in tokens), encoding="utf-8")
    return folder


def sizes(**changes: Any) -> dict[str, Any]:
    """Return the contents of a ``config.json``: a BERT of two narrow layers."""
    return {
        "architectures": ["BertForPreTraining"],
        "model_type": "bert",
        "vocab_size": len(unique(vocabulary())),
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "max_position_embeddings": 64,
        "type_vocab_size": 2,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "initializer_range": 0.05,
        "layer_norm_eps": 1e-12,
        "pad_token_id": 0,
    } | changes


def write_sizes(path: Path, **changes: Any) -> Path:
    """Write a ``config.json`` of :func:`sizes`."""
    path.write_text(json.dumps(sizes(**changes)), encoding="utf-8")
    return path


def _shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the published names of a BERT's tensors for pre-training, and their shapes."""
    h, i, v = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    products = {
        "attention.self.query": (h, h),
        "attention.self.key": (h, h),
        "attention.self.value": (h, h),
        "attention.output.dense": (h, h),
        "intermediate.dense": (i, h),
        "output.dense": (h, i),
    }
    linear = {
        f"bert.encoder.layer.{layer}.{name}": shape
        for layer in range(config["num_hidden_layers"])
        for name, shape in products.items()
    }
    linear |= {
        "bert.pooler.dense": (h, h),
        "cls.predictions.transform.dense": (h, h),
        "cls.seq_relationship": (2, h),
    }
    norms = ["bert.embeddings", "cls.predictions.transform"]
    for layer in range(config["num_hidden_layers"]):
        norms += [f"bert.encoder.layer.{layer}.{part}output" for part in ("attention.", "")]
    return {
        "bert.embeddings.word_embeddings.weight": (v, h),
        "bert.embeddings.position_embeddings.weight": (config["max_position_embeddings"], h),
        "bert.embeddings.token_type_embeddings.weight": (2, h),
        "cls.predictions.bias": (v,),
        **{f"{name}.weight": shape for name, shape in linear.items()},
        **{f"{name}.bias": shape[:1] for name, shape in linear.items()},
        **{f"{name}.LayerNorm.{kind}": (h,) for name in norms for kind in ("weight", "bias")},
    }


def write_model(folder: Path, **changes: Any) -> Path:
    """Write a model directory as transformers does, with weights large enough to say something."""
    write_vocabulary(folder)
    config = sizes(**changes)
    write_sizes(folder / "config.json", **changes)
    tensors = {}
    for name, shape in _shapes(config).items():
        wide = 0.3 if name.endswith("dense.weight") or ".self." in name else 0.15
        tensors[name] = _numbers(name, shape, wide)
        if name.endswith("LayerNorm.weight"):
            tensors[name] = tensors[name] + np.float32(1.0)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def write_table(path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Path:
    """Write a csv file."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)
    return path


def text_rows(name: str, count: int) -> list[tuple[str, str]]:
    """Return texts of one to three sentences, and whether they are about an animal or a dish."""
    draw = Draw(name)
    rows = []
    for _ in range(count):
        topic = draw.of(list(TOPICS))
        text = " ".join(sentence(draw, topic) for _ in range(1 + draw.below(3)))
        rows.append((text, "animal" if topic in ANIMALS else "dish"))
    return rows


def pair_rows(name: str, count: int) -> list[tuple[str, str, str]]:
    """Return pairs of sentences: about the same, about the same kind of thing, or neither."""
    draw, topics = Draw(name), list(TOPICS)
    rows = []
    for _ in range(count):
        first, second = draw.of(topics), draw.of(topics)
        if draw.below(3) == 0:
            second = first
        alike = (first in ANIMALS) == (second in ANIMALS)
        label = "same" if first == second else "kind" if alike else "other"
        rows.append((sentence(draw, first), sentence(draw, second), label))
    return rows


def number_rows(name: str, count: int) -> list[tuple[str, float]]:
    """Return texts and prices, which their topics and adjectives decide."""
    draw, topics = Draw(name), list(TOPICS)
    rows = []
    for _ in range(count):
        topic, adjective = draw.of(topics), draw.of(ADJECTIVES)
        price = 10.0 * topics.index(topic) + 2.5 * ADJECTIVES.index(adjective) + 100.0
        rows.append((f"a {adjective} {topic} in the {TOPICS[topic][1]}", price))
    return rows


def set_rows(name: str, count: int) -> list[tuple[str, str]]:
    """Return texts about some topics, and the kinds of these: none, one or several labels."""
    draw, topics = Draw(name), list(TOPICS)
    rows = []
    for _ in range(count):
        chosen = [draw.of(topics) for _ in range(draw.below(3))]
        kinds = sorted({"animal" if each in ANIMALS else "dish" for each in chosen})
        if any(TOPICS[each][1] in ("sofa", "pot", "oven", "barn") for each in chosen):
            kinds.append("indoors")
        text = " ".join(sentence(draw, each) for each in chosen) or "What is there?"
        rows.append((text, "|".join(kinds)))
    return rows


def choice_rows(name: str, count: int) -> list[tuple[str, str, str, str, int]]:
    """Return what something does: three verbs, of which one is right; some rows have two."""
    draw, topics = Draw(name), list(TOPICS)
    rows = []
    for _ in range(count):
        topic = draw.of(topics)
        verb, place = TOPICS[topic]
        others = [TOPICS[each][0] for each in topics if each != topic]
        start = draw.below(len(others) - 1)
        right = draw.below(3)
        choices = others[start : start + 2]
        choices.insert(right, verb)
        if right < 2 and draw.below(4) == 0:
            choices[2] = ""
        rows.append((f"the {draw.of(ADJECTIVES)} {topic} in the {place}", *choices, right))
    return rows  # type: ignore[return-value]


def question_rows(name: str, count: int) -> list[tuple[str, str, str]]:
    """Return questions where something is, contexts longer than a window, and the answers; to a
    fourth of them there is none."""
    draw, topics = Draw(name), list(TOPICS)
    rows = []
    for _ in range(count):
        start = draw.below(len(topics))
        there = [topics[(start + 3 * each) % len(topics)] for each in range(4)]
        context = " ".join(
            f"The {draw.of(ADJECTIVES)} {each} {TOPICS[each][0]} in the {TOPICS[each][1]}."
            for each in there
        )
        missing = draw.below(4) == 0
        topic = topics[(start + 1) % len(topics)] if missing else draw.of(there)
        rows.append((f"Where is the {topic}?", context, "" if missing else TOPICS[topic][1]))
    return rows


def tagged_sentences(name: str, count: int) -> list[tuple[list[str], list[str]]]:
    """Return words and tags (IOB2): who sees what, and where."""
    draw, topics = Draw(name), list(TOPICS)
    found = []
    for _ in range(count):
        who, topic = draw.of(NAMES).split(), draw.of(topics)
        words = [*who, "saw", "the", draw.of(ADJECTIVES), topic, "near", "the", TOPICS[topic][1]]
        kind = "ANIMAL" if topic in ANIMALS else "DISH"
        tags = ["B-WHO", *["I-WHO"] * (len(who) - 1), "O", "O", f"B-{kind}", f"I-{kind}"]
        found.append(([*words, "."], [*tags, "O", "O", "B-PLACE", "O"]))
    return found


def write_tagged(path: Path, name: str, count: int) -> Path:
    """Write a column file of documents of four sentences each."""
    lines = []
    for number, (words, tags) in enumerate(tagged_sentences(name, count)):
        if number % 4 == 0:
            lines += ["-DOCSTART- O", ""]
        lines += [f"{word} {tag}" for word, tag in zip(words, tags, strict=True)]
        lines.append("")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
