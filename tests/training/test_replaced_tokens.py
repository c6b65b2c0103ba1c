"""Pre-training by replaced tokens: exact resume, two models in their folders, going on with
them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import toys
from bertine import evaluate, fill_mask, load_model, pretrain
from bertine.cli import main
from bertine.core.errors import BertineError
from bertine.core.loss_names import TERMS, guessing, main_term
from bertine.corpora.store import TokenStore
from bertine.families.electra import ElectraConfig, generator_of
from bertine.families.presets import preset
from bertine.hub.model_directory import save_model
from bertine.inference.heldout import evaluate_pretraining
from bertine.models.heads import Model, new_head
from bertine.objectives.losses import Term
from bertine.objectives.rtd import Rtd
from bertine.options.pretraining import PretrainOptions
from bertine.tokenization.tokenizer import SPECIAL_TOKENS, Tokenizer
from bertine.training import fit as fit_module
from bertine.training.pretraining.pretrain import extend_vocabulary

#: Batches in two micro-batches; neither lines of the log nor checkpoints fall together.
SETTINGS: dict[str, Any] = {
    "steps": 7,
    "batch_size": 8,
    "max_seq_length": 32,
    "max_tokens_per_micro_batch": 160,
    "learning_rate": 1e-3,
    "log_every": 3,
    "checkpoint_every": 2,
    "evaluate_every": 4,
    "precision": "fp32",
}
#: As long as nothing is trained, what is written is what was read.
STILL: dict[str, Any] = {**SETTINGS, "steps": 1, "learning_rate": 0.0, "checkpoint_every": None}


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sizes = toys.config_for("rtd").replace(embedding_size=24, initializer_range=0.2)
    return toys.write_config(tmp_path_factory.mktemp("electra") / "config.json", sizes)


@pytest.fixture(scope="module")
def trained(store: Path, config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was never stopped, with both models."""
    out = tmp_path_factory.mktemp("electra") / "run"
    pretrain(store, model=config, out=out, held_out=store, save_generator=True, **SETTINGS)
    return out


@pytest.mark.slow
def test_a_killed_run_goes_on_bit_for_bit(
    store: Path, config: Path, trained: Path, tmp_path: Path
) -> None:
    options = {"model": config, "out": tmp_path / "run", "held_out": store, "save_generator": True}
    for _ in range(2):
        with toys.interrupted_at(4, fit_module, "check_batch"):
            pretrain(store, resume=True, **options, **SETTINGS)
    pretrain(store, resume=True, **options, **SETTINGS)
    assert toys.log(tmp_path / "run") == toys.log(trained)
    for name in ("model", "generator"):
        assert toys.same_weights(tmp_path / "run" / name, trained / name)
    with pytest.raises(BertineError, match=r"started with generator_size = 0\.25, not 0\.5"):
        pretrain(store, resume=True, generator_size=0.5, **options, **SETTINGS)


def test_both_models_open_in_transformers_and_share_their_embeddings(trained: Path) -> None:
    for name, kind in (("model", "ElectraForPreTraining"), ("generator", "ElectraForMaskedLM")):
        opened, info = getattr(transformers, kind).from_pretrained(
            trained / name, output_loading_info=True
        )
        assert json.loads((trained / name / "config.json").read_text())["architectures"] == [kind]
        assert not info["missing_keys"]
        assert not info["unexpected_keys"]
        assert opened.num_parameters() == load_model(trained / name).model.num_parameters()
    ours, theirs = toys.weights(trained / "model"), toys.weights(trained / "generator")
    for name in ("word_embeddings", "position_embeddings", "token_type_embeddings", "LayerNorm"):
        name = f"electra.embeddings.{name}.weight"
        assert torch.equal(ours[name], theirs[name])
    assert theirs["electra.encoder.layer.0.output.dense.bias"].shape == (8,)


def test_the_log_and_the_scores_are_of_both(trained: Path, store: Path, config: Path) -> None:
    last = [line for line in toys.log(trained) if "rtd_loss" in line][-1]
    assert last["loss"] == pytest.approx(last["generator_loss"] + 50 * last["rtd_loss"])
    assert 0 <= last["rtd_detected"] <= last["rtd_replaced"] < 0.16
    assert last["rtd_replaced"] > 0.05
    scores = [line for line in toys.log(trained) if "eval_loss" in line]
    assert [line["step"] for line in scores] == [4, 7]
    for line in scores:
        assert line["eval_loss"] == pytest.approx(
            line["eval_generator_loss"] + 50 * line["eval_rtd_loss"]
        )
        assert line["eval_rtd_count"] == line["eval_tokens"]
    # Of whole evaluations, not of one loss alone.
    state = json.loads((trained / "checkpoints" / "step-00000007" / "state.json").read_text())
    best = min(scores, key=lambda line: line["eval_loss"])
    assert state["best"] == {"step": best["step"], "metric": "loss", "value": best["eval_loss"]}
    assert (trained / "samples.jsonl").read_text().count('"truth"') >= 2


def test_the_result_says_what_guessing_gives(
    store: Path, config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = pretrain(store, model=config, out=tmp_path / "run", **{**SETTINGS, "steps": 3})
    assert result.generator is None
    assert not (tmp_path / "run" / "generator").exists()
    assert result.main == main_term("rtd") == "rtd"
    end = result.final
    lines = result.lines()
    assert (
        f"RTD: {end['rtd_replaced']:.1%} of the tokens were replaced, "
        f"{end['rtd_detected'] / end['rtd_replaced']:.1%} of these detected; guessing gives an "
        f"accuracy of {1 - end['rtd_replaced']:.1%}"
    ) in lines
    # The model comes first; the generator, which is not kept, is named as that.
    assert lines[1] == f"RTD loss {end['rtd_loss']:.3f}"
    assert lines[2].startswith(f"Generator MLM loss {end['generator_loss']:.3f} (")
    assert lines[3] == (
        f"RTD accuracy {end['rtd_accuracy']:.1%}, "
        f"Generator MLM accuracy {end['generator_accuracy']:.1%}"
    )
    assert not any(line.startswith("MLM") for line in lines)
    capsys.readouterr()
    pretrain(
        *(store,),
        **{**SETTINGS, "steps": 3},
        **{"model": config, "out": tmp_path / "run", "resume": True, "save_generator": True},
    )
    assert "save_generator=True has no effect on a finished run" in capsys.readouterr().err


def test_a_pair_goes_on(store: Path, trained: Path, tmp_path: Path) -> None:
    """With the generator that it was trained with; both are what they were."""
    model, generator = trained / "model", trained / "generator"
    pretrain(
        *(store,),
        **{"model": model, "generator": generator, "save_generator": True},
        **{"out": tmp_path / "run", **STILL},
    )
    assert toys.same_weights(tmp_path / "run" / "model", model)
    assert toys.same_weights(tmp_path / "run" / "generator", generator)


def test_a_discriminator_alone_goes_on_with_a_new_generator(
    store: Path, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [tmp_path / name for name in ("first", "again")]
    for out in folders:
        torch.manual_seed(len(out.name))  # what was drawn before means nothing
        options = {"model": trained, "out": out, "save_generator": True, "generator_size": 0.5}
        pretrain(store, **options, **STILL)
    assert "new (random): generator" in capsys.readouterr().err
    assert toys.same_weights(folders[0] / "model", trained / "model")
    assert toys.same_weights(folders[0] / "generator", folders[1] / "generator")
    assert load_model(folders[0] / "generator").config.hidden_size == 16


@pytest.mark.slow
def test_mistakes_with_generators_are_one_line(
    store: Path, config: Path, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, out = trained / "model", tmp_path / "run"

    def refused(match: str, **options: Any) -> None:
        with pytest.raises(BertineError, match=match) as error:
            pretrain(store, **{"model": model, "out": out, **STILL, **options})
        assert "\n" not in str(error.value)
        assert not out.exists()

    refused("has no MLM head, so it is no generator", generator=model)
    refused("has no weights; leave generator out", model=config, generator=trained / "generator")
    refused("no such folder|does not exist", generator=tmp_path / "nowhere")
    other = toys.config_for("rtd").replace(embedding_size=16)
    save_model(tmp_path / "other", Model(other, new_head(other, "mlm")), toys.tokenizer())
    refused("embedding_size is 16, but the model's is 24", generator=tmp_path / "other")
    bert = toys.write_model(tmp_path / "bert")
    refused("its model_type is bert, but the model's is electra", generator=bert)
    refused("mlm-nsp or mlm or mlm-neighbours, not with rtd", model=bert, objective="rtd")
    refused(r"generator_size is 0, but must be in \(0, 2\]", generator_size=0.0)
    refused(r"generator_layers is 3, but must be in \(0, 2\]", generator_layers=3.0)
    # A stranger's embeddings are not taken, and it is said.
    alone = tmp_path / "mlm"
    pretrain(store, model=config, objective="mlm", out=alone, **{**STILL, "seed": 1})
    capsys.readouterr()
    pretrain(store, model=model, generator=alone, out=tmp_path / "went", **STILL)
    assert "its embeddings are not the model's" in capsys.readouterr().err
    assert toys.same_weights(tmp_path / "went" / "model", model)


def test_options_of_the_objective_do_nothing_with_others(
    store: Path, config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"objective": "mlm", "generator_size": 0.5, "out": tmp_path / "run"}
    pretrain(store, model=config, **options, **STILL)
    assert "generator_size: does nothing with objective mlm" in capsys.readouterr().err
    settings = json.loads((tmp_path / "run" / "run.json").read_text())["settings"]
    assert "generator_size" not in settings
    assert settings["mask_split"] == [0.8, 0.1, 0.1]
    # It is a masked language model, as any other.
    assert set(load_model(tmp_path / "run").model.heads) == {"mlm"}


def test_what_has_no_mask_head_says_so(trained: Path, store: Path, tmp_path: Path) -> None:
    with pytest.raises(BertineError, match="has no masked-LM head") as error:
        fill_mask(trained / "model", "the old [MASK] sleeps .")
    assert "generator" in str(error.value)
    assert len(fill_mask(trained / "generator", "the old [MASK] sleeps .")) == 1
    # With the generator of its run it can be scored, as that alone.
    report = evaluate(trained, store)
    both, alone = report.metrics, evaluate(trained / "generator", store).metrics
    guesses = f"guessing gives an accuracy of {1 - both['rtd_replaced']:.2%}"
    assert any(guesses in line for line in report.lines())
    # Nearly: by itself it is asked with the masks of an MLM, a tenth of which are random tokens.
    assert both["generator_loss"] == pytest.approx(alone["mlm_loss"], rel=0.05)
    assert both["rtd_count"] == both["tokens"]
    assert "rtd_loss" not in alone
    shutil.copytree(trained / "model", tmp_path / "model")
    with pytest.raises(BertineError, match="has no generator to replace any") as error:
        evaluate(tmp_path / "model", store)
    assert "\n" not in str(error.value)


def test_held_out_tokens_are_hidden_as_in_training(store: Path, trained: Path) -> None:
    """A generator never meets random tokens, which it would take for tokens to be copied."""
    opened = load_model(trained / "model")
    model, tokenizer = opened.model, opened.tokenizer
    small = model.config.generator(0.5, 1.0)  # type: ignore[attr-defined]
    model.heads.update(new_head(model.config, "generator", sizes=small))
    shown: list[tuple[int, int]] = []

    class Watching(Rtd):
        def terms(self, model: Model, batch: Any) -> dict[str, Term]:
            hidden = batch.input_ids.flatten()[batch.targets["mlm_positions"]]
            shown.extend(zip(hidden.tolist(), batch.targets["mlm_labels"].tolist(), strict=True))
            return super().terms(model, batch)

    source = TokenStore.open(store)
    evaluate_pretraining(model, tokenizer, source, objective=Watching(), tokens=2000)
    masked = sum(ids == tokenizer.mask_token_id for ids, _ in shown)
    assert all(ids in (tokenizer.mask_token_id, label) for ids, label in shown)
    assert 0.8 < masked / len(shown) < 0.9


@pytest.mark.parametrize(("size", "replaced"), [(1.0, True), (0.5, False)])
def test_a_generator_that_reads_the_embeddings_as_they_are_gets_mimetic_weights(
    store: Path, tmp_path: Path, size: float, replaced: bool
) -> None:
    sizes = toys.config_for("rtd")
    sizes = sizes.replace(embedding_size=sizes.hidden_size)
    file = toys.write_config(tmp_path / "config.json", sizes)
    for kind in ("normal", "mimetic"):
        options = {"initialization": kind, "generator_size": size, "save_generator": True}
        pretrain(store, model=file, out=tmp_path / kind, **options, **STILL)
    for folder in ("model", "generator"):
        normal, mimetic = (toys.weights(tmp_path / kind / folder) for kind in ("normal", "mimetic"))
        queries = next(name for name in normal if name.endswith("self.query.weight"))
        same = torch.equal(normal[queries], mimetic[queries])
        assert same == (folder == "generator" and not replaced)


def test_new_pieces_are_new_to_both() -> None:
    old = Tokenizer.from_vocab([*SPECIAL_TOKENS, *toys.WORDS])
    new = Tokenizer.from_vocab([*old.tokens, "§"])
    config = toys.config_for("rtd").replace(vocab_size=old.vocab_size)
    model = Model(config, Rtd().heads(config))
    bias = generator_of(model).head.bias  # type: ignore[union-attr]
    with torch.no_grad():
        bias.copy_(torch.arange(len(bias)).float())
    bigger, _ = extend_vocabulary(model, old, new)
    generator = generator_of(bigger)
    assert generator is not None
    assert generator.config.vocab_size == bigger.config.vocab_size == new.vocab_size
    assert torch.equal(generator.head.bias[:-1], bias)
    assert generator.head.bias[-1].item() == pytest.approx(bias.mean().item(), rel=1e-5)


def test_from_the_command_line(store: Path, config: Path, tmp_path: Path) -> None:
    options = ["--steps", "2", "--batch-size", "4", "--max-seq-length", "32"]
    options += ["--generator-size", "0.5", "--generator-weight", "2", "--save-generator"]
    arguments = ["pretrain", str(store), "--model", str(config), "--out", str(tmp_path / "run")]
    assert main([*arguments, *options]) == 0
    assert load_model(tmp_path / "run" / "generator").config.hidden_size == 16
    assert main(["fill-mask", str(tmp_path / "run" / "generator"), "the [MASK] sleeps"]) == 0


@pytest.mark.parametrize("name", ["electra-small", "electra-base"])
def test_recipes_are_the_papers(name: str) -> None:
    """Table 6 of the paper, and what the published code has by itself."""
    recipe = toys.recipe(name)
    model = recipe.pop("model")
    options = PretrainOptions(**recipe)
    assert model == name
    assert options.objective == Rtd.name
    assert tuple(options.mask_split or ()) == Rtd.mask_split
    assert not options.bias_correction
    expected = {
        "electra-small": (1_000_000, 128, 128, 5e-4, 64),
        "electra-base": (766_000, 256, 512, 2e-4, 256),
    }[name]
    config = preset(model)
    assert isinstance(config, ElectraConfig)
    width = config.generator(options.generator_size).hidden_size
    rate = options.learning_rate
    used = (options.steps, options.batch_size, options.max_seq_length, rate, width)
    assert used == expected


@pytest.mark.slow
def test_both_models_learn(tmp_path: Path) -> None:
    """The generator learns the words of the toy language, and the model what they cannot be."""
    store = toys.write_store(tmp_path / "store", documents=200)
    sizes = toys.config_for("rtd").replace(
        hidden_size=64, intermediate_size=128, embedding_size=32, initializer_range=0.1
    )
    result = pretrain(
        store,
        model=toys.write_config(tmp_path / "config.json", sizes),
        out=tmp_path / "run",
        steps=250,
        batch_size=32,
        max_seq_length=24,
        learning_rate=5e-3,
        dropout=0.0,
        log_every=50,
        checkpoint_every=None,
        precision="fp32",
    )
    end = result.final
    assert end["generator_loss"] < 0.5 * result.unigram_entropy
    by_share, by_saying = guessing(TERMS["rtd"], end["rtd_replaced"]) or (0.0, 0.0)
    assert end["rtd_loss"] < 0.6 * by_share
    assert end["rtd_accuracy"] > by_saying + 0.01
    assert end["rtd_detected"] > 0.3 * end["rtd_replaced"]
