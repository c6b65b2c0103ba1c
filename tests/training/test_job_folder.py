"""Folders of jobs: what is refused, resumed, removed or left alone; kills and races."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

import processes
import toys
from bertine.core import files
from bertine.core.errors import BertineError
from bertine.core.files import write_json
from bertine.training import job_folder
from bertine.training.job_folder import JobFolder

JOB = JobFolder("test job", "job.json", frozenset({"log_every"}), scraps=("logs/*", "in/*"))
DEMO = JobFolder("show", "show.json", replaces=("page.html", "model"))
SETTINGS = {"seed": 1, "sizes": (1, 2), "log_every": 5}


@pytest.fixture(autouse=True)
def _without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_folder, "_PATIENCE", 0.0)


def test_a_job_is_begun_and_resumed(tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    with JOB.open(out, SETTINGS, False, {"machine": "here"}) as known:
        assert known == {}
        begun = json.loads((out / "job.json").read_text())
        assert begun == {"settings": {**SETTINGS, "sizes": [1, 2]}, "machine": "here"}
        write_json(out / "job.json", {**begun, "rows": [1]})
    with pytest.raises(BertineError, match="out: holds a test job already; add resume=True"):
        JOB.open(out, SETTINGS, False).__enter__()
    with JOB.open(out, {**SETTINGS, "log_every": 7}, True) as known:
        assert known == {**begun, "rows": [1]}
    before = toys.tree(tmp_path)
    for change, said in (
        ({"seed": 2}, "the test job was started with seed = 1, not 2; resume it with the same"),
        ({"seed": 2, "x": {"y": 3}}, "with seed = 1, not 2"),
        ({"examples_fingerprint": "1"}, "with other examples; resume"),
    ):
        with pytest.raises(BertineError, match=said) as error:
            JOB.open(out, {**SETTINGS, **change}, True).__enter__()
        assert "\n" not in str(error.value)
    # A job that was resumed keeps what is recorded, however it ends.
    with pytest.raises(KeyboardInterrupt), JOB.open(out, SETTINGS, True):
        raise KeyboardInterrupt
    assert toys.tree(tmp_path) == before


def test_what_is_not_of_the_job_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/.notes.tmp-1").write_text("years of work")
    for name, text in (("list", "[]"), ("null", '{"settings": null}'), ("cut", '{"settings": {')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "job.json").write_text(text)
    before = toys.tree(tmp_path)
    for name, said in (
        ("file", "file: is a file; choose another folder for the test job"),
        ("other", "other: is not empty and holds no test job; choose another folder for it"),
        ("list", "job.json: damaged, or not of a test job"),
        ("null", "job.json: damaged, or not of a test job"),
        ("cut", "job.json: not valid JSON"),
    ):
        with pytest.raises(BertineError, match=said):
            JOB.open(tmp_path / name, SETTINGS, True).__enter__()
    assert toys.tree(tmp_path) == before
    of_earlier_versions = JobFolder("test job", "job.json", own=frozenset({".notes.tmp-1"}))
    with of_earlier_versions.open(tmp_path / "other", SETTINGS, False):
        pass


@pytest.mark.parametrize("there", [False, True])
def test_an_empty_start_is_undone(there: bool, tmp_path: Path) -> None:
    out = tmp_path / "out"
    if there:
        out.mkdir()

    def stop(files: tuple[str, ...]) -> None:
        with JOB.open(out, SETTINGS, True):
            for file in files:
                (out / file).parent.mkdir(exist_ok=True)
                (out / file).write_text("")
            raise KeyboardInterrupt

    def stopped(*files: str) -> set[str]:
        with pytest.raises(KeyboardInterrupt):
            stop(files)
        return {name for name, content in toys.tree(tmp_path).items() if content is not None}

    assert stopped("logs/1", "in/rows") == set()
    assert out.exists() == there
    assert stopped("logs/1", "result") == {"out/job.json", "out/logs/1", "out/result"}


def test_what_was_there_before_stays(tmp_path: Path) -> None:
    """A resumed job that fails removes nothing, and a pattern is one of the folder's root."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/mine").write_text("")
    (tmp_path / "job.json").write_text(json.dumps({"settings": SETTINGS}))
    before = toys.tree(tmp_path)
    with pytest.raises(KeyboardInterrupt), JOB.open(tmp_path, SETTINGS, True):
        raise KeyboardInterrupt
    assert toys.tree(tmp_path) == before
    with JOB.open(tmp_path / "new", SETTINGS, True):
        deeper = tmp_path / "new/mine/logs/notes"
        deeper.parent.mkdir(parents=True)
        deeper.write_text("")
        JOB._undo(tmp_path / "new", {"settings": SETTINGS})
    assert (tmp_path / "new/mine/logs/notes").exists()


def test_a_kind_that_replaces_removes_only_its_own(tmp_path: Path) -> None:
    for name in ("show.json", "page.html", "notes.txt", "model/weights"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("old")
    with DEMO.open(tmp_path, {"seed": 2}, True) as known:
        assert known == {}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.txt", "show.json"]
    assert json.loads((tmp_path / "show.json").read_text()) == {"settings": {"seed": 2}}


def killed(out: Path, when: str) -> None:
    """A life that is killed while its folder is opened, or just after."""

    def end(*_: object) -> None:
        (out / f".job.json.tmp-{when}").write_text("{")
        os.kill(os.getpid(), signal.SIGKILL)

    if when == "before":
        job_folder.write_json = end
    with JOB.open(out, SETTINGS, True):
        end()


def test_killed_at_its_start(tmp_path: Path) -> None:
    for when in ("before", "after"):
        process = processes.forked(killed, tmp_path / when, when)
        process.join()
        assert process.exitcode == -signal.SIGKILL
        assert (tmp_path / when / "job.json").exists() == (when == "after")
        with JOB.open(tmp_path / when, SETTINGS, True) as known:
            assert bool(known) == (when == "after")
            assert [path.name for path in (tmp_path / when).iterdir()] == ["job.json"]


def race(out: Path, ways: Path) -> None:
    """A life that waits for the others once it is in, so that no two are in one after the other."""
    name, job_folder._PATIENCE = str(os.getpid()), 0.0
    try:
        with JOB.open(out, SETTINGS, True):
            (ways / f"in-{name}").touch()
            while len(list(ways.iterdir())) < 4:
                time.sleep(0.01)
    except BertineError as error:
        (ways / f"out-{name}").write_text(str(error))


def test_of_several_at_once_one_goes_on(tmp_path: Path) -> None:
    for turn in range(5):
        ways = tmp_path / f"ways-{turn}"
        ways.mkdir()
        lives = [processes.forked(race, tmp_path / f"out-{turn}", ways) for _ in range(4)]
        for life in lives:
            life.join(60)
        ends = sorted(path.name.split("-")[0] for path in ways.iterdir())
        assert ends == ["in", "out", "out", "out"]
        said = {path.read_text() for path in ways.glob("out-*")}
        busy = "another process is working on this test job; wait until it ends, or end it"
        assert said == {f"{tmp_path / f'out-{turn}'}: {busy}"}


def test_a_folder_that_was_removed_meanwhile_is_not_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that is waited for undoes its start; a third one may be in a new folder."""
    monkeypatch.setattr(files, "_lock", lambda _: (tmp_path / "out").rmdir() or True)
    with pytest.raises(BertineError, match="out: another process is working"):
        JOB.open(tmp_path / "out", SETTINGS, False).__enter__()
