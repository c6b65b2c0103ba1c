"""The page of labelling in a real browser, as a person works: by keyboard, on a phone, in other
scripts, with two windows, and killed in the middle.

``PICTURES=FOLDER`` keeps a picture of each.
"""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import toys

pytest.importorskip("fastapi")
pytestmark = pytest.mark.slow
HOSTILE = '<img src=x onerror="document.title=1"> 𝕬 the cat'


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toys.write_model(tmp_path_factory.mktemp("label") / "model")


class Command:
    """The command, with the address of its page."""

    def __init__(self, *arguments: object) -> None:
        command = [sys.executable, "-m", "bertine", "label", *map(str, arguments)]
        self.process = subprocess.Popen(
            command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        said = []
        assert self.process.stderr is not None
        for line in self.process.stderr:
            said.append(line)
            if match := re.search(r"http://\S+", line):
                self.address = match[0]
                return
        raise AssertionError("".join(said))

    def open(self, browser: Any, width: int = 360) -> Any:
        """A window with the page; nothing may go wrong in it, and nobody else may be asked."""
        page = browser.new_page(viewport={"width": width, "height": 740})
        page.set_default_timeout(20_000)
        page.faults = []
        page.on("pageerror", lambda error: page.faults.append(str(error)))
        page.on("console", lambda message: page.faults.append(message.text))
        page.on(
            "request",
            lambda request: (
                None
                if request.url.startswith((self.address.partition("#")[0], "data:"))
                else page.faults.append(request.url)
            ),
        )
        page.goto(self.address)
        page.wait_for_selector("#ask:not([hidden])")
        return page

    def finish(self, page: Any) -> str:
        """Press the button, and return what the command prints."""
        page.click("#finish")
        page.wait_for_selector("#done:not([hidden])")
        out, _ = self.process.communicate(timeout=30)
        assert self.process.returncode == 0
        assert page.faults == []
        page.close()
        return str(out)


@pytest.fixture
def label(model: Path, tmp_path: Path) -> Iterator[Any]:
    """Start the command over rows."""
    started: list[Command] = []

    def start(rows: list[dict[str, Any]], *arguments: object, out: str = "out.csv") -> Command:
        texts = tmp_path / "texts.jsonl"
        texts.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        fixed = ("--model", model, "--device", "cpu", "--precision", "fp32")
        started.append(Command(texts, "--out", tmp_path / out, *arguments, *fixed))
        return started[-1]

    yield start
    for command in started:
        command.process.kill()
        command.process.communicate()


def picture(page: Any, name: str) -> None:
    if folder := os.environ.get("PICTURES"):
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]


def text_of(page: Any) -> str:
    return str(page.evaluate("document.querySelector('#texts').textContent"))


def press(page: Any, *keys: str) -> None:
    """Press keys; the last one ends with another text."""
    for key in keys[:-1]:
        page.keyboard.press(key)
    count = page.inner_text("#count")
    page.keyboard.press(keys[-1])
    page.wait_for_function("c => document.querySelector('#count').textContent !== c", arg=count)


def written(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_by_keyboard_alone(label: Any, browser: Any, tmp_path: Path) -> None:
    rows = [{"text": f"the cat {at}"} for at in range(30)]
    command = label(rows, "--labels", "one", "two")
    page, given = command.open(browser), []
    for keys in (["1"], ["2"], ["0"], ["n", *"odd", "Enter", "1"], ["/", *"three", "Enter"]):
        given.append(text_of(page))
        press(page, *keys)
    page.keyboard.press("s")
    press(page, "3")
    press(page, "u")
    assert page.inner_text("#reason").startswith("You have taken")
    press(page, "2")
    picture(page, "keyboard")
    lines = written(tmp_path / "out.csv")
    assert [line["label"] for line in lines] == [
        "one",
        "two",
        "none of these",
        "one",
        "three",
        "two",
    ]
    assert [line["text"] for line in lines[:5]] == given
    assert [line["note"] for line in lines] == ["", "", "", "odd", "", ""]
    # Nobody needs a mouse to finish either.
    page.focus("#finish")
    page.keyboard.press("Enter")
    page.wait_for_selector("#done:not([hidden])")
    assert "6 texts labelled" in command.process.communicate(timeout=30)[0]
    assert page.faults == []
    page.close()


def test_other_scripts_and_what_looks_like_a_page(label: Any, browser: Any, tmp_path: Path) -> None:
    texts = ["我很高兴，谢谢你。", "أنا سعيد جدا اليوم", HOSTILE, "the cat"]
    command = label([{"text": text} for text in texts], "--labels", "喜悦", "فرح", HOSTILE)
    page = command.open(browser)
    for _ in texts:
        text = text_of(page)
        direction = page.evaluate("getComputedStyle(document.querySelector('.text')).direction")
        assert (direction == "rtl") == (text == texts[1])
        picture(page, f"scripts-{texts.index(text)}")
        place = texts.index(text) % 3
        page.locator("#labels button").nth(place).click()
        page.wait_for_function(
            "t => document.querySelector('#texts').textContent !== t || "
            "document.querySelector('#ask').hidden",
            arg=text,
        )
    page.wait_for_selector("#done:not([hidden])")
    assert page.locator("main img").count() == 0
    command.finish(page)
    labels = {line["text"]: line["label"] for line in written(tmp_path / "out.csv")}
    assert labels == dict(zip(texts, ["喜悦", "فرح", HOSTILE, "喜悦"], strict=True))


def test_a_very_long_text(label: Any, browser: Any) -> None:
    command = label([{"text": "word " * 20_000 + str(at)} for at in range(6)], "--labels", "a")
    page = command.open(browser)
    assert len(text_of(page)) > 100_000
    page.keyboard.press("Space")
    page.wait_for_function("() => document.querySelector('.text').scrollTop > 0")
    assert page.locator("#labels button").first.is_visible()
    assert page.evaluate("document.querySelector('#labels').getBoundingClientRect().bottom") < 740
    press(page, "1")
    picture(page, "long")
    command.finish(page)


def test_two_windows(label: Any, browser: Any, tmp_path: Path) -> None:
    command = label([{"text": f"the cat {at}"} for at in range(9)], "--labels", "one", "two")
    first, second = command.open(browser), command.open(browser)
    assert text_of(first) == text_of(second)
    press(first, "1")
    press(second, "2")  # not taken: the text has a label from the first window
    assert "Another window" in second.inner_text("#message")
    assert [line["label"] for line in written(tmp_path / "out.csv")] == ["one"]
    press(second, "2")
    assert [line["label"] for line in written(tmp_path / "out.csv")] == ["one", "two"]
    first.evaluate("dispatchEvent(new Event('focus'))")
    first.wait_for_function("() => document.querySelector('#count').textContent.startsWith('2 ')")
    assert text_of(first) == text_of(second)
    assert second.faults == []
    command.finish(first)


def test_killed_in_the_middle(label: Any, browser: Any, tmp_path: Path) -> None:
    rows, arguments = [{"text": f"the cat {at}"} for at in range(40)], ("--labels", "one", "two")
    command = label(rows, *arguments)
    page = command.open(browser)
    for key in "12121":
        press(page, key)
    command.process.send_signal(signal.SIGKILL)
    command.process.wait()
    text = text_of(page)
    page.keyboard.press("2")
    page.wait_for_function("() => document.querySelector('#alert').textContent")
    assert "start it again" in page.inner_text("#alert")
    assert text_of(page) == text
    page.close()
    before = written(tmp_path / "out.csv")
    assert [line["label"] for line in before] == ["one", "two", "one", "two", "one"]
    command = label(rows, *arguments)
    page = command.open(browser)
    assert page.inner_text("#count").startswith("5 labelled")
    press(page, "2")
    assert "6 texts labelled: one 3, two 3" in command.finish(page)
    assert written(tmp_path / "out.csv")[:5] == before


def test_several_labels_and_pairs(label: Any, browser: Any, tmp_path: Path) -> None:
    rows = [{"question": f"where {at}", "answer": f"there {at}"} for at in range(8)]
    columns = ("--text-columns", "question", "answer")
    command = label(rows, "--labels", "a", "b", "--several", *columns)
    page = command.open(browser)
    assert page.locator("#texts .text").count() == 2
    press(page, "1", "2", "1", "/", *"new", "Enter", "Enter")
    press(page, "Enter")
    picture(page, "several")
    command.finish(page)
    assert [line["label"] for line in written(tmp_path / "out.csv")] == ["b|new", ""]


def test_words_are_marked(label: Any, browser: Any, tmp_path: Path) -> None:
    rows = [{"text": "𝕬da wrote to Charles Babbage today"}, {"text": "لندن مدينة كبيرة"}]
    arguments = ("--labels", "person", "place", "--spans")
    command = label(rows, *arguments, out="out.jsonl")
    page, spans = command.open(browser), {}
    for _ in rows:
        if text_of(page).endswith("today"):
            page.keyboard.press("1")  # the first word
            words = page.locator("#texts span:not(.gap)")
            begin, end = words.nth(3).bounding_box(), words.nth(4).bounding_box()
            page.mouse.move(begin["x"] + 3, begin["y"] + 8)
            page.mouse.down()
            page.mouse.move(end["x"] + end["width"] - 3, end["y"] + 8, steps=4)
            page.mouse.up()
            page.keyboard.press("1")
            picture(page, "words")
            press(page, "2", "Delete", "Enter")
        else:  # from right to left the next word is at the left
            press(page, "ArrowLeft", "Shift+ArrowLeft", "2", "Enter")
    command.finish(page)
    for line in written(tmp_path / "out.jsonl"):
        spans[line["text"]] = [(one["start"], one["end"], one["label"]) for one in line["entities"]]
    assert spans[rows[0]["text"]] == [(0, 3, "person"), (13, 28, "person")]
    assert spans[rows[1]["text"]] == [(5, 16, "place")]


def test_a_page_without_its_key_shows_nothing(label: Any, browser: Any) -> None:
    command = label([{"text": "the cat"}], "--labels", "a")
    page = browser.new_page()
    for address, said in (("", "The key is missing"), ("#wrong", "not the key of this page")):
        page.goto("about:blank")
        page.goto(command.address.partition("#")[0] + address)
        page.wait_for_function(
            "s => document.querySelector('#alert').textContent.includes(s)", arg=said
        )
        assert page.locator("#ask").is_hidden()
    page.close()
