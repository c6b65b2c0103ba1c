"""Running a table: what is done, done again, and gone on with."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import glue_files
import tagged
import toys
from bertine import BertineError, paper
from bertine.contrib.papers import steps
from bertine.contrib.papers.table import PaperResult, read_table, table_names
from bertine.hub.model_directory import load_model
from bertine.models.family import config_to_huggingface
from bertine.models.heads import weights_fingerprint
from bertine.tokenization.tokenizer import Tokenizer
from bertine.training.search.table import PAPER_GRID

#: Of 4 rows, 2 tasks and 2 seeds: 4 steps of preparing, 3 of pre-training, one that puts a BiLSTM
#: on a model, 16 of fine-tuning.
ALL_STEPS = 24
#: The columns that it has: all but BLiMP, whose thousands of sentences take longer than the rest.
TASKS = [name for name in read_table("bert-5").columns if name != "BLiMP"]


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The arguments of a table that takes seconds."""
    folder = tmp_path_factory.mktemp("paper")
    corpus = toys.write_corpus(folder / "corpus.txt", documents=120)
    glue_files.write_glue(folder / "data/glue", "SST-2", "MRPC")
    config = toys.config(intermediate_size=128, max_position_embeddings=128)
    return {
        "name": "bert-5",
        "columns": TASKS,
        "corpus": corpus,
        "data": folder / "data",
        "model": str(toys.write_config(folder / "config.json", config)),
        "vocab_size": 120,
        "steps": 4,
        "epochs": 1,
        "seeds": 2,
    }


@pytest.fixture(scope="module")
def ran(given: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> PaperResult:
    with toys.one_thread():
        return paper(out=tmp_path_factory.mktemp("ran") / "table", **given)


@pytest.mark.takes(6)
def test_a_table_of_one_row_and_one_column(given: dict[str, Any], tmp_path: Path) -> None:
    small = {**given, "columns": ["SST-2"], "rows": ["mlm"], "seeds": 1, "steps": 2}
    with toys.one_thread():
        result = paper(out=tmp_path / "table", **small)
    assert result.ok
    assert len(result.scores["mlm"]["SST-2"]) == 1
    assert "SST-2" in "\n".join(result.lines())
    assert (tmp_path / "table/paper.html").exists()


def records(out: Path) -> dict[str, int]:
    """The records of the steps that are done, and when each was written."""
    files = [
        *out.glob("*.json"),
        *out.glob("pretrained/*.json"),
        *out.glob("begun/*.json"),
        *out.glob("finetuned/**/*.json"),
    ]
    inside = ("run.json", "scores.json", "worst.json", "start.json", "data.json", "paper.json")
    return {
        str(file.relative_to(out)): file.stat().st_mtime_ns
        for file in files
        if file.name.startswith("seed-") or (file.name not in inside and "seed-" not in str(file))
    }


def steps_of(out: Path) -> dict[str, int]:
    return {name: when for name, when in records(out).items() if not name.endswith("config.json")}


@pytest.mark.slow
def test_a_table_has_all_its_cells(ran: PaperResult) -> None:
    assert ran.ok
    assert list(ran.scores) == ["mlm-nsp", "mlm", "left-to-right", "bilstm"]
    assert ran.columns == ("MRPC", "SST-2")
    assert all(len(values) == 2 for by in ran.scores.values() for values in by.values())
    assert set(ran.left_out) == {"MNLI-m", "QNLI", "SQuAD 1.1", "CoLA", "STS-B", "RTE"}
    text = "\n".join(ran.lines())
    assert "(86.7)" in text
    assert "here: 2 layers of 32, " in text
    assert "tokens of pre-training a row, 2 seeds of fine-tuning; in the paper: BERT-base" in text
    assert len(steps_of(ran.out)) == ALL_STEPS
    kept = json.loads((ran.out / "paper.json").read_text())
    assert kept["scores"]["mlm"]["SST-2"] == list(ran.scores["mlm"]["SST-2"])
    assert kept["published"]["mlm"]["MRPC"] == 86.5
    page = (ran.out / "paper.html").read_text()
    assert "masked words, next sentences" in page
    assert "Loss" in page
    # The weights of fine-tuned models are as many as there are cells, and nobody needs them.
    assert not list(ran.out.glob("finetuned/**/*.safetensors"))
    assert len(list(ran.out.glob("pretrained/*/model/*.safetensors"))) == 3


@pytest.mark.deep
def test_what_is_done_is_not_done_again(given: dict[str, Any], ran: PaperResult) -> None:
    out, before = ran.out, records(ran.out)
    with pytest.raises(BertineError, match="holds a table already; add resume=True"):
        paper(out=out, **given)
    with toys.one_thread():
        again = paper(out=out, resume=True, **given)
    assert again.scores == ran.scores
    assert records(out) == before
    # Another seed is four rows times two tasks more.
    more = {**given, "seeds": 3}
    with toys.one_thread():
        result = paper(out=out, resume=True, **more)
    after = records(out)
    assert len(after) == len(before) + 8
    assert {name: after[name] for name in before} == before
    assert result.scores["mlm"]["SST-2"][:2] == list(ran.scores["mlm"]["SST-2"])
    # A cell of one's choice is run anew, and no other.
    with toys.one_thread():
        result = paper(out=out, resume=True, rerun=["mlm/SST-2"], **given)
    changed = {name for name, when in records(out).items() if after.get(name) != when}
    assert changed == {f"finetuned/mlm/SST-2/seed-{seed}.json" for seed in range(2)}
    assert result.scores == ran.scores


@pytest.mark.slow
def test_other_settings_are_another_table(given: dict[str, Any], ran: PaperResult) -> None:
    for change, told in (
        ({"steps": 5}, "the table was started with steps = 4, not 5"),
        (
            {"name": "bert-6", "columns": None},
            "the table was started with table = .bert-5., not .bert-6.",
        ),
    ):
        with pytest.raises(BertineError, match=told):
            paper(out=ran.out, resume=True, **{**given, **change})
    with pytest.raises(BertineError, match="has no cell 'mlm/SST'; its rows are mlm-nsp"):
        paper(out=ran.out, resume=True, rerun=["mlm/SST"], **given)


def test_mistakes_are_named_before_anything_is_done(given: dict[str, Any], tmp_path: Path) -> None:
    for change, told in (
        ({"rows": ["mlm", "ltr"]}, "bert-5 has no row 'ltr'; it has mlm-nsp, mlm, left-to-right,"),
        ({"columns": ["SST"]}, "bert-5 has no column 'SST'; it has MNLI-m"),
        ({"columns": ["QNLI"]}, "no column can be run .QNLI: there is no glue/QNLI in"),
        ({"data": None}, "no column can be run .MNLI-m: needs data"),
        ({"data": tmp_path / "none"}, "none: no such folder; give the folder of the labelled data"),
        ({"corpus": tmp_path / "none"}, "none: no such file or folder; give the texts"),
        ({"hours": 1.0}, "give one of hours and steps"),
        ({"max_seq_length": 200}, "json: reads 128 tokens at most, not sequences of 200; give max"),
        ({"model": "bert-9"}, "unknown preset 'bert-9'"),
        ({"held_out": tmp_path}, "a store is held out of a store"),
        ({"paper_grid": True}, "bert-5: pre-trains its rows; paper_grid is for tables of given"),
    ):
        with pytest.raises(BertineError, match=told):
            paper(out=tmp_path / "table", **{**given, **change})
        assert not (tmp_path / "table").exists()


@pytest.mark.slow
def test_a_table_of_perplexities_needs_no_labelled_data(
    given: dict[str, Any], tmp_path: Path, ran: PaperResult
) -> None:
    """Of a store that is there, with another one held out."""
    arguments = {**given, "name": "bert-6", "data": None, "corpus": ran.out / "store"}
    arguments |= {"held_out": ran.out / "held-out-store", "out": tmp_path / "table"}
    arguments["columns"] = ["LM perplexity", "SST-2"]
    rows = ["l3-h768-a12", "l12-h768-a12", "l24-h1024-a16"]
    with toys.one_thread():
        result = paper(**arguments, rows=rows)
    assert result.columns == ("LM perplexity",)
    values = {row: by["LM perplexity"] for row, by in result.scores.items()}
    assert list(values) == rows
    assert all(1 < perplexity < 120 for (perplexity,) in values.values())
    assert result.parameters[rows[0]] < result.parameters[rows[1]] < result.parameters[rows[2]]
    assert "LM perplexity" in result.orders()


@pytest.mark.slow
def test_a_step_that_fails_leaves_the_others(
    given: dict[str, Any], tmp_path: Path, ran: PaperResult
) -> None:
    data = tmp_path / "data"
    glue_files.write_glue(data / "glue", "SST-2", "MRPC")
    (data / "glue/MRPC/train.tsv").write_text("nothing\n")
    arguments = {**given, "data": data, "seeds": 1, "rows": ["mlm"]}
    with toys.one_thread():
        result = paper(out=tmp_path / "table", **arguments)
    assert not result.ok
    assert list(result.failed) == ["finetuned/mlm/MRPC/seed-0"]
    assert len(result.scores["mlm"]["SST-2"]) == 1
    assert any("finetuned/mlm/MRPC/seed-0 failed: " in line for line in result.lines())
    # With the file mended, only that is done.
    glue_files.write_glue(tmp_path / "mended", "MRPC")
    mended = (tmp_path / "mended/MRPC/train.tsv").read_bytes()
    (data / "glue/MRPC/train.tsv").write_bytes(mended)
    with toys.one_thread():
        result = paper(out=tmp_path / "table", resume=True, **arguments)
    assert result.ok
    assert len(result.scores["mlm"]["MRPC"]) == 1


@pytest.mark.deep
def test_a_curve_has_a_point_for_each_model_along_the_way(
    given: dict[str, Any], tmp_path: Path, ran: PaperResult
) -> None:
    arguments = {**given, "name": "bert-c1", "steps": 11, "seeds": 1, "out": tmp_path / "table"}
    arguments["columns"] = ["SST-2"]
    with pytest.raises(BertineError, match="a curve of 5 points needs as many steps at least"):
        paper(**{**arguments, "steps": 4})
    with pytest.raises(BertineError, match="a curve needs to know its steps beforehand"):
        paper(**{**arguments, "steps": None, "hours": 1.0})
    with toys.one_thread():
        result = paper(**arguments)
    assert result.ok, result.failed
    assert [row.name for row in result.table.rows[:5]] == [f"mlm-{n}" for n in range(20, 101, 20)]
    assert all(len(by["SST-2"]) == 1 for by in result.scores.values())
    assert len(result.scores) == 10
    assert list(result.curves) == ["mlm", "left-to-right"]
    page = (tmp_path / "table/paper.html").read_text()
    assert "Along the way" in page
    assert "after 20%" in page
    # The points are other models: those of the run after 2, 4, 6 and 8 of its 11 steps.
    weights = {
        (tmp_path / f"table/pretrained/{name}/model/model.safetensors").read_bytes()
        for name in ("mlm-20", "mlm-40", "mlm-60", "mlm-80", "mlm")
    }
    assert len(weights) == 5


@pytest.mark.deep
def test_rows_can_have_vocabularies_of_their_own(
    given: dict[str, Any], tmp_path: Path, ran: PaperResult
) -> None:
    arguments = {**given, "name": "pieces", "vocab_size": 400, "seeds": 1, "columns": ["SST-2"]}
    out = tmp_path / "table"
    with toys.one_thread():
        result = paper(out=out, **arguments)
    assert result.ok, result.failed
    kinds = {name: Tokenizer.load(out / name).kind for name in ("vocabulary", "vocabulary-unigram")}
    assert kinds == {"vocabulary": "wordpiece", "vocabulary-unigram": "unigram"}
    characters = Tokenizer.load(out / "vocabulary-characters")
    whole = [token for token in characters.tokens if not token.startswith("[")]
    assert max(len(token.removeprefix("##")) for token in whole) == 1
    assert all(len(by["SST-2"]) == 1 for by in result.scores.values())
    with pytest.raises(BertineError, match="is a token store, but rows have vocabularies of their"):
        paper(out=tmp_path / "other", **{**arguments, "corpus": ran.out / "store"})


def with_entities(data: Path, folder: Path) -> Path:
    """Copy labelled data to `folder`, and tagged sentences beside them."""
    shutil.copytree(data, folder)
    (folder / "ner").mkdir()
    for seed, name in enumerate(["train", "dev"]):
        tagged.write_columns(folder / f"ner/{name}.conll", 24, seed=seed)
    return folder


@pytest.mark.deep
@pytest.mark.parametrize("name", [name for name in table_names() if not read_table(name).given])
def test_every_table_runs(
    given: dict[str, Any],
    ran: PaperResult,
    tmp_path: Path,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(steps, "_OF_PARADIGM", 1)
    table = read_table(name)
    said = {verb for row in table.rows for verb in row.arguments}
    arguments = {**given, "name": name, "seeds": 1, "steps": 5 if table.runs else 2}
    arguments["columns"] = None
    arguments["data"] = with_entities(given["data"], tmp_path / "data")
    if said & {"train_vocab", "prepare", "pretrain_elmo"}:
        arguments["vocab_size"] = 400
    else:
        arguments |= {"corpus": ran.out / "store", "held_out": ran.out / "held-out-store"}
    if "pretrain_elmo" in said:
        arguments["model"] = "elmo-tiny"
    with toys.one_thread():
        result = paper(out=tmp_path / "table", **arguments)
    assert result.ok, result.failed
    assert [row.name for row in table.rows] == list(result.scores)
    for column in ("SST-2", "NER"):
        if column in table.columns:
            assert all(len(by[column]) == 1 for by in result.scores.values())
    assert {"SST-2", "NER"} & set(result.columns)
    if "BLiMP" in table.columns:
        # Each model that guesses words has answered, once; other rows have the model of one.
        for row in table.rows:
            shares = result.scores[row.name]["BLiMP"]
            assert len(shares) == (row.model_of is None)
            assert all(0 <= share <= 1 for share in shares)
    if name == "distilbert-4":
        students = [
            weights_fingerprint(load_model(tmp_path / "table/pretrained" / row / "model").model)
            for row in ("all", "random-weights")
        ]
        assert students[0] != students[1]
    # What each line says, and the page, can be made of it.
    assert len(result.lines()) > len(table.rows)
    assert (tmp_path / "table/paper.html").stat().st_size > 5000


@pytest.mark.deep
def test_deeper_models_begin_with_the_weights_of_shallower_ones(
    given: dict[str, Any], tmp_path: Path, ran: PaperResult
) -> None:
    arguments = {**given, "name": "albert-11", "seeds": 1, "columns": ["SST-2"], "rows": ["l3"]}
    arguments |= {"corpus": ran.out / "store", "out": tmp_path / "table"}
    with toys.one_thread():
        result = paper(**arguments)
    assert result.ok, result.failed
    # The row that it begins with is trained too, but has no cells.
    assert list(result.scores) == ["l3"]
    out = tmp_path / "table"
    one, begun, three = (
        load_model(out / name / "model") for name in ("pretrained/l1", "begun/l3", "pretrained/l3")
    )
    layers = [len(loaded.config.passes) for loaded in (one, begun, three)]
    assert layers == [1, 3, 3]
    assert weights_fingerprint(one.model) == weights_fingerprint(begun.model)
    assert weights_fingerprint(three.model) != weights_fingerprint(begun.model)


@pytest.mark.deep
def test_pairs_are_told_apart_in_both_exercises(
    given: dict[str, Any], tmp_path: Path, ran: PaperResult
) -> None:
    arguments = {**given, "name": "albert-5", "seeds": 1, "columns": ["MLM", "NSP", "SOP"]}
    arguments |= {"corpus": ran.out / "store", "data": None, "out": tmp_path / "table"}
    with pytest.raises(BertineError, match=r"no column can be run .MLM: needs held_out"):
        paper(**arguments)
    arguments["held_out"] = ran.out / "held-out-store"
    arguments["max_seq_length"] = 64
    with toys.one_thread():
        result = paper(**arguments)
    assert result.ok, result.failed
    for row in ("nsp", "sop"):
        assert 0 < result.scores[row]["NSP"][0] < 1
        assert 0 < result.scores[row]["SOP"][0] < 1
    # Without such a head nothing is answered.
    assert list(result.scores["none"]["NSP"]) == []
    # In its own exercise the accuracy is that of pre-training.
    record = json.loads((tmp_path / "table/pretrained/sop.json").read_text())
    own = record["result"]["scores"]["sop_accuracy"]
    assert result.scores["sop"]["SOP"][0] == pytest.approx(own, abs=0.02)
    # Nothing was fine-tuned, and no seeds are said to have been.
    assert "of pre-training a row; in the paper: ALBERT-base" in result.scale
    # Shorter sequences are more to a batch, in which there are as many tokens.
    made = [record["arguments"][key] for key in ("max_seq_length", "batch_size")]
    assert made == [64, 32]


@pytest.mark.slow
def test_an_elmo_needs_texts_and_words(
    given: dict[str, Any], tmp_path: Path, ran: PaperResult
) -> None:
    arguments = {**given, "name": "elmo-2", "out": tmp_path / "table", "model": "elmo-tiny"}
    arguments["columns"] = None
    for change, told in (
        ({"corpus": ran.out / "store"}, "is a token store, but an ELMo reads letters; give texts"),
        ({"max_seq_length": 64}, "an ELMo reads windows of words, not sequences; leave max_seq"),
        ({"steps": None, "hours": 1.0}, "an ELMo is trained for so many words; give steps or"),
        (
            {"model": "bert-tiny"},
            "bert-tiny: is no size of an ELMo; give model one of elmo-original",
        ),
    ):
        with pytest.raises(BertineError, match=told):
            paper(**{**arguments, **change})
    assert not (tmp_path / "table").exists()


@pytest.mark.slow
def test_what_is_run_again_takes_with_it_what_was_made_of_it(
    given: dict[str, Any], tmp_path: Path, ran: PaperResult
) -> None:
    arguments = {**given, "seeds": 1, "columns": ["SST-2"], "corpus": ran.out / "store"}
    arguments |= {"rows": ["left-to-right", "bilstm"], "out": tmp_path / "table"}
    with toys.one_thread():
        paper(**arguments)
        before = steps_of(tmp_path / "table")
        paper(**arguments, resume=True, rerun=["bilstm/SST-2"])
        cell = steps_of(tmp_path / "table")
        paper(**arguments, resume=True, rerun=["left-to-right"])
        after = steps_of(tmp_path / "table")
    changed = {name for name, when in cell.items() if before[name] != when}
    assert changed == {"finetuned/bilstm/SST-2/seed-0.json"}
    assert {name for name, when in after.items() if cell[name] != when} == {
        "pretrained/left-to-right.json",
        "begun/bilstm.json",
        "finetuned/left-to-right/SST-2/seed-0.json",
        "finetuned/bilstm/SST-2/seed-0.json",
    }


@pytest.mark.slow
def test_the_time_of_an_answer_is_measured(
    given: dict[str, Any], tmp_path: Path, ran: PaperResult
) -> None:
    glue_files.write_glue(tmp_path / "data/glue", "STS-B")
    with toys.one_thread():
        result = paper(
            "distilbert-3",
            data=tmp_path / "data",
            weights=[ran.out / "pretrained/mlm/model"],
            out=tmp_path / "table",
            seeds=2,
        )
    assert result.ok, result.failed
    assert all(0 < seconds < 60 for seconds in result.scores["mlm-model"]["seconds"])
    assert len(result.scores["mlm-model"]["seconds"]) == 2
    assert "BERT-base, 110 million parameters" in "\n".join(result.lines())


@pytest.mark.slow
def test_weights_that_are_there_are_fine_tuned(
    given: dict[str, Any], tmp_path: Path, ran: PaperResult
) -> None:
    arguments: dict[str, Any] = {
        "name": "bert-1",
        "data": given["data"],
        "epochs": 1,
        "seeds": 2,
        "weights": [ran.out / "pretrained/mlm/model", ran.out / "pretrained/mlm-nsp/model"],
    }
    with toys.one_thread():
        result = paper(out=tmp_path / "table", **arguments)
    assert result.ok, result.failed
    assert list(result.scores) == ["mlm-model", "mlm-nsp-model"]
    assert result.columns == ("SST-2", "MRPC F1")
    text = "\n".join(result.lines())
    assert "mlm-nsp/model" in text
    assert "BERT-large" in text
    assert "– (94.9)" in text
    for change, told in (
        ({"weights": None}, "bert-1: fine-tunes weights; give them with weights"),
        ({"weights": arguments["weights"][:1] * 2}, "another row is called 'mlm-model' too"),
        ({"name": "bert-5"}, "bert-5: pre-trains its rows; weights is for tables of given"),
        ({"name": "bert-5", "weights": None}, "bert-5: pre-trains its rows; give the texts"),
    ):
        with pytest.raises(BertineError, match=told):
            paper(out=tmp_path / "other", **{**arguments, **change})


@pytest.mark.deep
def test_the_papers_grid_is_searched(
    given: dict[str, Any], tmp_path: Path, ran: PaperResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, values in (("batch_sizes", (8,)), ("learning_rates", (3e-3, 1e-2)), ("epochs", (6,))):
        monkeypatch.setitem(PAPER_GRID, name, values)
    arguments: dict[str, Any] = {
        "name": "bert-1",
        "data": given["data"],
        "columns": ["SST-2"],
        "seeds": 2,
        "paper_grid": True,
        "weights": [ran.out / "pretrained/mlm/model"],
    }
    with toys.one_thread():
        result = paper(out=tmp_path / "table", **arguments)
    assert result.ok, result.failed
    (scores,) = result.scores["mlm-model"].values()
    assert len(scores) <= 2
    record = json.loads((tmp_path / "table/finetuned/mlm-model/SST-2/grid.json").read_text())
    assert "batch" in record["result"]["chosen"]


@pytest.mark.deep
@pytest.mark.parametrize("how", ["processes", "ray"])
def test_other_processes_come_to_the_same_numbers(
    given: dict[str, Any], ran: PaperResult, tmp_path: Path, how: str
) -> None:
    more: dict[str, Any] = {"processes": 2}
    if how == "ray":
        pytest.importorskip("ray")
        more = {"ray": "local"}
    with toys.one_thread():
        result = paper(out=tmp_path / "table", **given, **more)
    assert result.ok, result.failed
    expected = {row: {c: list(v[:2]) for c, v in by.items()} for row, by in ran.scores.items()}
    assert {row: {c: list(v) for c, v in by.items()} for row, by in result.scores.items()} == (
        expected
    )
    assert list((tmp_path / "table/logs").glob("pretrained-*.log"))


def test_layers_are_added_whatever_the_vocabulary_of_the_store(tmp_path: Path) -> None:
    """The option says how many pieces a vocabulary gets, which a store may have made before."""
    model = toys.write_model(tmp_path / "model")
    before = load_model(model)
    config = before.config.replace(vocab_size=8192, num_hidden_layers=3)
    steps._grow(tmp_path / "grown", {"model": model, "config": config_to_huggingface(config)})
    grown = load_model(tmp_path / "grown" / "model")
    assert grown.config.num_hidden_layers == 3
    assert grown.config.vocab_size == before.config.vocab_size
    ours, theirs = (next(iter(loaded.model.parameters())) for loaded in (before, grown))
    assert torch.equal(ours, theirs)
