"""The commands of ``bertine``, in the order in which they are used. A new one is a file and a line
here."""

from bertine.commands.blimp import BLIMP
from bertine.commands.convert import CONVERT
from bertine.commands.demo import DEMO
from bertine.commands.embed import EMBED
from bertine.commands.evaluate import EVALUATE
from bertine.commands.explain import EXPLAIN
from bertine.commands.export import EXPORT
from bertine.commands.fill_mask import FILL_MASK
from bertine.commands.generate import GENERATE
from bertine.commands.glue_submission import GLUE_SUBMISSION
from bertine.commands.index_vectors import INDEX_VECTORS
from bertine.commands.inspect import INSPECT
from bertine.commands.options.command import Command
from bertine.commands.predict import PREDICT
from bertine.commands.prepare import PREPARE
from bertine.commands.report import REPORT
from bertine.commands.serve import SERVE
from bertine.commands.similar import SIMILAR
from bertine.commands.train.check_labels import CHECK_LABELS
from bertine.commands.train.distill import DISTILL
from bertine.commands.train.feature_based import FEATURE_BASED
from bertine.commands.train.few_shot import FEW_SHOT
from bertine.commands.train.finetune import FINETUNE
from bertine.commands.train.finetune_similarity import FINETUNE_SIMILARITY
from bertine.commands.train.learning_curve import LEARNING_CURVE
from bertine.commands.train.lr_find import LR_FIND
from bertine.commands.train.paper import PAPER
from bertine.commands.train.pretrain import PRETRAIN
from bertine.commands.train.pretrain_elmo import PRETRAIN_ELMO
from bertine.commands.train.search import SEARCH
from bertine.commands.vocab import VOCAB
from bertine.commands.word2vec import WORD2VEC

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
