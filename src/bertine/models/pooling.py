"""Pool the states of a text's tokens into one vector.

Mean, ``[CLS]``, max, and the mean over the last four layers (Devlin et al. 2018, section 5.3 and
table 7, concatenate these four for words; their mean is as wide as one), and the other modes of a
directory of sentence-transformers (its ``Pooling`` module, version 6).

Shape legend: B sequences, T tokens of the longest, H hidden size, D width of a vector.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from bertine.core.errors import BertineError
from bertine.models.config import Config
from bertine.models.encoder import Encoded

#: The poolings that a user may choose; `PoolingName` in ``core/names.py`` lists them too.
POOLINGS = ("mean", "cls", "max", "mean-last-4", "tokens")


#: Further ones of sentence-transformers, under its names: the sum divided by the square root of the
#: number of tokens, the mean with weights 1, 2, 3, …, and the last token.
PUBLISHED_POOLINGS = ("mean_sqrt_len_tokens", "weightedmean", "lasttoken")


_LAST = 4


@dataclass(frozen=True)
class Pooling:
    """A way to compute one vector from the states of a text's tokens.

    Attributes:
        modes: of :data:`POOLINGS` or :data:`PUBLISHED_POOLINGS`; the vectors of several are
            concatenated. ``("tokens",)``: no pooling, a vector for each token.
        layer: the layer whose states are read: 0 are the embeddings, 1 the first layer's; -1 is the
            last, -2 the one before. None: the last.
        normalize: to length 1.
        dimensions: how many of the first numbers to keep, after normalizing; None: all.
        normalize_kept: normalize the kept numbers again, if `normalize` is true.
    """

    modes: tuple[str, ...] = ("mean",)
    layer: int | None = None
    normalize: bool = False
    dimensions: int | None = None
    normalize_kept: bool = False

    @classmethod
    def named(cls, name: str) -> Pooling:
        """Return the pooling whose :attr:`name` is `name`."""
        return cls(tuple(name.split("+")))

    @property
    def name(self) -> str:
        """The modes: ``"mean"``, ``"cls+mean"``."""
        return "+".join(self.modes)

    @property
    def tokens(self) -> bool:
        """Whether every token keeps its own vector."""
        return self.modes == ("tokens",)

    @property
    def needs_all_layers(self) -> bool:
        """Whether states of other layers than the last are read."""
        return self.layer is not None or "mean-last-4" in self.modes

    def of_last_token(self) -> Pooling:
        """Return the same for a vocabulary whose ``[CLS]`` is the last token."""
        modes = tuple("lasttoken" if mode == "cls" else mode for mode in self.modes)
        return replace(self, modes=modes)

    def check(self, config: Config) -> None:
        """Refuse a pooling that a model of `config` cannot compute.

        Raises:
            BertineError: an unknown mode; a layer that does not exist; fewer than four layers for
                the mean of the last four, or a `layer` with it; tokens joined with another mode.
        """
        layers = len(config.passes)
        for mode in self.modes:
            if mode not in (*POOLINGS, *PUBLISHED_POOLINGS):
                raise BertineError(f"pooling {mode!r} is not known; choose {', '.join(POOLINGS)}")
        if "tokens" in self.modes and not self.tokens:
            raise BertineError("pooling 'tokens' stands alone")
        if self.layer is not None and not -layers - 1 <= self.layer <= layers:
            raise BertineError(
                f"layer is {self.layer}, but the model has layers 1 to {layers} (0: the "
                f"embeddings; from the end: -1 to {-layers - 1})"
            )
        if "mean-last-4" in self.modes:
            if self.layer is not None:
                raise BertineError("pooling mean-last-4 says which layers; leave out layer")
            if layers < _LAST:
                raise BertineError(
                    f"pooling mean-last-4 needs {_LAST} layers, but the model has {layers}"
                )
        if self.dimensions is not None and not 1 <= self.dimensions <= self._joined(config):
            raise BertineError(
                f"{self.dimensions} dimensions are asked for, but vectors have "
                f"{self._joined(config)}"
            )

    def width(self, config: Config) -> int:
        """Return D, the number of numbers in a vector."""
        return self.dimensions or self._joined(config)

    def _joined(self, config: Config) -> int:
        return len(self.modes) * config.hidden_size

    def describe(self) -> str:
        """Describe the pooling in words: ``"mean, normalized"``."""
        words = [" + ".join(self.modes)]
        if self.layer is not None:
            words.append(f"layer {self.layer}")
        if self.normalize:
            words.append("normalized")
        if self.dimensions:
            words.append(f"the first {self.dimensions} dimensions")
            if self.normalize and self.normalize_kept:
                words.append("normalized again")
        return ", ".join(words)

    def __call__(self, output: Encoded, mask: Tensor) -> Tensor:
        """Pool, in fp32.

        Args:
            output: of a backbone, with its hidden states if they are needed.
            mask: bool or 0/1 [B, T], true at real tokens; each sequence has at least one, and
                padding is on the right.

        Returns:
            fp32 [B, D]; for tokens [B, T, D], where padding has no meaning.
        """
        states = output.last_hidden_state
        if self.needs_all_layers:
            assert output.hidden_states is not None
            if "mean-last-4" in self.modes:
                states = torch.stack([s.float() for s in output.hidden_states[-_LAST:]]).mean(0)
            elif self.layer is not None:
                states = output.hidden_states[self.layer]
        states = states.float()
        if self.tokens:
            vectors = states
        else:
            vectors = torch.cat([_pool(mode, states, mask) for mode in self.modes], -1)
        if self.normalize:
            vectors = F.normalize(vectors, dim=-1)
        if self.dimensions is None:
            return vectors
        kept = vectors[..., : self.dimensions]
        return F.normalize(kept, dim=-1) if self.normalize and self.normalize_kept else kept


def _pool(mode: str, states: Tensor, mask: Tensor) -> Tensor:
    """Map states fp32 [B, T, H] and mask [B, T] to [B, H]."""
    if mode == "cls":
        return states[:, 0]
    if mode == "max":
        return states.masked_fill(~mask.bool()[..., None], float("-inf")).amax(1)
    weights = mask.to(states.dtype)[..., None]
    if mode == "lasttoken":
        last = mask.long().sum(1) - 1
        here = torch.arange(mask.shape[1], device=mask.device) == last[:, None]
        return (states * here.to(states.dtype)[..., None]).sum(1)
    if mode == "weightedmean":
        places = torch.arange(1, mask.shape[1] + 1, device=mask.device)
        weights = weights * places.to(states.dtype)[:, None]
    total, count = (states * weights).sum(1), weights.sum(1).clamp(min=1e-9)
    return total / (count.sqrt() if mode == "mean_sqrt_len_tokens" else count)
