"""Put tables that ``bertine paper`` has run into docs/papers.md, with their plots.

    python tools/papers_page.py FOLDER ...

Of each folder the table with its scores, the order of its rows, its scale and the time it took
take the place of what stands in the page between ``<!-- NAME -->`` and ``<!-- end -->``. The plot
of the averages, or of a table without them that of its first column, becomes
``docs/_static/papers/NAME.svg``; of a curve the scores along the way. What is said about a table
is written by hand.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import statistics
from pathlib import Path
from typing import Any

from bertine.contrib.papers.table import (
    AVERAGE,
    MEASURES,
    Order,
    PaperResult,
    PaperTable,
    TableRow,
    order_line,
    read_table,
)
from bertine.core.console import human_time
from bertine.reports.plots import curves, spread

DOCS = Path(__file__).resolve().parents[1] / "docs"
PICTURES = DOCS / "_static" / "papers"


def result_of(folder: Path) -> tuple[PaperResult, dict[str, Any]]:
    """Read a table that was run, and its settings."""
    stored = json.loads((folder / "paper.json").read_text(encoding="utf-8"))
    table = read_table(stored["table"])
    if table.given:
        known = [row.name for row in table.rows]
        added = [TableRow(name, name) for name in stored["scores"] if name not in known]
        table = PaperTable(**{**vars(table), "rows": (*added, *table.rows)})
    result = PaperResult(
        table=table,
        out=folder,
        columns=tuple(stored["columns"]),
        scores=stored["scores"],
        scale=stored["scale"],
        parameters=stored["parameters"],
        seconds=stored["seconds"],
        left_out=stored["left_out"],
        failed=stored["failed"],
    )
    return result, stored["settings"]


def shown_scores(result: PaperResult, row: str) -> list[float]:
    """Return the averages of a row, or its scores of the first column where there are none."""
    return list(result.averages(row) or result.scores[row].get(result.columns[0], ()))


def picture(result: PaperResult) -> bytes:
    """Draw the averages of the rows, or the scores along the way of a curve."""
    if result.table.runs:
        names, lines = [], []
        for run in result.table.runs:
            points = [
                (100 * row.share, 100 * statistics.fmean(values))
                for row in result.table.rows
                if row.snapshot_of == run.name and (values := shown_scores(result, row.name))
            ]
            names.append(run.title)
            lines.append(([x for x, _ in points], [y for _, y in points]))
        return curves(names, lines, label="% of the steps")
    titles = {row.name: row.title for row in result.table.rows}
    shown = {row: result.averages(row) for row in result.scores}
    if not any(shown.values()):
        first = result.columns[0]
        shown = {row: list(by.get(first, ())) for row, by in result.scores.items()}
    return spread([titles[row] for row in shown], list(shown.values()))


def section(result: PaperResult, settings: dict[str, Any]) -> list[str]:
    """Write the table in Markdown, and what was measured beside it."""
    head, *rows = result.cells()
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    name = result.table.name
    averages = len([c for c in result.columns if MEASURES[c].verb == "finetune"]) > 1
    what = "Averages of the rows, a point a seed" if averages else "Scores of the rows"
    if result.table.runs:
        what = "Averages along the way" if averages else f"{result.columns[0]} along the way"
    lines += ["", f"![{what}](_static/papers/{name}.svg)", ""]
    orders: dict[str, Order] = result.orders()
    shown = [AVERAGE] if AVERAGE in orders else list(orders)
    lines += [f"- {column}: {order_line(orders[column])}" for column in shown]
    lines.append(f"- {result.scale}")
    lines.append(f"- all steps together took {human_time(result.seconds)}")
    said = {key: value for key, value in settings.items() if key != "table" and value is not None}
    if "model" in said:  # where it lies is nobody's business
        said["model"] = Path(str(said["model"])).name
    options = " ".join(f"--{key.replace('_', '-')} {value}" for key, value in said.items())
    if set(result.table.columns) != {*result.columns, *result.left_out}:
        options += " --columns " + " ".join(map(shlex.quote, result.columns))
    if {row.name for row in result.table.rows} != set(result.scores):
        options += " --rows " + " ".join(result.scores)
    lines.append(f"- `bertine paper {name} --corpus TEXTS --data DATA --out OUT {options}`")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    page = DOCS / "papers.md"
    text = page.read_text(encoding="utf-8")
    PICTURES.mkdir(parents=True, exist_ok=True)
    for folder in parser.parse_args().folders:
        result, settings = result_of(folder)
        name = result.table.name
        written = "\n".join(section(result, settings))
        place = re.compile(rf"<!-- {re.escape(name)} -->.*?<!-- end -->", re.DOTALL)
        found = place.search(text)
        if found is None:
            raise SystemExit(f"{page}: has no place <!-- {name} --> … <!-- end -->")
        block = f"<!-- {name} -->\n{written}\n<!-- end -->"
        begin, end = found.span()
        text = text[:begin] + block + text[end:]
        (PICTURES / f"{name}.svg").write_bytes(picture(result))
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
