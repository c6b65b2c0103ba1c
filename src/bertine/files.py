"""Writing so that a crash leaves the old or the new, never half; and reading with clear errors.

Every file or folder that Bertine writes goes through :func:`atomic_file` or :func:`atomic_dir`.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bertine.errors import BertineError

#: How Rust's standard library ends the text of an error of the operating system.
_RUST_OS_ERROR = re.compile(r"\(os error (\d+)\)")


@contextlib.contextmanager
def os_errors(path: str | Path, doing: str) -> Iterator[None]:
    """Turn an :class:`OSError` on `path` into a :class:`BertineError` of one line.

    So are the errors of libraries written in Rust (`safetensors`, `tokenizers`), which are no
    :class:`OSError` but say "(os error 28)" at their end.
    """
    try:
        yield
    except BertineError:
        raise
    except Exception as error:
        told = _RUST_OS_ERROR.search(str(error))
        if not isinstance(error, OSError) and not told:
            raise
        number = error.errno if isinstance(error, OSError) else None
        if number is None and told:
            number = int(told[1])
        if number in (errno.ENOSPC, errno.EDQUOT):
            raise BertineError(
                f"{path}: the disk is full while {doing}; free some space and run again"
            ) from error
        reason = os.strerror(number) if number else str(error)
        raise BertineError(f"{path}: {reason} while {doing}") from error


def _real(path: str | Path) -> Path:
    """`path` with symbolic links followed, so that what a link names is replaced and not the
    link, on the disk where it is; ``.`` gets its name."""
    return Path(os.path.realpath(path))


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.tmp-{uuid.uuid4().hex[:8]}")


def sync_folder(folder: Path) -> None:
    """Make what was created or renamed in `folder` durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def atomic_file(path: str | Path) -> Iterator[Path]:
    """Yield a path beside `path` to write to; on success it is synced and renamed to `path`.

    On any exception the temporary file is removed and `path` is what it was before.
    """
    shown, path = path, _real(path)
    with os_errors(shown, "writing it"):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = _beside(path)
        try:
            yield temporary
            with open(temporary, "rb") as handle:
                os.fsync(handle.fileno())
            os.replace(temporary, path)
            sync_folder(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_dir(path: str | Path) -> Iterator[Path]:
    """Yield an empty folder beside `path`; on success it is synced and becomes `path`.

    An existing `path` is replaced as a whole (moved aside, then removed): ask
    :func:`check_replaceable` first. On any exception `path` is what it was before, and nothing
    of the new folder is left. A process killed between the two renames leaves the old and the
    new, whole, under hidden names beside `path`.
    """
    shown, path = path, _real(path)
    with os_errors(shown, "writing it"):
        if path.exists() and not path.is_dir():
            raise BertineError(f"{shown}: is a file, but a folder is to be written there")
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = _beside(path)
        temporary.mkdir()
        try:
            yield temporary
            for file in sorted(temporary.rglob("*")):
                if file.is_dir():
                    sync_folder(file)
                elif file.is_file():
                    with open(file, "rb") as handle:
                        os.fsync(handle.fileno())
            sync_folder(temporary)
            if path.exists():
                old = _beside(path)
                os.replace(path, old)
                try:
                    os.replace(temporary, path)
                except OSError:
                    os.replace(old, path)
                    raise
                shutil.rmtree(old)
            else:
                os.replace(temporary, path)
            sync_folder(path.parent)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


@contextlib.contextmanager
def lock_folder(path: str | Path, otherwise: str, *, patience: float = 0.0) -> Iterator[None]:
    """Keep every other process that asks out of the folder `path`, until the end or until this
    process and those forked from it end, in whatever way. Where the file system has no locks,
    nobody is kept out.

    Args:
        path: the folder.
        otherwise: what it means that another process has it.
        patience: seconds to wait for that one to end.

    Raises:
        BertineError: another process has it.
    """
    with os_errors(path, "looking at it"):
        handle = os.open(path, os.O_RDONLY)
    deadline = time.monotonic() + patience
    try:
        while True:
            try:
                lock_handle(handle, f"{path}: {otherwise}")
                break
            except BertineError:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(0.05)
        yield
    finally:
        os.close(handle)


def lock_handle(handle: int, otherwise: str) -> None:
    """Lock an open file or folder until it is closed.

    Raises:
        BertineError: another process has locked it; `otherwise` is the message.
    """
    try:
        import fcntl
    except ImportError:  # no such locks on this system
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise BertineError(otherwise) from error
    except OSError:
        return  # nor on some network file systems


def check_replaceable(path: str | Path, what: str, ours: Callable[[Path], bool]) -> None:
    """Refuse to write a folder over one that holds something else.

    Args:
        path: where the folder is to be written.
        what: is written there, for the message: "token store".
        ours: whether a folder that is not empty is one of these, and so may be replaced.

    Raises:
        BertineError: `path` is a folder with something else in it.
    """
    with os_errors(path, "looking at it"):
        folder = Path(path)
        if folder.is_dir() and any(folder.iterdir()) and not ours(folder):
            raise BertineError(
                f"{path}: is a folder, but not a {what}; it would be replaced, so choose another"
            )


def write_text(path: str | Path, text: str) -> None:
    """Write `text` as UTF-8, atomically."""
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: str | Path, value: Any) -> None:
    """Write `value` as indented JSON, atomically."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # half a character, which JSON has an escape for
        text = json.dumps(value, indent=2)
    write_text(path, text + "\n")


def read_json(path: str | Path) -> Any:
    """Read a JSON file.

    Raises:
        BertineError: the file is missing, unreadable or not JSON.
    """
    path = Path(path)
    with os_errors(path, "reading it"):
        raw = path.read_bytes()
    try:
        return json.loads(raw.decode("utf-8"))
    except ValueError as error:
        raise BertineError(f"{path}: not valid JSON ({error})") from error


def sha256_file(path: str | Path) -> str:
    """The SHA-256 of a file's bytes, as 64 hex digits, read in blocks."""
    digest = hashlib.sha256()
    with os_errors(path, "reading it"), open(path, "rb") as handle:
        while block := handle.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
