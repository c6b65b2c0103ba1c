"""Students of every variant: of all layers they are their teacher, of some they learn from it."""

from __future__ import annotations

import re

import pytest
import torch

from bertine.core.errors import BertineError
from bertine.corpora.batch import Batch
from bertine.models.heads import Model, new_head
from bertine.objectives.distillation import ATTENTION, HIDDEN, MapLosses, check_maps, teacher_of
from bertine.tasks.classification import TextClassification
from bertine.tasks.distilled import HAS_LABEL, TEACHER_OUTPUTS, DistilledTask
from bertine.training.distillation.student import every_other, make_student, plan_student

from .variants import VARIANTS, Variant, scramble

TASK = TextClassification(("a", "b", "c"), ("text",), "label", 16)


@pytest.fixture(params=VARIANTS)
def variant(request: pytest.FixtureRequest) -> Variant:
    return VARIANTS[request.param]


def teacher_and_batch(variant: Variant) -> tuple[Model, Batch]:
    config = variant.tiny(2).replace(num_hidden_layers=4).with_dropout(0.0)
    torch.manual_seed(0)
    model = Model(config, new_head(config, "classifier", 3))
    scramble(model, 0)
    ids = torch.randint(5, config.vocab_size, (3, 12))
    mask = torch.ones_like(ids, dtype=torch.bool)
    mask[1, 7:] = False
    ids[~mask] = config.pad_token_id
    targets = {
        "labels": torch.tensor([0, 2, 1]),
        TEACHER_OUTPUTS: torch.randn(3, 3),
        HAS_LABEL: torch.tensor([True, False, True]),
    }
    return model.eval(), Batch(ids, mask, torch.zeros_like(ids), targets, [0, 1, 2])


def test_all_layers_are_the_teacher(variant: Variant) -> None:
    teacher, batch = teacher_and_batch(variant)
    plan = plan_student(teacher.config, None, range(4))
    student, _ = make_student(plan, teacher, TASK.heads, seed=0)
    with torch.no_grad():
        ours, theirs = (TASK.outputs(model.eval(), batch) for model in (student, teacher))
    torch.testing.assert_close(ours, theirs)


@pytest.mark.fast_cases(variant=("bert",))
@pytest.mark.parametrize("student", VARIANTS)
def test_a_student_of_another_type_learns_or_is_refused_in_one_line(
    variant: Variant, student: str
) -> None:
    """Whatever the two types are: there is a way for it, or one line says that there is none."""
    sizes = {
        "vocab_size": 60,
        "hidden_size": 32,
        "num_hidden_layers": 4,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "max_position_embeddings": 66,
        "pad_token_id": 0,
    }
    config = variant.family.presets[variant.preset].replace(**(sizes | variant.small))
    torch.manual_seed(0)
    teacher = Model(config, new_head(config, "classifier", 3))
    refusal, made, taken = "", None, []
    try:
        plan = plan_student(config, student, None)
        made, taken = make_student(plan, teacher, TASK.heads, seed=0)
    except BertineError as error:
        refusal = str(error)
    like_bert = {"bert", "roberta", "xlm-roberta", "camembert"}
    if student == variant.model_type or (
        variant.model_type in like_bert and student in {*like_bert, "distilbert", "electra"}
    ):
        assert not refusal
    if made is None:
        assert "\n" not in refusal
        assert re.search("cannot begin as layers of a|cannot have the teacher's sizes", refusal)
        assert "; give " in refusal
    else:
        assert made.config.model_type == student
        assert "backbone.embeddings.word_embeddings.weight" in taken


def test_half_the_layers_learn_from_the_others(variant: Variant) -> None:
    teacher, batch = teacher_and_batch(variant)
    plan = plan_student(teacher.config, None, None)
    assert plan.layers == every_other(4) == (0, 3)
    student, _ = make_student(plan, teacher, TASK.heads, seed=0)
    layers = tuple(range(len(student.config.passes)))
    maps = MapLosses("tinybert", layers, {HIDDEN: 1.0, ATTENTION: 1.0})
    if not teacher.backbone.shows_attention:
        maps = MapLosses("tinybert", layers, {HIDDEN: 1.0})
    check_maps(maps, student, teacher)
    loss = DistilledTask(TASK, 0.5, 2.0, maps, teacher_of(teacher))
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3)
    student.train()
    totals = []
    for _ in range(12):
        terms = loss.terms(student, batch)
        assert {name: term.count for name, term in terms.items()} == loss.counts(batch)
        total = sum(term.weight * term.total / term.count for term in terms.values())
        assert isinstance(total, torch.Tensor)
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        totals.append(float(total.detach()))
    assert totals[-1] < totals[0]
    assert all(parameter.grad is None for parameter in teacher.parameters())
