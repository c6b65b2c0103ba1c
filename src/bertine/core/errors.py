"""Define the error for users' mistakes, and check that optional packages are installed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec

# Errors for users: the only exception that a user should see.


class BertineError(Exception):
    """A mistake that the user can correct.

    The message is one line that names the file, row or key and says what to do. The command
    line prints it after ``bertine: error:`` and ends with exit status 2; it never shows a
    traceback for this class.
    """


@contextmanager
def naming(place: object) -> Iterator[None]:
    """Begin the message of a mistake that is found inside with its `place`, such as a file."""
    try:
        yield
    except BertineError as error:
        raise BertineError(f"{place}: {error}") from error


#: Module → package to install, where the names differ.
_INSTALLED_BY = {"faiss": "faiss-cpu"}


def require_packages(work: str, modules: Sequence[str], otherwise: str = "") -> None:
    """Raise an error if packages needed for a piece of work are missing.

    Args:
        work: the work, as the message begins: "serving".
        modules: the import names of the packages.
        otherwise: the alternative without them, as the message ends.

    Raises:
        BertineError: a package is missing; names the packages and how to install them.
    """
    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        lacks, all_of_them = (" ".join(map(_to_install, names)) for names in (missing, modules))
        raise BertineError(
            f"{work} needs {lacks.replace(' ', ' and ')}; install what it needs with: pip install "
            f"{all_of_them}" + (f"; or {otherwise}" if otherwise else "")
        )


def _to_install(module: str) -> str:
    """Return the name under which a module's package is installed."""
    return _INSTALLED_BY.get(module, module.replace("_", "-"))
