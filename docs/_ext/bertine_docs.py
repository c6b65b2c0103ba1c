"""What this site needs of Sphinx beyond its own extensions.

* ```` ```{bertine-command} NAME ````: the reference of a command, made from its parser
  (``command_page.py``) and put there before the page is read.
* Links to files of the repository outside ``docs/`` lead to pages of the site
  (``repository_links.py``), and some documents from there are pages of it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from command_page import command_page
from docutils import nodes
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import TextLexer, get_lexer_for_filename
from pygments.util import ClassNotFound
from repository_links import ROOT, SCHEME, document_of, page_of, redirected, source_of
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.environment.adapters.toctree import TocTree
from sphinx.search import languages
from sphinx.search.en import SearchEnglish

import bertine
from bertine.cli import COMMANDS
from bertine.commands.parser import Command

_COMMAND = re.compile(r"^```\{bertine-command\} (\S+)\n```$", re.MULTILINE)


def read_document(app: Sphinx, page: str, source: list[str]) -> None:
    """Take the text of a document outside ``docs/``, where the page stands for one, and make
    its links those of the site."""
    document = document_of(page)
    if document != f"docs/{page}.md":
        source[0] = (ROOT / document).read_text(encoding="utf-8")
        app.env.note_dependency(str(ROOT / document))
    text = redirected(document, source[0])
    if _COMMAND.search(text):
        options = Path(bertine.__file__).parent / "options"
        for folder in (Path(inspect.getfile(Command)).parent, options, Path(__file__).parent):
            for file in folder.glob("*.py"):
                app.env.note_dependency(str(file))
    source[0] = _COMMAND.sub(lambda match: command_page(COMMANDS[match[1]]), text)


def resolve_links(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Lead links to files of the repository to their pages, and remember these pages."""
    shown: set[str] = app.bertine_shown
    for reference in doctree.findall(nodes.reference):
        scheme, _, target = reference.get("refuri", "").partition(":")
        if scheme == SCHEME:
            shown.add(target)
            reference["refuri"] = app.builder.get_relative_uri(page, page_of(target))


def inline_pictures(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Put our own SVGs into the page, where they follow its light or dark theme."""
    if app.builder.format != "html":
        return
    for image in list(doctree.findall(nodes.image)):
        if image["uri"].endswith(".svg") and "/pictures/" in image["uri"]:
            text = (Path(app.srcdir) / image["uri"]).read_text(encoding="utf-8")
            image.replace_self(nodes.raw("", text, format="html"))


def stack_tables(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Mark the tables of sentences, whose rows a phone shows as blocks; not those of numbers."""
    if page.startswith(("explanation/", "reference/", "index")):
        for table in doctree.findall(nodes.table):
            if len(list(table.findall(nodes.colspec))) > 2:
                table["classes"].append("stacked")
    if page.startswith("internals/"):  # code of any length
        for table in doctree.findall(nodes.table):
            table["classes"].append("wrapped")


def draw_navigation(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Give the theme the tree of all pages, made of their titles.

    Sphinx's own copies the headings of all pages anew for each page, only to drop them: nearly
    half the time of a build.
    """
    open_pages = {page, *TocTree(app.env).get_toctree_ancestors(page)}

    def tree(parent: str, level: int) -> str:
        entries = []
        for child in app.env.toctree_includes.get(parent, ()):
            item = f"toctree-l{level}{' current' if child in open_pages else ''}"
            link, here = app.builder.get_relative_uri(page, child), ""
            if child == page:
                link, here = "#", "current "
            entries.append(
                f'<li class="{item}"><a class="{here}reference internal" href="{escape(link)}">'
                f"{escape(app.env.titles[child].astext())}</a>{tree(child, level + 1)}</li>"
            )
        return f"<ul>{''.join(entries)}</ul>" if entries else ""

    context["toctree"] = lambda **_: tree(app.config.root_doc, 1)


class WordSearch(SearchEnglish):
    """The site's search, for pages in English and in Chinese."""

    def split(self, input: str) -> list[str]:
        """Split a text into its words, and runs of Chinese also into pairs of characters: a search
        for fewer than three characters finds whole entries of the index alone."""
        words = super().split(input)
        runs = re.findall(r"[\u3400-\u9fff]{3,}", input)
        return words + [run[at : at + 2] for run in runs for at in range(len(run) - 1)]


def source_pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """A page with the source of every file that was linked to."""
    shown: set[str] = app.bertine_shown
    for target in sorted(shown):
        try:
            lexer = get_lexer_for_filename(target)
        except ClassNotFound:
            lexer = TextLexer()
        formatter = HtmlFormatter(linenos="inline", lineanchors="line", wrapcode=True)
        code = highlight(source_of(target), lexer, formatter)
        body = f"<h1><code>{escape(target)}</code></h1>\n{code}"
        yield page_of(target), {"title": escape(target), "body": body}, "page.html"


def resolve_public_name(
    app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, content: nodes.Element
) -> nodes.Element | None:
    """Find the full path of ``finetune``, as docstrings call it, at
    ``bertine.finetune``, where it is documented."""
    if node.get("refdomain") != "py":
        return None
    words = node["reftarget"].split(".")
    for start, word in enumerate(words):
        if word in bertine.__all__:
            target = ".".join(["bertine", *words[start:]])
            domain, page = env.domains.python_domain, env.docname
            return domain.resolve_xref(env, page, app.builder, "obj", target, node, content)
    return None


def setup(app: Sphinx) -> dict[str, Any]:
    app.bertine_shown = set()
    languages["en"] = WordSearch
    app.connect("source-read", read_document)
    app.connect("doctree-resolved", resolve_links)
    app.connect("doctree-resolved", inline_pictures)
    app.connect("doctree-resolved", stack_tables)
    app.connect("html-page-context", draw_navigation, priority=400)  # before the theme's
    app.connect("html-collect-pages", source_pages)
    app.connect("missing-reference", resolve_public_name)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
