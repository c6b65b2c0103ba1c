"""What the demo's models say: masks filled in sentences, passages with their guessed authors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bertine.demo import texts
from bertine.inference.fill_mask import MASK, fill_mask
from bertine.inference.predictor import Predictor
from bertine.modeldir import load_model
from bertine.rng import generator
from bertine.text.tokenizer import Tokenizer

#: Sentences of the books with so many words are short enough to read, long enough to guess from.
_FEWEST_WORDS, _MOST_WORDS = 8, 18


@dataclass(frozen=True)
class Masked:
    """A sentence with one mask, and what stood there (None where nobody wrote the sentence)."""

    text: str
    truth: str | None = None


@dataclass(frozen=True)
class Filled:
    """A masked sentence and the model's candidates: (piece, probability), best first."""

    masked: Masked
    candidates: tuple[tuple[str, float], ...]

    def line(self) -> str:
        """For the terminal."""
        guesses = ", ".join(f"{token} {share:.0%}" for token, share in self.candidates)
        truth = "" if self.masked.truth is None else f"   (in the book: {self.masked.truth})"
        return f"{self.masked.text}\n    {guesses}{truth}"


@dataclass(frozen=True)
class Answered:
    """A passage, and the author that the model names for it."""

    passage: texts.Passage
    predicted: str
    probability: float

    @property
    def right(self) -> bool:
        """Whether it is the true author."""
        return self.predicted == self.passage.author

    def line(self) -> str:
        """For the terminal."""
        truth = "right" if self.right else f"wrong, it is {self.passage.author}"
        words = " ".join(self.passage.text.split()[:11])
        return f'"{words} ..."\n    {self.predicted}, {self.probability:.0%} sure: {truth}'


def masked_from_books(tokenizer: Tokenizer, number: int, seed: int) -> list[Masked]:
    """The first fitting sentences of the test passages, of which the authors take turns, with
    one word masked: drawn at random, but whole in the vocabulary and of at least four letters."""
    found: list[Masked] = []
    draw = generator(seed, "demo masks")
    for passage in texts.passages("test"):
        sentences = [
            sentence
            for sentence in re.split(r"(?<=[.!?]) (?=[A-Z])", passage.text)
            if _FEWEST_WORDS <= len(sentence.split()) <= _MOST_WORDS and '"' not in sentence
        ]
        if not sentences:
            continue
        sentence = sentences[0]
        words = [
            match
            for match in re.finditer(r"(?<![\w'-])[a-z]{4,}(?![\w'-])", sentence)
            if tokenizer.token_to_id(match[0]) is not None
        ]
        if not words:
            continue
        word = words[int(draw.integers(len(words)))]
        text = sentence[: word.start()] + MASK + sentence[word.end() :]
        found.append(Masked(text, word[0]))
        if len(found) == number:
            break
    return found


def fill(model: Path, masked: Sequence[Masked], top_k: int = 5) -> list[Filled]:
    """What the model at `model` would put in each sentence."""
    loaded = load_model(model)
    filled = []
    for one in masked:
        mask = fill_mask(loaded, one.text, top_k=top_k)[0]
        filled.append(Filled(one, tuple((c.token, c.probability) for c in mask.candidates)))
    return filled


def answer(model: Path, per_author: int) -> list[Answered]:
    """What the model at `model` says of the first test passages of each author."""
    chosen = texts.passages("test", per_author=per_author)
    predictions = Predictor.load(model).predict([passage.text for passage in chosen])
    return [
        Answered(passage, prediction.label, prediction.probability)
        for passage, prediction in zip(chosen, predictions, strict=True)
    ]
