"""All layers of an ELMo for every word, computed once and kept on disk as those of an encoder are
(:mod:`bertine.inference.word_states`): ``layer_0`` is the word by itself."""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch

from bertine.inference.embedding.elmo_embedder import ElmoEmbedder
from bertine.inference.word_states import (
    WordStates,
    save_states,
    states_are_whole,
    word_starts,
)
from bertine.models.elmo.characters import is_cut
from bertine.records.sentences import Sentences
from bertine.terminal.console import counted

#: Version of what is in the files; another one is another hash.
_FORMAT = 1
#: Sentences whose states are in memory in fp32 at once.
_SENTENCES = 256


def elmo_states(embedder: ElmoEmbedder, sentences: Sentences, folder: Path | str) -> WordStates:
    """Return the layers of the words of `sentences`, each sentence read from a state of 0: from the
    file in `folder`, else computed and kept. Words that are longer than what is read of them are
    counted in the notes of `sentences`.

    Raises:
        BertineError: a number does not fit into 16 bits; the file cannot be written.
    """
    config = embedder.elmo.config
    starts = word_starts(sentences)
    digest = hashlib.sha256()
    digest.update(repr((_FORMAT, embedder.precision, *embedder.fingerprints())).encode())
    for item in sentences.items:
        digest.update(repr(item.words).encode("utf-8", "surrogatepass"))
    key = digest.hexdigest()
    cut = sum(
        is_cut(word, config.max_characters) for item in sentences.items for word in item.words
    )
    if cut:
        sentences.note(f"{sentences.source}: of {counted(cut, 'word')} only the beginning was read")
    path = Path(folder) / f"states-{key[:24]}.safetensors"
    num_layers = config.num_hidden_layers + 1
    if states_are_whole(path, key, num_layers):
        return WordStates(path, starts, True)
    layers = [
        torch.zeros(int(starts[-1]), config.width, dtype=torch.float16) for _ in range(num_layers)
    ]
    items = sentences.items
    for begin in range(0, len(items), _SENTENCES):
        chosen = items[begin : begin + _SENTENCES]
        states = embedder.layers([item.words for item in chosen])
        for row, state in enumerate(states, begin):
            for layer, of_layer in enumerate(torch.from_numpy(state).unbind(1)):
                layers[layer][int(starts[row]) : int(starts[row + 1])] = of_layer.half()
    save_states(path, key, layers)
    return WordStates(path, starts, False)
