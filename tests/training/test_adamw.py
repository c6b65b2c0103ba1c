"""AdamW against PyTorch's plain one, and against the update of the paper's code written out."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import toys
from bertine.models.heads import Model
from bertine.training.adamw import AdamW, parameter_groups, row_gradients

STEPS = 6


def random_gradients(model: nn.Module, step: int, scale: float = 1.0) -> list[Tensor]:
    draw = torch.Generator().manual_seed(step)
    return [scale * torch.randn(p.shape, generator=draw) for p in model.parameters()]


def give(model: nn.Module, gradients: list[Tensor]) -> None:
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        parameter.grad = gradient.clone()


def twins() -> tuple[Model, Model]:
    return toys.pretraining_model(), toys.pretraining_model()


def assert_equal(model: nn.Module, expected: list[Tensor]) -> None:
    for (name, parameter), value in zip(model.named_parameters(), expected, strict=True):
        torch.testing.assert_close(
            parameter.detach().double(), value.detach().double(), rtol=1e-5, atol=1e-7, msg=name
        )


def test_decay_is_off_for_biases_and_layer_norms() -> None:
    model = toys.pretraining_model()
    decayed, plain = parameter_groups(model, 0.01)
    names = {id(parameter): name for name, parameter in model.named_parameters()}

    def named(group: dict[str, object]) -> set[str]:
        parameters = group["params"]
        assert isinstance(parameters, list)
        return {names[id(parameter)] for parameter in parameters}

    assert (decayed["weight_decay"], plain["weight_decay"]) == (0.01, 0.0)
    free = {n for n in names.values() if n.endswith("bias") or "norm" in n}
    assert named(plain) == free
    assert named(decayed) == set(names.values()) - free
    assert "backbone.embeddings.word_embeddings.weight" in named(decayed)


def test_with_bias_correction_it_is_pytorchs() -> None:
    ours, theirs = twins()
    settings = {"betas": (0.9, 0.98), "eps": 1e-6}
    optimizer = AdamW(ours, weight_decay=0.1, **settings)
    reference = torch.optim.AdamW(
        parameter_groups(theirs, 0.1), lr=0.0, fused=False, foreach=False, **settings
    )
    for step in range(STEPS):
        rate = 1e-2 / (step + 1)
        gradients = random_gradients(ours, step)
        give(ours, gradients)
        give(theirs, gradients)
        optimizer.clipped_step(rate, 0.0)
        for group in reference.param_groups:
            group["lr"] = rate
        reference.step()
    assert_equal(ours, list(theirs.parameters()))


@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.5, 0.99)])
def test_without_bias_correction_it_is_the_papers(betas: tuple[float, float]) -> None:
    """google-research/bert, ``AdamWeightDecayOptimizer.apply_gradients``, in float64."""
    model = toys.pretraining_model()
    optimizer = AdamW(model, weight_decay=0.01, betas=betas, eps=1e-6, bias_correction=False)
    weights = [p.detach().double().clone() for p in model.parameters()]
    names = [name for name, _ in model.named_parameters()]
    m = [torch.zeros_like(w) for w in weights]
    v = [torch.zeros_like(w) for w in weights]
    for step in range(STEPS):
        rate = 1e-3 * (step + 1)
        gradients = random_gradients(model, step)
        give(model, gradients)
        optimizer.clipped_step(rate, 0.0)
        for i, gradient in enumerate(g.double() for g in gradients):
            m[i] = betas[0] * m[i] + (1 - betas[0]) * gradient
            v[i] = betas[1] * v[i] + (1 - betas[1]) * gradient**2
            update = m[i] / (v[i].sqrt() + 1e-6)
            if "norm" not in names[i] and "bias" not in names[i]:
                update = update + 0.01 * weights[i]
            weights[i] = weights[i] - rate * update
    assert_equal(model, weights)


@pytest.mark.parametrize("max_grad_norm", [1.0, 1e9])
def test_clipping_is_pytorchs(max_grad_norm: float) -> None:
    ours, theirs = twins()
    optimizer = AdamW(ours, weight_decay=0.1)
    reference = torch.optim.AdamW(
        parameter_groups(theirs, 0.1), lr=0.0, eps=1e-6, fused=False, foreach=False
    )
    for step in range(STEPS):
        # Some steps are clipped and some are not; the state must not tell them apart.
        gradients = random_gradients(ours, step, scale=1e-3 if step % 2 else 5.0)
        give(ours, gradients)
        give(theirs, gradients)
        norm = optimizer.clipped_step(1e-3, max_grad_norm)
        expected = torch.nn.utils.clip_grad_norm_(theirs.parameters(), max_grad_norm)
        assert norm == pytest.approx(float(expected), rel=1e-5)
        written_out = sum(float((g.double() ** 2).sum()) for g in gradients) ** 0.5
        assert norm == pytest.approx(written_out, rel=1e-5)
        for group in reference.param_groups:
            group["lr"] = 1e-3
        reference.step()
    assert_equal(ours, list(theirs.parameters()))


def test_parameters_without_gradient_stay() -> None:
    model = toys.pretraining_model()
    optimizer = AdamW(model, weight_decay=0.1)
    give(model, random_gradients(model, 0))
    model.heads["nsp"].dense.weight.grad = None
    before = model.heads["nsp"].dense.weight.detach().clone()
    optimizer.clipped_step(1e-2, 1.0)
    assert torch.equal(model.heads["nsp"].dense.weight, before)


@pytest.mark.parametrize("tied", [False, True])
def test_row_gradients_give_the_same_updates(tied: bool) -> None:
    """Embeddings that give the gradients of their used rows alone train as they always did,
    with clipping, over accumulated parts, and where the table is the decoder too."""
    plain, sparse = twins()
    models = (plain.eval(), sparse.eval())
    # The gradient of the keys' bias is rounding error alone, which is not to be made a step.
    optimizers = [AdamW(model, weight_decay=0.1, eps=1e-3) for model in models]
    with row_gradients(sparse):
        for step in range(STEPS):
            norms = []
            for model, optimizer in zip(models, optimizers, strict=True):
                draw = torch.Generator().manual_seed(step)
                for _ in range(2):
                    # Few of the words, some of them more than once.
                    ids = torch.randint(5, 12, (3, 6), generator=draw)
                    hidden = model.backbone(ids).last_hidden_state
                    loss = (hidden * torch.randn(hidden.shape, generator=draw)).sum()
                    if tied:
                        table = model.backbone.embeddings.word_embeddings.weight
                        loss = loss + model.heads["mlm"](hidden[0], table).square().mean()
                    loss.backward()
                table = model.backbone.embeddings.word_embeddings.weight
                assert table.grad is not None
                assert table.grad.is_sparse == (model is sparse and not tied)
                norms.append(optimizer.clipped_step(1e-2, 0.5))
                optimizer.zero_grad(set_to_none=True)
            assert norms[0] > 0.5
            assert norms[0] == pytest.approx(norms[1], rel=1e-5)
    assert not any(getattr(m, "sparse", False) for m in sparse.modules())
    assert_equal(sparse, list(plain.parameters()))


def test_rows_that_were_never_used_are_as_after_a_dense_update() -> None:
    """Of a table of words only the rows with a gradient are computed, to the same bits, and in a
    resumed run as well."""
    tables = [nn.Embedding(9_000, 24) for _ in range(3)]
    for table in tables[1:]:
        table.load_state_dict(tables[0].state_dict())
    optimizers = [AdamW(table, weight_decay=0.1) for table in tables]
    for step in range(STEPS):
        ids = torch.randint(0, 40, (50,), generator=torch.Generator().manual_seed(step))
        for number, table in enumerate(tables):
            with row_gradients(table):
                (table(ids) - 1.0).square().sum().backward()
            if number == 0:  # of all rows at once
                assert table.weight.grad is not None
                table.weight.grad = table.weight.grad.to_dense()
            if number == 2 and step == 2:
                resumed = AdamW(table, weight_decay=0.1)
                for name, value in optimizers[2].state[table.weight].items():
                    resumed.state[table.weight][name].copy_(value)
                optimizers[2] = resumed
            optimizers[number].clipped_step(1e-2, 1.0)
            optimizers[number].zero_grad(set_to_none=True)
    for table, optimizer in zip(tables[1:], optimizers[1:], strict=True):
        assert torch.equal(table.weight, tables[0].weight)
        for name, value in optimizer.state[table.weight].items():
            assert torch.equal(value, optimizers[0].state[tables[0].weight][name]), name
