"""List the commands of ``bertine`` in the order of their use; a new command needs a line here."""

from bertine.commands.parser import Command
from bertine.commands.share import CONVERT, EXPORT, GLUE_SUBMISSION, SERVE
from bertine.commands.study import (
    BLIMP,
    CHECK_LABELS,
    DEMO,
    FEATURE_BASED,
    INSPECT,
    LEARNING_CURVE,
    LR_FIND,
    PAPER,
    REPORT,
    SEARCH,
)
from bertine.commands.train import (
    DISTILL,
    FEW_SHOT,
    FINETUNE,
    FINETUNE_SIMILARITY,
    PREPARE,
    PRETRAIN,
    PRETRAIN_ELMO,
    VOCAB,
    WORD2VEC,
)
from bertine.commands.use import (
    EMBED,
    EVALUATE,
    EXPLAIN,
    FILL_MASK,
    GENERATE,
    INDEX_VECTORS,
    PREDICT,
    SIMILAR,
)

COMMANDS: dict[str, Command] = {
    command.name: command
    for command in (
        DEMO,
        VOCAB,
        PREPARE,
        INSPECT,
        PRETRAIN,
        PRETRAIN_ELMO,
        LR_FIND,
        FINETUNE,
        FINETUNE_SIMILARITY,
        FEW_SHOT,
        LEARNING_CURVE,
        SEARCH,
        CHECK_LABELS,
        DISTILL,
        REPORT,
        EVALUATE,
        BLIMP,
        PREDICT,
        EXPLAIN,
        FILL_MASK,
        GENERATE,
        EMBED,
        INDEX_VECTORS,
        SIMILAR,
        EXPORT,
        CONVERT,
        SERVE,
        GLUE_SUBMISSION,
        FEATURE_BASED,
        PAPER,
        WORD2VEC,
    )
}
