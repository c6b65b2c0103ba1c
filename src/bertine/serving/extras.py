"""Find out whether the packages that serving needs are installed, without importing them."""

from __future__ import annotations

from importlib.util import find_spec

from bertine.errors import BertineError

#: What the extra ``serve`` brings.
PACKAGES = ("fastapi", "uvicorn", "httptools", "prometheus_client")


def require_packages() -> None:
    """Refuse to go on where a package is missing.

    Raises:
        BertineError: names the packages that are missing and the way to install them.
    """
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise BertineError(
            f"serving needs {' and '.join(missing).replace('_', '-')}; "
            "install them with: pip install fastapi uvicorn httptools prometheus-client"
        )
