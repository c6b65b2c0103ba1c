"""What a word in two sentences, and a gap in a sentence, look like to each system."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from systems import System

import bertine
from bertine.inference.embedding.opened import open_embedder
from bertine.inference.minimal_pairs.elmo_probability import BothWaysProbability
from bertine.interop.elmo.directory import load_elmo
from bertine.modeldir import load_model
from bertine.models.elmo.characters import BEGIN, END, character_ids
from bertine.models.encoded import TextInputs
from bertine.text.tokenizer import Tokenizer

#: "bank" of a river twice, and of money twice.
BANKS = (
    "He walked along the bank of the stream.",
    "She sat on the bank of the river.",
    "The bank lent him the money.",
    "She put the money in the bank.",
)
#: Which of them are compared.
COMPARED = ((0, 1), (2, 3), (0, 2), (1, 3))
WORD = "bank"
#: What stands before a gap, and behind it.
GAPS = (("The king and the", "of England."), ("She sat on the bank of the", "and looked at it."))
_TOP = 5


def look_at(system: System, model: Path) -> dict[str, Any]:
    """Return ``cosines``, for each pair of :data:`COMPARED` (None where the word has no vector),
    and ``words``, for each gap what the system would put there: (word, probability or cosine)."""
    return {
        "cosines": _cosines(system, model),
        "words": [_words(system, model, *gap) for gap in GAPS],
    }


def _cosines(system: System, model: Path) -> list[float | None]:
    if system.asked == "neighbours":
        vectors = bertine.WordVectors.load(model)
        if WORD not in vectors:
            return [None] * len(COMPARED)
        states = [vectors[WORD]] * len(BANKS)
    elif system.asked == "both ways":
        embedder: Any = open_embedder(model, pooling="tokens")
        states = []
        for text in BANKS:
            words = embedder.words(text)
            states.append(embedder.layers([words])[0][words.index(WORD)].mean(0))
    else:
        tokens: Any = bertine.Embedder.load(model, pooling="tokens", precision="fp32")
        states = []
        for text in BANKS:
            seen, at = tokens.embed_tokens(text), text.index(WORD)
            inside = [
                vector
                for vector, (begin, end) in zip(seen.vectors, seen.offsets, strict=True)
                if end > at and begin < at + len(WORD) and end > begin
            ]
            states.append(np.mean(inside, axis=0))
    return [_cosine(states[a], states[b]) for a, b in COMPARED]


def _cosine(a: np.ndarray, b: np.ndarray) -> float:
    size = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / size if size else 0.0


def _words(system: System, model: Path, before: str, after: str) -> list[list[Any]]:
    if system.asked == "masks":
        mask = Tokenizer.load(model).mask_text
        filled = bertine.fill_mask(model, f"{before} {mask} {after}", top_k=_TOP)
        return [[each.token, each.probability] for each in filled[0].candidates]
    if system.asked == "next":
        return _next_pieces(model, before)
    if system.asked == "both ways":
        return _between(model, before, after)
    if system.asked == "neighbours":
        vectors = bertine.WordVectors.load(model)
        near = vectors.nearest(f"{before} {after}", _TOP)
        return [[each.word, each.score] for each in near.nearest]
    return []


def _next_pieces(model: Path, before: str) -> list[list[Any]]:
    loaded = load_model(model)
    words = loaded.tokenizer
    ids = words.encode_plain([before])[0]
    with torch.inference_mode():
        encoded = loaded.model.encode(TextInputs(torch.tensor([ids])))
        logits = loaded.model.read("lm", encoded, places=torch.tensor([len(ids) - 1]))
        best = logits[0, : words.vocab_size].float().softmax(-1).topk(_TOP)
    return [
        [words.decode([index]).strip() or words.names[index], value]
        for value, index in zip(best.values.tolist(), best.indices.tolist(), strict=True)
    ]


def _between(model: Path, before: str, after: str) -> list[list[Any]]:
    """Return the words whose probabilities from both sides have the highest product, with that of
    the product among all words."""
    elmo = load_elmo(model)
    split = BothWaysProbability(elmo).words_of
    first, last = [BEGIN, *split(before)], [*split(after), END]
    places, half = elmo.model.config.max_characters, elmo.model.config.projection_size
    assert elmo.softmax is not None
    with torch.inference_mode():
        logs = 0.0
        for words, at, part in ((first, -1, slice(0, half)), (last, 0, slice(half, None))):
            ids = torch.from_numpy(character_ids(words, places))[None]
            layers, _ = elmo.model.layers_of(ids, torch.tensor([len(words)]))
            scores = layers[0, at, -1, part] @ elmo.softmax.weight.T + elmo.softmax.bias
            logs = logs + scores.log_softmax(-1)
        best = torch.as_tensor(logs).softmax(-1).topk(_TOP)
    return [
        [elmo.words[index], value]
        for value, index in zip(best.values.tolist(), best.indices.tolist(), strict=True)
    ]
