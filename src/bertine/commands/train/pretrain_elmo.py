"""``bertine pretrain-elmo``: two language models over words."""

from __future__ import annotations

from bertine.commands.options.arguments import Parser
from bertine.commands.options.command import Command
from bertine.commands.options.group import add_options
from bertine.commands.options.inputs import CORPUS_HELP, add_corpus_argument


def _add_arguments(parser: Parser) -> None:
    from bertine.options.elmo import ElmoOptions

    add_corpus_argument(parser)
    parser.add_argument(
        "--model",
        metavar="SIZE|FILE|DIR",
        required=True,
        help="for a new model elmo-tiny, -mini, -small, -medium or -original, or a config.json "
        "with sizes of your own; or an ELMo to go on from",
    )
    parser.require_path("--out", "RUN", "folder of the run and its model")
    add_options(parser, ElmoOptions)


PRETRAIN_ELMO = Command(
    name="pretrain-elmo",
    summary="train an ELMo on text",
    description="Train ELMo: a language model forwards and one backwards, over characters of\n"
    "words (Peters et al. 2018).\n" + CORPUS_HELP,
    add_arguments=_add_arguments,
)
