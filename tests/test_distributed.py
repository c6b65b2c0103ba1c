"""Several processes (gloo, on the CPU) train what one process trains with the same batches."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import processes
import toys
from bertine.cli import main
from bertine.core.errors import BertineError
from bertine.hub.model_directory import save_model
from bertine.models.dropout import stream
from bertine.models.heads import Model
from bertine.objectives import choose
from bertine.training.distributed import local
from bertine.training.finetuning.finetune import finetune
from bertine.training.parallel import DataParallel
from bertine.training.pretraining.pretrain import pretrain

#: Rows do not divide by 2 nor 4, and processes have different numbers of micro-batches.
SETTINGS: dict[str, Any] = {
    "steps": 6,
    "batch_size": 13,
    "max_seq_length": 32,
    "max_tokens_per_micro_batch": 70,
    "learning_rate": 1e-3,
    "warmup_steps": 2,
    "log_every": 2,
    "checkpoint_every": 2,
    "evaluate_every": 3,
    "device": "cpu",
    "precision": "fp32",
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toys.write_store(tmp_path_factory.mktemp("toys") / "store")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Without dropout, and with weights large enough for gradients that are not all alike."""
    return toys.write_model(
        tmp_path_factory.mktemp("toys") / "model",
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.1,
    )


def train(rank: int, *, die_at: int | None = None, **given: Any) -> dict[str, Any]:
    """A process's life in a run; the last process dies before it computes step `die_at`."""
    if die_at is not None and rank == int(os.environ["WORLD_SIZE"]) - 1:
        _die(die_at)
    try:
        result = pretrain(**given)
    except BertineError as error:
        return {"error": str(error)}
    return {"loss": result.final["loss"], "held_out": result.held_out}


def _die(at: int) -> None:
    compute: Callable[..., Any] = DataParallel.accumulate

    def accumulate(self: DataParallel, batch: Any, seeds: list[int]) -> Any:
        if seeds[1] == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return compute(self, batch, seeds)

    DataParallel.accumulate = accumulate  # type: ignore[method-assign]


def together(size: int, tmp_path: Path, **given: Any) -> list[processes.End]:
    name = f"ends-{len(list(tmp_path.glob('ends-*')))}"
    return processes.run(size, tmp_path / name, train, **given)


def assert_close_runs(run: Path, single: Path) -> None:
    """Equal but for the rounding of sums in another order."""
    for mine, other in zip(toys.log(run), toys.log(single), strict=True):
        assert mine.keys() == other.keys()
        for key, value in other.items():
            if key.startswith("eval_") or "loss" in key or key == "grad_norm":
                assert mine[key] == pytest.approx(value, rel=2e-5), key
            else:
                assert mine[key] == value, key
    expected = toys.weights(single / "model")
    for name, value in toys.weights(run / "model").items():
        torch.testing.assert_close(value, expected[name], rtol=0, atol=2e-5, msg=name)


def assert_as_one_process(
    tmp_path: Path, size: int = 2, *, shard: bool = False, **options: Any
) -> None:
    """Pre-train in one process and in `size` of them, into the folders "single" and "run"."""
    options = {**SETTINGS, **options}
    pretrain(**options, out=tmp_path / "single")
    for end in together(size, tmp_path, **options, out=tmp_path / "run", shard=shard):
        assert end.status == 0, end.output
    assert_close_runs(tmp_path / "run", tmp_path / "single")


def assert_same_runs(run: Path, other: Path) -> None:
    """Bit for bit."""
    assert toys.log(run) == toys.log(other)
    assert (run / "model" / "model.safetensors").read_bytes() == (
        other / "model" / "model.safetensors"
    ).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("objective", "ways"),
    [("mlm-nsp", [(4, False), (2, True)]), ("mlm", [(2, False), (4, True)])],
)
def test_the_same_as_one_process(
    store: Path, model: Path, tmp_path: Path, objective: str, ways: list[tuple[int, bool]]
) -> None:
    """Replicas (False) and shards (True); under "mlm" the pooler has no gradient."""
    given = {"store": store, "model": model, "held_out": store, "objective": objective}
    single = pretrain(**given, out=tmp_path / "single", **SETTINGS)
    start = toys.weights(model)
    trained = toys.weights(tmp_path / "single" / "model")
    assert max(float((trained[name] - start[name]).abs().max()) for name in trained) > 1e-3
    for size, shard in ways:
        run = tmp_path / f"{size}-{shard}"
        ends = together(size, tmp_path, **given, out=run, shard=shard, **SETTINGS)
        for end in ends:
            assert end.status == 0, end.output
            assert end.result["loss"] == pytest.approx(single.final["loss"], rel=2e-5)
            assert end.result["held_out"].keys() == single.held_out.keys()
        assert_close_runs(run, tmp_path / "single")
        # The files of a checkpoint are those of one process.
        for file in ("model.safetensors", "optimizer.safetensors"):
            mine = load_file(run / "checkpoints" / "step-00000006" / file)
            other = load_file(tmp_path / "single" / "checkpoints" / "step-00000006" / file)
            assert mine.keys() == other.keys()
            for name, value in other.items():
                assert mine[name].dtype == value.dtype
                torch.testing.assert_close(mine[name], value, rtol=1e-3, atol=2e-5, msg=name)
        # One process spoke.
        assert "parameters" in ends[0].output
        assert all(end.output == "" for end in ends[1:])


@pytest.mark.slow
@pytest.mark.parametrize("part", ["nothing", "feed-forward"])
def test_layers_that_share_weights_are_sharded_too(store: Path, tmp_path: Path, part: str) -> None:
    """Layers that are gone through several times, and those that have a part in common."""
    config = toys.config_for("mlm-sop").replace(
        num_hidden_layers=4,
        num_hidden_groups=2,
        shared_across_groups=part,
        classifier_dropout=0.0,
        initializer_range=0.1,
    )
    torch.manual_seed(0)
    model = Model(config, choose(config)[0].heads(config))
    save_model(tmp_path / "model", model, toys.tokenizer())
    assert_as_one_process(
        tmp_path, shard=True, store=store, model=tmp_path / "model", held_out=store
    )


@pytest.mark.slow
@pytest.mark.parametrize("shard", [False, True])
def test_replaced_tokens_are_those_of_one_process(store: Path, tmp_path: Path, shard: bool) -> None:
    """Each process draws for its own sequences what one process draws for them. A last bit of the
    generator's scores may be another one, and so, once in a million, a token."""
    config = toys.config_for("rtd").replace(
        embedding_size=24,
        initializer_range=0.1,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = toys.write_config(tmp_path / "config.json", config)
    assert_as_one_process(tmp_path, shard=shard, store=store, model=model, save_generator=True)
    expected = toys.weights(tmp_path / "single" / "generator")
    for name, value in toys.weights(tmp_path / "run" / "generator").items():
        torch.testing.assert_close(value, expected[name], rtol=0, atol=2e-5, msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lamb", "muon"])
def test_replicas_with_another_optimizer(
    store: Path, model: Path, tmp_path: Path, name: str
) -> None:
    assert_as_one_process(tmp_path, store=store, model=model, optimizer=name, held_out=store)


@pytest.mark.slow
@pytest.mark.parametrize("shard", [False, True])
def test_a_batch_smaller_than_the_world(
    store: Path, model: Path, tmp_path: Path, shard: bool
) -> None:
    assert_as_one_process(tmp_path, 4, shard=shard, store=store, model=model, batch_size=3)


@pytest.mark.slow
@pytest.mark.parametrize("shard", [False, True])
def test_killed_and_resumed_bit_for_bit(
    store: Path, model: Path, tmp_path: Path, shard: bool
) -> None:
    given = {
        "store": store,
        "model": model,
        "shard": shard,
        **SETTINGS,
        "dropout": 0.2,
        # A line of the log sums over a checkpoint.
        "log_every": 3,
        "resume": True,
    }
    for end in together(2, tmp_path, **given, out=tmp_path / "whole"):
        assert end.status == 0, end.output
    ends = together(2, tmp_path, **given, out=tmp_path / "run", die_at=5)
    assert ends[1].status == -signal.SIGKILL
    assert "another process of this run ended" in ends[0].result["error"]
    assert not (tmp_path / "run" / "model").exists()
    # With loader workers, which the lives before did without.
    for end in together(2, tmp_path, **given, out=tmp_path / "run", workers=1):
        assert end.status == 0, end.output
    assert_same_runs(tmp_path / "run", tmp_path / "whole")
    # Dropout was on.
    pretrain(**{**given, "dropout": 0.0}, out=tmp_path / "single")
    assert toys.log(tmp_path / "single")[-1]["loss"] != pytest.approx(
        toys.log(tmp_path / "run")[-1]["loss"], rel=1e-4
    )


@pytest.mark.slow
def test_a_sharded_run_goes_on_in_other_worlds(store: Path, model: Path, tmp_path: Path) -> None:
    given = {"store": store, "model": model, **SETTINGS, "log_every": 3, "resume": True}
    pretrain(**given, out=tmp_path / "single")
    run = tmp_path / "run"
    ends = together(4, tmp_path, **given, out=run, shard=True, die_at=4)
    assert ends[3].status == -signal.SIGKILL
    assert (run / "checkpoints" / "step-00000004").is_dir()
    shutil.copytree(run, tmp_path / "one")
    shutil.copytree(run, tmp_path / "two")
    pretrain(**given, out=tmp_path / "one")
    assert_close_runs(tmp_path / "one", tmp_path / "single")
    ends = together(2, tmp_path, **given, out=tmp_path / "two")
    assert [end.status for end in ends] == [0, 0], ends[0].output
    assert "started with processes 4, not 2" in " ".join(ends[0].output.split())
    assert_close_runs(tmp_path / "two", tmp_path / "single")
    # And the other way: what one process began, four go on with.
    shutil.copytree(tmp_path / "single", tmp_path / "four")
    shutil.rmtree(tmp_path / "four" / "model")
    shutil.rmtree(tmp_path / "four" / "checkpoints" / "step-00000006")
    ends = together(4, tmp_path, **given, out=tmp_path / "four", shard=True)
    assert [end.status for end in ends] == [0] * 4, ends[0].output
    assert_close_runs(tmp_path / "four", tmp_path / "single")


def watched(rank: int, **given: Any) -> dict[str, Any]:
    """The positions of the dropout stream that this process computed with, and how many numbers
    of the model it had at each step."""
    seeds: list[list[int]] = []
    numbers: list[int] = []
    seed, compute = stream.seed, DataParallel.accumulate

    def record(*where: int) -> None:
        seeds.append(list(where))
        seed(*where)

    def accumulate(self: DataParallel, batch: Any, where: list[int]) -> Any:
        found = compute(self, batch, where)
        for values in (lambda p: p, lambda p: p.grad):
            numbers.append(sum(local(values(p)).numel() for p in self.model.parameters()))
        return found

    stream.seed = record  # type: ignore[method-assign]
    DataParallel.accumulate = accumulate  # type: ignore[method-assign]
    pretrain(**given)
    return {"seeds": seeds, "numbers": numbers}


@pytest.mark.slow
def test_shards_are_small_and_no_two_micro_batches_share_their_dropout(
    store: Path, model: Path, tmp_path: Path
) -> None:
    given = {"store": store, "model": model, "out": tmp_path / "run", **SETTINGS}
    ends = processes.run(2, tmp_path / "ends", watched, **given, shard=True)
    assert [end.status for end in ends] == [0, 0], [end.output for end in ends]
    found = [tuple(seed) for end in ends for seed in end.result["seeds"]]
    assert len(set(found)) == len(found) > 2 * SETTINGS["steps"]
    for step in range(SETTINGS["steps"]):
        # Below zero: a sequence that does not count.
        parts = sorted(part for _, at, part in found if at == step and part >= 0)
        assert parts == list(range(len(parts)))
    total = sum(value.numel() for value in toys.weights(model).values())
    for end in ends:  # weights and gradients; a matrix with an odd number of rows is uneven
        assert len(end.result["numbers"]) == 2 * SETTINGS["steps"]
        assert all(abs(n / total - 0.5) < 0.02 for n in end.result["numbers"])


@pytest.mark.slow
def test_finetune(model: Path, tmp_path: Path) -> None:
    for name, seed in (("train", 0), ("dev", 1)):
        toys.write_labelled(tmp_path / f"{name}.csv", rows=30, seed=seed)
    given = {"task": "text", "model": model, "data": tmp_path, "epochs": 2, "batch_size": 8}
    given |= {"max_length": 16, "learning_rate": 1e-3, "device": "cpu", "precision": "fp32"}
    given |= {"frozen": False}
    single = finetune(**given, out=tmp_path / "single", dropout=0.0)
    ends = processes.run(2, tmp_path / "ends", tune, **given, out=tmp_path / "run", dropout=0.0)
    for end in ends:
        assert end.status == 0, end.output
        assert [s["step"] for s in end.result] == [s["step"] for s in single.scores]
        assert end.result[-1]["accuracy"] == single.scores[-1]["accuracy"]
    assert_close_runs(tmp_path / "run", tmp_path / "single")


def tune(rank: int, **given: Any) -> list[dict[str, Any]]:
    return finetune(**given).scores


@pytest.mark.slow
def test_a_program_keeps_its_own_process_group(model: Path, tmp_path: Path) -> None:
    data = toys.write_labelled(tmp_path / "train.csv", rows=16)
    given = {"task": "text", "model": model, "data": data, "epochs": 1, "batch_size": 8}
    given |= {"max_length": 16, "device": "cpu", "precision": "fp32", "out": tmp_path / "run"}
    ends = processes.run(2, tmp_path / "ends", in_a_program, **given)
    assert [(end.status, end.result) for end in ends] == [(0, [1]), (0, [1])], ends[0].output


def in_a_program(rank: int, **given: Any) -> list[int]:
    """A program that fine-tunes among other things; the sum of the ranks."""
    torch.distributed.init_process_group("gloo")
    finetune(**given)
    ranks = torch.tensor(rank)
    torch.distributed.all_reduce(ranks)
    torch.distributed.destroy_process_group()
    return [int(ranks)]


def command(rank: int, arguments: list[list[str]]) -> int:
    """``bertine`` with this process's arguments; its exit status."""
    return main(arguments[rank])


def one_line(ends: list[processes.End]) -> str:
    """The one line of error that all processes together wrote."""
    assert [end.status for end in ends] == [2] * len(ends), [end.output for end in ends]
    assert "Traceback" not in "".join(end.output for end in ends)
    lines = [line for end in ends for line in end.output.splitlines() if "error:" in line]
    assert len(lines) == 1, lines
    return lines[0]


@pytest.mark.slow
def test_a_mistake_is_told_once_and_ends_all(store: Path, model: Path, tmp_path: Path) -> None:
    def end(name: str, *changes: list[str]) -> str:
        given = ["pretrain", str(store), "--model", str(model), "--out", str(tmp_path / "run")]
        given += ["--steps", "4", "--max-seq-length", "32", "--device", "cpu"]
        arguments = [[*given, *(changes[rank] if changes else [])] for rank in range(2)]
        return one_line(processes.run(2, tmp_path / name, command, arguments=arguments))

    # Everybody's.
    assert "no-such-store" in end("a", *[["--held-out", str(tmp_path / "no-such-store")]] * 2)
    # The second's alone, while the first waits for it; and the first's alone.
    assert "no-such-store" in end("b", [], ["--held-out", str(tmp_path / "no-such-store")])
    assert "no-such-store" in end("c", ["--held-out", str(tmp_path / "no-such-store")], [])
    # What they were started with is not the same.
    assert "learning_rate = 0.5, not 0.0001" in end("d", [], ["--learning-rate", "0.5"])
    assert "log_every = 7, not 10" in end("f", [], ["--log-every", "7"])
    assert "evaluate_every = 3, not 1" in end("g", [], ["--evaluate-every", "3"])
    assert "held_out_tokens" in end("h", ["--held-out", str(store)], [])
    assert not (tmp_path / "run").exists()
    # In the first step: of a gradient that is all processes'.
    huge = ["--learning-rate", "1e9", "--warmup-steps", "0", "--max-grad-norm", "0"]
    assert "not finite" in end("e", huge, huge)


@pytest.mark.slow
def test_a_full_disk_ends_all(store: Path, model: Path, tmp_path: Path) -> None:
    """Only the first process writes, and only it finds out."""
    given = ["pretrain", str(store), "--model", str(model), "--out", str(tmp_path / "run")]
    given += ["--steps", "4", "--max-seq-length", "32", "--device", "cpu"]
    given += ["--checkpoint-every", "2"]
    ends = processes.run(2, tmp_path / "ends", full, arguments=given)
    assert "the disk is full" in one_line(ends)


def full(rank: int, arguments: list[str]) -> int:
    import errno

    from bertine.training import checkpoint

    def refuse(*given: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    checkpoint.save_file = refuse
    return main(arguments)


@pytest.mark.slow
def test_other_commands_are_one_process(tmp_path: Path) -> None:
    given = ["prepare", "a.txt", "--tokenizer", "v", "--out", "s"]
    ends = processes.run(2, tmp_path / "ends", command, arguments=[given, given])
    assert "start it without torchrun" in one_line(ends)


@pytest.mark.slow
def test_stopped_under_torchrun(store: Path, model: Path, tmp_path: Path) -> None:
    """SIGTERM to the launcher ends all with a checkpoint, from which all is bit for bit."""
    run, settings = tmp_path / "run", {**SETTINGS, "steps": 500, "checkpoint_every": 400}
    # torchrun signals the whole group of each process, loader workers too.
    settings |= {"dropout": 0.1, "log_every": 3, "evaluate_every": 500, "workers": 1}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", "-m", "bertine", "pretrain", str(store)]
    command += ["--model", str(model), "--out", str(run)]
    for name, value in settings.items():
        command += [f"--{name.replace('_', '-')}", str(value)]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    deadline = time.monotonic() + processes.PATIENCE
    while not (run / "log.jsonl").exists() or (run / "log.jsonl").stat().st_size < 1000:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.terminate()
    _, told = process.communicate(timeout=processes.PATIENCE)
    assert process.returncode != 0
    assert told.count("stopping after this step") == told.count("bertine: interrupted") == 1
    (checkpoint,) = (run / "checkpoints").glob("step-*")
    assert 3 <= int(checkpoint.name[5:]) < 400
    # Fewer steps would be another schedule; a little way is enough.
    stopped = int(checkpoint.name[5:])
    given = {"store": store, "model": model, **settings, "resume": True}
    for out in (run, tmp_path / "whole"):
        ends = together(2, tmp_path, **given, out=out, die_at=stopped + 8)
        assert ends[0].result["error"], ends[0].output
    assert toys.log(run) == toys.log(tmp_path / "whole")
    assert toys.log(run)[-1]["step"] > stopped


@pytest.mark.slow
def test_hours_are_those_of_the_first_process(store: Path, model: Path, tmp_path: Path) -> None:
    given = {"store": store, "model": model, **SETTINGS, "steps": None, "hours": 0.0005}
    ends = together(2, tmp_path, **given, out=tmp_path / "run")
    assert [end.status for end in ends] == [0, 0], ends[0].output
    assert ends[0].result["loss"] == ends[1].result["loss"]
