"""The page in a real browser: every task asked and answered, at a phone's width, by keyboard.

``PICTURES=FOLDER`` keeps a picture of each.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bertine
import toys
from bertine.options.inference import ServeOptions

from .conftest import Client, running

pytestmark = pytest.mark.slow
SENTENCE = toys.sentence("cat", "old")
TWO = f"{SENTENCE} {toys.sentence('soup', 'warm')}"
HOSTILE = '<img src=x onerror="document.title=1"> 𝕬 the cat'


@pytest.fixture
def page(browser: Any, ask: Client) -> Iterator[Any]:
    """The page of the server, at a phone's width; nothing may go wrong in it, and nothing may be
    asked of anyone else."""
    opened = browser.new_page(viewport={"width": 360, "height": 740})
    opened.set_default_timeout(10_000)
    faults: list[str] = []
    opened.on("pageerror", lambda error: faults.append(str(error)))
    opened.on("console", lambda message: faults.append(message.text))
    opened.on(
        "request",
        lambda request: (
            None
            if request.url.startswith((f"http://127.0.0.1:{ask.port}/", "data:"))
            else faults.append(request.url)
        ),
    )
    opened.goto(f"http://127.0.0.1:{ask.port}/")
    yield opened
    opened.close()
    assert [
        fault for fault in faults if "the server responded with a status of 4" not in fault
    ] == []


def picture(page: Any, name: str) -> None:
    """Of each test its own."""
    if folder := os.environ.get("PICTURES"):
        test = os.environ["PYTEST_CURRENT_TEST"].rpartition("::")[2].split()[0]
        page.screenshot(path=Path(folder) / f"{test}-{name}.png", full_page=True)


def asked(page: Any, model: str, *values: str, tab: str | None = None) -> str:
    """Fill the form of `model` and press Enter or the button; the text of the answer."""
    page.select_option("#model", model)
    if tab:
        page.click(f"#tab-{tab}")
    boxes = page.locator("#form input, #form textarea")
    assert boxes.count() == len(values)
    for number, value in enumerate(values):
        boxes.nth(number).fill(value)
    page.click("#ask")
    page.wait_for_selector("#result:not([hidden])")
    picture(page, tab or model)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    return str(page.inner_text("#result"))


def test_labels_with_bars(page: Any, ask: Client) -> None:
    text = asked(page, "text", SENTENCE)
    (expected,) = ask(
        "/predict", {"texts": [SENTENCE], "model": "text", "all_probabilities": True}
    ).json["predictions"]
    assert text.startswith(expected["label"])
    for label, chance in expected["probabilities"].items():
        row = page.locator("#result li", has_text=label)
        assert f"{100 * chance:.1f}\u00a0%" in row.inner_text()
        width = row.locator(".fill").evaluate("e => e.offsetWidth / e.parentElement.offsetWidth")
        assert width == pytest.approx(chance, abs=0.03)


def test_the_other_answers(page: Any, ask: Client) -> None:
    assert "%" in asked(page, "pairs", SENTENCE, "the soup")
    assert float(asked(page, "regression", SENTENCE))
    assert "wet" in asked(page, "multi-label", SENTENCE)
    choices = asked(page, "choice", "the cat", "sleeps\nboils\nbarks")
    assert all(choice in choices for choice in ("sleeps", "boils", "barks"))


def test_an_answer_is_marked_in_its_passage(page: Any, ask: Client) -> None:
    context = f"𝕬𝕭 {TWO}"  # two characters that JavaScript counts twice
    asked(page, "spans", "where is the cat", context)
    (expected,) = ask(
        "/predict", {"texts": [["where is the cat", context]], "model": "spans"}
    ).json["predictions"]
    assert page.inner_text("#result mark") == expected["answer"]
    assert page.inner_text("#result .text") == context
    assert "cut off" not in page.inner_text("#result")
    assert "The question is longer than" in asked(page, "spans", context, context)


def test_entities_are_coloured_in_the_text(page: Any, ask: Client) -> None:
    asked(page, "tagging", TWO)
    (expected,) = ask("/predict", {"texts": [TWO], "model": "tagging"}).json["predictions"]
    marks = page.locator("#result mark")
    assert marks.count() == len(expected["entities"]) > 0
    for number, entity in enumerate(expected["entities"]):
        chance = f"{round(100 * entity['probability'])}\u00a0%"
        wanted = f"{entity['text']}\u00a0{entity['label']} {chance}"
        assert marks.nth(number).inner_text() == wanted
    colours = marks.evaluate_all("all => all.map(e => getComputedStyle(e).borderTopColor)")
    types = [entity["label"] for entity in expected["entities"]]
    assert len(set(zip(types, colours, strict=True))) == len(set(types)) == len(set(colours))


def test_masks_are_filled(page: Any, ask: Client) -> None:
    text = asked(page, "fill-mask", "the old [MASK] sleeps in the [MASK] .")
    assert "Mask 2 of 2" in text
    filled = ask("/fill-mask", {"texts": ["the old [MASK] sleeps in the [MASK] ."]}).json["filled"]
    first = [mask["candidates"][0]["token"] for mask in filled[0]["masks"]]
    assert page.locator("#result mark").all_inner_texts() == first
    page.fill("#text0", "the ")
    page.click("#insert")
    assert page.input_value("#text0") == "the [MASK]"


def test_a_collection_is_searched(browser: Any, models: dict[str, Path], tmp_path: Path) -> None:
    rows = [
        {"id": f"t{at}", "text": f"{toys.sentence(topic, 'old')} {HOSTILE}"}
        for at, topic in enumerate(toys.TOPICS)
    ]
    bertine.embed(
        models["fill-mask"], rows, tmp_path / "docs.parquet", precision="fp32", device="cpu"
    )
    options = ServeOptions(collection=tmp_path / "docs.parquet")
    opened = browser.new_page(viewport={"width": 360, "height": 740})
    with running({"fill-mask": models["fill-mask"]}, options=options) as client:
        opened.goto(f"http://127.0.0.1:{client.port}/")
        text = asked(opened, "fill-mask", SENTENCE, "id != t0")
        best = client("/search", {"query": SENTENCE, "where": "id != t0"}).json["results"][0][
            "rows"
        ]
        assert best[0]["text"] in text
        assert f"id: {best[0]['columns']['id']}" in text
        assert "The nearest of 7 rows." in text
        assert opened.title() == "Bertine"
        opened.fill("#where", "colour = red")
        opened.click("#ask")
        opened.wait_for_function("() => document.querySelector('#alert').textContent")
        assert "there is no column 'colour'" in opened.inner_text("#alert")
        opened.close()


def test_the_nearest_sentence_is_first(page: Any) -> None:
    others = f"{toys.sentence('soup', 'warm')}\n{SENTENCE}\n{toys.sentence('dog', 'small')}"
    asked(page, "text", SENTENCE, others, tab="embed")
    first = page.locator("#result li").first.inner_text().split("\n")
    assert first[0] == SENTENCE
    assert first[-1] == "1.000"


def test_looking_inside(page: Any) -> None:
    asked(page, "text", SENTENCE)
    tokens = ["[CLS]", *SENTENCE.split(), "[SEP]"]
    page.click("#lean")
    page.wait_for_selector("#leaned .tokens")
    assert page.locator("#leaned .tokens span").all_inner_texts() == SENTENCE.split()
    assert page.inner_text("#leaned .tokens") == SENTENCE
    backgrounds = page.locator("#leaned .tokens span").evaluate_all(
        "all => all.map(e => e.style.background)"
    )
    assert len(set(backgrounds)) > 3
    page.click("#attend")
    page.wait_for_selector("#attention svg")
    assert page.locator(".attention .from button").all_inner_texts() == tokens
    before = page.inner_html("#attention svg")
    page.select_option("#head", index=1)
    page.wait_for_function(
        "h => document.querySelector('#attention svg').innerHTML !== h", arg=before
    )
    page.locator(".attention .from button").nth(2).focus()
    page.keyboard.press("Enter")
    assert "“old” looks at" in page.inner_text("#attention p")
    assert 0 < page.locator("#attention rect").count() <= len(tokens) ** 2
    picture(page, "inside")


def test_the_curl_line_answers_the_same(page: Any) -> None:
    asked(page, "text", "the cat's sofa")
    page.click("#line summary")
    line = page.inner_text("#curl")
    if shutil.which("curl") is None:
        pytest.skip("there is no curl here")
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True)
    (found,) = json.loads(done.stdout)["predictions"]
    assert page.inner_text("#result .big") == found["label"]


def test_several_texts_and_what_was_asked_before(page: Any, ask: Client) -> None:
    asked(page, "text", SENTENCE)
    page.fill("#lines", f"{SENTENCE}\n\n{toys.sentence('soup', 'warm')}")
    page.click("#all")
    page.wait_for_selector("#answers tr")
    assert page.locator("#answers tr").count() == 2
    asked(page, "tagging", TWO)
    assert page.locator("#history li").count() == 2
    page.locator("#history button").nth(1).click()
    page.wait_for_selector("#result .bars")
    assert page.input_value("#text0") == SENTENCE
    assert page.input_value("#model") == "text"
    assert page.locator("#history li").count() == 2  # what is asked again is not listed twice


def test_of_a_long_text_a_part_is_looked_into_and_that_is_said(page: Any) -> None:
    for text, part in ((SENTENCE, False), (f"{SENTENCE} " * 60, True)):
        asked(page, "text", text)
        page.click("#lean")
        page.wait_for_selector("#leaned .tokens")
        assert ("a part of it is looked into" in page.inner_text("#leaned")) == part
    context = f"{SENTENCE} " * 40
    asked(page, "spans", "where is the cat", context)
    page.click("#attend")
    page.wait_for_selector("#attention svg")
    assert "a part of it is looked into" in page.inner_text("#attention")


def test_a_pretrained_model_is_asked_which_sentence_is_next(page: Any, ask: Client) -> None:
    text = asked(page, "fill-mask", SENTENCE, "the soup", tab="pairs")
    body = {"texts": [[SENTENCE, "the soup"]], "model": "fill-mask"}
    (expected,) = ask("/predict", body).json["predictions"]
    assert expected["label"] in text
    assert "IsNext" in text
    assert "NotNext" in text


def test_what_is_typed_is_text_and_never_a_part_of_the_page(page: Any) -> None:
    asked(page, "spans", HOSTILE, HOSTILE)
    asked(page, "tagging", HOSTILE)
    asked(page, "choice", HOSTILE, f"{HOSTILE}\n{HOSTILE} {HOSTILE}")
    asked(page, "text", HOSTILE, f"{HOSTILE}\n{HOSTILE} again", tab="embed")
    assert page.locator("main img").count() == 0
    assert page.title() == "Bertine"


def test_mistakes_are_said(page: Any) -> None:
    page.select_option("#model", "fill-mask")
    page.fill("#text0", "no mask")
    page.click("#ask")
    page.wait_for_function("() => document.querySelector('#alert').textContent")
    assert "has no [MASK]" in page.inner_text("#alert")
    assert page.is_enabled("#ask")


def test_all_of_it_by_keyboard(page: Any) -> None:
    page.wait_for_selector("#ask")
    reached = []
    for _ in range(7):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id"))
    assert reached == ["model", "tab-text", "text0", "ask", "lines", "all", ""]  # last: the link
    page.focus("#tab-text")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.id") == "tab-embed"
    page.focus("#query")
    page.keyboard.press("Enter")
    page.wait_for_selector("#result:not([hidden])")


def test_the_focus_stays_and_the_answer_is_read_out(page: Any) -> None:
    page.wait_for_selector("#ask")
    for button, said in (
        ("ask", "Answer: "),
        ("lean", "Strongest words: "),
        ("attend", "Attention"),
    ):
        page.focus(f"#{button}")
        page.keyboard.press("Enter")
        page.wait_for_function(
            "s => document.querySelector('#said').textContent.startsWith(s)", arg=said
        )
        assert page.evaluate("document.activeElement.id") == button
        assert page.is_enabled(f"#{button}")
    # What is asked for at the same time is all shown.
    page.click("#ask")
    page.wait_for_function("() => !document.querySelector('#leaned').firstChild")
    page.evaluate("for (const id of ['lean', 'attend']) document.getElementById(id).click()")
    page.wait_for_selector("#leaned .tokens")
    page.wait_for_selector("#attention svg")


def test_the_page_asks_for_the_key(browser: Any, models: dict[str, Path]) -> None:
    with running({"text": models["text"]}, api_key="sesame") as client:
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{client.port}/")
        page.wait_for_selector("#key:not([hidden])")
        picture(page, "key")
        assert page.inner_text("#alert") == ""  # nothing has gone wrong yet
        assert page.evaluate("document.activeElement.id") == "secret"
        for wrong in ("open", "\u043a\u043b\u044e\u0447"):  # the second cannot be in a header
            page.fill("#secret", wrong)
            page.keyboard.press("Enter")
            page.wait_for_function("() => document.querySelector('#alert').textContent")
            assert page.inner_text("#alert") == "This is not the key of this server."
        page.fill("#secret", "sesame")
        page.keyboard.press("Enter")
        page.wait_for_selector("#ask")
        assert page.inner_text("#alert") == ""
        assert asked_label(page) in ("animal", "dish")
        page.close()


def asked_label(page: Any) -> str:
    page.fill("#text0", SENTENCE)
    page.click("#ask")
    page.wait_for_selector("#result:not([hidden])")
    return str(page.inner_text("#result .big"))


def test_the_api_reference(page: Any, ask: Client) -> None:
    page.goto(f"http://127.0.0.1:{ask.port}/docs")
    page.wait_for_selector("details")
    assert page.locator("details").count() == 19
    page.locator("summary", has_text="/v1/embeddings").click()
    shown = page.locator("details[open] pre").all_inner_texts()
    assert shown[0].startswith("curl ")
    assert "encoding_format" in shown[1]
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
