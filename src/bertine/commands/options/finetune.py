"""Arguments of ``bertine finetune`` alone: of own tables, and of how the weights are trained."""

from __future__ import annotations

from typing import get_args

from bertine.commands.options.arguments import Gather, Parser, Switch, real, whole
from bertine.names import ClassWeights, LongText, ScheduleName


def add_own_data_arguments(parser: Parser) -> None:
    """Choices, many labels, rare classes, long texts."""
    group = parser.add_argument_group("own data")
    group.add_argument(
        "--choice-columns",
        metavar="NAME",
        action=Gather,
        nargs="+",
        help="of choice: a column for each choice (not given: ending0, choice1, option A, …)",
    )
    group.add_argument(
        "--label-columns",
        metavar="NAME",
        action=Gather,
        nargs="+",
        help="of multi-label: a column of 0 and 1 for each label, in place of --label-column",
    )
    group.add_argument(
        "--label-separator",
        metavar="TEXT",
        help="of multi-label: between labels in one column (not given: | ; or , if it occurs)",
    )
    group.add_argument(
        "--threshold",
        metavar="P",
        type=real(0.0, 1.0),
        default=0.5,
        help="of multi-label: a label is given from this probability on",
    )
    group.add_argument(
        "--class-weights",
        choices=get_args(ClassWeights),
        help="let every class count the same in the loss, however rare",
    )
    group.add_argument(
        "--focal-gamma",
        metavar="X",
        type=real(0.0),
        default=0.0,
        help="focal loss: what is predicted well already counts less, the more so the higher it is "
        "(0: cross-entropy)",
    )
    group.add_argument(
        "--long-text",
        choices=get_args(LongText),
        default="head",
        help="what is read of a text longer than --max-length; windows: all of it, scores averaged",
    )


def add_judging_arguments(parser: Parser) -> None:
    """What the score is put beside."""
    group = parser.add_argument_group("score")
    group.add_argument(
        "--baselines",
        "--no-baselines",
        action=Switch,
        default=True,
        help="put the scores of cheap baselines beside the model's: the most frequent label, "
        "linear models on tf-idf and on the vectors of the model before training (some seconds)",
    )


def add_schedule_arguments(parser: Parser) -> None:
    """The schedule, the rates of the layers, what is not trained, and when to stop."""
    group = parser.add_argument_group("schedule and layers")
    group.add_argument(
        "--schedule",
        choices=get_args(ScheduleName),
        default="linear",
        help="of the rate after the warm-up; one-cycle: momentum too",
    )
    group.add_argument(
        "--layer-decay",
        metavar="P",
        type=real(0.0, 1.0),
        default=1.0,
        help="the rate of each layer as a share of that of the one above",
    )
    group.add_argument(
        "--freeze-layers", metavar="N", type=whole(), default=0, help="of the lowest layers"
    )
    group.add_argument(
        "--frozen",
        "--no-frozen",
        action=Switch,
        default=None,
        help="train no layer: fit the head alone, in seconds, on the vectors that the model gives "
        "already; by itself it is saved where it is better than the trained model, with "
        "--no-frozen never",
    )
    group.add_argument("--freeze-embeddings", action=Switch, help="do not train the embeddings")
    group.add_argument(
        "--patience",
        metavar="N",
        type=whole(1),
        help="stop when the task's score on the validation examples was not better for N epochs, "
        "and save the model of the best",
    )
