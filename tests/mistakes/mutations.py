"""Damage files the way disks, other programs and attackers do: pure functions of a random state."""

from __future__ import annotations

import copy
import io
import json
import os
import re
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

#: JSON that is written into a file as it stands here.
RAW = (
    "NaN",
    "Infinity",
    "-Infinity",
    "1e999",
    "-1e999",
    "9" * 5000,
    "-" + "9" * 400,
    "[" * 5000 + "]" * 5000,
    '{"a":' * 500 + "1" + "}" * 500,
    "[" * 100_000,
    '"\\ud800"',
    '"\\udc00 text"',
    '{"a": 1, "a": 2}',
    "01",
    "'text'",
    "",
)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 3, 7, 10**9, 10**12, 2**63, -(10**9), 10**18, 10**25),
    *(0.5, 1.0, -0.5, 1e-300, 1e300, "", "x", "0", "nan", "-1", "true", "None", "a" * 5000),
    *("\x1b[31mred", "\u202egnp.exe", "a\nb", "\x00", "../../../etc/passwd", "/dev/zero", "."),
    *(
        "/dev/stdin",
        "ä" * 40,
        "漢字",
        "[MASK]",
        "2024-99-99",
        [],
        {},
        [[]],
        [None],
        [1, "x"],
        {"": 0},
    ),
    *({"0": "a"}, [0] * 1000, ["x"] * 1000, {"type": "x"}, "gelu", "fp32", [1e308, 1e308]),
)
#: Bytes that mean something to one reader or another.
TOKENS = (
    *(b"", b"\n", b"\r", b"\r\n", b"\t", b",", b";", b'"', b'""', b"'", b"\\", b"\0", b"\xff\xfe"),
    *(b"\xef\xbb\xbf", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\x1b[2J\x1b]0;x\x07"),
    *(
        "\u202e\u2028\x85".encode(),
        b"{",
        b"}",
        b"[",
        b"]",
        b"[[[[",
        b"null",
        b"NaN",
        b"-1",
        b"1e999",
    ),
    *(b"[MASK]", b"[SEP]", b"label", b"text", b"-DOCSTART-", b"B-", b"I-X", b"O", b"__label__x"),
    *(
        b"PAR1",
        b"\x28\xb5\x2f\xfd",
        b"\x1f\x8b",
        b"\n" * 3000,
        b"," * 3000,
        b"\t" * 300,
        b" " * 5000,
    ),
    *(
        b"9" * 5000,
        b"a" * 70_000,
        "\u0301".encode() * 3000,
        "漢".encode() * 3000,
        b"*a",
        b"&a [*a]",
    ),
    *(b"!!python/object:os.system", b"- " * 2000, b"{a: " * 500, b"2024-99-99", b": ", b"? "),
)
_PLACEHOLDER = re.compile(r'"@raw(\d+)@"')


def mutate_bytes(draw: Random, raw: bytes) -> bytes:
    """Damage without regard to what the bytes mean."""
    size = len(raw)
    at, other = sorted((draw.randint(0, size), draw.randint(0, size)))
    kind = draw.randrange(10)
    if kind == 0:
        return raw[:at]
    if kind == 1:
        return raw[:at] + raw[min(other, at + 200) :]
    if kind == 2:
        return raw[:at] + raw[at : at + 300] * draw.choice((2, 3, 50)) + raw[at:]
    if kind == 3 and size:
        changed = bytearray(raw)
        for _ in range(draw.choice((1, 1, 3, 30))):
            changed[draw.randrange(size)] ^= 1 << draw.randrange(8)
        return bytes(changed)
    if kind == 4 and size:
        changed = bytearray(raw)
        for _ in range(draw.choice((1, 4, 40))):
            changed[draw.randrange(size)] = draw.choice((0, 255, 10, 34, draw.randrange(256)))
        return bytes(changed)
    if kind == 5:
        return raw[other:] + raw[:at]
    if kind == 6 and draw.random() < 0.3:
        return draw.choice(
            (b"", b"\n" * 100_000, b"\0" * 5000, raw.decode("latin-1").encode("utf-16"))
        )
    return raw[:at] + draw.choice(TOKENS) + raw[at:]


def mutate_lines(draw: Random, raw: bytes) -> bytes:
    """Damage a table or a text: whole lines, and cells of them."""
    if draw.random() < 0.4:
        return mutate_bytes(draw, raw)
    lines = raw.split(b"\n")
    at = draw.randrange(len(lines))
    kind = draw.randrange(8)
    if kind == 0:
        del lines[at]
    elif kind == 1:
        lines.insert(at, lines[draw.randrange(len(lines))])
    elif kind == 2:
        lines.insert(at, draw.choice(TOKENS))
    elif kind == 3:
        lines[0], lines[at] = lines[at], lines[0]
    elif kind == 4:
        lines = [lines[at]] * draw.choice((1, 2, 200))
    elif kind == 5 and lines[at].startswith(b"{"):
        lines[at] = mutate_json(draw, lines[at])
    else:
        separator = draw.choice((b",", b"\t", b" "))
        cells = lines[at].split(separator)
        cells[draw.randrange(len(cells))] = draw.choice(TOKENS)
        if kind == 6:
            cells.insert(draw.randrange(len(cells)), draw.choice(TOKENS))
        lines[at] = separator.join(cells)
    return b"\n".join(lines)


def mutate_json(draw: Random, raw: bytes) -> bytes:
    """Damage JSON as JSON: another value, another key, a key twice; or its bytes."""
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        return mutate_bytes(draw, raw)
    if draw.random() < 0.1:
        return mutate_bytes(draw, raw)
    value = {"": value}
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        _change(draw, value)
    text = json.dumps(value.get(""))
    return _PLACEHOLDER.sub(lambda match: RAW[int(match[1])], text).encode()


def _change(draw: Random, top: dict[str, Any]) -> None:
    """Change one value somewhere in `top`, most often not far down."""
    top.setdefault("", None)  # an earlier change may have removed or renamed it
    parent: Any = top
    key: Any = ""
    while isinstance(parent[key], dict | list) and parent[key] and draw.random() < 0.85:
        parent = parent[key]
        keys = list(parent) if isinstance(parent, dict) else range(len(parent))
        key = draw.choice(keys)
    kind = draw.randrange(8)
    if kind == 0:
        del parent[key]
    elif kind == 1:
        parent[key] = f"@raw{draw.randrange(len(RAW))}@"
    elif kind == 2 and isinstance(parent, dict):
        parent[draw.choice(("", "format", "type", str(key) + "x", "0", "\x1b[1m"))] = parent.pop(
            key
        )
    elif kind == 3:
        parent[key] = [parent[key]]
    elif kind == 4 and isinstance(parent[key], int | float):
        factors = (-1, 2, 1000) if abs(parent[key]) > 1e300 else (-1, 2, 1000, 1.5)
        parent[key] = parent[key] * draw.choice(factors) + draw.choice((0, 1, -1))
    elif kind == 5:
        parent[key] = str(parent[key])
    else:
        parent[key] = copy.deepcopy(draw.choice(VALUES))


def mutate_tensors(draw: Random, raw: bytes) -> bytes:
    """Damage a safetensors file: its header, the length of that, or the numbers."""
    if draw.random() < 0.3 or len(raw) < 9:
        return mutate_bytes(draw, raw)
    (size,) = struct.unpack("<Q", raw[:8])
    header, rest = raw[8 : 8 + size], raw[8 + size :]
    kind = draw.randrange(4)
    if kind == 0:
        lying = draw.choice((0, 1, max(0, size - 1), size + 1, 2**31, 2**63, 2**64 - 1))
        return struct.pack("<Q", lying) + header + rest
    if kind == 1 and rest:
        number = struct.pack("<f", draw.choice((float("nan"), float("inf"), 1e38, 0.0)))
        return raw[:8] + header + number * (len(rest) // 4)
    header = mutate_json(draw, header)
    return struct.pack("<Q", len(header)) + header + rest


#: Attributes of XML that mean something to a reader of workbooks.
ATTRIBUTES = (
    *(b"XFD1048576", b"A1048576", b"A0", b"1048576", b"16384", b"4294967295", b"-1", b"", b"s"),
    *(b"e", b"b", b"n", b"str", b"inlineStr", b"rId999", b"../../x.xml", b"NaN", b"1e999"),
)


def mutate_zip(draw: Random, raw: bytes) -> bytes:
    """Damage a part of a zip archive, whose sums are then right; or its bytes."""
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            parts = {name: archive.read(name) for name in archive.namelist()}
    except Exception:
        parts = {}
    if not parts or draw.random() < 0.3:
        return mutate_bytes(draw, raw)
    name = draw.choice(sorted(parts))
    found = [*re.finditer(rb'="([^"]*)"', parts[name])]
    kind = draw.randrange(8)
    if kind == 0:
        del parts[name]
    elif kind < 5 and found:
        place, value = draw.choice(found), draw.choice(ATTRIBUTES)
        parts[name] = parts[name][: place.start(1)] + value + parts[name][place.end(1) :]
    else:
        parts[name] = mutate_bytes(draw, parts[name])
    into = io.BytesIO()
    with zipfile.ZipFile(into, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return into.getvalue()


def replace_by_no_file(draw: Random, path: Path) -> None:
    """Put something else than a file into the place of `path`."""
    path.unlink()
    kind = draw.randrange(6)
    if kind == 0:
        os.mkfifo(path)
    elif kind == 1:
        path.mkdir()
    elif kind == 2:
        path.symlink_to(path.name)
    elif kind == 3:
        path.symlink_to("/dev/zero")
    elif kind == 4:
        path.symlink_to("/dev/null")


#: By suffix; what is not here is damaged as bytes.
MUTATIONS: dict[str, Callable[[Random, bytes], bytes]] = {
    ".json": mutate_json,
    ".jsonl": mutate_lines,
    ".csv": mutate_lines,
    ".tsv": mutate_lines,
    ".txt": mutate_lines,
    ".conll": mutate_lines,
    ".yaml": mutate_lines,
    ".safetensors": mutate_tensors,
    ".xlsx": mutate_zip,
    ".ods": mutate_zip,
}


def mutate_file(draw: Random, path: Path) -> None:
    """Replace `path`, which may be a link to what others read, by a damaged copy."""
    if draw.random() < 0.02:
        replace_by_no_file(draw, path)
        return
    raw = path.read_bytes()
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        raw = MUTATIONS.get(path.suffix, mutate_bytes)(draw, raw)
    path.unlink()
    path.write_bytes(raw)
