"""The systems of the story, as a table: what each is, how it is trained, and what it can be asked.

Another system is another entry of :data:`SYSTEMS`, where it is trained by one of the ways here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import bertine
from bertine.core.files import write_json
from bertine.models.family import config_to_huggingface, family_of

#: The shape that all transformers have; of ELMo and word2vec what comes nearest to its width.
SHAPE: dict[str, Any] = {
    "hidden_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
    "initializer_range": 0.06,
    "max_position_embeddings": 128,
}
#: Options of ``bertine.pretrain`` for all transformers.
_PRETRAIN: dict[str, Any] = {
    "initialization": "mimetic",
    "max_seq_length": 64,
    "batch_size": 64,
    "learning_rate": 2e-3,
    "warmup_ratio": 0.05,
    "weight_decay": 0.1,
    "adam_beta2": 0.98,
    "dropout": 0.0,
    "log_every": 10,
    "workers": 0,
}
#: DistilBERT starts with its teacher's weights, and has its own losses.
_DISTILL = {name: value for name, value in _PRETRAIN.items() if name != "initialization"}
#: Options of ``bertine.pretrain_elmo``.
_ELMO: dict[str, Any] = {
    "batch_size": 32,
    "log_every": 10,
    "min_count": 2,
}
ELMO_SHAPE = "elmo-mini"
#: Vocabularies that are of no kind's own making, by name: options of ``bertine.train_vocab``.
_VOCABULARIES: dict[str, dict[str, Any]] = {
    "unigram-xlnet": {"kind": "unigram", "special_tokens": "xlnet"},
}
#: Numbers of a vector of word2vec.
DIMENSIONS = 256


@dataclass(frozen=True)
class Material:
    """What all systems are made of.

    Attributes:
        out: the recipe's folder.
        text: the text, JSON lines.
        held_out: documents of the same files that no system reads.
        vocab_size: pieces, and words of ELMo's softmax.
    """

    out: Path
    text: Path
    held_out: Path
    vocab_size: int

    def vocabulary(self, name: str) -> Path:
        return self.out / "vocabularies" / name

    def store(self, name: str) -> Path:
        return self.out / "stores" / name


#: (material, system, folder of the run, amount of training, updates between checkpoints) → nothing.
Train = Callable[[Material, "System", Path, int, int], object]


@dataclass(frozen=True)
class System:
    """One system.

    Attributes:
        name: on the command line and of its folder.
        title: for people.
        year: when it came.
        about: what it learns from text, in a few words.
        train: makes it, with an amount of training: updates, or passes.
        unit: one of what the amount counts.
        loss: the key of its loss in its log; "": it has no log.
        same_loss: losses of systems with the same word here can be compared.
        tokenizer: its vocabulary, a kind or a name of :func:`vocabulary_options`; "": words.
        model_type: of the transformer.
        shape: where it is another than :data:`SHAPE`.
        options: of its pre-training besides those of all.
        teacher: the system that it learns from.
        text_row, word_row: of ``bertine.feature_based``, for its frozen features.
        finetuned: whether the whole of it is fine-tuned.
        tags_words: whether it is fine-tuned to tag words too.
        scores_pairs: whether it can tell which of two sentences is more probable, or has a score
            for it.
        why_not: what is said where it gives none.
        asked: how it is asked for a word, a key of ``story_looks.WAYS``; "": it cannot be.
    """

    name: str
    title: str
    year: int
    about: str
    train: Train
    unit: str = "update"
    loss: str = ""
    same_loss: str = ""
    tokenizer: str = ""
    model_type: str = ""
    shape: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    teacher: str = ""
    text_row: str = "mix"
    word_row: str = "mix"
    finetuned: bool = True
    tags_words: bool = True
    scores_pairs: bool = True
    why_not: str = ""
    asked: str = "masks"

    def model(self, run: Path) -> Path:
        """Return the model directory of its run."""
        return run / "model"


def vocabulary_options(name: str) -> dict[str, Any]:
    """Return the options of ``bertine.train_vocab`` for a :attr:`System.tokenizer`."""
    return _VOCABULARIES.get(name, {"kind": name})


def _word2vec(material: Material, system: System, run: Path, amount: int, every: int) -> None:
    run.mkdir(parents=True, exist_ok=True)
    bertine.word2vec(
        material.text, run / "model", dimensions=DIMENSIONS, epochs=amount, show_progress=False
    )


def _elmo(material: Material, system: System, run: Path, amount: int, every: int) -> None:
    bertine.pretrain_elmo(
        material.text,
        model=ELMO_SHAPE,
        out=run,
        steps=amount,
        vocab_size=material.vocab_size,
        held_out=material.held_out,
        resume=(run / "run.json").exists(),
        checkpoint_every=every,
        **{**_ELMO, **system.options},
    )


def write_config(system: System, folder: Path) -> Path:
    """Write the ``config.json`` of a transformer of :data:`SHAPE`, or what it has otherwise."""
    family = family_of(system.model_type)
    preset = next(iter(family.presets.values()))
    given = SHAPE | system.shape
    shape = {name: given[name] for name in given if name not in family.keys.absent}
    more = {"embedding_size": SHAPE["hidden_size"]} if hasattr(preset, "embedding_size") else {}
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "config.json"
    write_json(path, config_to_huggingface(preset.replace(**shape, **more)))
    return path


def _transformer(material: Material, system: System, run: Path, amount: int, every: int) -> None:
    bertine.pretrain(
        material.store(system.tokenizer),
        model=write_config(system, run.with_name(f"{run.name}-config")),
        out=run,
        steps=amount,
        resume=(run / "run.json").exists(),
        checkpoint_every=every,
        **{**_PRETRAIN, **system.options},
    )


def _student(material: Material, system: System, run: Path, amount: int, every: int) -> None:
    teacher = BY_NAME[system.teacher]
    bertine.distill(
        material.store(system.tokenizer),
        teacher=teacher.model(material.out / "runs" / teacher.name),
        layers=[1],
        out=run,
        steps=amount,
        resume=(run / "run.json").exists(),
        checkpoint_every=every,
        **{**_DISTILL, **system.options},
    )


_MLM = "pieces of the same vocabulary, hidden alike"

#: In the order of time.
SYSTEMS = (
    System(
        "word2vec",
        "word2vec",
        2013,
        "one vector a word, from the words around it",
        _word2vec,
        unit="epoch",
        text_row="bag-of-vectors",
        word_row="word-vectors",
        finetuned=False,
        scores_pairs=False,
        why_not="its vectors know no order of words, and the other half of its table is not kept",
        asked="neighbours",
    ),
    System(
        "elmo",
        "ELMo",
        2018,
        "the next word and the word before, by two pairs of LSTMs over letters",
        _elmo,
        loss="loss",
        finetuned=False,
        asked="both ways",
    ),
    System(
        "gpt",
        "GPT-1",
        2018,
        "the next piece, from those before it",
        _transformer,
        loss="clm_loss",
        tokenizer="word-bpe",
        model_type="openai-gpt",
        options={"initialization": "normal"},  # the other one is of attention to both sides
        tags_words=False,  # a word's state knows nothing of what stands behind it
        asked="next",
    ),
    System(
        "bert",
        "BERT",
        2018,
        "hidden pieces, from both sides, and whether a sentence follows",
        _transformer,
        loss="mlm_loss",
        same_loss=_MLM,
        tokenizer="wordpiece",
        model_type="bert",
        options={"objective": "mlm-nsp", "input_format": "sentence-pair"},
    ),
    System(
        "roberta",
        "RoBERTa",
        2019,
        "hidden pieces of running text",
        _transformer,
        loss="mlm_loss",
        tokenizer="byte-bpe",
        model_type="roberta",
    ),
    System(
        "distilbert",
        "DistilBERT",
        2019,
        "what BERT would put behind a mask; half the layers, after BERT's own training",
        _student,
        loss="mlm_loss",
        same_loss=_MLM,
        tokenizer="wordpiece",
        model_type="distilbert",
        teacher="bert",
    ),
    System(
        "albert",
        "ALBERT",
        2019,
        "hidden runs of pieces, and the order of sentences; one layer gone through twice",
        _transformer,
        loss="mlm_loss",
        tokenizer="unigram",
        model_type="albert",
        options={"initialization": "normal"},  # a linear layer stands behind its embeddings
    ),
    System(
        "xlnet",
        "XLNet",
        2019,
        "some pieces one after the other in any order, from both sides",
        _transformer,
        loss="plm_loss",
        tokenizer="unigram-xlnet",
        model_type="xlnet",
        options={"initialization": "normal"},  # the other one is of BERT's attention
        asked="any order",
    ),
    System(
        "bart",
        "BART",
        2019,
        "the text as it was, from one with holes and sentences out of order; a layer that reads, "
        "and one that writes",
        _transformer,
        loss="denoising_loss",
        tokenizer="byte-bpe",
        model_type="bart",
        # As many layers as the others, half of them in the decoder.
        shape={
            "num_hidden_layers": SHAPE["num_hidden_layers"] // 2,
            "decoder_layers": SHAPE["num_hidden_layers"] // 2,
            "decoder_attention_heads": SHAPE["num_attention_heads"],
            "decoder_ffn_dim": SHAPE["intermediate_size"],
        },
        options={"initialization": "normal"},  # the other one is of an encoder alone
        asked="infilling",
    ),
    System(
        "electra",
        "ELECTRA",
        2020,
        "which pieces a small model has replaced",
        _transformer,
        loss="rtd_loss",
        tokenizer="wordpiece",
        model_type="electra",
        options={"save_generator": True},
        asked="",
    ),
)
BY_NAME = {system.name: system for system in SYSTEMS}
#: Those that are trained where nothing is said.
USUAL = ("word2vec", "elmo", "gpt", "bert")
