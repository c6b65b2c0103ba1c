"""What a word in two sentences, and a gap in a sentence, look like to each system."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from systems import System
from torch import Tensor

import bertine
from bertine.contrib.elmo.files import load_elmo
from bertine.contrib.elmo.model import BEGIN, END, character_ids
from bertine.contrib.elmo.perplexity import SPECIAL
from bertine.families.xlnet_layers import GuessedPlaces, hidden_by_order
from bertine.hub.model_directory import LoadedModel, load_model
from bertine.models.encoder import TextInputs
from bertine.tokenization.tokenizer import Tokenizer

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


@dataclass(frozen=True)
class Way:
    """How a system is asked.

    Attributes:
        title: what is asked for, for people.
        words: (model, before, after) → what it would put into the gap, with the probability or the
            cosine of each.
        rated: whether these are probabilities.
        states: (model) → the vector of :data:`WORD` in each of :data:`BANKS`; empty where it has
            none.
    """

    title: str
    words: Callable[[Path, str, str], list[list[Any]]]
    rated: bool = True
    states: Callable[[Path], list[np.ndarray]] | None = None


def look_at(system: System, model: Path) -> dict[str, Any]:
    """Return ``cosines``, for each pair of :data:`COMPARED` (None where the word has no vector),
    and ``words``, for each gap what the system would put there: (word, probability or cosine)."""
    way = WAYS.get(system.asked)
    states = ((way and way.states) or _of_pieces)(model)
    return {
        "cosines": [_cosine(states[a], states[b]) if states else None for a, b in COMPARED],
        "words": [[] if way is None else way.words(model, *gap) for gap in GAPS],
    }


def _of_words(model: Path) -> list[np.ndarray]:
    vectors = bertine.WordVectors.load(model)
    return [vectors[WORD]] * len(BANKS) if WORD in vectors else []


def _of_elmo(model: Path) -> list[np.ndarray]:
    encoder: Any = bertine.Embedder.load(model, pooling="tokens").encoder
    states = []
    for text in BANKS:
        words = encoder.model.config.words_of(text)
        states.append(encoder.layers([words])[0][words.index(WORD)].mean(0))
    return states


def _of_pieces(model: Path) -> list[np.ndarray]:
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
    return states


def _cosine(a: np.ndarray, b: np.ndarray) -> float:
    size = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / size if size else 0.0


def _at_mask(model: Path, before: str, after: str) -> list[list[Any]]:
    mask = Tokenizer.load(model).mask_text
    filled = bertine.fill_mask(model, f"{before} {mask} {after}", top_k=_TOP)
    return [[each.token, each.probability] for each in filled[0].candidates]


def _near(model: Path, before: str, after: str) -> list[list[Any]]:
    near = bertine.WordVectors.load(model).nearest(f"{before} {after}", _TOP)
    return [[each.word, each.score] for each in near.nearest]


def _next_pieces(model: Path, before: str, after: str) -> list[list[Any]]:
    loaded = load_model(model)
    ids = loaded.tokenizer.encode_plain([before])[0]
    with torch.inference_mode():
        encoded = loaded.model.encode(TextInputs(torch.tensor([ids])))
        return _best(loaded, loaded.model.read("lm", encoded, places=torch.tensor([len(ids) - 1])))


def _in_any_order(model: Path, before: str, after: str) -> list[list[Any]]:
    loaded = load_model(model)
    ids, types, place = _with_gap(loaded, before, after)
    order = torch.full(ids.shape, -1)
    order[0, place] = 0  # known last; all others are from the beginning
    guesses = GuessedPlaces(torch.tensor([[place]]), hidden_by_order(order))
    with torch.inference_mode():
        backbone: Any = loaded.model.backbone
        encoded = backbone(ids, None, types, guesses=guesses)
        return _best(loaded, loaded.model.read("plm", encoded, places=torch.tensor([0])))


def _written(model: Path, before: str, after: str) -> list[list[Any]]:
    loaded = load_model(model)
    ids, _, place = _with_gap(loaded, before, after)
    backbone: Any = loaded.model.backbone
    target = TextInputs(backbone.shifted(ids[:, : place + 1]))
    with torch.inference_mode():
        encoded = loaded.model.encode(TextInputs(ids), target=target)
        return _best(loaded, loaded.model.read("lm", encoded, places=torch.tensor([place])))


def _with_gap(loaded: LoadedModel, before: str, after: str) -> tuple[Tensor, Tensor, int]:
    """Return ids [1, T] and segments [1, T] of a sentence with one mask, and where that is."""
    words = loaded.tokenizer
    whole = words.encode(f"{before} {words.mask_text} {after}")
    ids, types = (torch.tensor([row]) for row in (whole.input_ids, whole.token_type_ids))
    return ids, types, whole.input_ids.index(words.require_mask("a gap"))


def _best(loaded: LoadedModel, logits: Tensor) -> list[list[Any]]:
    """Return the pieces with the highest of `logits`, [1, V], and their probabilities."""
    words = loaded.tokenizer
    best = logits[0, : words.vocab_size].float().softmax(-1).topk(_TOP)
    return [
        [words.decode([index]).strip() or words.names[index], value]
        for value, index in zip(best.values.tolist(), best.indices.tolist(), strict=True)
    ]


def _between(model: Path, before: str, after: str) -> list[list[Any]]:
    """Return the words whose probabilities from both sides have the highest product, with that of
    the product among all known words."""
    elmo = load_elmo(model)
    split = elmo.model.config.words_of
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
        # Every rare word counts as unknown, which is so probable that no other would be seen.
        known = torch.as_tensor(logs)
        known[[index for index, word in enumerate(elmo.words) if word in SPECIAL]] = -torch.inf
        best = known.softmax(-1).topk(_TOP)
    return [
        [elmo.words[index], value]
        for value, index in zip(best.values.tolist(), best.indices.tolist(), strict=True)
    ]


#: By :attr:`systems.System.asked`.
WAYS = {
    "neighbours": Way(
        "words near the mean of those around (cosines, no probabilities)",
        _near,
        rated=False,
        states=_of_words,
    ),
    "both ways": Way("the word that both directions agree on", _between, states=_of_elmo),
    "next": Way("the next piece, the rest not being seen", _next_pieces),
    "masks": Way("what stands at the mask", _at_mask),
    "any order": Way("the piece that becomes known last", _in_any_order),
    "infilling": Way("what its decoder writes first at the mask of its encoder", _written),
}
