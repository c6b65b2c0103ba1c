"""A process that makes parts of a token store: ``python -m bertine.data.part_worker TOKENIZER``.

A part comes in as a line of JSON on stdin; lines of JSON go out on stdout: how far it is, and at
its end that it is done or what was wrong. When stdin ends, because the process that asked is done
or has been killed, this one ends too, in the midst of its work if need be.

(Not `multiprocessing`: it would run the user's own program again in each process, and leaves its
processes behind when the first is killed.)
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from typing import Any

from bertine.data.parts import Part, PartProgress, make_part
from bertine.errors import BertineError
from bertine.text.tokenizer import Tokenizer

#: Seconds between two words on how far a part is.
_SECONDS = 0.3


def main() -> None:
    """Make parts until stdin ends."""
    # Only what is meant for it goes to the process that asked: prints go to stderr.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    tokenizer = Tokenizer.load(sys.argv[1])
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def read() -> None:
        for line in sys.stdin:
            lines.put(line)
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    last = 0.0

    def say(**message: Any) -> None:
        try:
            out.write(json.dumps(message) + "\n")
            out.flush()
        except OSError:
            os._exit(0)

    def told(progress: PartProgress) -> None:
        nonlocal last
        if time.monotonic() - last >= _SECONDS:
            last = time.monotonic()
            say(progress=vars(progress))

    while True:
        part = Part.from_json(lines.get())
        try:
            make_part(part, tokenizer, told)
        except BertineError as error:
            say(error=str(error))
        else:
            say(done=True)


if __name__ == "__main__":
    main()
