"""A model is a backbone and the heads that an objective or task asks for."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch
from torch import nn

from bertine.models.bert import BertBackbone
from bertine.models.config import BertConfig


class Model(nn.Module):
    """A backbone with named heads.

    Objectives and tasks say how the heads are used; the model only holds the parts, so that one
    state dict, one optimizer and one checkpoint cover them.

    Attributes:
        backbone: the encoder.
        heads: by name: "mlm", "nsp", "classifier", …
    """

    def __init__(
        self, config: BertConfig, heads: Mapping[str, nn.Module], add_pooler: bool = True
    ) -> None:
        super().__init__()
        self.config = config
        self.backbone = BertBackbone(config, add_pooler)
        self.heads = nn.ModuleDict(dict(heads))

    def fingerprint(self) -> str:
        """SHA-256 of all weights, as hex digits: what a run began with."""
        return weights_fingerprint(self)

    def num_parameters(self) -> int:
        """Parameters, the tied decoder counted once."""
        return sum(p.numel() for p in self.parameters())


def weights_fingerprint(module: nn.Module) -> str:
    """SHA-256 of the weights of `module` and their names, as hex digits."""
    digest = hashlib.sha256()
    for name, tensor in module.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()
