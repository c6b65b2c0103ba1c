"""From the tasks' files to what ``transformers`` trains on, as its documentation shows it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sides.settings import Setting, labels_of, read_file
from sides.span_inputs import span_answers, span_inputs

#: The label of a token that is not to be predicted.
_IGNORED = -100

Item = dict[str, Any]


@dataclass(frozen=True)
class Inputs:
    """A task as the loop sees it.

    Attributes:
        train: tokenized inputs with their targets.
        held: those of the held-out file.
        collate: inputs → a batch.
        new_model: the model with a fresh head.
        answers: the logits of each of `held` → what :func:`sides.scores.judge` takes.
    """

    train: list[Item]
    held: list[Item]
    collate: Callable[[list[Item]], dict[str, Tensor]]
    new_model: Callable[[], Any]
    answers: Callable[[list[np.ndarray]], Any]


def make_inputs(setting: Setting, *, padded: bool, multiple: int | None = None) -> Inputs:
    """The inputs of a task.

    Args:
        padded: batches are padded to the maximum length, not to their longest input.
        multiple: of which the lengths of batches are that are not padded to the maximum.
    """
    import transformers

    task = setting.task
    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(setting.model)
    padding: dict[str, Any] = {"pad_to_multiple_of": multiple}
    if padded:
        padding = {"padding": "max_length", "max_length": setting.max_length}
    parts = {
        "text": ("AutoModelForSequenceClassification", "DataCollatorWithPadding", _texts),
        "regression": ("AutoModelForSequenceClassification", "DataCollatorWithPadding", _texts),
        "choice": ("AutoModelForMultipleChoice", "DataCollatorForMultipleChoice", _choices),
        "tagging": (
            "AutoModelForTokenClassification",
            "DataCollatorForTokenClassification",
            _words,
        ),
        "spans": ("AutoModelForQuestionAnswering", "DataCollatorWithPadding", _spans),
    }
    model_name, collator_name, make = parts[task.kind]
    train, held, options, answers = make(setting, tokenizer)

    def new_model() -> Any:
        kind = getattr(transformers, model_name)
        return kind.from_pretrained(setting.model, dtype=torch.float32, **options)

    collate = getattr(transformers, collator_name)(tokenizer, **padding)
    return Inputs(train, held, collate, new_model, answers)


#: Inputs of training, inputs that are judged, what the model is told, and logits → answers.
Made = tuple[list[Item], list[Item], dict[str, Any], Callable[[list[np.ndarray]], Any]]


def _rows(encoded: Any) -> list[Item]:
    """Columns → rows."""
    count = len(encoded["input_ids"])
    return [{name: values[at] for name, values in encoded.items()} for at in range(count)]


def _texts(setting: Setting, tokenizer: Any) -> Made:
    task = setting.task
    train, held = (read_file(task, setting.data / name) for name in (task.train, task.held))
    labels = labels_of(task, train)

    def encode(items: Sequence[Any]) -> list[Item]:
        columns = [list(column) for column in zip(*(item.texts for item in items), strict=True)]
        return _rows(tokenizer(*columns, truncation=True, max_length=setting.max_length))

    inputs = encode(train.items)
    for row, item in zip(inputs, train.items, strict=True):
        row["labels"] = labels.index(item.label) if labels else float(item.label)

    def answers(outputs: list[np.ndarray]) -> list[Any]:
        if not labels:
            return [float(logits[0]) for logits in outputs]
        return [labels[int(logits.argmax())] for logits in outputs]

    return inputs, encode(held.items), {"num_labels": len(labels) or 1}, answers


def _choices(setting: Setting, tokenizer: Any) -> Made:
    task = setting.task

    def encode(name: str) -> list[Item]:
        made = []
        for item in read_file(task, setting.data / name).items:
            given, begun, *endings = item.texts
            encoded = tokenizer(
                [given] * len(endings),
                [f"{begun} {ending}" for ending in endings],
                truncation=True,
                max_length=setting.max_length,
            )
            made.append({**encoded, "labels": int(item.label)})
        return made

    return (
        encode(task.train),
        encode(task.held),
        {},
        lambda outputs: [int(logits.argmax()) for logits in outputs],
    )


def _words(setting: Setting, tokenizer: Any) -> Made:
    task = setting.task
    train, held = (read_file(task, setting.data / name) for name in (task.train, task.held))
    labels = labels_of(task, train)

    def encode(items: Sequence[Any]) -> tuple[list[Item], list[list[tuple[int, int]]]]:
        """Inputs, and of each the (place, word) of first pieces."""
        encoded = tokenizer(
            [list(item.words) for item in items],
            is_split_into_words=True,
            truncation=True,
            max_length=setting.max_length,
        )
        firsts = []
        for at in range(len(items)):
            words = encoded.word_ids(at)
            firsts.append(
                [
                    (place, word)
                    for place, word in enumerate(words)
                    if word is not None and words[place - 1] != word
                ]
            )
        return _rows(encoded), firsts

    inputs, firsts = encode(train.items)
    for row, item, places in zip(inputs, train.items, firsts, strict=True):
        row["labels"] = [_IGNORED] * len(row["input_ids"])
        for place, word in places:
            row["labels"][place] = labels.index(item.tags[word])
    judged, judged_firsts = encode(held.items)

    def answers(outputs: list[np.ndarray]) -> list[list[str]]:
        found = []
        for logits, item, places in zip(outputs, held.items, judged_firsts, strict=True):
            # Words that were cut off are in no entity.
            tags = ["O"] * len(item.words)
            for place, word in places:
                tags[word] = labels[int(logits[place].argmax())]
            found.append(tags)
        return found

    return inputs, judged, {"num_labels": len(labels)}, answers


def _spans(setting: Setting, tokenizer: Any) -> Made:
    task = setting.task
    options = setting.max_length, setting.doc_stride
    train, _ = span_inputs(setting.data / task.train, tokenizer, *options, targets=True)
    held, windows = span_inputs(setting.data / task.held, tokenizer, *options, targets=False)
    return train, held, {}, lambda outputs: span_answers(windows, outputs, setting)
