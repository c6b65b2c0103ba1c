"""The names that arguments take, as types, so that an editor completes them.

Declared here once, without PyTorch: the functions have them in their signatures, and the command
line offers the same ones (:func:`typing.get_args`). The rooms that give the names their meaning
keep them in tables of their own; a test holds the two equal.
"""

from __future__ import annotations

from typing import Literal

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
#: What is learned from few labels.
FewShotTask = Literal["text", "multi-label"]
#: The weights that contrastive training changes, where labels are few.
FewShotWeights = Literal["biases", "all"]
#: How the labels of a learning curve are learned from.
CurveWay = Literal["tf-idf", "frozen", "few-shot", "finetune"]
#: What is learned from the states of a frozen model.
FeatureTask = Literal["tagging", "text", "regression", "multi-label", "glue"]
#: What else is masked with a piece whose likelihood is asked
#: (:mod:`bertine.inference.minimal_pairs.log_probability`).
MaskedPieces = Literal["one", "rest-of-word"]
#: How a text becomes words, for models of words: at spaces, or with punctuation apart.
WordSplitting = Literal["spaces", "punctuation"]
#: What a language model's next word is compared with (:mod:`bertine.models.elmo.softmax`).
SoftmaxName = Literal["auto", "full", "sampled"]
#: How gradients become updates (:mod:`bertine.training.loop.optimizers`).
OptimizerName = Literal["adamw", "lamb", "muon"]
#: How the learning rate changes (:mod:`bertine.training.loop.schedule`).
ScheduleName = Literal["linear", "constant", "cosine", "one-cycle"]
#: The number type of training; ``auto`` is bf16 where it is measured to be clearly faster.
Precision = Literal["auto", "bf16", "fp32"]
#: The number type of answering.
AnswerPrecision = Literal["auto", "bf16", "fp32", "int8"]
#: How the states of a text's tokens become its vector (:mod:`bertine.models.pooling`).
PoolingName = Literal["mean", "cls", "max", "mean-last-4", "tokens"]
#: The same for one vector a text, as an exported graph gives it.
VectorPooling = Literal["mean", "cls", "max", "mean-last-4"]
#: The same where vectors are trained: of the last layer.
TrainedPooling = Literal["mean", "cls", "max"]
#: The numbers of a file of vectors.
VectorType = Literal["fp32", "fp16"]
#: Numbers of a table of static vectors, in its file.
StaticPrecision = Literal["fp32", "fp16", "int8"]
#: What pieces of a table of static vectors are weighted by.
StaticWeights = Literal["counts", "rank", "none"]
#: How much each class counts in the loss.
ClassWeights = Literal["balanced"]
#: What is read of a text longer than the model (:mod:`bertine.tasks.long_text`).
LongText = Literal["head", "tail", "head-tail", "windows"]
#: What pre-training minimizes (:mod:`bertine.objectives`).
ObjectiveName = Literal[
    "mlm-nsp", "mlm", "mlm-sop", "mlm-neighbours", "rtd", "clm", "denoising", "plm"
]
#: Which tokens of pre-training have soft targets
#: (:mod:`bertine.objectives.distillation.around_mlm`).
SoftTokens = Literal["all", "masked"]
#: How hidden maps and attention maps are compared (:mod:`bertine.objectives.distillation.maps`).
MapKind = Literal["tinybert", "mobilebert"]
#: The task of another model whose answers are a file, in place of a teacher.
TeacherTask = Literal["text", "multi-label", "regression"]
#: What becomes of a teacher's token types in a student that has none.
TokenTypesOfTeacher = Literal["fold", "drop"]
#: What a pre-training sequence is made of (:mod:`bertine.data.instances.formats`).
InputFormat = Literal[
    "segment-pair",
    "sentence-pair",
    "full-sentences",
    "doc-sentences",
    "sentence-order",
    "neighbours",
    "running-text",
]
#: Whether masks are chosen anew at every step.
Masking = Literal["dynamic", "static"]
#: How new weights begin.
Initialization = Literal["normal", "mimetic"]
#: The format of a table of labelled examples.
LabelledFormat = Literal["csv", "tsv", "jsonl", "columns"]
#: The format of a file of texts to answer.
TextFormat = Literal["csv", "tsv", "jsonl", "columns", "text"]
#: The format of a table of single texts.
PlainFormat = Literal["csv", "tsv", "jsonl", "text"]
#: What vectors of pairs of texts are trained to (:mod:`bertine.training.similarity.objective`).
PairLossName = Literal["ranking", "cosent", "cosine"]
#: What the rows of a file say of vectors (:mod:`bertine.training.similarity.reading`).
PairKind = Literal["pairs", "scores", "labels", "texts", "sentences"]
#: How tags mark entities (:mod:`bertine.records.entities`).
TagScheme = Literal["IOB1", "IOB2", "IOBES", "plain"]
#: What the next token of a task's inputs is compared with (:mod:`bertine.objectives.beside_task`).
#: How the two texts of a pair are read: as one input, or each by itself, to be compared.
PairReading = Literal["joined", "apart"]
LmSoftmax = Literal["tokens", "tokens-and-positions"]
#: What becomes of documents that are nearly the same as an earlier one.
NearDuplicates = Literal["ignore", "count", "drop"]
#: Kinds of tokenizers (:mod:`bertine.text.kinds`).
TokenizerKind = Literal["wordpiece", "byte-bpe", "unigram", "word-bpe"]
#: What finds the words of text that is written without spaces (:mod:`bertine.text.chinese`).
SegmenterName = Literal["jieba"]
#: Whose names the special tokens of a new vocabulary of byte-level BPE or of Unigram have, and
#: where they stand.
SpecialStyle = Literal["roberta", "bert", "albert", "xlnet"]
#: Activations of the layers (:mod:`bertine.models.layers`).
ActivationName = Literal["gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu"]
#: How word2vec learns (:mod:`bertine.word_vectors.steps`).
WordVectorModel = Literal["skip-gram", "cbow"]
#: What ``export`` writes.
ExportFormat = Literal["onnx", "torch"]
#: How an explanation is computed (:mod:`bertine.inference.explaining.attribution`).
ExplanationMethod = Literal["leave-one-out", "integrated-gradients"]
