"""Read the key that clients of a server must have."""

from __future__ import annotations

import os
from pathlib import Path

from bertine.errors import BertineError
from bertine.files import read_bounded

#: The environment's name for the key: an argument would show in the list of processes.
API_KEY = "BERTINE_API_KEY"
#: Bytes of a file with a key.
_MAX_KEY = 1 << 16


def read_api_key(file: Path | str | None) -> str | None:
    """Read the key from a file (without the white space around it), else from the environment.

    Raises:
        BertineError: the file cannot be read, or a key is empty or has white space or characters
            beyond ASCII, which headers cannot carry.
    """
    if file is None:
        key, source = os.environ.get(API_KEY), API_KEY
        if key is None:
            return None
    else:
        source = str(file)
        key = read_bounded(file, _MAX_KEY, pipes=True).decode("utf-8", "replace")
    key = key.strip()
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise BertineError(
            f"{source}: holds no key; write one of letters, digits and marks, on a line"
        )
    return key
