"""The demo's HTML report."""

from __future__ import annotations

from collections.abc import Sequence

from bertine.data.preparation.prepare import PrepareReport
from bertine.demo import texts
from bertine.demo.curves import training_curves
from bertine.demo.examples import Answered, Filled
from bertine.demo.recipe import BUNDLED_MODEL, BUNDLED_TIME
from bertine.demo.result import DemoResult
from bertine.demo.scores import Scores
from bertine.reports import html
from bertine.reports.html import Commands, Fact, Facts, Figure, Figures, Note, Section, Table
from bertine.reports.plots import Bar, comparison
from bertine.runs.log import LogRow
from bertine.terminal.console import human_count, human_time
from bertine.text.special import WORDPIECE_MASK
from bertine.text.vocab import VocabReport
from bertine.version import __version__


def demo_page(
    result: DemoResult,
    *,
    facts: texts.Facts,
    vocabulary: VocabReport,
    store: PrepareReport,
    log: Sequence[LogRow],
    answers: Sequence[Sequence[Answered]],
    filled: tuple[Sequence[Filled], Sequence[Filled]],
) -> html.Report:
    """The whole report.

    Args:
        result: the figures.
        facts: of the texts.
        log: of pre-training.
        answers: of the untrained, the pre-trained and the bundled model, to the same passages.
        filled: masks, by the bundled and by the pre-trained model.
    """
    return html.Report(
        title="How much does pre-training help?",
        lead=_lead(result),
        headline=_headline(result),
        sections=[
            _comparison(result, facts),
            _answers(answers),
            _masks(filled),
            _next(result),
            _pretraining(result, log),
            _text(facts, vocabulary, store),
            _time(result),
        ],
        footer=f"Made by bertine {__version__} with 'bertine demo', seed {result.seed}, "
        f"in {human_time(result.total_seconds)}. The passages are from Wikipedia (CC BY-SA 4.0; "
        "the package names the articles).",
    )


def _lead(result: DemoResult) -> str:
    count = result.recipe.labels * len(result.subjects)
    return (
        "In pre-training, a language model reads texts that nobody has labelled, and guesses words "
        "that are hidden in them. "
        "Then a few labels are enough to teach it a task. Here the task is to say what a passage "
        f"is about, and {count} labelled passages are all that each model is shown. "
        + result.verdict()
    )


def _points(scores: Scores) -> str:
    low, high = scores.interval
    return f"95% interval {100 * low:.1f} to {100 * high:.1f}%"


def _headline(result: DemoResult) -> list[Fact]:
    return [
        *(
            Fact(each.name, f"{each.accuracy:.1%}", _points(each))
            for each in reversed(result.kinds)
        ),
        Fact("tf-idf, which counts words", f"{result.tf_idf.accuracy:.1%}", _points(result.tf_idf)),
        Fact("guessing", f"{result.chance:.1%}"),
    ]


def _comparison(result: DemoResult, facts: texts.Facts) -> Section:
    recipe = result.recipe
    bars = [Bar("guessing", result.chance)]
    for scores in [*result.kinds, result.tf_idf]:
        low, high = scores.interval
        bars.append(
            Bar(scores.name, scores.accuracy, low, high, highlight=scores is not result.tf_idf)
        )
    spoken = ", ".join(f"{bar.name} {bar.value:.1%}" for bar in bars)
    rows = [
        [scores.name, f"{scores.accuracy:.1%}", *(f"{share:.1%}" for share in scores.each)]
        for scores in [*result.kinds, result.tf_idf]
    ]
    draws = [f"{number}." for number in range(1, recipe.draws + 1)]
    return Section(
        "Right answers",
        [
            *([] if result.helped else [Note(result.verdict(), "warning")]),
            Figures(
                [
                    Figure(
                        f"Of {len(result.tf_idf.articles):,} test passages, right",
                        comparison(bars),
                        spoken,
                        "The thin lines are 95% intervals: what other articles might give.",
                    )
                ],
                columns=2,
            ),
            Table(
                ["model", "mean", *draws],
                rows,
                numeric=range(1, 2 + recipe.draws),
                caption=f"The same {recipe.draws} times, each time with other labelled passages.",
            ),
        ],
        lead=f"{len(facts.subjects)} subjects, {recipe.labels} labelled passages of each, of 25 "
        "to 45 words. All passages are from articles that none of the models had read. The models "
        "have the same layers, two of 256, and learn the labels in the same way. They differ in "
        f"what they read before: nothing, {human_count(result.tokens)} tokens of text, or all that "
        f"two cores can read in {BUNDLED_TIME} (with a larger vocabulary). tf-idf with logistic "
        "regression, the usual way without a language model, knows only the words of the labelled "
        "passages.",
    )


def _answers(answers: Sequence[Sequence[Answered]]) -> Section:
    def mark(one: Answered) -> str:
        return f"{'✓' if one.right else '✗'} {one.predicted} ({one.probability:.0%})"

    rows = [
        [f"{each[0].passage.text} ({each[0].passage.article})", each[0].passage.subject]
        + [mark(one) for one in each]
        for each in zip(*answers, strict=True)
    ]
    return Section(
        "What is this passage about?",
        [
            Table(
                ["passage", "it is about", "random weights", "new model", BUNDLED_MODEL],
                rows,
            )
        ],
        lead="The first test passages of each subject, not chosen for their answers.",
    )


def _masks(filled: tuple[Sequence[Filled], Sequence[Filled]]) -> Section:
    rows = [
        [one.masked.text, one.masked.truth or "–", one.guesses(), other.guesses()]
        for one, other in zip(*filled, strict=True)
    ]
    return Section(
        f"What stands at {WORDPIECE_MASK}?",
        [Table(["sentence", "hidden word", BUNDLED_MODEL, "new model"], rows)],
        lead="What the models have practised: the best guesses for a hidden word. Sentences with "
        "an answer are from the test passages, with a word hidden at random; the others were made "
        "up.",
    )


def _next(result: DemoResult) -> Section:
    return Section("What to try next", [Commands(result.next_steps())])


def _pretraining(result: DemoResult, log: Sequence[LogRow]) -> Section:
    options = result.recipe.pretraining
    return Section(
        "How the new model learned",
        [
            Figures.of_curves(training_curves(log, unigram_entropy=result.unigram_entropy)),
            Facts(
                [
                    Fact("read", result.reading()),
                    Fact(
                        "speed",
                        f"{human_count(result.tokens / result.reading_seconds)} tokens a second",
                    ),
                    Fact(
                        "hidden words guessed right",
                        f"{result.mlm_accuracy:.1%}",
                        "at the end, on its own text",
                    ),
                    Fact(
                        "MLM loss",
                        f"{result.mlm_loss:.3f} nats",
                        "a model that knows only how frequent each piece is: "
                        f"{result.unigram_entropy:.3f}",
                    ),
                    Fact(
                        "batches",
                        f"{options['batch_size']} texts of at most "
                        f"{options['max_seq_length']} tokens",
                    ),
                    Fact("learning rate", f"{options['learning_rate']:g}", "warm-up and decay"),
                ]
            ),
        ],
        lead=f"{options['masked_lm_prob']:.0%} of the pieces of a text are hidden, and the model "
        "guesses them from the others (masked language modelling, MLM). The paper hides 15% and "
        "adds a second task; in minutes instead of days, more guesses teach more. The weights were "
        "random at first, with attention arranged as in trained models (mimetic initialization).",
    )


def _text(facts: texts.Facts, vocabulary: VocabReport, store: PrepareReport) -> Section:
    counts, articles = facts.passages, facts.labelled_articles
    return Section(
        "The text it read",
        [
            Facts(
                [
                    Fact(
                        "text",
                        f"{facts.words:,} words",
                        f"the beginnings of {facts.articles:,} articles of Wikipedia, "
                        f"{facts.characters / 1e6:.1f} million characters",
                    ),
                    Fact(
                        "vocabulary",
                        f"{vocabulary.size:,} pieces",
                        f"WordPiece, {vocabulary.fertility:.2f} pieces a word on held-out text",
                    ),
                    Fact(
                        "token store",
                        f"{store.manifest['num_tokens']:,} tokens",
                        f"{store.manifest['num_sentences']:,} sentences, "
                        f"{store.store_bytes / 1e6:.1f} MB",
                    ),
                    Fact(
                        "labelled passages",
                        f"{counts['train']:,} to learn from, {counts['test']:,} to be judged on",
                        f"of {articles['train']:,} and {articles['test']:,} other articles",
                    ),
                ]
            )
        ],
    )


def _time(result: DemoResult) -> Section:
    return Section(
        "Time",
        [
            Table(
                ["stage", "time"],
                [
                    *([name, human_time(time)] for name, time in result.seconds.items()),
                    ["all of it", human_time(result.total_seconds)],
                ],
                numeric=[1],
            )
        ],
    )
