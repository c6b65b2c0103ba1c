"""Texts through encoders with bertine and with other runtimes: each a function of a model's folder.

All return the same numbers of the last hidden states of each text or pair (`OUTPUTS`), in the order
of the texts, and make batches of `BATCH` of like length, but for ``transformers fp32``, which takes
texts as they come.
Static quantization learns its ranges from the texts of `CALIBRATION` in the folder for files.
"""

from __future__ import annotations

import importlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from bertine.hub.model_directory import load_model

#: A text, or a pair of them.
Text = str | tuple[str, str]
#: Texts → fp32 [N, any].
Embed = Callable[[Sequence[Text]], np.ndarray]
#: States [B, T, H] and mask [B, T] → [B, any].
Output = Callable[[np.ndarray, np.ndarray], np.ndarray]

BATCH = 32
LONGEST = 128
#: A JSON list of texts, which :mod:`inference` writes.
CALIBRATION = "calibration.json"


def length_of(text: Text) -> int:
    """Characters of a text or a pair."""
    return len(text) if isinstance(text, str) else sum(map(len, text))


def sorted_batches(texts: Sequence[Text], embed_batch: Embed) -> np.ndarray:
    """`embed_batch` for batches of like length; results in the texts' order."""
    order = np.argsort([-length_of(text) for text in texts], kind="stable")
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


def first(hidden: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """hidden [B, T, H] → [B, H], the states of first tokens, which a pair is scored by."""
    return np.array(hidden[:, 0])  # a copy: a runtime may use its memory again


def tags(hidden: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """hidden [B, T, H] → [B, LONGEST * 9]: nine numbers for each token, 0 at padding."""
    scores = np.zeros((len(hidden), LONGEST, 9), np.float32)
    scores[:, : hidden.shape[1]] = hidden[..., :9] * mask[..., None]
    return scores.reshape(len(hidden), -1)


#: What is read of the states: vectors of texts, scores of pairs, tags of tokens.
OUTPUTS: dict[str, Output] = {"vectors": mean, "pairs": first, "tags": tags}


# Each takes the model's folder, a folder for its own files, a number of threads and what is read.


def bertine(folder: Path, work: Path, threads: int, output: Output, precision: str) -> Embed:
    from bertine.inference.compute import Engine, run_features, sample_inputs
    from bertine.tasks.base import Features, pad_features

    loaded = load_model(folder)
    engine = Engine(
        loaded.model.eval(),
        precision=precision,
        threads=threads,
        samples=sample_inputs(loaded.tokenizer, LONGEST),
    )
    for line in engine.lines():
        print(f"  bertine: {line}", flush=True)

    class Read:
        """What is read, in PyTorch as :mod:`bertine.models.pooling` and the tasks have it."""

        def collate(self, features: Sequence[Features], pad_id: int) -> Any:
            return pad_features(features, pad_id, loaded.config.longest_input)

        def outputs(self, model: Any, batch: Any) -> torch.Tensor:
            out = model.backbone(batch.input_ids, batch.attention_mask, batch.token_type_ids)
            if output is first:
                return torch.as_tensor(out.first_token)
            hidden = out.last_hidden_state
            mask = batch.attention_mask[:, : hidden.shape[1]]
            if output is mean:
                weights = (mask / mask.sum(1, keepdim=True)).float()
                return torch.bmm(weights[:, None], hidden)[:, 0]
            return torch.from_numpy(tags(hidden.numpy(), mask.numpy()))

    def embed(texts: Sequence[Text]) -> np.ndarray:
        firsts, seconds = _sides(texts)
        encoded = loaded.tokenizer.encode_arrays(firsts, seconds, max_length=LONGEST)
        features = [Features(ids, types, row) for row, (ids, types, _) in enumerate(encoded)]
        return np.stack(
            run_features(engine, Read(), features, pad_id=loaded.tokenizer.pad_token_id)
        )

    return embed


def transformers(
    folder: Path,
    work: Path,
    threads: int,
    output: Output,
    bf16: bool,
    ordered: bool,
    how: str = "",
) -> Embed:
    """`how`: "compiled" by Inductor, or with "torchao"'s 8 bits before that."""
    tokenizer, model = _transformers(folder)
    if bf16:
        model = model.bfloat16()
    if how == "torchao":
        from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

        quantize_(model, Int8DynamicActivationInt8WeightConfig())
    if how:
        inductor: Any = importlib.import_module("torch._inductor.config")
        inductor.freezing = True
        model = torch.compile(model, dynamic=True)

    def embed_batch(texts: Sequence[Text]) -> np.ndarray:
        inputs = tokenizer(
            *_sides(texts), padding=True, truncation=True, max_length=LONGEST, return_tensors="pt"
        )
        with torch.inference_mode():
            hidden = model(**inputs).last_hidden_state.float().numpy()
        return output(hidden, inputs["attention_mask"].numpy())

    if ordered:
        return lambda texts: sorted_batches(texts, embed_batch)
    return lambda texts: np.concatenate(
        [embed_batch(texts[at : at + BATCH]) for at in range(0, len(texts), BATCH)]
    )


def sentence_transformers(folder: Path, work: Path, threads: int, output: Output) -> Embed:
    if output is not mean:
        raise ValueError("it is measured with vectors only")
    package: Any = importlib.import_module("sentence_transformers")
    modules: Any = importlib.import_module("sentence_transformers.sentence_transformer.modules")
    words = modules.Transformer(str(folder), max_seq_length=LONGEST)
    pooling = modules.Pooling(words.get_word_embedding_dimension())
    model = package.SentenceTransformer(modules=[words, pooling], device="cpu")
    return lambda texts: np.asarray(
        model.encode(list(texts), batch_size=BATCH, show_progress_bar=False)
    )


def onnx_runtime(folder: Path, work: Path, threads: int, output: Output, bits: str) -> Embed:
    """`bits`: "fp32", or 8 bits with ranges of each batch ("dynamic") or fixed ones ("static")."""
    import onnxruntime
    from onnxruntime import quantization

    path, small = _onnx(folder, work), work / f"{bits}.onnx"
    if bits != "fp32" and not small.exists():
        signed: Any = {"weight_type": quantization.QuantType.QInt8, "per_channel": True}
        if bits == "dynamic":
            quantization.quantize_dynamic(path, small, **signed)
        else:
            batches = _calibration(folder, work)
            reader = SimpleNamespace(get_next=lambda: next(batches, None))
            products = ["MatMul", "Gemm"]
            quantization.quantize_static(
                path, small, reader, **signed, op_types_to_quantize=products
            )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    file = path if bits == "fp32" else small
    session = onnxruntime.InferenceSession(str(file), options, ["CPUExecutionProvider"])
    return _over_arrays(folder, output, lambda inputs: session.run(None, inputs)[0])


def openvino(
    folder: Path, work: Path, threads: int, output: Output, bits: str, streams: int
) -> Embed:
    """`bits`: "f32", "bf16", or "int8" of NNCF's static quantization. With several streams batches
    are computed at the same time, the hint being throughput, else latency."""
    import openvino as ov

    core = ov.Core()
    model = core.read_model(_onnx(folder, work))
    if bits == "int8":
        small = work / "int8.xml"
        if not small.exists():
            import nncf

            batches = nncf.Dataset(list(_calibration(folder, work)))
            transformer = nncf.ModelType.TRANSFORMER
            ov.save_model(nncf.quantize(model, batches, model_type=transformer), small)
        model = core.read_model(small)
    hints = {
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": streams,
        "PERFORMANCE_HINT": "THROUGHPUT" if streams > 1 else "LATENCY",
        # Of 8 bits what is not a product is computed in the faster of the others.
        "INFERENCE_PRECISION_HINT": "f32" if bits == "f32" else "bf16",
    }
    compiled = core.compile_model(model, "CPU", hints)
    if streams == 1:
        request = compiled.create_infer_request()
        return _over_arrays(folder, output, lambda inputs: request.infer(inputs)[0].copy())
    tokenizer, queue = _transformers_tokenizer(folder), ov.AsyncInferQueue(compiled, streams)

    def embed(texts: Sequence[Text]) -> np.ndarray:
        order = sorted(range(len(texts)), key=lambda at: -length_of(texts[at]))
        result: list[Any] = [None] * len(texts)

        def take(request: Any, batch: tuple[list[int], np.ndarray]) -> None:
            places, mask = batch
            vectors = output(request.get_output_tensor(0).data, mask)
            for place, vector in zip(places, vectors, strict=True):
                result[place] = vector

        queue.set_callback(take)
        for start in range(0, len(texts), BATCH):
            places = order[start : start + BATCH]
            inputs = _arrays(tokenizer, [texts[place] for place in places])
            queue.start_async(inputs, (places, inputs["attention_mask"]))
        queue.wait_all()
        return np.stack(result)

    return embed


def ctranslate2(folder: Path, work: Path, threads: int, output: Output) -> Embed:
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

    def embed_batch(texts: Sequence[Text]) -> np.ndarray:
        ids = tokenizer(*_sides(texts), truncation=True, max_length=LONGEST)["input_ids"]
        hidden = np.asarray(encoder.forward_batch(ids).last_hidden_state)
        lengths = np.array([len(each) for each in ids])
        return output(hidden, np.arange(hidden.shape[1])[None] < lengths[:, None])

    return lambda texts: sorted_batches(texts, embed_batch)


#: Name → what must be installed, how it is made, its further arguments.
SYSTEMS: dict[str, tuple[str, Callable[..., Embed], tuple[Any, ...]]] = {
    "bertine fp32": ("bertine", bertine, ("fp32",)),
    "bertine bf16": ("bertine", bertine, ("bf16",)),
    "bertine int8": ("bertine", bertine, ("int8",)),
    "transformers fp32": ("transformers", transformers, (False, False)),
    "transformers bf16 sorted": ("transformers", transformers, (True, True)),
    "sentence-transformers": ("sentence_transformers", sentence_transformers, ()),
    "torch.compile bf16": ("transformers", transformers, (True, True, "compiled")),
    "torchao int8": ("torchao", transformers, (True, True, "torchao")),
    "onnxruntime fp32": ("onnxruntime", onnx_runtime, ("fp32",)),
    "onnxruntime int8": ("onnxruntime", onnx_runtime, ("dynamic",)),
    "onnxruntime int8 static": ("onnxruntime", onnx_runtime, ("static",)),
    "openvino bf16": ("openvino", openvino, ("bf16", 1)),
    "openvino int8": ("nncf", openvino, ("int8", 1)),
    "openvino int8, 2 streams": ("nncf", openvino, ("int8", 2)),
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


def _over_arrays(
    folder: Path, output: Output, run: Callable[[dict[str, np.ndarray]], np.ndarray]
) -> Embed:
    tokenizer = _transformers_tokenizer(folder)

    def embed_batch(texts: Sequence[Text]) -> np.ndarray:
        inputs = _arrays(tokenizer, texts)
        return output(run(inputs), inputs["attention_mask"])

    return lambda texts: sorted_batches(texts, embed_batch)


def _sides(texts: Sequence[Text]) -> tuple[list[str], list[str] | None]:
    """The texts, or the first and the second texts of pairs."""
    if texts and isinstance(texts[0], tuple):
        return [text[0] for text in texts], [text[1] for text in texts]
    return [str(text) for text in texts], None


def _arrays(tokenizer: Any, texts: Sequence[Text]) -> dict[str, np.ndarray]:
    inputs = tokenizer(
        *_sides(texts), padding=True, truncation=True, max_length=LONGEST, return_tensors="np"
    )
    return {name: inputs[name].astype(np.int64) for name in ("input_ids", "attention_mask")}


def _calibration(folder: Path, work: Path) -> Iterator[dict[str, np.ndarray]]:
    """The inputs of the calibration texts, one at a time."""
    tokenizer = _transformers_tokenizer(folder)
    texts = json.loads((work / CALIBRATION).read_text(encoding="utf-8"))
    return (_arrays(tokenizer, [text]) for text in texts)


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
