"""Define the text-to-text task: summaries, translations, or any text written after reading another.

The source is Lewis et al. 2019, section 3.3.

Shape legend: B sequences in a batch, T tokens of the longest text to write.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from bertine.core.console import plural
from bertine.core.errors import BertineError
from bertine.core.names import later, option
from bertine.core.task_info import TaskInfo
from bertine.corpora.batch import Batch
from bertine.data.examples import Examples
from bertine.models.config import Config
from bertine.options.inference import DecodingOptions
from bertine.tasks.answer import Answer, short, worst_lines
from bertine.tasks.base import (
    LEAST_LENGTH,
    NONE,
    Features,
    Task,
    check_room,
    pad_features,
    setting,
    tokenized,
)
from bertine.tasks.report import EvaluationReport, require_some
from bertine.tokenization.tokenizer import Tokenizer

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from bertine.models.encoder import Encoded
    from bertine.models.generation import SearchSettings, search
    from bertine.models.heads import Model
    from bertine.objectives.losses import Term, count_targets, encode_and_decode, written_term
else:
    later(
        globals(),
        "torch models.generation:SearchSettings,search "
        "objectives.losses:count_targets,encode_and_decode,written_term",
    )

# ROUGE: ROUGE-1, -2 and -L, the scores of summaries (Lin 2004), as the field computes them today
# (google-research, ``rouge_score``, without stemming).
#
# Texts are lower-cased, and every character except a-z and digits separates words, so that letters
# of other alphabets are ignored. If most letters to write are such letters, that is meaningless;
# then words of all alphabets count, and each Chinese, Japanese or Thai character is a word, since
# these scripts do not separate words.

_PUBLISHED = re.compile(r"[a-z0-9]+")
#: Characters of scripts without spaces between words: Thai, Lao and Burmese; kana and Chinese.
_ALONE = (
    "\u0e00-\u0eff\u1000-\u109f\u3005-\u3007\u3041-\u312f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\U00020000-\U0003fffd"
)
_ALL = re.compile(rf"[{_ALONE}]|[^\W_{_ALONE}]+")
_LETTERS = re.compile(r"[^\W\d_]")


def rouge_words(text: str, *, all_alphabets: bool = False) -> list[str]:
    """Return the words of a text: those of a-z and digits, or those of all alphabets."""
    return (_ALL if all_alphabets else _PUBLISHED).findall(text.lower())


def needs_all_alphabets(wanted: Sequence[str]) -> bool:
    """Return whether most letters of the texts to write are not among a to z."""
    letters = [letter for text in wanted for letter in _LETTERS.findall(text)]
    return 2 * sum("a" <= letter.lower() <= "z" for letter in letters) < len(letters)


def rouge_n(ours: Sequence[str], wanted: Sequence[str], n: int) -> float:
    """Return the F1 of the runs of `n` words that two texts share, each as often as in both."""
    first, second = _runs(ours, n), _runs(wanted, n)
    return _f1((first & second).total(), first.total(), second.total())


def rouge_l(ours: Sequence[str], wanted: Sequence[str]) -> float:
    """Return the F1 of the longest sequence of words that both texts contain in order."""
    return _f1(longest_common(ours, wanted), len(ours), len(wanted))


def longest_common(first: Sequence[str], second: Sequence[str]) -> int:
    """Return the length of the longest common subsequence; a row of the table is the bits of one
    number (Hyyrö 2004)."""
    places: dict[str, int] = {}
    for place, word in enumerate(first):
        places[word] = places.get(word, 0) | 1 << place
    full = (1 << len(first)) - 1
    row = full
    for word in second:
        same = row & places.get(word, 0)
        row = ((row + same) | (row - same)) & full
    return len(first) - row.bit_count()


def _runs(words: Sequence[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[at : at + n]) for at in range(len(words) - n + 1))


def _f1(common: int, ours: int, wanted: int) -> float:
    return 2.0 * common / (ours + wanted) if common else 0.0


# Report: the written texts compared with their targets.

#: The most characters of a text in a report.
_SHOWN = 200


@dataclass(repr=False)
class WrittenTextReport(EvaluationReport):
    """The scores of written texts.

    Attributes:
        metrics: the means of rouge1, rouge2 and rougeL (F1), and exact_match.
        num_examples: number of scored examples.
        mean_words: of the written texts, and of the targets, as ROUGE counts them.
        collapsed: whether the same was written for every text, although the targets differ.
        examples: some written texts with their targets.
    """

    metrics: dict[str, float]
    num_examples: int
    mean_words: tuple[float, float]
    collapsed: bool
    examples: list[tuple[str, str]] = field(default_factory=list)

    json_keys = (
        *("source", "num_examples", "metrics", "mean_words", "collapsed", "examples", "notes"),
    )

    def lines(self) -> list[str]:
        """Return the scores, a few texts, and the warning of a collapse."""
        ours, wanted = self.mean_words
        lines = [
            self.headline(plural(self.num_examples, "example"), self.metrics),
            f"{ours:.1f} words are written on average, {wanted:.1f} were to be",
        ]
        for written, target in self.examples:
            lines += [f"written: {short(written, _SHOWN)}", f"     to be: {short(target, _SHOWN)}"]
        if self.collapsed:
            lines.append(
                "collapsed: the same is written for every text; train longer, or with another "
                "learning rate"
            )
        return lines + self.notes + worst_lines(self.worst)


def text_scores(written: Sequence[str], wanted: Sequence[str]) -> dict[str, float]:
    """Return the mean scores of the written texts."""
    words = partial(rouge_words, all_alphabets=needs_all_alphabets(wanted))
    sums = dict.fromkeys(("rouge1", "rouge2", "rougeL", "exact_match"), 0.0)
    for text, target in zip(written, wanted, strict=True):
        ours, theirs = words(text), words(target)
        sums["rouge1"] += rouge_n(ours, theirs, 1)
        sums["rouge2"] += rouge_n(ours, theirs, 2)
        sums["rougeL"] += rouge_l(ours, theirs)
        sums["exact_match"] += text.split() == target.split()
    return {name: value / max(1, len(wanted)) for name, value in sums.items()}


#: The number of texts in a report.
_TASK_SHOWN = 3
#: The note on scores if most letters are not among a to z.
_ALL_ALPHABETS = (
    "most letters are not among a to z: ROUGE counts words of all alphabets, each Chinese, "
    "Japanese or Thai character as one (the field's own program counts a to z alone)"
)


@dataclass(frozen=True, repr=False)
class WrittenText(Answer):
    """The text that the model writes for an input."""

    noun = "text"
    written = ("text",)

    text: str

    @property
    def decision(self) -> str:
        return self.text

    def own_cells(self) -> tuple[str, str]:
        return short(self.text), ""


@dataclass(frozen=True, slots=True)
class TextToTextFeatures(Features):
    """A text to read; `label` is the text to write, int32 [T] with its special tokens.

    Attributes:
        tokenizer: for both.
        target: the text to write, as given; "" if it is unknown.
        target_cut: number of its pieces that were cut off.
    """

    tokenizer: Tokenizer | None = None
    target: str = ""
    target_cut: int = 0


@dataclass(frozen=True)
class TextToText(Task[WrittenText]):
    """The task of writing a text after reading one, or two.

    The head is that of pre-training. A text is written token by token, greedily or with beams.

    Attributes:
        text_columns: one column, or two for pairs.
        label_column: the column of the texts to write; None if unknown.
        max_length: longest input in pieces, special tokens included; longer ones are cut.
        metric_names: the metrics by which the task is judged.
        dataset: always None.
        max_target_length: longest text to write in pieces, special tokens included.
        beams: number of sequences that are followed at once.
        length_penalty: with beams: above 0, it favours long sequences.
        no_repeat_ngram_size: no run of this many tokens is written twice; 0: no limit.
        label_smoothing: in training, the share of each target that is spread over all words.

    Raises:
        BertineError: there are not one or two text columns, or lengths have no room for text.
    """

    name: ClassVar[str] = "seq2seq"
    primary_metric: ClassVar[str] = "rougeL"
    answer: ClassVar[type[WrittenText]] = WrittenText

    text_columns: tuple[str, ...] = ("text",)
    label_column: str | None = None
    max_length: int = 128
    metric_names: tuple[str, ...] = ("rougeL",)
    dataset: str | None = None
    max_target_length: int = setting(64, always=True)
    beams: int = setting(1, always=True)
    length_penalty: float = setting(1.0)
    no_repeat_ngram_size: int = setting(0)
    label_smoothing: float = setting(0.0)

    def __post_init__(self) -> None:
        width = len(self.text_columns)
        if width not in (1, 2):
            raise BertineError(f"{self.name} takes one or two text columns, not {width}")
        for name, length, least in (
            ("max_length", self.max_length, LEAST_LENGTH[width]),
            ("max_target_length", self.max_target_length, LEAST_LENGTH[1]),
        ):
            if length < least:
                raise BertineError(f"{name} {length} leaves no room for text")
        SearchSettings.check(self._choosing())

    @property
    def head(self) -> str:
        return "lm"

    @classmethod
    def names_in(cls, label: Any) -> list[str]:
        """Return nothing, since texts are not counted by name."""
        return []

    @classmethod
    def from_examples(
        cls,
        examples: Examples,
        *,
        max_length: int = 128,
        labels: Sequence[str] | None = None,
        **settings: Any,
    ) -> TextToText:
        """Create the task from training examples; `labels` must be None."""
        if labels is not None:
            raise BertineError(f"{cls.name} has no labels")
        return cls(examples.text_columns, examples.label_column, max_length, **settings)

    def reuses(self, info: TaskInfo | None) -> bool:
        """Return True: the head is that of pre-training, which is trained further whichever task
        the model had."""
        return True

    def featurize(self, examples: Examples, tokenizer: Tokenizer) -> list[TextToTextFeatures]:
        """Tokenize both texts; longer ones are cut.

        Raises:
            BertineError: an example has another number of texts than there are columns; lengths
                have no room for text.
        """
        check_room(self.max_length, len(self.text_columns), tokenizer)
        check_room(self.max_target_length, 1, tokenizer, "a written text")
        wanted = self.examples_of([item.label or "" for item in examples.items])
        read = tokenized(examples, self.text_columns, tokenizer, self.max_length)
        write = tokenized(wanted, ("text",), tokenizer, self.max_target_length)
        features = []
        for (row, example, ids, types, cut), (*_, target, _, lost) in zip(read, write, strict=True):
            known = example.label is not None
            features.append(
                TextToTextFeatures(
                    ids,
                    types,
                    row,
                    label=target if known else None,
                    num_truncated=cut,
                    tokenizer=tokenizer,
                    target=example.label or "",
                    target_cut=lost if known else 0,
                )
            )
        return features

    def notes(self, features: Sequence[Any]) -> list[str]:
        """Return notes on how many texts were cut, those to read and those to write."""
        cut = [feature.target_cut for feature in features if feature.target_cut]
        more = []
        if cut:
            more.append(
                f"{len(cut)} of {len(features)} texts to write were cut at "
                f"{self.max_target_length} pieces ({plural(sum(cut), 'piece')} lost); "
                f"{option('max_target_length')} keeps more"
            )
        return [*super().notes(features), *more]

    def collate(self, features: Sequence[Any], pad_id: int) -> Batch:
        """Pad features into one batch; with ``target_ids`` and ``target_mask`` when every feature
        has a text to write (:mod:`bertine.objectives.losses`)."""
        batch = pad_features(features, pad_id, self.max_length)
        targets = [feature.label for feature in features if feature.label is not None]
        if len(targets) == len(features):
            lengths = np.array([len(target) for target in targets])
            real = np.arange(lengths.max()) < lengths[:, None]
            ids = np.full(real.shape, pad_id, np.int64)
            ids[real] = np.concatenate(targets)
            batch.targets["target_ids"] = torch.from_numpy(ids)
            batch.targets["target_mask"] = torch.from_numpy(real)
        return batch

    def heads(self, config: Config, **options: Any) -> dict[str, nn.Module]:
        """Return the head of a model that reads and writes.

        Raises:
            BertineError: models of this type do not; the model has fewer positions than the texts.
        """
        if not config.encodes_and_decodes or config.writes_with != self.head:
            raise BertineError(
                f"a model of type {config.model_type} writes no text after reading another; "
                f"{self.name} needs an encoder with a decoder, such as a bart"
            )
        if self.max_target_length > config.longest_input:
            raise BertineError(
                f"max_target_length is {self.max_target_length}, but the model has positions for "
                f"{config.longest_input}"
            )
        return super().heads(config, **options)

    def counts(self, batch: Batch) -> dict[str, int]:
        """Count the tokens to write."""
        return {self.head: count_targets(batch)}

    def encode(self, model: Model, batch: Batch) -> Encoded:
        """Encode the texts to read, and decode those to write."""
        return encode_and_decode(model, batch)

    def terms_of(self, model: Model, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        """Compute the cross-entropy of the texts to write."""
        return {self.head: written_term(model, encoded, batch, self.label_smoothing)}

    def outputs(self, model: Model, batch: Batch, encoded: Encoded | None = None) -> Tensor:
        """Write a text for each sequence: the ids of its tokens, -1 after the last, fp32
        [B, `max_target_length`]; vocabularies are small enough for exact integers in fp32."""
        ids, mask = batch.input_ids.cpu(), batch.attention_mask.cpu()
        texts = [row[real].tolist() for row, real in zip(ids, mask, strict=True)]
        writer, starts = model.backbone.writer(model.next_scores, texts)
        end = model.config.last_token_id
        first, forced_end = model.config.forced_tokens
        settings = SearchSettings(
            self._choosing(),
            tuple(dict.fromkeys(token for token in (forced_end, end) if token is not None)),
            first_token=first,
            ends_at_limit=forced_end is not None,
        )
        outputs = torch.full((len(texts), self.max_target_length), -1.0)
        for row, written in enumerate(search(writer, starts, settings)):
            tokens = written[0].tokens if written else ()
            outputs[row, : len(tokens)] = torch.tensor(tokens, dtype=torch.float32)
        return outputs

    def _choosing(self) -> DecodingOptions:
        return DecodingOptions(
            max_new_tokens=self.max_target_length,
            beams=self.beams,
            length_penalty=self.length_penalty,
            no_repeat_ngram_size=self.no_repeat_ngram_size,
        )

    def as_student(
        self, train: Examples[Any], max_length: int, outputs: Sequence[Any] = ()
    ) -> Self:
        """Refuse, since a teacher's texts are not supported as targets.

        Raises:
            BertineError: always.
        """
        raise BertineError(
            f"a student does not learn the task {self.name} from a teacher; fine-tune it on texts "
            "that the teacher wrote (bertine predict)"
        )

    def decode(self, outputs: Sequence[np.ndarray], features: Sequence[Any]) -> list[WrittenText]:
        """Turn the written tokens into texts."""
        answers = []
        for output, feature in zip(outputs, features, strict=True):
            tokens = output[output >= 0].astype(np.int64)
            # A model may have more rows than its tokenizer has pieces.
            known = tokens[tokens < feature.tokenizer.vocab_size]
            answers.append(WrittenText(feature.tokenizer.decode(known).strip()))
        return answers

    def losses(self, outputs: Sequence[np.ndarray], features: Sequence[Any]) -> list[float]:
        """Compute for each example 1 - ROUGE-L of the written text; nan without a target."""
        every = needs_all_alphabets([feature.target for feature in features])
        words = partial(rouge_words, all_alphabets=every)
        return [
            NONE
            if feature.label is None
            else 1.0 - rouge_l(words(answer.text), words(feature.target))
            for answer, feature in zip(self.decode(outputs, features), features, strict=True)
        ]

    def report(
        self, predictions: Sequence[WrittenText], labels: Sequence[str]
    ) -> WrittenTextReport:
        """Compute the means of rouge1, rouge2, rougeL and exact_match, with a few texts as
        examples.

        Raises:
            BertineError: there are no examples.
        """
        require_some(predictions)
        texts = [answer.text for answer in predictions]
        every = needs_all_alphabets(labels)
        words = [
            float(np.mean([len(rouge_words(text, all_alphabets=every)) for text in some]))
            for some in (texts, labels)
        ]
        return WrittenTextReport(
            text_scores(texts, labels),
            len(texts),
            (words[0], words[1]),
            collapsed=len(texts) > 1 and len(set(texts)) == 1 < len(set(labels)),
            examples=list(zip(texts[:_TASK_SHOWN], labels[:_TASK_SHOWN], strict=True)),
            notes=[_ALL_ALPHABETS] if every else [],
        )
