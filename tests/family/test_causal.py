"""Models that read forward: the next token's loss and gradients as in transformers, and what the
authors' program computes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers

import bertine
import toys
from bertine.corpora.batch import Batch
from bertine.hub.model_directory import load_model
from bertine.models import layers
from bertine.models.encoder import TextInputs, last_tokens
from bertine.models.family import config_to_huggingface
from bertine.models.heads import Model
from bertine.objectives import choose
from tolerance import assert_close, network_terms

from .parity import SEEDS, close, inputs, random_batch, same_gradients
from .variants import VARIANTS, scramble

GPT = VARIANTS["openai-gpt"]
FILES = Path(__file__).resolve().parents[1] / "fixtures" / "openai"


def with_targets(batch: Batch) -> Batch:
    """The batch with the tokens that follow, as the objective wants them."""
    followed = torch.zeros_like(batch.attention_mask)
    followed[:, :-1] = batch.attention_mask[:, 1:] & batch.attention_mask[:, :-1]
    places = followed.flatten().nonzero()[:, 0]
    batch.targets |= {"clm_positions": places, "clm_labels": batch.input_ids.flatten()[places + 1]}
    return batch


@pytest.mark.parametrize("left", [False, True], ids=["padding right", "padding left"])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_loss_of_the_next_token_and_all_gradients(seed: int, left: bool) -> None:
    config = GPT.tiny(seed)
    objective, input_format = choose(config)
    assert (objective.name, input_format) == ("clm", "running-text")
    model = Model(config, objective.heads(config)).eval()
    scramble(model, seed)
    batch = with_targets(random_batch(config, seed, left=left))
    other = GPT.twin(model)
    labels = batch.input_ids.masked_fill(~batch.attention_mask, -100)
    if left:  # transformers would score the first token by the padding before it
        labels[torch.arange(5), batch.attention_mask.int().argmax(1)] = -100
    theirs = other(**inputs(batch, config), labels=labels)
    theirs.loss.backward()
    term = objective.terms(model, batch)["clm"]
    assert term.count == len(batch.targets["clm_labels"]) == objective.counts(batch)["clm"]
    loss = term.total / term.count
    loss.backward()
    close(loss, theirs.loss, "loss")
    same_gradients(GPT, model, other)


@pytest.mark.parametrize("length", [12, 30])
def test_training_computes_what_answering_does(
    monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    """Written-out products up to a length, the library's beyond it."""
    monkeypatch.setattr(layers, "WRITTEN_OUT", 20)
    config = GPT.tiny(0).replace(max_position_embeddings=32).with_dropout(0.0)
    model = Model(config, {})
    scramble(model, 0)
    ids = torch.randint(0, config.vocab_size, (3, length))
    mask = torch.ones_like(ids)
    mask[1, 7:] = 0
    mask[2, :4] = 0
    given, real = TextInputs(ids, mask), mask.bool()
    trained = model.train().encode(given).last_hidden_state[real]
    answered = model.eval().encode(given).last_hidden_state[real]
    close(trained, answered, "states")


def test_no_state_knows_what_stands_behind_it() -> None:
    config = GPT.tiny(1)
    model = Model(config, {}).eval()
    scramble(model, 1)
    ids = torch.randint(0, config.vocab_size, (1, 20))
    whole = model.encode(TextInputs(ids)).last_hidden_state
    for length in (1, 7, 19):
        part = model.encode(TextInputs(ids[:, :length])).last_hidden_state
        close(part, whole[:, :length], f"first {length}")


def test_what_is_pooled_is_the_last_real_token() -> None:
    states = torch.arange(24.0).view(3, 4, 2)
    mask = torch.tensor([[1, 1, 0, 0, 0], [1, 1, 1, 1, 0], [0, 0, 1, 1, 0]])
    places = [1, 3, 3]
    assert torch.equal(last_tokens(states, mask), states[torch.arange(3), places])
    assert torch.equal(last_tokens(states, None), states[:, -1])


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """A folder as OpenAI publishes it, and what its files do not say: the heads, in a
    config.json."""
    folder = tmp_path / "published"
    folder.mkdir()
    for file in (*FILES.glob("params_*"),):
        shutil.copy(file, folder)
    letters = "abcdefghijklmnopqrstuvwxyz.,'"
    tokens = ["<unk>", *letters, *(f"{letter}</w>" for letter in letters), "\n</w>"]
    ids = {token: index for index, token in enumerate(tokens)}
    (folder / "encoder_bpe_40000.json").write_text(json.dumps(ids))
    (folder / "vocab_40000.bpe").write_text("#version: 0.2\n")
    config = GPT.family.presets["openai-gpt"].replace(
        vocab_size=60,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=20,
    )
    values = config_to_huggingface(config, heads=["lm"])
    (folder / "config.json").write_text(json.dumps(values))
    return folder


def test_the_authors_program_computes_the_same(published: Path) -> None:
    """States, classifier and both losses."""
    expected, added = np.load(FILES / "expected.npz"), np.load(FILES / "added.npz")
    loaded = load_model(published).model
    state = loaded.backbone.state_dict()
    words, positions = "embeddings.word_embeddings.weight", "embeddings.position_embeddings.weight"
    state[words] = torch.cat([state[words], torch.from_numpy(added["special"])])
    model = Model(loaded.config.replace(vocab_size=63), {}).eval()
    model.backbone.load_state_dict(state)
    rows = torch.from_numpy(expected["X"][..., 0]).long().view(6, 20)
    mask = torch.from_numpy(expected["M"]).view(6, 20)
    with torch.no_grad():
        encoded = model.encode(TextInputs(rows, mask.bool()), all_states=True)
    assert encoded.hidden_states is not None
    terms = network_terms(3, 32)
    for layer, theirs in enumerate(expected["hidden"]):
        theirs = torch.from_numpy(theirs).view(6, 20, 32)[mask.bool()]
        assert_close(encoded.hidden_states[layer + 1][mask.bool()], theirs, terms=terms)
    last = encoded.last_hidden_state[torch.arange(6), rows.eq(62).int().argmax(1)]
    close(encoded.pooler_output, last, "the state of _classify_")
    logits = last @ torch.from_numpy(added["clf_weight"]) + torch.from_numpy(added["clf_bias"])
    logits = logits.view(3, 2)
    assert_close(logits, expected["clf_logits"], terms=terms)
    classified = F.cross_entropy(logits, torch.from_numpy(expected["Y"]).long())
    # Their language model's softmax is over tokens, the three and positions: one table.
    table = torch.cat([state[words], state[positions]])
    scores = encoded.last_hidden_state[:, :-1] @ table.t()
    each = F.cross_entropy(scores.flatten(0, 1), rows[:, 1:].flatten(), reduction="none")
    weights = mask[:, 1:]
    read = (each.view(6, 19) * weights).sum(1) / weights.sum(1)
    assert_close(read, expected["lm_losses"], terms=terms)
    total = classified + 0.5 * read.mean()
    assert_close(total, expected["total_loss"], terms=terms)


def test_openais_folder_is_converted_and_opens_in_transformers(
    published: Path, tmp_path: Path
) -> None:
    report = bertine.convert(published, tmp_path / "out")
    assert report.hidden_act == "gelu_new"
    assert not report.left_behind
    ours = load_model(published).model
    theirs, info = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "out", output_loading_info=True
    )
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    ids = torch.randint(0, 60, (2, 11))
    with torch.no_grad():
        encoded = ours.encode(TextInputs(ids))
        logits = ours.read("lm", encoded, places=torch.arange(22)).view(2, 11, 60)
        close(logits, theirs.eval()(ids).logits, "logits")
    assert toys.weights(tmp_path / "out")["transformer.h.2.attn.c_attn.weight"].shape == (32, 96)


def test_openais_folder_without_a_config_needs_heads_of_64(published: Path) -> None:
    (published / "config.json").unlink()
    with pytest.raises(bertine.BertineError, match=r"32 numbers, .* 64 .* \(n_head\) in a config"):
        load_model(published)


def write_header(path: Path, begin: str) -> None:
    """Write an array whose header begins with `begin`, and eight bytes of numbers."""
    header = (begin + "'fortran_order': False, 'descr': '<f4'}").ljust(117).encode() + b"\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(8))


def test_texts_without_a_piece_have_vectors_too(published: Path) -> None:
    """OpenAI's vocabulary has no special tokens, so nothing is left of an empty text."""
    for pooling in ("mean", "max"):
        embedder = bertine.Embedder.load(published, pooling=pooling, precision="fp32")
        both = embedder.embed(["", "a", " "])
        assert np.isfinite(both).all()
        np.testing.assert_allclose(embedder.embed([""]), both[:1], atol=1e-6)
        np.testing.assert_array_equal(both[0], both[2])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "params_3.npy").unlink(), r"params_3.npy: missing, but params_shapes"),
        (
            lambda f: (f / "params_9.npy").write_bytes((f / "params_9.npy").read_bytes()[:200]),
            r"params_9.npy: is damaged, cut short or of another kind",
        ),
        (
            lambda f: write_header(f / "params_9.npy", "{'shape': (1000000000000,), "),
            r"params_9.npy: is damaged, cut short or of another kind",
        ),
        (
            lambda f: write_header(f / "params_9.npy", "{'shape': ((7,), "),
            r"params_9.npy: is damaged, cut short or of another kind",
        ),
        (
            lambda f: (f / "params_9.npy").write_bytes(b"PK\x03\x04" + bytes(60)),
            r"params_9.npy: is damaged, cut short or of another kind",
        ),
        (lambda f: (f / "params_9.npy").unlink(), r"hold 36,605 numbers, but .* asks for"),
        (
            lambda f: np.save(f / "params_2.npy", np.zeros(4)),
            r"params_2.npy: is not a row of fp32 numbers",
        ),
        (lambda f: (f / "params_shapes.json").write_text("[[20, 32]]"), r"has 1 shapes, but a GPT"),
        (lambda f: (f / "params_shapes.json").write_text("{}"), r"must hold a list of shapes"),
        (
            lambda f: (f / "params_shapes.json").write_text(
                (f / "params_shapes.json").read_text().replace("[1, 32, 96]", "[1, 32, 97]", 1)
            ),
            r"shape of h.0.attn.c_attn.weight is \[1, 32, 97\], so it is not a GPT checkpoint",
        ),
        (lambda f: (f / "vocab_40000.bpe").unlink(), r"no vocabulary|no tokenizer"),
        (
            lambda f: (f / "vocab_40000.bpe").write_text("#version\na b\n"),
            r"not a tokenizer",
        ),
        (
            lambda f: (f / "vocab_40000.bpe").write_text("#version\na b c\n"),
            r"vocab_40000.bpe:2: must hold two tokens",
        ),
        (
            lambda f: (f / "encoder_bpe_40000.json").write_text('{"a</w>": 0}'),
            r"lacks the special token <unk>",
        ),
    ],
)
def test_damaged_files_of_openais_are_refused_in_one_line(
    published: Path, damage: object, message: str
) -> None:
    assert callable(damage)
    damage(published)
    with pytest.raises(bertine.BertineError, match=message) as refused:
        load_model(published)
    assert "\n" not in str(refused.value)


def test_a_config_that_it_does_not_compute_is_refused(published: Path) -> None:
    path = published / "config.json"
    values = json.loads(path.read_text())
    for change, message in (
        ({"afn": "tanh"}, "afn 'tanh' is not supported"),
        ({"n_inner": 64}, "n_inner is 64, but must be four times"),
        ({"summary_type": "mean"}, "another place for a classifier"),
        ({"n_head": 5}, "n_embd 32 is not a multiple of n_head 5"),
    ):
        path.write_text(json.dumps(values | change))
        with pytest.raises(bertine.BertineError, match=message):
            load_model(published)


def test_a_classifier_without_a_bias_has_as_many_labels_as_rows(
    published: Path, tmp_path: Path
) -> None:
    """As transformers saves it; a file and a config.json of different models are refused."""
    bertine.convert(published, tmp_path / "base")
    theirs = transformers.OpenAIGPTForSequenceClassification.from_pretrained(
        tmp_path / "base", num_labels=3
    )
    theirs.save_pretrained(tmp_path / "classifier")
    for name in ("vocab.json", "merges.txt", "tokenizer_config.json"):
        shutil.copy(tmp_path / "base" / name, tmp_path / "classifier")
    loaded = load_model(tmp_path / "classifier")
    assert set(loaded.model.heads) == {"lm", "classifier"}
    assert loaded.report.new == []
    path = tmp_path / "classifier" / "config.json"
    values = json.loads(path.read_text())
    path.write_text(json.dumps(values | {"id2label": {"0": "a", "1": "b"}}))
    with pytest.raises(bertine.BertineError, match="has 3 outputs, but id2label"):
        load_model(tmp_path / "classifier")


@pytest.mark.slow
def test_openais_vocabulary_gets_special_tokens_for_fine_tuning(
    published: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Behind its own, with embeddings drawn by the seed; what is written opens as it is."""
    data = toys.write_labelled(tmp_path / "train.csv", rows=32)
    with toys.one_thread():
        runs = [
            bertine.finetune(
                "text",
                model=published,
                data=data,
                out=tmp_path / name,
                epochs=1,
                max_length=20,
                learning_rate=0.0,
                frozen=False,
                baselines=False,
                precision="fp32",
                seed=seed,
            )
            for name, seed in (("a", 0), ("b", 0), ("c", 1))
        ]
    assert "added the special tokens _start_ _delimiter_ _classify_" in capsys.readouterr().err
    old = load_model(published).model.backbone.word_weights
    loaded = [load_model(run.model) for run in runs]
    tables = [each.model.backbone.word_weights for each in loaded]
    assert [tuple(table.shape) for table in tables] == [(63, 32)] * 3
    assert all(torch.equal(table[:60], old) for table in tables)
    assert torch.equal(tables[0][60:], tables[1][60:])
    assert not torch.equal(tables[0][60:], tables[2][60:])
    assert 0.01 < float(tables[0][60:].detach().std()) < 0.03
    tokenizer = loaded[0].tokenizer
    assert tokenizer.tokens[60:] == ["_start_", "_delimiter_", "_classify_"]
    plain = tokenizer.encode_plain(["a cat", "."])
    assert plain == load_model(published).tokenizer.encode_plain(["a cat", "."])
    assert tokenizer.encode("a cat", ".").input_ids == [60, *plain[0], 61, *plain[1], 62]
    theirs = transformers.AutoTokenizer.from_pretrained(runs[0].model)
    assert theirs("a cat")["input_ids"] == tokenizer.encode("a cat").input_ids
    assert bertine.Predictor.load(runs[0].model).predict(["a cat"])[0].label in ("animal", "dish")
