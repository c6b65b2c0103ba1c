"""Masks filled along the way: what a model puts for the same few hidden words as it learns.

The sentences and the hidden words are chosen once, as a function of the store and the seed. At
every evaluation ``fill`` asks the model, and ``write_samples`` puts the answers into the run's
folder, one JSON object a line:

    {"step": 1000, "samples": [{"text": "the [MASK] sleeps in the sofa.", "truth": "cat",
     "mask": "[MASK]", "truth_probability": 0.61,
     "guesses": [{"token": "cat", "probability": 0.61}, ...]}, ...]}

Pieces go by their names (:mod:`bertine.text.pieces`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from bertine.data.store import TokenStore
from bertine.errors import BertineError
from bertine.files import write_text
from bertine.inference.compute.running import computing_with, device_of
from bertine.models.model import Model
from bertine.rng import generator
from bertine.runs.log import read_log
from bertine.scores import ranking
from bertine.tasks.features import Features, pad_features
from bertine.text.spacing import close_up
from bertine.text.tokenizer import Tokenizer

SAMPLES = "samples.jsonl"

#: Pieces of a sentence that says something by itself; and of one that is read at a glance.
_SHORTEST, _LONGEST = 8, 40
#: Draws from the store for each sample before it is given up: stores of very short or very long
#: sentences have few to offer.
_TRIES = 200


@dataclass(frozen=True)
class _Sample:
    """A sentence with one piece hidden: ids with special tokens, and where and what it was."""

    input_ids: tuple[int, ...]
    position: int
    truth: int


class MaskSamples:
    """A few fixed sentences with one hidden word each.

    A hidden word is one whole piece of letters. Of the words of a sentence rarer ones are chosen
    more often, by the fourth root of their frequency: hidden alike, most would be "the" and its
    kind; hidden by rarity, most would be words that no small model guesses.

    Args:
        tokenizer: of the model.
        source: a store (a held-out one, or the training store), made by `tokenizer`; or sentences.
        seed: of the choice.
        count: how many; from a store, fewer when it has not so many suitable sentences. All
            suitable ones of given sentences are taken, up to `count`.
        max_length: tokens of a sample with special tokens: no more than the model is trained on;
            None: as many as are read at a glance.

    Raises:
        BertineError: the store was made by another tokenizer, or no sentence is suitable: 8 to 40
            pieces, within `max_length`, none of them unknown, one of them a whole word of letters.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        source: TokenStore | Sequence[str],
        seed: int = 0,
        *,
        count: int = 8,
        max_length: int | None = None,
    ) -> None:
        self.tokenizer = tokenizer
        self._mask_id = tokenizer.require_mask("guessing hidden words")
        room = _LONGEST if max_length is None else max_length - tokenizer.template.added()
        self._longest = min(_LONGEST, room)
        self._whole = np.array([name.isalpha() for name in tokenizer.names])
        self._whole &= ~tokenizer.continues
        self._whole[list(tokenizer.special_ids)] = False
        if isinstance(source, TokenStore):
            source.check_tokenizer(tokenizer)
            name = str(source.path)
            chosen = self._from_store(source, seed, count)
        else:
            name = "the sentences"
            ids = [np.asarray(one, np.int64) for one in tokenizer.encode_plain(source)]
            flat = np.ones(tokenizer.vocab_size, np.int64)
            hidden = (self._hide(one, flat, seed, index) for index, one in enumerate(ids))
            chosen = [sample for sample in hidden if sample is not None][:count]
        if not chosen:
            raise BertineError(
                f"{name}: no sentence for mask samples; one must have {_SHORTEST} to "
                f"{self._longest} pieces, none unknown, and a word of one piece"
            )
        self._samples = chosen

    def __len__(self) -> int:
        return len(self._samples)

    def _from_store(self, store: TokenStore, seed: int, count: int) -> list[_Sample]:
        """Draw sentences that random tokens of the store are in, each once."""
        chosen: list[_Sample] = []
        taken: set[tuple[int, int]] = set()
        for number in range(count):
            for attempt in range(_TRIES):
                draw = generator(seed, "mask samples", number, attempt)
                document, offset = store.locate(int(draw.integers(store.num_tokens)))
                chunk, row = store.row(document)
                sentence, start = chunk.sentence_at(row, offset)
                if (document, sentence) in taken:
                    continue
                length = chunk.sentence_lengths[chunk.sentence_offsets[row] + sentence]
                first = chunk.token_offsets[row] + start
                ids = store.unmark(chunk.input_ids[first : first + length])[0].astype(np.int64)
                sample = self._hide(ids, store.unigram_counts, seed, number, attempt)
                if sample is not None:
                    taken.add((document, sentence))
                    chosen.append(sample)
                    break
        return chosen

    def _hide(
        self, ids: npt.NDArray[np.int64], counts: npt.NDArray[np.int64], seed: int, *where: int
    ) -> _Sample | None:
        """Return `ids` with a piece hidden, or None where the sentence is not suitable."""
        tokenizer = self.tokenizer
        if not _SHORTEST <= len(ids) <= self._longest or tokenizer.unk_token_id in ids:
            return None
        goes_on = np.append(tokenizer.continues[ids[1:]], False)
        candidates = np.flatnonzero(self._whole[ids] & ~goes_on)
        if not len(candidates):
            return None
        weights = np.maximum(counts[ids[candidates]], 1) ** -0.25
        draw = generator(seed, "hidden words", *where)
        position = int(draw.choice(candidates, p=weights / weights.sum()))
        masked = ids.tolist()
        truth = masked[position]
        masked[position] = self._mask_id
        frame = tokenizer.template.one
        (start,) = frame.starts([len(masked)])
        return _Sample(tuple(frame.join([masked])), start + position, truth)

    def fill(
        self, model: Model, *, top_k: int = 5, dtype: torch.dtype = torch.float32
    ) -> list[dict[str, Any]]:
        """Return what `model` puts for each hidden word.

        Args:
            model: with a masked-LM head, on any device; put into evaluation mode and back into
                the mode it was in.
            top_k: guesses to keep.
            dtype: to compute in: bf16 (by autocast) or fp32.

        Returns:
            For each sample, as JSON values: ``text`` with the ``mask`` in it, ``truth``, the
            ``truth_probability`` that the model gave to it (0 to 1), and its best ``guesses``,
            best first, each a ``token`` with its ``probability``.

        Raises:
            BertineError: the model has no masked-LM head, or too few positions or pieces.
        """
        tokenizer, config = self.tokenizer, model.config
        if "mlm" not in model.heads:
            raise BertineError("the model has no masked-LM head; use a pre-trained model")
        width = max(len(sample.input_ids) for sample in self._samples)
        if width > config.longest_input or tokenizer.vocab_size > config.vocab_size:
            raise BertineError(
                f"the mask samples have {width} pieces of a vocabulary of {tokenizer.vocab_size}, "
                f"but the model takes {config.longest_input} of {config.vocab_size}"
            )
        features = [
            Features(np.array(sample.input_ids), np.zeros(len(sample.input_ids)), row)
            for row, sample in enumerate(self._samples)
        ]
        batch = pad_features(features, tokenizer.pad_token_id, width).to(device_of(model))
        positions = torch.tensor([sample.position for sample in self._samples])
        places = torch.arange(len(self)) * width + positions
        with computing_with(model, dtype):
            encoded = model.encode(batch)
            logits = model.read("mlm", encoded, places=places.to(batch.input_ids.device))
            logits = logits[:, : tokenizer.vocab_size].float().cpu()
            probabilities = logits.softmax(-1)
        begin, behind = len(tokenizer.template.one.before), len(tokenizer.template.one.after)
        return [
            {
                "text": close_up(
                    tokenizer.show(sample.input_ids[begin : len(sample.input_ids) - behind])
                ),
                "mask": tokenizer.mask_text,
                "truth": tokenizer.names[sample.truth],
                "truth_probability": float(probabilities[row, sample.truth]),
                "guesses": [
                    {
                        "token": tokenizer.names[index],
                        "probability": float(probabilities[row, index]),
                    }
                    for index in ranking(logits[row].numpy(), top_k).tolist()
                ],
            }
            for row, sample in enumerate(self._samples)
        ]


def write_samples(folder: Path, step: int, samples: list[dict[str, Any]]) -> None:
    """Put what :meth:`MaskSamples.fill` gave after `step` steps into ``folder/samples.jsonl``.

    Lines of this and later steps are replaced: a run that was killed and resumed from an earlier
    checkpoint comes by them again, and each step is there once. The file is written as a whole,
    so a crash leaves the old or the new.

    Raises:
        BertineError: the file cannot be read or written.
    """
    path = folder / SAMPLES
    kept = [entry for entry in read_log(path, mend=True) if entry["step"] < step]
    entries = [*kept, {"step": step, "samples": samples}]
    write_text(path, "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in entries))
