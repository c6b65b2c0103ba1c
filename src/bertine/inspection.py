"""``inspect``: what the model will see (of a token store), or what a model is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bertine.bundled import locate
from bertine.errors import BertineError
from bertine.names import InputFormat, Masking
from bertine.options.types import check_types
from bertine.terminal.shown import Shown


@dataclass(frozen=True, repr=False)
class Inspection(Shown):
    """What was found in `path`, as text."""

    path: Path
    text: str

    def lines(self) -> list[str]:
        return self.text.splitlines()


@check_types
def inspect(
    path: Path | str,
    *,
    num_instances: int = 3,
    max_seq_length: int = 128,
    input_format: InputFormat = "segment-pair",
    whole_word_mask: bool = False,
    masking: Masking = "dynamic",
    seed: int = 0,
    html: Path | str | None = None,
) -> Inspection:
    """Describe the token store or the model directory `path`.

    Args:
        path: a folder that ``prepare`` wrote, or a model directory.
        num_instances: for a store, how many pre-training instances to show.
        max_seq_length: for a store, tokens in these instances.
        input_format: for a store, what an instance is made of: "segment-pair", "sentence-pair",
            "full-sentences" or "doc-sentences".
        whole_word_mask: for a store, whether whole words are chosen for prediction.
        masking: for a store, "dynamic" or "static".
        seed: for a store, of these instances; the same as in ``pretrain`` shows its first ones.
        html: for a store, a file to write the same to as a page.

    Raises:
        BertineError: `path` is neither, or is damaged; `html` is given for a model.
    """
    path = locate(path)
    if (path / "manifest.json").is_file():
        from bertine.data.inspection.store import inspect_store

        found = inspect_store(
            path,
            num_instances=num_instances,
            max_seq_length=max_seq_length,
            input_format=input_format,
            whole_word_mask=whole_word_mask,
            masking=masking,
            seed=seed,
            html=html,
        )
    elif (path / "config.json").is_file() or (path / "run.json").is_file():
        if html is not None:
            raise BertineError(f"{path}: is a model, but html shows the instances of a token store")
        from bertine.model_inspection import describe_model

        found = describe_model(path)
    elif not path.exists():
        raise BertineError(f"{path}: no such folder")
    elif any((path / name).is_file() for name in ("tokenizer.json", "vocab.txt")):
        raise BertineError(
            f"{path}: is a tokenizer alone; inspect a store that 'bertine prepare' made with it"
        )
    else:
        raise BertineError(
            f"{path}: neither a token store (it has no manifest.json) nor a model directory "
            "(it has no config.json)"
        )
    return Inspection(path, "\n".join(found))
