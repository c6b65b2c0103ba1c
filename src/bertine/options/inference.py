"""Define the options of scoring, predicting, explaining, embedding, exporting and serving."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Literal

from bertine.core.errors import BertineError
from bertine.core.names import (
    LabelledFormat,
    MaskedPieces,
    PlainFormat,
    Precision,
    TextFormat,
    VectorType,
)
from bertine.options.data import (
    Cleaning,
    OutputEncoding,
    OwnTable,
    Strictness,
    TableColumns,
    TableReading,
    TaggedColumns,
)
from bertine.options.declare import MOST_SEED, NOT_KNOWN, OptionGroup, declare, like
from bertine.options.training import (
    AnsweringMachine,
    Device,
    ScoringMachine,
    Seed,
    VectorMachine,
)
from bertine.options.vectors import (
    AnyVectors,
    Normalizing,
    Prompt,
    Shortening,
    TextVectors,
    VectorOptions,
)

_AS_TRAINED = "as in training"
_DETECTED = "detected from the name of the file and its first line"


class KnownTexts(Cleaning):
    """Options for reading texts for a model that knows its columns."""

    text_columns: Sequence[str] | str | None = like(
        TableColumns, "text_columns", otherwise=_AS_TRAINED, more="", title="columns"
    )


class KnownExamples(TaggedColumns, KnownTexts):
    """Options for reading labelled examples for a model that knows its columns."""

    label_column: str | None = like(
        TableColumns, "label_column", otherwise=_AS_TRAINED, title="columns"
    )
    word_column: int | None = like(
        TaggedColumns, "word_column", otherwise=_AS_TRAINED, title="tagging"
    )
    tag_column: int | None = like(
        TaggedColumns, "tag_column", otherwise=_AS_TRAINED, title="tagging"
    )


class DecisionOptions(OptionGroup):
    """How a label is chosen by its probability."""

    title = "probabilities"

    cost_matrix: Path | str | None = declare(
        None,
        "of a model that chooses one label of a text: csv with what answers cost, a row for each "
        "true label (in the first column) and a column for each answer; the label of least "
        "expected cost is given",
        otherwise="the most probable label",
        more="A column ``(no answer)`` has the cost of leaving the text open.",
        metavar="FILE",
    )
    coverage: float | None = declare(
        None,
        "of a model that chooses one label of a text or one choice: also give the set of those "
        "that holds the right one with this probability",
        otherwise="no sets",
        more="By split conformal prediction, on the validation examples of the fine-tuning "
        "(:mod:`bertine.tasks.calibration`).",
        metavar="P",
        least=0.5,
        most=0.995,
    )


class ScoredExamplesOptions(KnownExamples, DecisionOptions, ScoringMachine):
    """The options of ``evaluate`` for a model that answers."""

    probability_columns: Sequence[str] | str | None = like(
        OwnTable,
        "probability_columns",
        help="of a model with one label a text: a column for each of its labels with the "
        "probability, in place of `label_column`; named as the label, or probability_LABEL",
        otherwise="recognized where the table has no column of labels",
        more="The most probable label counts as the label of a row; the loss is the cross-entropy "
        "with the probabilities.",
        title="columns",
    )
    format: LabelledFormat | None = like(TableReading, "format", title="reading")
    worst: int = declare(
        0,
        "also list this many examples with the highest loss, with file and line; wrong labels are "
        "often among them, in a training file only while the model has not learned them by heart",
        title="",
        least=0,
    )
    baselines: bool = declare(
        False,
        "also score the task's baselines on these examples, fitted on the training file if it is "
        "still there and unchanged; of a search the search by words (BM25)",
        title="",
    )


class ScoredVectorsOptions(KnownTexts, ScoringMachine):
    """The options of ``evaluate`` for a model that gives vectors."""

    label_column: str | None = like(KnownExamples, "label_column")
    format: LabelledFormat | None = like(ScoredExamplesOptions, "format")
    baselines: bool = like(ScoredExamplesOptions, "baselines")
    dimensions: int | None = like(
        Shortening, "dimensions", help="keep only this many of a vector's first numbers", more=""
    )


class ScoredTextOptions(KnownTexts, ScoringMachine):
    """The options of ``evaluate`` for text that an ELMo reads."""


class EvaluateOptions(ScoredExamplesOptions, ScoredVectorsOptions, ScoredTextOptions):
    """The options of ``evaluate`` for all that it scores."""

    kinds: ClassVar = {
        "labelled examples": ScoredExamplesOptions,
        "vectors": ScoredVectorsOptions,
        "the text of an ELMo": ScoredTextOptions,
        "token stores and minimal pairs": ScoringMachine,
    }


class BlimpOptions(Device):
    """All options of ``blimp``."""

    masked_pieces: MaskedPieces = declare(
        "one",
        "what is hidden at a time from a masked model: one piece; or with it those of its word "
        "behind it, so that a word is guessed from its beginning (Kauf and Ivanova 2023)",
        title="",
        unknown=NOT_KNOWN,
    )
    paradigms: bool = declare(False, "also list the accuracy of every paradigm", title="")
    precision: Precision = declare(
        "auto",
        "number format to compute in; auto is bf16 where it is measured to be clearly faster here",
    )


class Abstaining(OptionGroup):
    """When a model gives no answer."""

    abstain_below: float | None = declare(
        None,
        "of a model that chooses one label, choice or span: leave the answer open where its "
        "probability is lower, and count how often; of a tagger: leave out such entities",
        otherwise="every text is answered",
        metavar="P",
        title="probabilities",
        least=0,
        most=1,
    )
    familiarity: bool = declare(
        False,
        "of a model that chooses one label of a text: also say how much the text is like those of "
        "its training, as a number above 0, at most 1",
        more="Of texts like the validation examples of the fine-tuning, 5% have 0.05 or less "
        "(:mod:`bertine.tasks.familiarity`).",
        title="probabilities",
    )
    abstain_unfamiliar: float | None = declare(
        None,
        "leave the answer open where the familiarity is lower; 0.05 leaves about 5% of usual texts "
        "open, and most of others",
        otherwise="unusual texts are answered too",
        more="Includes `familiarity`.",
        metavar="P",
        title="probabilities",
        least=0,
        most=1,
    )


class BatchInvariance(OptionGroup):
    """Whether an answer may depend on the other texts in its batch."""

    batch_invariant: bool = declare(
        False,
        "compute each text by itself, so that its answer has the same bits with any other texts; "
        "slower",
        more="In batches the last digits of an answer depend on the others. Precision auto is then "
        "fp32.",
        title="run",
    )


class NearExamples(OptionGroup):
    """The labelled examples shown with an explanation."""

    title = "explanations"

    nearest_examples: int = declare(
        0,
        "also show this many labelled examples that are nearest to the text, by the vectors that "
        "the head reads",
        more="The vectors are computed once and kept next to the weights.",
        metavar="N",
        least=0,
        most=100,
    )
    examples: Path | str | None = declare(
        None,
        "the labelled file to take them from",
        otherwise="the training file, if it is still there and unchanged",
        metavar="FILE",
    )


class AnswerOptions(Strictness, Abstaining, DecisionOptions, BatchInvariance, AnsweringMachine):
    """The options of ``predict`` for whatever is answered."""


class Explaining(NearExamples):
    """What is shown with an answer."""

    explain: bool = declare(
        False,
        "say what each word contributes to the answer, by leaving words out, as 'bertine explain' "
        "does; in a file of JSON lines",
        more="Below the answer in a terminal, as ``explanation`` in JSON lines. The same with "
        "`nearest_examples`.",
    )


class GivenTextsOptions(Explaining, AnswerOptions):
    """The options of ``predict`` for texts that are given."""


class TableOfTextsOptions(OutputEncoding, KnownTexts, Explaining, AnswerOptions):
    """The options of ``predict`` for a table of texts."""

    format: TextFormat | None = like(TableReading, "format", title="reading")
    resume: bool = declare(
        False,
        "go on where an earlier process was stopped, without loss or repetition",
        more="With the same answers as without a stop (:mod:`~bertine.inference.answer_files`). "
        "From a file to a file.",
        title="run",
    )


class WordFileOptions(OutputEncoding, AnswerOptions):
    """The options of ``predict`` for a file of words."""

    sheet: str | None = like(TableReading, "sheet", title="reading")
    text_columns: Sequence[str] | str | None = like(KnownTexts, "text_columns")
    format: TextFormat | None = like(TableReading, "format", title="reading")
    word_column: int | None = like(
        TaggedColumns, "word_column", otherwise=_AS_TRAINED, title="tagging"
    )


class PredictOptions(GivenTextsOptions, TableOfTextsOptions, WordFileOptions):
    """The options of ``predict`` for all that it reads."""

    kinds: ClassVar = {
        "texts that are given": GivenTextsOptions,
        "tables of texts": TableOfTextsOptions,
        "files of words": WordFileOptions,
        "files in SQuAD's format": AnswerOptions,
    }


class ExplainOptions(KnownTexts, NearExamples, AnsweringMachine):
    """The options of ``explain`` for reading and computing."""

    format: PlainFormat | None = declare(
        None, "format of the input", otherwise=_DETECTED, title="reading"
    )


class PlainTexts(Cleaning):
    """Options for reading a table of single texts."""

    title = "reading"

    text_column: str | None = declare(
        None, "the text", otherwise="text, sentence, or the only column"
    )
    format: PlainFormat | None = declare(None, "format of the input", otherwise=_DETECTED)


class EmbedOptions(VectorOptions, PlainTexts, BatchInvariance, VectorMachine):
    """All options of ``embed``."""

    dtype: VectorType = declare("fp32", "number format of the file", title="", unknown=NOT_KNOWN)
    passages: bool = declare(
        False,
        "divide texts that are too long into passages of whole sentences, each with its vector, in "
        "place of cutting them",
        more="Each is a row, with the columns of its document and its number, ``document``.",
        title="vectors",
    )


class LabellingOptions(VectorOptions, Cleaning, VectorMachine):
    """The options of choosing texts to label, without the column of the texts."""

    labels: Sequence[str] | None = declare(
        None,
        "names of the classes; where the model gives vectors of sentences, their words help before "
        "there are labels",
        otherwise="those of the labelled texts",
        title="labels",
    )
    label_column: str | None = like(
        TableColumns, "label_column", help="the label of a labelled text", title="labels"
    )
    vectors: Path | str | None = declare(
        None,
        "a .parquet that 'bertine embed' has written of the texts: its vectors are used, others "
        "are computed",
        otherwise="all are computed",
        metavar="FILE",
        title="vectors",
    )
    seed: int = like(Seed, "seed", help="random seed of what is drawn", title="labels")
    format: PlainFormat | None = like(PlainTexts, "format", title="reading")


class SuggestOptions(LabellingOptions, PlainTexts):
    """All options of ``suggest``."""


class DriftOptions(KnownTexts, ScoringMachine):
    """All options of ``drift``."""

    label_column: str | None = like(
        KnownExamples, "label_column", help="of the labelled rows to compare with"
    )
    format: PlainFormat | None = like(ExplainOptions, "format")
    fail_above: float | None = declare(
        None,
        "exit status 1 where the estimated accuracy is more than this many points lower than on "
        "the texts to compare with",
        otherwise="no loss is a failure",
        metavar="POINTS",
        title="",
        least=0,
        most=100,
    )
    html: Path | str | None = declare(
        None, "also write the report as a page", metavar="FILE", title=""
    )
    json: Path | str | None = declare(
        None,
        "also write the report as JSON, with the share of every label",
        metavar="FILE",
        title="",
    )


class SimilarOptions(TextVectors, Shortening, Prompt, PlainTexts, VectorMachine):
    """The options of ``similar`` for reading and comparing."""

    prompt: str | None = like(
        Prompt, "prompt", otherwise="its prompt for documents, else its default"
    )
    query_prompt: str | None = declare(
        None,
        "one of the same prompts, put before the queries alone; '' for none",
        otherwise="that of `prompt`, else the model's prompt for queries, else its default",
        title="vectors",
    )
    word: str | None = declare(
        None,
        "compare this word as it stands in each text, and in the query, not the texts",
        otherwise="whole texts",
        more="Of several pieces the mean of their vectors; at its first place in a text. Rows "
        "without the word are left out and counted.",
        title="vectors",
    )
    html: Path | str | None = declare(
        None,
        "with `word`: draw the cosines of all its uses that are shown, on a page",
        metavar="FILE",
        title="vectors",
    )
    where: str | None = declare(
        None,
        "compare only the rows whose columns fulfil a condition: 'lang = de and year >= 2020'; for "
        "a .parquet with vectors",
        otherwise="all rows",
        more="``=``, ``!=``, ``<``, ``<=``, ``>``, ``>=`` and ``in (a, b)``, joined by ``and`` "
        "and ``or``; with quotes around what has spaces.",
        metavar="CONDITION",
        title="search",
    )
    hybrid: bool = declare(
        False,
        "search by words too (BM25), and join the two rankings by reciprocal ranks; for a .parquet "
        "with vectors",
        more="Cormack et al. 2009, with k = 60.",
        title="search",
    )


class ScoredExportOptions(KnownExamples):
    """The options of ``export`` for a graph that is scored."""

    data_format: LabelledFormat | None = like(TableReading, "format", title="reading")
    max_length: int | None = like(AnyVectors, "max_length", title="vectors")


class VectorExportOptions(AnyVectors, Normalizing):
    """The options of ``export`` for a graph that is not scored, which may give vectors."""


class ExportOptions(ScoredExportOptions, VectorExportOptions):
    """The options of ``export`` for all graphs."""

    kinds: ClassVar = {
        "labelled examples": ScoredExportOptions,
        "vectors, which have no labels": VectorExportOptions,
    }


# Text generation.


class DecodingOptions(OptionGroup):
    """How the tokens are chosen, one after the other."""

    title = "choosing"

    max_new_tokens: int = declare(40, "tokens to write at most", title="length", least=1)
    min_new_tokens: int = declare(
        0, "tokens to write before an end token may end the text", title="length", least=0
    )
    sample: bool = declare(
        False, "draw tokens by their probabilities in place of taking the most probable one"
    )
    temperature: float = declare(
        1.0,
        "with `sample`: divides the scores before the softmax; below 1 probable tokens become more "
        "probable, and at 0 the most probable one is taken",
        least=0,
    )
    top_k: int | None = declare(
        None,
        "with `sample`: draw only from this many most probable tokens",
        otherwise="all",
        least=1,
    )
    top_p: float = declare(
        1.0,
        "with `sample`: draw among the fewest most probable tokens that have this probability "
        "together",
        above=0,
        most=1,
    )
    seed: int = declare(
        0,
        "with `sample`: random seed of the draws; each text has its own",
        metavar="N",
        least=0,
        most=MOST_SEED,
    )
    beams: int = declare(
        1, "sequences that are followed at once; the most probable ones are kept", least=1, most=256
    )
    length_penalty: float = declare(
        1.0,
        "with `beams`: sequences are compared by their log-probability divided by their length to "
        "this power; above 0 long ones win, below 0 short ones",
        metavar="X",
        least=-10,
        most=10,
    )
    early_stopping: bool = declare(
        False,
        "with `beams`: stop as soon as that many sequences have ended, even if an unfinished one "
        "might still be better",
    )
    no_repeat_ngram_size: int = declare(
        0,
        "never write a run of this many tokens twice, counting those of a prompt that is "
        "continued; 0: no limit",
        least=0,
    )
    sequences: int = declare(
        1, "texts for each prompt: the best of the beams, or as many draws", least=1, most=256
    )


class GenerateOptions(DecodingOptions, OutputEncoding, PlainTexts, Device):
    """All options of ``generate``."""

    end_token: str | None = declare(
        None,
        "a token of the vocabulary that ends a text, besides the model's own end",
        otherwise="what stood behind documents in pre-training, or the end of a BART's texts",
        title="length",
    )


# Server: ``serve``'s address, permissions and limits.

#: The most seconds that a request, or a batch, may wait: more than a day is as good as no limit,
#: and much larger values overflow the system's clocks.
_DAY = 86_400


class Address(OptionGroup):
    """The address of a server, and who may connect."""

    host: str = declare(
        "127.0.0.1",
        "address to listen on; 0.0.0.0 is every address of this machine",
        metavar="ADDRESS",
    )
    port: int = declare(8000, "port to listen on; 0 takes a free one", least=0)
    api_key_file: Path | str | None = declare(
        None,
        "file with the key that requests must have",
        otherwise="the environment variable BERTINE_API_KEY, else no key",
        more="They have it as ``Authorization: Bearer KEY``.",
        metavar="FILE",
    )
    allowed_hosts: Sequence[str] | str | None = declare(
        None,
        "host names the server answers to, besides localhost, its own and IP addresses; ``*.NAME`` "
        "allows all subdomains, ``*`` allows any",
    )


class Bounds(OptionGroup):
    """The limits on requests to a server.

    Raises:
        BertineError: a value is out of range, or the queue is too small for the texts of one
            request.
    """

    title = "bounds"

    max_wait_ms: float = declare(
        5.0,
        "milliseconds a request waits at most for others to share its batch",
        metavar="MS",
        title="batches",
        least=0,
        most=1000 * _DAY,
    )
    max_batch_tokens: int = declare(
        768,
        "tokens in a batch, at most",
        more="A longer input is computed by itself.",
        title="batches",
        least=1,
    )
    max_queue: int = declare(
        1024, "texts (or windows of long ones) that may wait for a model", least=1
    )
    max_texts: int = declare(256, "texts in a request (2,048 for /v1/embeddings)", least=1)
    max_characters: int = declare(20_000, "characters of a text", least=1)
    max_body_bytes: int = declare(1 << 20, "bytes of a request", least=1)
    max_connections: int = declare(512, "connections open at once", least=1)
    request_timeout: float = declare(
        30.0, "seconds before a request times out", metavar="S", above=0, most=_DAY
    )
    read_timeout: float = declare(
        10.0,
        "seconds a client has to send its headers, again for its body, and again to read each "
        "16 KB of the answer",
        metavar="S",
        above=0,
        most=_DAY,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_queue < self.max_texts:
            raise BertineError(
                f"max_queue is {self.max_queue}, but one request may have max_texts = "
                f"{self.max_texts}; raise the first or lower the second"
            )


class ServeOptions(
    Address, Abstaining, DecisionOptions, NearExamples, BatchInvariance, AnsweringMachine, Bounds
):
    """All options of ``serve``."""

    collection: Path | str | None = declare(
        None,
        "answer ``/search`` over the texts of this .parquet, which 'bertine embed' wrote with one "
        "of the models",
        more="When the file is replaced, the new one is searched.",
        metavar="FILE",
        title="search",
    )


class LabelOptions(LabellingOptions):
    """All options of ``label``."""

    text_columns: Sequence[str] | str | None = like(
        TableColumns,
        "text_columns",
        otherwise="text, sentence, or the only column",
        more="",
        title="reading",
    )
    label_column: str | None = like(
        TableColumns,
        "label_column",
        help="the label, in the file that is written, and in the texts' own, whose labels are used",
        otherwise="label; of words entities",
        title="labels",
    )
    several: bool = declare(False, "a text has any number of labels", title="labels")
    spans: bool = declare(False, "mark words of a text, for a tagger", title="labels")
    then: Literal["few-shot", "finetune"] | None = declare(
        None,
        "train on the labels when you have finished, in the folder OUT-model",
        otherwise="only the labels are written",
        unknown=NOT_KNOWN,
        title="labels",
    )
    port: int = like(Address, "port", default=0, title="page")
