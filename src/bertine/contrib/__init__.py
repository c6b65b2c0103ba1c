"""What comes with Bertine beside its core: ELMo, word2vec, static tables, feature-based taggers,
TensorFlow checkpoints, the papers' tables and the demo.

These tables say where each of them is, as texts: the package imports nothing. The core knows it
through :mod:`bertine.core.contrib` alone, and works without this package.
"""

#: Public name → its module.
NAMES = {
    "WordVectors": "bertine.contrib.word2vec.vectors",
    "feature_based": "bertine.contrib.feature_based.feature_based",
    "paper": "bertine.contrib.papers.paper",
    "paper_tables": "bertine.contrib.papers.table",
    "pretrain_elmo": "bertine.contrib.elmo.pretrain",
    "run_demo": "bertine.contrib.demo.run",
    "word2vec": "bertine.contrib.word2vec.train",
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
#: - title, verbs: what it is, and what it is for, in messages; texts, no functions
#: - recognize: whether the path is, or names, such a model
#: - vectors: its class of :class:`~bertine.inference.embedding.encoder.TextEncoder`
#: - evaluate: its scores on a file, with the options of ``evaluate``; without, it is scored by its
#:   vectors
#: - blimp: what says how likely a sentence is, from a device and a precision
#: - convert: the conversion to an output folder, with an activation or None
#: - inspect: opens it; the ``lines()`` of what it returns describe it
#: - serve: its vectors for the server; an embedder with a tokenizer
#:
#: A job that is missing here is refused as for any folder without layers and heads.
MODELS: dict[str, dict[str, str]] = {
    "word-vectors": {
        "title": "a table of word vectors",
        "verbs": "embed, similar or feature-based",
        "recognize": "bertine.contrib.recognize:holds_word_vectors",
        "inspect": "bertine.contrib.word2vec.vectors:WordVectors.load",
        "vectors": "bertine.contrib.word2vec.encoder:WordEncoder",
        "convert": "bertine.contrib.word2vec.vectors:convert_vectors",
    },
    "elmo": {
        "title": "an ELMo",
        "verbs": "embed, similar or feature-based",
        "recognize": "bertine.contrib.recognize:elmo_folder",
        "inspect": "bertine.contrib.elmo.files:load_elmo",
        "vectors": "bertine.contrib.elmo.encoder:ElmoEncoder",
        "evaluate": "bertine.contrib.elmo.perplexity:evaluate_text",
        "blimp": "bertine.contrib.elmo.perplexity:BothWaysProbability.load",
        "convert": "bertine.contrib.elmo.files:convert_elmo",
    },
    "model2vec": {
        "title": "a table of static vectors (model2vec)",
        "verbs": "embed or similar",
        "recognize": "bertine.contrib.recognize:static_folder",
        "inspect": "bertine.contrib.static_vectors.table:load_static",
        "vectors": "bertine.contrib.static_vectors.table:StaticEncoder",
        "serve": "bertine.inference.embedding.embedder:Embedder.opened",
    },
}

#: Program whose files of weights are read → a :class:`bertine.hub.weights.ForeignWeights`.
WEIGHTS = {"tensorflow": "bertine.contrib.tensorflow.checkpoint:Checkpoint"}

#: Kind of ``distill``, which has a switch of this name →
#:
#: - options: their class
#: - distill: the function that does it, from the data, the folder and the options
#: - help, data, example: what the command line says of it and of its argument DATA, and a call
DISTILL = {
    "static": {
        "options": "bertine.contrib.options:StaticOptions",
        "distill": "bertine.contrib.static_vectors.distill:distill_static",
        "help": "a table of word-piece vectors whose means take the place of a model's vectors",
        "data": "any texts, or nothing",
        "example": "bertine distill static texts.txt --teacher model --out vectors",
    },
}
