"""MobileBERT and its teacher compute what transformers' class computes, whatever the keys of the
config say, and what the paper says where that class cannot."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bertine.core.errors import BertineError
from bertine.families.mobilebert import MobileBert, MobileBertConfig
from bertine.inference.compute import Engine, evaluating
from bertine.models import encoder
from bertine.models.dropout import stream
from bertine.models.encoder import TextInputs
from bertine.models.family import config_to_huggingface, read_config
from bertine.models.heads import Model, new_head
from bertine.objectives.losses import MlmNsp
from bertine.tokenization.tokenizer import SPECIAL_TOKENS, Tokenizer
from bertine.training.adamw import row_gradients
from bertine.training.pretraining.pretrain import extend_vocabulary
from family.parity import close, full_labels, inputs, random_batch, same_gradients
from family.variants import VARIANTS, scramble
from tolerance import assert_close, network_terms

MOBILE = VARIANTS["mobilebert"]
FLAGS = (
    "trigram_input",
    "use_bottleneck",
    "use_bottleneck_attention",
    "key_query_shared_bottleneck",
)


def tiny(**fields: Any) -> MobileBertConfig:
    sizes = {
        "vocab_size": 50,
        "hidden_size": 20,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 14,
        "max_position_embeddings": 26,
        "embedding_size": 6,
        "intra_bottleneck_size": 10,
        "num_feedforward_networks": 3,
    }
    return MobileBertConfig(**{**sizes, **fields})


def twin(model: Model) -> nn.Module:
    """transformers' model, whose queries and keys are made of the states where the config says so
    and the width allows it not: the class gives these layers the inner width."""
    config = model.config
    assert isinstance(config, MobileBertConfig)
    if config.query_width == config.attention_width:
        return MOBILE.twin(model)
    import transformers.models.mobilebert.modeling_mobilebert as theirs

    class Wide(theirs.MobileBertSelfAttention):  # type: ignore[misc]
        def __init__(self, values: Any) -> None:
            super().__init__(values)
            self.query = nn.Linear(values.hidden_size, self.all_head_size)
            self.key = nn.Linear(values.hidden_size, self.all_head_size)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(theirs, "MobileBertSelfAttention", Wide)
        return MOBILE.twin(model)


@pytest.mark.parametrize("norm", ["no_norm", "layer_norm"])
@pytest.mark.parametrize("flags", list(itertools.product([False, True], repeat=4)))
def test_losses_and_all_gradients_under_all_keys(
    flags: tuple[bool, ...], norm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = sum(flag << at for at, flag in enumerate(flags))
    # Of padding once the real tokens alone are computed, once all.
    real_alone = (number.bit_count() + (norm == "no_norm")) % 2 == 0
    monkeypatch.setattr(encoder, "_UNPAD_FROM", 0.0 if real_alone else 2.0)
    config = tiny(
        **dict(zip(FLAGS, flags, strict=True)),
        normalization_type=norm,
        num_feedforward_networks=1 + number % 4,
        # Also as wide as the states, and then without neighbours nothing is projected.
        embedding_size=20 if number % 3 == 0 else 6,
        hidden_act=("relu", "gelu", "gelu_new")[number % 3],
        classifier_activation=bool(number % 2),
    )
    objective = MlmNsp()
    model = Model(config, objective.heads(config)).eval()
    scramble(model, number)
    other = twin(model)
    batch = random_batch(config, number)
    labels = full_labels(batch)
    theirs = other(
        **inputs(batch, config),
        labels=labels,
        next_sentence_label=batch.targets["next_sentence_label"],
        output_hidden_states=True,
        output_attentions=True,
    )
    theirs.loss.backward()
    encoded = model.encode(batch, all_states=True)
    assert encoded.hidden_states is not None
    real = batch.attention_mask
    for layer, (a, b) in enumerate(zip(encoded.hidden_states, theirs.hidden_states, strict=True)):
        close(a[real], b[real], f"hidden_states[{layer}]")
    hidden = ~real[:, None, None, :]
    for layer, expected in enumerate(theirs.attentions):
        scores = model.backbone.attention_scores(layer, encoded.hidden_states[layer])
        ours = scores.masked_fill(hidden, -math.inf).softmax(-1)
        close(ours.transpose(1, 2)[real], expected.transpose(1, 2)[real], f"attention {layer}")
    terms = objective.terms(model, batch)
    loss: Any = sum(term.total / term.count for term in terms.values())
    loss.backward()
    close(loss, theirs.loss, "loss")
    same_gradients(MOBILE, model, other)


def test_a_word_of_padding_gets_no_gradient_by_its_neighbours_either_way() -> None:
    """Sparse gradients of rows too leave out the row that the parity test says gets none."""
    model = Model(tiny(), {})
    batch = random_batch(model.config, 0)
    grads = []
    for rows in (False, True):
        model.zero_grad()
        if rows:
            with row_gradients(model):
                model.encode(batch).last_hidden_state[batch.attention_mask].sum().backward()
        else:
            model.encode(batch).last_hidden_state[batch.attention_mask].sum().backward()
        grad = model.backbone.word_weights.grad
        assert grad is not None
        grads.append(grad.to_dense() if grad.is_sparse else grad)
    # Without layer norms, numbers are as large on the way as the largest gradient.
    others = [p.grad for p in model.parameters() if p.grad is not None and not p.grad.is_sparse]
    largest = max(float(grad.abs().max()) for grad in others if grad.numel())
    assert_close(*grads, terms=network_terms(2, 20, gradients=True), size=largest)
    assert not grads[0][model.config.pad_token_id].any()
    assert grads[0].any()


def alone(model: Model, batch: Any) -> list[Tensor]:
    return [
        model.backbone(ids[mask][None], None, types[mask][None]).last_hidden_state[0]
        for ids, mask, types in zip(
            batch.input_ids, batch.attention_mask, batch.token_type_ids, strict=True
        )
    ]


def test_answers_do_not_depend_on_the_padding_of_their_batch() -> None:
    """In training the array is read as it is, and a [PAD] behind a text is its last token's
    neighbour; answers, on any device and in graphs, are those of each text alone."""
    model = Model(tiny(), {}).eval()
    scramble(model, 0)
    batch = random_batch(model.config, 0)
    expected = alone(model, batch)
    mask, ids, types = batch.attention_mask, batch.input_ids, batch.token_type_ids
    short = 1 + int(mask[1:].sum(1).argmin())

    def same(states: Tensor) -> bool:
        return torch.allclose(states[short, mask[short]], expected[short], atol=1e-5)

    with torch.no_grad():
        assert not same(model.encode(batch).last_hidden_state)
        with evaluating(model):
            assert same(model.encode(batch).last_hidden_state)
        assert not same(model.encode(batch).last_hidden_state)
        assert same(model.backbone.traced(ids, mask, types).last_hidden_state)
        engine = Engine(model, precision="fp32")
        assert same(engine.backbone(ids, mask, types).last_hidden_state)
    assert model.backbone.reads_padding


def test_packed_rows_are_the_same_rows() -> None:
    model = Model(tiny(), {}).eval()
    scramble(model, 1)
    batch = random_batch(model.config, 1)
    packed, padded = model.encode(batch.packed()), model.encode(batch)
    real = batch.attention_mask
    close(packed.last_hidden_state[real], padded.last_hidden_state[real], "states")


def test_in_training_a_graph_of_masks_follows_the_seed_alone() -> None:
    config = tiny(use_bottleneck=False, hidden_dropout_prob=0.3, attention_probs_dropout_prob=0.3)
    model = Model(config, {}).train()
    batch = random_batch(config, 0)
    states = []
    for seed in (0, 0, 1):
        stream.seed(seed, 1)
        states.append(model.encode(batch).last_hidden_state[batch.attention_mask])
    assert torch.equal(states[0], states[1])
    assert not torch.allclose(states[0], states[2])


def test_bf16_is_close_and_states_are_bf16_between_layers() -> None:
    model = Model(tiny(hidden_size=64, intra_bottleneck_size=32, intermediate_size=64), {}).eval()
    batch = random_batch(model.config, 0)
    with torch.no_grad():
        exact = model.encode(batch)
        with torch.autocast("cpu", torch.bfloat16):
            low = model.encode(batch, all_states=True)
    assert low.hidden_states is not None
    assert {state.dtype for state in low.hidden_states} == {torch.bfloat16}
    real = batch.attention_mask
    ours, theirs = low.last_hidden_state[real].float(), exact.last_hidden_state[real]
    assert float((ours - theirs).norm() / theirs.norm()) < 0.02


def test_new_words_get_a_place_in_the_whole_decoder() -> None:
    words = [*SPECIAL_TOKENS, *"abcdefgh"]
    old = Tokenizer.from_vocab([*words, *(f"##{letter}" for letter in "abcdefgh")])
    new = Tokenizer.from_vocab([*old.tokens, "abc"])
    config = tiny(vocab_size=old.vocab_size)
    model = Model(config, new_head(config, "mlm"))
    scramble(model, 0)
    grown, unknown = extend_vocabulary(model, old, new)
    assert unknown == 0
    pieces = old.parts_of("abc")
    extra, before = grown.heads["mlm"].extra.weight, model.heads["mlm"].extra.weight
    assert extra.shape == (config.hidden_size - config.embedding_size, new.vocab_size)
    torch.testing.assert_close(extra[:, -1], before[:, pieces].mean(1))
    torch.testing.assert_close(extra[:, :-1], before)
    ids = torch.tensor([pieces])
    assert grown.read("mlm", grown.encode(TextInputs(ids)), places=torch.tensor([0])).shape == (
        1,
        new.vocab_size,
    )


def test_what_a_file_does_not_say_is_what_transformers_takes(tmp_path: Path) -> None:
    import transformers

    values = {"model_type": "mobilebert"}
    for key in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads"):
        values[key] = getattr(transformers.MobileBertConfig(), key)
    values["intermediate_size"] = 512
    path = tmp_path / "config.json"
    path.write_text(json.dumps(values))
    written = config_to_huggingface(read_config(path).config)
    usual = transformers.MobileBertConfig().to_dict()
    for key in MobileBertConfig().to_dict():
        assert written[key] == usual[key], key
    path.write_text(json.dumps(usual | {"architectures": ["MobileBertModel"]}))
    assert read_config(path).config == MobileBertConfig()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"normalization_type": "manual_layer_norm"}, "normalization_type is 'manual_layer_norm'"),
        ({"intra_bottleneck_size": 11}, "intra_bottleneck_size 11 is not a multiple of num_att"),
        ({"embedding_size": 21}, "embedding_size is 21, but must be at most hidden_size"),
        ({"num_feedforward_networks": 0}, "num_feedforward_networks is 0, but must be between"),
        ({"num_feedforward_networks": 9_000}, "9,000 in each of 2 layers, but at most 10,000"),
        ({"trigram_input": 1}, "trigram_input is 1, but must be of type bool"),
    ],
)
def test_impossible_files_are_refused(fields: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config_to_huggingface(tiny()) | fields))
    with pytest.raises(BertineError, match=message):
        read_config(path)


def test_the_pooled_output_without_an_activation_is_the_first_state() -> None:
    for active in (False, True):
        config = tiny(classifier_activation=active)
        backbone = MobileBert(config, True)
        assert (backbone.pooler is not None) == active
        output = backbone.eval()(torch.tensor([[2, 5, 3]]))
        first = output.last_hidden_state[:, 0]
        expected = first if backbone.pooler is None else torch.tanh(backbone.pooler(first))
        torch.testing.assert_close(output.pooler_output, expected)
