"""Files of texts to distil on, and options that keep a run short."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import toys

#: What keeps a run short.
SHORT: dict[str, Any] = {"epochs": 2, "learning_rate": 1e-3, "max_length": 24, "precision": "fp32"}


def rows_of(path: Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as handle:
        return list(csv.DictReader(handle))


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    with open(path, "w", encoding="utf-8", newline="") as handle:
        writer = csv.DictWriter(handle, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def texts(folder: Path) -> Path:
    return toys.write_labelled(folder / "texts.csv", rows=64)
