"""Ctrl-C during training: answered between two steps, never within an update of the weights."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType, TracebackType

from bertine import launch


class Interrupt:
    """Holds back the first SIGINT until the loop asks for it; a second one interrupts at once.

    An interruption between the updates of two parameters would leave weights that belong to no
    step, and a checkpoint of them would not resume exactly. Where SIGINT does not reach (in a
    thread) or has a handler of somebody else's, nothing is changed.

    Of several processes each gets the signal more than once (from the terminal, and passed on by
    ``torchrun``, which also sends SIGTERM, and SIGKILL to those that have not ended after 30 s).
    So there SIGTERM means the same, and a second one nothing new.

    Attributes:
        requested: whether there was one.
    """

    def __init__(self) -> None:
        self.requested = False
        self._installed = False

    def __enter__(self) -> Interrupt:
        if (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        ):
            signal.signal(signal.SIGINT, self._handle)
            if launch.launched():
                signal.signal(signal.SIGTERM, self._handle)
            self._installed = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._installed:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            if launch.launched():
                signal.signal(signal.SIGTERM, signal.SIG_DFL)

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
