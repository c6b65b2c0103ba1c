"""GPT-1 with LSTMs: they compute what PyTorch's do, whatever stands beside a text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bertine
import toys
from bertine import BertineError
from bertine.families.gpt import (
    LstmConfig,
    LstmDirection,
    RecurrentLayer,
    full_reading_order,
    reading_order,
)
from bertine.hub.model_directory import load_model, save_model
from bertine.models.encoder import TextInputs
from bertine.models.heads import Model
from bertine.training.mfu import operations, step_products


def config(**changes: Any) -> LstmConfig:
    return replace(
        LstmConfig(
            num_hidden_layers=2,
            hidden_size=32,
            num_attention_heads=2,
            intermediate_size=128,
            vocab_size=60,
            max_position_embeddings=64,
        ),
        **changes,
    )


def model_of(settings: LstmConfig) -> Model:
    torch.manual_seed(0)
    return Model(settings.with_dropout(0.0), {}).eval()


def as_torch(layer: RecurrentLayer, width: int, size: int) -> nn.LSTM:
    both = len(layer.directions) == 2
    lstm = nn.LSTM(width, size, batch_first=True, bidirectional=both)
    with torch.no_grad():
        for direction, end in zip(layer.directions, ("", "_reverse"), strict=False):
            assert isinstance(direction, LstmDirection)
            for ours, theirs in ((direction.read, "ih"), (direction.state, "hh")):
                getattr(lstm, f"weight_{theirs}_l0{end}").copy_(ours.weight)
                getattr(lstm, f"bias_{theirs}_l0{end}").copy_(ours.bias)
    return lstm


@pytest.mark.parametrize("changes", [{"lstm_size": 40}, {"bilstm_layers": 1}])
def test_layers_compute_what_pytorchs_do(changes: dict[str, int]) -> None:
    settings = config(**changes)
    model = model_of(settings)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.2)
    last = model.backbone.layers[-1]
    assert isinstance(last, RecurrentLayer)
    ids = torch.randint(1, 60, (3, 9))
    found = model.encode(TextInputs(ids), all_states=True)
    states = found.hidden_states
    assert states is not None
    lstm = as_torch(last, 32, settings.lstm_size or 32)
    expected = last.out(lstm(states[-2])[0])
    torch.testing.assert_close(found.last_hidden_state, expected)
    # And the gradients, down to the embeddings.
    weights = model.backbone.word_weights
    ours = torch.autograd.grad(found.last_hidden_state.square().sum(), weights, retain_graph=True)
    theirs = torch.autograd.grad(expected.square().sum(), weights)
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("changes", [{"lstm_size": 40}, {"bilstm_layers": 1}])
@pytest.mark.parametrize("left", [False, True])
def test_padding_changes_no_text(changes: dict[str, int], left: bool) -> None:
    model = model_of(config(**changes))
    lengths = [9, 4, 1]
    ids, mask = torch.zeros(3, 9, dtype=torch.int64), torch.zeros(3, 9, dtype=torch.bool)
    texts = [torch.randint(1, 60, (length,)) for length in lengths]
    for row, text in enumerate(texts):
        place = slice(9 - len(text), 9) if left else slice(0, len(text))
        ids[row, place], mask[row, place] = text, True
    together = model.encode(TextInputs(ids, mask))

    def alone(row: int) -> Tensor:
        # Positions count from the first place, padding too, as GPT-1's do.
        start = 9 - lengths[row] if left else 0
        padded = torch.cat([torch.zeros(start, dtype=torch.int64), texts[row]])[None]
        real = torch.arange(padded.shape[1])[None] >= start
        return model.encode(TextInputs(padded, real)).last_hidden_state[0, start:]

    for row in range(3):
        torch.testing.assert_close(together.last_hidden_state[row, mask[row]], alone(row))


def test_an_lstm_reads_from_left_to_right_and_a_bilstm_both_ways() -> None:
    ids = torch.randint(1, 60, (1, 8))
    other = ids.clone()
    other[0, -1] = (ids[0, -1] + 1) % 60
    for changes, same in (({"lstm_size": 40}, True), ({"bilstm_layers": 1}, False)):
        model = model_of(config(**changes))
        a, b = (model.encode(TextInputs(x)).last_hidden_state[0, :-1] for x in (ids, other))
        assert torch.equal(a, b) is same


def test_the_order_of_reading() -> None:
    mask = torch.tensor([[1, 1, 0], [1, 1, 1]]).bool()
    forwards, backwards, sizes = reading_order(mask)
    assert forwards.tolist() == [3, 0, 4, 1, 5]
    assert backwards.tolist() == [5, 1, 4, 0, 3]
    assert sizes == (2, 2, 1)
    # Where all tokens are real it needs no look at the mask.
    forwards, backwards, sizes = reading_order(torch.ones(3, 5).bool())
    again = full_reading_order(3, 5, torch.device("cpu"))
    assert torch.equal(forwards, again[0])
    assert torch.equal(backwards, again[1])
    assert sizes == again[2]


def test_the_products_of_a_step_are_counted() -> None:
    """A run of some minutes says what share of the machine's rate it gets."""
    model = model_of(config(lstm_size=40, num_hidden_layers=1))
    width, size, sequences, length = model.config.hidden_size, 40, 4, 8
    tokens = sequences * length
    # What an LSTM reads, its state from the second token on, and the way back to the width; forward
    # and twice backward.
    products = tokens * width * 4 * size + (tokens - sequences) * size * 4 * size
    products += tokens * size * width
    assert operations(step_products(model, sequences, length)) == 3 * 2 * products


@pytest.mark.slow
def test_one_is_trained_and_answers(tmp_path: Path) -> None:
    store = toys.write_store(tmp_path / "store", documents=40)
    size = len(load_tokens(store))
    file = toys.write_config(
        tmp_path / "config.json", config(lstm_size=64, num_hidden_layers=1, vocab_size=size)
    )
    made = bertine.pretrain(
        store, model=file, out=tmp_path / "run", steps=150, max_seq_length=32, batch_size=16,
        learning_rate=1e-2, dropout=0.0, precision="fp32",
    )  # fmt: skip
    # It knows more than which words there are how often.
    assert toys.log(tmp_path / "run")[-1]["loss"] < 2.0
    data = toys.write_labelled(tmp_path / "t.csv")
    tuned = bertine.finetune(
        "text", model=made.model, data=data, out=tmp_path / "tuned", epochs=20,
        learning_rate=1e-2, baselines=False, frozen=False, precision="fp32",
    )  # fmt: skip
    assert tuned.metrics["accuracy"] > 0.9
    answers = bertine.Predictor.load(tmp_path / "tuned/model").predict(["the cat sleeps ."])
    assert len(answers) == 1
    with pytest.raises(BertineError, match="of type gpt-lstm, which writes no texts; give one"):
        bertine.generate(made.model, ["the"])


def load_tokens(store: Path) -> list[str]:
    from bertine.tokenization.tokenizer import Tokenizer

    return list(Tokenizer.load(store / "tokenizer").tokens)


def test_one_that_reads_both_ways_guesses_no_next_token(tmp_path: Path) -> None:
    store = toys.write_store(tmp_path / "store", documents=40)
    both = config(bilstm_layers=1, vocab_size=len(load_tokens(store)))
    file = toys.write_config(tmp_path / "config.json", both)
    with pytest.raises(BertineError, match="reads in both directions"):
        bertine.pretrain(store, model=file, out=tmp_path / "run", steps=2, max_seq_length=32)
    # What is saved is loaded, BiLSTM and all.
    model = model_of(both)
    tokenizer = toys.tokenizer()
    save_model(tmp_path / "model", model, tokenizer)
    loaded = load_model(tmp_path / "model")
    for name, tensor in model.state_dict().items():
        assert torch.equal(loaded.model.state_dict()[name], tensor), name


def test_its_fine_tuning_guesses_only_what_it_does_not_see() -> None:
    assert config(lstm_size=40).task_lm_weight == 0.5
    assert config(bilstm_layers=1).task_lm_weight == 0.0
    assert not config(bilstm_layers=1).reads_forward


@pytest.mark.slow
def test_a_gpt_finds_spans(tmp_path: Path) -> None:
    rows = [
        f"what {word} ?,the {word} {animal} sleeps in the sofa .,{animal}"
        for animal in ("cat", "dog", "cow", "horse")
        for word in ("old", "warm", "brown", "young")
    ]
    data = tmp_path / "spans.csv"
    data.write_text("question,context,answer\n" + "\n".join(rows * 4) + "\n")
    size = len(toys.tokenizer().tokens)
    model = model_of(replace(config(bilstm_layers=1), vocab_size=size))
    save_model(tmp_path / "model", model, toys.tokenizer())
    with toys.one_thread():
        run = bertine.finetune(
            "spans", model=tmp_path / "model", data=data, out=tmp_path / "run", epochs=12,
            learning_rate=5e-3, baselines=False, max_length=40, max_question_length=8,
        )  # fmt: skip
    assert run.metrics["exact_match"] > 0.8
