"""What Google's programs computed, as our batches and names have it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bertine.contrib.tensorflow.bundle import Bundle
from bertine.contrib.tensorflow.variables import Variables
from bertine.corpora.batch import Batch
from bertine.tokenization.tokenizer import SPECIAL_TOKENS
from tolerance import assert_close, network_terms

FIXTURES = Path(__file__).parents[2] / "fixtures" / "tensorflow"
GOLDEN = FIXTURES / "google-bert-tiny"
KERAS = FIXTURES / "keras-bert-tiny"
ALBERT = FIXTURES / "google-albert-tiny"
WORDS = [*SPECIAL_TOKENS, "the", "cat", "sat", "##s", *(f"word{i}" for i in range(88))]


def expected(folder: Path) -> dict[str, Tensor]:
    with np.load(folder / "expected.npz") as file:
        return {name: torch.from_numpy(file[name]) for name in file.files}


def batch_of(values: dict[str, Tensor]) -> Batch:
    """The inputs of the published program as a batch."""
    ids, positions = values["input_ids"].long(), values["masked_lm_positions"].long()
    rows = torch.arange(len(ids))[:, None] * ids.shape[1]
    return Batch(
        ids,
        values["input_mask"].bool(),
        values["segment_ids"].long(),
        {
            "mlm_positions": (rows + positions).flatten(),
            "mlm_labels": values["masked_lm_ids"].long().flatten(),
            **{
                ours: values[theirs].long().flatten()
                for ours, theirs in (
                    ("next_sentence_label", "next_sentence_labels"),
                    ("sentence_order_label", "sentence_order_labels"),
                )
                if theirs in values
            },
        },
    )


#: Of the toys' networks, of three and four layers.
TERMS, GRADIENT_TERMS = network_terms(4, 32), network_terms(4, 32, gradients=True)


def largest(ours: Tensor, theirs: Tensor) -> float:
    assert ours.shape == theirs.shape
    return float((ours - theirs).detach().abs().max())


def assert_gradients(ours: dict[str, Tensor], folder: Path, variables: Variables) -> None:
    """Check gradients, by the names of transformers, against all those of Google's program."""
    rest = dict(ours)
    with np.load(folder / "gradients.npz") as file:
        for name in file.files:
            place = variables.place(name.replace("|", "/"))
            assert place is not None
            theirs = torch.from_numpy(file[name])
            theirs = theirs.T if place.transposed else theirs
            # The gradient of a key's bias is zero, but for the rounding of numbers like the others.
            assert_close(rest.pop(place.name), theirs, terms=GRADIENT_TERMS, size=0.1, what=name)
    assert not rest


def arrays_of(folder: Path, prefix: str = "bert_model.ckpt") -> dict[str, npt.NDArray[Any]]:
    """All variables of a checkpoint."""
    bundle = Bundle(folder / f"{prefix}.index")
    return {name: np.asarray(bundle.array(name)) for name in bundle.entries}
