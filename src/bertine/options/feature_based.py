"""Options of tagging with a frozen encoder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bertine.names import TaggedFormat
from bertine.options.fields import declare, like
from bertine.options.machine import Machine
from bertine.options.reading import DocumentContext, Mending, TableColumns, TaggedColumns
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


class FeatureBasedOptions(
    TableColumns, TaggedColumns, DocumentContext, BilstmRecipe, Machine, Resuming
):
    """All options of ``feature_based``."""

    rows: Sequence[str] | None = declare(
        None,
        "of fine-tuning, embeddings, second-to-last, last, sum-last-four, concat-last-four, "
        "sum-all",
        otherwise="all",
    )
    word_vectors: Path | str | None = declare(
        None,
        "vectors of words for one row more, in the place of states: a folder of word2vec, or a "
        ".bin, .txt or .vec file",
        otherwise="no such row",
        metavar="VECTORS",
    )
    format: TaggedFormat | None = declare(
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
    max_length: int = declare(128, "tokens of an input", least=3, title="tagging")
    finetune_epochs: int = declare(3, "of fine-tuning", least=1, title="recipe")
    finetune_learning_rate: float = declare(5e-5, "of fine-tuning", least=0, title="recipe")
    resume: bool = like(
        Resuming,
        "resume",
        help="keep the rows that the output folder has already",
        more="If they were made with the same settings.",
    )
