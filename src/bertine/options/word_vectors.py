"""Options of training word2vec's vectors."""

from __future__ import annotations

from bertine.names import WordVectorModel
from bertine.options.corpus import CorpusReading
from bertine.options.fields import NOT_KNOWN, OptionGroup, declare, like
from bertine.options.run import Resuming, Seed


class WordVectorRecipe(OptionGroup):
    """Options that say what word2vec learns."""

    title = "vectors"

    method: WordVectorModel = declare(
        "skip-gram",
        "skip-gram: a word is to predict each word around it; cbow: the mean of those around is to "
        "predict it, which is quicker and has less of rare words",
        unknown=NOT_KNOWN,
    )
    dimensions: int = declare(100, "numbers of a vector", least=1, most=65536)
    window: int = declare(
        5,
        "words to each side, at most",
        more="For each word a number from 1 to this is drawn.",
        least=1,
        most=1000,
    )
    min_count: int = declare(5, "rarer words get no vector, and are left out of the text", least=1)
    max_words: int | None = declare(
        None, "only so many of the most frequent words get a vector", otherwise="all", least=2
    )
    lowercase: bool = declare(True, "one case", no="cased")
    negatives: int = declare(5, "drawn for each pair, to be told from it", least=1, most=1000)
    negative_exponent: float = declare(
        0.75, "of the counts that negatives are drawn by", least=-10, most=10
    )
    subsample: float = declare(
        1e-3,
        "of words that are a larger share of the text than this, occurrences are left out by "
        "chance; 0 keeps all",
        least=0,
        most=1,
    )
    epochs: int = declare(5, "passes over the text", least=1)
    learning_rate: float | None = declare(
        None,
        "at first; it falls to nothing",
        otherwise="0.025 of skip-gram, 0.05 of cbow",
        above=0,
    )


class Word2VecOptions(WordVectorRecipe, CorpusReading, Seed, Resuming):
    """All options of ``word2vec``."""

    resume: bool = like(
        Resuming,
        "resume",
        help="go on with a run that was stopped, exactly as if never stopped",
        more="Its ``.NAME.unfinished`` stands beside `out`; where there is none, one begins.",
    )
