"""The layers over one sequence, without Python between their operations.

A packed layer is some forty calls, each with some microseconds of Python before it: a third of the
time of a small model with a short text. Recorded once (``torch.jit.trace``), the same operations
are called one after the other by TorchScript's interpreter; what comes out has the same bits.
Nothing of this is ever written to a file.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

#: Recording changes what the process has once: PyTorch's tracer, Python's filters of warnings.
_recording = threading.Lock()

#: Calls before a recording is made, which takes as long as some tens of them: a process that
#: answers once is not to wait for it.
_BEFORE = 8


class Recorded:
    """A function that is called as TorchScript from its ninth call on.

    Where it cannot be recorded, or the recording does not give the same, `work` is called as it is.

    Args:
        work: x [T, H] → tensor, in the same way for all T that it is called with. To be called in
            ``torch.inference_mode()``.
        least: the smallest T.
        weights: what it uses that TorchScript knows only as an attribute of a module: tensors in
            the layout of a library's own, and objects that are no tensors.
    """

    def __init__(
        self, work: Callable[[Tensor], Tensor], least: int, weights: Sequence[Any]
    ) -> None:
        self._work, self._least, self._weights = work, least, weights
        self._calls = 0
        self._tried = False
        self._script: Callable[[Tensor], Tensor] | None = None

    def __call__(self, x: Tensor) -> Tensor:
        if self._script is not None:
            return self._script(x)
        self._calls += 1
        # Whoever comes while something is being recorded does not wait.
        if self._calls > _BEFORE and not self._tried and _recording.acquire(blocking=False):
            try:
                if not self._tried:
                    self._tried = True
                    self._script = self._record(x)
            finally:
                _recording.release()
        return self._work(x)

    def _record(self, x: Tensor) -> Callable[[Tensor], Tensor] | None:
        # T must not be a constant of the recording.
        other = x[:-1] if len(x) > self._least else torch.cat([x, x[:1]])
        try:
            with warnings.catch_warnings():
                # That torch.jit is no longer developed, and of branches that depend on shapes.
                warnings.simplefilter("ignore")
                holder = _Holder(self._work, self._weights).eval()
                traced: Any = torch.jit.trace(holder, (x.clone(),), check_trace=False)
                script: Any = torch.jit.freeze(traced)
                for sample in (x, x, other):  # the interpreter learns from its first calls
                    if not torch.equal(script(sample.clone()), self._work(sample.clone())):
                        return None
        except Exception:  # what is wrong with `work` itself, its next call will say
            return None
        recorded: Callable[[Tensor], Tensor] = script
        return recorded


class _Holder(nn.Module):
    def __init__(self, work: Callable[[Tensor], Tensor], weights: Sequence[Any]) -> None:
        super().__init__()
        self._work = work
        for number, weight in enumerate(weights):
            if isinstance(weight, Tensor):
                self.register_buffer(f"weight{number}", weight)
            else:
                setattr(self, f"weight{number}", weight)

    def forward(self, x: Tensor) -> Tensor:
        return self._work(x)
