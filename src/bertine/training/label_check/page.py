"""Make the page of a check of labels: the list, and which labels are taken for which."""

from __future__ import annotations

from bertine.reports import html
from bertine.reports.html import Fact, Heat, Note, PageTable, Section
from bertine.reports.run_sections import sentence
from bertine.tasks.answer import short
from bertine.training.label_check.result import CHECKED, LabelCheck
from bertine.version import __version__

#: Rows of the list, characters of a text, labels of a matrix.
_ROWS, _TEXT, _LABELS = 500, 200, 30


def check_page(result: LabelCheck) -> html.Page:
    """Make the page of a check."""
    total, found = len(result.examples), len(result.suspects)
    headline = [
        Fact("labels that look wrong", f"{found:,}", f"of {total:,}"),
        Fact("estimated share of wrong labels", f"{result.noise.share:.1%}"),
        Fact("labels that models agree with", f"{result.accuracy:.1%}", "without having seen them"),
    ]
    rows = [
        [
            f"{each.line:,}",
            each.label,
            each.suggested,
            f"{each.probability:.0%}",
            f"{each.suggested_probability:.0%}",
            " / ".join(short(text, _TEXT) for text in each.texts),
        ]
        for each in result.suspects[:_ROWS]
    ]
    columns = ["line", "label", "suggested", "probability", "of the suggestion", "text"]
    blocks: list[html.Block] = [Note("No label looks wrong.", "good")]
    if rows:
        more = f" The first {_ROWS} of {found:,}." if found > _ROWS else ""
        blocks = [
            PageTable(
                columns,
                rows,
                numeric=(0, 3, 4),
                caption=f"The surest first; the probabilities of both labels.{more}",
            )
        ]
    if result.weak:
        text = (
            "The models do not know the task well, so most of these labels may be right: read the "
            "list from the top, and do not trust the share."
        )
        blocks.insert(0, Note(text, "warning"))
    blocks[:0] = [Note(sentence(note), "warning") for note in result.notes]
    sections = [
        Section(
            "Labels to look at",
            blocks,
            lead=f"Not every one of them is wrong. {CHECKED} has all examples with what is "
            "suggested: correct the column of the label there, and train on that file.",
        )
    ]
    if len(result.labels) <= _LABELS:
        caption = (
            "A row for each label as it is given, a column for what models are sure of that have "
            "not seen the example."
        )
        counts = result.noise.counts.tolist()
        matrix = Heat(result.labels, counts, caption=caption)
        sections.append(Section("Which label is taken for which", [matrix]))
    return html.Page(
        title="Labels that look wrong",
        lead=f"{result.every.source}. By confident learning (Northcutt et al. 2021).",
        headline=headline,
        sections=sections,
        footer=f"Made by bertine {__version__} with 'bertine check-labels'.",
    )
