"""Models that guess words in any order: two streams, memory and reading backwards as in
transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers
from torch import Tensor

import bertine
from bertine.core.rng import generator
from bertine.core.task_info import TaskInfo
from bertine.corpora.batch import Batch
from bertine.families.xlnet_layers import GuessedPlaces, hidden_by_order
from bertine.hub.model_directory import save_model
from bertine.models import encoder
from bertine.models.encoder import TextInputs
from bertine.models.heads import Model, new_head
from bertine.objectives import choose
from bertine.tokenization.tokenizer import SPECIAL_TOKENS, Tokenizer

from .parity import SEEDS, close, random_batch, same_gradients
from .variants import VARIANTS, scramble

XLNET = VARIANTS["xlnet"]


@pytest.fixture(params=[0.0, 2.0], ids=["real tokens alone", "padding too"], autouse=True)
def computed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute batches with padding in both ways."""
    monkeypatch.setattr(encoder, "_UNPAD_FROM", request.param)


def with_targets(batch: Batch, seed: int, *, backwards: bool = False) -> Batch:
    """Make three tokens of each sequence guessed, in a random order."""
    draw = generator(seed, "guesses")
    order = np.full(tuple(batch.input_ids.shape), -1)
    flat = batch.targets["mlm_positions"].sort().values
    order.reshape(-1)[flat] = draw.permutation(len(flat))
    positions = torch.from_numpy(np.flatnonzero(order >= 0))
    targets = {
        "plm_positions": positions,
        "plm_labels": batch.input_ids.flatten()[positions],
        "guessing_order": torch.from_numpy(order),
    }
    if backwards:
        targets["backwards"] = torch.tensor([False, False, False, True, True])
    return Batch(batch.input_ids, batch.attention_mask, batch.token_type_ids, targets)


def theirs_of(batch: Batch) -> dict[str, Tensor]:
    """The same as transformers takes it."""
    order, width = batch.targets["guessing_order"], batch.input_ids.shape[1]
    positions = batch.targets["plm_positions"]
    rows, columns = positions // width, positions % width
    counts = torch.bincount(rows, minlength=len(order))
    mapping = torch.zeros(len(order), int(counts.max()), width)
    labels = torch.full(mapping.shape[:2], -100)
    for row in range(len(order)):
        for number, column in enumerate(columns[rows == row].tolist()):
            mapping[row, number, column] = 1
            labels[row, number] = batch.input_ids[row, column]
    return {
        "input_ids": batch.input_ids,
        "attention_mask": batch.attention_mask.long(),
        "token_type_ids": batch.token_type_ids,
        "perm_mask": hidden_by_order(order).float(),
        "target_mapping": mapping,
        "labels": labels,
    }


@pytest.mark.parametrize("seed", SEEDS)
def test_the_loss_of_guessing_in_any_order_and_all_gradients(seed: int) -> None:
    config = XLNET.tiny(seed)
    objective, input_format = choose(config)
    assert (objective.name, input_format) == ("plm", "segment-pair")
    model = Model(config, objective.heads(config)).eval()
    scramble(model, seed)
    batch = with_targets(random_batch(config, seed), seed)
    other = XLNET.twin(model)
    given = theirs_of(batch)
    theirs = other(**given)
    term = objective.terms(model, batch)["plm"]
    assert term.count == len(batch.targets["plm_labels"]) == objective.counts(batch)["plm"] == 15
    expected = F.cross_entropy(theirs.logits.flatten(0, 1), given["labels"].flatten())
    expected.backward()
    loss = term.total / term.count
    loss.backward()
    close(loss, expected, "loss")
    same_gradients(XLNET, model, other)


@pytest.mark.parametrize("seed", SEEDS[:2])
def test_text_that_runs_backwards(seed: int) -> None:
    """transformers reads the second half of a batch backwards, by its configuration."""
    config = XLNET.tiny(seed)
    model = Model(config, new_head(config, "plm")).eval()
    scramble(model, seed)
    batch = with_targets(random_batch(config, seed), seed, backwards=True)
    rows = [0, 1, 3, 4]
    positions = batch.targets["plm_positions"]
    kept = sum((positions // batch.input_ids.shape[1] == row) for row in rows).bool()
    width = batch.input_ids.shape[1]
    moved = positions[kept] - width * (positions[kept] // width > 2).long()
    four = Batch(
        batch.input_ids[rows],
        batch.attention_mask[rows],
        batch.token_type_ids[rows],
        {
            "plm_positions": moved,
            "plm_labels": batch.targets["plm_labels"][kept],
            "guessing_order": batch.targets["guessing_order"][rows],
            "backwards": batch.targets["backwards"][rows],
        },
    )
    other = XLNET.twin(model)
    other.transformer.bi_data = True
    objective, _ = choose(config)
    term = objective.terms(model, four)["plm"]
    given = theirs_of(four)
    logits = other(**given).logits
    expected = F.cross_entropy(logits.flatten(0, 1), given["labels"].flatten())
    close(term.total / term.count, expected, "loss")


@pytest.mark.parametrize("guessing", [False, True], ids=["text", "two streams"])
@pytest.mark.parametrize("seed", SEEDS[:2])
def test_memory_is_carried(seed: int, guessing: bool) -> None:
    config = XLNET.tiny(seed)
    model = Model(config, {}).eval()
    scramble(model, seed)
    other = XLNET.twin(model)
    draw = torch.Generator().manual_seed(seed)
    first, second = torch.randint(0, config.vocab_size, (2, 3, 9), generator=draw)
    third = torch.randint(0, config.vocab_size, (3, 7), generator=draw)
    types = torch.zeros_like(third)
    types[:, 4:] = 1
    ours = model.backbone(first, output_memory=True)
    theirs = other(first, use_mems=True)
    ours = model.backbone(second, memory=ours.memory, output_memory=True)
    theirs = other(second, mems=theirs.mems, use_mems=True)
    close(ours.last_hidden_state, theirs.last_hidden_state, "the second text")
    assert ours.memory is not None
    for layer, (a, b) in enumerate(zip(ours.memory, theirs.mems, strict=True)):
        assert a.shape[1] == 18
        assert not a.requires_grad
        close(a, b.transpose(0, 1), f"memory of layer {layer}")
    extra: dict[str, Any] = {}
    guesses = None
    if guessing:
        order = torch.tensor([[-1, 2, -1, 0, 1, -1, -1]]).expand(3, -1)
        places = torch.tensor([[1, 3, 4]]).expand(3, -1)
        guesses = GuessedPlaces(places, hidden_by_order(order))
        extra = {
            "perm_mask": hidden_by_order(order).float(),
            "target_mapping": F.one_hot(places, 7).float(),
        }
    mask = torch.ones_like(third)
    mask[1, 5:] = 0
    last = model.backbone(third, mask, types, memory=ours.memory, guesses=guesses)
    expected = other(
        third, attention_mask=mask, token_type_ids=types, mems=theirs.mems, **extra
    ).last_hidden_state
    real = slice(None) if guessing else mask.bool()
    close(last.last_hidden_state[real], expected[real], "with memory")


def test_a_memory_that_is_shorter_in_some_sequences_is_hidden_there() -> None:
    config = XLNET.tiny(0)
    model = Model(config, {}).eval()
    scramble(model, 0)
    before = torch.randint(0, config.vocab_size, (2, 6))
    ids = torch.randint(0, config.vocab_size, (2, 8))
    mask = torch.tensor([[1] * 6, [0] * 2 + [1] * 4])
    whole = model.backbone(before, mask, output_memory=True).memory
    assert whole is not None
    both = model.backbone(ids, memory=whole, memory_mask=mask).last_hidden_state
    short = model.backbone(before[1:, 2:], output_memory=True).memory
    alone = model.backbone(ids[1:], memory=short).last_hidden_state
    close(both[1:], alone, "the sequence with the shorter memory")


def test_what_is_guessed_does_not_see_itself_or_what_is_guessed_later() -> None:
    """A change of such a token changes no guess; one of a token known before does."""
    config = XLNET.tiny(1)
    model = Model(config, {}).eval()
    scramble(model, 1)
    draw = torch.Generator().manual_seed(0)
    ids = torch.randint(1, config.vocab_size, (1, 10), generator=draw)
    order = torch.tensor([[-1, 3, 1, -1, 0, -1, 2, -1, -1, -1]])
    for place in (1, 2, 4, 6):
        guesses = GuessedPlaces(torch.tensor([[place]]), hidden_by_order(order))
        before = model.backbone(ids, guesses=guesses).last_hidden_state
        for other in range(10):
            changed = ids.clone()
            changed[0, other] = (ids[0, other] + 1) % config.vocab_size
            after = model.backbone(changed, guesses=guesses).last_hidden_state
            known = int(order[0, other]) < int(order[0, place])
            assert torch.equal(after, before) != known, (place, other)


def test_the_first_guess_with_nothing_known_is_a_number() -> None:
    """And not the mean of all that is to be guessed."""
    config = XLNET.tiny(0)
    model = Model(config, {}).eval()
    order = torch.tensor([[0, 1, 2, 3]])
    guesses = GuessedPlaces(torch.tensor([[0, 3]]), hidden_by_order(order))
    one, other = (
        model.backbone(torch.tensor([ids]), guesses=guesses).last_hidden_state[0, 0]
        for ids in ([1, 2, 3, 4], [4, 3, 2, 1])
    )
    assert torch.isfinite(one).all()
    assert torch.equal(one, other)


def test_any_vocabulary_is_read_by_its_last_token(tmp_path: Path) -> None:
    """transformers, which reads the last place, pads as the files say."""
    tokenizer = Tokenizer.from_vocab([*SPECIAL_TOKENS, "a", "b", "c"])
    config = XLNET.tiny(0)
    model = Model(config, new_head(config, "classifier", 2)).eval()
    scramble(model, 0)
    info = TaskInfo("text", ("x", "y"), ("text",), "label")
    save_model(tmp_path / "model", model, tokenizer, task=info)
    texts = ["a b c a b", "c"]
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "model")
    encode = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    with torch.no_grad():
        given = encode(texts, padding=True, return_tensors="pt")
        expected = theirs.eval()(**given).logits.softmax(-1)
    answers = bertine.Predictor.load(tmp_path / "model", "cpu", "fp32").predict(texts)
    ours = torch.tensor([list(answer.probabilities.values()) for answer in answers])
    close(ours, expected, "probabilities")


@pytest.mark.parametrize("length", [12, 30])
def test_training_computes_what_answering_does(length: int) -> None:
    config = XLNET.tiny(0).with_dropout(0.0)
    model = Model(config, {})
    scramble(model, 0)
    ids = torch.randint(0, config.vocab_size, (3, length))
    mask = torch.ones_like(ids)
    mask[1, 7:] = 0
    given, real = TextInputs(ids, mask), mask.bool()
    trained = model.train().encode(given).last_hidden_state[real]
    answered = model.eval().encode(given).last_hidden_state[real]
    close(trained, answered, "states")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ff_activation": "tanh"}, "ff_activation 'tanh' is not supported"),
        ({"attn_type": "uni"}, "attention to what stands before alone"),
        ({"bi_data": True}, "half of every batch read backwards"),
        ({"summary_type": "first"}, "another place for a classifier"),
        ({"d_head": 5}, "d_head is 5, but must be d_model / n_head"),
        ({"n_head": 5, "d_head": None}, "d_model 32 is not a multiple of n_head 5"),
        ({"d_model": 33, "n_head": 3, "d_head": 11}, "d_model is 33, but must be even"),
        ({"d_iner": 5}, "unknown key 'd_iner'; did you mean 'd_inner'"),
    ],
)
def test_a_config_that_it_does_not_compute_is_refused(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    from bertine.models.family import config_to_huggingface, read_config

    sizes = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64}
    config = XLNET.family.presets["xlnet-tiny"].replace(**sizes)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config_to_huggingface(config) | change))
    with pytest.raises(bertine.BertineError, match=message) as refused:
        read_config(path)
    assert "\n" not in str(refused.value)
