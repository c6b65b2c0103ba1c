"""Describe what a model will see of a token store, or what a model is: ``inspect``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bertine.errors import BertineError
from bertine.model_folders import locate, refuse_word_vectors
from bertine.options.instances import InspectionOptions, InstanceForm, InstanceSettings
from bertine.options.verbs import takes_options
from bertine.terminal.shown import Shown


@dataclass(frozen=True, repr=False)
class Inspection(Shown):
    """The description of what is in `path`."""

    path: Path
    text: str

    def lines(self) -> list[str]:
        """List the lines of the description."""
        return self.text.splitlines()


@takes_options()
def inspect(
    path: Path | str,
    *,
    options: InspectionOptions,
) -> Inspection:
    """Describe the token store or the model directory `path`.

    Args:
        path: a folder that ``prepare`` wrote, or a model directory.
        options: for a store, of the instances that are shown.

    Raises:
        BertineError: `path` is neither, or is damaged; `html` is given for a model.
    """
    path = locate(path)
    if (path / "manifest.json").is_file():
        from bertine.inspection.store import inspect_store

        lines = inspect_store(
            path,
            num_instances=options.num_instances,
            settings=InstanceSettings(**InstanceForm.of(options).values(), seed=options.seed),
            html=options.html,
        )
    elif _is_model(path) or (path / "run.json").is_file():
        if options.html is not None:
            raise BertineError(f"{path}: is a model, but html shows the instances of a token store")
        from bertine.inspection.model import describe_model

        lines = describe_model(path)
    elif not path.exists():
        raise BertineError(f"{path}: no such folder")
    elif any((path / name).is_file() for name in ("tokenizer.json", "vocab.txt")):
        raise BertineError(
            f"{path}: is a tokenizer alone; inspect a store that 'bertine prepare' made with it"
        )
    else:
        refuse_word_vectors(path)
        raise BertineError(
            f"{path}: neither a token store (it has no manifest.json) nor a model directory "
            "(it has no config.json)"
        )
    return Inspection(path, "\n".join(lines))


def _is_model(path: Path) -> bool:
    from bertine.interop.directory import is_model_directory

    return is_model_directory(path)
