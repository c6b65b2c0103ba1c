"""Replaced-token detection: the batch, the loss against an independent one, no gradient through
sampling, the same samples however a batch is cut."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers
from torch import Tensor

import toys
from bertine.core.loss_names import TERMS, guessing
from bertine.corpora.batch import Batch, plan, select, split
from bertine.corpora.pretraining_data import PretrainingData
from bertine.families.electra import (
    ElectraConfig,
    as_masked_lm,
    generator_of,
    sample,
    without_generator,
)
from bertine.models.family import config_to_huggingface, family_of
from bertine.models.heads import Model
from bertine.objectives.rtd import EncodedReplacements, Rtd
from bertine.options.pretraining import ObjectiveOptions

LENGTH = 40


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> PretrainingData:
    store = toys.write_store(tmp_path_factory.mktemp("toys") / "store")
    return toys.pretraining_data(
        store,
        input_format="full-sentences",
        corruption=Rtd.corruption,
        max_seq_length=LENGTH,
        mask_split=Rtd.mask_split,
        batch_size=16,
    )


def rtd_model(data: PretrainingData, options: ObjectiveOptions | None = None) -> Model:
    config = ElectraConfig(
        vocab_size=toys.tokenizer().vocab_size,
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=40,
        max_position_embeddings=LENGTH,
        embedding_size=20,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    torch.manual_seed(0)
    model = Model(config, Rtd(options).heads(config))
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(std=0.3, generator=draw)
            if "norm.weight" in name:
                parameter.add_(1.0)
    return model


def originals(batch: Batch) -> Tensor:
    """The text of a batch, int64 [B, T]."""
    ids = batch.input_ids.flatten().clone()
    ids[batch.targets["mlm_positions"]] = batch.targets["mlm_labels"]
    return ids.view_as(batch.input_ids)


def test_a_batch_has_what_it_takes(data: PretrainingData) -> None:
    tokenizer = toys.tokenizer()
    chosen = masked = kept = tokens = 0
    for step in range(30):
        batch = data.batch(step)
        targets, flat = batch.targets, batch.input_ids.flatten()
        text = originals(batch)
        # All real tokens, special ones too, and what stands there in the text.
        assert torch.equal(targets["rtd_positions"], batch.attention_mask.flatten().nonzero()[:, 0])
        assert torch.equal(targets["rtd_labels"], text[batch.attention_mask])
        assert int((text == tokenizer.template.one.before[0]).sum()) == batch.num_sequences
        # No special token is chosen.
        assert not np.isin(targets["mlm_labels"].numpy(), list(tokenizer.special_ids)).any()
        draws = targets["mlm_draws"]
        assert draws.shape == targets["mlm_positions"].shape
        assert bool(((draws >= 0) & (draws < 1)).all())
        assert len(draws.unique()) == len(draws)
        hidden = flat[targets["mlm_positions"]]
        masked += int((hidden == tokenizer.mask_token_id).sum())
        kept += int((hidden == targets["mlm_labels"]).sum())
        chosen += len(draws)
        tokens += batch.num_tokens
    assert masked + kept == chosen  # none is replaced at random
    assert masked / chosen == pytest.approx(0.85, abs=5 * (0.85 * 0.15 / chosen) ** 0.5)
    assert chosen / tokens == pytest.approx(0.15, abs=0.01)


def test_draws_are_other_ones_at_each_step_and_the_same_again(data: PretrainingData) -> None:
    first, again, other = (data.batch(step).targets["mlm_draws"] for step in (3, 3, 4))
    assert torch.equal(first, again)
    assert not set(first.tolist()) & set(other.tolist())


def test_draws_are_uniform(data: PretrainingData) -> None:
    draws = torch.cat([data.batch(step).targets["mlm_draws"] for step in range(40)]).numpy()
    counts, _ = np.histogram(draws, 20, (0.0, 1.0))
    expected = len(draws) / 20
    chi_square = float((np.square(counts - expected) / expected).sum())
    assert chi_square < 19 + 5 * (2 * 19) ** 0.5


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_loss_and_gradients_equal_those_of_transformers(
    data: PretrainingData, temperature: float
) -> None:
    """An ElectraForMaskedLM and an ElectraForPreTraining that share their embeddings, and the
    formula of the paper, section 2: the MLM loss and 50 times that of all tokens."""
    objective = Rtd(ObjectiveOptions(sampling_temperature=temperature))
    model = rtd_model(data).eval()
    batch = data.batch(0)
    assert not bool(batch.attention_mask.all())  # some padding
    family = family_of("electra")
    alone = as_masked_lm(model)
    assert alone is not None
    twins = []
    for part in (alone, without_generator(model)):
        values = config_to_huggingface(part.config, heads=part.heads)
        kind = getattr(transformers, values.pop("architectures")[0])
        values.pop("model_type")
        twin = kind(kind.config_class(**values, attn_implementation="eager")).eval()
        weights = family.names.to_huggingface(part.state_dict(), part.config)
        assert not twin.load_state_dict(weights, strict=False).unexpected_keys
        twins.append(twin)
    generator, discriminator = twins
    discriminator.electra.embeddings = generator.electra.embeddings
    generator.tie_weights()
    inputs = {
        "attention_mask": batch.attention_mask.long(),
        "token_type_ids": batch.token_type_ids,
    }
    places, labels = batch.targets["mlm_positions"], batch.targets["mlm_labels"]
    logits = generator(batch.input_ids, **inputs).logits.flatten(0, 1)[places]
    mlm = F.cross_entropy(logits, labels)
    # By the inverse of the distribution function, written out.
    sums = torch.softmax(logits.detach().double() / temperature, -1).cumsum(-1)
    drawn = (sums <= batch.targets["mlm_draws"][:, None]).sum(-1)
    text = originals(batch)
    ids = text.flatten().clone()
    ids[places] = drawn
    ids = ids.view_as(text)
    rtd = discriminator(ids, labels=(ids != text).long(), **inputs).loss
    expected = mlm + 50 * rtd
    expected.backward()

    terms = objective.terms(model, batch)
    losses = {name: term.total / term.count for name, term in terms.items()}
    assert losses["generator"].item() == pytest.approx(mlm.item(), abs=1e-5)
    assert losses["rtd"].item() == pytest.approx(rtd.item(), abs=1e-5)
    loss = sum(terms[name].weight * losses[name] for name in terms)
    assert isinstance(loss, Tensor)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    loss.backward()
    real = batch.attention_mask
    assert int(terms["rtd"].shares["replaced"]) == int((ids != text)[real].sum())
    assert 0 < int(terms["rtd"].shares["replaced"]) <= len(places)

    theirs = {n: p.grad for n, p in discriminator.named_parameters()}
    ours = family.names.to_huggingface(
        {n: p.grad for n, p in model.named_parameters() if "generator" not in n}, model.config
    )
    assert ours.keys() == theirs.keys()
    for name, gradient in theirs.items():
        torch.testing.assert_close(ours[name], gradient, rtol=1e-5, atol=1e-5, msg=name)
    small = {n: p.grad for n, p in alone.named_parameters()}
    ours = family.names.to_huggingface(small, alone.config)
    for name, parameter in generator.named_parameters():
        torch.testing.assert_close(ours[name], parameter.grad, rtol=1e-5, atol=1e-5, msg=name)


def test_no_gradient_goes_through_sampling(data: PretrainingData) -> None:
    """The discriminator's loss moves the shared embeddings, and nothing of the generator's own."""
    model, objective, batch = rtd_model(data).eval(), Rtd(), data.batch(0)
    objective.terms(model, batch)["rtd"].total.backward()
    for name, parameter in model.named_parameters():
        touched = parameter.grad is not None and bool(parameter.grad.any())
        assert touched == (not name.startswith("heads.generator.")), name
    model.zero_grad(set_to_none=True)
    objective.terms(model, batch)["generator"].total.backward()
    own = ("heads.generator.", "backbone.embeddings.")
    for name, parameter in model.named_parameters():
        touched = parameter.grad is not None and bool(parameter.grad.any())
        assert touched == (name.startswith(own) and "embeddings.projection" not in name), name


@pytest.mark.parametrize("tokens", [41, 100, 350])
def test_samples_are_the_same_however_a_batch_is_cut(data: PretrainingData, tokens: int) -> None:
    model, objective, whole = rtd_model(data).eval(), Rtd(), data.batch(2)
    parts = split(whole, tokens)
    assert len(parts) > 1
    with torch.no_grad():
        expected = objective.terms(model, whole)
        sums = [objective.terms(model, part) for part in parts]
    for name in ("rtd", "generator"):
        assert sum(terms[name].count for terms in sums) == expected[name].count
        total = sum(float(terms[name].total) for terms in sums)
        assert total == pytest.approx(float(expected[name].total), rel=1e-5)
    for share, number in expected["rtd"].shares.items():
        assert sum(int(terms["rtd"].shares[share]) for terms in sums) == int(number)
    # Sequence by sequence the same tokens.
    seen: dict[float, int] = {}
    for part in [whole, *parts]:
        logits = _generator_logits(model, part)
        drawn = sample(logits, part.targets["mlm_draws"]).tolist()
        for number, token in zip(part.targets["mlm_draws"].tolist(), drawn, strict=True):
            assert seen.setdefault(number, token) == token


def _generator_logits(model: Model, batch: Batch) -> Tensor:
    generator = generator_of(model)
    assert generator is not None
    with torch.no_grad():
        logits: Tensor = generator(model.backbone.embeddings, batch, batch.targets["mlm_positions"])
    return logits


def test_shares_of_processes_make_up_the_batch(data: PretrainingData) -> None:
    batch = data.batch(1)
    targets: dict[str, list[Tensor]] = {}
    for share in plan(batch, 3, 120):
        for rows in share:
            part = select(batch, rows)
            ids = part.input_ids.flatten()
            # What is at the places moves with them.
            assert torch.equal(
                originals(part).flatten()[part.targets["rtd_positions"]],
                part.targets["rtd_labels"],
            )
            assert ids.numel() > int(part.targets["mlm_positions"].max())
            for name in ("mlm_labels", "mlm_draws", "rtd_labels"):
                targets.setdefault(name, []).append(part.targets[name])
    for name, parts in targets.items():
        assert torch.equal(torch.cat(parts).sort().values, batch.targets[name].sort().values), name


def test_a_drawn_token_that_is_the_original_counts_as_original(data: PretrainingData) -> None:
    """A generator that knows the text replaces nothing; one that never says it, all it may."""
    model, batch = rtd_model(data).eval(), data.batch(0)
    generator = generator_of(model)
    assert generator is not None
    encoded = Rtd().encode(model, batch)
    assert isinstance(encoded, EncodedReplacements)
    with torch.no_grad():
        generator.head.bias.zero_()
        generator.head.layer_norm.weight.zero_()
        generator.head.layer_norm.bias.zero_()
        word = int(batch.targets["mlm_labels"][0])
        generator.head.bias[word] = 1e4  # always this one
    replaced = Rtd().encode(model, batch).replaced
    others = int((batch.targets["mlm_labels"] != word).sum())
    assert int(replaced.sum()) == others < len(batch.targets["mlm_labels"])


def test_guessing_of_a_rarer_answer() -> None:
    loss, accuracy = guessing(TERMS["rtd"], 0.1) or (0.0, 0.0)
    assert accuracy == 0.9
    assert loss == pytest.approx(0.3251, abs=1e-4)
    assert guessing(TERMS["rtd"], 0.0) == (0.0, 1.0)
    assert guessing(TERMS["rtd"]) is None
    assert guessing(TERMS["mlm"], 0.1) is None
    assert guessing(TERMS["nsp"]) == (pytest.approx(0.6931, abs=1e-4), 0.5)


def test_options_say_weights_and_sizes(data: PretrainingData) -> None:
    options = ObjectiveOptions(
        generator_size=0.5, generator_layers=0.5, generator_weight=3.0, discriminator_weight=7.0
    )
    objective = Rtd().configured(options)
    model = rtd_model(data, options).eval()
    generator = generator_of(model)
    assert generator is not None
    assert (generator.config.hidden_size, len(generator.layers)) == (12, 1)
    with torch.no_grad():
        terms = objective.terms(model, data.batch(0))
    assert {name: term.weight for name, term in terms.items()} == {"rtd": 7.0, "generator": 3.0}
