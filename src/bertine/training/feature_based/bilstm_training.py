"""Training a BiLSTM on the states of a frozen model, and scoring it."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import nn

from bertine.data.batching import grouped_by_length
from bertine.models.seeding import torch_seed
from bertine.options.feature_based import BilstmRecipe
from bertine.tasks.report import EvaluationReport
from bertine.terminal.console import progress
from bertine.training.feature_based.problems import DeviceAndType, ExampleStates, Problem
from bertine.training.feature_based.table import MIX_ROWS, row_of


def train_row(
    name: str,
    layers: list[int],
    sets: dict[str, ExampleStates],
    problem: Problem[Any],
    recipe: BilstmRecipe,
    how: DeviceAndType,
) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """Train a BiLSTM on the states of some layers, and score it.

    Args:
        name: of the row.
        sets: "train", "validation" and others, which are scored too.
        recipe: sizes, and how it is trained; its `layer_penalty` is resolved.

    Returns:
        The row of the table, and the answers for each set that was scored.
    """
    began = time.monotonic()
    states = {word: part.states.layers(layers) for word, part in sets.items()}
    train = sets["train"]
    lengths, full = train.lengths, problem.trained_on(train)
    row = row_of(name)
    # Of several GPUs the others' generators are no business of this row's.
    with torch.random.fork_rng([how.device] if how.device.type == "cuda" else []):
        torch.manual_seed(torch_seed(recipe.seed, "feature-based weights", name))
        module = problem.module(
            recipe,
            states["train"][0].shape[1],
            len(layers),
            concatenate=row.concatenate,
            mix_output=row.mix_output,
            mix_input=row.mix_input,
        ).to(how.device)
        optimizer = torch.optim.Adam(module.parameters(), lr=recipe.learning_rate, fused=True)
        steps = recipe.epochs * -(-len(full) // recipe.batch_size)
        step = 0
        best = -float("inf")
        report: EvaluationReport | None = None
        answers: dict[str, list[Any]] = {}
        with progress() as bar:
            job = bar.add_task(name, total=steps)
            for epoch in range(recipe.epochs):
                module.train()
                sizes = [lengths[index] for index in full]
                for batch in grouped_by_length(sizes, recipe.batch_size, recipe.seed, epoch):
                    torch.manual_seed(torch_seed(recipe.seed, "feature-based dropout", name, step))
                    for group in optimizer.param_groups:
                        group["lr"] = recipe.learning_rate * (1 - step / steps)
                    chosen = [full[at] for at in batch]
                    loss = problem.loss(module, train, states["train"], chosen, how)
                    penalty = module.penalty() if recipe.layer_penalty else None
                    if penalty is not None:
                        loss = loss + recipe.layer_penalty * penalty
                    optimizer.zero_grad(set_to_none=True)
                    loss.backward()
                    if recipe.max_grad_norm > 0:
                        torch.nn.utils.clip_grad_norm_(module.parameters(), recipe.max_grad_norm)
                    optimizer.step()
                    step += 1
                    bar.advance(job)
                report, answers["validation"] = _score(
                    module, sets["validation"], states["validation"], problem, how
                )
                metric = report.metrics[problem.metric]
                best = max(best, metric)
                bar.update(job, facts=[f"{problem.metric} {metric:.4f}"])
        assert report is not None
        result: dict[str, Any] = {"validation": report.metrics, "best": best, "layers": layers}
        if name in MIX_ROWS:
            result["layer_weights"] = module.layer_weights()
        for word in [word for word in sets if word not in ("train", "validation")]:
            scored, answers[word] = _score(module, sets[word], states[word], problem, how)
            result[word] = scored.metrics
    result["seconds"] = time.monotonic() - began
    return result, answers


def _score(
    module: nn.Module,
    part: ExampleStates,
    layers: list[torch.Tensor],
    problem: Problem[Any],
    how: DeviceAndType,
) -> tuple[EvaluationReport, list[Any]]:
    """Return the report of the answers, and these."""
    module.eval()
    with torch.inference_mode():
        answers = problem.answers(module, part, layers, how)
    return problem.report(answers, part.examples), answers
