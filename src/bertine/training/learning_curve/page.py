"""Make the page of a learning curve: the plot, the table, what to use now."""

from __future__ import annotations

from bertine.reports import html
from bertine.reports.html import Fact, Figure, Figures, Note, PageTable, Section
from bertine.reports.learning_plot import Line, learning_plot, seconds_plot
from bertine.reports.run_sections import sentence
from bertine.training.learning_curve.result import LearningCurve
from bertine.version import __version__


def curve_page(result: LearningCurve) -> html.Page:
    """Make the page of a curve."""
    last = result.last
    headline = []
    if last:
        best = last[0]
        headline = [
            Fact("best now", best.way, f"with {best.num_labels:,} labels"),
            Fact(result.score_title, f"{best.score:.1%}", f"{best.low:.1%} to {best.high:.1%}"),
        ]
    ahead = result.outlook()
    if ahead is not None:
        value = f"{100 * ahead.gain:+.1f} points"
        note = f"{100 * ahead.low:+.1f} to {100 * ahead.high:+.1f}"
        headline.append(Fact("twice as many labels", value, note))
    curves = {way: result.curve(way) for way in result.ways}
    scores = [
        Line(way, [(p.num_labels, p.score, p.low, p.high) for p in points])
        for way, points in curves.items()
    ]
    seconds = [
        (way, [(p.num_labels, p.train_seconds) for p in points]) for way, points in curves.items()
    ]
    alt = "; ".join(
        f"{way}: " + ", ".join(f"{p.score:.1%} with {p.num_labels}" for p in points)
        for way, points in curves.items()
    )
    caption = (
        "The mean of the draws with its 95% interval on new texts: the spread of the draws and "
        f"that of the {result.num_tested:,} test examples."
    )
    pictures = [
        Figure(result.score_title, learning_plot(scores), alt, caption),
        Figure(
            "seconds of training",
            seconds_plot(seconds),
            "; ".join(
                f"{way}: " + ", ".join(f"{p.train_seconds:.1f} s" for p in points)
                for way, points in curves.items()
            ),
            "The model is loaded already.",
        ),
    ]
    rows = result.rows()
    return html.Page(
        title="Learning curve",
        lead=" ".join(result.sentences()),
        headline=headline,
        sections=[
            Section(
                "Scores and labels",
                [Figures(pictures, columns=2), PageTable(rows[0], rows[1:], numeric=(0, 2, 4, 5))],
                lead=f"{result.source}; each way learned from the same draws, and answered the "
                "same test examples.",
            ),
            Section(
                "How far to trust it",
                [
                    *(Note(sentence(note), "warning") for note in result.notes),
                    Note(
                        "Draws take the same number of examples of each class, so that the curve "
                        "up to the last point is of more even classes than the file has. What "
                        "twice as many labels would bring is the power law of the last points of "
                        "the curve: a guess with an interval, not a promise."
                    ),
                ],
            ),
        ],
        footer=f"Made by bertine {__version__} with 'bertine learning-curve'.",
    )
