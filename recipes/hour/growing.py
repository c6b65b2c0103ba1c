"""Give a ModernBERT more layers, as copies of its own that do nothing at first.

A copy's outputs have weights of zero, so the larger model computes what the smaller one did, and
learns from there (Gong et al. 2019, "Efficient training of BERT by progressively stacking", without
the zeros; copies that begin as the identity: Wu et al. 2024, arXiv 2401.02415).
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from bertine.errors import BertineError
from bertine.files import atomic_dir, read_json, write_json

_LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)")


def grow(model: Path, layers: int, out: Path) -> None:
    """Write the model in the folder `model`, with `layers` layers, into the folder `out`.

    Layer i begins as layer i modulo N of the N there are, so that windows and full attention take
    turns as before.

    Raises:
        BertineError: the new number of layers is not a larger multiple of the old one.
    """
    config = read_json(model / "config.json")
    old: int = config["num_hidden_layers"]
    if layers <= old or layers % old:
        raise BertineError(
            f"{model}: has {old} layers; give a larger multiple of {old}, not {layers}"
        )
    weights = load_file(model / "model.safetensors")
    grown = dict(weights)
    for name, tensor in weights.items():
        if match := _LAYER.fullmatch(name):
            for copy in range(int(match[1]) + old, layers, old):
                added = torch.zeros_like(tensor) if match[2].endswith("Wo.weight") else tensor
                grown[f"model.layers.{copy}.{match[2]}"] = added.clone()
    for copy in range(old, layers, old):
        # The first layer of a ModernBERT has no norm before its attention.
        ones = torch.ones(config["hidden_size"], dtype=weights["model.final_norm.weight"].dtype)
        grown[f"model.layers.{copy}.attn_norm.weight"] = ones
    with atomic_dir(out) as folder:
        for file in model.iterdir():
            if file.is_file():
                shutil.copyfile(file, folder / file.name)
        save_file(grown, folder / "model.safetensors", metadata={"format": "pt"})
        # An entry for each layer, which follows from the other settings.
        kept = {key: value for key, value in config.items() if key != "layer_types"}
        write_json(folder / "config.json", kept | {"num_hidden_layers": layers})
