"""ELMo as it is trained: the model, the softmax of both directions, and the state that goes on from
batch to batch, one module, so that a checkpoint has all of it.

Shape legend: B rows, T places of a window, N = T B words, L LSTMs of a direction, P width of a
state.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from bertine.inference.elmo.scoring import encoded_words
from bertine.inference.elmo.words import Windows
from bertine.models.elmo.bilm import DIRECTIONS, BidirectionalLm, LstmStates
from bertine.models.elmo.softmax import SampledWords, WordSoftmax
from bertine.models.precision import autocast
from bertine.models.seeding import torch_seed


class ElmoLearner(nn.Module):
    """What is trained, with what it remembers.

    Args:
        model: the two language models.
        softmax: of both.
        types: words by their numbers in the corpus.
        rows: B.
    """

    def __init__(
        self, model: BidirectionalLm, softmax: WordSoftmax, types: Sequence[str], rows: int
    ) -> None:
        super().__init__()
        self.model, self.softmax, self.types = model, softmax, types
        device = next(model.parameters()).device
        zero = {name: LstmStates.zero(model.config, rows, device) for name in DIRECTIONS}
        # Parameters, so that checkpoints have them; none of them learns.
        self.carried = nn.ParameterDict(
            {
                f"{direction}_{part}": nn.Parameter(getattr(state, part), requires_grad=False)
                for direction, state in zero.items()
                for part in ("states", "cells")
            }
        )

    def learned(self) -> list[nn.Parameter]:
        """Return the weights that are trained."""
        return [parameter for parameter in self.parameters() if parameter.requires_grad]

    def losses(
        self,
        windows: dict[str, Windows],
        sampled: SampledWords | None,
        seed: int,
        step: int,
        dtype: torch.dtype,
    ) -> dict[str, Tensor]:
        """Compute the mean loss of each direction, and remember what the rows end with.

        Args:
            sampled: the words to compare with; None: all.
            seed, step: of the dropout.
            dtype: to compute in.
        """
        config = self.model.config
        device = next(self.parameters()).device
        with autocast(dtype, device):
            words = encoded_words(self.model, self.types, windows)
        losses = {}
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            torch.manual_seed(torch_seed(seed, "dropout of ELMo", step))
            for direction in DIRECTIONS:
                window = windows[direction]
                x = words[direction]
                masks = None
                if config.dropout:
                    masks = _masks(config.num_hidden_layers + 1, x, config.dropout)
                begin = LstmStates(
                    self.carried[f"{direction}_states"], self.carried[f"{direction}_cells"]
                )
                sizes = [window.inputs.shape[1]] * window.inputs.shape[0]
                targets = torch.from_numpy(window.targets).flatten().to(device)
                with autocast(dtype, device):
                    outputs, end = self.model.read(direction, x, sizes, begin, masks)
                    out = outputs[-1] if masks is None else outputs[-1] * masks[-1]
                    if sampled is None:
                        total = self.softmax.full_loss(out, targets)
                    else:
                        total = self.softmax.sampled_loss(out, targets, sampled)
                losses[direction] = total / len(targets)
                self.carried[f"{direction}_states"].data.copy_(end.states)
                self.carried[f"{direction}_cells"].data.copy_(end.cells)
        return losses


def _masks(count: int, x: Tensor, rate: float) -> list[Tensor]:
    keep = torch.empty(count, *x.shape, device=x.device).bernoulli_(1 - rate)
    return list((keep / (1 - rate)).unbind(0))
