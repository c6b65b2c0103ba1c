"""Define the options for reading tables of labelled data, texts and corpora."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from bertine.core.errors import BertineError
from bertine.core.names import (
    Annotators,
    ClassWeights,
    LabelledFormat,
    LongText,
    NearDuplicates,
    SegmenterName,
    SpecialStyle,
    TagScheme,
    TextFormat,
    TokenizerKind,
    option,
)
from bertine.options.declare import MOST_SEED, OptionGroup, declare, declared, like


class GlueChoice(OptionGroup):
    """The choice of a GLUE task."""

    title = "GLUE"

    glue_task: str | None = declare(
        None,
        "CoLA, SST-2, MRPC, STS-B, QQP, MNLI, QNLI, RTE or WNLI",
        more='Or ``"all"``: one run after the other, in ``out/CoLA``, ``out/SST-2``, …, for each '
        "task that `data` has, and the table of scores. With `resume` those that are finished are "
        "not run again.",
        flags=("glue-task", "task"),
    )


class TableColumns(OptionGroup):
    """The columns of the texts and the labels in a table."""

    title = "columns"

    text_columns: Sequence[str] | str | None = declare(
        None,
        "the text, or the two texts of a pair",
        otherwise="the usual names",
        more="Of multiple choice what stands before the choices, the second of two beginning each "
        "of them.",
        flags=("text-column", "text-columns"),
    )
    label_column: str | None = declare(None, "the label", otherwise="the usual names")


class LabelNames(OptionGroup):
    """The names of labels that are numbers."""

    title = "columns"

    label_names: Sequence[str] | None = declare(
        None,
        "names of the labels 0, 1, 2, …",
        otherwise="those in the data, else the numbers",
        more="One for each number. Parquet and ``datasets`` give names with the numbers "
        "(``ClassLabel``).",
    )


class Strictness(OptionGroup):
    """The handling of encodings and of damaged text."""

    title = "reading"

    encoding: str | None = declare(
        None,
        "encoding of text files (cp1252, gb18030, utf-16, …)",
        otherwise="UTF-8, or what a byte order mark or the words tell",
        more="Any text codec of Python. What the words tell is noted with a sample, and refused if "
        "there is doubt.",
    )

    strict: bool = declare(
        False,
        "refuse invalid UTF-8 and NUL bytes (and, where labels are read, rows without one) instead "
        "of mending, or leaving out, and counting them",
    )


class Cleaning(Strictness):
    """The sheet of a workbook, and the handling of quotes and of damaged text."""

    title = "reading"

    quotes: bool | None = declare(
        None,
        'whether " quotes cells',
        otherwise="in csv; in tsv where only so its rows fit the header",
    )
    sheet: str | None = declare(
        None,
        "name or number of the sheet of a workbook",
        otherwise="the first one with a table",
        metavar="SHEET",
    )


class OutputEncoding(OptionGroup):
    """The encoding of a table that is written."""

    title = "output"

    output_encoding: str | None = declare(
        None,
        "encoding of the output (utf-8, utf-8-sig for Excel, …)",
        otherwise="that of the input, with its byte order mark",
    )


class FileFormat(OptionGroup):
    """The format of a file with labels."""

    title = "reading"

    format: LabelledFormat | None = declare(
        None,
        "format of the table; columns are column files of words, and label-studio to entities "
        "files of annotation tools",
        otherwise="detected from the name of the file and its contents",
    )


class TableReading(Cleaning, FileFormat):
    """Options for reading a table with labels."""


class TaggedColumns(OptionGroup):
    """The columns of words and tags in a column file, and the scheme of the tags."""

    title = "tagging"

    word_column: int | None = declare(
        None,
        "number of the column of the words in a column file",
        otherwise="the first that holds no numbers",
        least=1,
    )
    tag_column: int | None = declare(
        None, "number of the column of the tags", otherwise="the last that holds tags", least=1
    )
    tag_scheme: TagScheme | None = declare(
        None,
        "how the tags mark entities (BILOU and BMES are IOBES in other letters); plain: they do "
        "not",
        otherwise="detected from the tags",
    )


class DocumentContext(OptionGroup):
    """The context that is read around a tagged sentence."""

    title = "tagging"

    document_context: bool = declare(
        False,
        "fill the input with the sentences around, of the same document (-DOCSTART-)",
        more="See BERT's paper, section 5.3.",
    )


class ChoiceColumns(OptionGroup):
    """The columns of the choices."""

    title = "own data"

    choice_columns: Sequence[str] | str | None = declare(
        None, "a column for each choice", otherwise="ending0, choice1, option A, …"
    )


class LabelColumns(OptionGroup):
    """The reading of several labels of a text, and when one is given."""

    title = "own data"

    label_columns: Sequence[str] | str | None = declare(
        None, "a column of 0 and 1 for each label, in place of `label_column`"
    )
    label_separator: str | None = declare(
        None,
        "between labels in one column",
        otherwise="| ; or , if it occurs",
        metavar="TEXT",
    )
    threshold: float = declare(
        0.5,
        "a label is given from this probability on",
        above=0,
        below=1,
        not_in=("lr-find",),
    )


class SoftLabels(OptionGroup):
    """The columns of labels' probabilities, and what is made of several annotators' answers."""

    title = "own data"

    annotators: Annotators = declare(
        "majority",
        "of several annotators of a text: the label of most, or all by their shares (soft)",
        not_in=("lr-find",),
    )

    probability_columns: Sequence[str] | str | None = declare(
        None,
        "columns of the labels' probabilities, in place of `label_column`; named LABEL or "
        "probability_LABEL",
        more="They are learned from as they are (soft labels); the most probable label is the one "
        "that scores count.",
    )


class ClassBalance(OptionGroup):
    """How much classes and examples count in the loss."""

    title = "own data"

    class_weights: ClassWeights | None = declare(
        None,
        "let every class count the same in the loss, however rare",
        otherwise="every example does",
        more="Of many labels, the presence and the absence of each.",
        recorded=True,
    )
    focal_gamma: float = declare(
        0.0,
        "focal loss: how much less examples count that are predicted well",
        least=0,
        recorded=True,
    )


class LongTexts(OptionGroup):
    """The reading of texts longer than the input."""

    title = "own data"

    long_text: LongText = declare(
        "head",
        "what is read of a text longer than `max_length`; windows: all of it, scores averaged",
        more="See :mod:`bertine.tasks.base`.",
    )


class TextWriting(OptionGroup):
    """The texts to write: their column and length, the loss, and the search for the best one."""

    title = "own data"

    target_column: str | None = declare(
        None,
        "column of the text to write",
        otherwise="target, summary, highlights or output",
    )
    max_target_length: int = declare(
        64, "tokens of a text to write; longer ones are cut, and counted", least=4
    )
    beams: int = declare(
        1,
        "sequences that are followed at once when a text is written; one takes the least time",
        least=1,
        most=64,
        not_in=("lr-find",),
    )
    length_penalty: float = declare(
        1.0,
        "with `beams`: above 0 long texts win, the more so the higher it is",
        metavar="X",
        least=-100,
        most=100,
        not_in=("lr-find",),
    )
    no_repeat_ngram_size: int = declare(
        0,
        "never write a run of this many tokens twice; 0: no limit",
        least=0,
        not_in=("lr-find",),
    )
    label_smoothing: float = declare(
        0.0,
        "the share of each target that all words have together in training; 0.1 is "
        "usual for summaries",
        least=0,
        below=1,
        recorded=True,
    )


class OwnTable(
    ChoiceColumns, LabelColumns, LabelNames, SoftLabels, ClassBalance, TextWriting, LongTexts
):
    """Options for reading and learning from the user's own table."""


class SpanReading(OptionGroup):
    """Options for reading questions and contexts."""

    title = "spans"

    doc_stride: int | None = declare(
        None, "tokens from one window of a long context to the next", otherwise="128", least=1
    )
    max_question_length: int | None = declare(
        None, "tokens of a question; longer ones are cut, and counted", otherwise="64", least=1
    )
    max_answer_length: int | None = declare(
        None, "tokens of the longest answer", otherwise="30", least=1, not_in=("lr-find",)
    )


class SplitSeed(OptionGroup):
    """The seed that selects the held-out validation examples."""

    title = "recipe"

    split_seed: int | None = declare(
        None,
        "random seed for holding out validation examples if the data has none",
        otherwise="that of `seed`",
        more="Runs of several seeds are compared on the same ones.",
        least=0,
        most=MOST_SEED,
        free="run",
        recorded=True,
    )


class DataConfig(
    OwnTable,
    SpanReading,
    GlueChoice,
    TableColumns,
    Cleaning,
    TaggedColumns,
    DocumentContext,
    SplitSeed,
):
    """How labelled data are read and learned from: made once from the options of a verb, and passed
    whole down to the reader.

    Attributes:
        seed: of the part that is held out, unless `split_seed` is given.
        whole: hold nothing out if there is no validation file.
        known_rows: the numbers of the rows (:mod:`bertine.data.examples`) that are not held out,
            because a model was trained on them.

    Raises:
        BertineError: an option is out of range or not known, or two do not go together.
    """

    format: TextFormat | None = like(FileFormat, "format")
    seed: int = 0
    whole: bool = False
    known_rows: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.label_separator is not None and not self.label_separator:
            raise BertineError("label_separator is empty; give the character between labels")
        names = self.label_names
        if names is not None and (len({*map(str.strip, names), ""}) <= max(2, len(names))):
            raise BertineError(f"{option('label_names')} must be two names or more, all different")
        for name in ("class_weights", "focal_gamma"):
            if self.probability_columns and getattr(self, name):
                raise BertineError(
                    f"{name} is for labels, not for probabilities (probability_columns); leave one "
                    "of them out"
                )

    @property
    def hold_out_seed(self) -> int:
        """The seed of the part that is held out."""
        return self.seed if self.split_seed is None else self.split_seed

    @property
    def layout(self) -> dict[str, Any]:
        """The given columns, format and quotes by name, which are fixed for official files."""
        values = {name: getattr(self, name) for name in _LAYOUT}
        return {name: value for name, value in values.items() if value is not None}

    def given(self) -> dict[str, Any]:
        """Return the options that the user has given, by name."""
        return {name: value for name, value in self.changed().items() if name not in _NOT_GIVEN}

    def over(self, text_columns: Sequence[str], label_column: str | None) -> Self:
        """Return the same with these columns in place of those that are not named."""
        return type(self).of(
            self,
            text_columns=self.text_columns or text_columns,
            label_column=self.label_column or label_column,
        )

    def to_facts(self) -> dict[str, Any]:
        """Return what affects how a file is read as JSON, which :meth:`from_facts` accepts."""
        return {name: value for name, value in self.changed().items() if name not in _NOT_IN_FACTS}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any], **others: Any) -> Self:
        """Return the options in the result of :meth:`to_facts`, and `others`; unknown names are
        left out."""
        known = cls().values().keys() - _NOT_IN_FACTS
        return cls(**{name: facts[name] for name in facts.keys() & known} | others)


#: Data that are read without options.
DEFAULTS = DataConfig()
_LAYOUT = ("text_columns", "label_column", "format", "quotes")
_NOT_GIVEN = ("seed", "whole", "known_rows")
_NOT_IN_FACTS = {"seed", "known_rows", *(option.name for option in declared(SpanReading))}


# Corpora: read them, train a vocabulary on them, and prepare a token store.


class CorpusReading(Cleaning):
    """Options for reading a corpus (:class:`bertine.tokenization.documents.Corpus`)."""

    title = "reading"

    document_per_file: bool = declare(
        False, "take each plain-text file as one document, blank lines and all"
    )
    text_column: str | None = declare(
        None,
        "column or key of the text in csv, tsv, Parquet and JSON lines",
        otherwise="text, sentence, or the only column",
        flags=("text-column", "text-field"),
    )
    quotes: bool | None = like(
        Cleaning,
        "quotes",
        help='whether " quotes the cells of csv and tsv',
        otherwise="in csv, but not in tsv",
    )
    strict: bool = like(
        Cleaning,
        "strict",
        help="refuse invalid UTF-8 and NUL bytes instead of replacing and counting them",
    )


class Vocabulary(OptionGroup):
    """The contents of a vocabulary."""

    title = "vocabulary"

    kind: TokenizerKind = declare(
        "wordpiece",
        "wordpiece: BERT's; byte-bpe: RoBERTa's byte-level BPE, which keeps case and accents, has "
        "no unknown characters, and takes none of the options for them; unigram: ALBERT's; "
        "word-bpe: GPT-1's",
        more="byte-bpe and word-bpe write ``vocab.json`` and ``merges.txt`` in place of "
        "``vocab.txt``, unigram nothing but ``tokenizer.json``, which has the pieces "
        "with their probabilities.",
    )
    special_tokens: SpecialStyle | None = declare(
        None,
        "of byte-bpe: roberta: <s> and </s> around texts; bert: names and places as BERT has them, "
        "which is how ModernBERT reads; of unigram: albert: as BERT; xlnet: <sep> behind each "
        "text, and <cls> last",
        otherwise="roberta, albert",
    )
    vocab_size: int = declare(
        30522, "pieces, special tokens and single characters included", least=1
    )
    extend: Path | str | None = declare(
        None,
        "keep the tokens of this tokenizer or model, and add to them up to `vocab_size`; text is "
        "read as it reads it",
        more="They keep their ids; `lowercase`, `strip_accents` and `split_chinese` are its own.",
        metavar="DIR",
    )
    lowercase: bool | None = declare(
        None,
        "lowercase the text, or keep its case",
        otherwise="lowercased for WordPiece and Unigram",
        no="cased",
    )
    strip_accents: bool | None = declare(
        None,
        "remove accents",
        otherwise="stripped where text is lowercased, kept where it is cased",
        no="keep-accents",
    )
    split_chinese: bool = declare(True, "make every Chinese character a word")
    min_frequency: int = declare(
        2, "rarer pieces are left out", more="Of pairs seen less often none is made.", least=1
    )
    limit_alphabet: int | None = declare(
        None,
        "keep the N most frequent characters",
        otherwise="as many as make up 99.99% of the text",
        more="Words with others are unknown. 99.99% are about a hundred in English and some seven "
        "thousand in Chinese. By itself it keeps more if they take no more than a twentieth of the "
        "vocabulary, and fewer if they would leave too little room for pieces of words. In text "
        "whose characters all stand inside words (English) that room is half of the vocabulary; in "
        "text of characters that are words by themselves (Chinese with `split_chinese`), which are "
        "never joined to longer pieces, it is little: half of the vocabulary times the share of "
        "the text that stands inside words. With `extend` it is that share of what is added. The "
        "report says how large the vocabulary must be for 99.99%.",
        least=1,
    )


class VocabOptions(Vocabulary, CorpusReading):
    """All options of the command ``train_vocab``."""


class StoreContent(OptionGroup):
    """The treatment of a corpus's documents, and the processes that prepare them."""

    language: str = declare(
        "en",
        "language of the text, for splitting sentences: en, de, zh, ... (another one: the nearest)",
        more="See :func:`bertine.tokenization.sentences.check_language`.",
        metavar="CODE",
    )
    segmenter: SegmenterName | None = declare(
        None,
        "find the words of Chinese text with jieba, so that masks of whole words hide all of a "
        "word's characters (needs the package jieba)",
        otherwise="each character is a word",
        more="See :mod:`bertine.tokenization.sentences`; jieba is in the extra ``zh``.",
        unknown="{name} is {value!r}; give {known}",
    )
    drop_duplicates: bool = declare(
        False,
        "leave out documents with the same words as an earlier one (they are counted anyway)",
    )
    near_duplicates: NearDuplicates = declare(
        "ignore",
        "documents nearly the same as an earlier one (count and drop need the package rensa)",
        more="It takes 1 kB of disk a document (:mod:`bertine.corpora.duplicates`).",
        unknown="{name} is {value!r}; give {known}",
    )
    similarity: float = declare(
        0.8,
        "least similarity of near-duplicates: common 5-grams of tokens, as a share of all of both",
        metavar="SHARE",
        least=0.01,
        most=1,
    )
    processes: int | None = declare(
        None,
        "processes that work at a time; the store is the same with any number",
        otherwise="one for each core",
        more="No more than there are parts.",
        least=1,
        title="speed",
    )
    ray: str | None = declare(
        None,
        "let a Ray cluster do it (auto, HOST:PORT), or 'local'; needs the package ray, and corpus "
        "and store where all its machines see them under the same paths",
        metavar="ADDRESS",
        title="speed",
    )


class PrepareOptions(StoreContent, CorpusReading):
    """All options of the command ``prepare``."""
