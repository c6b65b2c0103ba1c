"""The losses of distillation, against the formulas of the published code written with torch."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import toys
from bertine.core.errors import BertineError
from bertine.corpora.batch import Batch, split
from bertine.models.heads import Model, new_head
from bertine.objectives.distillation import (
    ATTENTION,
    HIDDEN,
    MEAN,
    PROJECTIONS,
    VARIANCE,
    DistilledMlm,
    MapLosses,
    StagedBatches,
    binary_divergences,
    check_maps,
    divergences,
    new_projections,
    sum_divergence,
    teacher_of,
    uniform_map,
)
from bertine.objectives.losses import Loss, Mlm
from bertine.training.step import accumulate

ALL_MAPS = {HIDDEN: 1.0, MEAN: 2.0, VARIANCE: 0.5, ATTENTION: 3.0}


def model_of(seed: int, **changes: object) -> Model:
    torch.manual_seed(seed)
    config = toys.config(
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.3,
        **changes,
    )
    model = Model(config, new_head(config, "mlm"))
    with torch.no_grad():  # a new norm gives every state the same variance
        for name, parameter in model.named_parameters():
            if "norm.weight" in name:
                parameter.mul_(1 + 0.3 * torch.randn_like(parameter))
    return model


@pytest.fixture
def teacher() -> Model:
    return teacher_of(model_of(1, num_hidden_layers=4))


@pytest.fixture
def student() -> Model:
    return model_of(2)


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Batch:
    """Sequences of several lengths, with padding."""
    store = toys.write_store(tmp_path_factory.mktemp("toys") / "store")
    data = toys.pretraining_data(store, short_seq_prob=0.7)
    whole = data.batch(1)
    lengths = whole.attention_mask.sum(1)
    assert lengths.min() < lengths.max()
    return whole


def losses_of(loss: Loss, model: Model, batch: Batch) -> dict[str, float]:
    terms = loss.terms(model, batch)
    assert {name: term.count for name, term in terms.items()} == loss.counts(batch)
    return {name: float(term.total.detach()) / term.count for name, term in terms.items()}


def states_of(model: Model, batch: Batch) -> tuple[Tensor, ...]:
    states = model.encode(batch, all_states=True).hidden_states
    assert states is not None
    return states


@pytest.mark.parametrize("masked", [False, True])
def test_the_triple_loss_is_that_of_the_published_code(
    teacher: Model, student: Model, batch: Batch, masked: bool
) -> None:
    """transformers, research_projects/distillation/distiller.py, ``step``."""
    loss = DistilledMlm(Mlm(), teacher, soft_tokens="masked" if masked else "all")
    assert (loss.soft_weight, loss.mlm_weight, loss.cosine_weight) == (5.0, 2.0, 1.0)
    losses = losses_of(loss, student, batch)

    mask = batch.attention_mask.bool()
    labels = torch.full(mask.shape, -100).flatten()
    labels[batch.targets["mlm_positions"]] = batch.targets["mlm_labels"]
    places = torch.arange(mask.numel())
    ours, theirs = (
        model.read("mlm", model.encode(batch), places=places) for model in (student, teacher)
    )
    chosen = labels > -100 if masked else mask.flatten()
    t = 2.0
    soft = nn.KLDivLoss(reduction="batchmean")(
        F.log_softmax(ours[chosen] / t, -1), F.softmax(theirs[chosen] / t, -1)
    )
    assert losses["soft"] == pytest.approx(float(soft) * t**2, rel=1e-5)
    mlm = nn.CrossEntropyLoss(ignore_index=-100)(ours, labels)
    assert losses["mlm"] == pytest.approx(float(mlm), rel=1e-5)
    last = [states_of(model, batch)[-1][mask] for model in (student, teacher)]
    cosine = nn.CosineEmbeddingLoss()(*last, torch.ones(len(last[0])))
    assert losses["cosine"] == pytest.approx(float(cosine), rel=1e-4)


def gradients(model: Model, loss: Loss, parts: list[Batch]) -> dict[str, Tensor]:
    model.zero_grad()
    accumulate(model, loss, parts, dtype=torch.float32, seeds=[0, 0])
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def test_parts_of_a_step_add_up_and_nothing_reaches_the_teacher(
    teacher: Model, student: Model, batch: Batch
) -> None:
    before = copy.deepcopy(teacher.state_dict())
    maps = MapLosses("tinybert", (1, 3), ALL_MAPS)
    loss = DistilledMlm(Mlm(), teacher, maps=maps)
    whole = gradients(student, loss, [batch])
    pieces = split(batch, 60)
    assert len(pieces) > 2
    for name, grad in gradients(student, loss, pieces).items():
        apart = float((grad - whole[name]).norm() / (whole[name].norm() + 1e-3))
        assert apart < 1e-4, (name, apart)
    assert all(parameter.grad is None for parameter in teacher.parameters())
    assert all(torch.equal(before[name], value) for name, value in teacher.state_dict().items())
    plain = gradients(student, Mlm(), [batch])
    assert set(plain) <= set(whole)


def test_gradients_are_those_of_the_formulas(teacher: Model, batch: Batch) -> None:
    """The divergence over the vocabulary writes its own gradient, block by block."""
    torch.manual_seed(0)
    logits, wanted = torch.randn(70, 40) * 3, torch.randn(70, 40) * 3
    for temperature in (1.0, 2.5):
        a = logits.clone().requires_grad_()
        divergences(a, wanted, temperature).sum().backward()
        b = logits.clone().requires_grad_()
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("bertine.objectives.distillation._SumDivergence.BLOCK", 400)
            total, agreed = sum_divergence(b * 1.0, lambda rows: wanted[rows], temperature)
        (3 * total).backward()
        kl = F.kl_div(
            F.log_softmax(logits / temperature, -1),
            F.log_softmax(wanted / temperature, -1),
            reduction="sum",
            log_target=True,
        )
        assert float(total) == pytest.approx(float(kl) * temperature**2, rel=1e-5)
        assert a.grad is not None
        torch.testing.assert_close(b.grad, 3 * a.grad, rtol=1e-4, atol=1e-5)
        assert int(agreed) == int((logits.argmax(-1) == wanted.argmax(-1)).sum())


def test_impossible_classes_have_no_part() -> None:
    ours = torch.tensor([[1.0, 2.0, -torch.inf]], requires_grad=True)
    theirs = torch.tensor([[0.0, 1.0, -torch.inf]])
    losses = divergences(ours, theirs, 2.0)
    expected = divergences(ours[:, :2], theirs[:, :2], 2.0)
    torch.testing.assert_close(losses, expected)
    losses.sum().backward()
    assert ours.grad is not None
    assert torch.isfinite(ours.grad).all()
    certain = divergences(torch.tensor([[0.3, -0.2]]), torch.tensor([[0.0, -torch.inf]]), 1.0)
    hard = F.cross_entropy(torch.tensor([[0.3, -0.2]]), torch.tensor([0]))
    assert float(certain) == pytest.approx(float(hard))


def test_decisions_are_compared_one_by_one() -> None:
    torch.manual_seed(0)
    ours, theirs = torch.randn(5, 3), torch.randn(5, 3)
    t = 2.0
    pairs = [torch.stack([x / t, torch.zeros_like(x)], -1) for x in (ours, theirs)]
    expected = F.kl_div(
        F.log_softmax(pairs[0], -1), F.log_softmax(pairs[1], -1), reduction="none", log_target=True
    ).sum(-1)
    torch.testing.assert_close(binary_divergences(ours, theirs, t), expected * t**2)


@pytest.mark.parametrize("width", [32, 16])
def test_tinyberts_maps_are_those_of_the_published_code(
    teacher: Model, batch: Batch, width: int
) -> None:
    """huawei-noah/Pretrained-Language-Model, TinyBERT/general_distill.py: MSELoss of each pair of
    maps; here over real tokens."""
    student = model_of(2, hidden_size=width)
    if width != 32:
        made = new_projections([HIDDEN], student.config, teacher.config)
        student.add_module(PROJECTIONS, made)
    maps = MapLosses("tinybert", (1, 3), ALL_MAPS)
    losses = losses_of(DistilledMlm(Mlm(), teacher, 0.0, 1.0, 0.0, maps=maps), student, batch)
    mask = batch.attention_mask.bool()
    ours, theirs = states_of(student, batch), states_of(teacher, batch)
    changed = [student.projections[HIDDEN](x) if width != 32 else x for x in ours]
    pairs = [(changed[0], theirs[0]), (changed[1], theirs[2]), (changed[2], theirs[4])]
    hidden = sum(F.mse_loss(a[mask], b[mask]) for a, b in pairs)
    assert losses["hidden"] == pytest.approx(float(hidden), rel=1e-5)

    def scores(model: Model, layer: int, states: Tensor) -> Tensor:
        attention = model.backbone.layers[layer].attention
        b, t, h = states.shape
        q, k, _ = attention.qkv(states).split(h, dim=-1)
        q, k = (x.view(b, t, 2, h // 2).transpose(1, 2) for x in (q, k))
        return q @ k.transpose(-1, -2) / (h // 2) ** 0.5

    real = (mask[:, None, :, None] & mask[:, None, None, :]).expand(-1, 2, -1, -1)
    attention = sum(
        F.mse_loss(
            scores(student, number, ours[number])[real], scores(teacher, layer, theirs[layer])[real]
        )
        for number, layer in enumerate(maps.layers)
    )
    assert losses["attention"] == pytest.approx(float(attention), rel=1e-4)


def test_mobileberts_maps_are_those_of_the_published_code(
    teacher: Model, student: Model, batch: Batch
) -> None:
    """tensorflow/models, projects/mobilebert/distillation.py: a layer norm without weights, the
    squared difference of means, the difference of variances, and the divergence of attention."""
    maps = MapLosses("mobilebert", (1, 3), ALL_MAPS)
    losses = losses_of(DistilledMlm(Mlm(), teacher, 0.0, 1.0, 0.0, maps=maps), student, batch)
    mask = batch.attention_mask.bool()
    ours, theirs = states_of(student, batch), states_of(teacher, batch)
    expected = {"hidden": 0.0, "hidden_mean": 0.0, "hidden_variance": 0.0, "attention": 0.0}
    for number, layer in enumerate(maps.layers):
        a, b = ours[number + 1][mask], theirs[layer + 1][mask]
        normal = [F.layer_norm(x, x.shape[-1:]) for x in (a, b)]
        expected["hidden"] += float(F.mse_loss(*normal))
        expected["hidden_mean"] += float((a.mean(-1) - b.mean(-1)).square().mean())
        variances = [x.var(-1, correction=0) for x in (a, b)]
        expected["hidden_variance"] += float((variances[0] - variances[1]).abs().mean())
        rows = []
        for model, at, states in ((student, number, ours), (teacher, layer, theirs)):
            scores = model.backbone.attention_scores(at, states[at])
            scores = scores.masked_fill(~mask[:, None, None, :], -1e9)
            rows.append(scores.softmax(-1))
        kl = (rows[1] * (rows[1].clamp_min(1e-30) / rows[0].clamp_min(1e-30)).log()).sum(-1)
        expected["attention"] += float(kl.transpose(1, 2)[mask].mean())
    for name, value in expected.items():
        assert losses[name] == pytest.approx(value, rel=1e-4), name


def test_a_student_that_is_its_teacher_has_no_loss(teacher: Model, batch: Batch) -> None:
    student = copy.deepcopy(teacher).train()
    for kind in ("tinybert", "mobilebert"):
        maps = MapLosses(kind, (0, 1, 2, 3), ALL_MAPS)  # type: ignore[arg-type]
        loss = DistilledMlm(Mlm(), teacher, maps=maps)
        losses = losses_of(loss, student, batch)
        assert losses.pop("mlm") > 0.1
        assert all(value == pytest.approx(0.0, abs=1e-4) for value in losses.values()), losses
    assert int(loss.terms(student, batch)["soft"].correct or 0) == int(batch.attention_mask.sum())


def test_layers_are_spread_evenly() -> None:
    assert uniform_map(4, 12) == (2, 5, 8, 11)  # TinyBERT, section 4.3
    assert uniform_map(6, 12) == (1, 3, 5, 7, 9, 11)
    assert uniform_map(3, 3) == (0, 1, 2)
    assert uniform_map(2, 1) == (0, 0)


def test_stages_train_one_layer_each(teacher: Model, student: Model, batch: Batch) -> None:
    maps = MapLosses("mobilebert", (1, 3), {HIDDEN: 1.0, ATTENTION: 1.0})
    frozen = frozenset({"backbone.embeddings.position_embeddings.weight"})
    loss = DistilledMlm(Mlm(), teacher, maps=maps, frozen=frozen)
    batches = StagedBatches(lambda _: copy.deepcopy(batch), steps=3, stages=2)
    layer = "backbone.layers.{}."
    for step, (inside, outside) in {
        0: ((layer.format(0), "backbone.embeddings.word"), (layer.format(1), "heads.")),
        2: ((layer.format(0),), (layer.format(1),)),
        3: ((layer.format(1),), (layer.format(0), "backbone.embeddings.", "heads.")),
        6: ((layer.format(0), layer.format(1), "heads."), ("no such",)),
    }.items():
        trained = gradients(student, loss, split(batches(step), 60))
        assert not any(name.startswith(outside) for name in trained), step
        assert all(any(name.startswith(start) for name in trained) for start in inside), step
        assert not frozen & trained.keys()
        terms = loss.terms(student, batches(step))
        assert terms["mlm"].weight == (0.0 if step < 6 else 2.0)
        assert ("soft" in terms) == (step >= 6)
        assert {name: term.count for name, term in terms.items()} == loss.counts(batches(step))


def test_maps_that_cannot_be_compared(
    teacher: Model, student: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    maps = MapLosses("tinybert", (1, 3), ALL_MAPS)
    check_maps(maps, student, teacher)
    other = model_of(3, num_attention_heads=4)
    with pytest.raises(BertineError, match="the student has 4 heads a layer, the teacher 2"):
        check_maps(maps, other, teacher)
    only_states = MapLosses("tinybert", (1, 3), {HIDDEN: 1.0})
    check_maps(only_states, other, teacher)

    closed = model_of(4)
    monkeypatch.setattr(type(closed.backbone), "shows_attention", False)
    with pytest.raises(BertineError, match="cannot be had of BERT, which the student is"):
        check_maps(maps, closed, teacher)


def test_projections_are_not_saved(tmp_path: Path) -> None:
    """They help in training alone."""
    from bertine.hub.model_directory import save_model

    student, teacher = model_of(2, hidden_size=16), model_of(1)
    student.add_module(PROJECTIONS, new_projections([HIDDEN], student.config, teacher.config))
    save_model(tmp_path / "model", student, toys.tokenizer())
    assert not any("projections" in name for name in toys.weights(tmp_path / "model"))
