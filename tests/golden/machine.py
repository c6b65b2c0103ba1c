"""The machine, as far as bits depend on it: two of the same description compute the same bits."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import numpy
import onnxruntime
import safetensors
import scipy
import sklearn
import tokenizers
import torch

#: What the cases compute with.
THREADS = 1
#: Instructions by which libraries choose their kernels.
_INSTRUCTIONS = ("amx", "avx", "fma", "f16c", "sse4", "asimd", "sve", "bf16", "i8mm")
#: Variables by which users choose them.
_VARIABLES = ("ATEN_CPU_CAPABILITY", "ONEDNN_", "DNNL_", "MKL_", "OPENBLAS_")


def multiplies_bytes() -> bool:
    """Whether this processor has instructions for products of 8-bit integers."""
    flags = _processor().get("flags", "").split()
    return not {"avx512_vnni", "avx_vnni", "amx_int8"}.isdisjoint(flags)


def describe() -> dict[str, Any]:
    """Describe this machine: processor, libraries, threads."""
    processor = _processor()
    flags = processor.get("flags", processor.get("Features", "")).split()
    variables = {
        key: value
        for key, value in os.environ.items()
        if key.startswith(_VARIABLES) and not key.endswith("_NUM_THREADS")
    }
    return {
        "machine": platform.machine(),
        "vendor": processor.get("vendor_id", processor.get("CPU implementer", "")),
        "family": processor.get("cpu family", processor.get("CPU architecture", "")),
        "model": processor.get("model", processor.get("CPU part", "")),
        "name": processor.get("model name", ""),
        "instructions": " ".join(sorted(each for each in flags if each.startswith(_INSTRUCTIONS))),
        "caches": " ".join(_caches()),
        "pytorch_kernels": torch.backends.cpu.get_cpu_capability(),
        "variables": dict(sorted(variables.items())),
        "threads": THREADS,
        "libraries": {
            "libc": " ".join(platform.libc_ver()),
            "numpy": numpy.__version__,
            "onnxruntime": onnxruntime.__version__,
            "safetensors": safetensors.__version__,
            "scikit-learn": sklearn.__version__,
            "scipy": scipy.__version__,
            "tokenizers": tokenizers.__version__,
            "torch": torch.__version__,
        },
    }


def _processor() -> dict[str, str]:
    """Read what Linux says of the first processor; elsewhere nothing is known."""
    file = Path("/proc/cpuinfo")
    if not file.exists():
        return {"model name": platform.processor()}
    first = file.read_text(encoding="utf-8").split("\n\n")[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _caches() -> list[str]:
    """List the caches of the first core: products are cut to their sizes."""
    found = []
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        kind, level, size = (
            (folder / name).read_text(encoding="utf-8").strip()
            for name in ("type", "level", "size")
        )
        if kind != "Instruction":
            found.append(f"L{level} {size}")
    return found
