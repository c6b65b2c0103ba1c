"""The cases: each runs in an empty folder and gives a record, a JSON value (:mod:`golden.taken`).

They use what a restructuring of the package leaves alone, and nothing else: the public names of
``bertine``, its command line, and the formats of files.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from threadpoolctl import threadpool_limits

from golden import finetuning_cases, old_cases, other_cases, pretraining_cases, text_cases
from golden.taken import without_bits

Case = Callable[[Path], dict[str, Any]]

#: By name; those of processes that are started take most of the time.
CASES: dict[str, Case] = {
    "vocabulary": text_cases.vocabulary,
    "tokens": text_cases.tokens,
    "store": text_cases.store,
    "pretrain-segments": pretraining_cases.segments,
    "pretrain-full-sentences": pretraining_cases.full_sentences,
    "pretrain-phases": pretraining_cases.phases,
    "pretrain-recipe": pretraining_cases.recipe,
    "pretrain-two-threads": pretraining_cases.threads,
    "pretrain-presets": pretraining_cases.presets,
    "pretrain-resumed": pretraining_cases.continued,
    "pretrain-extended": pretraining_cases.extended,
    "two-processes": pretraining_cases.processes,
    "embed": other_cases.embedded,
    "finetune-text": finetuning_cases.text,
    "finetune-defaults": finetuning_cases.defaults,
    "finetune-pairs": finetuning_cases.pairs,
    "finetune-windows-bf16": finetuning_cases.windows,
    "finetune-regression": finetuning_cases.regression,
    "finetune-multi-label": finetuning_cases.multi_label,
    "finetune-choice": finetuning_cases.choice,
    "finetune-spans": finetuning_cases.spans,
    "finetune-tagging": finetuning_cases.tagging,
    "finetune-frozen": finetuning_cases.frozen,
    "finetune-resumed": finetuning_cases.resumed,
    "finetune-datasets": finetuning_cases.datasets,
    "rates-and-exports": other_cases.others,
    "old-models": old_cases.models,
    "old-runs": old_cases.runs,
}
#: A file for each, without what other machines compute otherwise.
RECORDS = Path(__file__).with_name("recorded")
#: What the cases compute with.
_THREADS = 1


@contextlib.contextmanager
def as_recorded() -> Iterator[None]:
    """Compute with as many threads as the records were made with."""
    threads = torch.get_num_threads()
    torch.set_num_threads(_THREADS)
    try:
        with threadpool_limits(_THREADS, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(threads)


def run(name: str, folder: Path) -> dict[str, Any]:
    """Run a case in the empty folder `folder`; its record, as JSON gives it back."""
    # Relative paths, for notes and reports name files.
    with as_recorded(), contextlib.chdir(folder):
        record: dict[str, Any] = json.loads(json.dumps(CASES[name](Path())))
    return record


def recorded(name: str) -> dict[str, Any]:
    """Read what was recorded of a case."""
    record: dict[str, Any] = json.loads((RECORDS / f"{name}.json").read_text(encoding="utf-8"))
    return record


def write(name: str, record: dict[str, Any]) -> None:
    """Write the record of a case, without bits."""
    RECORDS.mkdir(exist_ok=True)
    text = _laid_out(without_bits(record)) + "\n"
    (RECORDS / f"{name}.json").write_text(text, encoding="utf-8")


def _laid_out(value: Any, depth: int = 0) -> str:
    """Return JSON with a line for each innermost object or list, so that changes can be read."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if not any(isinstance(item, dict | list) for item in inner):
        return json.dumps(value, ensure_ascii=False)
    start, end = "\n" + " " * (depth + 1), "\n" + " " * depth
    if isinstance(value, dict):
        parts = [f"{json.dumps(k)}: {_laid_out(v, depth + 1)}" for k, v in value.items()]
        whole = "{", "}"
    else:
        parts, whole = [_laid_out(item, depth + 1) for item in value], ("[", "]")
    short = whole[0] + ", ".join(parts) + whole[1]
    if len(short) <= 200 and "\n" not in short:
        return short
    return whole[0] + start + f",{start}".join(parts) + end + whole[1]
