"""Make the page of the demo."""

from __future__ import annotations

from collections.abc import Sequence

from bertine.data.preparation.prepare import PrepareReport
from bertine.demo.examples import AnsweredPassage, FilledSentence
from bertine.demo.recipe import BUNDLED_MODEL, BUNDLED_TIME
from bertine.demo.result import DemoResult
from bertine.demo.texts import TextCounts
from bertine.reports.html import (
    Commands,
    Fact,
    FactList,
    Figure,
    Figures,
    Note,
    Page,
    PageTable,
    Section,
)
from bertine.reports.plots import Bar, comparison
from bertine.reports.run_curves import term_curves
from bertine.runs.log import LogRow
from bertine.terminal.console import human_count, human_time
from bertine.text.special import WORDPIECE_MASK
from bertine.text.vocab import VocabReport
from bertine.version import __version__


def demo_page(
    result: DemoResult,
    *,
    counts: TextCounts,
    vocabulary: VocabReport,
    store: PrepareReport,
    log: Sequence[LogRow],
    answers: Sequence[Sequence[AnsweredPassage]],
    filled: tuple[Sequence[FilledSentence], Sequence[FilledSentence]],
) -> Page:
    """Make the page.

    Args:
        result: of the demo.
        counts: of the texts.
        log: of pre-training, with the names of terms.
        answers: of the untrained, the pre-trained and the bundled model, to the same passages.
        filled: masks, by the bundled and by the pre-trained model.
    """
    labelled = result.recipe.labels * len(result.subjects)
    return Page(
        title="How much does pre-training help?",
        lead="In pre-training, a language model reads texts that nobody has labelled, and guesses "
        "words that are hidden in them. Then a few labels are enough to teach it a task. Here the "
        f"task is to say what a passage is about, and {labelled} labelled passages are all that "
        f"each model is shown. {result.verdict()}",
        headline=[
            *(
                Fact(score.name, f"{score.accuracy:.1%}", score.interval_text)
                for score in reversed(result.models)
            ),
            Fact(
                "tf-idf, which counts words",
                f"{result.tf_idf.accuracy:.1%}",
                result.tf_idf.interval_text,
            ),
            Fact("guessing", f"{result.chance:.1%}"),
        ],
        sections=[
            _comparison(result),
            _answers(answers),
            _masks(filled),
            Section("What to try next", [Commands(result.next_steps())]),
            _pretraining(result, log),
            _text(counts, vocabulary, store),
            _time(result),
        ],
        footer=f"Made by bertine {__version__} with 'bertine demo', seed {result.seed}, "
        f"in {human_time(result.total_seconds)}. The passages are from Wikipedia (CC BY-SA 4.0; "
        "the package names the articles).",
    )


def _comparison(result: DemoResult) -> Section:
    recipe, tf_idf = result.recipe, result.tf_idf
    scores = [*result.models, tf_idf]
    bars = [
        Bar("guessing", result.chance),
        *(
            Bar(one.name, one.accuracy, *one.interval, highlight=one is not tf_idf)
            for one in scores
        ),
    ]
    figure = Figure(
        f"Of {len(tf_idf.articles):,} test passages, right",
        comparison(bars),
        ", ".join(f"{bar.name} {bar.value:.1%}" for bar in bars),
        "The thin lines are 95% intervals: what other articles might give.",
    )
    table = PageTable(
        ["model", "mean", *(f"{number}." for number in range(1, recipe.draws + 1))],
        [
            [one.name, f"{one.accuracy:.1%}", *(f"{share:.1%}" for share in one.accuracies)]
            for one in scores
        ],
        numeric=range(1, 2 + recipe.draws),
        caption=f"The same {recipe.draws} times, each time with other labelled passages.",
    )
    doubt = [] if result.helped else [Note(result.verdict(), "warning")]
    return Section(
        "Right answers",
        [*doubt, Figures([figure], columns=2), table],
        lead=f"{len(result.subjects)} subjects, {recipe.labels} labelled passages of each, of 25 "
        "to 45 words. All passages are from articles that none of the models had read. The models "
        "learn the labels in the same way. They differ in what they read before: nothing, "
        f"{human_count(result.tokens)} tokens of text, or all that two cores can read in "
        f"{BUNDLED_TIME} (that one, {BUNDLED_MODEL}, also has a larger vocabulary and three layers "
        "of another kind in place of two). tf-idf with logistic "
        "regression, the usual way without a language model, knows only the words of the labelled "
        "passages.",
    )


def _answers(answers: Sequence[Sequence[AnsweredPassage]]) -> Section:
    rows = []
    for same in zip(*answers, strict=True):
        passage = same[0].passage
        verdicts = (
            f"{'✓' if one.right else '✗'} {one.predicted} ({one.probability:.0%})" for one in same
        )
        rows.append([f"{passage.text} ({passage.article})", passage.subject, *verdicts])
    columns = ["passage", "it is about", "random weights", "new model", BUNDLED_MODEL]
    return Section(
        "What is this passage about?",
        [PageTable(columns, rows)],
        lead="The first test passages of each subject, not chosen for their answers.",
    )


def _masks(filled: tuple[Sequence[FilledSentence], Sequence[FilledSentence]]) -> Section:
    rows = [
        [bundled.masked.text, bundled.masked.truth or "–", bundled.line(), new.line()]
        for bundled, new in zip(*filled, strict=True)
    ]
    return Section(
        f"What stands at {WORDPIECE_MASK}?",
        [PageTable(["sentence", "hidden word", BUNDLED_MODEL, "new model"], rows)],
        lead="What the models have practised: the best guesses for a hidden word. Sentences with "
        "an answer are from the test passages, with a word hidden at random; the others were made "
        "up.",
    )


def _pretraining(result: DemoResult, log: Sequence[LogRow]) -> Section:
    options, entropy = result.recipe.pretraining, result.unigram_entropy
    speed = human_count(result.tokens / result.reading_seconds)
    knows = f"a model that knows only how frequent each piece is: {entropy:.3f}"
    size = f"{options['batch_size']} texts of at most {options['max_seq_length']} tokens"
    accuracy = f"{result.mlm_accuracy:.1%}"
    facts = [
        Fact("read", result.reading()),
        Fact("speed", f"{speed} tokens a second"),
        Fact("hidden words guessed right", accuracy, "at the end, on its own text"),
        Fact("MLM loss", f"{result.mlm_loss:.3f} nats", knows),
        Fact("batches", size),
        Fact("learning rate", f"{options['learning_rate']:g}", "warm-up and decay"),
    ]
    return Section(
        "How the new model learned",
        [Figures(term_curves(log, "mlm", entropy)), FactList(facts)],
        lead=f"{options['masked_lm_prob']:.0%} of the pieces of a text are hidden, and the model "
        "guesses them from the others (masked language modelling, MLM). The paper hides 15% and "
        "adds a second task; in minutes instead of days, more guesses teach more. The weights were "
        "random at first, with attention arranged as in trained models (mimetic initialization).",
    )


def _text(counts: TextCounts, vocabulary: VocabReport, store: PrepareReport) -> Section:
    passages, articles, manifest = counts.passages, counts.labelled_articles, store.manifest
    begin = f"the beginnings of {counts.articles:,} articles of Wikipedia"
    pieces = f"WordPiece, {vocabulary.fertility:.2f} pieces a word on held-out text"
    size = f"{manifest['num_sentences']:,} sentences, {store.store_bytes / 1e6:.1f} MB"
    shown = f"{passages['train']:,} to learn from, {passages['test']:,} to be judged on"
    sources = f"of {articles['train']:,} and {articles['test']:,} other articles"
    text = f"{begin}, {counts.characters / 1e6:.1f} million characters"
    facts = [
        Fact("text", f"{counts.words:,} words", text),
        Fact("vocabulary", f"{vocabulary.size:,} pieces", pieces),
        Fact("token store", f"{manifest['num_tokens']:,} tokens", size),
        Fact("labelled passages", shown, sources),
    ]
    return Section("The text it read", [FactList(facts)])


def _time(result: DemoResult) -> Section:
    times = {**result.seconds, "all of it": result.total_seconds}
    rows = [[name, human_time(seconds)] for name, seconds in times.items()]
    return Section("Time", [PageTable(["stage", "time"], rows, numeric=[1])])
