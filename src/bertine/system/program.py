"""The end of a program that is no command of ``bertine``, such as a recipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from bertine.errors import BertineError
from bertine.system.process import prepared_process


def run_program(work: Callable[[Sequence[str]], None]) -> int:
    """Call `work` with the arguments of the command line.

    Returns:
        The exit status: 0; 2 after a mistake, which is told in one line on stderr; 130 after
        Ctrl-C.
    """
    try:
        with prepared_process():
            work(sys.argv[1:])
    except BertineError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from here", file=sys.stderr)
        return 130
    except OSError as error:
        if error.filename is None:
            raise
        print(f"error: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    return 0
