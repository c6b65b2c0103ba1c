"""``bertine convert``: any model directory as Hugging Face's."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from bertine.commands.options.arguments import Parser
from bertine.commands.options.command import Command
from bertine.names import ActivationName


def _add_arguments(parser: Parser) -> None:
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
    add_arguments=_add_arguments,
)
