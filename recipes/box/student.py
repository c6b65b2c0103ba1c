"""Build what a student begins as: some layers of its teacher, narrower, with fewer pieces.

Layers are kept whole but for the neurons of their feed-forward part, of which those with the
largest weights stay (the product of the norms of what comes in and what goes out). Pieces are kept
by how frequent they are, with the teacher's embeddings.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from bertine.core.files import atomic_dir, read_json, write_json, write_text
from bertine.hub.weights import read_weights
from bertine.tokenization.tokenizer import Tokenizer


def write_student(
    folder: Path,
    teacher: Path,
    pieces: Mapping[str, Sequence[str]],
    layers: Sequence[int],
    inner: int,
) -> None:
    """Write the model directory `folder`, a BERT with an MLM head and a WordPiece vocabulary.

    Args:
        teacher: a BERT's model directory; its heads and its pooler are not used.
        pieces: the vocabulary, each piece with the teacher's pieces whose mean embedding it
            begins with.
        layers: of the teacher, counted from 0.
        inner: neurons of a feed-forward part.
    """
    given = {name.removeprefix("bert."): value for name, value in read_weights(teacher).items()}
    config = read_json(teacher / "config.json")
    place = {piece: number for number, piece in enumerate(_vocabulary(teacher))}
    words = given["embeddings.word_embeddings.weight"].float()
    rows = [words[[place[one] for one in ones]].mean(0) for ones in pieces.values()]
    tensors = {
        f"bert.{name}": value.float().contiguous()
        for name, value in given.items()
        if name.startswith("embeddings.") and name.endswith((".weight", ".bias"))
    }
    tensors["bert.embeddings.word_embeddings.weight"] = torch.stack(rows)
    for number, layer in enumerate(layers):
        for name, value in _narrowed(given, f"encoder.layer.{layer}.", inner).items():
            tensors[f"bert.encoder.layer.{number}.{name}"] = value.float().contiguous()
    width, head = config["hidden_size"], "cls.predictions"
    tensors |= {
        # At first the head compares states with embeddings as they are.
        f"{head}.transform.dense.weight": torch.eye(width),
        f"{head}.transform.dense.bias": torch.zeros(width),
        f"{head}.transform.LayerNorm.weight": torch.ones(width),
        f"{head}.transform.LayerNorm.bias": torch.zeros(width),
        f"{head}.bias": torch.zeros(len(pieces)),
    }
    kept = ("model_type", "hidden_size", "num_attention_heads", "max_position_embeddings")
    kept += ("type_vocab_size", "hidden_act", "layer_norm_eps")
    sizes: dict[str, Any] = {
        "architectures": ["BertForMaskedLM"],
        **{key: config[key] for key in kept},
        "num_hidden_layers": len(layers),
        "intermediate_size": inner,
        "vocab_size": len(pieces),
        "pad_token_id": list(pieces).index("[PAD]"),
        # A student of this size sees more text than it can learn by heart.
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    }
    with atomic_dir(folder) as at:
        save_file(tensors, at / "model.safetensors", metadata={"format": "pt"})
        write_json(at / "config.json", sizes)
        write_text(at / "vocab.txt", "".join(f"{piece}\n" for piece in pieces))
        write_json(
            at / "tokenizer_config.json",
            {"tokenizer_class": "BertTokenizer", "do_lower_case": True},
        )


def _narrowed(given: Mapping[str, Tensor], prefix: str, inner: int) -> dict[str, Tensor]:
    """Return the weights of a layer with `inner` neurons."""
    layer = {
        name.removeprefix(prefix): value for name, value in given.items() if name.startswith(prefix)
    }
    inward, outward = layer["intermediate.dense.weight"], layer["output.dense.weight"]
    size = inward.float().norm(dim=1) * outward.float().norm(dim=0)
    kept = size.argsort(descending=True)[:inner].sort().values
    layer["intermediate.dense.weight"] = inward[kept]
    layer["intermediate.dense.bias"] = layer["intermediate.dense.bias"][kept]
    layer["output.dense.weight"] = outward[:, kept]
    return layer


# Vocabularies.

_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
#: The special pieces of XLM-R's vocabulary in the same order.
_SPECIAL_OF_XLM_R = ("<pad>", "<unk>", "<s>", "</s>", "<mask>")
#: Rarer characters than this in the texts are unknown to the student.
_LEAST = 20
#: The first code point of Chinese and other East Asian scripts.
_EAST_ASIAN = 0x2E80


def frequent_pieces(teacher: Path, texts: Path, size: int) -> dict[str, list[str]]:
    """Choose `size` pieces of a teacher's WordPiece vocabulary: all characters that are not rare,
    then what is frequent in `texts` and stands early in the vocabulary, which is sorted by the
    frequency in the text that the teacher has read; that is another one, so both count alike."""
    tokenizer = Tokenizer.load(teacher)
    counts = np.zeros(tokenizer.vocab_size, np.int64)
    with open(texts, encoding="utf-8") as lines:
        while chunk := [line.strip() for line in itertools.islice(lines, 20_000)]:
            for ids in tokenizer.encode_plain(chunk):
                np.add.at(counts, ids, 1)
    vocabulary = _vocabulary(teacher)
    ranks = np.argsort(np.argsort(-counts, kind="stable"))
    first = vocabulary.index("!")
    chosen = dict.fromkeys(_SPECIAL)
    for number, piece in enumerate(vocabulary):
        single = len(piece.removeprefix("##")) == 1
        if single and (counts[number] > _LEAST or piece.isascii()):
            chosen[piece] = None
    order = sorted(range(first, len(vocabulary)), key=lambda at: (ranks[at] + 1) * (at - first + 1))
    for number in order:
        if len(chosen) == size:
            break
        chosen[vocabulary[number]] = None
    return {piece: [piece] for piece in vocabulary if piece in chosen}


def pieces_of_xlm_r(teacher: Path, vocabulary: Path) -> dict[str, list[str]]:
    """Find, for each piece of a WordPiece vocabulary, the pieces of XLM-R's that it begins as: the
    same one, which there begins with a mark if a word begins with it; else its characters; else
    the unknown one."""
    known = set(_vocabulary(teacher))
    found = dict(zip(_SPECIAL, ([piece] for piece in _SPECIAL_OF_XLM_R), strict=True))
    for piece in vocabulary.read_text(encoding="utf-8").split():
        text = piece.removeprefix("##")
        marked = [f"▁{text}", text]
        if piece.startswith("##") or ord(text[0]) >= _EAST_ASIAN:
            marked.reverse()
        same = [one for one in marked if one in known][:1]
        found.setdefault(piece, same or [one for one in text if one in known] or ["<unk>"])
    return found


def _vocabulary(folder: Path) -> list[str]:
    """Return the pieces of a model directory in the order of their numbers."""
    if (file := folder / "vocab.txt").exists():
        return file.read_text(encoding="utf-8").split()
    return [piece for piece, _ in read_json(folder / "tokenizer.json")["model"]["vocab"]]
