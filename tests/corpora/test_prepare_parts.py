"""Any number of processes, any number of kills: the same store, and nothing done twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import bertine
import toys
from bertine import prepare
from bertine.core import workers
from bertine.core.errors import BertineError
from bertine.corpora import prepare as part_runners
from bertine.corpora import prepare as preparation
from bertine.corpora.parts import CorpusPart, PartSettings, make_part, plan_parts
from bertine.corpora.prepare import PrepareReport
from bertine.corpora.store import TokenStore
from bertine.tokenization.documents import Corpus
from bertine.tokenization.tokenizer import Tokenizer

FILES = 5


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Five files of documents, some of them copies of documents of earlier files."""
    toys.tokenizer_folder(tmp_path / "tokenizer")
    (tmp_path / "texts").mkdir()
    for number in range(FILES):
        documents = toys.corpus_text(12, seed=number).split("\n\n")
        if number:
            documents[3] = toys.corpus_text(12, seed=number - 1).split("\n\n")[0].upper()
        text = "\n\n".join([*documents, "\u200b"])  # the last has no token
        (tmp_path / "texts" / f"{number}.txt").write_text(text + "\n", encoding="utf-8")
    return tmp_path


def made(folder: Path, name: str, **options: Any) -> PrepareReport:
    """A store of the five files, each a part."""
    values = {"corpus": folder / "texts", "part_bytes": 1, **options}
    corpus = values.pop("corpus")
    return prepare(corpus, tokenizer=folder / "tokenizer", out=folder / name, **values)


def documents(store: Path) -> list[list[int]]:
    opened = TokenStore.open(store)
    opened.verify()
    return [opened.document(i).input_ids.tolist() for i in range(opened.num_documents)]


@pytest.mark.slow
@pytest.mark.parametrize(("drop", "several"), [(False, (2,)), (True, (2, 3))])
def test_any_number_of_processes_makes_the_same_store(
    folder: Path, drop: bool, several: tuple[int, ...]
) -> None:
    for processes in (1, *several):
        made(folder, f"store-{processes}", processes=processes, drop_duplicates=drop)
    expected = toys.tree(folder / "store-1")
    assert sum(name.endswith(".arrow") for name in expected) == FILES
    for processes in several:
        assert toys.tree(folder / f"store-{processes}") == expected
    assert not list(folder.glob(".*")), "no folder of parts is left"


@pytest.mark.slow
def test_parts_change_neither_documents_nor_counts(folder: Path) -> None:
    """Files that are worked on by themselves hold what one pass over all of them finds."""
    for drop in (False, True):
        one = made(folder, "one", part_bytes=1 << 20, drop_duplicates=drop)
        many = made(folder, "many", drop_duplicates=drop)
        assert len(one.manifest["shards"]) == 1
        assert documents(folder / "one") == documents(folder / "many")
        for manifest in (one.manifest, many.manifest):
            assert manifest["dropped"]["documents_without_tokens"] == (1 if drop else FILES)
        assert {**one.manifest, "shards": []} == {**many.manifest, "shards": []}
        # Four documents of earlier files, and the text without a token four times more.
        assert one.manifest["duplicates"] == {
            "documents": 13 * FILES,
            "copies": 2 * (FILES - 1),
            "dropped": drop,
        }
        assert one.manifest["num_documents"] == 12 * FILES - (FILES - 1) * drop


@pytest.mark.slow
def test_what_is_lost_with_a_copy_is_not_counted(folder: Path) -> None:
    """Sentences that were cut or had no token: of the documents that are read on, wherever the
    copies stand."""
    text = "the cat " * 9000 + "\n\u200b\nthe old cat ."
    files = [folder / "a.txt", folder / "b.txt"]
    files[0].write_text(f"{text}\n\nthe cat\n\u200b\n", encoding="utf-8")
    files[1].write_text(f"the dog\n\n\u200b\n\n{text.upper()}\n", encoding="utf-8")
    for part_bytes in (1, 1 << 20):
        for drop, cut, empty in ((False, 2, 4), (True, 1, 3)):
            report = made(
                folder, "store", corpus=files, part_bytes=part_bytes, drop_duplicates=drop
            )
            assert report.manifest["num_documents"] == 4 - drop
            assert report.manifest["cut_sentences"] == cut
            assert report.manifest["dropped"] == {
                "documents_without_tokens": 1,
                "sentences_without_tokens": empty,
            }


@pytest.mark.slow
def test_the_first_of_the_copies_stays(folder: Path) -> None:
    """In the order of the files that are given, whatever their names."""
    texts = [folder / "texts" / f"{number}.txt" for number in (4, 3)]
    made(folder, "kept", corpus=texts, drop_duplicates=True)
    first = documents(folder / "kept")[:12]
    made(folder, "alone", corpus=texts[:1])
    assert first == documents(folder / "alone")
    words = toys.tokenizer()
    # The fourth document of file 4 is the first of file 3, in capitals.
    assert first[3] not in documents(folder / "kept")[12:]
    text = toys.corpus_text(12, seed=3).split("\n\n")[0]
    assert first[3] == [i for ids in words.encode_plain(text.splitlines()) for i in ids]


PROGRAM = """
import sys, time
from pathlib import Path
from bertine.corpora import prepare
real = prepare.make_part
def slow(part, *rest):
    if len(list(Path(part.folder).parent.glob("part-*"))) == 2:
        print("two are done", flush=True)
        time.sleep(60)
    real(part, *rest)
prepare.make_part = slow
texts, tokenizer, out = sys.argv[1:]
prepare.prepare(texts, tokenizer=tokenizer, out=out, part_bytes=1, processes=1)
"""


def killed_after_two(folder: Path, name: str) -> None:
    arguments = [folder / "texts", folder / "tokenizer", folder / name]
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=workers.environment(1),
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "two are done\n"
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.mark.slow
def test_a_killed_preparation_goes_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = made(folder, "whole", processes=1)
    killed_after_two(folder, "killed")
    assert not (folder / "killed").exists()
    worked_on: list[str] = []

    def watched(part: CorpusPart, *rest: Any) -> None:
        worked_on.extend(Path(file).name for file in part.files)
        make_part(part, *rest)

    monkeypatch.setattr(part_runners, "make_part", watched)
    # What a process leaves that is killed while it writes.
    work = folder / ".killed.unfinished"
    (work / ".part-0123456789.tmp-01234567").mkdir()
    report = made(folder, "killed", processes=1)
    assert worked_on == ["2.txt", "3.txt", "4.txt"]
    assert report.resumed_files == 2
    assert "going on: 2 of 5 input files were done before" in capsys.readouterr().err
    assert toys.tree(folder / "killed") == toys.tree(folder / "whole")
    assert report.manifest == whole.manifest
    assert not work.exists()


def parts_in(work: Path) -> int:
    try:
        return sum(name.startswith("part-") for name in os.listdir(work))
    except FileNotFoundError:
        return 0


@pytest.mark.slow
def test_kills_with_several_processes(folder: Path) -> None:
    """The next one begins at once, when the workers of the one that was killed may still end."""
    for number in range(FILES, 24):
        text = toys.corpus_text(6, seed=number)
        (folder / "texts" / f"{number}.txt").write_text(text, encoding="utf-8")
    made(folder, "whole", processes=1, drop_duplicates=True)
    program = (
        "import sys, bertine\n"
        "texts, tokenizer, out = sys.argv[1:]\n"
        "bertine.prepare(texts, tokenizer=tokenizer, out=out, part_bytes=1, processes=2,"
        " drop_duplicates=True)"
    )
    arguments = [str(folder / name) for name in ("texts", "tokenizer", "killed")]
    work = folder / ".killed.unfinished"
    ends = []
    for wanted in (1, 8, 15):
        process = subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
            stderr=subprocess.DEVNULL,
            env=workers.environment(1),
        )
        while process.poll() is None and parts_in(work) < wanted:
            time.sleep(0.01)
        process.kill()
        ends.append(process.wait())
    assert ends[0] == -signal.SIGKILL
    made(folder, "killed", processes=2, drop_duplicates=True)
    assert toys.tree(folder / "killed") == toys.tree(folder / "whole")
    assert not list(folder.glob(".*"))


@pytest.mark.slow
def test_what_was_changed_is_done_anew(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    killed_after_two(folder, "store")
    text = folder / "texts" / "1.txt"
    text.write_text(text.read_text(encoding="utf-8") + "\nthe old cat .\n", encoding="utf-8")
    assert made(folder, "store").resumed_files == 1
    assert "1 finished parts of other files or settings removed" in capsys.readouterr().err
    made(folder, "fresh")
    assert toys.tree(folder / "store") == toys.tree(folder / "fresh")
    killed_after_two(folder, "other")
    assert made(folder, "other", language="de").resumed_files == 0


@pytest.mark.slow
def test_a_mistake_in_one_file_keeps_the_others(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = folder / "texts" / "3.txt"
    good = bad.read_bytes()
    bad.write_bytes(good + b"\n\nthe \xff cat\n")
    with pytest.raises(BertineError, match=r"3\.txt:\d+: "):
        made(folder, "store", strict=True, processes=1)
    assert "3 of 5 input files are done and kept" in " ".join(capsys.readouterr().err.split())
    assert not (folder / "store").exists()
    with pytest.raises(BertineError, match=r"3\.txt:\d+: ") as error:
        made(folder, "store", strict=True, processes=2)
    assert "\n" not in str(error.value)
    bad.write_bytes(good)
    assert made(folder, "store", strict=True, processes=2).resumed_files >= 3


def test_workers_end_with_the_process_that_asked(folder: Path) -> None:
    """Killed by force, it cannot tell them."""
    worker = [
        sys.executable,
        "-m",
        "bertine.corpora.prepare",
        str(folder / "tokenizer"),
    ]
    program = (
        "import subprocess, sys, time\n"
        f"p = subprocess.Popen({worker!r}, stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "print(p.pid, flush=True)\ntime.sleep(60)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        text=True,
        env=workers.environment(1),
    )
    assert process.stdout is not None
    worker_id = int(process.stdout.readline())
    os.kill(worker_id, 0)
    process.kill()
    process.wait()
    process.stdout.close()
    for _ in range(100):
        status = Path(f"/proc/{worker_id}/stat")
        if not status.exists() or ") Z " in status.read_text():
            return
        time.sleep(0.1)
    os.kill(worker_id, signal.SIGKILL)
    pytest.fail("the worker lives on")


def test_a_worker_that_is_killed_is_one_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "sys", type("sys", (), {"executable": "/bin/false"}))
    with pytest.raises(BertineError, match="run again, with fewer processes"):
        made(folder, "store", processes=2)
    assert not (folder / "store").exists()
    assert not list(folder.glob(".*"))


def test_two_at_the_same_store_do_not_mix(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def second(*_: Any) -> None:
        made(folder, "store")

    monkeypatch.setattr(part_runners, "make_part", second)
    with pytest.raises(BertineError, match="being prepared by another process"):
        made(folder, "store", processes=1)


def test_the_lock_is_on_the_folder_that_is_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another preparation may end, and remove its folder, just before it is locked here."""
    real, times = preparation.lock_handle, list[int]()

    def late(handle: int, busy: str) -> None:
        if not times:
            times.append(1)
            (folder / ".store.unfinished").rmdir()
        real(handle, busy)

    monkeypatch.setattr(preparation, "lock_handle", late)
    assert made(folder, "store", processes=1).manifest["num_documents"] == 12 * FILES
    assert times
    assert not list(folder.glob(".*"))


@pytest.mark.slow
def test_the_same_file_twice_is_there_twice(folder: Path) -> None:
    text = folder / "texts" / "0.txt"
    report = made(folder, "store", corpus=[text, text], processes=2)
    assert report.manifest["num_documents"] == 24
    assert report.manifest["duplicates"]["copies"] == 13


def test_a_part_is_known_by_the_paths_of_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files out of an archive may have the same name, size and time in every folder."""
    given: dict[str, Any] = {"tokenizer_fingerprint": "x", "folder": tmp_path, "part_bytes": 1}
    folders = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "0.txt").write_text(f"{name} text\n", encoding="utf-8")
        os.utime(tmp_path / name / "0.txt", (0, 0))
        folders.append(plan_parts([tmp_path / name / "0.txt"], PartSettings(), **given)[0].folder)
    assert folders[0] != folders[1]
    monkeypatch.chdir(tmp_path)
    assert plan_parts([Path("a") / "0.txt"], PartSettings(), **given)[0].folder == folders[0]


def test_small_files_share_a_part_and_keep_their_order(folder: Path, tmp_path: Path) -> None:
    files = Corpus(folder / "texts").files
    sizes = [file.stat().st_size for file in files]
    parts = plan_parts(
        files,
        PartSettings(),
        tokenizer_fingerprint="x",
        folder=tmp_path,
        part_bytes=sizes[0] + sizes[1],
    )
    assert [file for part in parts for file in part.files] == [str(file) for file in files]
    assert parts[0].files == tuple(str(file) for file in files[:2])
    assert sum(part.size for part in parts) == sum(sizes)
    assert CorpusPart.from_json(parts[0].to_json()) == parts[0]


def test_wrong_options(folder: Path) -> None:
    for wrong, said in (
        ({"processes": 0}, "processes is 0"),
        ({"near_duplicates": "drp"}, "ignore, count, drop"),
        ({"similarity": 0.0}, "similarity"),
        ({"processes": 2, "ray": "local"}, "not both"),
    ):
        with pytest.raises(BertineError, match=said):
            made(folder, "store", **wrong)
    assert not (folder / "store").exists()


@pytest.mark.slow  # a minute where the cores are busy: Ray starts half a dozen processes
def test_ray_makes_the_same_store(folder: Path) -> None:
    pytest.importorskip("ray")
    made(folder, "here", processes=1, drop_duplicates=True)
    program = (
        "import sys, bertine\n"
        "texts, tokenizer, out = sys.argv[1:]\n"
        "bertine.prepare(texts, tokenizer=tokenizer, out=out, part_bytes=1, ray='local',"
        " drop_duplicates=True)"
    )
    arguments = [str(folder / name) for name in ("texts", "tokenizer", "there")]
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        env=workers.environment(1),
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert toys.tree(folder / "there") == toys.tree(folder / "here")


def test_a_machine_of_a_cluster_that_sees_no_tokenizer_says_so(tmp_path: Path) -> None:
    assert part_runners._ray_task("{}", str(tmp_path / "nowhere")) == {
        "error": f"{tmp_path / 'nowhere'}: No such file or directory while loading the tokenizer"
    }


def test_no_ray_cluster_there_is_one_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray")

    def init(**given: Any) -> None:
        """As where there is none; here one may be that another test has started."""
        raise ConnectionError("Could not find any running Ray instance.\nPlease specify the one")

    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(BertineError, match="no Ray cluster there") as error:
        made(folder, "store", ray="auto")
    assert "\n" not in str(error.value)


def test_a_library_that_is_not_there_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, option, extra in (
        ("ray", {"ray": "local"}, "pip install ray"),
        ("rensa", {"near_duplicates": "count"}, "pip install rensa"),
    ):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(BertineError, match="not installed") as error:
            made(folder, "store", **option)
        assert extra in str(error.value)


@pytest.mark.slow
def test_a_tokenizer_is_loaded_where_it_was_saved(folder: Path) -> None:
    """Workers read a copy, so that it cannot change under them."""
    report = made(folder, "store", processes=2)
    copy = Tokenizer.load(folder / "store" / "tokenizer")
    assert copy.fingerprint == report.manifest["tokenizer_fingerprint"]
    assert bertine.TokenStore.open(folder / "store", copy).num_documents == 12 * FILES
