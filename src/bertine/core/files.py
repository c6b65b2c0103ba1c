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
import stat
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bertine.core.errors import BertineError
from bertine.core.strict_json import MAX_BYTES, parse_json

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
        code = _RUST_OS_ERROR.search(str(error))
        if not isinstance(error, OSError) and not code:
            raise
        number = error.errno if isinstance(error, OSError) else None
        if number is None and code:
            number = int(code[1])
        if number in (errno.ENOSPC, errno.EDQUOT):
            raise BertineError(
                f"{path}: the disk is full while {doing}; free some space and run again"
            ) from error
        reason = os.strerror(number) if number else str(error)
        raise BertineError(f"{path}: {reason} while {doing}") from error


def _real(path: str | Path) -> Path:
    """Return `path` with symbolic links followed, so that what a link names is replaced and not the
    link, on the disk where it is; ``.`` gets its name."""
    return Path(os.path.realpath(path))


@contextlib.contextmanager
def _held(path: Path, *, folder: bool, kind: str = "tmp") -> Iterator[Path]:
    """Make a temporary file or folder beside `path`, locked as long as this process uses it, and
    remove it in the end if it is still there.

    A process that is killed leaves one, but no lock: so the next one that writes `path` knows that
    nobody uses it and removes it, here.
    """
    remove_abandoned(path, kind)
    temporary = path.with_name(f".{path.name}.{kind}-{uuid.uuid4().hex[:8]}")
    while True:
        if folder:
            temporary.mkdir()
            handle = os.open(temporary, os.O_RDONLY)
        else:
            handle = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        _lock(handle)
        # Another process may have taken it for abandoned before it was locked.
        if _is_same(handle, temporary):
            break
        os.close(handle)
    try:
        yield temporary
    finally:
        if folder:
            shutil.rmtree(temporary, ignore_errors=True)
        else:
            temporary.unlink(missing_ok=True)
        os.close(handle)


def remove_abandoned(path: Path, kind: str = "tmp") -> None:
    """Remove the temporary files and folders beside `path` that a killed process has left. Those
    that a process still holds stay, and all of them where the file system has no locks.

    Args:
        path: what was being written.
        kind: "tmp", what was to become `path`; "scratch", what was needed on the way; or "old",
            what `path` was before: to be removed only when the new one is there.
    """
    prefix = f".{path.name}.{kind}-"
    try:
        with os.scandir(path.parent) as entries:
            paths = [entry.path for entry in entries if entry.name.startswith(prefix)]
    except OSError:
        return
    for name in paths:
        with contextlib.suppress(OSError):
            if os.path.islink(name):
                continue
            handle = os.open(name, os.O_RDONLY | os.O_NONBLOCK)
            try:
                if _lock(handle) and _is_same(handle, Path(name)):
                    if os.path.isdir(name):
                        shutil.rmtree(name, ignore_errors=True)
                    else:
                        os.unlink(name)
            finally:
                os.close(handle)


def _lock(handle: int) -> bool | None:
    """Lock an open file or folder until it is closed.

    Returns:
        Whether it is locked now; False where another process has locked it, None where there are
        no locks: on other systems, and on some network file systems.
    """
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        return None
    return True


def _is_same(handle: int, path: Path) -> bool:
    """Return whether the open file `handle` is what `path` names."""
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except OSError:
        return False


def _umask() -> int:
    """Return the process's mask of permissions, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


#: Read once, while there is one thread.
_MASK = _umask()


def _readable(path: Path) -> None:
    """Give a file that a library has made private (safetensors writes 0600) the permissions of any
    new file."""
    if stat.S_IMODE(path.stat().st_mode) == 0o600:
        path.chmod(0o666 & ~_MASK)


def sync_path(path: Path) -> None:
    """Make a file durable, or what was created or renamed in a folder."""
    handle = os.open(path, os.O_RDONLY)
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
        if kind := _special_kind(path):
            raise BertineError(f"{shown}: is {kind}; name a file, which is replaced as a whole")
        path.parent.mkdir(parents=True, exist_ok=True)
        with _held(path, folder=False) as temporary:
            yield temporary
            _readable(temporary)
            sync_path(temporary)
            os.replace(temporary, path)
            sync_path(path.parent)


@contextlib.contextmanager
def atomic_dir(path: str | Path) -> Iterator[Path]:
    """Yield an empty folder beside `path`; on success it is synced and becomes `path`.

    An existing `path` is replaced as a whole (moved aside, then removed): ask
    :func:`check_replaceable` first. On any exception `path` is what it was before, and nothing
    of the new folder is left. A process killed between the two renames leaves the old and the
    new, whole, under hidden names beside `path`: ``.NAME.old-…`` and ``.NAME.tmp-…``. The next one
    that writes `path` removes the latter first, and the former when it has succeeded.
    """
    shown, path = path, _real(path)
    with os_errors(shown, "writing it"):
        if path.exists() and not path.is_dir():
            raise BertineError(f"{shown}: is a file, but a folder is to be written there")
        path.parent.mkdir(parents=True, exist_ok=True)
        with _held(path, folder=True) as temporary:
            yield temporary
            for file in sorted(temporary.rglob("*")):
                if file.is_file():
                    _readable(file)
                if file.is_file() or file.is_dir():
                    sync_path(file)
            sync_path(temporary)
            if path.exists():
                _replace_folder(path, temporary)
                remove_abandoned(path, "old")  # of a process that ended between two renames
            else:
                os.replace(temporary, path)
            sync_path(path.parent)


@contextlib.contextmanager
def scratch_dir(path: str | Path) -> Iterator[Path]:
    """Yield an empty folder beside `path` for what is needed while `path` is made. It is removed in
    the end; that of a process that was killed, by the next one that asks."""
    shown, path = path, _real(path)
    with os_errors(shown, "writing beside it"):
        path.parent.mkdir(parents=True, exist_ok=True)
    with _held(path, folder=True, kind="scratch") as scratch:
        yield scratch


def _replace_folder(path: Path, new: Path) -> None:
    """Put the folder `new` into the place of `path`, which is removed."""
    old = path.with_name(f".{path.name}.old-{uuid.uuid4().hex[:8]}")
    handle = os.open(path, os.O_RDONLY)
    try:
        _lock(handle)
        os.replace(path, old)
        try:
            os.replace(new, path)
        except OSError:
            os.replace(old, path)
            raise
        shutil.rmtree(old)
    finally:
        os.close(handle)


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
        while _lock(handle) is False:
            if time.monotonic() >= deadline:
                raise BertineError(f"{path}: {otherwise}")
            time.sleep(0.05)
        yield
    finally:
        os.close(handle)


def lock_handle(handle: int, otherwise: str) -> None:
    """Lock an open file or folder until it is closed.

    Raises:
        BertineError: another process has locked it; `otherwise` is the message.
    """
    if _lock(handle) is False:
        raise BertineError(otherwise)


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


def read_json(path: str | Path, *, lenient: bool = False) -> Any:
    """Read a JSON file, as strictly as :func:`bertine.core.strict_json.parse_json` says; `lenient`
    is its argument.

    Raises:
        BertineError: the file is missing, unreadable, no regular file, or no JSON that is taken.
    """
    return parse_json(read_bounded(path, MAX_BYTES), path, lenient=lenient)


def read_json_object(path: str | Path, *, lenient: bool = False) -> dict[str, Any]:
    """Read a JSON file that must hold an object; otherwise as :func:`read_json`."""
    value = read_json(path, lenient=lenient)
    if not isinstance(value, dict):
        raise BertineError(f"{path}: must hold a JSON object")
    return value


def read_bounded(path: str | Path, limit: int, *, pipes: bool = False) -> bytes:
    """Read a whole file of at most `limit` bytes.

    Args:
        path: the file.
        limit: bytes; one more is read of a longer file, for the caller to refuse.
        pipes: take pipes that are named on purpose, as :func:`check_regular` does.

    Raises:
        BertineError: the file is missing, unreadable or no regular file.
    """
    check_regular(path, pipes=pipes)
    with os_errors(path, "reading it"), open(path, "rb") as handle:
        return handle.read(limit + 1)


#: Names of standard input and of the pipes that a shell makes for ``<(command)``.
_ON_PURPOSE = re.compile(r"/dev/stdin|/dev/fd/\d+|/proc/(self|\d+)/fd/\d+")
_KINDS = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)


#: What a pointer of Git LFS begins with, which stands in a clone in the place of a large file that
#: was not fetched; and its most bytes.
_POINTER, _MOST_OF_POINTER = b"version https://git-lfs.github.com/spec/", 1024


def check_regular(path: str | Path, *, pipes: bool = False) -> None:
    """Refuse what would be waited for, or read, without end: pipes, devices and sockets; and a
    pointer of Git LFS, which is not the file that it is called like. What is missing and what is a
    folder is left to whoever opens it.

    Args:
        path: of what is to be opened for reading; links are followed.
        pipes: let pass what is named on purpose, ``/dev/stdin`` and ``/dev/fd/63``.

    Raises:
        BertineError: it is no regular file, or a pointer.
    """
    if pipes and _ON_PURPOSE.fullmatch(str(path)):
        return
    if kind := _special_kind(path):
        hint = "; pass a pipe as standard input or as <(command)" if pipes else ""
        raise BertineError(f"{path}: is {kind}, not a regular file{hint}")
    if _is_pointer(path):
        raise BertineError(
            f"{path}: is a pointer of Git LFS, not the file itself; run 'git lfs pull' in its "
            "clone, or get the file with 'hf download'"
        )


def _special_kind(path: str | Path) -> str | None:
    """Return what `path` is that is neither a file nor a folder; None for these and for nothing."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return None
    return next((name for test, name in _KINDS if test(mode)), None)


def _is_pointer(path: str | Path) -> bool:
    """Return whether a file is a pointer of Git LFS."""
    try:
        if os.stat(path).st_size > _MOST_OF_POINTER:
            return False
        with open(path, "rb") as handle:
            return handle.read(len(_POINTER)) == _POINTER
    except (OSError, ValueError):
        return False


def sha256_file(path: str | Path) -> str:
    """Return the SHA-256 of a file's bytes, as 64 hex digits, read in blocks."""
    digest = hashlib.sha256()
    check_regular(path)
    with os_errors(path, "reading it"), open(path, "rb") as handle:
        while block := handle.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
