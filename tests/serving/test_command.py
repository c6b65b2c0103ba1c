"""``bertine serve`` as a process: what it says, how it ends."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bertine.serving.serve as module
import toys
from bertine.core.errors import BertineError
from bertine.serving.address import bound_socket, listen, read_api_key
from bertine.serving.serve import named_models, serve

SOURCE, TESTS = Path(module.__file__).parents[2], Path(toys.__file__).parent


@contextlib.contextmanager
def process(*arguments: str | Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A server at a free port, and the port."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "bertine", "serve", *map(str, arguments), "--port", "0"]
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    try:
        assert running.stderr is not None
        for line in running.stderr:
            if found := re.search(r"http://127\.0\.0\.1:(\d+)/", line):
                yield running, int(found[1])
                return
        raise AssertionError(f"ended with {running.wait()}")
    finally:
        running.kill()
        running.wait()


def ask(port: int, texts: list[str], host: str = "localhost") -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    with contextlib.closing(connection):
        headers = {"Content-Type": "application/json", "Host": host}
        connection.request("POST", "/predict", json.dumps({"texts": texts}), headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


def waiting(port: int) -> int:
    """How many texts wait for an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    with contextlib.closing(connection):
        connection.request("GET", "/metrics", headers={"Host": "localhost"})
        text = connection.getresponse().read().decode()
    return int(sum(map(float, re.findall(r"^bertine_queue\S*{.*} (\S+)$", text, re.MULTILINE))))


@pytest.mark.slow
def test_sigterm_answers_what_has_begun_and_ends_well(models: dict[str, Path]) -> None:
    options = ("--precision", "fp32", "--allowed-hosts", "pets.example")
    with process(f"pets={models['text']}", *options) as (running, port):
        status, answer = ask(port, ["the cat"], "pets.example")
        assert (status, answer["model"]) == (200, "pets")
        found: list[tuple[int, Any]] = []
        begun = [
            threading.Thread(target=lambda: found.append(ask(port, ["the old cat"] * 250)))
            for _ in range(4)
        ]
        with socket.create_connection(("127.0.0.1", port)) as slow:
            body = json.dumps({"texts": ["the cat"]}).encode()
            head = (
                "POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
                f"content-length: {len(body)}\r\n\r\n"
            )
            slow.sendall(head.encode() + body[:5])
            for thread in begun:
                thread.start()
            # One of them has been answered: the others are under way.
            while not found:
                begun[0].join(0.01)
            running.send_signal(signal.SIGTERM)
            slow.sendall(body[5:])
            assert slow.recv(100).startswith(b"HTTP/1.1 200")
        for thread in begun:
            thread.join(20)
        assert [status for status, _ in found] == [200] * 4
        output, errors = running.communicate(timeout=30)
        assert running.returncode == 0, errors
        assert re.search(r"^answered 6 requests in .*; computed 1002 inputs$", output)
        assert "Traceback" not in errors
        with pytest.raises(ConnectionRefusedError):
            ask(port, ["the cat"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("signals", "status", "answers"),
    [
        ([signal.SIGHUP], 0, {200}),
        ([signal.SIGHUP, signal.SIGTERM], 0, {200}),
        ([signal.SIGINT, signal.SIGINT], 130, {200, 503}),
    ],
)
def test_a_signal_ends_well_and_the_second_ctrl_c_at_once(
    models: dict[str, Path], signals: list[signal.Signals], status: int, answers: set[int]
) -> None:
    options = ("--precision", "fp32", "--max-batch-tokens", "8")  # so that it takes its time
    with process(f"pets={models['text']}", *options) as (running, port):
        found: list[int] = []
        begun = [
            threading.Thread(target=lambda: found.append(ask(port, ["the old cat"] * 250)[0]))
            for _ in range(4)
        ]
        for thread in begun:
            thread.start()
        while waiting(port) < 500:  # at their first answers they are nearly done, all in turn
            time.sleep(0.001)
        for number in signals:
            running.send_signal(number)
            time.sleep(0.05)  # two of the same at once would be one
        for thread in begun:
            thread.join(120)
        _, errors = running.communicate(timeout=120)  # a busy machine takes its time
    assert running.returncode == status, errors
    assert set(found) <= answers
    assert len(found) == 4
    assert "Traceback" not in errors


#: Resident megabytes, after each of so many batches of ever new sizes.
GROWTH = """
import sys
from pathlib import Path
import torch, toys
from bertine.inference.compute import Engine
from bertine.core.process import bound_kernels
from bertine.models.heads import Model
if sys.argv[1] == "bounded":
    bound_kernels()
engine = Engine(Model(toys.config(max_position_embeddings=128), {}), precision="fp32", threads=1)
for number in range(1, 601):
    ids = torch.zeros(1 + number % 7, 3 + number // 7, dtype=torch.int64)
    with torch.inference_mode():
        engine.backbone(ids).pooler_output
    if number % 200 == 0:
        lines = Path("/proc/self/status").read_text().splitlines()
        status = dict(line.split(":") for line in lines)
        # What the machine has put aside meanwhile counts too.
        print(sum(int(status[name].split()[0]) for name in ("VmRSS", "VmSwap")) // 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_memory_does_not_grow_with_every_size_of_a_batch() -> None:
    grown = {}
    for how in ("bounded", "usual"):
        environment = {**os.environ, "PYTHONPATH": f"{SOURCE}{os.pathsep}{TESTS}"}
        # Another test of this process may have set the bound for good.
        for name in ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY"):
            environment.pop(name, None)
        command = [sys.executable, "-c", GROWTH, how]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
        sizes = [int(line) for line in done.stdout.split()]
        grown[how] = sizes[-1] - sizes[0]
    assert grown["bounded"] < 160
    assert grown["usual"] > 2 * grown["bounded"]  # else the bound is needed no longer


def test_names_of_models(tmp_path: Path) -> None:
    run = tmp_path / "my run"
    (run / "model").mkdir(parents=True)
    plain = tmp_path / "a=b"
    plain.mkdir()
    assert named_models([run / "model", plain, f"x={run}"]) == {
        "my-run": run / "model",
        "a-b": plain,
        "x": run,
    }
    for wrong, said in (
        ([], "no model to serve"),
        ([run, run], "two models are called 'my-run'"),
        (["a b=c"], "'a b' is not a name for a model"),
        (["=c"], "'' is not a name"),
    ):
        with pytest.raises(BertineError, match=said):
            named_models(wrong)


def test_a_key_comes_from_a_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BERTINE_API_KEY", raising=False)
    assert read_api_key(None) is None
    monkeypatch.setenv("BERTINE_API_KEY", "from-outside")
    assert read_api_key(None) == "from-outside"
    file = tmp_path / "key"
    file.write_text("  from-file\n")
    assert read_api_key(file) == "from-file"
    for text in ("", " \n", "two words", "schlüssel"):
        file.write_text(text)
        with pytest.raises(BertineError, match="holds no key"):
            read_api_key(file)
    monkeypatch.setenv("BERTINE_API_KEY", "")
    with pytest.raises(BertineError, match="BERTINE_API_KEY: holds no key"):
        read_api_key(None)
    with pytest.raises(BertineError, match="nowhere"):
        read_api_key(tmp_path / "nowhere")


def test_a_taken_port_is_told_before_any_model_is_read(tmp_path: Path) -> None:
    with contextlib.closing(bound_socket("127.0.0.1", 0)) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(BertineError, match=f"127.0.0.1:{port}: .*another with host and port"):
            serve(tmp_path / "no such model", port=port)


def test_a_port_that_is_taken_while_models_are_read_is_told() -> None:
    with contextlib.closing(bound_socket("127.0.0.1", 0)) as first:
        port = first.getsockname()[1]
        with contextlib.closing(bound_socket("127.0.0.1", port)) as second:
            listen(second)
            with pytest.raises(
                BertineError, match=f"127.0.0.1:{port}: .*another with host and port"
            ):
                listen(first)


@pytest.mark.parametrize(("host", "port"), [("no.such.host.invalid", 80), ("127.0.0.1", 99999)])
def test_no_such_address(
    host: str, port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if host.endswith(".invalid"):  # what a resolver answers, without asking one

        def unknown(*address: object, **hints: object) -> None:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

        monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(BertineError, match=f"{host}:{port}"):
        serve(tmp_path, host=host, port=port)


def test_no_such_model(tmp_path: Path) -> None:
    with pytest.raises(BertineError, match="is not a model directory"):
        serve([tmp_path], port=0)
    with pytest.raises(BertineError, match="max_queue is 10"):
        serve([tmp_path], port=0, max_queue=10)
    with pytest.raises(BertineError, match=r"allowed_hosts has 'http://a\.example'"):
        serve([tmp_path], port=0, allowed_hosts="http://a.example")


@pytest.mark.slow
def test_what_needs_no_model_is_checked_before_pytorch_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = (
        "import sys, bertine\n"
        "try:\n    bertine.serve(sys.argv[1], port=int(sys.argv[2]))\n"
        "except bertine.BertineError as error:\n    print(error, 'torch' in sys.modules)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    with contextlib.closing(bound_socket("127.0.0.1", 0)) as taken:
        taken.listen()
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-c", program, str(tmp_path), port]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert re.search(r"port False$", done.stdout)
    monkeypatch.setattr("bertine.core.errors.find_spec", lambda name: None)
    with pytest.raises(BertineError, match=r"serving needs fastapi and .*: pip install fastapi "):
        serve(tmp_path, port=0)
