"""Words by their characters: filters, highways and a projection (Kim et al. 2016; Jozefowicz et al.
2016).

Shape legend: N words, C places of a word, F filters of all widths, P width of a word.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertine.models.elmo.characters import NUM_CHARACTERS
from bertine.models.elmo.config import ElmoConfig

#: Words that go through the filters at once: what they give is some 50 kB a word.
_CHUNK = 256


class Highway(nn.Module):
    """A layer that passes on a share of what it reads (Srivastava et al. 2015): "carry" is the
    share of what is new, by its published name."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.transform, self.carry = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """x [N, F]. Returns [N, F]."""
        share = torch.sigmoid(self.carry(x))
        return share * torch.relu(self.transform(x)) + (1 - share) * x


class WordEncoder(nn.Module):
    """Ids of characters to a vector for each word, whatever stands around it."""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        self.activation = torch.relu if config.activation == "relu" else torch.tanh
        self.characters = nn.Embedding(NUM_CHARACTERS - 1, config.character_size)
        self.filters = nn.ModuleList(
            nn.Conv1d(config.character_size, count, width) for width, count in config.filters
        )
        wide = config.num_filters
        self.highways = nn.ModuleList(Highway(wide) for _ in range(config.num_highway_layers))
        self.projection = nn.Linear(wide, config.projection_size)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw new weights, as the published training does."""
        nn.init.uniform_(self.characters.weight, -1.0, 1.0)
        for layer in self.filters:
            assert isinstance(layer, nn.Conv1d)
            assert layer.bias is not None
            nn.init.uniform_(layer.weight, -0.05, 0.05)
            layer.bias.zero_()
        deviation = self.projection.in_features**-0.5
        for linear in (module for module in self.modules() if isinstance(module, nn.Linear)):
            nn.init.normal_(linear.weight, 0.0, deviation)
            linear.bias.zero_()
        for highway in self.highways:
            assert isinstance(highway, Highway)
            highway.carry.bias.fill_(-2.0)

    def forward(self, ids: Tensor) -> Tensor:
        """ids int64 [N, C] from 1 on (:func:`~bertine.models.elmo.characters.character_ids`).
        Returns [N, P]."""
        x = torch.cat([self._filtered(part) for part in ids.split(_CHUNK)])
        for highway in self.highways:
            x = highway(x)
        projected: Tensor = self.projection(x)
        return projected

    def _filtered(self, ids: Tensor) -> Tensor:
        """Return [N, F]: what each filter gives at most. Padding counts too, as published."""
        characters = F.embedding(ids - 1, self.characters.weight).transpose(1, 2)
        return torch.cat([self.activation(f(characters).amax(-1)) for f in self.filters], -1)
