"""A process that makes parts of a token store: ``python -m bertine.data.preparation.part_worker
TOKENIZER``.

A part comes in as a line of JSON on stdin; lines of JSON go out on stdout: how far it is, and at
its end that it is done or what was wrong (:mod:`bertine.system.workers`).
"""

from __future__ import annotations

import sys
import time

from bertine.data.preparation.parts import Part, PartProgress, make_part
from bertine.errors import BertineError
from bertine.system.workers import Say, Work, serve
from bertine.text.tokenizer import Tokenizer

#: Seconds between two words on how far a part is.
_SECONDS = 0.3


def maker(tokenizer_folder: str) -> Work:
    """What makes parts with the tokenizer of a folder."""
    tokenizer = Tokenizer.load(tokenizer_folder)
    last = 0.0

    def work(line: str, say: Say) -> None:
        def told(progress: PartProgress) -> None:
            nonlocal last
            if time.monotonic() - last >= _SECONDS:
                last = time.monotonic()
                say(progress=vars(progress))

        try:
            make_part(Part.from_json(line), tokenizer, told)
        except BertineError as error:
            say(error=str(error))
        else:
            say(done=True)

    return work


if __name__ == "__main__":
    serve(lambda: maker(sys.argv[1]))
