"""The documentation site: its pages of commands, its links, and that nothing is left out.

What needs Sphinx is not tested here: `make docs` builds the site, with warnings as errors.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import bertine
from bertine.cli import COMMANDS
from bertine.core.loss_names import OF_TEACHERS, TERMS
from bertine.core.names import OBJECTIVES
from bertine.families.presets import PRESETS

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS / "_ext"))

from command_page import command_page, usage  # noqa: E402
from repository_links import PAGES, document_of, page_of, redirected, source_of  # noqa: E402


def test_a_commands_page_has_all_its_options() -> None:
    missing = []
    for name, command in COMMANDS.items():
        page = command_page(command)
        entries = re.findall(r"^````\{option\} (.*)$", page, re.MULTILINE)
        for action in command.parser().options():
            for spelling in action.option_strings or [action.metavar or action.dest]:
                if not any(re.search(rf"(^|[ \[]){spelling}\b", entry) for entry in entries):
                    missing.append(f"{name}: {spelling}")
        assert page.count("````{option}") == page.count("````\n"), name
    assert missing == []


def test_defaults_and_requirements_are_on_the_page() -> None:
    page = command_page(COMMANDS["vocab"])
    size = page.partition("````{option} --vocab-size N")[2].partition("````")[0]
    assert "*default: `30522`*" in size
    assert "Pieces, special tokens and single characters included." in size
    split = page.partition("````{option} --split-chinese, --no-split-chinese")[2]
    assert "*default: `--split-chinese`*" in split.partition("````")[0]
    assert "*required*" in page.partition("````{option} --out DIR")[2].partition("````")[0]
    assert "## Vocabulary" in page


def test_usage_has_what_must_be_given() -> None:
    assert usage(COMMANDS["vocab"]) == "bertine vocab CORPUS [CORPUS ...] --out DIR [options]"
    assert usage(COMMANDS["distill"]) == "bertine distill KIND [DATA] --out RUN [options]"
    assert usage(COMMANDS["predict"]) == "bertine predict MODEL [TEXT ...] [options]"


def test_every_command_has_a_page_and_names_its_function() -> None:
    index = (DOCS / "reference" / "commands" / "index.md").read_text(encoding="utf-8")
    for name, command in COMMANDS.items():
        page = (DOCS / "reference" / "commands" / f"{name}.md").read_text(encoding="utf-8")
        assert f"```{{bertine-command}} {name}\n```" in page
        assert re.search(rf"^{name}$", index, re.MULTILINE), name
        assert command.function in bertine.__all__


def test_everything_public_is_in_the_reference() -> None:
    pages = (DOCS / "reference" / "api").glob("*.md")
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    named = re.findall(r"^\.\. auto\w+:: bertine\.(\w+)$", text, re.MULTILINE)
    assert sorted(named) == sorted(bertine.__all__)


def test_every_finding_is_explained() -> None:
    reports = ROOT / "src" / "bertine" / "reports"
    kinds: set[str] = set()
    for file in [*reports.glob("*checks.py"), reports / "diagnosis.py"]:
        code = file.read_text(encoding="utf-8")
        kinds |= set(re.findall(r'[Ff]inding\(\s*"([a-z-]+)"', code))
        # Of side terms with few answers: next sentences, the order of sentences, replaced tokens.
        few = {name: term for name, term in TERMS.items() if name not in OF_TEACHERS}
        side = [name for name, term in few.items() if term.choices or term.rarer]
        ends = re.findall(r'f"\{name\}(-[a-z-]+)"', code)
        kinds |= {f"{name}{end}" for name in side for end in ends}
    assert len(kinds) > 20
    page = (DOCS / "explanation" / "diagnosis.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[a-z-]+`(?:, `[a-z-]+`)*) \|", page, re.MULTILINE)
    explained = {name for row in rows for name in re.findall(r"`([a-z-]+)`", row)}
    assert explained == kinds


def test_links_out_of_the_documents_lead_into_the_site() -> None:
    text = (
        "[a](../src/bertine/core/rng.py) [b](../README.md#use-it) [c](../benchmarks) "
        "[d](scale.md#x)\n"
        "[e](https://example.org/x.md) [f](#here) [g](../tests/mistakes)\n"
        "```text\n[h](../src/bertine/core/rng.py)\n```\n[i](../src/bertine/core/files.py)"
    )
    assert redirected("docs/architecture.md", text) == (
        "[a](repository:src/bertine/core/rng.py) [b](/index.md) [c](/project/benchmarks.md) "
        "[d](scale.md#x)\n"
        "[e](https://example.org/x.md) [f](#here) [g](repository:tests/mistakes)\n"
        "```text\n[h](../src/bertine/core/rng.py)\n```\n[i](repository:src/bertine/core/files.py)"
    )
    inside = "[a](../docs/results.md#defaults) [b](../no/such/file)"
    assert redirected("benchmarks/README.md", inside) == (
        "[a](/results.md#defaults) [b](../no/such/file)"
    )


def test_pages_of_documents_and_sources() -> None:
    assert document_of("project/changelog") == "CHANGELOG.md"
    assert document_of("index") == "docs/index.md"
    assert page_of("src/bertine/core/rng.py") == "source/src/bertine/core/rng.py"
    assert page_of("tests/mistakes") == "source/tests/mistakes/index"
    assert "fuzz.py" in source_of("tests/mistakes").splitlines()
    assert source_of("LICENSE").strip().startswith("Apache License")
    for page in PAGES.values():
        assert (DOCS / f"{page}.md").is_file()


def test_pictures_follow_light_and_dark() -> None:
    """Inlined in a page, they have the same names for the same colours, and nothing else."""
    pictures = sorted((DOCS / "explanation" / "pictures").glob("*.svg"))
    assert len(pictures) >= 6
    for picture in pictures:
        text = picture.read_text(encoding="utf-8")
        assert "prefers-color-scheme:dark" in text
        body = text.partition("</style>")[2]
        assert not re.search(r"#[0-9a-fA-F]{3,6}\b|\bfill=|\bid=|<script", body), picture.name
        assert "<title>" in text


def test_the_tutorials_data_have_their_licence() -> None:
    folder = DOCS / "tutorials" / "data"
    text = (folder / "LICENSE.md").read_text(encoding="utf-8")
    files = {file.name for file in folder.iterdir()} - {"LICENSE.md"}
    assert files == set(re.findall(r"`([\w-]+\.\w+)`", text))


@pytest.mark.parametrize("page", ["guides/pretrain.md", "zh/pretrain.md"])
def test_the_pages_on_pre_training_name_every_size_and_objective(page: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    assert [name for name in PRESETS if f"`{name}`" not in text] == []
    usual = "mlm-nsp"  # that of BERT, which nobody has to ask for
    assert [name for name in OBJECTIVES if name != usual and name not in text] == []
