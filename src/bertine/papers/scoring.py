"""Score a pre-trained model by what needs no training: which pairs of texts belong together, which
of two sentences is right, and how long an answer takes."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import torch

from bertine.data.instances.pretraining import PretrainingData
from bertine.data.split import split
from bertine.data.store import TokenStore
from bertine.datasets.glue import glue_task
from bertine.datasets.glue_data import find_glue_labelled, glue_built, read_glue_file
from bertine.errors import BertineError
from bertine.inference.answering import Answering
from bertine.inference.compute.engine import Engine
from bertine.inference.compute.running import batch_tokens, evaluating
from bertine.inference.heldout import EVALUATION_TOKENS
from bertine.inference.minimal_pairs.blimp import blimp_pairs
from bertine.inference.minimal_pairs.evaluate_pairs import judge_pairs, open_log_probability
from bertine.modeldir import load_config, load_model, model_folder
from bertine.models.model import Model
from bertine.names import InputFormat
from bertine.options.instances import InstanceSettings

#: The labels of pairs, by how they are made: 0 is the text as it stands in the document.
_LABELS = {"segment-pair": "next_sentence_label", "sentence-order": "sentence_order_label"}
#: The heads that tell such pairs apart.
_HEADS = ("nsp", "sop")
#: Pairs of each of BLiMP's 67 paradigms, of 1,000: a minute of a core for a small model, and a
#: standard error of 0.6 points.
_OF_PARADIGM = 100
#: Pairs that are answered before the clock is started.
_WARM = 20


def pair_accuracy(
    model: Path | str,
    store: Path | str,
    input_format: InputFormat,
    max_seq_length: int = InstanceSettings().max_seq_length,
) -> float:
    """Compute how often a pre-trained model tells a pair of texts that follow each other from one
    that does not, by the head that it was trained with, whatever pairs that was trained on
    (Lan et al. 2019, table 5).

    Args:
        model: directory of a model with an NSP or a SOP head.
        store: held-out text.
        input_format: ``segment-pair``: the second text is from elsewhere in half of the pairs;
            ``sentence-order``: the two are swapped.
        max_seq_length: tokens of a pair at most, fewer if the model cannot read as many.

    Returns:
        The share of 1, over about 200,000 tokens, the same pairs every time.

    Raises:
        BertineError: the model has no such head; no such store.
    """
    loaded = load_model(model)
    head = next((name for name in _HEADS if name in loaded.model.heads), None)
    if head is None:
        raise BertineError(f"{model}: has no head for pairs of sentences")
    settings = InstanceSettings(
        input_format=input_format,
        max_seq_length=min(max_seq_length, loaded.config.longest_input),
        short_seq_prob=0.0,
    )
    data = PretrainingData(TokenStore.open(store), loaded.tokenizer, settings)
    data.batch_size = min(settings.batch_size, data.instances_per_epoch)
    return _accuracy(loaded.model, head, data, _LABELS[input_format])


def _accuracy(model: Model, head: str, data: PretrainingData, label: str) -> float:
    correct = pairs = seen = number = 0
    limit = batch_tokens(torch.device("cpu"), None)
    with evaluating(model):
        while seen < EVALUATION_TOKENS and number < data.steps_per_epoch:
            whole = data.batch(number)
            for part in split(whole, limit):
                answers = model.read(head, model.encode(part)).argmax(-1)
                correct += int((answers == part.targets[label]).sum())
                pairs += part.num_sequences
            seen += whole.num_tokens
            number += 1
    if not pairs:
        raise BertineError("the held-out text has no pair of sentences; hold out more")
    return correct / pairs


def blimp_accuracy(model: Path | str) -> float:
    """Compute how often a pre-trained model finds the right one of two sentences more probable, on
    100 pairs of each paradigm of BLiMP (Warstadt et al. 2020), as ``bertine blimp`` does on all.

    Returns:
        The mean over the paradigms, a share of 1; chance is 0.5.

    Raises:
        BertineError: no such model, or it gives words no probability.
    """
    pairs = blimp_pairs().sample(_OF_PARADIGM)
    way = open_log_probability(model, precision="auto")
    return judge_pairs(way, pairs, show_progress=False).metrics["paradigm_mean"]


def answering_seconds(model: Path | str, data: Path | str, turns: int) -> list[float]:
    """Measure how long a model takes to answer all pairs of STS-B's dev set, one at a time, on the
    CPU (Sanh et al. 2019, table 3). Its head is a new one; the time does not depend on it.

    Args:
        model: directory of any encoder.
        data: folder of STS-B.
        turns: how often it is measured.

    Returns:
        Seconds of each turn, of tokenizing too, not of loading.

    Raises:
        BertineError: no such model; STS-B is not there.
    """
    found = find_glue_labelled(data, glue_task("STS-B"))
    if found is None:
        raise BertineError(f"{data}: there is no STS-B here")
    task_of_glue, files = found
    examples = read_glue_file(files[""], task_of_glue)
    task = glue_built(task_of_glue, examples, max_length=128)
    loaded = load_model(model, heads=task.heads(load_config(model_folder(model))))
    # In one precision for all models: a faster one is chosen by a check that some do not pass.
    engine = Engine(loaded.model, precision="fp32")
    answering = Answering(engine, task, loaded.tokenizer)
    singles = [replace(examples, items=[item]) for item in examples.items]
    for single in singles[:_WARM]:
        answering.answer(single)
    seconds = []
    for _ in range(turns):
        began = time.perf_counter()
        for single in singles:
            answering.answer(single)
        seconds.append(time.perf_counter() - began)
    return seconds
