"""The report: one file, everything in it escaped, every number that was given shown."""

from __future__ import annotations

import base64
import hashlib
import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest

from bertine.reports import plots
from bertine.reports.curves import term_curves
from bertine.reports.html import (
    Block,
    Commands,
    Fact,
    FactList,
    Figure,
    Figures,
    Guess,
    Guesses,
    Heat,
    MaskHistories,
    MaskHistory,
    Note,
    Section,
    Segment,
    TextCard,
    TextCards,
    command_markup,
)
from bertine.reports.html import Page as Built
from bertine.reports.html import PageTable as Table

HOSTILE = '<script>alert("x")</script>\'&"><img src=x onerror=y> $x^{ {{ 7*7 }} \x00\x1b \ud800'
PNG = b"\x89PNG\r\n\x1a\n" + b"not looked into"
VOID = {"meta", "img", "br", "path", "use", "rect"}


class Page(HTMLParser):
    """Tags, attributes and text of a page; fails on tags that do not match."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.source = html
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["script"] and self.open[-1:] != ["style"]:
            self.text.append(data)

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())

    def check_scripts(self) -> None:
        """The only script is that of the page, by the hash that its policy allows."""
        scripts = re.findall(r"<script>(.*?)</script>", self.source, flags=re.S)
        assert len(scripts) == sum(tag == "script" for tag, _ in self.tags) == 1
        digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
        policies = [a["content"] for tag, a in self.tags if "http-equiv" in a]
        assert len(policies) == 1
        assert f"script-src 'sha256-{digest}'" in str(policies[0])
        assert "default-src 'none'" in str(policies[0])

    def ids(self) -> list[str]:
        return [str(a["id"]) for _, a in self.tags if "id" in a]


def whole_page(text: str = "some text") -> Built:
    """A page with every kind of block, `text` wherever text can be."""
    log = [{"step": s, "mlm_loss": 8 - s / 50, "mlm_accuracy": 0.5} for s in range(1, 60)]
    return Built(
        text,
        text,
        [Fact(text, text, text)],
        [
            Section(
                text, [FactList([Fact(text, text, text)]), Note(text, "good", text)], text, True
            ),
            Section(
                text,
                [
                    Figures(term_curves(log, "mlm", 6.25)),
                    Heat([text, "b"], [[1, 2], [0, 4]], text),
                    Figures([Figure(text, plots.comparison([plots.Bar(text, 0.5)]), text, text)]),
                    Figures([Figure(text, PNG, text)]),
                ],
            ),
            Section(text, [Table([text, text], [[text, text]] * 20, [1], text)]),
            Section(text, [Commands([(text, text), ("", text)])]),
            Section(
                text,
                [
                    MaskHistories(
                        [MaskHistory(text, text, text, [Guesses(text, [Guess(text, 0.5)], 0.5)])]
                    )
                ],
            ),
            Section(
                text,
                [
                    TextCards(
                        [
                            TextCard(
                                [(text, [Segment(text)])], [(text, text, "right")], text, text
                            ),
                            TextCard([("", [Segment(text, "wrong", text)])], [(text, "", "")]),
                            TextCard([("", [Segment(text, "masked", text, above=True)])]),
                        ],
                        text,
                        [Segment(text, "kept", text, above=True), Segment(text)],
                    )
                ],
            ),
        ],
        text,
    )


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    whole_page(HOSTILE).write(out)
    page = Page(out.read_text(encoding="utf-8"))
    page.check_scripts()
    assert not [a for _, attrs in page.tags for a in attrs if a.startswith("on")]
    assert [a["alt"][:8] for tag, a in page.tags if tag == "img" and a["alt"]] == ["<script>"]
    assert "{{ 7*7 }}" in page.words
    assert '<script>alert("x")</script>' in page.words


def test_the_page_is_well_formed_and_loads_nothing() -> None:
    html = whole_page().html()
    page = Page(html)
    for _, attributes in page.tags:
        for name in ("src", "href", "xlink:href"):
            target = attributes.get(name)
            assert target is None or target.startswith(("#", "data:")), target
    assert "@import" not in html
    assert "<link" not in html


def test_ids_are_unique_although_many_plots_share_the_page() -> None:
    ids = Page(whole_page().html()).ids()
    assert len(ids) > 5
    assert sorted(set(ids)) == sorted(ids)


def test_only_svg_and_png_are_let_into_the_page() -> None:
    with pytest.raises(ValueError, match="neither SVG nor PNG"):
        Built("t", sections=[Section("s", [Figures([Figure("f", b"<script>", "a")])])]).html()


COMMAND = "bertine finetune text --model /a/long-path/to-it --data 'my file.csv' --out my-run -v"


def test_commands_are_copied_by_a_button_and_break_before_options() -> None:
    blocks: list[Block] = [
        Commands([("Do it again:", COMMAND)]),
        Note("then", command="bertine report a-b"),
    ]
    page = Built("t", sections=[Section("s", blocks)]).html()
    codes = re.findall(r"<pre tabindex=\"0\"><code>(.*?)</code></pre>", page, flags=re.S)
    assert len(codes) == page.count('<button type="button" class="copy" hidden>Copy</button>') == 2
    # What is selected or copied is the command, to the letter.
    assert unescape(re.sub("<.*?>", "", codes[0])) == COMMAND
    # A word is a box of its own, and so is an option with its value.
    assert "<span><span>--out</span> <span>my-run</span></span>" in codes[0]
    assert "<span><span>bertine</span> <span>finetune</span> <span>text</span></span>" in codes[0]
    assert "onclick" not in page


@pytest.mark.parametrize(
    "command", ["", "a", "  a  b ", "a --b\n  --c", "x && y | z", HOSTILE.replace("\ud800", "")]
)
def test_a_command_stays_what_it_was(command: str) -> None:
    markup = str(command_markup(command))
    assert unescape(re.sub("</?span>", "", markup)) == command


def test_an_option_in_a_sentence_is_not_broken() -> None:
    note = Note("lower --max-rate, or a well-known --text-columns; --out.")
    page = Built("t", sections=[Section("s", [note], "as --resume does")]).html()
    options = re.findall('<span class="option">(.*?)</span>', page)
    assert options == ["--resume", "--max-rate", "--text-columns", "--out"]


def test_long_lists_are_folded_and_nothing_is_left_out() -> None:
    table = Table(["n"], [[f"row {number}"] for number in range(40)])
    texts = TextCards([TextCard([("", [Segment(f"text {n}")])]) for n in range(9)])
    page = Built("t", sections=[Section("s", [table, texts])]).html()
    assert "<summary>28 more rows</summary>" in page
    assert "<summary>3 more examples</summary>" in page
    shown = Page(page).words
    assert all(f"row {n}" in shown for n in range(40))
    assert all(f"text {n}" in shown for n in range(9))


def test_tables_with_texts_are_stacked_on_narrow_screens_and_those_of_numbers_are_not() -> None:
    texts = Table(["place", "text"], [["line 3", "a text that is wider than a phone is"]])
    numbers = Table(["step", "loss"], [["1", "0.5"]], numeric=[0, 1])
    page = Built("t", sections=[Section("s", [texts, numbers])]).html()
    assert page.count('<table class="stacked">') == 1
    assert re.search(r"not\(.stacked, .heat\).*:first-child { position: sticky; left: 0;", page)
    assert '<td data-column="text">a text' in page
