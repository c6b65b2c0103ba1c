"""Options of reading a corpus, training a vocabulary on it and making a token store of it."""

from __future__ import annotations

from pathlib import Path

from bertine.names import NearDuplicates, SegmenterName, SpecialStyle, TokenizerKind
from bertine.options.fields import OptionGroup, declare, like
from bertine.options.reading import Mending


class CorpusReading(Mending):
    """Options that say how a corpus is read (:class:`bertine.text.corpus.Corpus`)."""

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
        Mending,
        "quotes",
        help='whether " quotes the cells of csv and tsv',
        otherwise="in csv, but not in tsv",
    )
    strict: bool = like(
        Mending,
        "strict",
        help="refuse invalid UTF-8 and NUL bytes instead of replacing and counting them",
    )


class Vocabulary(OptionGroup):
    """Options that say what a vocabulary has."""

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
        None, "one case, or both", otherwise="one for WordPiece and Unigram", no="cased"
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
    """All options of ``train_vocab`` that the command has."""


class StoreContent(OptionGroup):
    """Options that say what becomes of the documents of a corpus, and who works on them."""

    language: str = declare(
        "en",
        "of the text, for splitting sentences: en, de, zh, ... (another one: the nearest)",
        more="See :func:`bertine.text.sentences.check_language`.",
        metavar="CODE",
    )
    segmenter: SegmenterName | None = declare(
        None,
        "find the words of Chinese text with jieba, so that masks of whole words hide all of a "
        "word's characters (needs the package jieba)",
        otherwise="each character is a word",
        more="See :mod:`bertine.text.chinese`; jieba is in the extra ``zh``.",
        unknown="{name} is {value!r}; give {known}",
    )
    drop_duplicates: bool = declare(
        False,
        "leave out documents with the same words as an earlier one (they are counted anyway)",
    )
    near_duplicates: NearDuplicates = declare(
        "ignore",
        "documents nearly the same as an earlier one (count and drop need the package rensa)",
        more="It takes 1 kB of disk a document (:mod:`bertine.data.preparation.near_duplicates`).",
        unknown="{name} is {value!r}; give {known}",
    )
    similarity: float = declare(
        0.8,
        "of near-duplicates: common 5-grams of tokens, as a share of all of both",
        metavar="SHARE",
        least=0.01,
        most=1,
    )
    processes: int | None = declare(
        None,
        "how many work at a time; the store is the same",
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
    """All options of ``prepare`` that the command has."""
