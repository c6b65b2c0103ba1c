"""One step of a table: a verb of Bertine, called once, and the record of what came of it.

``python -m bertine.papers.steps`` is a worker that does them.
"""

from __future__ import annotations

import json
import platform
import shutil
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from bertine.data.preparation.prepare import prepare
from bertine.errors import BertineError
from bertine.files import os_errors, read_json_object, write_json
from bertine.interop.family import read_config
from bertine.modeldir import load_model, save_model
from bertine.models.model import Model
from bertine.models.seeding import seeded
from bertine.options.elmo import ElmoOptions
from bertine.outside import open_tensors
from bertine.papers.scoring import answering_seconds, blimp_accuracy, pair_accuracy
from bertine.papers.splitting import split_text
from bertine.system import workers
from bertine.text.vocab import train_vocab
from bertine.training.distillation.distill import distill
from bertine.training.elmo.pretrain_elmo import pretrain_elmo
from bertine.training.feature_based.feature_based import feature_based
from bertine.training.finetuning.finetune import finetune
from bertine.training.loop.checkpoint import checkpoint_path
from bertine.training.pretraining.pretrain import pretrain
from bertine.training.search.search import search
from bertine.version import __version__

#: What an ELMo is trained with where nothing is said.
_ELMO = ElmoOptions()


@dataclass(frozen=True)
class Step:
    """A call of a verb.

    Attributes:
        name: of its folder in that of the table; its record is beside it, ``NAME.json``.
        verb: of :data:`_VERBS`.
        arguments: what the result depends on, JSON values.
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

    def record(self, out: Path) -> Path:
        """Return the file of its record."""
        return out / f"{self.name}.json"

    def job(self, out: Path) -> str:
        """Return the step as a line of JSON, for :func:`do_step`."""
        return json.dumps({**asdict(self), "out": str(out)})


def read_record(step: Step, out: Path) -> dict[str, Any] | None:
    """Return what came of a step; None where it is not done.

    Raises:
        BertineError: it was done with other settings.
    """
    file = step.record(out)
    if not file.exists():
        return None
    record = read_json_object(file, lenient=True)
    wanted = json.loads(json.dumps(step.arguments))
    known = record.get("arguments", {})
    for key in sorted(wanted.keys() | known.keys()):
        if wanted.get(key) != known.get(key):
            raise BertineError(
                f"{file}: was made with {key} = {known.get(key)!r}, not {wanted.get(key)!r}; give "
                "the same, or choose another folder"
            )
    return record


def do_step(line: str) -> dict[str, Any]:
    """Do a step, or go on with it where it stopped, and write its record.

    Args:
        line: what :meth:`Step.job` returned, as a line of JSON.

    Returns:
        ``done``: what came of it. Or ``error``: what went wrong, in one line.
    """
    job = json.loads(line)
    out, name = Path(job["out"]), job["name"]
    call, began = _VERBS[job["verb"]], time.monotonic()
    try:
        inside = {key: _below(out, path) for key, path in job["inside"].items()}
        result = call(out / name, {**job["arguments"], **job["given"], **inside})
    except BertineError as error:
        return {"error": " ".join(str(error).split())}
    except Exception as error:
        log = _log(job)
        with os_errors(log, "writing it"):
            log.parent.mkdir(parents=True, exist_ok=True)
            with open(log, "a", encoding="utf-8") as file:
                traceback.print_exc(file=file)
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        return {"error": f"{reason} (more in {log})"}
    record = {
        "verb": job["verb"],
        "arguments": job["arguments"],
        "result": result,
        "seconds": time.monotonic() - began,
        "environment": {
            "bertine": __version__,
            "torch": torch.__version__,
            "machine": platform.machine(),
            "threads": torch.get_num_threads(),
        },
    }
    write_json(out / f"{name}.json", record)
    return {"done": record}


def _below(out: Path, path: str | list[str]) -> Any:
    return str(out / path) if isinstance(path, str) else [str(out / each) for each in path]


def _pretrain(folder: Path, arguments: dict[str, Any]) -> dict[str, Any]:
    _write_config(folder, arguments, "model")
    resume = (folder / "run.json").exists()
    return _of_pretraining(pretrain(out=folder, resume=resume, **arguments))


def _distill(folder: Path, arguments: dict[str, Any]) -> dict[str, Any]:
    _write_config(folder, arguments, "student")
    resume = (folder / "run.json").exists()
    return _of_pretraining(distill(out=folder, resume=resume, **arguments))


def _pretrain_elmo(folder: Path, arguments: dict[str, Any]) -> dict[str, Any]:
    resume = (folder / "run.json").exists()
    result = pretrain_elmo(out=folder, resume=resume, **arguments)
    scores = {} if result.held_out is None else result.held_out.scores()
    of_step = arguments.get("batch_size", _ELMO.batch_size) * arguments.get("window", _ELMO.window)
    return {"scores": scores, "final": {"loss": result.loss, "tokens": result.steps * of_step}}


def _write_config(folder: Path, arguments: dict[str, Any], name: str) -> None:
    """Write the configuration among the arguments, if there is one, to a file beside the folder,
    and put that in its place, as the argument `name`."""
    config = arguments.pop("config", None)
    if config is not None:
        file = folder.with_name(f"{folder.name}.config.json")
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, config)
        arguments[name] = str(file)


def _of_pretraining(result: Any) -> dict[str, Any]:
    held_out = dict(result.held_out)
    perplexity = held_out.get(f"{result.main}_perplexity")
    if perplexity is not None:
        held_out["perplexity"] = perplexity
    return {"scores": held_out, "final": result.final}


def _finetune(folder: Path, arguments: dict[str, Any]) -> dict[str, Any]:
    # The table compares the runs; baselines would be the same for all.
    resume = (folder / "run.json").exists()
    result = finetune(out=folder, resume=resume, baselines=False, **arguments)
    # What a run wrote is kept but for its weights, which are as many as there are cells.
    for file in (folder / "model").glob("*.safetensors"):
        file.unlink()
    return {"scores": result.metrics, "elapsed": result.elapsed}


def _feature_based(folder: Path, arguments: dict[str, Any]) -> dict[str, Any]:
    (row,) = arguments["rows"]
    # It has one row, and nothing to go on with.
    shutil.rmtree(folder, ignore_errors=True)
    report = feature_based(out=folder, **arguments)
    # They can be computed again.
    shutil.rmtree(folder / "states", ignore_errors=True)
    made = report.rows[row]
    result = {"scores": made["validation"]}
    return result | ({"layer_weights": made["layer_weights"]} if "layer_weights" in made else {})


def _search(folder: Path, arguments: dict[str, Any]) -> dict[str, Any]:
    score, resume = arguments.pop("score"), (folder / "search.json").exists()
    # The scores say which epochs are best; what is saved does not matter.
    for name in ("save_best", "frozen", "calibrate"):
        arguments.pop(name, None)
    result = search(out=folder, resume=resume, paper_grid=True, **arguments)
    if result.chosen is None:
        raise BertineError("all runs of the grid collapsed to one answer or failed")
    shutil.rmtree(folder / "model", ignore_errors=True)
    runs = [run for run in result.chosen.runs if run.counts]
    return {"scores": {score: [run.metrics[score] for run in runs]}, "chosen": str(result.chosen)}


def _train_vocab(folder: Path, arguments: dict[str, Any]) -> dict[str, Any]:
    if not folder.exists():
        train_vocab(out=folder, **arguments)
    return {}


def _prepare(folder: Path, arguments: dict[str, Any]) -> dict[str, Any]:
    if not folder.exists():
        prepare(out=folder, **arguments)
    return {}


def _split(folder: Path, arguments: dict[str, Any]) -> dict[str, Any]:
    return split_text(folder, **arguments)


def _snapshot(folder: Path, arguments: dict[str, Any]) -> dict[str, Any]:
    """Write the model of a run as it was after some of its steps."""
    run = Path(arguments["run"])
    loaded = load_model(run / "model")
    checkpoint = checkpoint_path(run / "checkpoints", arguments["step"])
    # A generator has its weights there too, which are not the model's.
    with open_tensors(checkpoint / "model.safetensors", "pt") as stored, torch.no_grad():
        for name, weights in loaded.model.named_parameters():
            weights.copy_(stored.get_tensor(name))
    shutil.rmtree(folder, ignore_errors=True)  # what a killed process left
    folder.mkdir(parents=True)
    save_model(folder / "model", loaded.model, loaded.tokenizer, task=loaded.task)
    return {"scores": {}, "final": {}}


def _grow(folder: Path, arguments: dict[str, Any]) -> dict[str, Any]:
    """Write a model with the layers of another configuration: those that it lacks are new ones."""
    loaded = load_model(arguments["model"])
    _write_config(folder, arguments, "config_file")
    config = read_config(Path(arguments["config_file"])).config
    # A model of another type keeps no head of pre-training: it sees the tokens that those guess.
    same = config.model_type == loaded.config.model_type
    with seeded(0, "new layers", ""):
        grown = Model(config, dict(loaded.model.heads) if same else {})
    weights = loaded.model.state_dict()
    grown.load_state_dict(
        {name: weights[name] for name in grown.state_dict() if name in weights}, strict=False
    )
    shutil.rmtree(folder, ignore_errors=True)  # what a killed process left
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
    "train_vocab": _train_vocab,
    "prepare": _prepare,
    "pretrain": _pretrain,
    "pretrain_elmo": _pretrain_elmo,
    "grow": _grow,
    "snapshot": _snapshot,
    "distill": _distill,
    "finetune": _finetune,
    "feature_based": _feature_based,
    "pairs": _pairs,
    "blimp": _blimp,
    "time": _time,
    "search": _search,
}


def do_quietly(line: str) -> dict[str, Any]:
    """Do a step as :func:`do_step`; what it prints goes to a file in ``logs``."""
    with workers.stderr_to(_log(json.loads(line))):
        return do_step(line)


def do_on_ray(line: str) -> dict[str, Any]:
    """Do a step on some machine of a Ray cluster, with as many threads as its task has cores."""
    import ray

    share = ray.get_runtime_context().get_assigned_resources().get("CPU", 1)
    torch.set_num_threads(max(1, int(share)))
    return do_quietly(line)


def _log(job: dict[str, Any]) -> Path:
    """Return the file for what a step prints, and for the traceback of an error that is not the
    user's."""
    return Path(job["out"]) / "logs" / f"{job['name'].replace('/', '-')}.log"


def _worker() -> workers.Work:
    def work(line: str, reply: workers.Say) -> None:
        reply(**do_quietly(line))

    return work


if __name__ == "__main__":
    workers.serve(_worker)
