"""Training ELMo: what it reads in both directions, what it remembers, and that a run goes on."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import bertine
import toys
from bertine.cli import main
from bertine.contrib.elmo import pretrain as verb
from bertine.contrib.elmo.files import load_elmo
from bertine.contrib.elmo.model import (
    BEGIN,
    DIRECTIONS,
    END,
    BidirectionalLm,
    ElmoConfig,
    WordSoftmax,
    character_ids,
)
from bertine.contrib.elmo.perplexity import (
    SPECIAL,
    UNKNOWN,
    Windows,
    WordCorpus,
    perplexity,
    read_words,
    vocabulary_of,
)
from bertine.contrib.elmo.pretrain import BothWays, ElmoLearner
from bertine.core.errors import BertineError
from bertine.inference.embedding.embedder import Embedder
from bertine.tokenization.documents import Corpus
from bertine.training.checkpoint import stop_when

TINY = {
    "max_characters": 20,
    "character_size": 4,
    "filters": [[1, 8], [2, 8]],
    "activation": "relu",
    "num_highway_layers": 1,
    "num_hidden_layers": 2,
    "lstm_size": 24,
    "projection_size": 12,
    "cell_clip": 3.0,
    "projection_clip": 3.0,
    "skip_connections": True,
    "word_splitting": "spaces",
    "dropout": 0.1,
    "vocab_size": 0,
}

TEXT = "the cat sat on the mat\nthe dog ran\n\na bird sang in the tree\n\nthe dog sat\nit rained\n"


@pytest.fixture
def sizes(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.json"
    path.write_text(json.dumps({"model_type": "elmo", **TINY}))
    return path


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(TEXT * 6)
    return path


def words_of(path: Path) -> WordCorpus:
    return read_words(Corpus(path), "spaces")


def config(**changes: Any) -> ElmoConfig:
    values = {**TINY, "filters": ((1, 8), (2, 8)), **changes}
    return ElmoConfig(**values)


def test_both_directions_read_the_same_sentences_and_foretell_the_next_word(text: Path) -> None:
    corpus = words_of(text)
    vocabulary = vocabulary_of(corpus, 1, None)
    data = BothWays(corpus, vocabulary, rows=1, window=corpus.num_targets, seed=3)
    assert data.steps_of_epoch == 1
    names = {-1: BEGIN, -2: END}
    for direction, windows in data.at(0).items():
        inputs = [names[at] if at < 0 else corpus.types[at] for at in windows.inputs[:, 0].tolist()]
        targets = [vocabulary[at] for at in windows.targets[:, 0].tolist()]
        first, last = (BEGIN, END) if direction == "forward" else (END, BEGIN)
        # Each sentence begins with its mark, and what is read next is what was to be foretold.
        read: list[list[str]] = []
        for word, target, following in zip(inputs, targets, [*inputs[1:], first], strict=True):
            if word == first:
                read.append([])
            else:
                read[-1].append(word)
            assert target == (last if following == first else following)
        backwards = direction == "backward"
        sentences = [" ".join(reversed(s) if backwards else s) for s in read]
        expected = [line for line in (TEXT * 6).split("\n") if line]
        assert sorted(sentences) == sorted(expected)
        # Documents are shuffled, their sentences stand as they stood.
        at = sentences.index("the cat sat on the mat")
        assert sentences[at + 1] == "the dog ran"
        if direction == "forward":
            order = sentences
        else:
            assert sentences == order, "both directions read the sentences in one order"
    assert order != expected


def test_a_row_goes_on_where_it_ended(text: Path) -> None:
    corpus = words_of(text)
    vocabulary = vocabulary_of(corpus, 1, None)
    data = BothWays(corpus, vocabulary, rows=3, window=4, seed=0)
    assert data.steps_of_epoch == corpus.num_targets // 12
    ids = {word: at for at, word in enumerate(vocabulary)}
    for step in range(data.steps_of_epoch - 1):
        here, following = data.at(step), data.at(step + 1)
        for direction in DIRECTIONS:
            last = here[direction].targets[-1]
            first = following[direction].inputs[0]
            for target, at in zip(last.tolist(), first.tolist(), strict=True):
                end = END if direction == "forward" else BEGIN
                assert (target == ids[end]) if at < 0 else vocabulary[target] == corpus.types[at]
    # A batch is a function of the step, not of those before it; each epoch has its own order.
    again = BothWays(corpus, vocabulary, rows=3, window=4, seed=0)
    later = data.steps_of_epoch + 1
    assert np.array_equal(again.at(later)["forward"].inputs, data.at(later)["forward"].inputs)
    assert not np.array_equal(data.at(1)["forward"].inputs, data.at(later)["forward"].inputs)


def learner(rows: int, vocab: int, types: list[str], **changes: Any) -> ElmoLearner:
    torch.manual_seed(1)
    sizes = config(vocab_size=vocab, **changes)
    return ElmoLearner(BidirectionalLm(sizes), WordSoftmax(sizes), types, rows)


def test_the_state_is_carried_from_window_to_window(text: Path) -> None:
    corpus = words_of(text)
    vocabulary = vocabulary_of(corpus, 1, None)
    one, two = (learner(2, len(vocabulary), corpus.types, dropout=0.0) for _ in range(2))
    whole = BothWays(corpus, vocabulary, rows=2, window=8, seed=0).at(0)
    expected = one.losses(whole, None, 0, 0, torch.float32)
    parts = []
    for half in (slice(0, 4), slice(4, 8)):
        windows = {
            name: Windows(window.inputs[half], window.targets[half])
            for name, window in whole.items()
        }
        parts.append(two.losses(windows, None, 0, 0, torch.float32))
    for name in DIRECTIONS:
        mean = sum(float(part[name].detach()) for part in parts) / 2
        assert mean == pytest.approx(float(expected[name].detach()), abs=1e-6)
        for part in ("states", "cells"):
            key = f"{name}_{part}"
            torch.testing.assert_close(one.carried[key], two.carried[key])
            assert one.carried[key].abs().max() > 1e-3


@pytest.mark.slow
def test_perplexity_is_that_of_each_word_after_those_before_it(text: Path, tmp_path: Path) -> None:
    corpus = words_of(text)
    vocabulary = vocabulary_of(corpus, 7, None)
    trained = learner(1, len(vocabulary), corpus.types)
    for parameter in trained.learned():
        torch.nn.init.normal_(parameter, 0, 0.3)
    model, softmax = trained.model.eval(), trained.softmax
    ids = {word: at for at, word in enumerate(vocabulary)}
    totals, states = [0.0, 0.0], None
    for line in filter(None, (TEXT * 6).split("\n")):
        words = [BEGIN, *line.split(), END]
        for number in range(2):
            read = words if number == 0 else words[::-1]
            for at, word in enumerate(read[:-1]):
                numbers = torch.from_numpy(character_ids([word], 20))
                with torch.no_grad():
                    if states is None:
                        zero = torch.zeros(2, 1, 12), torch.zeros(2, 1, 24)
                        states = [zero, zero]
                    x = model.words(numbers)
                    hidden, cells = states[number]
                    new = []
                    for depth, layer in enumerate(
                        (model.forward_layers, model.backward_layers)[number]
                    ):
                        out, end = layer(x, [1], (hidden[depth], cells[depth]))
                        x = out + x if depth else out
                        new.append(end)
                    states[number] = (
                        torch.stack([s for s, _ in new]),
                        torch.stack([c for _, c in new]),
                    )
                    scores = (x @ softmax.weight.T + softmax.bias).log_softmax(-1)[0]
                totals[number] -= float(scores[ids.get(read[at + 1], ids[UNKNOWN])])
    score = perplexity(model, softmax, vocabulary, corpus)
    assert score.forward == pytest.approx(totals[0] / corpus.num_targets, rel=1e-5)
    assert score.backward == pytest.approx(totals[1] / corpus.num_targets, rel=1e-5)
    assert score.words == corpus.num_targets
    both = (score.forward + score.backward) / 2
    assert score.scores()["perplexity"] == pytest.approx(math.exp(both))


def run(text: Path, sizes: Path, out: Path, **options: Any) -> verb.ElmoResult:
    usual = {
        "word_splitting": "spaces",
        "batch_size": 4,
        "window": 5,
        "steps": 6,
        "checkpoint_every": 2,
        "log_every": 3,
        "min_count": 1,
        "precision": "fp32",
    }
    return bertine.pretrain_elmo(text, model=sizes, out=out, **(usual | options))


@pytest.mark.parametrize("softmax", [{"softmax": "full"}, {"softmax": "sampled", "negatives": 6}])
def test_a_run_that_was_killed_goes_on_bit_for_bit(
    text: Path,
    sizes: Path,
    tmp_path: Path,
    softmax: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run(text, sizes, tmp_path / "whole", **softmax)
    step = verb._Training._step

    def dies(self: Any) -> float:
        if self.done == 5:
            raise RuntimeError("killed")
        return step(self)

    with monkeypatch.context() as patch:
        patch.setattr(verb._Training, "_step", dies)
        with pytest.raises(RuntimeError, match="killed"):
            run(text, sizes, tmp_path / "cut", **softmax)
    with pytest.raises(BertineError, match="holds a run already"):
        run(text, sizes, tmp_path / "cut", **softmax)
    with pytest.raises(BertineError, match=r"learning_rate = 0.2, not 0.1"):
        run(text, sizes, tmp_path / "cut", **softmax, resume=True, learning_rate=0.1)
    run(text, sizes, tmp_path / "cut", **softmax, resume=True)
    for name in ("model/model.safetensors", "checkpoints/step-00000006/model.safetensors"):
        whole, cut = (load_file(tmp_path / kind / name) for kind in ("whole", "cut"))
        assert whole.keys() == cut.keys()
        assert all(torch.equal(tensor, cut[key]) for key, tensor in whole.items())
    carried = load_file(tmp_path / "cut/checkpoints/step-00000006/model.safetensors")
    assert carried["carried.forward_cells"].abs().max() > 1e-3
    logs = [
        [json.loads(line) for line in (tmp_path / kind / "log.jsonl").read_text().splitlines()]
        for kind in ("whole", "cut")
    ]
    for first, second in zip(*logs, strict=True):
        assert (first["step"], first["loss"]) == (second["step"], second["loss"])


@pytest.mark.slow
@pytest.mark.parametrize("softmax", [{"softmax": "full"}, {"softmax": "sampled", "negatives": 16}])
def test_it_learns_both_ways_and_its_model_opens(
    sizes: Path, tmp_path: Path, softmax: dict[str, Any]
) -> None:
    """Each sentence is one of four, known by its first word, and by its last."""
    sentences = ["one a b c uno", "two d e f due", "three g h i tre", "four j k l quattro"]
    draw = np.random.default_rng(0)
    lines = [sentences[at] for at in draw.integers(0, 4, 600)]
    (tmp_path / "train.txt").write_text("\n".join(lines[:500]))
    (tmp_path / "held.txt").write_text("\n".join(lines[500:]))
    result = run(
        tmp_path / "train.txt",
        sizes,
        tmp_path / "run",
        steps=150,
        batch_size=16,
        window=8,
        held_out=tmp_path / "held.txt",
        evaluate_every=75,
        checkpoint_every=1000,
        dropout=0.0,
        **softmax,
    )
    assert result.held_out is not None
    # One word in six has one bit or two; a model that knows nothing is at 20 and more.
    best = math.exp(math.log(4) / 6)
    for loss in (result.held_out.forward, result.held_out.backward):
        assert best - 0.05 < math.exp(loss) < 2.2
    assert result.held_out.unknown == 0
    loaded = load_elmo(tmp_path / "run")
    assert loaded.words[:3] == list(SPECIAL)
    assert loaded.softmax is not None
    corpus = read_words(Corpus(tmp_path / "held.txt"), "spaces")
    again = perplexity(loaded.model, loaded.softmax, loaded.words, corpus)
    assert again == result.held_out
    assert Embedder.load(tmp_path / "run").embed("one a").shape == (24,)
    # It goes on with its softmax, and is converted with it.
    more = run(
        tmp_path / "train.txt", tmp_path / "run", tmp_path / "more", steps=2, dropout=0.0, **softmax
    )
    # A new one begins at 3.1; fresh sums of Adagrad take the second step far.
    assert more.loss < 2.4
    assert bertine.convert(tmp_path / "run", tmp_path / "copy").left_behind == ["bertine.json"]
    assert load_elmo(tmp_path / "copy").words == loaded.words


def test_gradients_are_clipped_sparse_or_not() -> None:
    torch.manual_seed(0)
    table, vector = torch.nn.Parameter(torch.randn(9, 4)), torch.nn.Parameter(torch.randn(3))
    dense = table.detach().clone().requires_grad_()
    rows = torch.tensor([1, 1, 5])
    torch.nn.functional.embedding(rows, table, sparse=True).pow(2).sum().backward()
    torch.nn.functional.embedding(rows, dense).pow(2).sum().backward()
    vector.grad = torch.tensor([3.0, 4.0, 0.0])
    assert dense.grad is not None
    expected = float(torch.cat([dense.grad.flatten(), vector.grad]).norm())
    wanted = dense.grad * (0.5 / expected)
    assert verb.clip([table, vector], 0.5) == pytest.approx(expected, rel=1e-6)
    assert table.grad is not None
    torch.testing.assert_close(table.grad.to_dense(), wanted)
    torch.testing.assert_close(vector.grad, torch.tensor([3.0, 4.0, 0.0]) * (0.5 / expected))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"model": "elmo-huge"}, "is neither a size"),
        ({"batch_size": 5000}, "too few for a window of 5 in 5000 rows"),
        ({"min_count": 10**6}, "the vocabulary is empty"),
        ({"softmax": "sampled"}, "negatives is 8,192, but the vocabulary has"),
        ({"held_out": "nowhere.txt"}, "nowhere.txt"),
        ({"steps": 0}, "steps"),
    ],
)
def test_mistakes_are_one_line(
    text: Path, sizes: Path, tmp_path: Path, options: dict[str, Any], says: str
) -> None:
    model = options.pop("model", sizes)
    with pytest.raises(BertineError, match=says) as error:
        run(text, model, tmp_path / "run", **options)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


def test_from_the_command_line(
    text: Path, sizes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = f"--model {sizes} --out {tmp_path / 'run'} --batch-size 2 --steps 3".split()
    assert main(["pretrain-elmo", str(text), *arguments, "--held-out", str(text)]) == 0
    out = capsys.readouterr().out
    assert "held-out perplexity" in out
    assert "forwards" in out
    assert str(tmp_path / "run" / "model") in out
    # Evaluating the model on the same text gives the same numbers.
    told = re.search(r"perplexity ([\d.]+) \(forwards ([\d.]+), backwards ([\d.]+)\)", out)
    assert told is not None
    assert main(["evaluate", str(tmp_path / "run"), "--data", str(text)]) == 0
    shown = capsys.readouterr().out
    both, forwards, backwards = told.groups()
    assert f"perplexity {both}: forwards {forwards}, backwards {backwards}" in shown
    report = bertine.evaluate(tmp_path / "run" / "model", text)
    assert f"{report.metrics['forward_perplexity']:.2f}" == forwards
    for more, message in (
        (["--worst", "3"], "--worst is for labelled examples, but this is text for an ELMo"),
        (["--precision", "int8"], "precision 'int8' is not known"),
    ):
        assert main(["evaluate", str(tmp_path / "run"), "--data", str(text), *more]) == 2
        assert message in capsys.readouterr().err


def test_a_run_ends_at_the_step_at_which_it_is_asked_to(tmp_path: Path) -> None:
    corpus = toys.write_corpus(tmp_path / "corpus.txt")
    with stop_when(lambda done: done == 2):
        result = bertine.pretrain_elmo(
            corpus, model="elmo-tiny", out=tmp_path / "run", steps=5, batch_size=2, window=4
        )
    assert result.steps == 2
    assert [row["step"] for row in toys.log(tmp_path / "run")] == [2]
    assert (result.model / "config.json").exists()
