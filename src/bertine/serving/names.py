"""Name the models of a server."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from bertine.errors import BertineError

#: Names of models; they stand in requests, metrics and answers.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}")


def named_models(models: Sequence[str | Path]) -> dict[str, Path]:
    """``MODEL`` and ``NAME=MODEL`` → paths by name, in their order; a model that has no name given
    has that of its folder (of a run's model the run's).

    Raises:
        BertineError: no models, a name twice, or one that is none.
    """
    if not models:
        raise BertineError("there is no model to serve; name a model directory")
    found: dict[str, Path] = {}
    for given in models:
        text = str(given)
        name, equals, rest = text.partition("=")
        if not equals or Path(text).exists():
            path = Path(text)
            resolved = path.resolve()
            own = resolved.parent if resolved.name == "model" and resolved.parent.name else resolved
            name = re.sub(r"[^A-Za-z0-9._-]+", "-", own.name).lstrip("-._") or "model"
        else:
            path = Path(rest)
        if not _NAME.fullmatch(name):
            raise BertineError(
                f"{text}: {name!r} is no name for a model; use letters, digits and . _ : / - "
                "(NAME=MODEL)"
            )
        if name in found:
            raise BertineError(f"two models are called {name!r}; name one of them (NAME=MODEL)")
        found[name] = path
    return found
