"""LAMB and Muon against their papers written out, and in the training loop."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bertine
import toys
from bertine.core.errors import BertineError
from bertine.core.names import OptimizerName
from bertine.families.presets import PRESETS
from bertine.models.family import family_of
from bertine.models.heads import Model
from bertine.options.training import Updates
from bertine.training.adamw import ClippedOptimizer, device_clip, row_gradients
from bertine.training.optimizers import OPTIMIZERS, Lamb, Muon, optimizer_for, orthogonal, parts_of

from .test_adamw import assert_equal, give, random_gradients

STEPS = 5
OTHERS: list[OptimizerName] = ["lamb", "muon"]


def parts(model: nn.Module) -> list[int]:
    """How many matrices each parameter is."""
    return [
        3 if name.endswith(("qkv.weight", "qkv.bias")) else 1
        for name, _ in model.named_parameters()
    ]


def moments(
    gradients: Tensor, m: Tensor, v: Tensor, betas: tuple[float, float], step: int, correct: bool
) -> Tensor:
    """Adam's direction; `m` and `v` are updated in place."""
    m.mul_(betas[0]).add_(gradients, alpha=1 - betas[0])
    v.mul_(betas[1]).add_(gradients**2, alpha=1 - betas[1])
    if not correct:
        return m / (v.sqrt() + 1e-6)
    return (m / (1 - betas[0] ** step)) / ((v / (1 - betas[1] ** step)).sqrt() + 1e-6)


@pytest.mark.parametrize("max_grad_norm", [0.0, 1.0])
@pytest.mark.parametrize("correct", [True, False], ids=["paper", "google"])
def test_lamb_is_the_papers_and_googles(correct: bool, max_grad_norm: float) -> None:
    """You et al. 2019, algorithm 2, and google-research/albert, ``LAMBOptimizer``, in float64."""
    model = toys.pretraining_model()
    optimizer = Lamb(model, weight_decay=0.02, betas=(0.9, 0.99), bias_correction=correct)
    weights = [p.detach().double().clone() for p in model.parameters()]
    state = [(torch.zeros_like(w), torch.zeros_like(w)) for w in weights]
    for step in range(1, STEPS + 1):
        rate = 1e-2 * step
        gradients = random_gradients(model, step)
        give(model, gradients)
        norm = optimizer.clipped_step(rate, max_grad_norm)
        doubles = [g.double() for g in gradients]
        written_out = sum(float((g**2).sum()) for g in doubles) ** 0.5
        assert norm == pytest.approx(written_out, rel=1e-5)
        scale = max(1.0, written_out / max_grad_norm) if max_grad_norm else 1.0
        for w, g, (m, v), count in zip(weights, doubles, state, parts(model), strict=True):
            update = moments(g / scale, m, v, (0.9, 0.99), step, correct)
            if w.ndim == 1:
                w -= rate * update
                continue
            update = update + 0.02 * w
            for part, change in zip(w.chunk(count), update.chunk(count), strict=True):
                part -= rate * part.norm() / change.norm() * change
    assert_equal(model, weights)


def test_lamb_of_a_matrix_of_zeros_moves_as_adam_does() -> None:
    model = toys.pretraining_model()
    matrix = model.heads["nsp"].dense.weight
    with torch.no_grad():
        matrix.zero_()
    optimizer = Lamb(model, weight_decay=0.01, eps=0.0)
    give(model, random_gradients(model, 0))
    optimizer.clipped_step(1e-3, 0.0)
    torch.testing.assert_close(matrix.detach().abs(), torch.full_like(matrix, 1e-3))


def test_the_parts_of_joined_tensors_are_the_published_variables() -> None:
    model = toys.pretraining_model()
    rows = dict(family_of("bert").names.rows(model.config))
    found = parts_of(model)
    for name, parameter in model.named_parameters():
        assert found.get(parameter, 1) == len(rows[name])


def newton_schulz(gradient: Tensor) -> Tensor:
    """The published iteration (Jordan 2024), in float64."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = gradient.T if gradient.shape[0] > gradient.shape[1] else gradient
    x = x / (x.norm() + 1e-7)
    for _ in range(5):
        s = x @ x.T
        x = a * x + (b * s + c * s @ s) @ x
    return x.T if gradient.shape[0] > gradient.shape[1] else x


@pytest.mark.parametrize("max_grad_norm", [0.0, 1.0])
def test_muon_is_the_published_one_with_adamw_beside_it(max_grad_norm: float) -> None:
    model = toys.pretraining_model()
    optimizer = Muon(model, weight_decay=0.1, betas=(0.9, 0.99))
    names = [name for name, _ in model.named_parameters()]
    weights = [p.detach().double().clone() for p in model.parameters()]
    state = [(torch.zeros_like(w), torch.zeros_like(w)) for w in weights]
    used = set()
    for step in range(1, STEPS + 1):
        rate = 1e-2 * step
        gradients = random_gradients(model, step)
        give(model, gradients)
        optimizer.clipped_step(rate, max_grad_norm)
        doubles = [g.double() for g in gradients]
        norm = sum(float((g**2).sum()) for g in doubles) ** 0.5
        scale = max(1.0, norm / max_grad_norm) if max_grad_norm else 1.0
        for name, w, g, (m, v), count in zip(
            names, weights, doubles, state, parts(model), strict=True
        ):
            if w.ndim == 2 and name.startswith("backbone.layers."):
                used.add(name)
                m.mul_(0.95).add_(g / scale, alpha=0.05)
                nesterov = 0.05 * g / scale + 0.95 * m
                for part, change in zip(w.chunk(count), nesterov.chunk(count), strict=True):
                    length = 0.2 * max(part.shape) ** 0.5
                    part *= 1 - rate * 0.1
                    part -= rate * length * newton_schulz(change)
                continue
            update = moments(g / scale, m, v, (0.9, 0.99), step, True)
            w *= 1 - rate * (0.1 if w.ndim > 1 else 0.0)
            w -= rate * update
    assert {name.partition("layers.0.")[2] for name in used if "layers.0." in name} == {
        "attention.qkv.weight",
        "attention.out.weight",
        "up.weight",
        "down.weight",
    }
    for (name, parameter), value in zip(model.named_parameters(), weights, strict=True):
        torch.testing.assert_close(
            parameter.detach().double(), value, rtol=1e-4, atol=1e-5, msg=name
        )


@pytest.mark.slow
def test_muon_takes_the_matrices_of_every_familys_layers_and_no_others() -> None:
    for name, preset in PRESETS.items():
        small = name.endswith(("tiny", "small", "xsmall", "base"))
        if not small or preset.num_hidden_layers > 12:
            continue
        with torch.device("meta"):
            model = Model(preset, {})
            groups = Muon(model).param_groups
        mine = {p for group in groups if group["muon"] for p in group["params"]}
        in_layers = {p for p in model.backbone.layers.parameters() if p.ndim == 2}
        assert mine == in_layers, name
        assert mine


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_muon_makes_is_nearly_orthogonal(dtype: torch.dtype) -> None:
    draw = torch.Generator().manual_seed(0)
    matrices = torch.randn(3, 48, 192, generator=draw)
    values = torch.linalg.svdvals(orthogonal(matrices.to(dtype)).float())
    assert float(values.min()) > 0.6
    assert float(values.max()) < 1.3
    u, _, v = torch.linalg.svd(matrices, full_matrices=False)
    same = (orthogonal(matrices.to(dtype)).float() * (u @ v)).sum((1, 2)) / 48
    assert float(same.min()) > 0.8


def test_muons_updates_are_as_large_as_adamws() -> None:
    """So that AdamW's rate and decay carry over: 0.2 of the rate, as AdamW's are in training."""
    model = toys.pretraining_model()
    layer = model.backbone.layers[0]
    before = {name: p.detach().clone() for name, p in layer.named_parameters()}
    optimizer = Muon(model, weight_decay=0.0)
    give(model, random_gradients(model, 0))
    optimizer.clipped_step(1e-3, 0.0)
    for name, parameter in layer.named_parameters():
        if parameter.ndim == 2:
            moved = (parameter.detach() - before[name]).square().mean().sqrt()
            assert float(moved) == pytest.approx(0.2e-3, rel=0.25), name


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_layer_decay_and_momentum_reach_every_optimizer(name: OptimizerName) -> None:
    model = toys.pretraining_model()
    options = Updates(optimizer=name, layer_decay=0.5, weight_decay=0.0)
    optimizer = optimizer_for(model, options, torch.float32)
    assert isinstance(optimizer, OPTIMIZERS[name])
    optimizer.set_beta1(0.8)
    assert {group["betas"][0] for group in optimizer.param_groups} == {0.8}
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    give(model, [torch.ones_like(p) for p in model.parameters()])
    optimizer.clipped_step(1e-3, 0.0)
    moved = {n: (p.detach() - before[n]).abs().mean() for n, p in model.named_parameters()}
    last = model.config.num_hidden_layers - 1
    for low, high in itertools.pairwise(range(last + 1)):
        end = "output_norm.bias"
        share = moved[f"backbone.layers.{low}.{end}"] / moved[f"backbone.layers.{high}.{end}"]
        assert float(share) == pytest.approx(0.5, rel=1e-3)


@pytest.mark.parametrize("name", OTHERS)
def test_sparse_gradients_make_the_same_updates(name: OptimizerName) -> None:
    with toys.one_thread():
        results = []
        for sparse in (False, True):
            model = toys.pretraining_model()
            optimizer = optimizer_for(model, Updates(optimizer=name), torch.float32)
            table = model.backbone.embeddings.position_embeddings
            for step in range(3):
                draw = torch.Generator().manual_seed(step)
                rows = torch.randint(table.num_embeddings, (7,), generator=draw)
                scale = torch.randn(7, 1, generator=draw)
                model.zero_grad(set_to_none=True)
                if sparse:
                    with row_gradients(model):
                        (table(rows) * scale).sum().backward()
                else:
                    (table(rows) * scale).sum().backward()
                assert table.weight.grad.is_sparse == sparse
                optimizer.clipped_step(1e-2, 1.0)
            results.append(table.weight.detach().clone())
        torch.testing.assert_close(*results, rtol=1e-6, atol=1e-8)


def train(folder: Path, store: Path, **changes: Any) -> list[dict[str, Any]]:
    settings: dict[str, Any] = {
        "model": changes.pop("model"),
        "steps": 30,
        "batch_size": 16,
        "max_seq_length": 32,
        "learning_rate": 5e-3,
        "log_every": 5,
        "precision": "fp32",
        "device": "cpu",
    }
    bertine.pretrain(store, out=folder, **{**settings, **changes})
    return toys.log(folder)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toys.write_store(tmp_path_factory.mktemp("toys") / "store")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toys.write_model(tmp_path_factory.mktemp("toys") / "model")


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", OTHERS)
def test_a_resumed_run_is_the_undisturbed_one_bit_for_bit(
    name: str,
    precision: str,
    store: Path,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = {"model": model, "optimizer": name, "precision": precision, "checkpoint_every": 4}
    with toys.one_thread():
        train(tmp_path / "whole", store, **given, steps=10)
        step = ClippedOptimizer.clipped_step
        done = itertools.count()

        def interrupted(self: ClippedOptimizer, *args: Any) -> Any:
            if next(done) == 6:
                raise KeyboardInterrupt
            return step(self, *args)

        with monkeypatch.context() as patch:
            patch.setattr(ClippedOptimizer, "clipped_step", interrupted)
            with pytest.raises(KeyboardInterrupt):
                train(tmp_path / "cut", store, **given, steps=10)
        train(tmp_path / "cut", store, **given, steps=10, resume=True)
    whole, cut = toys.weights(tmp_path / "whole/model"), toys.weights(tmp_path / "cut/model")
    assert all(torch.equal(whole[key], cut[key]) for key in whole)
    with pytest.raises(BertineError, match="optimizer"):
        train(tmp_path / "cut", store, **{**given, "optimizer": "adamw"}, steps=10, resume=True)


def test_divided_weights_are_refused_in_a_line(store: Path, model: Path, tmp_path: Path) -> None:
    with pytest.raises(BertineError, match="updates of lamb need them whole"):
        train(tmp_path / "run", store, model=model, optimizer="lamb", shard=True)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_as_on_a_gpu_an_update_that_is_not_finite_changes_nothing(name: OptimizerName) -> None:
    """There the clipping is a tensor, and nobody looks at it: the same code, here on a CPU."""
    twins = [toys.pretraining_model() for _ in range(2)]
    optimizers = [optimizer_for(twin, Updates(optimizer=name), torch.float32) for twin in twins]
    for step in range(3):
        for twin in twins:
            give(twin, random_gradients(twin, step, scale=5.0))
        optimizers[0].clipped_step(1e-3, 1.0)
        norm = optimizers[1].grad_norm()
        for group in optimizers[1].param_groups:
            group["lr"] = 1e-3
        optimizers[1].grad_scale, optimizers[1].found_inf = device_clip(norm, 1.0)
        optimizers[1].step()
    assert_equal(twins[1], list(twins[0].parameters()))

    def everything() -> list[Tensor]:
        state = [t for s in optimizers[1].state.values() for k, t in s.items() if k != "step"]
        return [*(p.detach() for p in twins[1].parameters()), *state]

    before = [tensor.clone() for tensor in everything()]
    give(twins[1], [torch.full_like(p, torch.nan) for p in twins[1].parameters()])
    optimizers[1].grad_scale, optimizers[1].found_inf = device_clip(torch.tensor(torch.nan), 1.0)
    optimizers[1].step()
    for after, tensor in zip(everything(), before, strict=True):
        assert torch.equal(after, tensor)
