"""Where to compute, and in which number type: bf16 where the machine multiplies it fast."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from bertine.errors import BertineError
from bertine.names import Precision

PRECISIONS = ("auto", "bf16", "fp32")


@functools.cache
def cpu_has_bf16() -> bool:
    """Tell whether this CPU has bf16 matrix instructions (AVX-512 BF16 or AMX on x86, BF16 on
    Arm)."""
    return not _cpu_words().isdisjoint({"avx512_bf16", "amx_bf16", "bf16"})


@functools.cache
def cpu_has_int8() -> bool:
    """Tell whether this CPU has instructions for sums of products of 8-bit integers (x86: AVX-512
    VNNI, AVX VNNI or AMX), which oneDNN uses."""
    return not _cpu_words().isdisjoint({"avx512_vnni", "avx_vnni", "amx_int8"})


def _cpu_words() -> set[str]:
    """Return all words of what Linux says of the processors, the names of their instructions among
    them; elsewhere none."""
    with contextlib.suppress(OSError):
        return set(Path("/proc/cpuinfo").read_text(encoding="utf-8").split())
    return set()


def resolve_device(name: str | None) -> torch.device:
    """Return a device as PyTorch calls it; None: the GPU if there is one, else the CPU.

    Raises:
        BertineError: no such device, or none on this machine.
    """
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise BertineError(f"unknown device {name!r}; try cpu or cuda") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise BertineError(f"device {name!r}: this machine has no GPU that PyTorch can use")
    return device


def precision_name(name: str, device: torch.device | str = "cpu") -> Precision:
    """Return what ``"auto"`` is on `device`: ``"bf16"`` or ``"fp32"``; these as they are."""
    return "fp32" if resolve_precision(name, device) == torch.float32 else "bf16"


def resolve_precision(name: str, device: torch.device | str = "cpu") -> torch.dtype:
    """Return the type to compute in on `device` for ``"auto"``, ``"bf16"`` or ``"fp32"``.

    Raises:
        BertineError: `name` is none of them.
    """
    if name not in PRECISIONS:
        raise BertineError(f"precision {name!r} is not known; choose {', '.join(PRECISIONS)}")
    if name != "auto":
        return torch.bfloat16 if name == "bf16" else torch.float32
    if torch.device(device).type == "cpu":
        return torch.bfloat16 if cpu_has_bf16() else torch.float32
    return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float32


def trained_precision(training: Mapping[str, Any], device: torch.device | str = "cpu") -> Precision:
    """Return the precision that a model was trained in, for scoring it on `device`.

    Args:
        training: the facts in the model's ``bertine.json``; ``precision`` among them, unless
            another program wrote the directory.

    Returns:
        ``"bf16"`` or ``"fp32"``; fp32 where no precision is recorded, or where this machine has no
        fast bf16.
    """
    recorded = training.get("precision") == "bf16"
    return "bf16" if recorded and precision_name("auto", device) == "bf16" else "fp32"


def autocast(dtype: torch.dtype, device: torch.device | str = "cpu") -> torch.autocast:
    """Return a context in which matrix products run in `dtype`; parameters stay fp32."""
    return torch.autocast(torch.device(device).type, dtype, enabled=dtype != torch.float32)


def autocast_dtype(device: str) -> torch.dtype | None:
    """Return the type that autocast computes products in on `device` just now; None: it is off, or
    the device (``"meta"``) has none."""
    if not torch.amp.is_autocast_available(device) or not torch.is_autocast_enabled(device):
        return None
    return torch.get_autocast_dtype(device)
