"""What the demo's models say: masks filled in sentences, passages with their guessed subjects."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bertine.demo import texts
from bertine.inference.fill_mask import fill_mask
from bertine.modeldir import load_model
from bertine.reports.html import Candidate
from bertine.rng import generator
from bertine.tasks.texts.classification import Prediction
from bertine.text.tokenizer import Tokenizer

#: Sentences of the articles with so many words are short enough to read, long enough to guess
#: from.
_FEWEST_WORDS, _MOST_WORDS = 8, 18


@dataclass(frozen=True)
class Masked:
    """A sentence with one mask, and what stood there (None where nobody wrote the sentence)."""

    text: str
    truth: str | None = None


@dataclass(frozen=True)
class Filled:
    """A masked sentence and a model's candidates: (piece, probability), best first."""

    masked: Masked
    candidates: tuple[tuple[str, float], ...]

    def guesses(self) -> str:
        """Format the candidates in one line."""
        return ", ".join(
            f"{Candidate(token, share).shown} {share:.0%}" for token, share in self.candidates
        )


@dataclass(frozen=True)
class Answered:
    """A test passage, and a model's answer to it."""

    passage: texts.Passage
    predicted: str
    probability: float

    @property
    def right(self) -> bool:
        """Whether it is the true subject."""
        return self.predicted == self.passage.subject

    def line(self) -> str:
        """Format the answer for the terminal."""
        truth = "right" if self.right else f"wrong, it is {self.passage.subject}"
        words = " ".join(self.passage.text.split()[:11])
        return f'"{words} ..."\n    {self.predicted} ({self.probability:.0%}): {truth}'


def masked_from_articles(tokenizers: Sequence[Tokenizer], number: int, seed: int) -> list[Masked]:
    """Find the first fitting sentences of the test passages, one an article, of which the subjects
    take turns, with one word masked: drawn at random, but whole in all vocabularies and of at least
    four letters."""
    found: list[Masked] = []
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
        found.append(Masked(text, word[0]))
        if len(found) == number:
            break
    return found


def fill(model: Path | str, masked: Sequence[Masked], top_k: int = 4) -> list[Filled]:
    """Ask `model` what it would put in each sentence."""
    loaded = load_model(model)
    filled = []
    for one in masked:
        mask = fill_mask(loaded, one.text, top_k=top_k)[0]
        filled.append(Filled(one, tuple((c.token, c.probability) for c in mask.candidates)))
    return filled


def first_answers(answers: Sequence[Prediction], per_subject: int) -> list[Answered]:
    """Pick the answers to the first test passages of each subject, which take turns, one an
    article; `answers` are those to all."""
    chosen: list[Answered] = []
    seen: dict[str, set[str]] = {}
    for passage, answer in zip(texts.passages("test"), answers, strict=True):
        articles = seen.setdefault(passage.subject, set())
        if passage.article not in articles and len(articles) < per_subject:
            articles.add(passage.article)
            chosen.append(Answered(passage, answer.label, answer.probability))
    return chosen
