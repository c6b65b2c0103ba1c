"""Hold the configurations of ``bertine pretrain`` by name: those of papers, and a quick one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml


def read_recipe(name: str) -> dict[str, Any]:
    """Return the keys and values of the recipe `name`, e.g. "quick"."""
    path = Path(__file__).with_name(f"{name}.yaml")
    values: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return values
