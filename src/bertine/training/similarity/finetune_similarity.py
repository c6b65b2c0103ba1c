"""``finetune_similarity``: a model directory and texts that are alike in, one of sentence vectors
out."""

from __future__ import annotations

from pathlib import Path

from bertine.errors import BertineError
from bertine.files import scratch_dir
from bertine.inference.embedding.embedder import Embedder
from bertine.interop.sentence_modules import SentenceModules, read_sentence_modules
from bertine.model_folders import locate
from bertine.modeldir import load_model
from bertine.options.names import option
from bertine.options.similarity import SimilarityOptions
from bertine.options.verbs import takes_options
from bertine.records.splits import find_splits
from bertine.records.text_pairs import PairColumns
from bertine.tables.given import TableLike, as_data
from bertine.terminal.console import say
from bertine.training.run import Run
from bertine.training.similarity.fitting import check_lengths
from bertine.training.similarity.judging import training_rows, validation_rows
from bertine.training.similarity.objective import PairLoss
from bertine.training.similarity.result import SimilarityResult
from bertine.training.similarity.run import SimilarityRun

#: The longest text, where nobody says and the model reads more.
_LONGEST = 128


@takes_options()
def finetune_similarity(
    *,
    model: Path | str,
    data: Path | str | TableLike,
    out: Path | str,
    validation: Path | str | TableLike | None = None,
    options: SimilarityOptions,
) -> SimilarityResult:
    """Train a model to give vectors that are near to one another where texts are alike.

    From pairs of a text and its match, with all other texts of a batch, and columns of negatives,
    as wrong ones (Henderson et al. 2017; Reimers and Gurevych 2019); pairs with scores (CoSENT);
    texts with labels, of which pairs are drawn as they are needed; or nothing but texts, each its
    own match under another dropout (Gao et al. 2021, SimCSE), or with its neighbouring sentences as
    pairs. Texts are read from disk. The weights of the best evaluation are saved, or those of
    before training where none is better.

    Args:
        model: the model directory to start from.
        data: a table, or a folder with a training and a validation file.
        out: the run's folder; the model directory is ``out/model``, one of sentence-transformers.
        validation: a table of pairs, with a score (judged by Spearman) or without (by nDCG@10).
            None: that of the folder, else a tenth of the pairs, at most 2,000, is held out; of
            texts without pairs nothing is.
        options: what the other arguments say.

    Raises:
        BertineError: no such model or data, a column that is not there, or not recognized; `out`
            holds another run; a loss that needs scores, and there are none.
    """
    Run.check(out, options.resume)
    if options.steps is not None and options.epochs is not None:
        raise BertineError(f"give {option('steps')} or {option('epochs')}, not both")
    data = as_data(data)
    parts = find_splits(data)
    if parts.train is None:
        raise BertineError(f"{data}: has no training file")
    folder = Path(out)
    rows = training_rows(parts.train, options)
    columns = rows.open_columns()
    loss = _loss(columns, options)
    say(columns.line(str(parts.train)))
    embedder, modules = _embedder(model, options)
    check_lengths(loss.lengths, embedder.dimensions)
    judged = validation_rows(parts.validation, validation, options)
    if judged is not None and options.held_out_pairs:
        raise BertineError(
            f"{option('held_out_pairs', options.held_out_pairs)} is for data without a validation "
            f"file; here {judged.source} judges"
        )
    config = embedder.model.config
    if columns.kind == "texts" and not (
        config.hidden_dropout_prob or config.attention_probs_dropout_prob
    ):
        raise BertineError(
            "texts alone are learned by reading each under two dropout masks, but this model has "
            f"no dropout; give {option('dropout', 0.1)}"
        )
    work = SimilarityRun(folder, options, embedder, modules, columns, loss, Path(locate(model)))
    with scratch_dir(folder) as scratch:
        file = work.read(rows, scratch)
        with file:
            return work.train(file, scratch, judged, str(model), str(data))


def _loss(columns: PairColumns, options: SimilarityOptions) -> PairLoss:
    """Return what is minimized.

    Raises:
        BertineError: a loss that these rows do not have what it takes for.
    """
    scored = columns.kind == "scores"
    name = options.loss or ("cosent" if scored else "ranking")
    if scored == (name == "ranking"):
        needed = "pairs without scores" if scored else "pairs with scores"
        raise BertineError(f"{option('loss', name)} is for {needed}; these are of the other kind")
    if options.mine_negatives and columns.kind not in ("pairs", "sentences"):
        raise BertineError(f"{option('mine_negatives')} is for pairs without scores")
    return PairLoss(name, options.scale, options.symmetric, tuple(options.vector_lengths or ()))


def _embedder(
    model: Path | str, options: SimilarityOptions
) -> tuple[Embedder, SentenceModules | None]:
    """Load what is trained, and what its directory says of its vectors."""
    path = Path(locate(model))
    modules = read_sentence_modules(path)
    where = modules.transformer if modules else path
    loaded = load_model(where, heads={}, dropout=options.dropout)
    longest = options.max_length
    if longest is None:
        known = modules.max_length if modules else None
        longest = min(known or _LONGEST, _LONGEST, loaded.config.longest_input)
    embedder = Embedder.load(
        path,
        pooling=options.pooling,
        max_length=longest,
        device=options.device,
        precision="fp32",
        loaded=loaded,
    )
    for line in embedder.load_lines:
        say(line)
    return embedder, modules
