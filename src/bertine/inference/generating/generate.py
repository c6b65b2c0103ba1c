"""``generate``: texts that a model writes, for a few prompts or for a file of them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from bertine.errors import BertineError
from bertine.inference.files.given_texts import checked_singles
from bertine.inference.files.rows import joined, open_texts, text_progress, unused
from bertine.inference.files.text_report import pace
from bertine.inference.generating.author import Author, Generated, ReadPrompt
from bertine.modeldir import LoadedModel
from bertine.options.answering import PlainTexts
from bertine.options.generation import Choosing, GenerateOptions
from bertine.options.names import option
from bertine.options.verbs import takes_options
from bertine.records.table_writer import open_writer
from bertine.tables.given import GivenTable, TableLike, as_source
from bertine.tables.layout import LINE_COLUMN, TableLayout, written_layout
from bertine.tables.table import Table, TableRow
from bertine.terminal.console import counted, quietly, warn
from bertine.terminal.shown import Shown

#: Rows of a file that are written at once, so that a long file shows its progress.
_ROWS = 64
#: The column of what was written.
_COLUMN = "generated"
_LINE_BREAKS = re.compile(r"\s*[\r\n\x0b\x0c\x85\u2028\u2029]\s*")
#: Called with a part of the text as soon as it is sure.
OnText = Callable[[str], None]
#: Puts a row and what was written for it into a file.
_Write = Callable[[TableRow, Generated], None]


@dataclass(repr=False)
class GeneratedTexts(Shown):
    """The texts of :func:`generate`, a sequence of
    :class:`~bertine.inference.generating.author.Generated`.

    Attributes:
        items: one for each prompt, in their order; empty where they were written to a file.
        written: how many prompts were answered in a file.
        empty: prompts without any token, for which nothing is written.
        seconds: of wall time.
        notes: what was cut, unknown or empty, and what was mended in the input.
    """

    items: list[Generated] = field(default_factory=list)
    written: int = 0
    empty: int = 0
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Generated]:
        return iter(self.items)

    def __getitem__(self, index: int) -> Generated:
        return self.items[index]

    def lines(self) -> list[str]:
        """Return the texts, one a line, with the prompts that they go on with; of a file that was
        written, how much that was."""
        if self.written:
            done = counted(self.written, "prompt")
            return [f"wrote texts for {done} {pace(self.written, self.seconds)}"]
        return [one_line(text) for item in self.items for text in item.whole]


def one_line(text: str) -> str:
    """Return a text with a space in the place of each line break."""
    return _LINE_BREAKS.sub(" ", text)


@takes_options()
def generate(
    model: LoadedModel | Path | str,
    texts: Sequence[str] | str | None = None,
    *,
    input: Path | str | TableLike | None = None,
    output: Path | str | None = None,
    on_text: OnText | None = None,
    show_progress: bool = True,
    options: GenerateOptions,
) -> GeneratedTexts:
    """Write what a model says next, for one text or many.

    GPT-1 goes on with the text, BART reads it and writes another. The most probable token each
    time, unless tokens are drawn (`sample`) or several sequences are followed at once (`beams`).
    The same text for the same arguments: what is drawn is a function of the seed, the number of
    the prompt and the place, whatever is computed beside it.

    Args:
        model: a model directory, or a model that was loaded from one.
        texts: one prompt, or several. Not with `input`.
        input: prompts as a csv, tsv, JSON lines, Parquet or plain-text file, or ``-`` for stdin;
            or a table in memory, as for `finetune`.
        output: a file, or ``-`` for stdout: the columns of the input with ``generated`` added (with
            several `sequences` ``generated_1``, ``generated_2``, …), in the format of the input,
            or as the name says (.csv, .jsonl, .parquet); of plain text a line for each text, the
            prompt before what goes on with it. None: the texts are returned.
        on_text: called with the parts of the texts as soon as they are sure, each prompt before
            what goes on with it and a line break behind each text; with beams or several sequences
            a text is sure when it has ended. Not with `output`.
        show_progress: on stderr, with a file.
        options: what the other arguments say.

    Raises:
        BertineError: no such model, or one that writes no texts; not either `texts` or `input`; a
            prompt without any token; options that exclude each other; what reading the file
            raises; an output in which the texts cannot be written.
    """
    if on_text is not None and not callable(on_text):
        raise BertineError(f"on_text must be a function, not {type(on_text).__name__}")
    prompts: list[str] = []
    if texts is not None:
        prompts = checked_singles([texts] if isinstance(texts, str) else texts)
    given = bool(prompts)
    if given == (input is not None):
        raise BertineError(f"give either texts or an input file ({option('input')})")
    if given:
        for name in PlainTexts.of(options).changed():
            raise BertineError(f"{option(name)} is for an input file; leave it out")
    if on_text is not None and output is not None:
        raise BertineError("on_text is for texts that are returned; leave out output")
    started = time.monotonic()
    with quietly(given):
        author = Author.opened(model, Choosing.of(options), options.end_token, options.device)
    report = GeneratedTexts()
    with ExitStack() as stack:
        if given:
            _check_given(author, prompts)
            table = Table(GivenTable("texts", (LINE_COLUMN,), {LINE_COLUMN: prompts}))
            column, layout = LINE_COLUMN, TableLayout("text")
            advance: Callable[[int], None] = _nothing
        else:
            assert input is not None
            source = as_source(input, "input")
            table, column = stack.enter_context(open_texts(source, PlainTexts.of(options)))
            layout = table.layout
            show = show_progress and on_text is None and str(output) != "-"
            progress = text_progress("generate", source, layout, show=show)
            advance = stack.enter_context(progress)
        write: _Write | None = None
        if output is not None:
            write = stack.enter_context(_writing(output, layout, table, column, options.sequences))
        rows = iter(table)
        number = 0
        while chunk := list(islice(rows, 1 if on_text is not None else _ROWS)):
            prompts = [table.text(row, column) for row in chunk]
            for row, item in zip(chunk, _answers(author, prompts, number, on_text), strict=True):
                report.empty += not item.log_probabilities
                if write is None:
                    report.items.append(item)
                else:
                    write(row, item)
                    report.written += 1
            number += len(chunk)
            advance(len(chunk))
        report.notes = [*author.notes(number), *table.stats.notes(table.name)]
    report.seconds = time.monotonic() - started
    for note in report.notes:
        warn(note)
    return report


def _nothing(count: int) -> None:
    """Show no progress."""


def _check_given(author: Author, texts: Sequence[str]) -> None:
    """Refuse a text of a program or the command line without any token."""
    for number, text in enumerate(texts, 1):
        if author.is_empty(text):
            which = "the text" if len(texts) == 1 else f"text {number}"
            raise BertineError(f"{which} has nothing to go on from; give a word or more")


def _answers(
    author: Author, texts: Sequence[str], first: int, on_text: OnText | None
) -> list[Generated]:
    """Write for some texts, the first of which has the number `first`; nothing for those without
    tokens."""
    prompts = [author.read(text, first + at) for at, text in enumerate(texts)]
    written = iter(_heard(author, [p for p in prompts if p.tokens], on_text))
    return [next(written) if p.tokens else author.nothing(p) for p in prompts]


def _heard(
    author: Author, prompts: Sequence[ReadPrompt], on_text: OnText | None
) -> list[Generated]:
    """Write for prompts, and hand out the parts of the texts as soon as they are sure."""
    if on_text is None or not prompts:
        return author.write(prompts)
    (prompt,) = prompts
    if author.choosing.beams > 1 or author.choosing.sequences > 1:
        (item,) = author.write(prompts)
        for text in item.whole:
            on_text(f"{text}\n")
        return [item]
    growing = author.growing(prompt)
    if author.goes_on:
        on_text(prompt.text.rstrip())
    (item,) = author.write(prompts, lambda _, token: on_text(growing.add(token)))
    on_text(f"{growing.rest()}\n")
    return [item]


@contextmanager
def _writing(
    output: Path | str, read: TableLayout, table: Table, column: str, sequences: int
) -> Iterator[_Write]:
    """Open the file of what is written for the rows of `table`, of which `column` is read."""
    layout = written_layout(output, read)
    flat = layout.kind == "text" or (layout.kind == "tsv" and not layout.quotes)
    names = [_COLUMN] if sequences == 1 else [f"{_COLUMN}_{n}" for n in range(1, sequences + 1)]
    added = [unused(name, table.columns, "model_") for name in names]
    columns = [LINE_COLUMN] if layout.kind == "text" else [*table.columns, *added]
    with open_writer(output, layout, columns) as writer:

        def write(row: TableRow, item: Generated) -> None:
            if layout.kind == "text":
                for text in item.whole or (item.prompt,):
                    writer.write({LINE_COLUMN: one_line(text)})
                return
            # Rules may leave fewer texts than were asked for.
            texts = [one_line(text) if flat else text for text in item.texts]
            texts += [""] * (sequences - len(texts))
            values = dict(zip(added, texts, strict=True))
            writer.write(joined(table.name, row, values, [column]))

        yield write
