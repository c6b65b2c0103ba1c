"""Whatever a library raises while it reads a file from outside is one line with the file's name."""

from __future__ import annotations

import errno
import io
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from bertine.core.errors import BertineError
from bertine.core.foreign_files import open_array, open_tensors, reading_outside
from bertine.hub.weights import read_facts, read_weights

DAMAGED = "is damaged, cut short or of another kind"


def refusal(path: Path, read: Callable[[], object]) -> str:
    """Return the one line that reading a file ends in; nothing: "" """
    try:
        read()
    except BertineError as error:
        line = str(error)
        assert "\n" not in line
        assert line.startswith(f"{path}: ")
        return line.removeprefix(f"{path}: ")
    return ""


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (KeyError("a\nb"), f"{DAMAGED} (KeyError: 'a\\nb'); copy it again"),
        (ValueError("two\nlines"), f"{DAMAGED} (two lines); copy it again"),
        (EOFError(), f"{DAMAGED} (EOFError); copy it again"),
        (OSError("no signature"), f"{DAMAGED} (OSError: no signature); copy it again"),
        (OSError(errno.EINVAL, "Invalid"), f"{DAMAGED} (OSError: [Errno 22] Invalid); copy it"),
        (PermissionError(errno.EACCES, "no"), "Permission denied while reading it"),
        (FileNotFoundError("no such file"), "no such file while reading it"),
        (RuntimeError("Permission denied (os error 13)"), "Permission denied while reading it"),
        (MemoryError(), "there is not enough memory for what it says that it holds (MemoryError)"),
        (RecursionError("x" * 999), f"{DAMAGED} (RecursionError: {'x' * 184}); copy it again"),
    ],
)
def test_every_error_is_one_line(tmp_path: Path, error: Exception, said: str) -> None:
    def read() -> None:
        with reading_outside(tmp_path / "file"):
            raise error

    assert refusal(tmp_path / "file", read).startswith(said)


def test_what_is_known_better_stays_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(BertineError, match=r"^mine$"), reading_outside(tmp_path):
        raise BertineError("mine")
    with pytest.raises(KeyboardInterrupt), reading_outside(tmp_path):
        raise KeyboardInterrupt


def saved(*, as_zip: bool) -> bytes:
    file = io.BytesIO()
    torch.save({"a": torch.ones(9)}, file, _use_new_zipfile_serialization=as_zip)
    return file.getvalue()


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize(
    "raw",
    [
        *(b"", b"text,label\nfine,1\n", b"a,b\n1,2\n", b"e", b"(lp0\n.", b"{}", b"\xef\xbb\xbfa"),
        *(b"\x1f\x8b" + bytes(30), bytes(1000), b"PK\x03\x04", b"\x80\x02.", b"\x80\x02" + b"s"),
        *(saved(as_zip=kind)[:-at] for kind in (True, False) for at in (1, 30, 100)),
    ],
)
def test_other_files_in_the_place_of_old_weights(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "pytorch_model.bin"
    path.write_bytes(raw)
    for read in (read_weights, read_facts):
        said = refusal(path, lambda read=read: read(tmp_path))  # type: ignore[misc]
        assert said.startswith((DAMAGED, "holds more than tensors, or is cut short"))


def test_damaged_tensors(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    save_file({"a": np.ones(3)}, path)

    def read(name: str) -> Any:
        with open_tensors(path, "np", "write it again") as file:
            return file.get_tensor(name)

    assert read("a").tolist() == [1, 1, 1]
    assert refusal(path, lambda: read("b")).endswith("; write it again")
    path.write_bytes(path.read_bytes()[:-1])
    assert refusal(path, lambda: read("a")).startswith(DAMAGED)
    path.unlink()
    assert "No such file" in refusal(path, lambda: read("a"))


def npy(header: str, version: int = 1, size: int | None = None) -> bytes:
    kind = "<H" if version == 1 else "<I"
    length = struct.pack(kind, len(header) if size is None else size)
    return b"\x93NUMPY" + bytes([version, 0]) + length + header.encode() + bytes(64)


def facts(descr: str = "'<f4'", order: str = "False", shape: str = "(4, 2)") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n"


@pytest.mark.filterwarnings("ignore:.*created on Python 2")
@pytest.mark.parametrize(
    "raw",
    [
        npy(facts()),
        npy(facts(), 2),
        npy(facts(), 3),
        npy(facts(shape="(4L, 2L)")),  # by Python 2
        npy(facts("'<f8'", "True", "(2,4)")),
        npy("{'shape': (4, 2), 'fortran_order': False, 'descr': '<f4'}"),
        npy('{"descr": "<f4", "fortran_order": False, "shape": (8,)}'),
    ],
)
def test_arrays(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "a.npy"
    path.write_bytes(raw)
    assert open_array(path).size == 8


@pytest.mark.parametrize(
    "raw",
    [
        *(b"", b"\x93NUMPY", b"PK\x03\x04", b"text", npy(facts())[:-40]),
        *(npy("(" * 5000), npy("{1:" * 900), npy("[" * 90 + "]" * 90), npy("-" * 5000 + "1")),
        *(npy(facts(shape=f"({'-' * 9000}1,)")), npy(facts(shape="(" * 99 + ")" * 99))),
        npy(facts(shape="(" + "+".join("1" * 900) + ",)")),
        npy(facts("[('a'," * 50 + "'<f4'" + ")]" * 50)),
        npy(facts("[('a', '<f4', (99999, 9999))]")),
        *(npy(facts(shape="(-1, 3)")), npy(facts(shape=f"({'9' * 150},)"))),
        *(npy(facts(shape="(999999999, 99999)")), npy(facts(shape="(9**9**9,)"))),
        *(npy(facts("'|O'")), npy(facts("'nonsense'")), npy(facts("'<f4', 'descr': '<f4'"))),
        *(npy(facts(), 2, 1 << 31), npy(facts(), 1, 60_000), npy(facts(), 9)),
        npy(facts() + " " * 1_000_000, 2),
    ],
)
def test_arrays_that_lie(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "a.npy"
    path.write_bytes(raw)
    assert refusal(path, lambda: open_array(path)).startswith(DAMAGED)
