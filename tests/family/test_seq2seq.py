"""An encoder with a decoder: the loss of a written text and its gradients as in transformers, and
the files that others write."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import bertine
from bertine.corpora.batch import Batch
from bertine.hub.model_directory import load_model
from bertine.models.encoder import TextInputs
from bertine.models.family import config_to_huggingface, family_of
from bertine.models.generation import SearchSettings, search
from bertine.models.heads import Model
from bertine.objectives import choose
from bertine.objectives.losses import encode_and_decode, written_term
from bertine.options.inference import DecodingOptions

from .conftest import Home
from .parity import SEEDS, close, inputs, random_batch, same_gradients
from .variants import VARIANTS, scramble

BART = VARIANTS["bart"]


def written(seed: int) -> tuple[Model, Batch]:
    """A random model, and texts to read and others to write."""
    config = BART.tiny(seed)
    objective, input_format = choose(config)
    assert (objective.name, input_format) == ("denoising", "full-sentences")
    model = Model(config, objective.heads(config)).eval()
    scramble(model, seed)
    model.heads["lm"].final_logits_bias.normal_()
    batch, target = random_batch(config, seed), random_batch(config, seed + 50)
    batch.targets = {
        "target_ids": target.input_ids[:, :17],
        "target_mask": target.attention_mask[:, :17],
    }
    return model, batch


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_loss_of_a_written_text_and_all_gradients(seed: int, smoothing: float) -> None:
    model, batch = written(seed)
    other = BART.twin(model)
    ids, mask = batch.targets["target_ids"], batch.targets["target_mask"]
    labels = ids.masked_fill(~mask, -100)
    theirs = other(**inputs(batch, model.config), labels=labels)
    expected = torch.nn.functional.cross_entropy(
        theirs.logits.flatten(0, 1), labels.flatten(), label_smoothing=smoothing
    )
    if not smoothing:
        close(expected, theirs.loss, "their loss")
    expected.backward()
    encoded = encode_and_decode(model, batch)
    term = written_term(model, encoded, batch, smoothing)
    assert term.count == int(mask.sum())
    loss = term.total / term.count
    loss.backward()
    close(loss, expected, "loss")
    assert term.correct is not None
    assert int(term.correct) == int((theirs.logits.argmax(-1) == labels).sum())
    same_gradients(BART, model, other)


def test_training_computes_what_answering_does() -> None:
    model, batch = written(0)
    still = Model(model.config.with_dropout(0.0), {}).train()
    still.backbone.load_state_dict(model.backbone.state_dict())
    real = batch.attention_mask
    trained = still.encode(batch).last_hidden_state[real]
    close(trained, still.eval().encode(batch).last_hidden_state[real], "states")


def test_nothing_that_is_written_knows_what_follows() -> None:
    model, batch = written(1)
    ids = batch.targets["target_ids"][:1]
    text = TextInputs(batch.input_ids[:1], batch.attention_mask[:1])
    whole = model.encode(text, target=TextInputs(ids)).last_hidden_state
    for length in (1, 9):
        part = model.encode(text, target=TextInputs(ids[:, :length])).last_hidden_state
        close(part, whole[:, :length], f"first {length}")


def test_vectors_of_words_take_the_place_of_ids() -> None:
    model, batch = written(2)
    ids = batch.input_ids[:1]
    vectors = model.backbone.word_weights[ids]
    theirs = model.encode(TextInputs(ids)).last_hidden_state
    close(model.encode(TextInputs(ids), word_vectors=vectors).last_hidden_state, theirs, "states")


@torch.no_grad()
def found(model: Model, texts: list[list[int]], settings: SearchSettings) -> list[list[int]]:
    """The first sequence for each text, without its start."""
    writer, starts = model.backbone.writer(model.next_scores, texts)
    return [list(written[0].tokens) for written in search(writer, starts, settings)]


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"no_repeat_ngram_size": 2, "min_new_tokens": 4},
        {"beams": 3},
        {"beams": 4, "no_repeat_ngram_size": 2, "length_penalty": 2.0, "early_stopping": True},
        {"beams": 2, "length_penalty": 0.5, "min_new_tokens": 5},
    ],
    ids=lambda given: "-".join(given) or "greedy",
)
@pytest.mark.parametrize("forced", [False, True], ids=["free", "forced ends"])
def test_texts_are_written_as_transformers_writes_them(given: dict[str, Any], forced: bool) -> None:
    """Greedy and with beams, texts of different lengths together, over random models."""
    differing = 0
    for seed in SEEDS[:3]:
        config = BART.tiny(seed).replace(max_position_embeddings=40)
        model = Model(config, choose(config)[0].heads(config)).eval()
        scramble(model, seed)
        # Tokens that end a text, now and then.
        model.heads["lm"].final_logits_bias[0, config.eos_token_id] = 4.0
        other = BART.twin(model)
        batch = random_batch(config, seed)
        choosing = DecodingOptions(max_new_tokens=12, **given)
        ends = (config.eos_token_id,)
        first = config.bos_token_id if forced else None
        settings = SearchSettings(choosing, ends, first_token=first, ends_at_limit=forced)
        texts = [ids[real].tolist() for ids, real in zip(*given_of(batch), strict=True)]
        ours = found(model, texts, settings)
        theirs = other.generate(
            input_ids=batch.input_ids,
            attention_mask=batch.attention_mask.long(),
            max_new_tokens=12,
            min_new_tokens=choosing.min_new_tokens or None,
            num_beams=choosing.beams,
            length_penalty=choosing.length_penalty,
            early_stopping=choosing.early_stopping,
            no_repeat_ngram_size=choosing.no_repeat_ngram_size,
            do_sample=False,
            forced_bos_token_id=first,
            forced_eos_token_id=config.eos_token_id if forced else None,
            decoder_start_token_id=config.decoder_start_token_id,
            eos_token_id=config.eos_token_id,
            pad_token_id=config.pad_token_id,
        )
        for row, mine in zip(theirs.tolist(), ours, strict=True):
            expected = row[1:]
            if config.eos_token_id in expected:
                expected = expected[: expected.index(config.eos_token_id)]
            assert mine == expected
        differing += len({tuple(mine) for mine in ours})
    assert differing > 5, "the models say something"


def given_of(batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    return batch.input_ids, batch.attention_mask


def test_kept_keys_and_values_give_the_scores_of_the_whole() -> None:
    model, batch = written(3)
    texts = [ids[real].tolist() for ids, real in zip(*given_of(batch), strict=True)]
    target = batch.targets["target_ids"][:, :6]
    whole = model.encode(batch, target=TextInputs(target)).last_hidden_state
    with torch.no_grad():
        writer, _ = model.backbone.writer(lambda states: states, texts)
        close(writer.start(target[:, :2].tolist()), whole[:, 1], "begun")
        rows = torch.tensor([3, 1, 1])
        close(writer.advance(rows, target[rows, 2]), whole[rows, 2], "chosen rows")
        close(writer.advance(torch.arange(3), target[rows, 3]), whole[rows, 3], "all rows")


@pytest.fixture
def base(home: Home, tmp_path: Path) -> Path:
    """A bare model as transformers saves it."""
    folder = tmp_path / "base"
    shutil.copytree(home.pretrained, folder)
    transformers.BartModel.from_pretrained(folder).save_pretrained(folder)
    (folder / "bertine.json").unlink()
    return folder


@pytest.mark.parametrize("home", ["bart"], indirect=True)
def test_a_file_without_the_constants_has_the_head_all_the_same(base: Path) -> None:
    """As facebook/bart-base, which is a bare model."""
    loaded = load_model(base)
    assert set(loaded.model.heads) == {"lm"}
    assert loaded.report.new == []
    assert not loaded.model.heads["lm"].final_logits_bias.any()


@pytest.mark.parametrize("home", ["bart"], indirect=True)
def test_published_keys_are_read_and_others_refused(base: Path) -> None:
    path = base / "config.json"
    values = json.loads(path.read_text())
    older = {"normalize_before": False, "add_final_layer_norm": False, "classif_dropout": 0.2}
    older |= {"extra_pos_embeddings": 2, "static_position_embeddings": False, "num_beams": 4}
    path.write_text(json.dumps(values | older))
    assert load_model(base).config.activation_dropout == values["activation_dropout"]
    layers = values["decoder_layers"]
    for change, message in (
        ({"scale_embedding": True}, "scale_embedding is True (embeddings times the root"),
        ({"is_encoder_decoder": False}, "one half of the model alone"),
        ({"decoder_layers": layers + 1}, f"decoder_layers in config.json is {layers + 1}"),
        ({"decoder_layers": layers - 1}, "decoder_layers is 0"),
        ({"decoder_ffn_dim": 48}, "decoder.layers.0.fc1.weight has shape [64, 32], but"),
        ({"decoder_attention_heads": 5}, "d_model 32 is not a multiple of decoder_attention_heads"),
        ({"eos_token_id": 3}, "a text ends with the id 2 in the tokenizer, but eos_token_id"),
        ({"decoder_start_token_id": 999}, "decoder_start_token_id is 999, but must be in"),
        ({"activation_dropout": 1.5}, "activation_dropout is 1.5"),
    ):
        path.write_text(json.dumps(values | change))
        with pytest.raises(bertine.BertineError, match=re.escape(message)) as refused:
            load_model(base)
        assert "\n" not in str(refused.value)


def test_a_config_of_transformers_is_read_and_written_as_it_is() -> None:
    theirs = transformers.BartConfig(d_model=48, encoder_layers=3, decoder_layers=2).to_dict()
    family = family_of("bart")
    config, _ = family.keys.read(Path("config.json"), dict(theirs), family.config)
    ours = config_to_huggingface(config, heads=["lm"])
    assert ours["architectures"] == ["BartForConditionalGeneration"]
    differing = {key for key in ours.keys() & theirs.keys() if ours[key] != theirs[key]}
    assert differing <= {"architectures", "dtype"}
