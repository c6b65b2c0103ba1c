"""Declare the commands that publish a model: ``serve``, ``export``, ``convert`` and GLUE's."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from bertine.commands.parser import Command, Parser, Switch, add_options
from bertine.core.names import ActivationName, ExportFormat

# ``bertine serve``: answers over HTTP.


def _add_serve_arguments(parser: Parser) -> None:
    from bertine.options.inference import ServeOptions

    parser.add_argument(
        "models",
        metavar="MODEL",
        nargs="+",
        help="a model directory, or NAME=MODEL; the first answers requests that name none",
    )
    add_options(parser, ServeOptions)


SERVE = Command(
    name="serve",
    summary="answer over HTTP, with a page to try",
    description="Answer over HTTP: predictions, filled masks, vectors, and a page to try them on.\n"
    "Needs fastapi, uvicorn, httptools and prometheus-client. SIGTERM or Ctrl-C ends it;\n"
    "requests that have begun are answered.",
    add_arguments=_add_serve_arguments,
    examples="bertine serve reviews-model\nbertine serve reviews-model --port 8080",
    common="--host --port --api-key-file --allowed-hosts --precision --device --max-wait-ms "
    "--config",
)


# ``bertine export``: a model as a graph that runs without Bertine.


def _add_export_arguments(parser: Parser) -> None:
    from bertine.options.inference import ExportOptions

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
    add_arguments=_add_export_arguments,
)


# ``bertine convert``: any model directory in Hugging Face's format.


def _add_convert_arguments(parser: Parser) -> None:
    parser.add_argument(
        "model",
        metavar="MODEL",
        type=Path,
        help="a model directory of any kind: Google's with a TensorFlow checkpoint, or one with "
        "pytorch_model.bin; a folder of ELMo's published options and weights; or vectors of words, "
        "a folder of word2vec or a .bin, .txt or .vec file",
    )
    parser.add_argument(
        "--output",
        "--out",
        metavar="DIR",
        type=Path,
        required=True,
        help="folder to write; a model directory there is replaced (of vectors of words a folder, "
        "or a .bin, .txt or .vec file)",
    )
    parser.add_argument(
        "--hidden-act",
        choices=get_args(ActivationName),
        help="the activation, in place of what the model directory says or Google's checkpoint was "
        "taken to mean: gelu is with erf, gelu_new with tanh (not given: as it is)",
    )


CONVERT = Command(
    name="convert",
    summary="write a model as a Hugging Face directory",
    description="Write a model as a Hugging Face model directory, which transformers opens too:\n"
    "config.json, model.safetensors and the tokenizer. TensorFlow is not needed:\n\n"
    "    bertine convert uncased_L-12_H-768_A-12 --out bert-base-uncased",
    add_arguments=_add_convert_arguments,
)


# ``bertine glue-submission``: predictions for the GLUE leaderboard.


def _add_glue_submission_arguments(parser: Parser) -> None:
    from bertine.options.training import TrainedMachine

    parser.add_argument(
        "models",
        metavar="MODEL",
        type=Path,
        nargs="+",
        help="models of 'bertine finetune glue', or the folder of 'bertine finetune glue --all'",
    )
    parser.require_path(
        "--data", "DIR", "the folder of GLUE's tasks' folders, with their test files"
    )
    parser.require_path("--out", "FILE", "the zip file to write")
    add_options(parser, TrainedMachine)


GLUE_SUBMISSION = Command(
    name="glue-submission",
    summary="predict GLUE's test files, zipped for the leaderboard",
    description="Predict GLUE's test files and zip the answers as the leaderboard wants them:\n"
    "CoLA.tsv, SST-2.tsv, MRPC.tsv, STS-B.tsv, QQP.tsv, MNLI-m.tsv, MNLI-mm.tsv, QNLI.tsv,\n"
    "RTE.tsv, WNLI.tsv, AX.tsv. The ones for which there is no model are named.",
    add_arguments=_add_glue_submission_arguments,
)
