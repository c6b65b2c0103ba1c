"""A language model beside a task: OpenAI's numbers, sums in parts, and a run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import bertine
import toys
from bertine.corpora.batch import Batch, split
from bertine.hub.model_directory import save_model
from bertine.models.family import family_of
from bertine.models.heads import Model, new_head
from bertine.models.losses import sum_cross_entropy
from bertine.objectives.losses import AuxiliaryLM, Loss, LossDefaults, Term
from bertine.tasks.classification import TextClassification
from bertine.training.step import accumulate
from family.variants import scramble
from tolerance import assert_close, network_terms

FILES = Path(__file__).resolve().parents[1] / "fixtures" / "openai"


class NoTask(LossDefaults):
    """No loss at all."""

    def counts(self, batch: Batch) -> dict[str, int]:
        return {}

    def terms_of(self, model: Model, encoded: object, batch: Batch) -> dict[str, Term]:
        return {}


def openai_model() -> Model:
    """OpenAI's weights of the fixture, with its three special tokens."""
    shapes = json.loads((FILES / "params_shapes.json").read_text())
    flat = np.concatenate([np.load(FILES / f"params_{n}.npy") for n in range(10)])
    sizes = np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1]
    arrays = [
        part.reshape(shape).squeeze()
        for part, shape in zip(np.split(flat, sizes), shapes, strict=True)
    ]
    config = (
        family_of("openai-gpt")
        .presets["openai-gpt"]
        .replace(
            vocab_size=63,
            hidden_size=32,
            num_hidden_layers=3,
            num_attention_heads=4,
            intermediate_size=128,
            max_position_embeddings=20,
        )
    )
    model = Model(config, {}).eval()
    added = np.load(FILES / "added.npz")
    state = model.backbone.state_dict()
    state["embeddings.position_embeddings.weight"] = torch.from_numpy(arrays[0])
    words = np.concatenate([arrays[1], added["special"]])
    state["embeddings.word_embeddings.weight"] = torch.from_numpy(words)
    names = ("attention.qkv", "attention.out", "attention_norm", "up", "down", "output_norm")
    for layer in range(3):
        own = arrays[2 + 12 * layer : 14 + 12 * layer]
        for name, (first, second) in zip(names, zip(own[::2], own[1::2], strict=True), strict=True):
            weight = torch.from_numpy(first)
            state[f"layers.{layer}.{name}.weight"] = weight.T if weight.dim() == 2 else weight
            state[f"layers.{layer}.{name}.bias"] = torch.from_numpy(second)
    model.backbone.load_state_dict(state)
    return model


def test_the_published_codes_language_model_loss() -> None:
    """The mean over sequences of the mean over tokens, the positions in the softmax."""
    expected = np.load(FILES / "expected.npz")
    rows = torch.from_numpy(expected["X"][..., 0]).long().view(6, 20)
    mask = torch.from_numpy(expected["M"]).view(6, 20).bool()
    batch = Batch(rows, mask, torch.zeros_like(rows), {})
    model = openai_model()
    with torch.no_grad():
        (term,) = AuxiliaryLM(NoTask(), 0.5, positions=True).terms(model, batch).values()
        tokens = AuxiliaryLM(NoTask(), 0.5).terms(model, batch)["lm"]
    assert (term.count, term.weight) == (6, 0.5)
    assert_close(term.total / 6, expected["lm_losses"].mean(), terms=network_terms(3, 32))
    # Without rows that no text has, more probability is left for those that it has.
    assert float(tokens.total) < float(term.total)


@pytest.mark.parametrize("positions", [False, True])
def test_gradients_are_those_of_the_formula_in_one_piece_and_in_several(positions: bool) -> None:
    config = toys.config_for("clm").with_dropout(0.0).replace(classifier_dropout=0.0)
    task = TextClassification(("animal", "dish"), ("text",), "label", 16)
    model = Model(config, task.heads(config)).train()
    scramble(model, 0)
    draw = torch.Generator().manual_seed(0)
    ids = torch.randint(0, config.vocab_size, (6, 12), generator=draw)
    lengths = torch.tensor([12, 3, 7, 9, 2, 11])
    mask = torch.arange(12)[None] < lengths[:, None]
    labels = torch.tensor([0, 1, 1, 0, 1, 0])
    batch = Batch(ids, mask, ids * 0, {"labels": labels})
    loss: Loss = AuxiliaryLM(task, 0.7, positions)

    encoded = model.encode(batch)
    table = model.backbone.word_weights
    if positions:
        table = torch.cat([table, model.backbone.embeddings.position_embeddings.weight])  # type: ignore[union-attr, list-item]
    scores = encoded.last_hidden_state[:, :-1] @ table.t()
    each = F.cross_entropy(scores.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    each = (each.view(6, 11) * mask[:, 1:]).sum(1) / mask[:, 1:].sum(1)
    classified = F.cross_entropy(model.read("classifier", encoded), labels)
    (classified + 0.7 * each.mean()).backward()
    expected = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    for parts in ([batch], split(batch, 30)):
        model.zero_grad()
        accumulate_all(model, loss, parts)
        for name, parameter in model.named_parameters():
            if name in expected:
                torch.testing.assert_close(
                    parameter.grad, expected[name], rtol=1e-3, atol=1e-5, msg=name
                )


def accumulate_all(model: Model, loss: Loss, parts: list[Batch]) -> None:
    for _ in accumulate(model, loss, parts, dtype=torch.float32, seeds=[0, 0]):
        pass


def test_weighted_cross_entropies() -> None:
    draw = torch.Generator().manual_seed(0)
    logits = torch.randn(7, 5, generator=draw, requires_grad=True)
    labels, weights = torch.randint(0, 5, (7,), generator=draw), torch.rand(7, generator=draw)
    expected = (F.cross_entropy(logits, labels, reduction="none") * weights).sum()
    (grad,) = torch.autograd.grad(expected, logits)
    again = logits.detach().clone().requires_grad_()
    total, right = sum_cross_entropy(again * 1.0, labels, weights)
    torch.testing.assert_close(total, expected)
    torch.testing.assert_close(torch.autograd.grad(total, again)[0], grad)
    assert int(right) == int((logits.argmax(1) == labels).sum())


@pytest.fixture(scope="module")
def gpt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GPT with random weights, and the toy's words with the special tokens of its kind."""
    home = tmp_path_factory.mktemp("gpt")
    corpus = toys.write_corpus(home / "corpus.txt")
    bertine.train_vocab([corpus], home / "vocab", kind="word-bpe", vocab_size=320)
    tokenizer = bertine.Tokenizer.load(home / "vocab")
    config = toys.config_for("clm").replace(vocab_size=tokenizer.vocab_size)
    torch.manual_seed(0)
    save_model(home / "model", Model(config, new_head(config, "lm")), tokenizer)
    return home / "model"


@pytest.mark.slow
@pytest.mark.parametrize("weight", [None, 0.0])
def test_a_run_of_fine_tuning(gpt: Path, tmp_path: Path, weight: float | None) -> None:
    """Half of L1 is added unless it is said otherwise, and both losses fall."""
    data = toys.write_labelled(tmp_path / "train.csv", rows=48)
    with toys.one_thread():
        learner = bertine.finetune(
            "text",
            model=gpt,
            data=data,
            out=tmp_path / "run",
            epochs=4,
            batch_size=8,
            max_length=24,
            learning_rate=3e-3,
            lm_weight=weight,
            frozen=False,
            precision="fp32",
            log_every=2,
        )
    rows = [row for row in toys.log(tmp_path / "run") if "loss" in row]
    assert ("lm_loss" in rows[0]) == (weight is None)
    if weight is None:
        for row in rows:
            both = row["classifier_loss"] + 0.5 * row["lm_loss"]
            assert row["loss"] == pytest.approx(both, rel=1e-4)
        assert rows[-1]["lm_loss"] < rows[0]["lm_loss"]
        bertine.report(tmp_path / "run")
        page = (tmp_path / "run" / "report.html").read_text()
        assert "Loss of the task" in page
        assert "LM loss" in page
    assert 0 <= learner.metrics["accuracy"] <= 1


def test_what_cannot_be_guessed_beside_a_task(gpt: Path, tmp_path: Path) -> None:
    data = toys.write_labelled(tmp_path / "train.csv")
    bert = toys.write_model(tmp_path / "bert")
    for model, options, message in (
        (bert, {"lm_weight": 0.5}, "type bert does not guess the next token in fine-tuning"),
        (bert, {"lm_softmax": "tokens-and-positions"}, "no tokens are guessed beside the task"),
        (gpt, {"lm_softmax": "words"}, "lm_softmax is 'words', but must be one of tokens"),
        (gpt, {"lm_weight": -1.0}, "lm_weight is -1, but must be"),
    ):
        with pytest.raises(bertine.BertineError, match=message):
            bertine.finetune("text", model=model, data=data, out=tmp_path / "out", **options)  # type: ignore[arg-type]
        assert not (tmp_path / "out").exists()
