"""Label texts on a page of this machine: ``label``."""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bertine.core.console import Report, log_all, logger, plural
from bertine.core.errors import BertineError, require_packages
from bertine.core.names import option
from bertine.data.examples import ENTITIES, as_columns
from bertine.data.in_memory import TableLike, as_source
from bertine.inference.embedding.embedder import Embedder
from bertine.labelling.answers import Answer, AnswerFile, Kind, check_label
from bertine.labelling.chooser import accuracy_line
from bertine.labelling.pool import Pool, PoolVectors, Texts, read_pool
from bertine.labelling.session import EndedError, Session
from bertine.options.inference import LabelOptions, PlainTexts
from bertine.options.verbs import takes_options
from bertine.serving.address import bound_socket, listen
from bertine.serving.serve import PACKAGES

#: The task that learns each kind of labels.
_TASKS: dict[Kind, str] = {"one": "text", "several": "multi-label", "spans": "tagging"}


@dataclass(repr=False)
class LabelReport(Report):
    """What was labelled.

    Attributes:
        counts: the number of texts of each label.
        labelled: the number of texts with an answer.
        judges: how many of them are set apart to judge.
        accuracy: the share of these that a linear head gives, with its 95% interval; None: there is
            nothing to fit or to judge by, or texts have several labels or marked words.
        out: the file of the labels.
        model: the model directory that was trained at the end; None: none.
        notes: notes on texts that were shortened.
    """

    counts: dict[str, int]
    labelled: int
    judges: int
    accuracy: tuple[float, float, float] | None
    out: Path
    model: Path | None = None
    notes: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Return what the command prints."""
        counts = ", ".join(f"{name} {count:,}" for name, count in self.counts.items())
        lines = [f"{plural(self.labelled, 'text')} labelled{f': {counts}' if counts else ''}"]
        if self.accuracy is not None:
            lines.append(accuracy_line(self.accuracy, self.judges))
        lines += self.notes
        if self.labelled:
            lines.append(f"labels: {self.out}")
        return [*lines, *([] if self.model is None else [f"model: {self.model}"])]


@takes_options()
def label(
    model: Embedder | Path | str | None,
    texts: Path | str | TableLike,
    out: Path | str,
    *,
    show_progress: bool = True,
    options: LabelOptions,
) -> LabelReport:
    """Label texts on a page of this machine, until it is told to finish, or until Ctrl-C.

    The page shows one text after the other: the one whose label teaches most, chosen as by
    :func:`~bertine.suggest`. Keys give labels. The file is complete after each of them, and is read
    first if it is there, so that labelling goes on. A fifth of the texts is set apart, and judges a
    linear head, which is fitted again as labels come.

    Args:
        model: a model directory of any kind, or a loaded :class:`~bertine.Embedder`, whose own
            settings then apply. None: the best one installed for the language of the texts.
        texts: a table of texts, as for :func:`~bertine.embed`, or of pairs of texts. Labels in its
            column of labels are used.
        out: a .csv, .tsv or .jsonl file: the labelled rows in the order of labelling, with all
            their columns, the labels, and notes if there are any.
        show_progress: on stderr.
        options: the options described below.

    Raises:
        BertineError: a package is missing; no such model; a table cannot be read; a column is
            missing; the file is there and has other columns; the port is in use; what training
            raises.
    """
    require_packages("labelling", PACKAGES)
    if options.several and options.spans:
        raise BertineError(f"give {option('several')} or {option('spans')}, not both")
    kind: Kind = "several" if options.several else "spans" if options.spans else "one"
    folder = _folder_of_model(Path(out), kind, model, options)
    columns = as_columns(options.text_columns)
    if len(columns) > (1 if kind == "spans" else 2):
        raise BertineError(
            f"{option('text_columns')} names {len(columns)} columns; give one, or two for pairs, "
            f"which have no {option('spans')}"
        )
    reading = PlainTexts.of(options, text_column=columns[0] if len(columns) == 1 else None)
    label = options.label_column or (ENTITIES if kind == "spans" else "label")
    pair = columns if len(columns) == 2 else ()
    pool = read_pool(as_source(texts, "texts"), reading, label, pair)
    file = AnswerFile(out, pool, label, kind)
    given = list(dict.fromkeys(check_label(name, kind) for name in options.labels or ()))
    known = _known(pool, file)
    with contextlib.closing(bound_socket("127.0.0.1", options.port)) as listener:
        vectors = PoolVectors(model, pool, options)
        log_all(pool.notes)
        rows = {texts: row for row, texts in enumerate(pool.rows)}
        answers = {rows[texts]: answer for texts, answer in known.items() if texts in rows}
        for asked in rows:
            file.others.pop(asked, None)
        session = Session(pool, file, given, answers, seed=options.seed)
        finished = _labelled(listener, session, vectors, given, show_progress)
    result = LabelReport(
        dict(session.counts()),
        len(session.answers),
        session.judgement.judges,
        session.judgement.accuracy,
        file.path,
        notes=vectors.embedder.notes(),
    )
    if folder is not None and finished and session.answers:
        logger.info(f"labels: {file.path}")
        result.model = _train(options, kind, model, pool, file, folder)
    return result


def _folder_of_model(out: Path, kind: Kind, model: object, options: LabelOptions) -> Path | None:
    """Return the folder of the run that trains at the end; None: none does.

    Raises:
        BertineError: it exists, or the labels are not for that way to train.
    """
    if options.then is None:
        return None
    folder = out.with_name(f"{out.stem}-model")
    if folder.exists():
        raise BertineError(f"{folder}: is there, but {option('then')} trains there; move it away")
    if options.then == "few-shot" and kind == "spans":
        raise BertineError(
            f"few-shot learns no {option('spans')}; use {option('then', 'finetune')}"
        )
    if isinstance(model, Embedder):
        raise BertineError(f"{option('then')} needs the folder of the model in place of it")
    return folder


def _known(pool: Pool, file: AnswerFile) -> dict[Texts, Answer]:
    """Return the answers that are there, in the file and in the table of the texts; the pool gets
    the texts that only the file has."""
    known = file.read()
    strange = [texts for texts in known if texts not in pool.rows]
    if strange:
        pool.notes.append(
            f"{file.path}: {plural(len(strange), 'text')} not in {pool.name}; kept, and learned "
            "from all the same"
        )
    if known:
        pool.notes.append(f"{file.path}: goes on after {plural(len(known), 'text')}")
    labels = {
        texts: file.answer(row, pool.name) for texts, row in pool.labelled if texts not in known
    }
    if labels:
        taken = plural(len(labels), "text")
        pool.notes.append(f"{pool.name}: {taken} with labels in the column {file.label_column!r}")
    known |= labels
    pool.rows |= dict.fromkeys(strange)
    return known


def _labelled(
    listener: socket.socket,
    session: Session,
    vectors: PoolVectors,
    labels: Sequence[str],
    show: bool,
) -> bool:
    """Answer at `listener` until a signal, or until the person has finished, which is returned."""
    from bertine.labelling.page import create_app
    from bertine.serving.server import Server

    finished = threading.Event()

    def finish() -> None:
        finished.set()
        session.end()

    def stop() -> None:
        server.should_exit = True

    def compute() -> None:
        try:
            made = vectors.of_texts(show=show, advance=session.computed)
            session.see(made, vectors.of_labels(labels))
        except EndedError:
            pass
        except BaseException as error:
            session.end(error)

    session.on_end = stop
    key = secrets.token_urlsafe(16)
    server = Server(create_app(session, key, finish))
    session.start()
    computing = threading.Thread(target=compute, name="vectors", daemon=True)
    computing.start()
    try:
        listen(listener)
        logger.info(
            f"label on this page: http://127.0.0.1:{listener.getsockname()[1]}/#{key} ; Ctrl-C "
            "ends it, and nothing is lost"
        )
        server.run([listener])
    finally:
        session.end()
        session.join()
        computing.join()
    if session.fault is not None:
        raise session.fault
    return finished.is_set()


def _train(
    options: LabelOptions, kind: Kind, model: Any, pool: Pool, file: AnswerFile, folder: Path
) -> Path:
    """Train on the labels, and return the model directory."""
    from bertine.training.finetuning.finetune import few_shot, finetune

    arguments = {
        "model": model,
        "data": file.path,
        "out": folder,
        "text_columns": list(pool.text_columns),
        "label_column": file.label_column,
        "device": options.device,
        "seed": options.seed,
    }
    train = few_shot if options.then == "few-shot" else finetune
    return Path(train(task=_TASKS[kind], **arguments).model)
