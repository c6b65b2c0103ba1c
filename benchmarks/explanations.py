"""Whether explanations name the word that an answer hangs on.

    python benchmarks/explanations.py --model MODEL --data FILE [--texts 200]

For each text every word is taken out of the string in turn, and the model is asked again, in fp32:
the word without which the predicted label's probability falls most is the deciding one. Of each
method it is counted how often that word is marked as speaking for the label, and how often it has
the largest contribution of all. For ``leave-one-out``, which asks the same question of the model,
both are nearly true by construction; so two more figures tell how far the probability falls when
the one to three strongest words are taken out together (more is better), and when they alone are
left (less is better). Beside the methods of ``bertine explain`` stands gradient × input, which
it once was. For models that classify single texts.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import describe_machine, machine, print_table, save_json

from bertine.core.errors import BertineError
from bertine.inference.explaining.explainer import WordContribution
from bertine.inference.explaining.target import METHODS
from bertine.inference.predictor import Predictor
from bertine.inference.rows import open_texts
from bertine.options.inference import PlainTexts
from bertine.tasks.classification import TextClassification

#: The numbers of words that are taken out, or left, together.
TOGETHER = (1, 2, 3)
GRADIENT = "gradient x input"


def read(path: Path, column: str | None, number: int, seed: int) -> list[str]:
    """So many of the file's texts, drawn at random."""
    with open_texts(path, PlainTexts(text_column=column)) as (table, name):
        texts = [table.text(row, name) for row in table]
    random.Random(seed).shuffle(texts)
    return texts[:number]


def left(text: str, words: Sequence[WordContribution], keep: bool) -> str:
    """`text` without `words`, or nothing but them."""
    if keep:
        return " ".join(word.word for word in sorted(words, key=lambda word: word.start))
    for word in sorted(words, key=lambda word: -word.start):
        text = text[: word.start] + text[word.end :]
    return text


def gradient_times_input(predictor: Predictor, text: str, words: Sequence[WordContribution]) -> Any:
    """The contributions of `words` by gradient × input at the embeddings' output, for a single
    text that is not cut."""
    encoding = predictor.tokenizer.encode(text, max_length=predictor.task.max_length)
    kept: list[torch.Tensor] = []

    def keep(module: object, inputs: object, output: torch.Tensor) -> torch.Tensor:
        kept.append(output.detach().requires_grad_())
        return kept[0]

    model = predictor.model
    handle = model.backbone.embeddings.register_forward_hook(keep)
    try:
        pooled = model.backbone(torch.tensor([encoding.input_ids])).pooler_output
        score = model.heads["classifier"](pooled)[0].max()
        (gradient,) = torch.autograd.grad(score, kept)
    finally:
        handle.remove()
    tokens = (gradient * kept[0].detach()).sum(-1).tolist()
    return [
        sum(
            share
            for share, (start, end) in zip(tokens, encoding.offsets, strict=True)
            if start < word.end and end > word.start
        )
        for word in words
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, type=Path, help="classifies single texts")
    parser.add_argument("--data", required=True, type=Path, help="a file of texts")
    parser.add_argument("--text-column")
    parser.add_argument("--texts", type=int, default=200)
    parser.add_argument("--precision", default="auto", help="of what explains; the judge is fp32")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0, help="of the texts that are drawn")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    facts = machine(arguments.threads)
    try:
        judge = Predictor.load(arguments.model, "cpu", "fp32", threads=arguments.threads)
        predictor = Predictor.load(
            arguments.model, "cpu", arguments.precision, threads=arguments.threads
        )
        texts = read(arguments.data, arguments.text_column, arguments.texts, arguments.seed)
    except BertineError as error:
        raise SystemExit(f"explanations.py: {error}") from None
    task = predictor.task
    if not isinstance(task, TextClassification) or len(task.text_columns) != 1:
        raise SystemExit("explanations.py: the model does not classify single texts")
    explainer = predictor.explainer()
    rows: dict[str, list[list[float]]] = {name: [] for name in (*METHODS, GRADIENT)}
    seconds: dict[str, list[float]] = {name: [] for name in rows}
    errors: list[tuple[float, float]] = []
    short = unmoved = 0
    for text in texts:
        before = judge.predict_one(text)
        label, sure = before.label, before.probability
        explained: dict[str, np.ndarray] = {}
        words: tuple[WordContribution, ...] = ()
        for name in METHODS:
            began = time.perf_counter()
            found = explainer.explain([text], method=name, label=label)
            seconds[name].append(time.perf_counter() - began)
            words = found.words
            explained[name] = np.array([word.contribution for word in words])
            if found.error is not None and found.baseline is not None:
                errors.append((abs(found.error), abs(found.score - found.baseline)))
        began = time.perf_counter()
        explained[GRADIENT] = np.array(gradient_times_input(predictor, text, words))
        seconds[GRADIENT].append(time.perf_counter() - began)
        if len(words) < 2:
            short += 1
            continue
        without = judge.predict([left(text, [word], keep=False) for word in words])
        falls = sure - np.array([each.probabilities[label] for each in without])
        deciding = int(falls.argmax())
        if falls[deciding] <= 0:
            unmoved += 1
            continue
        asked: list[str] = []
        for values in explained.values():
            order = np.argsort(-values, kind="stable")
            for count in TOGETHER:
                strongest = [words[at] for at in order[:count]]
                asked += [left(text, strongest, keep) for keep in (False, True)]
        sures = np.array([each.probabilities[label] for each in judge.predict(asked)])
        sures = (sure - sures).reshape(len(explained), len(TOGETHER), 2).mean(1)
        for (name, values), (out, alone) in zip(explained.items(), sures.tolist(), strict=True):
            first = int(np.argmax(values)) == deciding
            rows[name].append([float(values[deciding] > 0), float(first), out, alone])
    counted = len(rows[GRADIENT])
    print(describe_machine(facts))
    print(
        f"{len(texts)} texts of {arguments.data.name}; not counted: {short} of one word, "
        f"{unmoved} where every removal makes the label more probable; counted: {counted}\n"
    )
    if not counted:
        raise SystemExit("explanations.py: no text is left to count")
    headers = ["", "marked for", "first", "taken out", "left alone", "ms a text"]
    table: list[list[str]] = []
    result: dict[str, Any] = {}
    for name, found_rows in rows.items():
        marked, first, out, alone = np.mean(found_rows, 0).tolist()
        each = statistics.median(seconds[name])
        result[name] = {
            "marked_for": marked,
            "first": first,
            "fall_without": out,
            "fall_with_alone": alone,
            "seconds": each,
        }
        table.append(
            [
                name,
                f"{marked:.1%}",
                f"{first:.1%}",
                f"-{100 * out:.1f} points",
                f"-{100 * alone:.1f} points",
                f"{1000 * each:.0f}",
            ]
        )
    print_table(headers, table)
    absolute = np.array(errors)
    within = np.mean(absolute[:, 0] <= np.maximum(0.1, 0.05 * absolute[:, 1]))
    print(
        "\nsum of the contributions against the difference of the scores (log-odds): off by "
        f"{np.median(absolute[:, 0]):.3f} in the median, {absolute[:, 0].max():.3f} at most; "
        f"{within:.1%} within 0.1 or 5%; the differences are {np.median(absolute[:, 1]):.2f} in "
        "the median"
    )
    kept = {"machine": facts, "texts": len(texts), "counted": counted, "methods": result}
    save_json(arguments.json, {**kept, "errors": absolute.tolist()})


if __name__ == "__main__":
    main()
