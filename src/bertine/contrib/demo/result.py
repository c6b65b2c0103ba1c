"""Collect the result of the demo, ask its models for examples, and write its page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bertine.contrib.demo import texts
from bertine.contrib.demo.texts import (
    BUNDLED_MODEL,
    MASKED,
    TEACHER,
    DemoRecipe,
    DemoScores,
    TextCounts,
)
from bertine.core.console import Report, human_count, human_time
from bertine.core.names import WORDPIECE_MASK
from bertine.core.rng import generator
from bertine.corpora.prepare import PrepareReport
from bertine.hub.model_directory import load_model
from bertine.inference.fill_mask import fill_mask
from bertine.reports.curves import term_curves
from bertine.reports.html import (
    Commands,
    Fact,
    FactList,
    Figure,
    Figures,
    Guess,
    Note,
    Page,
    PageTable,
    Section,
)
from bertine.reports.plots import Bar, comparison
from bertine.reports.run_files import LogRow
from bertine.tasks.classification import Prediction
from bertine.tokenization.tokenizer import Tokenizer
from bertine.tokenization.vocab import VocabReport

# Examples: filled masks, and passages with the predicted subjects.

#: The number of words of example sentences: short enough to read, long enough to predict from.
_FEWEST_WORDS, _MOST_WORDS = 8, 18


@dataclass(frozen=True)
class MaskedSentence:
    """A sentence with one mask, and the original word (None if the sentence is invented)."""

    text: str
    truth: str | None = None


@dataclass(frozen=True)
class FilledSentence:
    """A masked sentence and a model's predictions, best first."""

    masked: MaskedSentence
    guesses: tuple[Guess, ...]

    def line(self) -> str:
        """Write the predictions in one line."""
        return ", ".join(f"{guess.shown} {guess.probability:.0%}" for guess in self.guesses)


@dataclass(frozen=True)
class AnsweredPassage:
    """A test passage, and a model's answer to it."""

    passage: texts.Passage
    predicted: str
    probability: float

    @property
    def right(self) -> bool:
        """Whether the answer is the true subject."""
        return self.predicted == self.passage.subject

    def line(self) -> str:
        """Write the answer for the terminal."""
        truth = "right" if self.right else f"wrong, it is {self.passage.subject}"
        words = " ".join(self.passage.text.split()[:11])
        return f'"{words} ..."\n    {self.predicted} ({self.probability:.0%}): {truth}'


def masked_from_articles(
    tokenizers: Sequence[Tokenizer], number: int, seed: int
) -> list[MaskedSentence]:
    """Find example sentences in the test passages: the first fitting ones, one an article, with
    alternating subjects. One word of each is masked: drawn at random, but whole in all vocabularies
    and of at least four letters."""
    masked: list[MaskedSentence] = []
    seen: set[str] = set()
    draw = generator(seed, "demo masks")
    for passage in texts.passages("test"):
        sentences = [
            sentence
            for sentence in re.split(r"(?<=[.!?]) (?=[A-Z])", passage.text)
            if _FEWEST_WORDS <= len(sentence.split()) <= _MOST_WORDS and '"' not in sentence
        ]
        if not sentences or passage.article in seen:
            continue
        sentence = sentences[0]
        words = [
            match
            for match in re.finditer(r"(?<![\w'-])[a-z]{4,}(?![\w'-])", sentence)
            if all(tokenizer.token_to_id(match[0]) is not None for tokenizer in tokenizers)
        ]
        if not words:
            continue
        word = words[int(draw.integers(len(words)))]
        seen.add(passage.article)
        text = f"{sentence[: word.start()]}{tokenizers[0].mask_text}{sentence[word.end() :]}"
        masked.append(MaskedSentence(text, word[0]))
        if len(masked) == number:
            break
    return masked


def fill(
    model: Path | str, sentences: Sequence[MaskedSentence], top_k: int = 4
) -> list[FilledSentence]:
    """Fill the mask of each sentence with `model`."""
    loaded = load_model(model)
    filled = []
    for sentence in sentences:
        mask = fill_mask(loaded, sentence.text, top_k=top_k)[0]
        guesses = tuple(Guess(c.token, c.probability) for c in mask.candidates)
        filled.append(FilledSentence(sentence, guesses))
    return filled


def first_answers(answers: Sequence[Prediction], per_subject: int) -> list[AnsweredPassage]:
    """Choose the answers to the first test passages of each subject, with alternating subjects, one
    an article, from `answers` to all passages."""
    chosen: list[AnsweredPassage] = []
    seen: dict[str, set[str]] = {}
    for passage, answer in zip(texts.passages("test"), answers, strict=True):
        articles = seen.setdefault(passage.subject, set())
        if passage.article not in articles and len(articles) < per_subject:
            articles.add(passage.article)
            chosen.append(AnsweredPassage(passage, answer.label, answer.probability))
    return chosen


# Result: the four scores, and the figures of every stage.


def spoken_time(seconds: float) -> str:
    """Write a time for a sentence: "4 minutes", "2.5 minutes", "100 seconds"."""
    if seconds < 119.5:
        return f"{round(seconds)} seconds"
    return f"{round(seconds / 30) / 2:g} minutes"


@dataclass(frozen=True, repr=False)
class DemoResult(Report):
    """The result of a demo.

    Attributes:
        out: the folder of the demo.
        recipe: the recipe of the demo.
        seed: random seed.
        subjects: the possible subjects of a passage.
        bundled: the scores of ``bertine-en``.
        pretrained: the scores of the model that the demo pre-trained.
        untrained: the scores of that model's random weights, before pre-training.
        tf_idf: the scores of logistic regression on tf-idf.
        unigram_entropy: the unigram entropy of the token store, in nats: the MLM loss of a model
            that knows only the frequency of each piece.
        mlm_loss, mlm_accuracy: loss and accuracy at the end of pre-training, means over the last
            lines of its log; on the training text, with unseen maskings.
        tokens: the tokens seen in pre-training.
        reading_seconds: the time of pre-training.
        seconds: stage -> time taken.
    """

    out: Path
    recipe: DemoRecipe
    seed: int
    subjects: tuple[str, ...]
    bundled: DemoScores
    pretrained: DemoScores
    untrained: DemoScores
    tf_idf: DemoScores
    unigram_entropy: float
    mlm_loss: float
    mlm_accuracy: float
    tokens: int
    reading_seconds: float
    seconds: dict[str, float]

    json_keys = (
        *("subjects", "chance", "bundled", "pretrained", "untrained", "tf_idf", "helped"),
        *("unigram_entropy", "mlm_loss", "mlm_accuracy", "tokens", "reading_seconds", "seconds"),
    )

    @property
    def report(self) -> Path:
        """The path of the HTML report."""
        return self.out / "report.html"

    @property
    def model(self) -> Path:
        """The model directory for answers: ``bertine-en``, which has learned the subjects."""
        return self.out / "model"

    @property
    def pretrained_model(self) -> Path:
        """The directory of the model that the demo pre-trained."""
        return self.out / "pretraining" / "model"

    @property
    def chance(self) -> float:
        """The accuracy of guessing."""
        return 1 / len(self.subjects)

    @property
    def models(self) -> list[DemoScores]:
        """The scores of the three models, by what they learned before the labels."""
        return [self.untrained, self.pretrained, self.bundled]

    @property
    def helped(self) -> bool:
        """Whether the model of this demo is better than random weights by more than the choice of
        articles explains (95% interval; the draws of the labels are the same for both)."""
        return self.pretrained.ahead_of(self.untrained)[1] > 0

    @property
    def total_seconds(self) -> float:
        """The time of the whole demo."""
        return sum(self.seconds.values())

    def verdict(self) -> str:
        """Describe the gain from pre-training."""
        gain, low, _ = self.pretrained.ahead_of(self.untrained)
        whole = self.bundled.ahead_of(self.untrained)[0]
        time = spoken_time(self.reading_seconds)
        if low > 0:
            first = (
                f"After {time} of pre-training a model gives {100 * gain:.0f} more right answers "
                "in 100 than one with random weights"
            )
        else:
            first = (
                f"After {time} of pre-training a model is not clearly better than one with random "
                f"weights ({100 * gain:+.1f} points)"
            )
        return f"{first}; {BUNDLED_MODEL}, a student of {TEACHER}, gives {100 * whole:.0f} more."

    def next_steps(self) -> list[tuple[str, str]]:
        """List the next steps, each with its command."""
        test = self.out / "passages" / "test.csv"
        return [
            (
                "Say what texts of your own are about, one a line",
                f"bertine predict {self.model} --input my-texts.txt",
            ),
            (
                "Score the model on the test passages",
                f"bertine evaluate {self.model} --data {test}",
            ),
            (
                "Teach it labels of your own: a csv with the columns text and label",
                f"bertine finetune text --model {BUNDLED_MODEL} --data my.csv --out my-model",
            ),
            (
                "Fill a mask",
                f'bertine fill-mask {BUNDLED_MODEL} "{MASKED[0].format(WORDPIECE_MASK)}"',
            ),
            ("See how the pre-training went", f"bertine report {self.out / 'pretraining'}"),
        ]

    def lines(self) -> list[str]:
        """Return the report as lines of text."""
        scores = [*self.models, self.tf_idf]
        width = max(len(one.name) for one in scores) + 2
        rows = [f"  {'guessing':<{width}}{self.chance:6.1%}"]
        for one in scores:
            low, high = one.interval
            rows.append(f"  {one.name:<{width}}{one.accuracy:6.1%}   {low:.1%} to {high:.1%}")
        count = len(self.tf_idf.articles)
        return [
            f"What is a passage about? Right answers to {count:,} passages of other articles,",
            f"after {self.recipe.labels} labelled passages of each subject (mean of "
            f"{self.recipe.draws} draws of the labels; 95% interval over articles):",
            *rows,
            self.verdict(),
            "",
            f"all of it took {human_time(self.total_seconds)}: "
            + ", ".join(f"{name} {human_time(time)}" for name, time in self.seconds.items()),
            f"report: {self.report}",
            f"model:  {self.model}",
            "",
            "try next:",
            *(f"  {command}" for _, command in self.next_steps()),
        ]

    def reading(self) -> str:
        """Describe how much the demo's model has read."""
        return f"{human_count(self.tokens)} tokens in {human_time(self.reading_seconds)}"


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
        result: the result of the demo.
        counts: the counts of the texts.
        log: the log of pre-training, with the names of terms.
        answers: the answers of the untrained, the pre-trained and the bundled model to the same
            passages.
        filled: the masks filled by the bundled and by the pre-trained model.
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
        command="demo",
        footer=f", seed {result.seed}, in {human_time(result.total_seconds)}. The passages are "
        "from Wikipedia (CC BY-SA 4.0; the package names the articles).",
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
        "to 45 words. All passages are from articles that none of the models was trained on. The "
        "models learn the labels in the same way. They differ in what they learned before: "
        f"nothing, the hidden words of {human_count(result.tokens)} tokens of text, or to give "
        f"texts the vectors of a better model, {TEACHER} ({BUNDLED_MODEL}, which also has a larger "
        "vocabulary and three wider layers in place of two; its teacher may have read the "
        "articles). tf-idf with logistic regression, the usual way without a language model, knows "
        "only the words of the labelled passages.",
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
