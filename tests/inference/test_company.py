"""Answers in company: beside other texts, from several threads, in forked processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

import bertine
import toys
from bertine.hub.model_directory import save_model
from bertine.inference.compute import why_not_int8
from bertine.models.heads import Model
from bertine.models.precision import cpu_has_bf16
from bertine.tasks.classification import TextClassification

SOURCE = Path(bertine.__file__).parents[1]
ADJECTIVES = ("old", "warm", "small")
TEXTS = [
    " ".join(toys.sentence(topic, word) for _ in range(n))
    for topic in toys.TOPICS
    for word in ADJECTIVES
    for n in (1, 2, 3)
]
#: How far the probabilities of a text may be from those it has alone (docs/serving.md).
BOUNDS = {"fp32": 1e-5, "bf16": 2e-2, "int8": 2e-2}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier with random weights that is decided."""
    torch.manual_seed(0)
    task = TextClassification(("animal", "dish", "place"), ("text",), "label", 40)
    config = toys.config()
    made = Model(config, task.heads(config)).eval()
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if parameter.dim() > 1:
                parameter.mul_(60 if "classifier" in name else 5)
        # Random weights answer nearly all alike; the bias takes away what the answers share.
        shared = np.log(chances(bertine.Predictor(made, toys.tokenizer(), task), TEXTS)).mean(0)
        for name, parameter in made.named_parameters():
            if name.endswith("classifier.out.bias"):
                parameter.sub_(torch.from_numpy(shared))
    folder = tmp_path_factory.mktemp("company") / "model"
    save_model(folder, made, toys.tokenizer(), task=task.task_info())
    return folder


def chances(predictor: bertine.Predictor, texts: list[str]) -> np.ndarray:
    return np.array([list(each.probabilities.values()) for each in predictor(texts)])


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
def test_a_text_has_the_same_answer_alone_and_beside_others(model: Path, precision: str) -> None:
    if precision == "int8" and (reason := why_not_int8()) is not None:
        pytest.skip(reason)
    if precision == "bf16" and not cpu_has_bf16():
        pytest.skip("no fast bf16 here")
    predictor = bertine.Predictor.load(model, precision=precision)
    alone = np.concatenate([chances(predictor, [text]) for text in TEXTS])
    assert np.ptp(alone, axis=0).max() > 0.05  # the texts are not all answered alike
    orders = (range(len(TEXTS)), np.random.default_rng(0).permutation(len(TEXTS)))
    for order in orders:
        for size in (2, 5, len(TEXTS)):
            for start in range(0, len(TEXTS), size):
                part = list(order[start : start + size])
                beside = chances(predictor, [TEXTS[at] for at in part])
                assert np.abs(beside - alone[part]).max() < BOUNDS[precision]
    # Alone it has the very same bits each time.
    assert (chances(predictor, TEXTS[:1]) == alone[:1]).all()


def test_eight_threads_share_a_predictor(model: Path) -> None:
    predictor = bertine.Predictor.load(model)
    expected = [chances(predictor, TEXTS[at : at + 3]) for at in range(0, len(TEXTS), 3)]
    wrong: list[object] = []

    def work(first: int) -> None:
        try:
            for turn in range(10):
                at = (first + turn) % len(expected)
                found = chances(predictor, TEXTS[3 * at : 3 * at + 3])
                if not (found == expected[at]).all():
                    wrong.append((at, found))
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


#: What a web server does that loads the application before it forks: load, compute, fork.
FORKS = """
import os, sys
import bertine
predictor = bertine.Predictor.load(sys.argv[1], precision=sys.argv[2], threads=2)
texts = ["the old cat", "the warm soup"] * 40
before = [answer.label for answer in predictor(texts)]
for _ in range(2):
    if not os.fork():
        same = [answer.label for answer in predictor(texts)] == before
        os._exit(0 if same else 1)
    assert os.wait()[1] == 0
print([answer.label for answer in predictor(texts)] == before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_processes_that_are_forked_after_loading_answer(model: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", FORKS, str(model), "fp32"],
        capture_output=True,
        text=True,
        env=environment,
        timeout=100,
    )
    assert done.stdout.strip() == "True", done.stderr
    assert done.stderr.count("computes with one thread") == 2
