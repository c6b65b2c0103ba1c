"""Links of documents to files of the repository, turned into links of the site.

On GitHub a page under ``docs/`` links to ``../src/bertine/core/rng.py``. The site has a page for
every file that is linked to so. Imports no Sphinx, so the tests need none.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: Documents outside ``docs/`` that have a page in the site, by their path in the repository.
PAGES = {
    "README.md": "index",
    "README.zh.md": "zh/index",
    "CONTRIBUTING.md": "project/contributing",
    "CHANGELOG.md": "project/changelog",
    "benchmarks/README.md": "project/benchmarks",
    "recipes/README.md": "project/recipes",
}
#: Those whose page is another text: links to their headings lead to its beginning.
_FRONT = ("README.md", "README.zh.md")
#: The scheme of a link to a file's page, until the page that has the link is written.
SCHEME = "repository"
_LINK = re.compile(r"(?<=\]\()([^)\s#:]+)(#[^)\s]*)?(?=\))")
_FENCED = re.compile(r"(^(`{3,}).*?^\2[ ]*$)", re.MULTILINE | re.DOTALL)


def document_of(page: str) -> str:
    """The file, by its path in the repository, whose text is shown on `page` of the site."""
    shown = {name: document for document, name in PAGES.items() if document not in _FRONT}
    return shown.get(page, f"docs/{page}.md")


def redirected(document: str, text: str) -> str:
    """Make the links in `text` that do not lead to a page under ``docs/`` lead into the site.

    Args:
        document: the path in the repository of the file that has this text.
        text: its Markdown. Fenced blocks stay as they are.
    """

    def lead(match: re.Match[str]) -> str:
        anchor = match[2] or ""
        target = os.path.normpath(os.path.join(os.path.dirname(document), match[1]))
        if (ROOT / target / "README.md").exists():
            target = os.path.normpath(f"{target}/README.md")
        if target in PAGES:
            return f"/{PAGES[target]}.md{'' if target in _FRONT else anchor}"
        if target.startswith("docs/"):
            inside = document.startswith("docs/")
            return match[0] if inside else f"/{target.removeprefix('docs/')}{anchor}"
        if target.startswith("..") or not (ROOT / target).exists():
            return match[0]
        return f"{SCHEME}:{target}"

    parts = _FENCED.split(text)
    # Of each fenced block the split gives the block and its fence.
    outside, blocks = parts[::3], [*parts[1::3], ""]
    return "".join(
        _LINK.sub(lead, part) + block for part, block in zip(outside, blocks, strict=True)
    )


def page_of(target: str) -> str:
    """The name of the page for a file or folder of the repository."""
    return f"source/{target}/index" if (ROOT / target).is_dir() else f"source/{target}"


def source_of(target: str) -> str:
    """The text on that page: of a file its lines, of a folder the names in it."""
    path = ROOT / target
    if path.is_dir():
        names = (f"{each.name}/" if each.is_dir() else each.name for each in path.iterdir())
        return "\n".join(sorted(name for name in names if not name.startswith(("_", ".")))) + "\n"
    return path.read_text(encoding="utf-8")
