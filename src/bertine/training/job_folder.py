"""Open the folder of a job: begin the job there or resume it, one process at a time.

A job is a run, a search, a table of a paper, a demo: whatever takes long, and records its settings
and its progress in one JSON file of its folder.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from bertine.core.errors import BertineError
from bertine.core.files import lock_folder, os_errors, read_json, write_json
from bertine.core.names import option
from bertine.core.text import briefly
from bertine.training.checkpoint import remove_leftovers

#: Seconds to wait for a process that is ending in the same folder: the workers that made batches
#: for a killed process end a moment after it.
_PATIENCE = 5.0
#: The most characters of a setting in a message of one line; a thousand labels would not be
#: readable.
_SHOWN = 120


@dataclass(frozen=True)
class JobFolder:
    """A kind of job, and how its folders are recognized.

    Attributes:
        kind: its name in messages, e.g. "search".
        file: the name of the JSON file with its settings, under the key ``settings``.
        free: the settings that may differ when it is resumed.
        own: the names of files and folders that may be there without the file: earlier versions
            wrote it after them.
        scraps: patterns of files that are worth nothing to a job that has done nothing else.
        replaces: the names of files and folders of an earlier job that a new one removes. A job of
            such a kind is not resumed.
        by_name: returns settings by the names that messages use.
    """

    kind: str
    file: str
    free: frozenset[str] = frozenset()
    own: frozenset[str] = frozenset()
    scraps: tuple[str, ...] = ("logs/*",)
    replaces: tuple[str, ...] = ()
    by_name: Callable[[dict[str, Any]], dict[str, Any]] = dict

    def check(self, folder: Path | str, resume: bool) -> bool:
        """Return whether `folder` holds such a job; refuse what :meth:`open` would refuse, except
        for other settings. Nothing is written.

        Raises:
            BertineError: `folder` is a file, or holds something else; or a job that is not to be
                resumed.
        """
        folder = Path(folder)
        if folder.exists() and not folder.is_dir():
            raise BertineError(f"{folder}: is a file; choose another folder for the {self.kind}")
        # One listing: another process may begin the job meanwhile.
        names = {path.name for path in folder.iterdir()} if folder.exists() else set[str]()
        if self.file in names:
            if not resume:
                raise BertineError(
                    f"{folder}: holds a {self.kind} already; add {option('resume', True)} to go "
                    "on with it, or choose another folder"
                )
            return True
        if any(not name.startswith(f".{self.file}.tmp-") for name in names - self.own):
            raise BertineError(
                f"{folder}: is not empty and holds no {self.kind}; choose another folder for it"
            )
        return False

    @contextlib.contextmanager
    def open(
        self,
        folder: Path | str,
        settings: Mapping[str, Any],
        resume: bool,
        more: Mapping[str, Any] | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Begin a job in `folder`, or resume it, and keep other processes out until the end.

        If the job ends by an exception before it has done anything, its files are removed, and so
        is the folder if it was created here.

        Args:
            folder: created if missing.
            settings: everything that decides the result, as JSON values.
            resume: resume the job in the folder; if there is none, begin one.
            more: further entries of the file of a new job.

        Yields:
            What the file of a job that is resumed holds; empty for a new one.

        Raises:
            BertineError: see :meth:`check`; or the job was started with other settings; or another
                process is working there.
        """
        folder = Path(folder)
        self.check(folder, resume)
        file, new = folder / self.file, not folder.exists()
        begun = {"settings": json.loads(json.dumps(settings)), **(more or {})}  # tuples are lists
        busy = f"another process is working on this {self.kind}; wait until it ends, or end it"
        with os_errors(folder, "writing it"):
            folder.mkdir(parents=True, exist_ok=True)
        with lock_folder(folder, busy, patience=_PATIENCE):
            try:
                content: dict[str, Any] = {}
                known = self.check(folder, resume)  # one may have been begun until now
                if known and not self.replaces:
                    content = self._read(file, begun["settings"])
                else:
                    for name in self.replaces:
                        _remove(folder / name)
                    write_json(file, begun)
                remove_leftovers(folder)
                try:
                    yield content
                except BaseException:
                    if not content:  # what was begun before is the user's
                        self._undo(folder, begun)
                    raise
            finally:
                if new:
                    with contextlib.suppress(OSError):  # holds something
                        folder.rmdir()

    def _read(self, file: Path, settings: dict[str, Any]) -> dict[str, Any]:
        """Read the file of a job that was begun with the same settings."""
        content = read_json(file, lenient=True)
        known = content.get("settings") if isinstance(content, dict) else None
        if not isinstance(known, dict):
            raise BertineError(
                f"{file}: damaged, or not of a {self.kind}; choose another folder for it"
            )
        old, new = self.by_name(known), self.by_name(settings)
        refuse_changes(file, self.kind, old, new, self.free)
        return dict(content)

    def _undo(self, folder: Path, begun: dict[str, Any]) -> None:
        """Remove the files of a job that was begun here, if it has recorded nothing and left
        nothing but scraps."""
        file = folder / self.file
        with contextlib.suppress(BertineError, OSError):
            content = read_json(file, lenient=True)
            if not isinstance(content, dict) or content.keys() - begun.keys():
                return
            entries = sorted(folder.rglob("*"), reverse=True)  # what is inside a folder before it
            others = [path for path in entries if not path.is_dir() and path != file]
            if all(self._is_scrap(path.relative_to(folder)) for path in others):
                for path in [*others, file]:
                    path.unlink()
                for path in entries:
                    if path.is_dir():
                        path.rmdir()

    def _is_scrap(self, path: Path) -> bool:
        """Return whether a path in the folder is worth nothing to a job that has done nothing."""
        for pattern in self.scraps:
            parts = pattern.split("/")
            if len(parts) == len(path.parts) and all(map(fnmatchcase, path.parts, parts)):
                return True
        return False


def _remove(path: Path) -> None:
    """Remove a file or a folder, if there is one."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def refuse_changes(
    file: Path,
    kind: str,
    old: dict[str, Any],
    new: dict[str, Any],
    free: frozenset[str] = frozenset(),
) -> None:
    """Refuse to continue with other settings, except for those that are `free`.

    Args:
        file: the file with the `old` settings.
        kind: of the job that was started with them.

    Raises:
        BertineError: one differs.
    """
    if old.get("examples_fingerprint") != new.get("examples_fingerprint"):
        free -= {"split_seed"}  # the reason why the examples differ
    # Fingerprints last: the cause of a different fingerprint, such as the seed, is more
    # informative.
    keys = sorted(old.keys() | new.keys(), key=lambda key: (key.endswith("_fingerprint"), key))
    for key in keys:
        if key not in free and old.get(key) != new.get(key):
            name, before, now = _innermost(key, old.get(key), new.get(key))
            differs = f"{name} = {briefly(before, _SHOWN)}, not {briefly(now, _SHOWN)}"
            if key.endswith("_fingerprint"):  # its digits mean nothing to a reader
                thing = key.removesuffix("_fingerprint").replace("_", " ")
                differs = f"{'other' if thing.endswith('s') else 'another'} {thing}"
            raise BertineError(
                f"{file}: the {kind} was started with {differs}; resume it with the same, or "
                "choose another folder"
            )


def _innermost(name: str, old: Any, new: Any) -> tuple[str, Any, Any]:
    """Return the innermost setting that differs, if both settings are mappings."""
    while isinstance(old, dict) and isinstance(new, dict):
        keys = dict.fromkeys([*old, *new])
        key = next((key for key in keys if old.get(key) != new.get(key)), None)
        if key is None:  # absent here, and no such key there
            break
        name, old, new = f"{name}.{key}", old.get(key), new.get(key)
    return name, old, new
