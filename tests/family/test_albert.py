"""ALBERT's sharing of weights: groups, layers of a group, and of parts of a layer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

import toys
from bertine.core.errors import BertineError
from bertine.families.albert import FAMILY, AlbertConfig
from bertine.families.fitted_heads import add_mean_layer
from bertine.families.presets import preset
from bertine.fast.backbone import PackedBackbone
from bertine.fast.int8 import RangeObserver
from bertine.hub.model_directory import load_model, save_model
from bertine.models.family import config_to_huggingface, read_config
from bertine.models.heads import Model, new_head
from bertine.objectives import choose
from bertine.reports.inspect import describe_model
from bertine.training.adamw import parameter_groups
from bertine.training.distillation.student import copy_layers, plan_student
from bertine.training.mfu import step_cost
from bertine.training.step import check_freezing

from .parity import close, full_labels, inputs, random_batch, same_gradients
from .variants import VARIANTS, scramble

VARIANT = VARIANTS["albert"]
PARTS = ("attention", "feed-forward")


def tiny(**changes: Any) -> AlbertConfig:
    sizes = {
        "vocab_size": toys.tokenizer().vocab_size,
        "hidden_size": 32,
        "embedding_size": 12,
        "num_hidden_layers": 4,
        "num_attention_heads": 2,
        "intermediate_size": 40,
        "max_position_embeddings": 40,
    }
    return AlbertConfig(**{**sizes, **changes})


def pretraining(config: AlbertConfig, seed: int = 0) -> Model:
    model = Model(config, choose(config)[0].heads(config)).eval()
    scramble(model, seed)
    return model


@pytest.mark.parametrize(
    ("layers", "groups", "inner"),
    [(4, 1, 1), (4, 2, 1), (4, 4, 1), (3, 1, 2), (5, 2, 2), (5, 3, 1), (6, 4, 1), (2, 2, 3)],
)
def test_groups_and_their_layers_compute_what_transformers_computes(
    layers: int, groups: int, inner: int
) -> None:
    config = tiny(num_hidden_layers=layers, num_hidden_groups=groups, inner_group_num=inner)
    model = pretraining(config)
    assert len(model.backbone.layers) == groups * inner
    batch = random_batch(config, layers)
    other = VARIANT.twin(model)
    labels = {name: batch.targets[name] for name in ("sentence_order_label",)}
    theirs = other(
        **inputs(batch, config), labels=full_labels(batch), **labels, output_hidden_states=True
    )
    theirs.loss.backward()
    objective, _ = choose(config)
    terms = objective.terms(model, batch)
    loss: Any = sum(term.total / term.count for term in terms.values())
    loss.backward()
    close(loss, theirs.loss, "loss")
    same_gradients(VARIANT, model, other)
    states = model.encode(batch, all_states=True).hidden_states
    assert states is not None
    assert len(states) == layers * inner + 1
    real = batch.attention_mask
    for ours, their in zip(states, theirs.hidden_states, strict=True):
        close(ours[real], their[real], "states")


@pytest.mark.parametrize("part", PARTS)
def test_a_shared_part_computes_and_learns_as_copies_do_that_are_kept_equal(part: str) -> None:
    config = tiny(
        num_hidden_layers=3, num_hidden_groups=3, inner_group_num=2, shared_across_groups=part
    )
    model = pretraining(config)
    batch = random_batch(config, 0)
    other = VARIANT.twin(model)
    labels = {"sentence_order_label": batch.targets["sentence_order_label"]}
    theirs = other(**inputs(batch, config), labels=full_labels(batch), **labels)
    theirs.loss.backward()
    terms = choose(config)[0].terms(model, batch)
    loss: Any = sum(term.total / term.count for term in terms.values())
    loss.backward()
    close(loss, theirs.loss, "loss")

    names, grads = FAMILY.names, {n: p.grad for n, p in other.named_parameters()}
    tied = names.tied(config)
    assert tied
    summed: dict[str, Tensor] = {}
    for name, grad in grads.items():
        canonical = name.removeprefix("albert.")
        assert grad is not None
        held = tied.get(canonical, canonical)
        summed[held] = summed.get(held, 0) + grad
    own = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    ours = names.to_canonical(own, config)
    assert ours.keys() == summed.keys() | tied.keys()
    for name, grad in summed.items():
        close(ours[name], grad, f"gradient of {name}")


def test_weights_are_as_many_as_the_paper_counts() -> None:
    """Table 1 (with its heads: transformers' classes), tables 3 and 4, in millions."""
    for name, pretraining_weights, mlm_weights in (
        ("albert-base", 11_813_810, 11_221_680),
        ("albert-large", 17_847_474, 16_795_824),
        ("albert-xlarge", 59_021_490, 54_821_040),
        ("albert-xxlarge", 223_158_450, 206_368_944),
    ):
        config = preset(name)
        for objective, weights in (("mlm-sop", pretraining_weights), ("mlm", mlm_weights)):
            with torch.device("meta"):
                model = Model(config, choose(config, objective)[0].heads(config))
            assert model.num_parameters() == weights
    for width, shared, millions in (
        *((64, "all", 10), (128, "all", 12), (256, "all", 16), (768, "all", 31)),
        *((64, "nothing", 87), (128, "nothing", 89), (256, "nothing", 93), (768, "nothing", 108)),
        *((128, "attention", 64), (128, "feed-forward", 38)),
        *((768, "attention", 83), (768, "feed-forward", 57)),
    ):
        groups = {"num_hidden_groups": 1 if shared == "all" else 12}
        part = {} if shared == "all" else {"shared_across_groups": shared}
        config = preset("albert-base", embedding_size=width, **groups, **part)
        with torch.device("meta"):
            counted = Model(config, {}).num_parameters()
        assert counted == config.num_parameters
        assert abs(counted / 1e6 - millions) < 1.7


@pytest.mark.parametrize("part", ["nothing", *PARTS])
def test_what_is_saved_opens_here_and_in_transformers(tmp_path: Path, part: str) -> None:
    config = tiny(num_hidden_groups=2, inner_group_num=2, shared_across_groups=part)
    model = pretraining(config)
    assert len({id(p) for p in model.parameters()}) == len(model.state_dict())
    save_model(tmp_path, model, toys.tokenizer())
    values = json.loads((tmp_path / "config.json").read_text())
    assert values["embedding_size"] == 12
    assert values.get("shared_across_groups", "nothing") == part
    shown = "\n".join(describe_model(tmp_path))
    assert f"parameters: {model.num_parameters():,} " in shown
    assert "8 layers of 32" in shown
    again = load_model(tmp_path)
    assert again.config == config
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, again.model.state_dict()[name])
    batch = random_batch(config, 0)
    theirs, info = transformers.AutoModelForPreTraining.from_pretrained(
        tmp_path, output_loading_info=True
    )
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    states = theirs.eval().albert(**inputs(batch, config)).last_hidden_state
    real = batch.attention_mask
    close(again.model.encode(batch).last_hidden_state[real], states[real], "states")


def test_copies_that_are_no_longer_equal_are_refused(tmp_path: Path) -> None:
    config = tiny(num_hidden_groups=2, shared_across_groups="attention")
    save_model(tmp_path, pretraining(config), toys.tokenizer())
    tensors = load_file(tmp_path / "model.safetensors")
    name = "albert.encoder.albert_layer_groups.1.albert_layers.0.attention.dense.bias"
    tensors[name] += 1.0
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(BertineError, match=r"layer_groups\.1.* is not the same as .*groups\.0"):
        load_model(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_hidden_groups": 2}, "has 1 groups of layers, but num_hidden_groups .* is 2"),
        ({"inner_group_num": 2}, "has 1 layers, but inner_group_num .* is 2"),
        ({"num_hidden_groups": 9}, "num_hidden_groups is 9, but must be between 1 and"),
        ({"num_hidden_groups": 0}, "num_hidden_groups is 0, but must be between 1 and"),
        ({"inner_group_num": 5000}, "times inner_group_num 5,000 is more than 10,000 layers"),
        ({"embedding_size": 0}, "embedding_size is 0, but must be between"),
        ({"embedding_size": 13}, "has shape .*, but config.json asks for"),
        ({"shared_across_groups": "all"}, "shared_across_groups is 'all', but must be one of"),
        ({"net_structure_type": 1}, "net_structure_type is 1"),
        ({"embeding_size": 8}, "unknown key .*did you mean 'embedding_size'"),
    ],
)
def test_a_config_that_is_not_the_weights_is_one_line(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    save_model(tmp_path, pretraining(tiny()), toys.tokenizer())
    values = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(values | changes))
    with pytest.raises(BertineError, match=message) as caught:
        load_model(tmp_path)
    assert "\n" not in str(caught.value)


def test_config_keys_are_those_of_transformers_and_back(tmp_path: Path) -> None:
    config = tiny(
        num_hidden_groups=2, inner_group_num=2, classifier_dropout=0.25, hidden_dropout_prob=0.05
    )
    values = config_to_huggingface(config)
    theirs = transformers.AlbertConfig(**values)
    for ours, name in (
        (config.classifier_dropout, "classifier_dropout_prob"),
        (config.embedding_size, "embedding_size"),
        (2, "num_hidden_groups"),
        (2, "inner_group_num"),
        ("gelu_new", "hidden_act"),
    ):
        assert getattr(theirs, name) == ours
    theirs.save_pretrained(tmp_path)
    assert read_config(tmp_path / "config.json").config == config


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
@pytest.mark.parametrize("part", ["nothing", *PARTS])
def test_packed_layers_answer_alike_and_a_shared_one_is_packed_once(
    precision: str, part: str
) -> None:
    config = tiny(num_hidden_layers=5, num_hidden_groups=2, shared_across_groups=part)
    torch.manual_seed(0)
    model = Model(config, {}).eval()
    batch = random_batch(config, 3)
    with torch.inference_mode():
        with RangeObserver(model.backbone) as seen:  # type: ignore[arg-type]
            expected = model.encode(batch, all_states=True)
        dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "int8": torch.int8}[precision]
        packed = PackedBackbone(model.backbone, dtype, seen.ranges)  # type: ignore[arg-type]
        output = packed(batch.input_ids, batch.attention_mask, batch.token_type_ids)
        states = packed(batch.input_ids, batch.attention_mask, batch.token_type_ids, True)
    limit = {"fp32": 1e-4, "bf16": 0.1, "int8": 0.15}[precision]
    real = batch.attention_mask
    assert states.hidden_states is not None
    assert len(states.hidden_states) == len(config.passes) + 1
    for ours, theirs in zip(states.hidden_states, expected.hidden_states or (), strict=True):
        assert (ours[real] - theirs[real]).abs().max() < limit * 4
        assert (ours[real] - theirs[real]).square().mean() < limit**2
    difference = (output.last_hidden_state[real] - expected.last_hidden_state[real]).square()
    assert difference.mean() < limit**2
    assert (output.first_token - expected.first_token).square().mean() < limit**2
    # Five passes, two layers with their products: each weight is there once.
    products = {id(weight) for layer in packed.layers for weight in layer.weights()}
    assert len(packed.layers) == 5
    assert len(products) == 2 * 4 + 2


@pytest.mark.parametrize("part", ["nothing", *PARTS])
def test_a_mean_layer_on_top_leaves_the_shared_ones_as_they_are(part: str) -> None:
    config = tiny(num_hidden_groups=2, inner_group_num=2, shared_across_groups=part)
    model = pretraining(config)
    batch = random_batch(config, 0)
    before = model.encode(batch, all_states=True).hidden_states
    add_mean_layer(model)
    after = model.encode(batch, all_states=True).hidden_states
    assert before is not None
    assert after is not None
    assert len(after) == len(before) + 1
    for one, other in zip(before, after, strict=False):
        close(one, other, "states")
    assert len(model.state_dict()) == len({id(p) for p in model.parameters()})
    assert model.num_parameters() > pretraining(config).num_parameters()


@pytest.mark.parametrize("part", ["nothing", *PARTS])
def test_work_is_counted_for_every_pass(part: str) -> None:
    """As for a model of as many layers that share nothing."""
    sizes = {"num_hidden_layers": 6, "embedding_size": 32}
    apart = Model(tiny(**sizes, num_hidden_groups=6), {})
    shared = Model(tiny(**sizes, num_hidden_groups=3, shared_across_groups=part), {})
    assert shared.num_parameters() < apart.num_parameters()
    assert shared.backbone.weights_of_passes() == apart.backbone.weights_of_passes()
    costs = [step_cost(model, 32) for model in (apart, shared)]
    assert costs[0].token == pytest.approx(costs[1].token)


def test_rates_of_layers_are_those_of_layers_with_weights_of_their_own() -> None:
    config = tiny(num_hidden_groups=2, shared_across_groups="attention")
    model = pretraining(config)
    groups = parameter_groups(model, 0.01, 0.5)
    rates = {id(p): group["rate"] for group in groups for p in group["params"]}  # type: ignore[attr-defined]
    assert len(rates) == len(list(model.parameters()))
    layers: Any = model.backbone.layers
    assert rates[id(layers[0].attention.qkv.weight)] == 0.5**2
    assert rates[id(layers[1].attention.qkv.weight)] == 0.5**2  # it is the lowest one's
    assert rates[id(layers[1].up.weight)] == 0.5
    assert rates[id(model.heads["mlm"].dense.weight)] == 1.0
    assert rates[id(model.backbone.word_weights)] == 0.5**3


def test_the_published_config_is_the_preset(tmp_path: Path) -> None:
    """All keys of the published albert-base-v2, as the authors' program and others wrote them."""
    values = {
        **{"architectures": ["AlbertForMaskedLM"], "model_type": "albert", "vocab_size": 30000},
        **{"attention_probs_dropout_prob": 0, "hidden_dropout_prob": 0, "hidden_act": "gelu_new"},
        **{"classifier_dropout_prob": 0.1, "embedding_size": 128, "hidden_size": 768},
        **{"intermediate_size": 3072, "num_attention_heads": 12, "num_hidden_layers": 12},
        **{"num_hidden_groups": 1, "inner_group_num": 1, "net_structure_type": 0, "gap_size": 0},
        **{"num_memory_blocks": 0, "down_scale_factor": 1, "initializer_range": 0.02},
        **{"layer_norm_eps": 1e-12, "max_position_embeddings": 512, "type_vocab_size": 2},
        **{"bos_token_id": 2, "eos_token_id": 3, "pad_token_id": 0},
    }
    (tmp_path / "config.json").write_text(json.dumps(values))
    assert read_config(tmp_path / "config.json").config == preset("albert-base")


def test_a_pooler_beside_the_mlm_head_is_there_for_fine_tuning(tmp_path: Path) -> None:
    """As in the published files, whose class for masked words had one."""
    config = tiny()
    model = Model(config, new_head(config, "mlm"), add_pooler=True)
    scramble(model, 0)
    save_model(tmp_path, model, toys.tokenizer())
    assert load_model(tmp_path).model.backbone.pooler is None
    tuned = load_model(tmp_path, heads=new_head(config, "classifier", 2)).model
    assert tuned.backbone.pooler is not None
    assert model.backbone.pooler is not None
    assert torch.equal(tuned.backbone.pooler.weight, model.backbone.pooler.weight)


@pytest.mark.parametrize(("groups", "inner"), [(1, 1), (2, 1), (2, 2)])
def test_a_student_begins_as_the_layers_that_the_teacher_goes_through(
    groups: int, inner: int
) -> None:
    teacher = pretraining(tiny(num_hidden_groups=groups, inner_group_num=inner))
    plan = plan_student(teacher.config, None, (1, 2))
    student = Model(plan.config, choose(plan.config)[0].heads(plan.config)).eval()
    taken = copy_layers(student, teacher, (1, 2))
    assert set(taken) == set(student.state_dict())
    batch = random_batch(teacher.config, 0)
    states = teacher.encode(batch, all_states=True).hidden_states
    assert states is not None
    learned = student.encode(batch, all_states=True).hidden_states
    assert learned is not None
    close(learned[0], states[0], "what goes into the layers")
    layers = [*teacher.config.passes][inner : 3 * inner]  # those of the second and third time
    assert len(learned) == len(layers) + 1
    for ours, theirs in zip(student.config.passes, layers, strict=True):
        own, other = (m.backbone.layers[n] for m, n in ((student, ours), (teacher, theirs)))
        for name, tensor in other.state_dict().items():
            assert torch.equal(own.state_dict()[name], tensor)


def test_layers_that_are_frozen_are_those_with_weights_of_their_own() -> None:
    model = pretraining(tiny(num_hidden_groups=2))
    check_freezing(model, 2)
    with pytest.raises(BertineError, match="has 2 layers with weights of their own"):
        check_freezing(model, 3)
