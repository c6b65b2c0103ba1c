"""Write files atomically, lock them, and read them with clear errors.

A crash leaves the old file or the new one, never a part.

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

#: The end of an operating system error's text in Rust's standard library.
_RUST_OS_ERROR = re.compile(r"\(os error (\d+)\)")


@contextlib.contextmanager
def os_errors(path: str | Path, doing: str) -> Iterator[None]:
    """Turn an :class:`OSError` on `path` into a :class:`BertineError` of one line.

    Errors of Rust libraries (`safetensors`, `tokenizers`) are converted, too: they are not
    :class:`OSError` but end with "(os error 28)".
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
    """Resolve symbolic links in `path`, so that the target is replaced, on its own disk, and not
    the link; ``.`` gets its real name."""
    return Path(os.path.realpath(path))


@contextlib.contextmanager
def _held(path: Path, *, folder: bool, kind: str = "tmp") -> Iterator[Path]:
    """Create a temporary file or folder next to `path`, locked while this process uses it, and
    remove it at the end if it still exists.

    A killed process leaves its temporary file, but no lock. The next process that writes `path`
    thus recognizes it as abandoned and removes it, here.
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
        # Another process may have removed it as abandoned before it was locked.
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
    """Remove temporary files and folders next to `path` that a killed process has left. Those that
    a running process has locked stay; all stay if the file system has no locks.

    Args:
        path: the path that was written.
        kind: "tmp", the future `path`; "scratch", a folder for intermediate files; or "old", the
            previous `path`: remove it only when the new one exists.
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
        True if it is now locked; False if another process has locked it; None if there are no
        locks: on other systems, and on some network file systems.
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
    """Return whether the open file `handle` is the file at `path`."""
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except OSError:
        return False


def _umask() -> int:
    """Return the process's permission mask, which can be read only by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


#: Read once, while there is only one thread.
_MASK = _umask()


def _readable(path: Path) -> None:
    """Give a file the permissions of a normal new file, if a library has made it private
    (safetensors: 0600)."""
    if stat.S_IMODE(path.stat().st_mode) == 0o600:
        path.chmod(0o666 & ~_MASK)


def sync_path(path: Path) -> None:
    """Sync a file, or the entries of a folder, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def atomic_file(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path next to `path` to write to; on success sync it and rename it to
    `path`.

    On any exception the temporary file is removed and `path` is unchanged.
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
    """Yield an empty folder next to `path`; on success sync it and rename it to `path`.

    An existing `path` is replaced as a whole (moved away, then removed): call
    :func:`check_replaceable` first. On any exception `path` is unchanged, and nothing of the new
    folder is left. A process killed between the two renames leaves both the old and the new folder,
    complete, under hidden names next to `path`: ``.NAME.old-…`` and ``.NAME.tmp-…``. The next
    process that writes `path` removes the latter at its start, and the former when it has
    succeeded.
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
                remove_abandoned(path, "old")  # left by a process killed between two renames
            else:
                os.replace(temporary, path)
            sync_path(path.parent)


@contextlib.contextmanager
def scratch_dir(path: str | Path) -> Iterator[Path]:
    """Yield an empty folder next to `path` for intermediate files while `path` is made. It is
    removed at the end, or, if the process is killed, by the next call."""
    shown, path = path, _real(path)
    with os_errors(shown, "writing beside it"):
        path.parent.mkdir(parents=True, exist_ok=True)
    with _held(path, folder=True, kind="scratch") as scratch:
        yield scratch


def _replace_folder(path: Path, new: Path) -> None:
    """Replace the folder `path` with the folder `new`."""
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
    """Lock the folder `path` against other processes that call this, until the end of the block or
    until this process and its forks end in any way. If the file system has no locks, nothing is
    locked.

    Args:
        path: the folder.
        otherwise: the message if another process has locked it.
        patience: seconds to wait for the other process.

    Raises:
        BertineError: another process has locked it.
    """
    with os_errors(path, "looking at it"):
        handle = os.open(path, os.O_RDONLY)
    deadline = time.monotonic() + patience
    try:
        while _lock(handle) is False:
            if time.monotonic() >= deadline:
                raise BertineError(f"{path}: {otherwise}")
            time.sleep(0.05)
        if not _is_same(handle, Path(path)):  # removed by the other process at its end
            raise BertineError(f"{path}: {otherwise}")
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
    """Refuse to replace a folder that holds something else.

    Args:
        path: where the folder is to be written.
        what: the kind of folder that is written, for the message: "token store".
        ours: returns whether a non-empty folder is of this kind and may be replaced.

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
    except UnicodeEncodeError:  # a lone surrogate, for which JSON has an escape
        text = json.dumps(value, indent=2)
    write_text(path, text + "\n")


def read_json(path: str | Path, *, lenient: bool = False) -> Any:
    """Read a JSON file with the checks of :func:`bertine.core.strict_json.parse_json`, to which
    `lenient` is passed.

    Raises:
        BertineError: the file is missing, unreadable, not a regular file, or not accepted as JSON.
    """
    return parse_json(read_bounded(path, MAX_BYTES), path, lenient=lenient)


def read_json_object(path: str | Path, *, lenient: bool = False) -> dict[str, Any]:
    """Read a JSON file that must hold an object; see :func:`read_json`."""
    value = read_json(path, lenient=lenient)
    if not isinstance(value, dict):
        raise BertineError(f"{path}: must hold a JSON object")
    return value


def read_bounded(path: str | Path, limit: int, *, pipes: bool = False) -> bytes:
    """Read a whole file of at most `limit` bytes.

    Args:
        path: the file.
        limit: most bytes; one more byte is read from a longer file, for the caller to refuse.
        pipes: accept pipes named on purpose, as :func:`check_regular` does.

    Raises:
        BertineError: the file is missing, unreadable or not a regular file.
    """
    check_regular(path, pipes=pipes)
    with os_errors(path, "reading it"), open(path, "rb") as handle:
        return handle.read(limit + 1)


#: Names of standard input and of a shell's pipes for ``<(command)``.
_ON_PURPOSE = re.compile(r"/dev/stdin|/dev/fd/\d+|/proc/(self|\d+)/fd/\d+")
_KINDS = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)


#: The first bytes of a Git LFS pointer, which replaces a large file that was not fetched in a
#: clone; and the most bytes of a pointer.
_POINTER, _MOST_OF_POINTER = b"version https://git-lfs.github.com/spec/", 1024


def check_regular(path: str | Path, *, pipes: bool = False) -> None:
    """Refuse pipes, devices and sockets, which could block or never end, and Git LFS pointers,
    which are not the named file. Missing files and folders are left to the code that opens them.

    Args:
        path: the path to be read; links are followed.
        pipes: accept what is named on purpose, ``/dev/stdin`` and ``/dev/fd/63``.

    Raises:
        BertineError: it is not a regular file, or is a pointer.
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
    """Return the kind of `path` if it is neither a file nor a folder; None for these and if it is
    missing."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return None
    return next((name for test, name in _KINDS if test(mode)), None)


def _is_pointer(path: str | Path) -> bool:
    """Return whether a file is a Git LFS pointer."""
    try:
        if os.stat(path).st_size > _MOST_OF_POINTER:
            return False
        with open(path, "rb") as handle:
            return handle.read(len(_POINTER)) == _POINTER
    except (OSError, ValueError):
        return False


def sha256_file(path: str | Path) -> str:
    """Compute the SHA-256 of a file as 64 hex digits; it is read in blocks."""
    digest = hashlib.sha256()
    check_regular(path)
    with os_errors(path, "reading it"), open(path, "rb") as handle:
        while block := handle.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
