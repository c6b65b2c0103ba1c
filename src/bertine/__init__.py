"""Train, fine-tune and apply BERT and its family, from raw text to answers.

The commands of the command line as functions, and the few classes that a program needs:

    >>> import bertine
    >>> predictor = bertine.Predictor.load("my-model")

Everything is imported on first use, so ``import bertine`` itself costs almost nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import bertine.core.spin_count as _spin_count  # noqa: F401  it measures from here on
from bertine.core import cpu
from bertine.core.contrib import registered
from bertine.core.errors import BertineError as BertineError
from bertine.core.names import __version__ as __version__
from bertine.core.names import implementation

if TYPE_CHECKING:
    # Written twice, which is how type checkers know that they are for everybody.
    from bertine.corpora.store import TokenStore as TokenStore
    from bertine.estimators import BertClassifier as BertClassifier
    from bertine.estimators import BertRegressor as BertRegressor
    from bertine.families.bert import BertConfig as BertConfig
    from bertine.families.presets import preset as preset
    from bertine.hub.model_directory import load_model as load_model
    from bertine.hub.model_directory import save_model as save_model
    from bertine.inference.embedding.embedder import Embedder as Embedder
    from bertine.inference.fill_mask import fill_mask as fill_mask
    from bertine.inference.glue_submission import glue_submission as glue_submission
    from bertine.inference.predictor import Predictor as Predictor
    from bertine.reports.run_page import report as report
    from bertine.signatures import blimp as blimp
    from bertine.signatures import check_labels as check_labels
    from bertine.signatures import convert as convert
    from bertine.signatures import distill as distill
    from bertine.signatures import drift as drift
    from bertine.signatures import embed as embed
    from bertine.signatures import evaluate as evaluate
    from bertine.signatures import explain as explain
    from bertine.signatures import export as export
    from bertine.signatures import few_shot as few_shot
    from bertine.signatures import finetune as finetune
    from bertine.signatures import finetune_similarity as finetune_similarity
    from bertine.signatures import generate as generate
    from bertine.signatures import index_vectors as index_vectors
    from bertine.signatures import inspect as inspect
    from bertine.signatures import label as label
    from bertine.signatures import learning_curve as learning_curve
    from bertine.signatures import lr_find as lr_find
    from bertine.signatures import predict as predict
    from bertine.signatures import prepare as prepare
    from bertine.signatures import pretrain as pretrain
    from bertine.signatures import search as search
    from bertine.signatures import serve as serve
    from bertine.signatures import similar as similar
    from bertine.signatures import suggest as suggest
    from bertine.signatures import train_vocab as train_vocab
    from bertine.tokenization.tokenizer import Tokenizer as Tokenizer
    from bertine.training.finetuning.finetune import open_learner as open_learner

    # Those of contrib.
    # isort: split
    from bertine.contrib.demo.run import run_demo as run_demo
    from bertine.contrib.papers.table import paper_tables as paper_tables
    from bertine.contrib.word2vec.vectors import WordVectors as WordVectors
    from bertine.signatures import feature_based as feature_based
    from bertine.signatures import paper as paper
    from bertine.signatures import pretrain_elmo as pretrain_elmo
    from bertine.signatures import word2vec as word2vec

#: The module of each public name.
_HOME = {
    "BertClassifier": "bertine.estimators",
    "BertConfig": "bertine.families.bert",
    "BertRegressor": "bertine.estimators",
    "Embedder": "bertine.inference.embedding.embedder",
    "Predictor": "bertine.inference.predictor",
    "TokenStore": "bertine.corpora.store",
    "Tokenizer": "bertine.tokenization.tokenizer",
    "blimp": "bertine.inference.minimal_pairs.evaluate_pairs",
    "check_labels": "bertine.training.label_check",
    "convert": "bertine.inference.convert",
    "distill": "bertine.training.distillation.distill",
    "drift": "bertine.labelling.drift",
    "embed": "bertine.inference.embedding.embed",
    "evaluate": "bertine.inference.evaluate",
    "explain": "bertine.inference.explaining.explain",
    "export": "bertine.inference.export",
    "few_shot": "bertine.training.finetuning.finetune",
    "fill_mask": "bertine.inference.fill_mask",
    "finetune": "bertine.training.finetuning.finetune",
    "finetune_similarity": "bertine.training.similarity.run",
    "generate": "bertine.inference.generate",
    "glue_submission": "bertine.inference.glue_submission",
    "index_vectors": "bertine.inference.embedding.index",
    "inspect": "bertine.reports.inspect",
    "label": "bertine.labelling.label",
    "learning_curve": "bertine.training.learning_curve.learning_curve",
    "load_model": "bertine.hub.model_directory",
    "lr_find": "bertine.training.lr_find",
    "open_learner": "bertine.training.finetuning.finetune",
    "predict": "bertine.inference.predict",
    "prepare": "bertine.corpora.prepare",
    "preset": "bertine.families.presets",
    "pretrain": "bertine.training.pretraining.pretrain",
    "report": "bertine.reports.run_page",
    "save_model": "bertine.hub.model_directory",
    "search": "bertine.training.search.search",
    "serve": "bertine.serving.serve",
    "similar": "bertine.inference.embedding.similar",
    "suggest": "bertine.labelling.suggest",
    "train_vocab": "bertine.tokenization.vocab",
    **registered("NAMES"),
}

_PUBLIC = sorted(["BertineError", "__version__", *_HOME])
if not TYPE_CHECKING:
    __all__ = _PUBLIC


# Before anything imports PyTorch.
cpu.set_spin_count()


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'bertine' has no attribute {name!r}")
    globals()[name] = value = implementation(f"{_HOME[name]}:{name}")
    return value


def __dir__() -> list[str]:
    return _PUBLIC
