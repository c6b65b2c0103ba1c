"""What comes with Bertine beside its core: ELMo, word2vec, static tables, feature-based taggers,
TensorFlow checkpoints, the papers' tables and the demo.

These tables say where each of them is, as texts: the package imports nothing. The core knows it
through :mod:`bertine.core.contrib` alone, and works without this package.
"""

#: Public name → its module.
NAMES = {
    "WordVectors": "bertine.word_vectors.vectors",
    "feature_based": "bertine.contrib.feature_based.feature_based",
    "paper": "bertine.contrib.papers.paper",
    "paper_tables": "bertine.contrib.papers.table",
    "pretrain_elmo": "bertine.training.elmo",
    "run_demo": "bertine.contrib.demo.run",
    "word2vec": "bertine.word_vectors.train",
}

#: Heading of ``bertine --help`` → the commands below it, after those of the core.
COMMANDS = {
    "begin": ["bertine.contrib.commands:DEMO"],
    "train": ["bertine.contrib.commands:PRETRAIN_ELMO", "bertine.contrib.commands:WORD2VEC"],
    "judge and compare": [
        "bertine.contrib.commands:FEATURE_BASED",
        "bertine.contrib.commands:PAPER",
    ],
}

#: Kind of model folder that is not an encoder of pieces → what the core asks of it, each a function
#: that takes the path of the model first:
#:
#: - recognize: whether the path is, or names, such a model
#: - vectors: an embedder; keywords are those of :meth:`bertine.Embedder.load`
#:
#: A job that is missing here is refused as for any folder without a model of pieces.
MODELS: dict[str, dict[str, str]] = {}

#: Program whose files of weights are read → a :class:`bertine.hub.weights.ForeignWeights`.
WEIGHTS = {"tensorflow": "bertine.contrib.tensorflow.checkpoint:Checkpoint"}

#: Kind of ``distill`` → its options, the function that does it, and its line of help.
DISTILL: dict[str, dict[str, str]] = {}
