"""``bertine export``: a model as a graph that runs without Bertine."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from bertine.commands.options.arguments import Parser, Switch
from bertine.commands.options.command import Command
from bertine.commands.options.group import add_options
from bertine.names import ExportFormat


def _add_arguments(parser: Parser) -> None:
    from bertine.options.answering import ExportOptions

    parser.add_argument("model", metavar="MODEL", type=Path, help="a model directory of any kind")
    parser.add_argument(
        "--output",
        "--out",
        metavar="DIR",
        type=Path,
        required=True,
        help="folder to write; an earlier export there is replaced",
    )
    parser.add_argument(
        "--format",
        choices=get_args(ExportFormat),
        default="onnx",
        help="onnx: model.onnx (needs onnx, onnxruntime, onnxscript); torch: model.pt2, a program "
        "of torch.export",
    )
    parser.add_argument(
        "--int8", action=Switch, help="of onnx: also write model.int8.onnx, with int8 weights"
    )
    parser.add_argument(
        "--data",
        metavar="PATH",
        type=Path,
        help="labelled examples to score model and graph on, read as by 'bertine evaluate': a file "
        "with the columns the model was trained with, or a folder with dev.*, val.* or "
        "validation.* (not given: no scores)",
    )
    add_options(parser, ExportOptions)


EXPORT = Command(
    name="export",
    summary="write a model as ONNX or as a PyTorch program",
    description="Write a model as a graph that runs without Bertine, for batches and texts of any\n"
    "size, compare its answers with the model's, and score both on labelled examples. A\n"
    "fine-tuned model gives its logits; any other, or with one of the options for vectors, the\n"
    "vectors of texts:\n\n"
    "    bertine export MODEL --output exported --int8 --data held-out.csv",
    add_arguments=_add_arguments,
)
