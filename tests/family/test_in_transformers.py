"""Every variant with every task, all weights trained or the head alone, opened in transformers:
it computes the same there as here, or does not open.

The table of docs/guides/coming-from-transformers.md (with a few minutes of time)::

    python -m pytest -n0 -s tests/family/test_in_transformers.py
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor

import bertine
import toys
from bertine.core.names import FAMILIES
from bertine.corpora.batch import Batch
from bertine.datasets.readers import read_evaluation
from bertine.families.fitted_heads import takes_mean_layer
from bertine.hub.model_directory import load_model, only_here
from bertine.inference.embedding.embedder import Embedder
from bertine.models.config import Config
from bertine.models.family import family_of
from bertine.models.heads import VECTOR_CLASSIFIER

from .conftest import Home, Once
from .conftest import bertine as command
from .parity import inputs, padded_left
from .task_cases import ONE, TASKS, WHOLE, TaskCase, finetune_once

#: What becomes of a variant's models: (variant, task, way) → a difference, or a word.
_FOUND: dict[tuple[str, str, str], str] = {}
_WAYS: dict[str, tuple[object, ...]] = {"all weights": WHOLE, "head alone": ("--frozen",)}
_VECTORS = "sentence-transformers"


@pytest.fixture(scope="module", autouse=True)
def _table() -> Iterator[None]:
    """Print what was found, where all of it was looked for."""
    yield
    columns = [*TASKS, _VECTORS]
    print("\n| |", " | ".join(columns), "|\n|---|", "---|" * len(columns))
    for name in dict.fromkeys(name for name, _, _ in _FOUND):
        cells = [
            ", ".join(_FOUND[name, task, way] for way in _WAYS if (name, task, way) in _FOUND)
            for task in columns
        ]
        print(f"| {name} |", " | ".join(cells), "|")


def fits_alone(home: Home, case: TaskCase) -> bool:
    """Whether Bertine fits the head alone for a task."""
    if takes_mean_layer(load_model(home.pretrained).model.backbone):
        return case.task != "spans"
    return case.head == "classifier" and VECTOR_CLASSIFIER in home.variant.family.heads


def opened(folder: Path, case: TaskCase) -> Any:
    """The model as transformers opens it: by the class for the task, which is the one that
    config.json names; every tensor of the file has its place, and every place its tensor."""
    (name,) = json.loads((folder / "config.json").read_text())["architectures"]
    auto = getattr(transformers, f"AutoModelFor{case.auto}")
    if name == "OpenAIGPTDoubleHeadsModel":  # which no class for all types opens
        auto = transformers.OpenAIGPTDoubleHeadsModel
    theirs, info = auto.from_pretrained(folder, output_loading_info=True)
    assert type(theirs).__name__ == name
    assert not info["missing_keys"]
    assert not info["mismatched_keys"]
    # A BERT that finds spans keeps its pooler, for whatever else is made of it.
    rest = {key for key in info["unexpected_keys"] if not key.startswith("bert.pooler.")}
    assert not rest
    return theirs.eval()


def their_outputs(theirs: Any, batch: Batch, config: Config) -> tuple[Tensor, Tensor]:
    """What a model of transformers says of a batch, as our heads say it; and which tokens are
    real."""
    given = inputs(batch, config)
    if config.reads_last:
        given = padded_left(given)
    real = given["attention_mask"].bool()
    kind = type(theirs).__name__
    choices = kind.endswith(("MultipleChoice", "DoubleHeadsModel"))
    if choices:
        given = {name: value[None] for name, value in given.items()}
    if kind == "OpenAIGPTDoubleHeadsModel":
        given["mc_token_ids"] = given.pop("attention_mask").sum(-1) - 1
    with torch.inference_mode():
        output = theirs(**given)
    if "start_logits" in output:
        return torch.stack([output.start_logits, output.end_logits], -1), real
    logits = output.mc_logits if "mc_logits" in output else output.logits
    return logits.T if choices else logits, real


@pytest.mark.parametrize("model_type", FAMILIES)
def test_the_heads_that_transformers_has_are_known(model_type: str) -> None:
    family = family_of(model_type)
    there = {
        name: hasattr(transformers, family.class_prefix + kind.suffix)
        for name, kind in family.heads.items()
    }
    for name, is_there in there.items():
        assert (family.why_only_here({name}) is None) == is_there, name
    assert family.published == hasattr(transformers, f"{family.class_prefix}Model")
    # What is pre-trained opens there.
    if family.published:
        assert family.why_only_here(family.pretraining) is None


@pytest.mark.fast_cases(home=("bert",), task=("text", "tagging"), way=("all weights",))
@pytest.mark.fast_cases(home=("bert",), task=("text", "pair"), way=("head alone",))
@pytest.mark.fast_cases(home=("modernbert",), task=("multi-label",), way=("head alone",))
@pytest.mark.fast_cases(home=("bart",), task=("tagging",), way=("all weights",))
@pytest.mark.takes(4)
@pytest.mark.parametrize("way", _WAYS)
@pytest.mark.parametrize("task", TASKS)
def test_it_computes_the_same_or_does_not_open(
    home: Home, once: Once, task: str, way: str, tmp_path: Path
) -> None:
    case, place = TASKS[task], (home.variant.model_type, task, way)
    if case.head not in home.variant.family.heads:
        pytest.skip("its models have no head for this task")
    if way == "head alone" and not fits_alone(home, case):
        _FOUND[place] = "–"
        pytest.skip("its head is not fitted alone")
    folder = finetune_once(home, once, task, *_WAYS[way])
    loaded = load_model(folder)
    if only_here(loaded.model):
        _FOUND[place] = "does not open"
        with pytest.raises(ValueError, match=f"{home.variant.model_type}-for-bertine-only"):
            opened(folder, case)
        with pytest.raises(ValueError, match="-for-bertine-only"):
            transformers.AutoModel.from_pretrained(folder)
        with pytest.raises(bertine.BertineError, match="is for Bertine alone: transformers has no"):
            bertine.convert(folder, tmp_path / "converted")
        card = (folder / "README.md").read_text()
        assert "library_name: bertine\n" in card
        assert "It is for Bertine alone: transformers has no" in card
        return
    theirs = opened(folder, case)
    predictor = bertine.Predictor.load(folder, "cpu", "fp32")
    kind, tokenizer = predictor.task, loaded.tokenizer
    (examples,) = read_evaluation(kind, case.write(tmp_path / case.file)).values()
    features = kind.featurize(examples, tokenizer)[:6]
    if case.head == "classifier":  # of the texts their tokenizer makes the same
        encode = transformers.AutoTokenizer.from_pretrained(folder)
        for item, feature in zip(examples.items, features, strict=False):
            given = encode(*item.texts, truncation=True)["input_ids"]
            assert given == feature.input_ids.tolist()
    batch = kind.collate(features, tokenizer.pad_token_id)
    with torch.inference_mode():
        ours = loaded.model.read(kind.head, loaded.model.encode(batch))
    expected, real = their_outputs(theirs, batch, loaded.config)
    if ours.dim() == 3:
        ours, expected = ours[batch.attention_mask], expected[real]
    _FOUND[place] = f"{float((ours - expected).abs().max()):.0e}"
    # What is made a factor in a head alone may add rounding of its own.
    bound = 1e-5 * max(1.0, float(expected.abs().max()))
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=bound)


@pytest.mark.fast_cases(home=("bert",))
@pytest.mark.takes(4)
def test_vectors_are_those_of_sentence_transformers(home: Home, tmp_path: Path) -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers")
    place = (home.variant.model_type, _VECTORS, "all weights")
    rows = "\n".join(f"{text},{other}" for text, other in zip(ONE, reversed(ONE), strict=True))
    (tmp_path / "pairs.csv").write_text(f"query,match\n{rows}\n")
    command(
        *("finetune", "similarity", "--model", home.pretrained, "--data", tmp_path / "pairs.csv"),
        *("--out", tmp_path / "run", "--epochs", 1, "--batch-size", 2, "--precision", "fp32"),
    )
    theirs = sentence_transformers.SentenceTransformer(
        str(tmp_path / "run" / "model"), device="cpu"
    )
    with toys.one_thread():
        ours = Embedder.load(tmp_path / "run", device="cpu", precision="fp32").embed(list(ONE))
        expected = theirs.encode(list(ONE), batch_size=1)
    _FOUND[place] = f"{float(abs(ours - expected).max()):.0e}"
    np.testing.assert_allclose(ours, expected, atol=1e-5)
