"""Ask the demo's models for examples: filled masks, and passages with their guessed subjects."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bertine.demo import texts
from bertine.inference.fill_mask import fill_mask
from bertine.modeldir import load_model
from bertine.reports.html import Guess
from bertine.rng import generator
from bertine.tasks.texts.classification import Prediction
from bertine.text.tokenizer import Tokenizer

#: Sentences of the articles with so many words are short enough to read, long enough to guess
#: from.
_FEWEST_WORDS, _MOST_WORDS = 8, 18


@dataclass(frozen=True)
class MaskedSentence:
    """A sentence with one mask, and what stood there (None where nobody wrote the sentence)."""

    text: str
    truth: str | None = None


@dataclass(frozen=True)
class FilledSentence:
    """A masked sentence and a model's guesses, best first."""

    masked: MaskedSentence
    guesses: tuple[Guess, ...]

    def line(self) -> str:
        """Write the guesses in one line."""
        return ", ".join(f"{guess.shown} {guess.probability:.0%}" for guess in self.guesses)


@dataclass(frozen=True)
class AnsweredPassage:
    """A test passage, and a model's answer to it."""

    passage: texts.Passage
    predicted: str
    probability: float

    @property
    def right(self) -> bool:
        """Whether it is the true subject."""
        return self.predicted == self.passage.subject

    def line(self) -> str:
        """Write the answer for the terminal."""
        truth = "right" if self.right else f"wrong, it is {self.passage.subject}"
        words = " ".join(self.passage.text.split()[:11])
        return f'"{words} ..."\n    {self.predicted} ({self.probability:.0%}): {truth}'


def masked_from_articles(
    tokenizers: Sequence[Tokenizer], number: int, seed: int
) -> list[MaskedSentence]:
    """Find the first fitting sentences of the test passages, one an article, of which the subjects
    take turns, with one word masked: drawn at random, but whole in all vocabularies and of at least
    four letters."""
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
    """Ask `model` what it would put in each sentence."""
    loaded = load_model(model)
    filled = []
    for sentence in sentences:
        mask = fill_mask(loaded, sentence.text, top_k=top_k)[0]
        guesses = tuple(Guess(c.token, c.probability) for c in mask.candidates)
        filled.append(FilledSentence(sentence, guesses))
    return filled


def first_answers(answers: Sequence[Prediction], per_subject: int) -> list[AnsweredPassage]:
    """Pick the answers to the first test passages of each subject, which take turns, one an
    article; `answers` are those to all."""
    chosen: list[AnsweredPassage] = []
    seen: dict[str, set[str]] = {}
    for passage, answer in zip(texts.passages("test"), answers, strict=True):
        articles = seen.setdefault(passage.subject, set())
        if passage.article not in articles and len(articles) < per_subject:
            articles.add(passage.article)
            chosen.append(AnsweredPassage(passage, answer.label, answer.probability))
    return chosen
