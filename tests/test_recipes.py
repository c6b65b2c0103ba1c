"""The recipes as a user runs them, on toy text."""

from __future__ import annotations

import csv
import dataclasses
import importlib.util
import json
import lzma
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
import transformers

import bertine
import glue_files
import toys
from bertine.cli import COMMANDS, parse_arguments
from bertine.core.errors import BertineError
from bertine.core.model_folders import locate
from bertine.hub.model_directory import save_model
from bertine.models.family import read_config
from bertine.models.heads import Model, new_head
from bertine.reports.run_files import read_log
from bertine.tokenization.tokenizer import Tokenizer
from bertine.training.checkpoint import stop_requested

ROOT = Path(__file__).resolve().parents[1]
HOUR = ROOT / "recipes" / "hour"
TASKS = ("CoLA", "SST-2", "MRPC", "STS-B", "RTE")


#: Runs the hour: its exit status, and what it prints on both streams.
Hour = Callable[..., tuple[int, str, str]]


@pytest.fixture
def hour(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Hour:
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))

    def main(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", [str(HOUR), *map(str, arguments)])
        status = module.main()
        return status, *capsys.readouterr()

    return main


def mistake(ended: tuple[int, str, str]) -> str:
    """The one line that it ends with."""
    status, printed, said = ended
    assert status == 2, said
    assert printed == ""
    (line,) = said.splitlines()
    return line


@pytest.fixture
def given(tmp_path: Path) -> list[str | Path]:
    corpus = toys.write_corpus(tmp_path / "corpus.txt", documents=60)
    # The sentences that are damaged begin as in books.
    lines = corpus.read_text().splitlines()
    corpus.write_text("\n".join(line[:1].upper() + line[1:] for line in lines) + "\n")
    glue = glue_files.write_glue(tmp_path / "glue", *TASKS)
    return ["--corpus", corpus, "--glue", glue, "--out", tmp_path / "out"]


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """``recipes/hour`` imported."""
    monkeypatch.syspath_prepend(str(HOUR))
    spec = importlib.util.spec_from_file_location("hour_main", HOUR / "__main__.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


@pytest.mark.slow
def test_an_hour_of_nine_seconds(tmp_path: Path, given: list[str | Path], hour: Hour) -> None:
    out = tmp_path / "out"
    given += ["--seeds", "1"]
    status, printed, said = hour(*given, "--minutes", "0.15")
    assert status == 0, said
    phases = ["short-sequences", "longer-sequences"]
    stages = ["vocabulary", "preparation", *phases, "acceptability"]
    for stage in stages:
        assert said.count(f"--- {stage}\n") == 1
    assert "--- fine-tuning: 10 runs" in said
    assert said.count("RTE, random weights, seed 0: accuracy ") == 1
    scores = json.loads((out / "scores.json").read_text())
    assert list(scores) == ["pre-trained", "random weights", "no model"]
    assert all(list(of_way) == list(TASKS) for of_way in scores.values())
    assert all(len(values) == 1 for of_way in scores.values() for values in of_way.values())
    *_, average, last = printed.splitlines()
    expected = [sum(values[0] for values in of_way.values()) / 5 for of_way in scores.values()]
    assert average.split() == ["average", *(f"{value:.1f}" for value in expected)]
    assert last == "dev sets, times 100; one seed"
    assert list(json.loads((out / "hour.json").read_text())["seconds"]) == stages

    # The finished command does nothing anew, also where text and tasks are gone.
    before = toys.tree(out)
    (tmp_path / "corpus.txt").unlink()
    shutil.rmtree(tmp_path / "glue")
    status, again, said = hour(*given, "--minutes", "0.15")
    assert status == 0, said
    assert "---" not in said
    assert again.startswith(" ")  # the table
    assert printed.endswith(again)
    assert toys.tree(out) == before

    # Another hour, or an hour of other text, is another model.
    assert "was begun with --minutes 0.15, not 5" in mistake(hour(*given, "--minutes", "5"))
    other = toys.write_corpus(tmp_path / "other.txt")
    told = mistake(hour(*given, "--corpus", other, "--minutes", "0.15"))
    assert "was begun with --corpus" in told
    assert toys.tree(out) == before


@pytest.fixture
def chinese_tasks(tmp_path: Path) -> Path:
    """The folder of the Chinese tasks, each with a few examples in its published form."""
    folder = tmp_path / "chinese"
    words = ["河流", "山", "城市", "音乐", "战争", "国王"]
    texts = [f"{words[n % 6]}在{words[(n + 1) % 6]}的北边。" for n in range(24)]
    rows = "".join(f"{n}\t{'地理' if n % 2 else '文化'}\t{text}\n" for n, text in enumerate(texts))
    pairs = "".join(f"{n}\t{text}\t{texts[-n]}\t{n % 2}\n" for n, text in enumerate(texts))
    tags = "".join(
        f"# text = {text}\n1\t{text[:2]}\tB-LOC\t-\t-\n2\t{text[2:]}\tO\t-\t-\n\n" for text in texts
    )
    questions = [
        {
            "id": str(n),
            "question": "在哪里？",
            "answers": [{"text": text[:2], "answer_start": 0}],
        }
        for n, text in enumerate(texts)
    ]
    paragraphs = [
        {"context": text, "qas": [question]}
        for text, question in zip(texts, questions, strict=True)
    ]
    squad = json.dumps({"version": "v1.0", "data": [{"title": "", "paragraphs": paragraphs}]})
    for name, files, text in (
        ("single-sib200", ("train.tsv", "test.tsv"), "index_id\tcategory\ttext\n" + rows),
        ("pawsx", ("dev_2k.tsv", "test_2k.tsv"), "id\tsentence1\tsentence2\tlabel\n" + pairs),
        ("uner", ("zh-ud-train.iob2.xz", "zh-ud-test.iob2"), tags),
        ("cmrc2018", ("train.json", "dev.json.xz"), squad),
    ):
        (folder / name).mkdir(parents=True)
        for file in files:
            content = text.encode()
            packed = lzma.compress(content) if file.endswith(".xz") else content
            (folder / name / file).write_bytes(packed)
    return folder


@pytest.mark.deep
def test_the_chinese_model_in_seconds(tmp_path: Path, chinese_tasks: Path, hour: Hour) -> None:
    corpus, out = tmp_path / "zh.txt", tmp_path / "out"
    sentence = "河流在城市的北边。山在南边。国王听音乐。"
    corpus.write_text("\n\n".join(sentence * 5 for _ in range(40)))
    given = ("--model", "bertine-zh", "--corpus", corpus, "--tasks", chinese_tasks, "--out", out)
    status, printed, said = hour(*given, "--minutes", "0.1", "--seeds", "1")
    assert status == 0, said
    assert "acceptability" not in said
    scores = json.loads((out / "scores.json").read_text())["pre-trained"]
    assert list(scores) == ["topics", "paraphrases", "entities", "questions"]
    assert printed.splitlines()[-2].startswith("average")
    assert json.loads((out / "store" / "manifest.json").read_text())["language"] == "zh"
    assert (out / "tasks" / "entities" / "dev.conll").read_text().startswith("河流\tB-LOC\n")
    # The package's English model is another one.
    other = ["bertine-en" if value == "bertine-zh" else value for value in given]
    assert "was made with another --model" in mistake(hour(*other))


def test_chinese_tasks_are_missed_before_the_time_begins(
    tmp_path: Path, chinese_tasks: Path, given: list[str | Path], hour: Hour
) -> None:
    more = ("--model", "bertine-zh", "--tasks", chinese_tasks)
    shutil.copy(chinese_tasks / "uner" / "zh-ud-test.iob2", chinese_tasks / "uner" / "b-test.iob2")
    assert "has 2 files *uner*/*test.iob2" in mistake(hour(*given, *more))
    shutil.rmtree(chinese_tasks / "uner")
    (chinese_tasks / "uner.zip").write_text("not a folder")
    assert "has no files *uner*/*train.iob2" in mistake(hour(*given, *more))
    assert not (tmp_path / "out").exists()


def test_a_damaged_sentence_is_another_one(module: ModuleType) -> None:
    damage: Callable[..., str | None] = module.write_acceptability.__globals__["damage"]
    sentence, words = "They have walked to the old river.", Counter[str]()
    changes: Counter[int] = Counter()
    for seed in range(200):
        damaged = damage(sentence, np.random.default_rng(seed))
        assert damaged is not None
        assert damaged != sentence
        assert damaged.endswith(".")
        assert damaged == damage(sentence, np.random.default_rng(seed))
        changes[len(damaged.split()) - len(sentence.split())] += 1
        words.update(damaged.removesuffix(".").split())
    # Something left out, put in, put elsewhere or bent, each often.
    assert set(changes) == {-1, 0, 1}
    assert min(changes.values()) > 10
    assert {"has", "walks", "rivers"} <= words.keys()


def test_sentences_stand_beside_their_damaged_copies(module: ModuleType, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    sentences = [f"The {word} fox jumps over a dog." for word in ("quick", "old", "brown", "red")]
    text.write_text("First. " + " ".join(sentences) + " Here 2 numbers stand. Last.")
    rows = module.write_acceptability([text], tmp_path / "rows.csv", 3, 0)
    assert rows == 6
    with (tmp_path / "rows.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert [row["label"] for row in table] == ["1", "0"] * 3
    assert {row["sentence"] for row in table[::2]} <= set(sentences)
    assert not {row["sentence"] for row in table[1::2]} & set(sentences)
    text.write_text("no sentence")
    with pytest.raises(BertineError, match="has no plain sentence"):
        module.write_acceptability([text], tmp_path / "rows.csv", 3, 0)


def test_a_mistake_is_one_line_before_the_hour(
    tmp_path: Path, given: list[str | Path], hour: Hour
) -> None:
    def told(*more: str | Path) -> str:
        return mistake(hour(*given, *more))

    assert "no-such-text" in told("--corpus", tmp_path / "no-such-text.txt")
    (tmp_path / "glue" / "RTE" / "dev.tsv").unlink()
    assert "no dev.tsv of RTE" in told()
    shutil.rmtree(tmp_path / "glue" / "RTE")
    assert "RTE" in told()
    assert "no-such-glue" in told("--glue", tmp_path / "no-such-glue")
    assert "--seeds: 0 is below 1" in told("--seeds", "0")
    assert "--minutes: 0 is not in the range" in told("--minutes", "0")
    assert "unknown option '--minute'" in told("--minute", "5")
    assert not (tmp_path / "out").exists()
    (tmp_path / "out").write_text("years of work")
    glue = glue_files.write_glue(tmp_path / "whole-glue", *TASKS)
    assert "is a file" in told("--glue", glue)


def test_the_clock_counts_what_was_interrupted(
    module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    corpus, file = [tmp_path / "text"], tmp_path / "hour.json"
    calls: list[str] = []

    def work(seconds: float, stopped: bool = False) -> None:
        calls.append("work")
        now[0] += seconds
        if stopped:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        module.Clock(file, corpus, module.RECIPES["bertine-en"]).stage(
            "vocabulary", lambda: work(40.0, stopped=True)
        )
    module.Clock(file, corpus, module.RECIPES["bertine-en"]).stage("vocabulary", lambda: work(10.0))
    clock = module.Clock(file, corpus, module.RECIPES["bertine-en"])
    clock.stage("vocabulary", lambda: work(5.0))
    assert len(calls) == 2
    assert clock.total == 50.0
    (tmp_path / "other.json").write_text(json.dumps({"vocabulary": 40.0}))
    with pytest.raises(module.bertine.BertineError, match="was made with another --model"):
        module.Clock(tmp_path / "other.json", corpus, module.RECIPES["bertine-en"])
    kept_in = json.loads(file.read_text())
    kept_in["recipe"]["acceptability"]["batch_size"] += 1
    (tmp_path / "other.json").write_text(json.dumps(kept_in))
    with pytest.raises(module.bertine.BertineError, match="was made with another --model"):
        module.Clock(tmp_path / "other.json", corpus, module.RECIPES["bertine-en"])
    # Of a minute less a reserve ten seconds are left, and remain so for a run that has begun.
    left, kept = tmp_path / "left.json", 1 - module._RESERVE
    expected = pytest.approx((60 * kept - 50) / 3600)
    assert module._hours_left(left, tmp_path / "run", 1.0, clock) == expected
    with pytest.raises(module.bertine.BertineError, match="give --minutes more"):
        module._hours_left(left, tmp_path / "run", 0.5, clock)
    expected = pytest.approx((120 * kept - 50) / 3600)
    assert module._hours_left(left, tmp_path / "run", 2.0, clock) == expected
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{}")
    clock.stage("sentence-pairs", lambda: work(30.0))
    assert module._hours_left(left, tmp_path / "run", 2.0, clock) == expected


STORY = ROOT / "recipes" / "history"


def story(*arguments: object) -> tuple[int, str, str]:
    """Run the story as a program."""
    done = subprocess.run(
        [sys.executable, STORY, *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def story_main(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """``recipes/history`` imported."""
    monkeypatch.syspath_prepend(str(STORY))
    spec = importlib.util.spec_from_file_location("story_main", STORY / "__main__.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "story_main", module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.deep
def test_a_story_of_seconds(tmp_path: Path) -> None:
    corpus = toys.write_corpus(tmp_path / "corpus.txt", documents=120)
    glue = glue_files.write_glue(tmp_path / "glue", *TASKS)
    pairs, out = tmp_path / "pairs.jsonl", tmp_path / "out"
    good = toys.sentence("cat", "old")
    pairs.write_text(
        json.dumps({"sentence_good": good, "sentence_bad": good[::-1], "UID": "a"}) + "\n"
    )
    given = ["--corpus", corpus, "--glue", glue, "--out", out, "--blimp", pairs]
    given += ["--minutes", "0.02", "--seeds", "1", "--examples", "8", "--vocab-size", "120"]
    status, printed, said = story(*given)
    assert status == 0, said
    assert "4 systems" in said
    lines = printed.splitlines()
    averages = [float(line.split()[2]) for line in lines[1:7]]
    assert averages == sorted(averages, reverse=True)
    assert {tuple(line.split()[:2]) for line in lines[1:7]} == {
        *((name, "frozen") for name in ("word2vec", "ELMo", "GPT-1", "BERT")),
        *((name, "fine-tuned") for name in ("GPT-1", "BERT")),
    }
    results = {path.stem for path in (out / "results").iterdir()}
    assert "bert-fine-tuned-RTE-0" in results
    assert "word2vec-language-model-BLiMP-0" not in results
    page = (out / "history.html").read_text()
    for words in ("“bank” in two sentences", "A word that is missing", "word2vec: none, for"):
        assert words in page
    # What is there is not done again, what is gone is; the table is the same.
    before = {path: path.stat().st_mtime_ns for path in (out / "results").iterdir()}
    (out / "results" / "look-word2vec.json").unlink()
    status, again, said = story(*given)
    assert (status, again) == (0, printed), said
    for path, when in before.items():
        assert (path.stat().st_mtime_ns == when) == (path.stem != "look-word2vec")
    assert "was begun with seeds = 1, not 2" in mistake(story(*given, "--seeds", "2"))


@pytest.mark.parametrize("name", ["xlnet", "bart"])
def test_gaps_are_filled_as_in_transformers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.syspath_prepend(str(STORY))
    story_looks = importlib.import_module("story_looks")
    systems = importlib.import_module("systems")
    system = systems.BY_NAME[name]
    corpus = toys.write_corpus(tmp_path / "corpus.txt")
    kind = systems.vocabulary_options(system.tokenizer)
    bertine.train_vocab(corpus, out=tmp_path / "vocab", vocab_size=300, **kind)
    words = Tokenizer.load(tmp_path / "vocab")
    config = read_config(systems.write_config(system, tmp_path / "config")).config
    template = words.template
    config = config.replace(initializer_range=0.3).for_vocabulary(
        words.vocab_size,
        pad=words.pad_token_id,
        first=template.first_id,
        last=template.last_id,
    )
    torch.manual_seed(0)
    head = "plm" if name == "xlnet" else "lm"
    save_model(tmp_path / "model", Model(config, new_head(config, head)), words)
    twin = transformers.AutoModelForSeq2SeqLM if name == "bart" else transformers.XLNetLMHeadModel
    twin = twin.from_pretrained(tmp_path / "model").eval()
    before, after = "the old cat", "in the sofa ."
    whole = words.encode(f"{before} {words.mask_text} {after}")
    ids, place = torch.tensor([whole.input_ids]), whole.input_ids.index(words.mask_token_id)
    with torch.no_grad():
        if name == "xlnet":
            unknown = torch.zeros(1, ids.shape[1], ids.shape[1])
            unknown[:, :, place] = 1
            places = torch.zeros(1, 1, ids.shape[1])
            places[0, 0, place] = 1
            types = torch.tensor([whole.token_type_ids])
            logits = twin(
                ids, token_type_ids=types, perm_mask=unknown, target_mapping=places
            ).logits[0, 0]
        else:
            start = torch.tensor([[config.decoder_start_token_id, *whole.input_ids[:place]]])
            logits = twin(ids, decoder_input_ids=start).logits[0, -1]
    expected = logits.softmax(-1).topk(5)
    found = story_looks.WAYS[system.asked].words(tmp_path / "model", before, after)
    assert [value for _, value in found] == pytest.approx(expected.values.tolist(), rel=1e-4)
    names = [words.decode([index]).strip() or words.names[index] for index in expected.indices]
    assert [word for word, _ in found] == names


def test_a_system_ends_a_tenth_after_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(STORY))
    story_jobs = importlib.import_module("story_jobs")
    systems = importlib.import_module("systems")
    now = [0.0]
    monkeypatch.setattr(story_jobs.time, "process_time", lambda: now[0])
    began = []

    def slower(material: object, system: object, run: Path, amount: int, every: int) -> None:
        """A second an update while it is tried, and 2 then; killed once."""
        (run / "checkpoints").mkdir(parents=True, exist_ok=True)
        pace = 1 if run.parent.name.startswith(".") else 2
        first = 40 if (run / "checkpoints" / "step-00000040").exists() else 0
        began.append((run.name, first))
        with open(run / "log.jsonl", "a") as log:
            for done in range(first + 1, amount + 1):
                now[0] += pace
                ends = stop_requested(done)
                if done % 10 == 0 or ends:
                    log.write(json.dumps({"step": done, "loss": 1.0}) + "\n")
                if done == 40 and first == 0 and pace == 2:
                    (run / "checkpoints" / "step-00000040").mkdir()
                if done == 44 and first == 0 and pace == 2:
                    raise KeyboardInterrupt
                if ends:
                    break

    monkeypatch.setattr(story_jobs, "checkpoints", lambda folder: sorted(folder.glob("*")))
    system = dataclasses.replace(systems.BY_NAME["bert"], train=slower)
    material = systems.Material(tmp_path, tmp_path / "a", tmp_path / "b", 100)
    (tmp_path / "runs").mkdir()
    with pytest.raises(KeyboardInterrupt):
        story_jobs.train(material, system, 115.0)
    # 15 s for what was tried; 126.5 s are over after 56 updates, of which 4 were done twice.
    assert story_jobs.train(material, system, 115.0) == {
        "amount": 56,
        "planned": 100,
        "cpu": 15 + 56 * 2,
    }
    assert began == [("0", 0), ("1", 0), ("2", 0), ("bert", 0), ("bert", 40)]
    page = importlib.import_module("story_page")
    shown = page._amount(system, {"amount": 56, "planned": 100})
    assert shown == "56 updates of 100, then stopped"


@pytest.mark.deep
def test_a_story_killed_in_training_goes_on_to_the_same_weights(
    tmp_path: Path, story_main: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command is killed (SIGKILL) behind a checkpoint, and given again."""
    systems = importlib.import_module("systems")
    corpus = toys.write_corpus(tmp_path / "corpus.txt", documents=60)
    glue = glue_files.write_glue(tmp_path / "glue", *TASKS)
    out = tmp_path / "out"
    command = [sys.executable, STORY, "--corpus", corpus, "--glue", glue, "--out", out]
    command += ["--systems", "gpt", "--minutes", "2", "--vocab-size", "120", "--seeds", "1"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}

    def run_until(there: Callable[[], bool]) -> None:
        with subprocess.Popen(
            list(map(str, command)), stderr=subprocess.PIPE, text=True, env=environment
        ) as process:
            deadline = time.monotonic() + 60
            while not there():
                assert process.poll() is None, process.communicate()[1]
                assert time.monotonic() < deadline
                time.sleep(0.01)
            process.kill()

    run = out / "runs" / "gpt"
    # What stands before the training is done here; how much there is time for, which depends on the
    # machine, is written down in place of being found out.
    begun = []
    monkeypatch.setattr(story_main, "tell", begun.append)
    story_main.history(list(map(str, command[2:])))
    begun[0].prepare()
    (out / "story.json").write_text(json.dumps(begun[0].settings))
    run.parent.mkdir()
    run.with_name("gpt-plan.json").write_text(json.dumps({"amount": 8, "tried": 0.0}))
    run_until(lambda: any((run / "checkpoints").glob("step-*")))
    assert not (out / "results" / "train-gpt.json").exists()
    run_until((out / "results" / "train-gpt.json").exists)
    found = json.loads((out / "results" / "train-gpt.json").read_text())
    assert (found["amount"], found["planned"]) == (8, 8)
    assert [row["step"] for row in read_log(run / "log.jsonl") if "loss" in row][-1] == 8
    assert "resumed from" in (out / "logs" / "train-gpt").read_text()

    system = systems.BY_NAME["gpt"]
    material = systems.Material(out, out / "text.jsonl", out / "held-out.jsonl", 120)
    with toys.one_thread():
        system.train(material, system, tmp_path / "undisturbed", 8, 4)
    weights = (tmp_path / "undisturbed" / "model" / "model.safetensors").read_bytes()
    assert (run / "model" / "model.safetensors").read_bytes() == weights


WORDS = ROOT / "recipes" / "words"


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Hour:
    """``recipes/words``, as a program in this process."""
    spec = importlib.util.spec_from_file_location("words_main", WORDS / "__main__.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    monkeypatch.setitem(loaded.PRETRAIN, "batch_size", 8)

    def main(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", [str(WORDS), *map(str, arguments)])
        return loaded.main(), *capsys.readouterr()

    return main


@pytest.mark.slow
def test_so_many_words_are_drawn_trained_on_and_scored(tmp_path: Path, words: Hour) -> None:
    files = [toys.write_corpus(tmp_path / f"{n}.txt", documents=60) for n in (1, 2)]
    pairs, out = tmp_path / "pairs.jsonl", tmp_path / "out"
    pairs.write_text(json.dumps({"sentence_good": "A dog runs.", "sentence_bad": "A runs dog."}))
    given = ("--corpus", *files, "--out", out, "--pairs", pairs, "--words", 1000, "--epochs", 2)
    status, _, said = words(*given, "--words", 1_000_000)
    assert status == 2
    assert "1.txt: has 2,880 words, but its share is 500,000" in said.splitlines()[-1]
    status, printed, said = words(*given)
    assert status == 0, said
    parts = json.loads((out / "words.json").read_text())["parts"]
    drawn = [json.loads(line)["text"] for line in (out / "text.jsonl").read_text().splitlines()]
    assert parts["text"]["words"] == sum(len(text.split()) for text in drawn)
    assert 1000 <= parts["text"]["words"] < 1100
    # Whole batches.
    seen, tokens = parts["pre-training"]["tokens"], parts["preparation"]["tokens"]
    assert seen == pytest.approx(2 * tokens, rel=0.1)
    assert "2 epochs" in printed.splitlines()[-1]
    assert "accuracy" in printed.splitlines()[-1]
    # The finished command does nothing anew.
    before = toys.tree(out)
    status, again, said = words(*given)
    assert (status, said) == (0, "")
    assert printed.endswith(again)
    assert toys.tree(out) == before
    assert "was begun with other arguments" in mistake(words(*given, "--epochs", 3))


def test_pretrain_takes_the_phases_of_the_bert() -> None:
    for phase in (Path(__file__).parents[1] / "recipes" / "bert").glob("*.yaml"):
        given = ["store", "--out", "run", "--model", "m", "--config", str(phase)]
        assert parse_arguments(COMMANDS["pretrain"], given)["max_seq_length"] in (64, 128)


# ``recipes/box``: a student of a teacher of vectors.

BOX = ROOT / "recipes" / "box"


@pytest.fixture
def box(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Hour:
    monkeypatch.syspath_prepend(str(BOX))
    spec = importlib.util.spec_from_file_location("box_main", BOX / "__main__.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, loaded)  # its data classes look there
    spec.loader.exec_module(loaded)

    def main(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", [str(BOX), *map(str, arguments)])
        return loaded.main(), *capsys.readouterr()

    return main


def write_articles(file: Path, sentences: list[str], title: str = "Rivers") -> Path:
    """Write eighty articles of nine sentences each, which all differ."""
    lines = []
    for number in range(80):
        text = "\n".join(
            " ".join(f"{one[:-1]} {number} {part}{one[-1]}" for one in sentences)
            for part in range(3)
        )
        lines.append(json.dumps({"title": f"{title} {number}", "text": text}) + "\n")
    file.write_text("".join(lines))
    return file


SENTENCES = ["The river runs north, past the old town.", "A king lived there.", "He sang well."]


@pytest.mark.slow
def test_a_student_of_minilm_is_made_in_stages(tmp_path: Path, box: Hour) -> None:
    corpus, out = write_articles(tmp_path / "wiki.jsonl", SENTENCES), tmp_path / "out"
    given = ("--corpus", corpus, "--out", out, "--texts", 1000, "--steps", 2)
    status, printed, said = box(*given)
    assert status == 0, said
    texts = (out / "first.txt").read_text().splitlines()
    assert 500 < len(texts) == len(set(texts))
    assert "Rivers 7" in texts
    model = bertine.load_model(out / "last" / "model")
    config = model.model.config
    assert (config.num_hidden_layers, config.hidden_size) == (3, 384)
    assert bertine.fill_mask(out / "last" / "model", "The [MASK] runs north.")
    teacher, student = (bertine.Embedder.load(one) for one in ("minilm", out / "last" / "model"))
    cosines = (teacher(texts[:50]) * student(texts[:50])).sum(1)
    assert cosines.mean() > 0.5
    assert list(json.loads((out / "box.json").read_text())["seconds"]) == [
        "first texts",
        "student",
        "first vectors",
        "first distillation",
        "running text",
        "preparation",
        "words",
        "last texts",
        "last vectors",
        "last distillation",
    ]
    # The finished command does nothing anew, and other text is another model.
    before = toys.tree(out)
    status, again, said = box(*given)
    assert (status, again) == (0, printed)
    assert "---" not in said
    assert toys.tree(out) == before
    corpus.write_text(corpus.read_text().replace("king", "queen"))
    assert "was begun with another corpus" in mistake(box(*given))


def test_texts_are_drawn_without_the_articles_of_the_demo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(BOX))
    texts = importlib.import_module("texts")
    asked = sorted(texts._demo_titles())[0]
    file = write_articles(tmp_path / "wiki.jsonl", SENTENCES)
    with file.open("a") as lines:
        lines.write(json.dumps({"title": asked, "text": "Nobody may read this sentence."}) + "\n")
    out = tmp_path / "texts.txt"
    count = texts.draw_texts([file], out, 100_000, "en", 0)
    drawn = out.read_text().splitlines()
    assert len(drawn) == count
    assert asked not in drawn
    assert "Nobody may read this sentence." not in drawn
    assert any(text.count(".") > 1 for text in drawn)
    file.write_text("no document\n")
    with pytest.raises(BertineError, match="line 1 is no document"):
        texts.draw_texts([file], out, 100, "en", 0)


def test_running_text_has_whole_articles_and_parts_of_books(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(BOX))
    texts = importlib.import_module("texts")
    file, out = write_articles(tmp_path / "wiki.jsonl", SENTENCES), tmp_path / "out.jsonl"
    book = " ".join(map(str, range(50_000)))
    asked = sorted(texts._demo_titles())[0]
    with file.open("a") as lines:
        for title, text in (("A book", book), (asked, "Nobody may read this.")):
            lines.write(json.dumps({"title": title, "text": text}) + "\n")
    texts.draw_running([file], out, 0.5, 0)
    *articles, part = [json.loads(line)["text"] for line in out.read_text().splitlines()]
    assert 20 < len(articles) < 60
    assert {article.count("\n") for article in articles} == {2}
    assert len(part) == len(book) // 2
    assert part in book
    texts.draw_running([file], out, 1.0, 0)
    drawn = out.read_text()
    assert len(drawn.splitlines()) == 81
    assert "Nobody" not in drawn


def test_a_student_begins_as_layers_and_neurons_of_its_teacher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(BOX))
    student = importlib.import_module("student")
    teacher = bertine.load_model("bertine-bert")
    pieces = {piece: [piece] for piece in student._vocabulary(locate("bertine-bert"))}
    student.write_student(tmp_path / "all", locate("bertine-bert"), pieces, (0, 1, 2), 768)
    made = bertine.load_model(tmp_path / "all")
    for name, weights in made.model.backbone.state_dict().items():
        assert torch.equal(weights, teacher.model.backbone.state_dict()[name])
    # Fewer neurons: those that weigh most; a piece of several begins as their mean.
    pieces = dict(list(pieces.items())[:200]) | {"zzz": ["a", "b"]}
    student.write_student(tmp_path / "cut", locate("bertine-bert"), pieces, (2,), 64)
    made = bertine.load_model(tmp_path / "cut")
    assert (made.model.config.num_hidden_layers, made.model.config.intermediate_size) == (1, 64)
    words = made.model.backbone.embeddings.word_embeddings.weight
    theirs = teacher.model.backbone.embeddings.word_embeddings.weight
    numbers = [teacher.tokenizer.token_to_id(piece) for piece in "ab"]
    torch.testing.assert_close(words[-1], theirs[numbers].mean(0))
