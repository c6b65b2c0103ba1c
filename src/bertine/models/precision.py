"""Choose the device, the number type, the threads and the seeds that PyTorch computes with.

bf16 is chosen where measurements show it to be clearly faster. Results that are not finite numbers
are refused.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import platform
import re
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from bertine.core import rng
from bertine.core.console import logger, plural
from bertine.core.cpu import cores
from bertine.core.errors import BertineError
from bertine.core.names import Precision
from bertine.core.process import memory_limit
from bertine.models.matmul_timing import TOKENS, Product, best_of, products_of, seconds_of

# Threads: as many as PyTorch would use, or fewer where that is faster; one in a process that was
# forked after its parent had computed.
#
# A web server may load a model once and then fork its workers (gunicorn's ``--preload``), so that
# they share its memory. OpenMP's threads are not forked, but GCC's library waits for them forever.
# Such a process therefore computes with one thread, which is what several workers on one machine
# need anyway, and logs that once.

#: Variables by which a user, or torchrun, sets the number of threads.
_GIVEN = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")

_computed = False  # with several threads, in this process
_forked = False  # after that
_said = False
_changing = threading.Lock()


def allowed_threads(threads: int) -> int:
    """Return how many threads may compute, at most `threads`; one in a process that was forked
    after its parent had computed."""
    global _computed, _said
    if not _forked:
        _computed = _computed or threads > 1
        return threads
    if threads > 1 and not _said:
        _said = True
        logger.info(
            "this process was forked after the model had computed, so it computes with one thread; "
            "for more, load the model after the fork"
        )
    return 1


def _in_child() -> None:
    global _forked
    if _computed:
        _forked = True
        torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


def threads_are_given() -> bool:
    """Return whether the environment sets the number of threads."""
    return any(os.environ.get(name) for name in _GIVEN)


@contextlib.contextmanager
def using_threads(threads: int) -> Iterator[None]:
    """Compute with `threads` of the calling thread's OpenMP team within the context."""
    threads, before = allowed_threads(threads), torch.get_num_threads()
    if before == threads:
        yield
        return
    with _changing:
        torch.set_num_threads(threads)
    try:
        yield
    finally:
        with _changing:
            torch.set_num_threads(before)


def seconds_by_threads(measure: Callable[[], float]) -> dict[int, float]:
    """Return the seconds that work takes with one thread, with half of PyTorch's default
    (``OMP_NUM_THREADS``, a container's cores), and with all of them.

    Args:
        measure: does the work and returns its seconds.
    """
    most = min(torch.get_num_threads(), cores())
    counts = sorted({1, max(1, most // 2), most})
    if len(counts) == 1:
        return {most: 0.0}

    def with_threads(threads: int) -> float:
        with using_threads(threads):
            measure()  # starts the threads of the new team
            return measure()

    return dict(zip(counts, best_of([partial(with_threads, n) for n in counts]), strict=True))


def fastest_threads(seconds: Mapping[int, float], worth: float = 1.0) -> int:
    """Choose the number of threads that takes the least time.

    Args:
        seconds: by the number of threads.
        worth: how many times as fast fewer threads must be to be chosen instead of all.
    """
    most, best = max(seconds), min(seconds, key=seconds.__getitem__)
    return best if seconds[best] * worth <= seconds[most] else most


PRECISIONS = ("auto", "bf16", "fp32")

#: How many times as fast as fp32 bf16 must be to be chosen: its numbers have three digits, which
#: needs a gain in return, and noise of the measurement must not decide.
_WORTH = 1.1


@functools.cache
def cpu_has_bf16() -> bool:
    """Return whether this CPU has bf16 matrix instructions (AVX-512 BF16 or AMX on x86, BF16 on
    Arm)."""
    return not cpu_words().isdisjoint({"avx512_bf16", "amx_bf16", "bf16"})


@functools.cache
def cpu_has_int8() -> bool:
    """Return whether this CPU has instructions for sums of products of 8-bit integers (x86: AVX-512
    VNNI, AVX VNNI or AMX), which oneDNN uses."""
    return not cpu_words().isdisjoint({"avx512_vnni", "avx_vnni", "amx_int8"})


def cpu_words() -> set[str]:
    """Return all words of Linux's description of the processors, including the names of their
    instructions; none on other systems."""
    with contextlib.suppress(OSError):
        return set(Path("/proc/cpuinfo").read_text(encoding="utf-8").split())
    return set()


#: The compiled kernel of :mod:`bertine.fast.kernel`, and the instructions that it needs.
_KERNEL = Path(__file__).parents[1] / "fast" / "_int8.so"
_SOURCE = _KERNEL.with_name("int8.c")
_KERNEL_NEEDS = {"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_vnni"}


@functools.cache
def kernel_library() -> ctypes.CDLL | None:
    """Return the compiled kernel; None: it is not installed, or of another version of its source,
    or this CPU lacks its instructions."""
    if not _KERNEL.is_file() or not cpu_words() >= _KERNEL_NEEDS:
        return None
    try:
        library = ctypes.CDLL(str(_KERNEL))
        same = ctypes.c_uint32(library.source()).value == zlib.crc32(_SOURCE.read_bytes())
    except (AttributeError, OSError):  # for another system, or of an older version
        return None
    return library if same else None


def kernel_line() -> str:
    """Describe what computes layers in 8 bits here."""
    if kernel_library() is not None:
        return "Bertine's kernel"
    if not _KERNEL.is_file():
        return "PyTorch's products (the kernel needs a C compiler when Bertine is installed)"
    if cpu_words() >= _KERNEL_NEEDS:
        return "PyTorch's products (the kernel is of another version; install Bertine again)"
    return "PyTorch's products (the kernel needs Linux and a CPU with AVX-512 VNNI)"


def machine_line() -> str:
    """Describe the GPUs that PyTorch can use and the processor, each with its memory."""
    memory, name = memory_limit(), platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        info = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        name = next(iter(re.findall(r"^model name\s*: (.+)$", info, re.MULTILINE)), name)
    parts = [f"{name.strip()}, {plural(cores(), 'core')}"]
    if memory is not None:
        parts[0] += f", {memory / 1e9:.1f} GB of memory"
    if not torch.cuda.is_available():
        return f"{parts[0]}; no GPU that PyTorch can use"
    for number in range(torch.cuda.device_count()):
        facts = torch.cuda.get_device_properties(number)
        parts.insert(number, f"GPU {facts.name}, {facts.total_memory / 1e9:.1f} GB")
    return "; ".join(parts)


def resolve_device(name: str | None) -> torch.device:
    """Return a device by PyTorch's name; None: the GPU if there is one, else the CPU.

    Raises:
        BertineError: there is no such device, or not on this machine.
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


class Rates(NamedTuple):
    """Rates of a model's matrix products on this machine, in operations a second; bf16's includes
    the conversion of the weights."""

    fp32: float
    bf16: float

    @property
    def precision(self) -> Precision:
        """The precision to compute in."""
        return "bf16" if self.bf16 >= _WORTH * self.fp32 else "fp32"

    @property
    def speedup(self) -> float:
        """How many times as fast as fp32 bf16 is, rounded to two decimals."""
        return round(self.bf16 / self.fp32, 2)

    def line(self) -> str:
        """Format the choice and its reason, such as "fp32: 1.9 times as fast as bf16 here"."""
        if self.precision == "bf16":
            return f"bf16: {self.speedup:.1f} times as fast as fp32 here"
        if self.bf16 > self.fp32:
            return f"fp32: bf16 is only {self.speedup:.2f} times as fast here"
        return f"fp32: {self.fp32 / self.bf16:.1f} times as fast as bf16 here"


def rates_for(name: str, model: nn.Module, *, tokens: int = TOKENS, words: int = 0) -> Rates | None:
    """Measure the rates that decide ``"auto"``, unless that is done already.

    Args:
        name: ``"auto"``, or a precision, for which nothing is measured.
        model: its products are timed, for some hundredths of a second.
        tokens, words: of a micro-batch, see :func:`bertine.models.matmul_timing.products_of`.

    Returns:
        None if there is nothing to measure: not on a CPU; on one without bf16 instructions, where
        bf16 is emulated in fp32 and cannot be faster; for a model whose products are too small.
    """
    if name != "auto" or next(model.parameters()).device.type != "cpu" or not cpu_has_bf16():
        return None
    products = products_of(model, tokens, words)
    return measured_rates(products, allowed_threads(torch.get_num_threads())) if products else None


@functools.cache
def measured_rates(products: tuple[Product, ...], threads: int) -> Rates:
    """Measure the rates of `products` once per process; `threads` is PyTorch's current number."""
    kinds = (torch.float32, torch.bfloat16)
    seconds = best_of([functools.partial(seconds_of, products, kind) for kind in kinds])
    operations = sum(product.operations for product in products)
    return Rates(*(operations / item for item in seconds))


def precision_name(
    name: str, device: torch.device | str = "cpu", rates: Rates | None = None
) -> Precision:
    """Resolve ``"auto"`` on `device` to ``"bf16"`` or ``"fp32"``; return these unchanged.

    Args:
        rates: of the model, by :func:`rates_for`; on a CPU ``"auto"`` is fp32 without them.

    Raises:
        BertineError: `name` is not a known precision.
    """
    if name not in PRECISIONS:
        raise BertineError(f"precision {name!r} is not known; choose {', '.join(PRECISIONS)}")
    if name != "auto":
        return "bf16" if name == "bf16" else "fp32"
    if torch.device(device).type == "cpu":
        return "fp32" if rates is None else rates.precision
    return "bf16" if torch.cuda.is_bf16_supported() else "fp32"


def resolve_precision(
    name: str, device: torch.device | str = "cpu", rates: Rates | None = None
) -> torch.dtype:
    """Return :func:`precision_name` as PyTorch's type."""
    bf16 = precision_name(name, device, rates) == "bf16"
    return torch.bfloat16 if bf16 else torch.float32


def trained_precision(
    training: Mapping[str, Any], model: nn.Module, device: torch.device | str = "cpu"
) -> Precision:
    """Return the precision that a model was trained in, for scoring it on `device`; log it if a
    measurement decided.

    Args:
        training: the facts in the model's ``bertine.json``, with ``precision`` unless another
            program wrote the directory.
        model: the trained model.

    Returns:
        ``"bf16"`` or ``"fp32"``; fp32 if no precision is recorded, or if bf16 is not clearly
        faster on this machine.
    """
    if training.get("precision") != "bf16":
        return "fp32"
    rates = rates_for("auto", model) if torch.device(device).type == "cpu" else None
    if rates is not None:
        logger.info(rates.line())
    return precision_name("auto", device, rates)


def autocast(dtype: torch.dtype, device: torch.device | str = "cpu") -> torch.autocast:
    """Return a context in which matrix products run in `dtype`; parameters stay fp32."""
    return torch.autocast(torch.device(device).type, dtype, enabled=dtype != torch.float32)


def autocast_dtype(device: str) -> torch.dtype | None:
    """Return the type that autocast currently computes products in on `device`; None: it is off,
    or the device (``"meta"``) has none."""
    if not torch.amp.is_autocast_available(device) or not torch.is_autocast_enabled(device):
        return None
    return torch.get_autocast_dtype(device)


def finite(outputs: Tensor) -> Tensor:
    """Return a model's outputs after checking that all are finite: with NaN every comparison is
    false, so the answer would be an arbitrary label with the probability NaN.

    Raises:
        BertineError: some of it is NaN or infinite.
    """
    if not bool(outputs.isfinite().all()):
        raise BertineError(
            "the model's outputs are NaN or infinite: its weights are damaged or too large for the "
            "precision; compute in fp32, or take an earlier checkpoint"
        )
    return outputs


# Seeds: PyTorch's draws as a function of a seed and a place, independent of earlier draws.


def torch_seed(seed: int, *where: int | str) -> int:
    """Return the seed of PyTorch's generators at the position `where` under `seed`: 63 bits of
    :func:`bertine.core.rng.key`."""
    return rng.key(seed, *where) & 0x7FFF_FFFF_FFFF_FFFF


@contextlib.contextmanager
def seeded(seed: int, *where: int | str) -> Iterator[None]:
    """Make PyTorch's CPU generator draw as at the position `where` under `seed` within the context;
    afterwards it continues as if nothing had been drawn."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch_seed(seed, *where))
        yield
