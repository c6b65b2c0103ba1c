"""Define the names that arguments accept, the names of models, and how messages name options.

The types let an editor complete the names. They are declared once, without PyTorch: functions use
them in their signatures, and the command line offers the same names (:func:`typing.get_args`). The
packages that implement the names have tables of their own; a test compares them with these.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from importlib import import_module
from operator import attrgetter
from typing import Any, Final, Literal

#: What ``finetune`` learns: a kind of task, or a public data set.
TaskName = Literal[
    "text",
    "regression",
    "multi-label",
    "choice",
    "spans",
    "tagging",
    "seq2seq",
    "glue",
    "squad",
    "swag",
]
#: What ``distill`` learns from, and what it makes.
DistillKind = Literal["task", "lm", "vectors", "static"]
#: The tasks of few-shot learning.
FewShotTask = Literal["text", "multi-label"]
#: The weights that few-shot contrastive training changes.
FewShotWeights = Literal["biases", "all"]
#: The methods compared in a learning curve.
CurveWay = Literal["tf-idf", "frozen", "few-shot", "finetune"]
#: The pieces masked together with the one that is scored
#: (:mod:`bertine.inference.minimal_pairs.scoring`).
MaskedPieces = Literal["one", "rest-of-word"]
#: How gradients become updates (:mod:`bertine.training.optimizers`).
OptimizerName = Literal["adamw", "lamb", "muon"]
#: How the learning rate changes (:mod:`bertine.training.schedules`).
ScheduleName = Literal["linear", "constant", "cosine", "one-cycle"]
#: The number type of training; ``auto`` is bf16 where it is measured to be clearly faster.
Precision = Literal["auto", "bf16", "fp32"]
#: The number type of answering.
AnswerPrecision = Literal["auto", "bf16", "fp32", "int8"]
#: How the states of a text's tokens are pooled into its vector (:mod:`bertine.models.losses`).
PoolingName = Literal["mean", "cls", "max", "mean-last-4", "tokens"]
#: The same with one vector per text, as an exported graph returns it.
VectorPooling = Literal["mean", "cls", "max", "mean-last-4"]
#: The same for training vectors, from the last layer.
TrainedPooling = Literal["mean", "cls", "max"]
#: The number type in a file of vectors.
VectorType = Literal["fp32", "fp16"]
#: How the classes are weighted in the loss.
ClassWeights = Literal["balanced"]
#: The part of a text that is read if it is longer than the model (:mod:`bertine.tasks.base`).
LongText = Literal["head", "tail", "head-tail", "windows"]
#: What pre-training minimizes (:mod:`bertine.objectives`).
ObjectiveName = Literal[
    "mlm-nsp", "mlm", "mlm-sop", "mlm-neighbours", "rtd", "clm", "denoising", "plm"
]
#: Which tokens of pre-training have soft targets
#: (:mod:`bertine.objectives.distillation`).
SoftTokens = Literal["all", "masked"]
#: How hidden states and attention maps are compared (:mod:`bertine.objectives.distillation`).
MapKind = Literal["tinybert", "mobilebert"]
#: The task of another model whose answers are in a file and replace a teacher.
TeacherTask = Literal["text", "multi-label", "regression"]
#: How a teacher's token types are handled in a student without them.
TokenTypesOfTeacher = Literal["fold", "drop"]
#: What a pre-training sequence is made of (:mod:`bertine.corpora.formats`).
InputFormat = Literal[
    "segment-pair",
    "sentence-pair",
    "full-sentences",
    "doc-sentences",
    "sentence-order",
    "neighbours",
    "running-text",
]
#: Whether masks are chosen again at every step.
Masking = Literal["dynamic", "static"]
#: How new weights are initialized.
Initialization = Literal["normal", "mimetic"]
#: The annotation tools whose files are read (:mod:`bertine.data.annotations`); entities: objects
#: with a text and its entities, of no certain tool.
AnnotationTool = Literal[
    "label-studio", "doccano", "prodigy", "spacy", "argilla", "brat", "entities"
]
#: How the answers of several annotators about a text become what is learned.
Annotators = Literal["majority", "soft"]
#: The format of a table of labelled examples.
LabelledFormat = Literal["csv", "tsv", "jsonl", "columns", AnnotationTool]
#: The format of a file of texts to process.
TextFormat = Literal["csv", "tsv", "jsonl", "columns", AnnotationTool, "text"]
#: The format of a table of single texts.
PlainFormat = Literal["csv", "tsv", "jsonl", "text"]
#: The loss of vectors of text pairs (:mod:`bertine.training.similarity.objective`).
PairLossName = Literal["ranking", "cosent", "cosine"]
#: What the rows of a file of pairs hold (:mod:`bertine.training.similarity.data`).
PairKind = Literal["pairs", "scores", "labels", "texts", "sentences"]
#: How tags mark entities (:mod:`bertine.data.entities`).
TagScheme = Literal["IOB1", "IOB2", "IOBES", "plain"]
#: How the two texts of a pair are read: as one input, separately, to be compared, or as one input
#: in each of the two orders.
PairReading = Literal["joined", "apart", "both-orders"]
#: What the next token is compared with in a task's language model loss
#: (:mod:`bertine.objectives.losses`).
LmSoftmax = Literal["tokens", "tokens-and-positions"]
#: How documents that nearly duplicate an earlier one are handled.
NearDuplicates = Literal["ignore", "count", "drop"]
#: Kinds of tokenizers (:mod:`bertine.tokenization.tokenizer`).
TokenizerKind = Literal["wordpiece", "byte-bpe", "unigram", "word-bpe"]
#: The word segmenter for text without spaces (:mod:`bertine.tokenization.sentences`).
SegmenterName = Literal["jieba"]
#: The style of the special tokens (names and positions) in a new vocabulary of byte-level BPE or
#: Unigram.
SpecialStyle = Literal["roberta", "bert", "albert", "xlnet"]
#: Activations of the layers (:mod:`bertine.models.layers`).
ActivationName = Literal["gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu"]
#: What ``export`` writes.
ExportFormat = Literal["onnx", "torch"]
#: The files of an exported folder: its description, and the graphs.
ABOUT, ONNX, INT8, TORCH = "export.json", "model.onnx", "model.int8.onnx", "model.pt2"
#: How an explanation is computed (:mod:`bertine.inference.explaining.target`).
ExplanationMethod = Literal["leave-one-out", "integrated-gradients"]
LEAVE_ONE_OUT: Final = "leave-one-out"

#: The head of pairs that are read in both orders.
BOTH_ORDERS = "both_orders_classifier"
#: The heads that read vectors: of single texts, and of pairs of texts that are encoded apart.
VECTOR_CLASSIFIER, PAIR_CLASSIFIER = "vector_classifier", "pair_classifier"


# Registries: names and where they are implemented, as texts ``module:constant``: nothing heavy is
# imported, so that the command line can list the names.


def implementation(place: str) -> Any:
    """Import what a registry names: a module, a constant of it, or an attribute of one
    (``module:Class.method``)."""
    path, _, name = place.partition(":")
    # Garbage collection takes a third of the time of importing PyTorch, and frees nothing. A
    # command, which is a process of its own, never looks at these objects again; what comes after
    # PyTorch may be garbage of a training and is not frozen.
    collects, early = gc.isenabled(), "torch" not in sys.modules
    gc.disable()
    try:
        module = import_module(path)
    finally:
        if early and not in_python():
            gc.freeze()
        if collects:
            gc.enable()
    return attrgetter(name)(module) if name else module


class Later:
    """A stand-in for a module, a class or a function that is imported when it is first used: what
    needs PyTorch, in modules that also work without it.

    Args:
        place: as for :func:`implementation`.
    """

    def __init__(self, place: str) -> None:
        self._place = place

    @cached_property
    def _it(self) -> Any:
        return implementation(self._place)

    def __getattr__(self, name: str) -> Any:
        if name == "_place":  # in a copy that is not filled yet
            raise AttributeError(name)
        return getattr(self._it, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._it(*args, **kwargs)


def later(here: dict[str, Any], places: str) -> None:
    """Put a :class:`Later` for each of several things among the global names of a module, `here`.

    Args:
        places: a module, ``torch``, also under another name, ``F=torch.nn.functional``; and names
            in modules of Bertine, ``models.losses:focal,other``; spaces between them.
    """
    for place in places.split():
        module, _, names = place.partition(":")
        if names:
            here |= {name: Later(f"bertine.{module}:{name}") for name in names.split(",")}
        else:
            name, _, module = module.rpartition("=")
            here[name or module] = Later(module)


#: Model type → module:constant of its :class:`bertine.models.family.Family`.
FAMILIES = {
    "bert": "bertine.families.bert:FAMILY",
    "roberta": "bertine.families.roberta:FAMILY",
    "distilbert": "bertine.families.distilbert:FAMILY",
    "xlm-roberta": "bertine.families.roberta:XLM_ROBERTA",
    "camembert": "bertine.families.roberta:CAMEMBERT",
    "albert": "bertine.families.albert:FAMILY",
    "electra": "bertine.families.electra:FAMILY",
    "mobilebert": "bertine.families.mobilebert:FAMILY",
    "deberta-v2": "bertine.families.deberta:FAMILY",
    "modernbert": "bertine.families.modernbert:FAMILY",
    "openai-gpt": "bertine.families.gpt:FAMILY",
    "gpt-lstm": "bertine.families.gpt:LSTM_FAMILY",
    "bart": "bertine.families.bart:FAMILY",
    "xlnet": "bertine.families.xlnet:FAMILY",
}

#: Preset → model type.
PRESETS = {
    preset: family
    for family, presets in {
        "bert": ("bert-tiny", "bert-mini", "bert-small", "bert-medium", "bert-base", "bert-large"),
        "roberta": ("roberta-base", "roberta-large"),
        "distilbert": ("distilbert-base",),
        "xlm-roberta": ("xlm-roberta-base", "xlm-roberta-large"),
        "camembert": ("camembert-base",),
        "albert": ("albert-base", "albert-large", "albert-xlarge", "albert-xxlarge"),
        "electra": ("electra-small", "electra-base", "electra-large"),
        "mobilebert": ("mobilebert-uncased", "mobilebert-tiny", "ib-bert-large"),
        "deberta-v2": ("deberta-v3-xsmall", "deberta-v3-small", "deberta-v3-base"),
        "modernbert": (
            "modernbert-base",
            "modernbert-large",
            "modern-tiny",
            "modern-mini",
            "modern-small",
        ),
        "openai-gpt": ("openai-gpt", "gpt-tiny", "gpt-mini", "gpt-small"),
        "gpt-lstm": ("lstm-mini", "gpt-mini-bilstm"),
        "bart": ("bart-base", "bart-large", "bart-tiny", "bart-mini", "bart-small"),
        "xlnet": (
            "xlnet-base-cased",
            "xlnet-large-cased",
            "xlnet-tiny",
            "xlnet-mini",
            "xlnet-small",
        ),
    }.items()
    for preset in presets
}

#: Objective of pre-training → module:class of its :class:`bertine.objectives.losses.Objective`.
OBJECTIVES = {
    "mlm-nsp": "bertine.objectives.losses:MlmNsp",
    "mlm": "bertine.objectives.losses:Mlm",
    "mlm-sop": "bertine.objectives.losses:MlmSop",
    "mlm-neighbours": "bertine.objectives.losses:MlmNeighbours",
    "rtd": "bertine.objectives.rtd:Rtd",
    "clm": "bertine.objectives.losses:Clm",
    "denoising": "bertine.objectives.losses:Denoising",
    "plm": "bertine.objectives.losses:Plm",
}


# Version of the package.

__version__ = "0.1.0"


# Option names in messages: ``--resume`` on the command line, ``resume=True`` in Python.
#
# A message that advises changing an option is read in both places. It names the option by
# :func:`option`; :mod:`bertine.cli` switches to the command line's form.

#: Set while a command runs; an environment variable, so that threads and worker processes use the
#: same form.
_VARIABLE = "BERTINE_COMMAND_LINE"


@contextmanager
def on_the_command_line() -> Iterator[None]:
    """Write option names in the command line's form until the end of the block."""
    before = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_VARIABLE]


def in_python() -> bool:
    """Return whether a Python program runs, and not a command."""
    return _VARIABLE not in os.environ


def option(name: str, value: object = None) -> str:
    """Return the name of an option for a message.

    Args:
        name: the parameter's name, such as ``"keep_models"``.
        value: the value to name with it; a text, a number, or True or False for a switch. None:
            only the name.

    Returns:
        On the command line ``"--keep-models"``, ``"--no-quotes"``, ``"--precision fp32"``; in
        Python ``"keep_models=True"``, ``"quotes=False"``, ``"precision='fp32'"``.
    """
    if in_python():
        return name if value is None else f"{name}={value!r}"
    words = name.replace("_", "-")
    if value is False:
        return f"--no-{words}"
    return f"--{words}" if value is None or value is True else f"--{words} {value}"


def text_option(columns: int = 1) -> str:
    """Return the option that names the text columns, for a message about `columns` of them: on the
    command line ``"--text-column"`` for one and ``"--text-columns"`` for several (both are
    accepted), in Python ``"text_columns"``."""
    return "text_columns" if in_python() else _written("text_columns", columns)


def shell_option(name: str, value: object) -> str:
    """Return the command line option whose parameter `name` has this `value`:
    ``"--learning-rate"``; ``"--text-column"`` or, for several, ``"--text-columns"``."""
    return _written(name, len(value) if isinstance(value, list | tuple) else 1)


def _written(name: str, values: int) -> str:
    single = name == "text_columns" and values == 1
    return "--text-column" if single else "--" + name.replace("_", "-")


# Masks in texts, by kind of vocabulary. Imports nothing, so that ``--help`` can name them.

#: In WordPiece vocabularies (BERT).
WORDPIECE_MASK = "[MASK]"
#: In vocabularies of byte-level BPE (RoBERTa, BART).
BYTE_BPE_MASK = "<mask>"
#: Both, for people.
MASKS = f"{WORDPIECE_MASK} of BERT, {BYTE_BPE_MASK} of RoBERTa"
