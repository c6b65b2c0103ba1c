"""Small files of annotation tools, with labels and spans."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

#: The files of :func:`write_files`.
NAMES = (
    "label-studio.json",
    "short.json",
    "short.csv",
    "doccano.jsonl",
    "prodigy.jsonl",
    "spacy.json",
    "argilla.json",
    "brat.ann",
)


def write_files(folder: Path, rows: Sequence[tuple[str, str]]) -> None:
    """Write a file of every tool with these texts and labels, and a span in each text."""
    studio, short, doccano, prodigy, spacy, argilla = (list[Any]() for _ in range(6))
    for number, (text, label) in enumerate(rows):
        end = text.find(" ") % (len(text) + 1)
        named = {"start": 0, "end": end, "label": "X"}
        value = {"start": 0, "end": end, "text": text[:end], "labels": ["X"]}
        regions = [
            {"from_name": "a", "to_name": "t", "type": "labels", "value": value},
            {"from_name": "b", "to_name": "t", "type": "choices", "value": {"choices": [label]}},
        ]
        answers = [{"result": regions, "was_cancelled": False}] * (1 + number % 2)
        studio.append({"id": number, "data": {"text": text}, "annotations": answers})
        about = {"annotator": 1, "annotation_id": number, "lead_time": 1.5}
        short.append({"text": text, "id": number, "a": [value], "b": label, **about})
        doccano.append({"id": number, "text": text, "label": [[0, end, "X"]]})
        token = {"text": text[:end], "start": 0, "end": end, "id": 0}
        prodigy.append({"text": text, "tokens": [token], "spans": [named], "answer": "accept"})
        spacy.append([text, {"entities": [[0, end, "X"]], "cats": {label: 1.0}}])
        given = {"b": [{"value": label, "user_id": "u"}], "a": [{"value": [named]}]}
        argilla.append({"id": number, "fields": {"text": text}, "responses": given})
    for name, items in zip(NAMES[:2], (studio, short), strict=True):
        (folder / name).write_text(json.dumps(items))
    cells = [[json.dumps(item[key]).strip('"') for key in item] for item in short]
    lines = [",".join(f'"{cell.replace(chr(34), chr(34) * 2)}"' for cell in row) for row in cells]
    (folder / "short.csv").write_text("\n".join([",".join(short[0]), *lines]) + "\n")
    for name, items in zip(NAMES[3:5], (doccano, prodigy), strict=True):
        (folder / name).write_text("".join(json.dumps(item) + "\n" for item in items))
    for name, items in zip(NAMES[5:7], (spacy, argilla), strict=True):
        (folder / name).write_text(json.dumps(items))
    (folder / "brat.txt").write_text(rows[0][0])
    (folder / "brat.ann").write_text(f"T1\tX 0 3\t{rows[0][0][:3]}\nR1\tis Arg1:T1 Arg2:T1\n")
