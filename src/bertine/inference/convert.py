"""Convert model directories to Hugging Face's format, and word vectors between formats.

Weights in older formats become ``model.safetensors``; a checkpoint folder of Google's becomes a
model directory that `transformers` opens.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from bertine.core.console import Report, visible_list
from bertine.core.contrib import job_of_model
from bertine.core.errors import BertineError
from bertine.core.files import check_replaceable, os_errors, read_json_object, write_json
from bertine.core.names import ActivationName, option
from bertine.families.bart import GENERATION_CONFIG
from bertine.hub.model_directory import (
    CONFIG,
    TASK,
    load_model,
    model_folder,
    only_here,
    save_model,
)
from bertine.hub.weights import settings_file, weight_files
from bertine.models.layers import activation
from bertine.options.verbs import takes_options
from bertine.tokenization.tokenizer import FILES


@dataclass(frozen=True, repr=False)
class Conversion(Report):
    """The result of converting a model directory.

    Attributes:
        output: the new folder.
        parameters: the number of parameters of the model.
        loaded: lines about the tensors that were loaded.
        hidden_act: the activation in its ``config.json``.
        left_behind: files and folders of the old directory that were not copied.
    """

    output: Path
    parameters: int
    loaded: list[str] = field(default_factory=list)
    hidden_act: str = ""
    left_behind: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """List what the command prints."""
        lines = [
            *self.loaded,
            f"written to {self.output}: {self.parameters:,} parameters in fp32, hidden_act "
            f"{self.hidden_act}",
        ]
        if self.left_behind:
            more = f" and {len(self.left_behind) - 8} more" if len(self.left_behind) > 8 else ""
            lines.append(f"not converted: {visible_list(self.left_behind[:8])}{more}")
        return lines


@takes_options()
def convert(
    model: Path | str,
    output: Path | str,
    *,
    hidden_act: ActivationName | None = None,
) -> Conversion | Report:
    """Write a model as a Hugging Face model directory that `transformers` opens, or word vectors in
    another format. A model directory has ``config.json``, ``model.safetensors`` and the files of
    its tokenizer.

    Args:
        model: a model directory of any kind: Google's ``bert_config.json`` with a TensorFlow
            checkpoint, or one with ``pytorch_model.bin`` or several safetensors; or ELMo's
            published options and weights, which become a directory of Bertine's own. Or vectors of
            words: a folder of :func:`~bertine.word2vec`, or a file of the word2vec program's,
            binary (``.bin``) or text (``.txt``, ``.vec``).
        output: the folder; an existing model directory is replaced. For vectors of words a folder,
            or a file ``.bin``, ``.txt`` or ``.vec``.
        hidden_act: the activation to write, in place of the one in the model directory or the one
            assumed for "gelu" in a checkpoint of Google's: "gelu" uses erf, "gelu_new" tanh. The
            weights stay the same.

    Returns:
        What was read, written and left out.

    Raises:
        BertineError: an unknown activation; no such model, or a damaged one; a model type that
            `transformers` does not have; `output` holds something else, or is the model's own
            folder.
    """
    if (own := job_of_model(model, "convert")) is not None:
        converted: Report = own(model, Path(output), hidden_act)
        return converted
    if hidden_act is not None:
        activation(hidden_act)
    output = Path(output)
    folder = model_folder(model)
    there = names_in(folder, output)
    read = {settings_file(folder).name, TASK, *(file.name for file in weight_files(folder)), *FILES}
    loaded = load_model(folder)
    if reason := only_here(loaded.model):
        raise BertineError(f"{folder}: is for Bertine alone: {reason}")
    if hidden_act is not None:
        loaded.model.config = loaded.config.replace(hidden_act=hidden_act)
    save_model(output, loaded.model, loaded.tokenizer, task=loaded.task)
    writing, written = folder / GENERATION_CONFIG, output / GENERATION_CONFIG
    if writing.is_file() and written.is_file():  # the settings for generating texts still hold
        write_json(written, read_json_object(writing))
        read.add(GENERATION_CONFIG)
    return Conversion(
        output,
        sum(parameter.numel() for parameter in loaded.model.parameters()),
        loaded.report.lines(),
        loaded.model.config.hidden_act,
        [name for name in there if name not in read],
    )


def names_in(folder: Path, output: Path) -> list[str]:
    """Return the names of what is in the model directory `folder`, hidden files left out.

    Raises:
        BertineError: `output` holds something else than a model directory, or is `folder` itself.
    """
    check_replaceable(output, "model directory", lambda path: (path / CONFIG).is_file())
    if output.resolve() == folder.resolve():
        raise BertineError(
            f"{output}: is the model's own folder, which would be replaced; choose another "
            f"({option('output')})"
        )
    with os_errors(folder, "looking at it"):
        return sorted(entry.name for entry in folder.iterdir() if entry.name[0] != ".")
