"""ELMos as they were published, small and with weights of our own, and what they compute written
out in NumPy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

OPTIONS: dict[str, Any] = {
    "lstm": {
        "cell_clip": 0.4,
        "use_skip_connections": True,
        "n_layers": 2,
        "proj_clip": 0.3,
        "projection_dim": 6,
        "dim": 10,
    },
    "char_cnn": {
        "embedding": {"dim": 3},
        "filters": [[1, 4], [3, 5]],
        "n_highway": 2,
        "n_characters": 262,
        "max_characters_per_token": 50,
        "activation": "relu",
    },
}


#: Terms of the sums that follow each other: two layers in six words, each the products of its
#: inputs and its projection, after the filters and the highways.
TERMS = 2 * 6 * (12 + 10) + 3 * 3 + 3 * 9


def tensors(options: dict[str, Any] = OPTIONS, seed: int = 0) -> dict[str, np.ndarray]:
    """Random weights under the published names."""
    draw = np.random.default_rng(seed)

    def normal(*shape: int) -> np.ndarray:
        return draw.normal(0, 0.5, shape).astype(np.float32)

    lstm, characters = options["lstm"], options["char_cnn"]
    wide = sum(count for _, count in characters["filters"])
    size, cells = lstm["projection_dim"], lstm["dim"]
    weights = {"char_embed": normal(261, characters["embedding"]["dim"])}
    for number, (width, count) in enumerate(characters["filters"]):
        weights[f"CNN/W_cnn_{number}"] = normal(1, width, characters["embedding"]["dim"], count)
        weights[f"CNN/b_cnn_{number}"] = normal(count)
    for number in range(characters["n_highway"]):
        for part in ("carry", "transform"):
            weights[f"CNN_high_{number}/W_{part}"] = normal(wide, wide)
            weights[f"CNN_high_{number}/b_{part}"] = normal(wide)
    weights["CNN_proj/W_proj"], weights["CNN_proj/b_proj"] = normal(wide, size), normal(size)
    for direction in range(2):
        for number in range(lstm["n_layers"]):
            name = f"RNN_{direction}/RNN/MultiRNNCell/Cell{number}/LSTMCell"
            weights[f"{name}/W_0"] = normal(2 * size, 4 * cells)
            weights[f"{name}/B"] = normal(4 * cells)
            weights[f"{name}/W_P_0"] = normal(cells, size)
    return weights


def write(
    folder: Path, weights: dict[str, np.ndarray] | None = None, options: Any = OPTIONS
) -> Path:
    """Write the two published files."""
    import h5py

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "small_options.json").write_text(json.dumps(options))
    with h5py.File(folder / "small_weights.hdf5", "w") as file:
        for name, tensor in (tensors(options) if weights is None else weights).items():
            file[name] = tensor
    return folder


def sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-x)))


class WrittenOut:
    """What bilm-tf computes, in fp64 and one word after the other; keeps its states."""

    def __init__(self, options: dict[str, Any] = OPTIONS, seed: int = 0) -> None:
        self.options = options
        self.weights = {k: v.astype(np.float64) for k, v in tensors(options, seed).items()}
        self.states: dict[tuple[int, int], tuple[np.ndarray, np.ndarray]] = {}

    def word(self, ids: list[int]) -> np.ndarray:
        """ids as in the published code, without a 0 for "no word"."""
        w, characters = self.weights, self.options["char_cnn"]
        rows = w["char_embed"][ids]
        parts = []
        for number, (width, _) in enumerate(characters["filters"]):
            kernel = w[f"CNN/W_cnn_{number}"][0]
            seen = [rows[at : at + width] for at in range(len(ids) - width + 1)]
            out = np.stack([np.einsum("wc,wcn->n", part, kernel) for part in seen])
            parts.append(np.maximum(out.max(0) + w[f"CNN/b_cnn_{number}"], 0))
        x = np.concatenate(parts)
        for number in range(characters["n_highway"]):
            name = f"CNN_high_{number}"
            carry = sigmoid(x @ w[f"{name}/W_carry"] + w[f"{name}/b_carry"])
            new = np.maximum(x @ w[f"{name}/W_transform"] + w[f"{name}/b_transform"], 0)
            x = carry * new + (1 - carry) * x
        return np.asarray(x @ w["CNN_proj/W_proj"] + w["CNN_proj/b_proj"])

    def layers(self, words: list[list[int]]) -> np.ndarray:
        """Ids of the words of one sentence with its marks → [n, 3, 2 P]."""
        lstm = self.options["lstm"]
        size, cells = lstm["projection_dim"], lstm["dim"]
        x0 = [self.word(ids) for ids in words]
        result = np.zeros((len(words), lstm["n_layers"] + 1, 2 * size))
        result[:, 0] = [np.concatenate([x, x]) for x in x0]
        for direction in range(2):
            order = range(len(words)) if direction == 0 else range(len(words))[::-1]
            for at in order:
                x = x0[at]
                for number in range(lstm["n_layers"]):
                    name = f"RNN_{direction}/RNN/MultiRNNCell/Cell{number}/LSTMCell"
                    none = (np.zeros(size), np.zeros(cells))
                    m, c = self.states.get((direction, number), none)
                    w = self.weights
                    i, j, f, o = np.split(
                        np.concatenate([x, m]) @ w[f"{name}/W_0"] + w[f"{name}/B"], 4
                    )
                    c = sigmoid(f + 1) * c + sigmoid(i) * np.tanh(j)
                    c = c.clip(-lstm["cell_clip"], lstm["cell_clip"])
                    m = (sigmoid(o) * np.tanh(c)) @ w[f"{name}/W_P_0"]
                    m = m.clip(-lstm["proj_clip"], lstm["proj_clip"])
                    self.states[direction, number] = (m, c)
                    x = m + x if number and lstm["use_skip_connections"] else m
                    result[at, number + 1, direction * size : (direction + 1) * size] = x
        return result
