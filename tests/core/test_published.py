"""Published models and data sets by name, from a hub on loopback with the real client."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants

import bertine
from bertine.cli import main
from bertine.core import published
from bertine.core.errors import BertineError
from bertine.core.model_folders import locate
from bertine.core.published import PublishedName, cached_model, fetch, hashes_of, how_to_get
from bertine.hub.model_directory import load_model
from bertine.inference.baselines.measure import _encoder
from bertine.inference.embedding.embedder import Embedder
from bertine.serving.serve import named_models
from bertine.tasks.classification import TextClassification
from hub_server import Fault, Hub
from toys import write_classifier, write_labelled, write_model

#: What lies in published repositories and is not needed.
JUNK = ("README.md", "modeling_x.py", "model.onnx", "tf_model.h5", "flax_model.msgpack", "a/b.json")
NOBODY = "http://127.0.0.1:9"


@pytest.fixture
def model(once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """A model directory of the usual files, among those that nobody needs."""

    def make(folder: Path) -> None:
        write_model(folder / "m")
        for name in JUNK:
            (folder / "m" / name).parent.mkdir(exist_ok=True)
            (folder / "m" / name).write_bytes(b"raise SystemExit")

    return once("published-model", make) / "m"


def files_in(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def a_new_process(monkeypatch: pytest.MonkeyPatch, endpoint: str | None = None) -> None:
    """Forget what was fetched; without an answer of the hub if there is another `endpoint`."""
    monkeypatch.setattr(published, "_FETCHED", {})
    if endpoint is not None:
        monkeypatch.setattr(constants, "ENDPOINT", endpoint)


# Names.


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("hf:bert-base-uncased", PublishedName("hf", "bert-base-uncased")),
        ("hf:hfl/rbt3@0123abc", PublishedName("hf", "hfl/rbt3", "0123abc")),
        ("hf:nyu-mll/glue/cola@v1", PublishedName("hf", "nyu-mll/glue", "v1", "cola")),
        (Path("hf://hfl/rbt3"), PublishedName("hf", "hfl/rbt3")),
        ("hf:a/b@refs/pr/1", PublishedName("hf", "a/b", "refs/pr/1")),
        ("modelscope:a/b.c", PublishedName("modelscope", "a/b.c")),
        ("hfl/rbt3", None),
    ],
)
def test_a_name_is_read(text: str, name: PublishedName | None) -> None:
    assert PublishedName.parse(text) == name


@pytest.mark.parametrize("text", ["hf:", "hf:a b", "hf:../x/..\\y", "hf:a/b@", "hf:@main"])
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(BertineError, match="expected hf:ORGANIZATION/NAME"):
        PublishedName.parse(text)


def test_a_server_names_published_models_by_their_last_part() -> None:
    assert [*named_models(["hf:org/m", "b=hf:org/m"])] == ["m", "b"]


# What is fetched.


def test_only_what_is_needed_is_fetched(hub: Hub, model: Path) -> None:
    hub.add("org/m", model)
    folder = locate("hf:org/m")
    assert files_in(folder) == files_in(model) - {*JUNK}
    assert hashes_of(folder) == {
        name: hashlib.sha256((model / name).read_bytes()).hexdigest() for name in files_in(folder)
    }
    assert load_model("hf:org/m").config.hidden_size == 32
    assert hub.asked("/api/models/org/m/revision/main") == 2  # Bertine's question, the client's


def test_a_tokenizer_is_fetched_without_weights(hub: Hub, model: Path) -> None:
    hub.add("org/m", model)
    assert bertine.Tokenizer.load("hf:org/m").vocab_size == load_model(model).config.vocab_size
    assert not hub.asked("safetensors")


def _made_by_transformers(folder: Path, kind: str) -> None:
    import transformers

    torch.manual_seed(0)
    write_model(folder)  # for the vocabulary, and the size of it
    sizes = {
        "vocab_size": json.loads((folder / "config.json").read_text())["vocab_size"],
        "hidden_size": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 16,
        "max_position_embeddings": 40,
        "pad_token_id": 0,
    }
    (folder / "model.safetensors").unlink()
    family = "ModernBert" if kind == "ModernBert" else "Bert"
    config = getattr(transformers, f"{family}Config")(**sizes)
    made = getattr(transformers, f"{family}Model")(config)
    made.save_pretrained(folder, max_shard_size="2KB" if kind == "sharded" else "5GB")
    if kind == "bin":
        (folder / "model.safetensors").unlink()
        torch.save(made.state_dict(), folder / "pytorch_model.bin")
    if kind == "sentences":
        listed = [("", "Transformer"), ("1_Pooling", "Pooling")]
        modules = [
            {"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.models.{what}"}
            for n, (path, what) in enumerate(listed)
        ]
        (folder / "modules.json").write_text(json.dumps(modules))
        (folder / "1_Pooling").mkdir()
        pooling = {"word_embedding_dimension": 8, "pooling_mode_cls_token": True}
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))


@pytest.mark.parametrize(
    ("kind", "needed"),
    [
        ("sharded", "model.safetensors.index.json"),
        ("bin", "pytorch_model.bin"),
        ("ModernBert", "model.safetensors"),
        ("sentences", "1_Pooling/config.json"),
    ],
)
@pytest.mark.fast_cases(kind=("sharded", "sentences"))
@pytest.mark.takes(3)
def test_models_of_transformers_are_fetched(
    hub: Hub, tmp_path: Path, kind: str, needed: str
) -> None:
    _made_by_transformers(tmp_path / "m", kind)
    expected = files_in(tmp_path / "m") - {"README.md"}
    (tmp_path / "m" / "openvino.bin").write_bytes(b"x")
    if kind != "bin":
        (tmp_path / "m" / "pytorch_model.bin").write_bytes(b"x")
    hub.add("org/m", tmp_path / "m")
    assert files_in(locate("hf:org/m")) == expected
    theirs, ours = load_model(tmp_path / "m"), load_model("hf:org/m")
    assert theirs.model.fingerprint() == ours.model.fingerprint()
    if kind == "sentences":
        assert Embedder.load("hf:org/m").pooling.name == "cls"


def test_files_of_a_data_set_are_fetched(hub: Hub) -> None:
    files = {"data/train.parquet": b"PAR1", "data/[x] y.parquet": b"PAR2", "load.py": b"x"}
    commit = hub.add("org/data", files, kind="dataset", revision="refs/convert/parquet")
    name = PublishedName("hf", "org/data", "refs/convert/parquet", "part")
    folder = fetch(name, lambda names: [n for n in names if n.endswith(".parquet")], "dataset")
    assert folder.name == commit
    assert (folder / "data/[x] y.parquet").read_bytes() == b"PAR2"
    assert not (folder / "load.py").exists()


def test_an_old_name_and_a_token_are_the_hubs_matter(
    hub: Hub, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add("org/new", model, gated=True)
    hub.rename("org/old", "org/new")
    monkeypatch.setenv("HF_TOKEN", "hf_member")
    assert load_model("hf:org/old").config.hidden_size == 32


def test_a_name_without_organization_gets_the_known_one(hub: Hub, model: Path) -> None:
    hub.add("google-bert/bert-base-uncased", model)
    assert "google-bert" in str(locate("hf:bert-base-uncased"))


def test_modelscope_is_asked_by_its_library(
    hub: Hub, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from modelscope_hub import config

    hub.add("org/m", model)
    monkeypatch.setenv("MODELSCOPE_ENDPOINT", hub.url)
    monkeypatch.setenv("MODELSCOPE_CACHE", str(tmp_path / "ms"))
    monkeypatch.setattr(config, "_default_config", None)
    folder = locate("modelscope:org/m")
    assert files_in(folder) == files_in(model) - {*JUNK}
    assert str(published.published_name(folder)) == "modelscope:org/m@master"
    with pytest.raises(BertineError, match="modelscope:org/no: there is no such model"):
        locate("modelscope:org/no")
    a_new_process(monkeypatch)
    monkeypatch.setenv("MODELSCOPE_ENDPOINT", NOBODY)
    monkeypatch.setattr(config, "_default_config", None)
    assert locate("modelscope:org/m") == folder


# The cache.


def test_a_branch_is_looked_up_again_by_the_next_process(
    hub: Hub, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = hub.add("org/m", model)
    assert locate("hf:org/m").name == first
    files = {name: (model / name).read_bytes() for name in files_in(model)}
    second = hub.add("org/m", {**files, "vocab.txt": files["vocab.txt"] + b"\n"})
    assert locate("hf:org/m").name == first
    a_new_process(monkeypatch)
    assert locate("hf:org/m").name == second
    before = len(hub.requests)
    a_new_process(monkeypatch)
    assert locate(f"hf:org/m@{first}").name == first
    assert len(hub.requests) == before


def test_without_the_network_the_cache_is_used_and_said_so(
    hub: Hub, model: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hub.add("org/m", model)
    folder = locate("hf:org/m")
    a_new_process(monkeypatch, NOBODY)
    caplog.clear()
    with caplog.at_level("INFO"):
        assert locate("hf:org/m") == folder
    assert "no connection to the hub" in caplog.text
    assert f"revision {folder.name[:12]} in the cache is used" in caplog.text
    a_new_process(monkeypatch)
    caplog.clear()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with caplog.at_level("INFO"):
        assert locate("hf:org/m") == folder
    assert not caplog.messages


def test_half_a_model_is_never_opened(
    hub: Hub, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add("org/m", model)
    bertine.Tokenizer.load("hf:org/m")
    assert cached_model(PublishedName("hf", "org/m")) is None
    a_new_process(monkeypatch, NOBODY)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(BertineError, match=r"model.safetensors is not in the cache"):
        load_model("hf:org/m")
    with pytest.raises(BertineError, match=r"give hf:org/m$"):
        load_model("org/m")


def test_a_download_outlives_a_broken_connection(hub: Hub, model: Path) -> None:
    hub.add("org/m", model)
    hub.faults.append(Fault("elsewhere.*safetensors", cut=20_000, times=1, method="GET"))
    folder = locate("hf:org/m")
    assert (folder / "model.safetensors").read_bytes() == (model / "model.safetensors").read_bytes()
    assert hub.asked("elsewhere.*safetensors", "GET") == 2


# Errors.


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (
            Fault("/api/models/org/m/", status=429),
            "429 Too Many.*; it is not in the cache",
        ),
        (Fault("/api/models/org/m/", status=500), r"a fault of its own \(status 500\)"),
        (Fault("/api/models/org/m/", status=401), "no such model, or it is private.*hf auth login"),
        (Fault("/api/models/org/m/", status=403), "the hub refuses access"),
        (Fault("/resolve/.*config", status=403, code="GatedRepo"), "those who have asked them"),
        (Fault("/resolve/.*/config.json", status=404), "no such model"),
    ],
)
def test_what_the_hub_refuses_is_one_line(
    hub: Hub, model: Path, fault: Fault, message: str
) -> None:
    hub.add("org/m", model)
    hub.faults.append(fault)
    with pytest.raises(BertineError, match=rf"^hf:org/m: .*{message}") as caught:
        load_model("hf:org/m")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("hf:org/none", "there is no such model"),
        ("hf:org/m@v9", "there is no revision v9"),
        ("hf:org/m/part", "the name of a model is hf:ORGANIZATION/NAME"),
        ("hf:org/m--x", "the hub has no such names"),
        ("hf:org/tf", "no weights as safetensors or PyTorch's .bin; it has tf_model.h5"),
        ("hf:org/bare", "has no config.json"),
        ("hf:org/llama", r"of another architecture \(llama\), and its weights were not fetched"),
    ],
)
def test_what_is_not_there_is_one_line(hub: Hub, model: Path, name: str, message: str) -> None:
    hub.add("org/m", model)
    hub.add("org/tf", {"config.json": b"{}", "tf_model.h5": b"x"})
    hub.add("org/bare", {"model.safetensors": b"x"})
    hub.add("org/llama", {"config.json": b'{"model_type": "llama"}', "model.safetensors": b"x"})
    with pytest.raises(BertineError, match=message) as caught:
        load_model(name)
    assert "\n" not in str(caught.value)
    assert not hub.asked("safetensors")


def test_code_in_old_weights_is_not_run(hub: Hub, model: Path, tmp_path: Path) -> None:
    class Runs:
        def __reduce__(self) -> tuple[object, tuple[object, ...]]:
            return Path.touch, (tmp_path / "ran",)

    shutil.copytree(model, tmp_path / "m")
    (tmp_path / "m" / "model.safetensors").unlink()
    torch.save({"a": Runs()}, tmp_path / "m" / "pytorch_model.bin")
    hub.add("org/m", tmp_path / "m")
    with pytest.raises(BertineError, match="runs no code out of a weights file"):
        load_model("hf:org/m")
    assert not (tmp_path / "ran").exists()


# Without the prefix.


def test_without_the_prefix_the_hub_is_never_asked(
    hub: Hub, model: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    commit = hub.add("google-bert/bert-base-uncased", model)
    for name in ("bert-base-uncased", "google-bert/bert-base-uncased"):
        with pytest.raises(BertineError, match=r"give hf:google-bert/bert-base-uncased$"):
            load_model(name)
    assert not hub.requests
    folder = locate("hf:bert-base-uncased")
    before = len(hub.requests)
    with caplog.at_level("INFO"):
        for name in ("bert-base-uncased", "google-bert/bert-base-uncased"):
            assert locate(name) == folder
            said = f"{name}: no such folder; hf:google-bert/bert-base-uncased@{commit} in the cache"
            assert said in caplog.text
    assert len(hub.requests) == before


def test_the_same_command_with_the_prefix_is_named(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["predict", "roberta-base", "it's a text"]
    monkeypatch.setattr("sys.argv", ["bertine", *words])
    assert main(words) == 2
    assert """run: bertine predict hf:FacebookAI/roberta-base 'it'"'"'s a text'""" in (
        " ".join(capsys.readouterr().err.split())
    )
    # An address of the model's page, and a prefix in capitals, are its name too.
    for text in ("https://huggingface.co/org/m", "HF:org/m"):
        assert (how_to_get(text) or "").endswith("give hf:org/m")
    assert not hub.requests


def test_a_name_in_a_record_is_never_fetched(hub: Hub, tmp_path: Path, model: Path) -> None:
    commit = hub.add("org/m", model)
    write_classifier(tmp_path / "c")
    task = TextClassification(("a", "b"), ("text",), "label", 16)
    facts = {"model_path": f"hf:org/m@{commit}"}
    where = (torch.float32, torch.device("cpu"))
    assert _encoder(task, facts, *where) is None
    assert not hub.requests
    locate("hf:org/m")
    assert _encoder(task, facts, *where) is not None


# Records.


@pytest.mark.takes(4)
def test_a_run_records_what_it_began_with_and_goes_on_with_it(
    hub: Hub, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = hub.add("org/m", model)
    given = {"model": "hf:org/m", "data": write_labelled(tmp_path / "d.csv"), "epochs": 1}
    given |= {"out": tmp_path / "run", "checkpoint_every": 1, "baselines": False}
    bertine.finetune("text", **given)
    settings = json.loads((tmp_path / "run" / "run.json").read_text())["settings"]
    digest = hashlib.sha256((model / "model.safetensors").read_bytes()).hexdigest()
    assert settings["model_path"] == f"hf:org/m@{commit}"
    assert settings["model_files"]["model.safetensors"] == digest
    card = (tmp_path / "run" / "model" / "README.md").read_text()
    assert "base_model: org/m\n" in card
    assert f"began with: `hf:org/m@{commit}`" in card
    assert f"`model.safetensors`, SHA-256 `{digest}`" in card

    write_model(tmp_path / "other", seed=1)
    hub.add("org/m", tmp_path / "other")  # a newer revision
    a_new_process(monkeypatch, NOBODY)
    before = len(hub.requests)
    shutil.rmtree(tmp_path / "run" / "model")  # killed before its end
    bertine.finetune("text", **given, resume=True)
    assert len(hub.requests) == before


# Kills.


@pytest.mark.slow
def test_a_download_that_is_killed_is_never_half_a_model(hub: Hub, tmp_path: Path) -> None:
    write_model(tmp_path / "m", hidden_size=128, intermediate_size=256)
    commit = hub.add("org/m", tmp_path / "m")
    command = [sys.executable, "-m", "bertine", "inspect", "hf:org/m"]
    size = (tmp_path / "m" / "model.safetensors").stat().st_size
    # On a busy machine the hub, in this process, may answer late.
    online = {**os.environ, "HF_HUB_DOWNLOAD_TIMEOUT": "60", "HF_HUB_ETAG_TIMEOUT": "60"}
    offline = {**os.environ, "HF_HUB_OFFLINE": "1"}
    for tenth in range(10):
        hold = Fault("elsewhere.*safetensors", hold=tenth * size // 10, method="GET")
        hub.faults[:], held = [hold], hub.held
        with open(tmp_path / "stderr", "w", encoding="utf-8") as stderr:
            process = subprocess.Popen(command, env=online, stderr=stderr, stdout=stderr)
        while hub.held == held:
            assert process.poll() is None, (tmp_path / "stderr").read_text(encoding="utf-8")
            time.sleep(0.001)
        process.kill()
        process.wait()
        assert cached_model(PublishedName("hf", "org/m")) is None
        if tenth % 4 == 0:
            done = subprocess.run(command, env=offline, capture_output=True, text=True)
            assert done.returncode == 2
            assert "HF_HUB_OFFLINE is set" in done.stderr.splitlines()[-1]
    hub.faults.clear()
    whole = subprocess.run(command, capture_output=True, text=True)
    assert whole.returncode == 0, whole.stderr
    folder = cached_model(PublishedName("hf", "org/m"))
    assert folder is not None
    assert folder.name == commit
    for name, digest in hashes_of(folder).items():
        assert digest == hashlib.sha256((tmp_path / "m" / name).read_bytes()).hexdigest()
    assert subprocess.run(command, env=offline, capture_output=True).returncode == 0
