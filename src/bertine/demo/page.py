"""The demo's HTML report."""

from __future__ import annotations

from collections.abc import Sequence

import bertine
from bertine.console import human_count, human_time
from bertine.data.prepare import PrepareReport
from bertine.demo import texts
from bertine.demo.curves import training_curves
from bertine.demo.examples import Answered, Filled
from bertine.demo.result import DemoResult, Scores
from bertine.inference.fill_mask import MASK
from bertine.reports import html
from bertine.reports.html import Fact, Facts, Figure, Figures, Note, Section, Table
from bertine.reports.log import LogRow
from bertine.reports.plots import Bar, comparison, confusion
from bertine.tasks.report import ClassificationReport
from bertine.text.vocab import VocabReport


def demo_page(
    result: DemoResult,
    *,
    facts: texts.Facts,
    vocabulary: VocabReport,
    store: PrepareReport,
    log: Sequence[LogRow],
    tested: ClassificationReport,
    filled: Sequence[Filled],
    answered: Sequence[Answered],
) -> html.Report:
    """The whole report.

    Args:
        result: the figures.
        facts: of the books.
        log: of pre-training.
        tested: the kept model on the test passages.
        filled: masks, by the pre-trained model.
        answered: passages, by the kept model.
    """
    return html.Report(
        title="Bertine: from raw text to a model that answers",
        lead=_lead(result, facts),
        headline=_headline(result),
        sections=[
            _gain(result),
            _confusion(tested, answered),
            _pretraining(result, log),
            _masks(filled),
            _text(facts, vocabulary, store),
            _making(result),
        ],
        footer=f"Made by bertine {bertine.__version__} with 'bertine demo', seed {result.seed}, "
        f"in {human_time(result.total_seconds)}. The books are in the public domain in the "
        "United States.",
    )


def _lead(result: DemoResult, facts: texts.Facts) -> str:
    books = len(facts.titles("pre-training"))
    return (
        f"A small BERT read {books} old novels without any labels, learning to guess hidden "
        f"words. Then it was shown {result.recipe.train_per_author} labelled passages of each of "
        f"{len(facts.authors)} authors, and asked who wrote passages of other books. "
        + result.verdict()
    )


def _points(scores: Scores) -> str:
    low, high = scores.interval
    return f"95% interval {100 * low:.1f} to {100 * high:.1f}%"


def _headline(result: DemoResult) -> list[Fact]:
    with_it, without = result.pretrained, result.untrained
    return [
        Fact("right with pre-training", f"{with_it.accuracy:.1%}", _points(with_it)),
        Fact("right without it", f"{without.accuracy:.1%}", _points(without)),
        Fact("right by always naming one author", f"{result.majority:.1%}"),
        Fact(
            "nats below the unigram entropy",
            f"{result.unigram_entropy - result.mlm_loss:.2f}",
            f"MLM loss {result.mlm_loss:.2f}, unigram entropy {result.unigram_entropy:.2f}",
        ),
        Fact("from raw text to this page", human_time(result.total_seconds)),
    ]


def _gain(result: DemoResult) -> Section:
    recipe = result.recipe
    bars = [Bar("most frequent author", result.majority)]
    for scores in (result.untrained, result.pretrained):
        low, high = scores.interval
        bars.append(
            Bar(scores.name, scores.accuracy, low, high, highlight=scores is result.pretrained)
        )
    spoken = ", ".join(f"{bar.name} {bar.value:.1%}" for bar in bars)
    runs = len(result.pretrained.test)
    rows = []
    for scores in (result.untrained, result.pretrained):
        rows += [
            [f"{scores.name}, run {run}", f"{on_validation:.1%}", f"{on_test:.1%}"]
            for run, (on_validation, on_test) in enumerate(
                zip(scores.validation, scores.test, strict=True), 1
            )
        ]
    return Section(
        "Did pre-training help?",
        [
            Note(result.verdict(), "good" if result.helped else "warning"),
            Figures(
                [
                    Figure(
                        "Accuracy on the test passages",
                        comparison(bars),
                        spoken,
                        "The thin lines are 95% intervals: what another draw of as many passages "
                        "might give.",
                    )
                ],
                columns=2,
            ),
            Table(
                ["model", "validation", "test"],
                rows,
                numeric=[1, 2],
                caption="Accuracy of each run. Runs of a kind differ in their seeds only.",
            ),
        ],
        lead=f"{result.pretrained.num_test:,} test passages of 25 to 40 words, from books that "
        "neither pre-training nor fine-tuning had seen. Layers, vocabulary, passages, epochs and "
        "seeds are the same for both models. One starts from the pre-trained weights "
        f"(learning rate {recipe.finetune_learning_rate:g}), the other from random ones "
        f"({recipe.scratch_learning_rate:g})."
        + (f" Bars are means of {runs} runs." if runs > 1 else ""),
    )


def _confusion(tested: ClassificationReport, answered: Sequence[Answered]) -> Section:
    right = tested.metrics["accuracy"]
    return Section(
        "Who wrote it?",
        [
            Figures(
                [
                    Figure(
                        "Answers of the kept model",
                        confusion(tested.labels, tested.confusion),
                        f"Confusion matrix: {right:.1%} of {tested.num_examples} passages right",
                        "A row for each true author. On the diagonal: right.",
                    )
                ],
                columns=2,
            ),
            html.ClassifiedTexts(
                [
                    html.Classified(
                        one.passage.text,
                        one.predicted,
                        one.probability,
                        one.passage.author,
                        f"{one.passage.title} ({one.passage.year})",
                    )
                    for one in answered
                ]
            ),
        ],
        lead=f"The model that was kept, the best on the validation passages, is right on "
        f"{right:.1%} of the test passages. Below the matrix: the first test passages of each "
        "author's books, not chosen for their answers.",
    )


def _pretraining(result: DemoResult, log: Sequence[LogRow]) -> Section:
    recipe = result.recipe
    blocks: list[html.Block] = []
    if result.plan.shortened:
        blocks.append(Note("; ".join(result.plan.lines()), "warning"))
    blocks += [
        Figures.of_curves(training_curves(log, unigram_entropy=result.unigram_entropy)),
        Facts(
            [
                Fact(
                    "MLM loss",
                    f"{result.mlm_loss:.3f} nats",
                    "at the end of pre-training, on its own text",
                ),
                Fact("unigram entropy", f"{result.unigram_entropy:.3f} nats", "the line to beat"),
                Fact("MLM accuracy", f"{result.mlm_accuracy:.1%}"),
                Fact("NSP accuracy", f"{result.nsp_accuracy:.1%}", "guessing gives 50%"),
                Fact("tokens seen", human_count(result.tokens)),
                Fact("speed", f"{human_count(result.tokens_per_second)} tokens a second"),
                Fact(
                    "steps",
                    f"{result.plan.steps:,}",
                    "; then ".join(
                        f"{phase.share:.0%} with {phase.batch_size} sequences of "
                        f"{phase.max_seq_length} tokens"
                        for phase in recipe.phases
                    ),
                ),
                Fact(
                    "learning rate",
                    ", then ".join(f"{phase.learning_rate:g}" for phase in recipe.phases),
                    "linear warm-up and decay",
                ),
            ]
        ),
    ]
    return Section(
        "Pre-training: no labels, only text",
        blocks,
        lead="Two tasks at once, as in the paper: guess the 15% of pieces that are hidden (MLM), "
        "and tell whether the second segment follows the first (NSP). A model that only knows "
        "how frequent each piece is stays at the unigram entropy; what lies below it is context. "
        f"Sequences grow longer in {len(recipe.phases)} phases: at each change the new positions "
        "must be learnt, and the loss rises for a while.",
    )


def _masks(filled: Sequence[Filled]) -> Section:
    shown = []
    for one in filled:
        before, after = one.masked.text.split(MASK, 1)
        candidates = [html.Candidate(token, share) for token, share in one.candidates]
        shown.append(html.FilledMask(before, after, candidates, one.masked.truth))
    return Section(
        "What it puts for a hidden word",
        [html.FilledMasks(shown)],
        lead="The pre-trained model, before fine-tuning. Sentences with an answer are from the "
        "test books, with a word hidden at random; the others were made up.",
    )


def _text(facts: texts.Facts, vocabulary: VocabReport, store: PrepareReport) -> Section:
    titles = "; ".join(facts.titles("pre-training"))
    counts = facts.passages
    return Section(
        "The text, the vocabulary, the store",
        [
            Facts(
                [
                    Fact(
                        "pre-training text",
                        f"{facts.words:,} words",
                        f"{facts.documents:,} documents, {facts.characters / 1e6:.1f} million "
                        "characters",
                    ),
                    Fact(
                        "vocabulary",
                        f"{vocabulary.size:,} pieces",
                        "WordPiece, uncased" if vocabulary.lowercase else "WordPiece, cased",
                    ),
                    Fact(
                        "fertility",
                        f"{vocabulary.fertility:.3f} pieces a word",
                        "on held-out text",
                    ),
                    Fact("unknown", f"{vocabulary.unknown_share:.4%} of held-out pieces"),
                    Fact(
                        "token store",
                        f"{store.manifest['num_tokens']:,} tokens",
                        f"{store.manifest['num_sentences']:,} sentences, "
                        f"{store.store_bytes / 1e6:.1f} MB",
                    ),
                    Fact(
                        "labelled passages",
                        f"{counts['validation']:,} validation, {counts['test']:,} test",
                        "no book is in two parts",
                    ),
                ]
            ),
            Table(
                ["part", "books"],
                [
                    ["pre-training", titles],
                    *(
                        [part, "; ".join(facts.titles(part))]
                        for part in ("train", "validation", "test")
                    ),
                ],
            ),
        ],
    )


def _making(result: DemoResult) -> Section:
    return Section(
        "Time, and what to try next",
        [
            Table(
                ["stage", "time"],
                [
                    *([name, human_time(time)] for name, time in result.seconds.items()),
                    ["all of it", human_time(result.total_seconds)],
                ],
                numeric=[1],
            ),
            Table(["to", "type"], [list(step) for step in result.next_steps()]),
        ],
    )
