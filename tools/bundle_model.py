"""Put a model into the package: ``bertine-en`` or ``bertine-zh`` of ``recipes/box``, or
``bertine-bert`` of ``recipes/bert``.

    python tools/bundle_model.py bertine-en BOX/run
    python tools/bundle_model.py bertine-bert RUN

Writes the model in bf16 and its vocabulary; its card is written by hand. A wheel is compressed, and
the last bits of weights are noise, which no program can compress. So of the seven bits behind the
leading one as many as `MANTISSA` says are kept: rounding to four changes a weight by 1.3% on
average, about what products in 8 bits do.
"""

from __future__ import annotations

import argparse
import json
import shutil
import zlib
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from bertine.core.files import read_json, write_json, write_text
from bertine.hub.weights import read_weights

WEIGHTS = Path("src/bertine/weights")
#: Bits of a weight's mantissa that are kept, by model; bf16 has 7.
MANTISSA = {"bertine-en": 4, "bertine-zh": 5, "bertine-bert": 7}
#: At most so many bytes of a model in the wheel.
MOST_BYTES = 12_000_000


def rounded(tensor: torch.Tensor, bits: int) -> torch.Tensor:
    """Return a tensor in bf16, rounded to `bits` bits of the mantissa, half of the last one up."""
    dropped = 23 - bits
    number = tensor.float().contiguous().view(torch.int32)
    number = (number + (1 << (dropped - 1))) >> dropped << dropped
    return number.view(torch.float32).to(torch.bfloat16)


def write_model(model: Path, folder: Path, bits: int) -> None:
    """Write a model in bf16 and its tokenizer.

    Raises:
        SystemExit: it would be too large in the wheel.
    """
    tensors = {name: rounded(tensor, bits) for name, tensor in read_weights(model).items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)
    config: dict[str, Any] = read_json(model / "config.json")
    # Fine-tuning wants dropout, which training in the recipes did not.
    dropout = {key: 0.1 for key in config if "dropout" in key}
    # Older and newer versions of transformers have their own key each.
    precision = dict.fromkeys(("dtype", "torch_dtype"), "bfloat16")
    write_json(folder / "config.json", config | dropout | precision)
    for file in model.iterdir():
        if file.name in ("vocab.txt", "tokenizer_config.json", "modules.json"):
            shutil.copyfile(file, folder / file.name)
        elif file.name == "1_Pooling":
            shutil.copytree(file, folder / file.name, dirs_exist_ok=True)
    # Half the size without the line ends of the original.
    backend = json.loads((model / "tokenizer.json").read_text(encoding="utf-8"))
    write_text(
        folder / "tokenizer.json",
        json.dumps(backend, ensure_ascii=False, separators=(",", ":")) + "\n",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("name", choices=MANTISSA)
    parser.add_argument("run", type=Path, help="the folder of a run, with its model")
    parser.add_argument("--out", type=Path, help="the folder (that of the package)")
    given = parser.parse_args()
    out = given.out or WEIGHTS / given.name
    out.mkdir(parents=True, exist_ok=True)
    write_model(given.run / "model", out, MANTISSA[given.name])
    total = 0
    for path in sorted(file for file in out.rglob("*") if file.is_file()):
        packed = len(zlib.compress(path.read_bytes(), 6))
        total += packed
        print(f"{path}: {path.stat().st_size:,} bytes, {packed:,} in the wheel")
    if total > MOST_BYTES:
        raise SystemExit(f"{out}: {total:,} bytes in the wheel, more than {MOST_BYTES:,}")


if __name__ == "__main__":
    main()
