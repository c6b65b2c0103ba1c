"""Find out whether optional packages are installed, without importing them."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

# The one exception a user is meant to see.


class BertineError(Exception):
    """A mistake that the user can mend.

    The message is one line that names the file, row or key and says what to do. The command
    line prints it after ``bertine: error:`` and ends with exit status 2; it never shows a
    traceback for this class.
    """


#: Modules of packages with another name.
_INSTALLED_BY = {"faiss": "faiss-cpu"}


def require_packages(work: str, modules: Sequence[str], otherwise: str = "") -> None:
    """Refuse to begin a piece of work whose packages are missing.

    Args:
        work: what needs them, as the message begins: "serving".
        modules: the names they are imported by.
        otherwise: what to do without them, as the message ends.

    Raises:
        BertineError: names the packages that are missing and the way to install them.
    """
    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        lacks, all_of_them = (" ".join(map(_to_install, names)) for names in (missing, modules))
        raise BertineError(
            f"{work} needs {lacks.replace(' ', ' and ')}; install what it needs with: pip install "
            f"{all_of_them}" + (f"; or {otherwise}" if otherwise else "")
        )


def _to_install(module: str) -> str:
    """Return the name that a module's package is installed by."""
    return _INSTALLED_BY.get(module, module.replace("_", "-"))
