"""The data and the model that jobs are tested with."""

from training.conftest import _no_baselines, labelled, model

__all__ = ["_no_baselines", "labelled", "model"]
