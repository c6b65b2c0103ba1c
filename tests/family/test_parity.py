"""Every variant computes what transformers computes: states, logits, losses and every gradient."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from bertine.models import encoder
from bertine.models.heads import Model, new_head
from bertine.objectives import choose

from .parity import SEEDS, close, full_labels, inputs, random_batch, same_gradients
from .variants import VARIANTS, Variant, scramble

LABELS = 3
#: transformers has no class for pairs that are encoded apart; the others have a test of their own.
OWN = ("pair_classifier", "nsp", "sop", "mlm", "generator", "lm", "plm")
HEADS = list(dict.fromkeys(head for one in VARIANTS.values() for head in one.family.heads))
#: What is asked of pairs in pre-training, and what transformers calls the answers.
PAIR_LABELS = {"nsp": "next_sentence_label", "sop": "sentence_order_label"}


@pytest.fixture(params=[0.0, 2.0], ids=["real tokens alone", "padding too"], autouse=True)
def computed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute batches with padding in both ways."""
    monkeypatch.setattr(encoder, "_UNPAD_FROM", request.param)


@pytest.fixture(params=VARIANTS)
def variant(request: pytest.FixtureRequest) -> Variant:
    return VARIANTS[request.param]


@pytest.mark.fast_cases(computed=(0.0,), seed=(0,), left=(False,))
@pytest.mark.parametrize("left", [False, True], ids=["padding right", "padding left"])
@pytest.mark.parametrize("seed", SEEDS)
def test_hidden_states_and_pooled_output(variant: Variant, seed: int, left: bool) -> None:
    config = variant.tiny(seed)
    model = Model(config, {}).eval()
    scramble(model, seed)
    batch = random_batch(config, seed, left=left)
    theirs = variant.twin(model)(**inputs(batch, config), output_hidden_states=True)
    ours = model.encode(batch, all_states=True)
    real = batch.attention_mask
    close(ours.last_hidden_state[real], theirs.last_hidden_state[real], "last_hidden_state")
    if not left and config.has_pooler:
        assert ours.pooler_output is not None
        close(ours.pooler_output, theirs.pooler_output, "pooler_output")
    assert ours.hidden_states is not None
    assert len(ours.hidden_states) == len(config.passes) + 1
    if config.encodes_and_decodes:
        states = (*theirs.encoder_hidden_states, *theirs.decoder_hidden_states[1:])
    else:
        states = theirs.hidden_states
    for i, (a, b) in enumerate(zip(ours.hidden_states, states, strict=True)):
        close(a[real], b[real], f"hidden_states[{i}]")


@pytest.mark.fast_cases(computed=(0.0,), seed=(1,))
@pytest.mark.parametrize("seed", SEEDS)
def test_pretraining_losses_and_all_gradients(variant: Variant, seed: int) -> None:
    config = variant.tiny(seed)
    if not variant.hides:
        pytest.skip("test_causal.py, test_seq2seq.py and test_permutation.py compare it")
    # Replaced-token detection, which takes two of transformers' models, has a test of its own.
    name = next(name for name in variant.family.objectives if name != "rtd")
    objective, _ = choose(config, name)
    model = Model(config, objective.heads(config)).eval()
    scramble(model, seed)
    batch = random_batch(config, seed)
    other = variant.twin(model)
    labels = full_labels(batch)
    asked = [name for head, name in PAIR_LABELS.items() if head in model.heads]
    targets = {name: batch.targets[name] for name in asked}
    theirs = other(**inputs(batch, config), labels=labels, **targets)
    theirs.loss.backward()

    losses = {n: term.total / term.count for n, term in objective.terms(model, batch).items()}
    loss: Any = sum(losses.values())
    loss.backward()

    logits = theirs.prediction_logits if asked else theirs.logits
    close(losses["mlm"], F.cross_entropy(logits.flatten(0, 1), labels.flatten()), "MLM loss")
    close(loss, theirs.loss, "loss")
    same_gradients(variant, model, other)


@pytest.mark.fast_cases(computed=(0.0,), seed=(0,))
@pytest.mark.parametrize("seed", SEEDS[:2])
@pytest.mark.parametrize("head", HEADS)
def test_heads_and_all_gradients(variant: Variant, head: str, seed: int) -> None:
    config = variant.tiny(seed)
    if head in OWN or head not in variant.family.heads or not variant.in_transformers(head):
        pytest.skip("no such class in transformers")
    new = new_head(config, head, 1 if head == "choice" else LABELS)
    # transformers' class for masked words and that for spans have no pooler.
    model = Model(config, new, add_pooler=variant.family.heads[head].reads == "pooled").eval()
    scramble(model, seed)
    batch = random_batch(config, seed, left=config.reads_last)
    other = variant.twin(model, 2 if head == "spans" else LABELS)
    given = inputs(batch, config)
    if head == "choice":  # the five sequences are choices of one example
        given = {name: value[None] for name, value in given.items()}
    if head == "choice" and config.reads_forward:  # transformers' class takes no mask of choices
        del given["attention_mask"]
        given["mc_token_ids"] = batch.attention_mask.sum(-1)[None] - 1
    theirs = other(**given)
    if "mc_logits" in theirs:
        theirs.logits = theirs.mc_logits
    real = batch.attention_mask
    if head == "spans":
        expected = torch.stack([theirs.start_logits, theirs.end_logits], -1)
    else:
        expected = theirs.logits.T if head == "choice" else theirs.logits

    places = real.flatten().nonzero()[:, 0]
    logits = model.read(head, model.encode(batch), places=places)
    if head == "mlm":
        expected = expected[real]
    elif variant.family.heads[head].reads == "tokens":
        logits, expected = logits[real], expected[real]
    close(logits, expected, "logits")
    # Any function of the logits has the same gradients; a mean, as losses are, for gradients that
    # are 0 but for rounding (of keys' biases) have the rounding of what is summed.
    weights = torch.linspace(-1, 1, logits.numel()).view(logits.shape)
    (logits * weights).mean().backward()
    (expected * weights).mean().backward()
    same_gradients(variant, model, other)


@pytest.mark.fast_cases(computed=(0.0,))
def test_no_mask_and_no_segments_mean_all_real_and_segment_0(variant: Variant) -> None:
    config = variant.tiny(0)
    backbone = Model(config, {}).eval().backbone
    scramble(backbone, 0)
    batch = random_batch(config, 0)
    ids = batch.input_ids[:1]  # the longest, without padding
    said = backbone(ids, torch.ones_like(ids), torch.zeros_like(ids))
    unsaid = backbone(ids)
    close(unsaid.last_hidden_state, said.last_hidden_state, "last_hidden_state")


@pytest.mark.fast_cases(left=(False,))
@pytest.mark.parametrize("left", [False, True], ids=["padding right", "padding left"])
def test_padding_does_not_touch_real_tokens(variant: Variant, left: bool) -> None:
    config = variant.tiny(1)
    if left and config.first_position == 0:
        pytest.skip("positions count padding on the left")
    backbone = Model(config, {}).eval().backbone
    backbone.reads_padding = False
    scramble(backbone, 1)
    batch = random_batch(config, 1, left=left)
    whole = backbone(batch.input_ids, batch.attention_mask, batch.token_type_ids)
    for row in range(batch.num_sequences):
        real = batch.attention_mask[row]
        alone = backbone(
            batch.input_ids[row : row + 1, real], None, batch.token_type_ids[row : row + 1, real]
        )
        close(alone.last_hidden_state[0], whole.last_hidden_state[row, real], f"row {row}")
        if not left and config.has_pooler:
            close(alone.pooler_output[0], whole.pooler_output[row], f"pooled row {row}")


@pytest.mark.fast_cases(computed=(0.0,))
def test_published_sizes_have_their_weights(variant: Variant) -> None:
    for name, count in variant.sizes.items():
        config = variant.family.presets[name]
        assert config.num_parameters == count
        with torch.device("meta"):
            model = Model(config, {})
        assert model.num_parameters() == count
