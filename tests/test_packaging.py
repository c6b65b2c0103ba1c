"""What the repository promises to whoever installs from it: pins, a wheel that runs, targets."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import platform
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from shutil import which
from typing import Any

import pytest

import bertine

ROOT = Path(__file__).resolve().parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
#: What is imported under another name than it is installed under.
IMPORTED_AS = {
    "sklearn": "scikit-learn",
    "faiss": "faiss-cpu",
    "yaml": "pyyaml",
    "modelscope_hub": "modelscope",  # whose part it is
}


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def required(requirements: list[str]) -> set[str]:
    """The names in a list of requirements."""
    names = [re.match(r"[A-Za-z0-9._-]+", requirement) for requirement in requirements]
    return {canonical(name[0]) for name in names if name}


def pinned() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line.partition("==") for line in lines if line and not line.startswith("#")]
    assert all(equals for _, equals, _ in pins), "every line of constraints.txt is name==version"
    return {canonical(name): version for name, _, version in pins}


def test_everything_required_is_pinned() -> None:
    """But for the peers of a benchmark, which `make setup` does not install."""
    extras = [
        line
        for name, lines in PROJECT["optional-dependencies"].items()
        if name != "bench"
        for line in lines
    ]
    names = required([*PROJECT["dependencies"], *extras])
    assert names - set(pinned()) == set()


def test_what_is_pinned_is_what_the_tests_run_with() -> None:
    for name in required(PROJECT["dependencies"]):
        installed = importlib.metadata.version(name).partition("+")[0]
        assert pinned()[name] == installed, f"{name}: run make setup"


def test_no_pin_names_a_local_build() -> None:
    assert pinned()["torch"] == "2.13.0"
    assert not [name for name, version in pinned().items() if "+" in version]


@pytest.mark.slow
def test_every_import_is_declared() -> None:
    """A wheel installed elsewhere must bring all that the package imports."""
    extras = [
        line
        for name, lines in PROJECT["optional-dependencies"].items()
        if name != "dev"
        for line in lines
    ]
    declared = required([*PROJECT["dependencies"], *extras])
    for file in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            modules: list[str] = []
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                modules = [node.module]
            for module in modules:
                top = module.partition(".")[0]
                if top not in sys.stdlib_module_names and top != "bertine":
                    assert canonical(IMPORTED_AS.get(top, top)) in declared, f"{file}: {module}"


def test_changelog_begins_with_this_version() -> None:
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == bertine.__version__


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    done = subprocess.run([*command, str(ROOT)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = folder.glob("bertine-*.whl")
    return path


@pytest.mark.slow
def test_wheel_holds_code_data_types_and_licence(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    source = ROOT / "src"
    for path in (source / "bertine").rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            assert str(path.relative_to(source)) in names
    assert {"bertine/py.typed", "bertine/signatures.pyi"} <= names
    assert [name for name in names if name.endswith("licenses/LICENSE")]
    outside = [name for name in names if not name.startswith(("bertine/", "bertine-"))]
    assert outside == []
    # With the kernel, which needs a C compiler, a wheel is for one kind of system.
    compiles = (platform.system(), platform.machine()) == ("Linux", "x86_64") and which("cc")
    assert ("bertine/fast/_int8.so" in names) == bool(compiles)
    system = "linux_x86_64" if compiles else "any"
    assert wheel.name == f"bertine-{bertine.__version__}-py3-none-{system}.whl"
    # Of these at most 12 MB each for the students bertine-en and bertine-zh, which are worth it:
    # all that a plain `pip install` brings for English and Chinese.
    assert wheel.stat().st_size < 36e6


@pytest.mark.slow
def test_wheel_runs_elsewhere(wheel: Path, tmp_path: Path) -> None:
    installed = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--target", str(installed), str(wheel)], check=True)
    environment = {**os.environ, "PYTHONPATH": str(installed)}

    def run(*arguments: str) -> str:
        command = [sys.executable, *arguments]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        ).stdout

    where = run("-c", "import bertine; print(bertine.__file__)").strip()
    assert Path(where).is_relative_to(installed)
    assert run("-m", "bertine", "--version").strip() == f"bertine {bertine.__version__}"
    assert (
        run(str(installed / "bin" / "bertine"), "--version") == f"bertine {bertine.__version__}\n"
    )
    assert "TASK" in run("-m", "bertine", "finetune", "--help")


def make(*arguments: str) -> str:
    return subprocess.run(
        ["make", "--no-print-directory", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_make_alone_tells_every_target() -> None:
    told = re.findall(r"^  make (\S+)", make(), re.MULTILINE)
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert phony is not None
    assert sorted(told) == sorted(phony[1].split())


@pytest.mark.parametrize("target", ["demo", "test", "test-all", "check", "docs"])
def test_make_targets_set_up_by_themselves(target: str, tmp_path: Path) -> None:
    """On a fresh clone nothing else has to be typed."""
    planned = make("--dry-run", target, f"VENV={tmp_path / 'fresh'}")
    assert "-m venv" in planned
    assert "-c constraints.txt" in planned


def test_continuous_integration_runs_everything() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    text = script.read_text()
    assert "set -euo pipefail" in text
    targets = re.search(r"for target in (.*); do", text)
    assert targets is not None
    assert targets[1].split() == ["check", "test-all", "demo", "docs"]
    subprocess.run(["bash", "-n", str(script)], check=True)


def test_nothing_says_to_install_what_is_not_published() -> None:
    """Bertine is not on PyPI: ``pip install 'bertine[serve]'`` would fail, or fetch a stranger's
    package."""
    files = [
        *(ROOT / "src").rglob("*.py"),
        *(ROOT / "benchmarks").rglob("*.py"),
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
    ]
    assert len(files) > 300
    said = [str(file) for file in files if "bertine[" in file.read_text(encoding="utf-8")]
    assert said == []
