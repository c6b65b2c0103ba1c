"""Do one step of a table: call a verb once, and record its result."""

from __future__ import annotations

import json
import platform
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from bertine.contrib.elmo.pretrain import pretrain_elmo
from bertine.contrib.feature_based.feature_based import feature_based
from bertine.contrib.options import ElmoOptions
from bertine.contrib.papers.table import split_text
from bertine.core.errors import BertineError
from bertine.core.files import read_json_object, write_json
from bertine.core.foreign_files import open_tensors
from bertine.core.names import InputFormat, __version__
from bertine.corpora.batch import split
from bertine.corpora.prepare import prepare
from bertine.corpora.pretraining_data import PretrainingData
from bertine.corpora.store import TokenStore
from bertine.datasets.glue import find_glue_labelled, glue_task, read_glue_file
from bertine.hub.model_directory import load_config, load_model, model_folder, save_model
from bertine.inference.compute import Engine, batch_tokens, evaluating
from bertine.inference.heldout import EVALUATION_TOKENS
from bertine.inference.minimal_pairs.evaluate_pairs import (
    blimp_pairs,
    judge_pairs,
    open_log_probability,
)
from bertine.inference.predictor import Pipeline
from bertine.models.family import read_config
from bertine.models.heads import Model
from bertine.models.precision import seeded
from bertine.options.pretraining import InstanceSettings
from bertine.tokenization.vocab import train_vocab
from bertine.training.checkpoint import checkpoint_path
from bertine.training.distillation.distill import distill
from bertine.training.experiment import Job
from bertine.training.finetuning.finetune import finetune
from bertine.training.job_folder import refuse_changes
from bertine.training.pretraining.pretrain import pretrain
from bertine.training.search.search import search

# Scores without training, for a pre-trained model: which pairs of texts belong together, which of
# two sentences is acceptable, and how long an answer takes.

#: The labels of pairs by input format; 0 is the original order of the document.
_LABELS = {"segment-pair": "next_sentence_label", "sentence-order": "sentence_order_label"}
#: The heads that classify such pairs.
_HEADS = ("nsp", "sop")
#: The number of pairs from each of BLiMP's 67 paradigms, out of 1,000. They take a minute of a core
#: for a small model, and give a standard error of 0.6 points.
_OF_PARADIGM = 100
#: The number of pairs that are answered before the measurement.
_WARM = 20


def pair_accuracy(
    model: Path | str,
    store: Path | str,
    input_format: InputFormat,
    max_seq_length: int = InstanceSettings().max_seq_length,
) -> float:
    """Compute how often a pre-trained model recognizes whether one text of a pair follows the
    other, by the head that it was trained with, on any kind of pairs (Lan et al. 2019, table 5).

    Args:
        model: directory of a model with an NSP or a SOP head.
        store: held-out text.
        input_format: ``segment-pair``: the second text is from elsewhere in half of the pairs;
            ``sentence-order``: the two are swapped.
        max_seq_length: tokens of a pair at most, fewer if the model cannot read as many.

    Returns:
        The accuracy as a share of 1, over about 200,000 tokens, the same pairs every time.

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
    """Compute how often a pre-trained model gives the acceptable one of two sentences the higher
    probability, on 100 pairs of each paradigm of BLiMP (Warstadt et al. 2020). ``bertine blimp``
    does the same on all pairs.

    Returns:
        The mean over the paradigms, a share of 1; chance is 0.5.

    Raises:
        BertineError: no such model, or it does not predict words.
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
        turns: the number of measurements.

    Returns:
        Seconds of each turn, with tokenizing, without loading.

    Raises:
        BertineError: no such model; STS-B is missing.
    """
    result = find_glue_labelled(data, glue_task("STS-B"))
    if result is None:
        raise BertineError(f"{data}: there is no STS-B here")
    task_of_glue, files = result
    examples = read_glue_file(files[""], task_of_glue)
    task = task_of_glue.kind.from_examples(examples, max_length=128, **task_of_glue.settings)
    loaded = load_model(model, heads=task.heads(load_config(model_folder(model))))
    # In the same precision for all models: a faster one is chosen by a check that some do not pass.
    engine = Engine(loaded.model, precision="fp32")
    answering = Pipeline(engine, task, loaded.tokenizer)
    singles = [replace(examples, items=[item]) for item in examples.items]
    for single in singles[:_WARM]:
        answering.run(single)
    seconds = []
    for _ in range(turns):
        began = time.perf_counter()
        for single in singles:
            answering.run(single)
        seconds.append(time.perf_counter() - began)
    return seconds


#: The default options of training an ELMo.
_ELMO = ElmoOptions()


@dataclass(frozen=True)
class Step:
    """A call of a verb.

    Attributes:
        name: of its folder in that of the table; its record is the file ``NAME.json`` there.
        verb: of :data:`_VERBS`.
        arguments: everything that the result depends on, as JSON values.
        given: further arguments, paths that the user gave.
        inside: further arguments, paths or lists of paths below the table's folder, which other
            steps write.
        needs: names of the steps that come before.
    """

    name: str
    verb: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    given: Mapping[str, Any] = field(default_factory=dict)
    inside: Mapping[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()

    def job(self, out: Path) -> Job:
        """Return the step as a job in the table's folder."""
        log = out / "logs" / f"{self.name.replace('/', '-')}.log"
        given = {"out": str(out), "step": asdict(self)}
        # Steps that measure time run alone on the machine.
        return Job(f"{__name__}:do_step", given, log, self.needs, self.verb == "time")


def read_record(step: Step, out: Path) -> dict[str, Any] | None:
    """Return the recorded result of a step; None if it is not done.

    Raises:
        BertineError: it was done with other settings.
    """
    file = out / f"{step.name}.json"
    if not file.exists():
        return None
    record = read_json_object(file, lenient=True)
    wanted = json.loads(json.dumps(step.arguments))
    refuse_changes(file, "step", record.get("arguments", {}), wanted)
    return record


def do_step(out: str, step: dict[str, Any]) -> dict[str, Any]:
    """Do a step in the table's folder `out`, or resume it; write its record, and return that."""
    name, began = step["name"], time.monotonic()
    inside = {key: _below(Path(out), path) for key, path in step["inside"].items()}
    arguments = {**step["arguments"], **step["given"], **inside}
    record = {
        "verb": step["verb"],
        "arguments": step["arguments"],
        "result": _VERBS[step["verb"]](Path(out) / name, arguments),
        "seconds": time.monotonic() - began,
        "environment": {
            "bertine": __version__,
            "torch": torch.__version__,
            "machine": platform.machine(),
            "threads": torch.get_num_threads(),
        },
    }
    write_json(Path(out) / f"{name}.json", record)
    return record


def _below(out: Path, path: str | list[str]) -> Any:
    return str(out / path) if isinstance(path, str) else [str(out / item) for item in path]


def _of_store(
    verb: Callable[..., Any], model: str, folder: Path, arguments: dict[str, Any]
) -> dict[str, Any]:
    """Train a model on a token store; its configuration is the argument `model`."""
    _write_config(folder, arguments, model)
    result = verb(out=folder, resume=True, **arguments)
    held_out = dict(result.held_out)
    perplexity = held_out.get(f"{result.main}_perplexity")
    if perplexity is not None:
        held_out["perplexity"] = perplexity
    return {"scores": held_out, "final": result.final}


def _pretrain_elmo(folder: Path, arguments: dict[str, Any]) -> dict[str, Any]:
    result = pretrain_elmo(out=folder, resume=True, **arguments)
    scores = {} if result.held_out is None else result.held_out.scores()
    of_step = arguments.get("batch_size", _ELMO.batch_size) * arguments.get("window", _ELMO.window)
    return {"scores": scores, "final": {"loss": result.loss, "tokens": result.steps * of_step}}


def _write_config(folder: Path, arguments: dict[str, Any], name: str) -> None:
    """Write the configuration among the arguments, if there is one, to a file next to the folder,
    and pass its path as the argument `name` instead."""
    config = arguments.pop("config", None)
    if config is not None:
        file = folder.with_name(f"{folder.name}.config.json")
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, config)
        arguments[name] = str(file)


def _finetune(folder: Path, arguments: dict[str, Any]) -> dict[str, Any]:
    # The table compares the runs; baselines would be the same for all.
    result = finetune(out=folder, resume=True, baselines=False, **arguments)
    # The files of a run are kept, except its weights: there would be as many as cells.
    for file in (folder / "model").glob("*.safetensors"):
        file.unlink()
    return {"scores": result.metrics, "elapsed": result.elapsed}


def _feature_based(folder: Path, arguments: dict[str, Any]) -> dict[str, Any]:
    (row,) = arguments["rows"]
    # It has one row, so there is nothing to resume.
    shutil.rmtree(folder, ignore_errors=True)
    report = feature_based(out=folder, **arguments)
    # They can be computed again.
    shutil.rmtree(folder / "states", ignore_errors=True)
    made = report.rows[row]
    result = {"scores": made["validation"]}
    return result | ({"layer_weights": made["layer_weights"]} if "layer_weights" in made else {})


def _search(folder: Path, arguments: dict[str, Any]) -> dict[str, Any]:
    score = arguments.pop("score")
    # The scores show which epochs are best; the choice of saved weights has no effect.
    for name in ("save_best", "frozen", "calibrate"):
        arguments.pop(name, None)
    result = search(out=folder, resume=True, paper_grid=True, **arguments)
    if result.chosen is None:
        raise BertineError("all runs of the grid collapsed to one answer or failed")
    shutil.rmtree(folder / "model", ignore_errors=True)
    runs = [run for run in result.chosen.runs if run.counts]
    return {"scores": {score: [run.metrics[score] for run in runs]}, "chosen": str(result.chosen)}


def _once(verb: Callable[..., Any], folder: Path, arguments: dict[str, Any]) -> dict[str, Any]:
    """Do what cannot be resumed, unless it is done: the folder is whole or absent."""
    if not folder.exists():
        verb(out=folder, **arguments)
    return {}


def _split(folder: Path, arguments: dict[str, Any]) -> dict[str, Any]:
    return split_text(folder, **arguments)


def _snapshot(folder: Path, arguments: dict[str, Any]) -> dict[str, Any]:
    """Write the model of a run as it was after some of its steps."""
    run = Path(arguments["run"])
    loaded = load_model(run / "model")
    checkpoint = checkpoint_path(run / "checkpoints", arguments["step"])
    # A generator also has weights there, which are not the model's.
    with open_tensors(checkpoint / "model.safetensors", "pt") as stored, torch.no_grad():
        for name, weights in loaded.model.named_parameters():
            weights.copy_(stored.get_tensor(name))
    shutil.rmtree(folder, ignore_errors=True)  # left over from a killed process
    folder.mkdir(parents=True)
    save_model(folder / "model", loaded.model, loaded.tokenizer, task=loaded.task)
    return {"scores": {}, "final": {}}


def _grow(folder: Path, arguments: dict[str, Any]) -> dict[str, Any]:
    """Write a model with the layers of another configuration; missing layers are new."""
    loaded = load_model(arguments["model"])
    _write_config(folder, arguments, "config_file")
    config = read_config(Path(arguments["config_file"])).config
    # The vocabulary of a store that was given may have another size than the option says.
    config = config.replace(vocab_size=loaded.config.vocab_size)
    # A model of another type keeps no head of pre-training: it would see the tokens that such a
    # head predicts.
    same = config.model_type == loaded.config.model_type
    with seeded(0, "new layers", ""):
        grown = Model(config, dict(loaded.model.heads) if same else {})
    weights = loaded.model.state_dict()
    grown.load_state_dict(
        {name: weights[name] for name in grown.state_dict() if name in weights}, strict=False
    )
    shutil.rmtree(folder, ignore_errors=True)  # left over from a killed process
    folder.mkdir(parents=True)
    save_model(folder / "model", grown, loaded.tokenizer, task=loaded.task)
    return {}


def _pairs(folder: Path, arguments: dict[str, Any]) -> dict[str, Any]:
    store = arguments.pop("held_out")
    return {"scores": {"accuracy": pair_accuracy(store=store, **arguments)}}


def _blimp(folder: Path, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"scores": {"paradigm_mean": blimp_accuracy(arguments["model"])}}


def _time(folder: Path, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"scores": {"seconds": answering_seconds(**arguments)}}


_VERBS: dict[str, Callable[[Path, dict[str, Any]], dict[str, Any]]] = {
    "split": _split,
    "train_vocab": partial(_once, train_vocab),
    "prepare": partial(_once, prepare),
    "pretrain": partial(_of_store, pretrain, "model"),
    "pretrain_elmo": _pretrain_elmo,
    "grow": _grow,
    "snapshot": _snapshot,
    "distill": partial(_of_store, distill, "student"),
    "finetune": _finetune,
    "feature_based": _feature_based,
    "pairs": _pairs,
    "blimp": _blimp,
    "time": _time,
    "search": _search,
}
