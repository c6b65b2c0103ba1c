"""Training a BiLSTM on the states of a frozen encoder, and scoring it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bertine.data.batching import grouped_by_length
from bertine.inference.word_states import KnownStates
from bertine.models.precision import autocast
from bertine.models.recurrent.bilstm import BiLstmTagger
from bertine.models.seeding import torch_seed
from bertine.options.feature_based import BilstmRecipe
from bertine.records.sentences import Sentences
from bertine.tasks.tagging.report import TaggingReport
from bertine.tasks.tagging.tagged_text import Tags
from bertine.tasks.tagging.task import Tagging
from bertine.terminal.console import progress
from bertine.training.feature_based.table import row_of


@dataclass(frozen=True)
class TaggedStates:
    """Sentences that have words, the ids of their tags, and the states of their words."""

    sentences: Sentences
    states: KnownStates
    tags: list[np.ndarray]

    def __len__(self) -> int:
        return len(self.tags)


def train_row(
    name: str,
    layers: list[int],
    sets: dict[str, TaggedStates],
    task: Tagging,
    recipe: BilstmRecipe,
    device: torch.device,
    dtype: torch.dtype,
    metric: str,
) -> dict[str, Any]:
    """Train a BiLSTM on the states of some layers, and score it by `metric`; `dtype` is bf16 (by
    autocast) or fp32."""
    began = time.monotonic()
    states = {word: tagged.states.layers(layers) for word, tagged in sets.items()}
    train = sets["train"]
    lengths = [len(tags) for tags in train.tags]
    full = [index for index, length in enumerate(lengths) if length]
    # Of several GPUs the others' generators are no business of this row's.
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(torch_seed(recipe.seed, "feature-based weights", name))
        tagger = BiLstmTagger(
            states["train"][0].shape[1],
            len(layers),
            len(task.labels),
            concatenate=row_of(name).concatenate,
            lstm_size=recipe.lstm_size,
            lstm_layers=recipe.lstm_layers,
            dropout=recipe.dropout,
        ).to(device)
        optimizer = torch.optim.Adam(tagger.parameters(), lr=recipe.learning_rate, fused=True)
        steps = recipe.epochs * -(-len(full) // recipe.batch_size)
        step = 0
        best = 0.0
        report: TaggingReport | None = None
        with progress() as bar:
            job = bar.add_task(name, total=steps)
            for epoch in range(recipe.epochs):
                tagger.train()
                sizes = [lengths[index] for index in full]
                for batch in grouped_by_length(sizes, recipe.batch_size, recipe.seed, epoch):
                    torch.manual_seed(torch_seed(recipe.seed, "feature-based dropout", name, step))
                    for group in optimizer.param_groups:
                        group["lr"] = recipe.learning_rate * (1 - step / steps)
                    chosen = [full[at] for at in batch]
                    logits, counts = _logits(tagger, train, states["train"], chosen, device, dtype)
                    rows = [logits[at, :count] for at, count in enumerate(counts)]
                    labels = np.concatenate([train.tags[index] for index in chosen])
                    loss = F.cross_entropy(torch.cat(rows), torch.from_numpy(labels).to(device))
                    optimizer.zero_grad(set_to_none=True)
                    loss.backward()
                    if recipe.max_grad_norm > 0:
                        torch.nn.utils.clip_grad_norm_(tagger.parameters(), recipe.max_grad_norm)
                    optimizer.step()
                    step += 1
                    bar.advance(job)
                report = _score(
                    tagger, sets["validation"], states["validation"], task, device, dtype
                )
                best = max(best, report.metrics[metric])
                bar.update(job, facts=[f"{metric} {report.metrics[metric]:.4f}"])
        assert report is not None
        row: dict[str, Any] = {"validation": report.metrics, "best": best, "layers": layers}
        if "test" in sets:
            scored = _score(tagger, sets["test"], states["test"], task, device, dtype)
            row["test"] = scored.metrics
    row["seconds"] = time.monotonic() - began
    return row


def _logits(
    tagger: BiLstmTagger,
    part: TaggedStates,
    layers: Sequence[Tensor],
    chosen: Sequence[int],
    device: torch.device,
    dtype: torch.dtype,
) -> tuple[Tensor, list[int]]:
    """Return logits fp32 [B, W, K] of the sentences `chosen`, and their numbers of words."""
    starts = part.states.starts
    counts = [int(starts[index + 1] - starts[index]) for index in chosen]
    x = torch.zeros(len(chosen), max(counts), len(layers), layers[0].shape[1])
    for row, (index, count) in enumerate(zip(chosen, counts, strict=True)):
        begin = int(starts[index])
        for number, layer in enumerate(layers):
            x[row, :count, number] = layer[begin : begin + count].float()
    with autocast(dtype, device):
        logits: Tensor = tagger(x.to(device), torch.tensor(counts))
    return logits.float(), counts


def _score(
    tagger: BiLstmTagger,
    part: TaggedStates,
    layers: Sequence[Tensor],
    task: Tagging,
    device: torch.device,
    dtype: torch.dtype,
) -> TaggingReport:
    """Return the metrics of the tagger's most probable tags."""
    tagger.eval()
    lengths = [len(tags) for tags in part.tags]
    order = [int(place) for place in np.argsort(lengths, kind="stable") if lengths[place]]
    guesses: dict[int, Tags] = {}
    with torch.inference_mode():
        for start in range(0, len(order), 64):
            chosen = order[start : start + 64]
            logits, counts = _logits(tagger, part, layers, chosen, device, dtype)
            best = logits.argmax(-1).cpu()
            for place, (index, count) in enumerate(zip(chosen, counts, strict=True)):
                tags = tuple(task.labels[i] for i in best[place, :count].tolist())
                guesses[index] = Tags(tags, (1.0,) * count)
    nothing = Tags((), ())
    predictions = [guesses.get(index, nothing) for index in range(len(part))]
    return task.report(predictions, [item.tags or () for item in part.sentences.items])
