"""The random batch and the model that a pre-training step is measured with."""

from __future__ import annotations

import dataclasses

import torch

from bertine.corpora.batch import Batch
from bertine.families.presets import PRESETS, preset
from bertine.models.config import Config
from bertine.models.family import family_of
from bertine.models.heads import Model
from bertine.objectives import choose
from bertine.objectives.losses import Mlm, MlmNsp, Objective

SEED = 0
#: BERT's presets without "bert-", and all presets by their names.
SIZES = (*(name[5:] for name in PRESETS if name.startswith("bert-")), *PRESETS)


def config_of(size: str) -> Config:
    """Return the config of one of :data:`SIZES`."""
    return preset(size if size in PRESETS else f"bert-{size}")


@dataclasses.dataclass(frozen=True)
class Shape:
    """What a step computes.

    Attributes:
        short: share of the sequences that are shorter than `length`, as the paper's
            ``short_seq_prob`` makes them.
    """

    config: Config
    batch_size: int
    length: int
    short: float

    @property
    def objective(self) -> Objective:
        """MLM and NSP for BERT, the model's own for what has no masks to fill, MLM for the others
        (of ALBERT and ELECTRA, what the rival's class computes)."""
        heads = family_of(self.config.model_type).heads
        if "mlm" not in heads:
            return choose(self.config)[0]
        return MlmNsp() if "nsp" in heads else Mlm()


def make_batch(shape: Shape) -> Batch:
    """Random tokens in two segments, 15% of them masked: 19 or 20 of 128. XLNet guesses those in a
    random order, GPT-1 every token from those before it, BART writes all."""
    torch.manual_seed(SEED)
    b, t = shape.batch_size, shape.length
    lengths = torch.full((b,), t)
    shorter = round(shape.short * b)
    lengths[:shorter] = torch.randint(min(8, t), t + 1, (shorter,))
    mask = torch.arange(t) < lengths[:, None]
    vocab_size = shape.config.vocab_size
    input_ids = torch.randint(min(1000, vocab_size // 2), vocab_size, (b, t)) * mask
    positions = []
    for row, length in enumerate(lengths.tolist()):
        # 15% of 128 is 19.2: 19 for every other sequence, 20 for the rest.
        count = max(1, int(0.15 * length + row % 2))
        positions.append(row * t + torch.randperm(length)[:count].sort().values)
    mlm_positions = torch.cat(positions)
    segments = ((torch.arange(t) >= t // 2) & mask).long()
    targets = {
        "mlm_positions": mlm_positions,
        "mlm_labels": input_ids.view(-1)[mlm_positions],
        "next_sentence_label": torch.randint(0, 2, (b,)),
    }
    kind = shape.objective.name
    if kind == "denoising":
        targets = {"target_ids": input_ids.clone(), "target_mask": mask}
    elif kind == "clm":
        followed = torch.nn.functional.pad(mask[:, 1:], (0, 1)).flatten().nonzero().flatten()
        targets = {
            "clm_positions": followed,
            "clm_labels": input_ids.view(-1)[followed + 1],
        }
    elif kind == "plm":
        order = torch.full((b * t,), -1)
        order[mlm_positions] = torch.randperm(len(mlm_positions))
        targets = {
            "plm_positions": mlm_positions,
            "plm_labels": input_ids.view(-1)[mlm_positions],
            "guessing_order": order.view(b, t),
        }
    return Batch(input_ids, mask, segments, targets)


def make_model(shape: Shape) -> Model:
    torch.manual_seed(SEED)
    return Model(shape.config, shape.objective.heads(shape.config))
