"""Score the vectors of a model on a file of pairs of texts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from bertine.errors import BertineError
from bertine.inference.embedding.embedder import Embedder, unknown_text
from bertine.inference.embedding.opened import open_embedder
from bertine.inference.embedding.scoring.report import SimilarityReport
from bertine.inference.embedding.scoring.scores import score_order, score_search
from bertine.inference.files.rows import text_progress
from bertine.interop.sentence_modules import MODULES
from bertine.interop.word_models import static_folder
from bertine.names import PairKind
from bertine.options.answering import EvaluateOptions
from bertine.options.names import option
from bertine.records.splits import find_splits
from bertine.records.text_pairs import KINDS, USUAL_PAIRS, PairRows
from bertine.tables.given import Data, GivenTable, Source
from bertine.tasks.features import Features
from bertine.terminal.console import counted, say

_CHUNK = 1024
#: Kinds of rows that vectors are scored on.
JUDGED: tuple[PairKind, ...] = ("pairs", "scores")
#: Options of models that answer.
_OF_ANSWERS = (
    *("worst", "baselines", "probability_columns", "word_column", "tag_column"),
    *("coverage", "cost_matrix"),
)


def gives_vectors(model: object) -> bool:
    """Tell whether `model` is an embedder, or a directory of sentence-transformers or of static
    vectors."""
    if isinstance(model, Embedder):
        return True
    if not isinstance(model, str | Path):
        return False
    folder = Path(model)
    run = (folder / "run.json").is_file()
    if static_folder(folder) is not None:
        return True
    return (folder / "model" / MODULES if run else folder / MODULES).is_file()


def evaluate_vectors(
    model: Embedder | Path | str,
    data: Data,
    options: EvaluateOptions,
    *,
    show_progress: bool = True,
) -> SimilarityReport:
    """Score the vectors of `model`: on pairs with a score by the order of their cosines, on pairs
    of a text and its match by what a search for the first finds among all second ones.

    Raises:
        BertineError: no such model or file, or one that has no pairs.
    """
    for name in _OF_ANSWERS:
        if getattr(options, name):
            raise BertineError(f"{option(name)} is not for models that give vectors; leave it out")
    rows = rows_to_score(data, options)
    if isinstance(model, Embedder) and options.dimensions is not None:
        raise BertineError(f"a loaded model keeps its vectors; load it with {option('dimensions')}")
    embedder = open_embedder(
        model,
        dimensions=options.dimensions,
        device=options.device,
        precision=options.precision,
    )
    report = score_rows(embedder, rows, show_progress=show_progress)
    report.notes += rows.notes()
    return report


def rows_to_score(data: Data, options: EvaluateOptions) -> PairRows:
    """Return the rows of the validation (else test) file of a folder, or of a file or a table.

    Raises:
        BertineError: no such file.
    """
    return PairRows(
        evaluated_part(data),
        format=options.format,
        quotes=options.quotes,
        strict=options.strict,
        asked={"text_columns": options.text_columns, "label_column": options.label_column},
    )


def holds_text_pairs(data: Data, options: EvaluateOptions) -> bool:
    """Tell whether `data` are pairs of texts by the names of their columns, or those that the
    options give."""
    try:
        columns = rows_to_score(data, options).open_columns()
    except BertineError:
        return False
    named = columns.texts in USUAL_PAIRS or bool(options.text_columns)
    return columns.kind == "scores" or (columns.kind == "pairs" and named)


def evaluated_part(data: Data) -> Source:
    """Return the validation (else test) file of a folder; a file or a table as it is."""
    if isinstance(data, GivenTable):
        return data
    parts = find_splits(data)
    part = parts.validation or parts.test or parts.train
    if part is None:
        raise BertineError(f"{data}: has no file to evaluate on")
    return part


def score_rows(
    embedder: Embedder, rows: PairRows, *, show_progress: bool = True
) -> SimilarityReport:
    """Score the vectors of `embedder` on the rows of a table, and say what they are.

    Raises:
        BertineError: they are no pairs.
    """
    columns, source = rows.open_columns(), str(rows.source)
    if columns.kind not in JUDGED:
        raise BertineError(
            f"{source}: vectors are scored on pairs of texts, with a score or without; these are "
            f"{KINDS[columns.kind]}"
        )
    say(columns.line(source))
    cut, unknown = 0, unknown_text(embedder)
    with text_progress("evaluate", rows.source, show=show_progress) as advance:

        def chunks() -> Iterator[tuple[list[Features], list[Features], list[float]]]:
            nonlocal cut
            listed = iter(rows)
            while part := list(islice(listed, _CHUNK)):
                texts_of = [[row.texts[n] for row in part] for n in (0, 1)]
                both = [embedder.features(texts) for texts in texts_of]
                if unknown is not None:
                    for features, texts in zip(both, texts_of, strict=True):
                        unknown.count(features, texts)
                cut += sum(text.num_truncated > 0 for texts in both for text in texts)
                yield both[0], both[1], [row.score for row in part if row.score is not None]
                advance(len(part))

        score = score_order if columns.kind == "scores" else score_search
        try:
            report = score(embedder, chunks())
        except BertineError as error:
            if rows.read:
                raise
            raise BertineError(f"{source}: has no row to evaluate on") from error
    report.source = source
    if unknown is not None and (line := unknown.note()):
        report.notes.append(line)
    if cut:
        cut_at = f"cut at {embedder.max_length} pieces"
        report.notes.append(f"{counted(cut, 'text', 'was', 'were')} {cut_at}")
    return report
