"""What is recorded of a run, of answers and of vectors.

Whatever stands under the key ``bits`` is the same only where it is computed by the same
instructions in the same order: checksums of floats, and what a rounding may tip over, as the label
of a text that is near to two. It is compared between two trees on one machine, and not kept
(:func:`without_bits`). Names, shapes and ids are to be the same everywhere, floats close.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

import bertine
from bertine.inference.compute import why_not_int8
from golden.made import signs

#: In which answers are given; not every processor can all.
PRECISIONS: tuple[Any, ...] = ("fp32", "bf16", *([] if why_not_int8() else ["int8"]))
#: What logs and scores say of the clock and of places on the disk.
_OF_THE_MACHINE = frozenset(
    {"tokens_per_second", "elapsed", "seconds", "share_of_ceiling", "source", "place", "file"}
)
#: Floats of a log that change gradually with the weights; the others count hits and misses.
_SMOOTH = ("loss", "grad_norm", "learning_rate", "unigram_entropy")
#: Answers of which the numbers are written out, and numbers of an answer and of a vector; the
#: checksum is of all.
_ANSWERS, _FLOATS, _NUMBERS = 6, 12, 8


def digest(data: bytes | str) -> str:
    """Return the first 16 digits of the SHA-256 of `data`."""
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()[:16]


def rounded(value: float) -> float:
    """Return `value` with eight digits, for floats whose bits a checksum holds."""
    return float(f"{value:.8g}")


def plain(value: Any) -> Any:
    """Return `value` as JSON has it: dataclasses as objects, arrays as lists."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | array):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    return str(value) if isinstance(value, Path) else value


def without_clock(value: Any) -> Any:
    """Return a JSON value without what differs from run to run, and from folder to folder."""
    if isinstance(value, dict):
        return {k: without_clock(v) for k, v in value.items() if k not in _OF_THE_MACHINE}
    if isinstance(value, list):
        return [without_clock(item) for item in value]
    return value


def without_bits(value: Any) -> Any:
    """Return a record without what is under the key ``bits``, and without what was nothing else."""
    if not isinstance(value, dict | list) or not value:
        return value
    if isinstance(value, list):
        return [without_bits(item) for item in value]
    kept = {key: without_bits(item) for key, item in value.items() if key != "bits"}
    return {key: item for key, item in kept.items() if item != {} or value[key] == {}}


def floats(value: Any) -> list[float]:
    """Return the floats in a JSON value, in its order."""
    if isinstance(value, dict):
        return [number for item in value.values() for number in floats(item)]
    if isinstance(value, list):
        return [number for item in value for number in floats(item)]
    return [value] if isinstance(value, float) else []


def checksum(value: Any) -> str:
    """Return the checksum of a JSON value that is the same on every machine."""
    return digest(json.dumps(value, ensure_ascii=False, sort_keys=True))


def bits(value: Any) -> dict[str, str]:
    """Return the checksum of a JSON value that is not."""
    return {"bits": checksum(value)}


def tensors(file: Path) -> dict[str, Any]:
    """Record a safetensors file: of each tensor type and shape, its length and how far it goes
    along a direction that its name gives, and the checksum of its bytes."""
    found = {}
    for name, value in sorted(load_file(file).items()):
        flat = value.astype(np.float64).ravel()
        # Exact sums: the same on every machine.
        norm = math.sqrt(math.fsum((flat * flat).tolist()))
        along = math.fsum((flat * signs(name, flat.size)).tolist())
        found[name] = {
            "kind": kind(value),
            "size": [rounded(norm), rounded(along)],
            "bits": digest(value.tobytes()),
        }
    return found


def kind(array: np.ndarray) -> str:
    """Return the type and the shape of `array`."""
    return f"{array.dtype} {'x'.join(map(str, array.shape))}"


def lines(file: Path) -> list[dict[str, Any]]:
    """Read a file of JSON lines."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def curve(run: Path) -> list[dict[str, Any]]:
    """Record the log of a run."""
    found = []
    for entry in lines(run / "log.jsonl"):
        line: dict[str, Any] = {}
        for key, value in without_clock(entry).items():
            smooth = not isinstance(value, float) or any(part in key for part in _SMOOTH)
            (line if smooth else line.setdefault("bits", {}))[key] = value
        found.append(line)
    return found


def run(folder: Path) -> dict[str, Any]:
    """Record a run's folder: its log, its model, and checksums of what else it says: guesses along
    the way, scores, the examples predicted worst."""
    found: dict[str, Any] = {"log": curve(folder)}
    for name in ("samples.jsonl", "scores.json", "worst.json"):
        if (folder / name).exists():
            text = (folder / name).read_text(encoding="utf-8")
            said = lines(folder / name) if name.endswith("l") else json.loads(text)
            found[name] = bits(without_clock(said))
    if (folder / "data.json").exists():
        text = (folder / "data.json").read_text(encoding="utf-8")
        found["data.json"] = checksum(without_clock(json.loads(text)))
    return found | {"model": tensors(folder / "model" / "model.safetensors")}


def brief(folder: Path) -> dict[str, Any]:
    """Record a run's folder as :func:`run`, of the model a single checksum."""
    found = run(folder)
    return found | {"model": bits(found["model"])}


def answers(given: Sequence[Any]) -> dict[str, Any]:
    """Record answers: the numbers of the first ones, and a checksum of all."""
    said = [plain(each) for each in given]
    for each in said:
        if isinstance(each, dict) and each.get("unknown") == 0:
            del each["unknown"]  # a flag: only where it is raised
    some = [list(map(rounded, floats(each)[:_FLOATS])) for each in said[:_ANSWERS]]
    return {"floats": some, **bits(said)}


def answered(model: Path, texts: Sequence[Any]) -> dict[str, Any]:
    """Record what a model answers to texts, in each precision, to all together and to the first
    alone."""
    found = {}
    for precision in PRECISIONS:
        predictor = bertine.Predictor.load(model, "cpu", precision, threads=1)
        found[precision] = {
            "all": answers(predictor.predict(texts)),
            "one": answers([predictor.predict([text])[0] for text in texts[:1]]),
        }
    return found


def scores(metrics: dict[str, float]) -> dict[str, Any]:
    """Record metrics: losses, and what counts hits and misses."""
    said = plain(metrics)
    return {**{key: value for key, value in said.items() if "loss" in key}, "bits": said}


def judged(model: Path, data: Path, **options: Any) -> dict[str, Any]:
    """Record the scores of a model on labelled examples, its worst mistakes among them."""
    report = bertine.evaluate(
        model, data, device="cpu", precision="fp32", show_progress=False, **options
    )
    return {
        "metrics": scores(report.metrics),
        "report": bits(without_clock(plain(report.to_dict()))),
    }


def vectors(found: np.ndarray) -> dict[str, Any]:
    """Record an array of vectors: its type and shape, the first numbers of some rows, and the
    checksum of its bytes."""
    rows = found.reshape(-1, found.shape[-1])
    some = rows[:: max(1, len(rows) // 4)][:4, :_NUMBERS].astype(np.float64)
    return {
        "kind": kind(found),
        "floats": [[rounded(number) for number in row] for row in some.tolist()],
        "bits": digest(np.ascontiguousarray(found).tobytes()),
    }
