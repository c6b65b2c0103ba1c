"""Ctrl-C and SIGTERM during training: answered between two steps, never within an update of the
weights."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from bertine.cores import launch
from bertine.system.process import raise_terminated

#: The signals, and what handles them where nobody has said otherwise.
_USUAL: dict[signal.Signals, tuple[Callable[[int, FrameType | None], Any] | int, ...]] = {
    signal.SIGINT: (signal.default_int_handler,),
    signal.SIGTERM: (signal.SIG_DFL, raise_terminated),
}


class Interrupt:
    """Holds back the first SIGINT or SIGTERM until the loop asks for it; a second one interrupts
    at once.

    An interruption between the updates of two parameters would leave weights that belong to no
    step, and a checkpoint of them would not resume exactly. SIGTERM is what a machine that is
    taken away sends (a cluster's scheduler, ``docker stop``) some seconds before SIGKILL. Where
    signals do not reach (in a thread) or have a handler of somebody else's, nothing is changed.

    Of several processes each gets the signal more than once (from the terminal, and passed on by
    ``torchrun``, which also sends SIGTERM, and SIGKILL to those that have not ended after 30 s).
    So there a second one means nothing new.

    Attributes:
        requested: whether there was one.
    """

    def __init__(self) -> None:
        self.requested = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            for number, usual in _USUAL.items():
                if signal.getsignal(number) in usual:
                    self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested and not launch.launched():
            raise KeyboardInterrupt
        if self.requested or not launch.is_main():
            self.requested = True
            return
        self.requested = True
        # Not through the console: this runs in the middle of whatever it was printing.
        again = b"" if launch.launched() else b"; interrupt again to stop at once"
        os.write(2, b"\nstopping after this step" + again + b"\n")
