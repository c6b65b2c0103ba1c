"""A toy language and what is made of it: texts, a tokenizer, stores, models, labelled examples.

A document is about one animal or one dish, and that decides its words: a model that sees the
neighbours of a masked word, or both segments of a pair, can know what the frequencies do not say.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file
from torch import Tensor

import bertine
from bertine.core.names import FAMILIES
from bertine.core.rng import generator
from bertine.corpora.batch import Batch
from bertine.corpora.pretraining_data import PretrainingData
from bertine.corpora.store import TokenStore
from bertine.corpora.store_writer import StoreWriter, write_manifest
from bertine.families.bert import BertConfig
from bertine.hub.model_directory import save_model
from bertine.models.config import Config
from bertine.models.family import config_to_huggingface, family_of
from bertine.models.heads import Model
from bertine.objectives.losses import MlmNsp
from bertine.options.pretraining import InstanceSettings
from bertine.tasks.classification import Prediction, TextClassification
from bertine.tasks.multi_label import LabelSet
from bertine.tokenization.tokenizer import SPECIAL_TOKENS, Tokenizer

#: For each topic: who, does what, where.
TOPICS = {
    "cat": ("sleeps", "sofa"),
    "dog": ("barks", "garden"),
    "cow": ("grazes", "meadow"),
    "fish": ("swims", "river"),
    "soup": ("boils", "pot"),
    "bread": ("bakes", "oven"),
    "rice": ("steams", "bowl"),
    "cake": ("cools", "table"),
}
ADJECTIVES = ("old", "small", "warm", "brown")
WORDS = [
    *("the", "a", "in", "."),
    *ADJECTIVES,
    *(word for topic, rest in TOPICS.items() for word in (topic, *rest)),
]
#: What logs say that differs from run to run.
CLOCK = ("tokens_per_second", "elapsed", "share_of_ceiling")


def recipe(name: str) -> dict[str, Any]:
    """The keys and values of a recipe of the package."""
    file = resources.files("bertine.recipes") / f"{name}.yaml"
    values: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return values


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Two threads for matrices this small only wait for each other, for minutes on a busy
    machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class DocumentWriter(StoreWriter):
    """Writes a store by hand, document by document."""

    def add_document(self, sentences: Sequence[Sequence[int]]) -> None:
        """Append one whole document, given as the ids of its sentences."""
        lengths = np.array([len(sentence) for sentence in sentences], np.int64)
        ids = np.array([token for sentence in sentences for token in sentence], np.int64)
        self.append(ids, lengths, np.array([len(lengths)]))

    def finish(self, facts: dict[str, Any]) -> None:
        """Write what is left, and the manifest with these facts."""
        write_manifest(self.folder, facts, self.close())


def tokenizer() -> Tokenizer:
    """One piece for every word of the toy language."""
    return Tokenizer.from_vocab([*SPECIAL_TOKENS, *WORDS])


def tokenizer_folder(folder: Path) -> Path:
    folder.mkdir(parents=True)
    tokenizer().save(folder)
    return folder


def sentence(topic: str, adjective: str) -> str:
    verb, place = TOPICS[topic]
    return f"the {adjective} {topic} {verb} in the {place} ."


def corpus_text(documents: int, sentences: int = 6, seed: int = 0) -> str:
    """Documents of `sentences` lines, each about one topic, with a blank line between them."""
    draw = generator(seed, "toy corpus")
    topics = list(TOPICS)
    return "\n\n".join(
        "\n".join(
            sentence(topics[number % len(topics)], ADJECTIVES[draw.integers(len(ADJECTIVES))])
            for _ in range(sentences)
        )
        for number in range(documents)
    )


def write_corpus(path: Path, documents: int = 40) -> Path:
    path.write_text(corpus_text(documents) + "\n", encoding="utf-8")
    return path


def write_store(folder: Path, documents: int = 40) -> Path:
    """A token store of :func:`corpus_text`, its tokenizer inside."""
    words = tokenizer()
    folder.mkdir(parents=True)
    with DocumentWriter(folder, vocab_size=words.vocab_size) as writer:
        for document in corpus_text(documents).split("\n\n"):
            writer.add_document(words.encode_plain(document.splitlines()))
        tokenizer_folder(folder / "tokenizer")
        writer.finish({"tokenizer_fingerprint": words.fingerprint, "language": "en"})
    return folder


def instances_of(
    store: TokenStore, words: Tokenizer, corruption: Any = None, **settings: Any
) -> PretrainingData:
    """Batches with these settings, of up to 20 predictions a sequence as in the paper."""
    made = InstanceSettings(**{"max_predictions_per_seq": 20, **settings})
    given = {} if corruption is None else {"corruption": corruption}
    return PretrainingData(store, words, made, **given)


def pretraining_data(store: Path, **changes: Any) -> PretrainingData:
    settings = {"batch_size": 8, "max_seq_length": 32, "seed": 3, **changes}
    return instances_of(TokenStore.open(store), tokenizer(), **settings)


def config(**changes: Any) -> BertConfig:
    sizes = {
        "vocab_size": tokenizer().vocab_size,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "max_position_embeddings": 40,
    }
    return BertConfig(**{**sizes, **changes})


def config_for(objective: str) -> Config:
    """Tiny sizes for the first of the types that are pre-trained with `objective`."""
    kinds = map(family_of, FAMILIES)
    kind = next(kind.config for kind in kinds if objective in kind.objectives)
    sizes = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")
    bert = config().to_dict()
    known = {name: bert[name] for name in (*sizes, "intermediate_size")}
    if objective == "clm":  # GPT-1 has no other
        known["intermediate_size"] = 4 * known["hidden_size"]
    return kind(**known, max_position_embeddings=40)


def write_config(path: Path, config: Config) -> Path:
    """A configuration file, for models with new weights."""
    path.write_text(json.dumps(config_to_huggingface(config)))
    return path


def pretraining_model(seed: int = 0, **changes: Any) -> Model:
    torch.manual_seed(seed)
    settings = config(**changes)
    return Model(settings, MlmNsp.heads(settings))


def pretraining_logits(model: Model, batch: Batch) -> tuple[Tensor, Tensor]:
    """MLM logits [P, V] at ``mlm_positions``, NSP logits [B, 2]."""
    encoded = model.encode(batch)
    mlm = model.read("mlm", encoded, places=batch.targets["mlm_positions"])
    return mlm, model.read("nsp", encoded)


def write_model(folder: Path, **changes: Any) -> Path:
    """A model directory with random weights and the heads of pre-training."""
    save_model(folder, pretraining_model(**changes), tokenizer())
    return folder


def write_classifier(folder: Path) -> Path:
    """With random weights, for texts about animals and dishes."""
    task = TextClassification(("animal", "dish"), ("text",), "label", 16)
    model = Model(config(), task.heads(config()))
    save_model(folder, model, tokenizer(), task=task.task_info())
    return folder


def write_labelled(path: Path, rows: int = 64, seed: int = 0) -> Path:
    """A csv of texts, each about an animal or about a dish, as its label says."""
    draw = generator(seed, "toy labels")
    topics = list(TOPICS)
    lines = ["text,label"]
    for number in range(rows):
        topic = number % len(topics)
        adjective = ADJECTIVES[draw.integers(len(ADJECTIVES))]
        lines.append(f"{sentence(topics[topic], adjective)},{'animal' if topic < 4 else 'dish'}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def write_recorded(folder: Path, rows: int = 96) -> Path:
    """A model that was fine-tuned on texts as of :func:`write_labelled`, with a record of as many
    that were held out; its directory."""
    (folder / "data").mkdir(parents=True)
    for name, seed in (("train", 0), ("dev", 1)):
        write_labelled(folder / "data" / f"{name}.csv", rows=rows, seed=seed)
    settings: dict[str, Any] = {"epochs": 4, "learning_rate": 2e-3, "baselines": False}
    with one_thread():
        run = bertine.finetune(
            "text",
            model=write_model(folder / "start"),
            data=folder / "data",
            out=folder / "run",
            frozen=False,
            **settings,
        )
    return Path(run.model)


def write_pairs(path: Path, rows: int = 48, seed: int = 0) -> Path:
    """A csv of pairs of texts: about the same topic, or not."""
    draw = generator(seed, "toy pairs")
    topics = list(TOPICS)
    lines = ["premise,hypothesis,label"]
    for number in range(rows):
        first = topics[draw.integers(len(topics))]
        other = topics[(topics.index(first) + 1 + draw.integers(len(topics) - 1)) % len(topics)]
        second = first if number % 2 else other
        label = "same" if number % 2 else "different"
        lines.append(f"{sentence(first, 'old')},{sentence(second, 'warm')},{label}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def weights(folder: Path) -> dict[str, Tensor]:
    """The tensors of a model directory."""
    return load_file(folder / "model.safetensors")


def same_weights(one: Path, other: Path) -> bool:
    """Whether two model directories have the same weights, bit for bit."""
    ours, theirs = weights(one), weights(other)
    return ours.keys() == theirs.keys() and all(torch.equal(ours[n], theirs[n]) for n in ours)


@contextlib.contextmanager
def interrupted_at(call: int, owner: Any, name: str) -> Iterator[None]:
    """Interrupt the work in the block at the given call of a function of `owner`, from 1."""
    original, calls = getattr(owner, name), itertools.count(1)

    def counted(*args: Any, **options: Any) -> Any:
        if next(calls) == call:
            raise KeyboardInterrupt
        return original(*args, **options)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(owner, name, counted)
        with pytest.raises(KeyboardInterrupt):
            yield


def log(run: Path) -> list[dict[str, Any]]:
    """The lines of a run's log without what the clock says."""
    lines = (run / "log.jsonl").read_text(encoding="utf-8").splitlines()
    entries = [json.loads(line) for line in lines]
    return [{k: v for k, v in entry.items() if k not in CLOCK} for entry in entries]


def tree(folder: Path) -> dict[str, bytes | None]:
    """Everything in `folder`, hidden files too: relative path → content, None for a folder."""
    return {
        str(path.relative_to(folder)): None if path.is_dir() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
    }


def prediction(label: str, chances: Mapping[str, float]) -> Prediction:
    return Prediction(label, all_labels=tuple(chances), numbers=tuple(chances.values()))


def label_set(labels: tuple[str, ...], chances: Mapping[str, float]) -> LabelSet:
    return LabelSet(labels, all_labels=tuple(chances), numbers=tuple(chances.values()))


def counts_of(matrix: Sequence[Sequence[int]]) -> dict[tuple[int, int], int]:
    """The cells of a confusion matrix that are not 0."""
    cells = ((i, j, count) for i, row in enumerate(matrix) for j, count in enumerate(row))
    return {(i, j): count for i, j, count in cells if count}
