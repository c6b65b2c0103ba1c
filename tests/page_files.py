"""What the commands of the documents find where a page says that the reader has it: small files,
and models of a size that answers at once."""

from __future__ import annotations

import csv
import gzip
import json
import shutil
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pyarrow as pa
import torch

import bertine
import glue_files
import roberta
import squad_files
import tagged
import toys
from bertine.core.model_folders import bundled_folder
from bertine.families.presets import preset
from bertine.hub.model_directory import save_model
from bertine.models.heads import Model, new_head
from bertine.objectives.losses import MlmNsp
from bertine.tokenization.tokenizer import Tokenizer
from contrib.elmo import elmos
from contrib.tensorflow.google import WORDS
from documents import ROOT

Make = Callable[[Path], object]
TEAMS = ("account", "delivery", "payment", "product", "returns")
CHINESE = (
    "送货慢了点，书倒是真好。",
    "用了两天就坏了，很差。",
    "鲁迅生于绍兴。",
    "北京是中国的首都。",
)
#: Forty texts, and what they are about.
TEXTS = [toys.sentence(topic, toys.ADJECTIVES[n % 4]) for n in range(5) for topic in toys.TOPICS]

LABELS = [("animal", "dish")[n % 8 // 4] for n in range(len(TEXTS))]


def table(rows: Sequence[dict[str, Any]]) -> Make:
    """A csv of these rows."""

    def write(path: Path) -> None:
        with open(path, "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)

    return write


def of_texts(text: str, **others: Sequence[Any]) -> Make:
    """A csv of forty texts in the column `text`, with `others` beside them in turn."""
    return table(
        [
            {text: written, **{name: values[n % len(values)] for name, values in others.items()}}
            for n, written in enumerate(TEXTS)
        ]
    )


def lines(*texts: str) -> Make:
    return lambda path: path.write_text("\n".join(texts) + "\n", encoding="utf-8")


def folder(**files: Make) -> Make:
    """A folder of files; ``__`` in a name is a dot."""

    def write(path: Path) -> None:
        path.mkdir()
        for name, make in files.items():
            make(path / name.replace("__", "."))

    return write


@cache
def _words(language: str) -> Tokenizer:
    return Tokenizer.load(bundled_folder(f"bertine-{language}"))


def _config(words: Tokenizer) -> Any:
    return toys.config(vocab_size=words.vocab_size, max_position_embeddings=512)


def bert(language: str = "en") -> Make:
    """A BERT as pre-training leaves it."""

    def write(path: Path) -> None:
        words = _words(language)
        config = _config(words)
        torch.manual_seed(0)
        save_model(path, Model(config, MlmNsp.heads(config)), words)

    return write


def gpt(path: Path) -> None:
    toys.write_corpus(path.with_name("gpt.txt"))
    words = path.with_name("gpt-words")
    bertine.train_vocab([path.with_name("gpt.txt")], words, kind="word-bpe", vocab_size=320)
    tokenizer = Tokenizer.load(words)
    config = toys.config_for("clm").replace(
        vocab_size=tokenizer.vocab_size, max_position_embeddings=512
    )
    save_model(path, Model(config, new_head(config, "lm")), tokenizer)
    shutil.rmtree(words)
    path.with_name("gpt.txt").unlink()


def bart(path: Path) -> None:
    words = Tokenizer.load(roberta.write_vocabulary(path.with_name("bart-words")))
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16}
    config = preset("bart-tiny").replace(**sizes, decoder_attention_heads=2, decoder_ffn_dim=16)
    template = words.template
    config = config.for_vocabulary(
        words.vocab_size, pad=words.pad_token_id, first=template.first_id, last=template.last_id
    )
    save_model(path, Model(config, new_head(config, "lm")), words)
    shutil.rmtree(path.with_name("bart-words"))


def elmo(path: Path) -> None:
    bertine.convert(elmos.write(path.with_name("small-elmo")), path)


def word_vectors(path: Path) -> None:
    lines(*_BOOKS)(path.with_name("words.txt"))
    bertine.word2vec(path.with_name("words.txt"), path, dimensions=8, epochs=1)


def vector_file(path: Path) -> None:
    """Word vectors as text, as GloVe's are."""
    lines(*(f"{word} {n}.5 1 -1" for n, word in enumerate(toys.WORDS)))(path)


def binary_vectors(path: Path) -> None:
    """The same as word2vec's program writes them, compressed."""
    rows = [
        f"{word} ".encode() + np.array([n, 1, -1], "<f4").tobytes() + b"\n"
        for n, word in enumerate(toys.WORDS)
    ]
    path.write_bytes(gzip.compress(f"{len(rows)} 3\n".encode() + b"".join(rows)))


def _tagged(count: int) -> list[str]:
    """Words in CoNLL-2003's four columns."""
    rows = []
    for words, tags in tagged.sentences(count):
        rows += [f"{word} NN O {tag}" for word, tag in zip(words, tags, strict=True)] + [""]
    return rows


def workbook(**columns: Sequence[Any]) -> Make:
    """An Excel file of the rows of :func:`of_texts`."""

    def write(path: Path) -> None:
        book = openpyxl.Workbook()
        book.active.append([*columns])
        for n in range(len(TEXTS)):
            book.active.append([values[n % len(values)] for values in columns.values()])
        book.save(path)

    return write


def documents(*texts: str) -> Make:
    """JSON lines of documents, compressed where the name says so."""

    def write(path: Path) -> None:
        content = "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()
        kind = {".zst": "zstd"}.get(path.suffix)
        with pa.output_stream(str(path), compression=kind) as out:
            out.write(content)

    return write


def google(path: Path) -> None:
    """A checkpoint of Google's programs."""
    shutil.copytree(ROOT / "tests/fixtures/tensorflow/google-bert-tiny", path)
    if not (path / "vocab.txt").exists():
        lines(*WORDS)(path / "vocab.txt")


def store(path: Path) -> None:
    """Prepared texts, for the model that a page has made."""
    made = [Path(name) for name in ("notes-store/tokenizer", "store/tokenizer")]
    tokenizer = next(filter(Path.exists, made), bundled_folder("bertine-en"))
    corpus = toys.write_corpus(path.with_name(f"{path.name}.txt"))
    bertine.prepare([corpus], tokenizer=tokenizer, out=path)


def fine_tuned(data: str, text: str, label: str) -> Make:
    """A run of finetune on a file of the page."""

    def write(path: Path) -> None:
        for name, make in (("minilm", bert()), (data, FILES.get(data))):
            if make is not None and not Path(name).exists():
                make(Path(name))
        columns = {"text_columns": text, "label_column": label}
        bertine.finetune("text", model="minilm", data=data, out=path, epochs=1, **columns)

    return write


def _trusted(path: Path) -> None:
    """A model with a record of its training texts, for which 50 held-out ones are needed."""
    rows = [{"review": f"{text} {n}", "label": LABELS[n % 40]} for n, text in enumerate(TEXTS * 2)]
    folder(train__csv=table(rows), dev__csv=table(rows))(Path("both"))
    bert()(Path("both/start"))
    columns = {"text_columns": "review", "label_column": "label"}
    bertine.finetune("text", model="both/start", data="both", out=path, epochs=1, **columns)


_BOOKS = [f"{text} a late delivery to the bank of the river ." for text in TEXTS * 3]
_corpus = folder(a__txt=toys.write_corpus, b__txt=toys.write_corpus)
_reviews = of_texts("review", stars=(5, 1, 4, 2))
_labelled = of_texts("text", label=("good", "bad"))
_chinese = table([{"text": CHINESE[n % 2] + str(n), "label": "好坏"[n % 2]} for n in range(30)])
_columns = folder(train__conll=lines(*_tagged(40)), dev__conll=lines(*_tagged(20)))

_swag = table(
    [
        {
            "startphrase": f"{text} it",
            "sent1": text,
            "sent2": "it",
            **{f"ending{n}": f"is {n}" for n in range(4)},
            "label": row % 4,
        }
        for row, text in enumerate(TEXTS)
    ]
)

#: What a page may take for granted, by its name there.
FILES: dict[str, Make] = {
    "minilm": bert(),
    "run": bert(),
    "MODEL": bert(),
    "bert-base-uncased": bert(),
    "electra-small-discriminator": bert(),
    "bert-base-chinese": bert("zh"),
    "GPT": gpt,
    "gpt-model": gpt,
    "bart-base": bart,
    "elmo": elmo,
    "elmo-original": elmos.write,
    "uncased_L-12_H-768_A-12": google,
    "vectors": word_vectors,
    "GoogleNews-vectors-negative300.bin.gz": binary_vectors,
    "glove.6B.100d.txt": vector_file,
    "reviews-model": fine_tuned("reviews.csv", "review", "stars"),
    "messages-model": fine_tuned("examples/messages.csv", "message", "team"),
    "store": store,
    "held-out-store": store,
    "vocabulary": lambda path: _words("en").save(path) if path.mkdir() is None else None,
    "texts": _corpus,
    "notes": _corpus,
    "corpus": _corpus,
    "corpus.txt": lambda path: toys.write_corpus(path, 60),
    "held-out.txt": toys.write_corpus,
    "texts.txt": lines(*TEXTS),
    "sentences.txt": lines(*TEXTS),
    "letters.txt": lines(*TEXTS),
    "prompts.txt": lines(*TEXTS[:3]),
    "queries.txt": lines("it never arrived", "the lamp is broken"),
    "bank.txt": lines("The bank of the river is steep.", "The bank lends money."),
    "key.txt": lines("a key of many characters"),
    "books.jsonl.zst": documents(*_BOOKS),
    "zh.jsonl": documents(*["".join(CHINESE[:n]) * 5 for n in (1, 2, 3, 4)] * 10),
    "reviews.csv": _reviews,
    "reviews.xlsx": workbook(Kommentar=TEXTS, Bewertung=(5, 1, 4, 2)),
    "docs.csv": of_texts("text", id=[*range(len(TEXTS))], lang=("en", "de")),
    "new.csv": _reviews,
    "held-out.csv": _reviews,
    "tweets.csv": of_texts("text", label=range(6)),
    "my.csv": _labelled,
    "pinglun.csv": _chinese,
    "notes.csv": of_texts("note"),
    "texts.csv": of_texts("text"),
    "prompts.csv": of_texts("text"),
    "reports.csv": of_texts("report", topic=("a", "b")),
    "offers.csv": of_texts("offer", price=(10, 25.5, 7, 100)),
    "posts.csv": of_texts("post", topics=("a;b", "b", "", "c")),
    "news.csv": of_texts("article", summary=TEXTS[:4]),
    "quiz.csv": of_texts(
        "question", a=["x"], b=["y"], c=["z"], d=["w"], right=("a", "b", "c", "d")
    ),
    "votes.csv": of_texts("text", good=(0.9, 0.2, 0.5), bad=(0.1, 0.8, 0.5)),
    "more-votes.csv": of_texts("text", good=(0.9, 0.2, 0.5), bad=(0.1, 0.8, 0.5)),
    "theirs.csv": table([{"probability_1": 0.75, "probability_5": 0.25}] * 40),
    "theirs.npy": lambda path: np.save(path, np.eye(len(TEXTS))),
    "costs.csv": table(
        [{"label": true, **{team: int(team != true) for team in TEAMS}} for true in TEAMS]
    ),
    "pairs.csv": of_texts("query", match=TEXTS[1:]),
    "other-pairs.csv": of_texts("query", match=TEXTS[2:]),
    "pairs.jsonl": lines(
        '{"sentence_good": "the cat sleeps .", "sentence_bad": "cat the sleeps ."}'
    ),
    "questions.csv": of_texts(
        "context", question=["where is it"], answer=[text.split()[2] for text in TEXTS]
    ),
    "conll": _columns,
    "entities": _columns,
    "ner": _columns,
    "squad": lambda path: squad_files.write_squad(path, v2=True, articles=6, dev=2),
    "swag": folder(train__csv=_swag, val__csv=_swag),
    "data": folder(swag=folder(train__csv=_swag, val__csv=_swag)),
    "docs": lambda path: shutil.copytree(ROOT / "docs/tutorials/data", path / "tutorials/data"),
    "emotion": folder(train__csv=_labelled, test__csv=_labelled),
    "cola": folder(train__csv=of_texts("sentence", label=("good", "bad"))),
    "glue": lambda path: glue_files.write_glue(path, rows=12),
    "my-run.yaml": lines("model: bert-mini", "steps: 2", "batch_size: 4"),
}
#: Parts of published data sets, of which the other names are those of folders here.
PARTS = {"hf:dair-ai/emotion/test": "emotion/test.csv"}
_RELEVANT = of_texts("question", answer=TEXTS[1:], relevant=("yes", "no"))
#: Where a page means something else by a name.
OF_PAGES: dict[str, dict[str, Make]] = {
    "docs/guides/classify-texts.md": {"new.csv": of_texts("message", team=("repairs", "offers"))},
    "docs/guides/few-labels.md": {
        "labelled.csv": table(
            [{"text": text, "label": kind} for text, kind in zip(TEXTS[:16], LABELS, strict=False)]
        )
    },
    "docs/guides/follow-the-notes.md": {
        "texts": folder(a__txt=toys.write_corpus, b__jsonl=documents(*_BOOKS))
    },
    "docs/guides/generate.md": {"MODEL": gpt},
    "docs/guides/gpt-1.md": {"pairs.csv": _RELEVANT},
    "docs/guides/other-tasks.md": {"pairs.csv": _RELEVANT},
    "docs/guides/probabilities.md": {"trusted": _trusted},
    "docs/guides/text-to-text.md": {"new.csv": of_texts("article")},
    "docs/zh/few-labels.md": {"new.csv": _chinese},
    "docs/zh/quickstart.md": {"new.csv": _chinese},
}
