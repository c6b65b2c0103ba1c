"""Options of learning from the states of a frozen model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bertine.names import FeatureTask, LabelledFormat
from bertine.options.fields import declare, like
from bertine.options.machine import Machine
from bertine.options.reading import (
    DocumentContext,
    Mending,
    TableColumns,
    TaggedColumns,
)
from bertine.options.run import Resuming, Seed


class BilstmRecipe(Seed):
    """Options that say how a BiLSTM is built and trained."""

    title = "recipe"

    epochs: int = declare(10, "of the BiLSTM, over the training sentences", least=1)
    batch_size: int = declare(32, "sentences in an update, of fine-tuning too", least=1)
    learning_rate: float = declare(1e-3, "of the BiLSTM, at first, which is its highest", least=0)
    lstm_size: int = declare(768, "units of each direction", least=1)
    lstm_layers: int = declare(2, "of the BiLSTM", least=1)
    dropout: float = declare(0.5, "around each layer of the BiLSTM", least=0, most=1)
    max_grad_norm: float = declare(
        5.0, "its gradients are scaled down to this norm; 0 does not clip", least=0
    )
    layer_penalty: float | None = declare(
        None,
        "λ of the squared weights that layers are summed with: the higher, the nearer they stay to "
        "the mean of the layers",
        otherwise="0.1 of an ELMo, as its paper has for entities, else 0",
        least=0,
    )
    crf: bool = declare(
        False,
        "of tagging: a chain over the tags (CRF), whose answers are valid sequences, as in ELMo's "
        "paper",
    )


class FeatureBasedOptions(
    TableColumns, TaggedColumns, DocumentContext, BilstmRecipe, Machine, Resuming
):
    """All options of ``feature_based``."""

    task: FeatureTask = declare(
        "tagging",
        "what is learned: a tag for each word; of texts or pairs a label, several or a number; a "
        "task of GLUE",
        title="",
    )
    glue_task: str | None = declare(
        None,
        "with the task glue: CoLA, SST-2, MRPC, STS-B, QQP, MNLI, QNLI, RTE or WNLI",
        title="",
    )
    rows: Sequence[str] | None = declare(
        None,
        "of fine-tuning, embeddings, second-to-last, last, sum-last-four, concat-last-four, "
        "sum-all; mix (all layers, embeddings among them), mix-both (also at the output of the "
        "BiLSTM), mix-output (there alone, over the words by themselves); of vectors of words "
        "word-vectors, bag-of-vectors",
        otherwise="all of an encoder but the mixes; of an ELMo embeddings, second-to-last, last, "
        "mix and mix-both",
    )
    word_vectors: Path | str | None = declare(
        None,
        "vectors of words for a row more, in the place of states (of texts also their mean, with "
        "logistic regression): a folder of word2vec, or a .bin, .txt or .vec file",
        otherwise="no such row",
        metavar="VECTORS",
    )
    format: LabelledFormat | None = declare(
        None,
        "of the files",
        otherwise="detected from the name of the file and its first line",
        title="reading",
    )
    strict: bool = like(
        Mending,
        "strict",
        help="refuse invalid UTF-8 and NUL bytes instead of mending and counting them",
        title="reading",
    )
    max_length: int = declare(
        128, "tokens of an input; of texts words, the rest being cut", least=3, title="tagging"
    )
    finetune_epochs: int = declare(3, "of fine-tuning", least=1, title="recipe")
    finetune_learning_rate: float = declare(5e-5, "of fine-tuning", least=0, title="recipe")
    resume: bool = like(
        Resuming,
        "resume",
        help="keep the rows that the output folder has already",
        more="If they were made with the same settings.",
    )
