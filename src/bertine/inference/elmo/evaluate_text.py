"""The perplexity of an ELMo's two language models on held-out text."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bertine.errors import BertineError
from bertine.inference.elmo.scoring import Perplexity, perplexity
from bertine.inference.elmo.words import read_words
from bertine.interop.elmo.directory import load_elmo
from bertine.models.precision import resolve_device, resolve_precision
from bertine.options.answering import EvaluateOptions
from bertine.options.names import option
from bertine.tasks.worst import WorstExample
from bertine.terminal.shown import Shown
from bertine.text.corpus import Corpus

#: What may be said of how text is read, and where and in what is computed.
_TAKEN = {"text_columns", "quotes", "strict", "device", "precision"}


@dataclass(repr=False)
class BothWaysReport(Shown):
    """The scores of :func:`evaluate_text`: a :class:`~bertine.tasks.report.EvaluationReport`.

    Attributes:
        scored: of all words.
        vocabulary: words of the softmax.
        source: the text.
        notes: what was mended or left out.
        worst: empty; the text has no labels.
    """

    scored: Perplexity
    vocabulary: int
    source: str
    notes: list[str] = field(default_factory=list)
    worst: list[WorstExample] = field(default_factory=list)

    @property
    def metrics(self) -> dict[str, float]:
        """Losses of a word in nats and perplexities, of both directions and of each."""
        return self.scored.scores()

    @property
    def collapsed(self) -> bool:
        """Not judged here."""
        return False

    def lines(self) -> list[str]:
        """Return the scores for people."""
        scores = self.metrics
        return [
            f"{self.scored.words:,} words and ends of sentences of {self.source}, "
            f"{self.scored.unknown:.1%} of the words not among the {self.vocabulary:,} of the "
            "softmax",
            f"perplexity {scores['perplexity']:.2f}: forwards {scores['forward_perplexity']:.2f}, "
            f"backwards {scores['backward_perplexity']:.2f}",
            *self.notes,
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "source": self.source,
            **self.metrics,
            "words": self.scored.words,
            "unknown": self.scored.unknown,
            "notes": self.notes,
        }


def evaluate_text(model: Path | str, data: Path | str, options: EvaluateOptions) -> BothWaysReport:
    """Score an ELMo that was trained here on a corpus, by its full softmax: sentences in their
    order, the state carried from one to the next. Words are found as in its training.

    Raises:
        BertineError: it has no softmax, as published ones have none; what reading the text raises;
            an option that is about labelled examples.
    """
    loaded = load_elmo(model)
    if loaded.softmax is None:
        raise BertineError(
            f"{model}: has no softmax, as published ELMos have none, so it foretells no words; "
            "train one on (bertine pretrain-elmo)"
        )
    for name in options.changed().keys() - _TAKEN:
        raise BertineError(f"{option(name)} is for labelled examples, and an ELMo reads text")
    columns = options.text_columns
    if columns is not None and not isinstance(columns, str):
        if len(columns) != 1:
            raise BertineError(f"an ELMo reads one column of text, not {len(columns)}")
        columns = columns[0]
    where = resolve_device(options.device)
    # As held-out text is scored along the way, so that both are the same number.
    dtype = resolve_precision("fp32" if options.precision == "auto" else options.precision, where)
    corpus = Corpus(data, text_column=columns, quotes=options.quotes, strict=options.strict)
    corpus.check_options()
    language = loaded.training.get("language")
    text = read_words(
        corpus,
        loaded.model.config.word_splitting,
        language if isinstance(language, str) else "en",
    )
    scored = perplexity(loaded.model.to(where), loaded.softmax.to(where), loaded.words, text, dtype)
    return BothWaysReport(scored, len(loaded.words), str(data), text.notes)
