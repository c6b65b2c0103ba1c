"""The names in signatures and help are those that the rooms know."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from bertine.core import names
from bertine.core.names import OBJECTIVES
from bertine.corpora.collators import MASKINGS
from bertine.corpora.formats import INPUT_FORMATS
from bertine.data.entities import SCHEMES
from bertine.inference import compute, export
from bertine.inference.embedding.vector_files import DTYPES
from bertine.inference.explaining.target import METHODS
from bertine.models.layers import ACTIVATIONS
from bertine.models.pooling import POOLINGS
from bertine.models.precision import PRECISIONS
from bertine.tasks import DATA_SETS, TASKS
from bertine.tasks.base import LONG_TEXT
from bertine.tokenization.tokenizer import KINDS
from bertine.training.optimizers import OPTIMIZERS
from bertine.training.schedules import SCHEDULES


@pytest.mark.parametrize(
    ("declared", "known"),
    [
        (names.TaskName, {*TASKS, *DATA_SETS}),
        (names.OptimizerName, OPTIMIZERS),
        (names.ScheduleName, SCHEDULES),
        (names.Precision, PRECISIONS),
        (names.AnswerPrecision, compute.PRECISIONS),
        (names.PoolingName, POOLINGS),
        (names.VectorPooling, set(POOLINGS) - {"tokens"}),
        (names.VectorType, DTYPES),
        (names.LongText, LONG_TEXT),
        (names.ObjectiveName, OBJECTIVES),
        (names.InputFormat, INPUT_FORMATS),
        (names.Masking, MASKINGS),
        (names.TagScheme, SCHEMES),
        (names.TokenizerKind, KINDS),
        (names.ActivationName, ACTIVATIONS),
        (names.ExportFormat, export.FORMATS),
        (names.ExplanationMethod, METHODS),
    ],
)
def test_declared_names_are_those_that_are_known(declared: Any, known: Any) -> None:
    assert set(get_args(declared)) == set(known)
