"""Generate texts with a language model, for a few prompts or for a file of them: ``generate``."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import islice, takewhile
from pathlib import Path

from bertine.core.console import ReportOf, log_all, logger, plural, quietly
from bertine.core.errors import BertineError
from bertine.core.names import in_python, option
from bertine.corpora.formats import FORMATS
from bertine.data.in_memory import InMemoryTable, TableLike, as_source
from bertine.data.lines import LINE_COLUMN, TableLayout, written_layout
from bertine.data.tables import Table, TableRow
from bertine.data.writer import open_writer
from bertine.hub.model_directory import LoadedModel, load_config, load_model
from bertine.inference.answer_files import pace
from bertine.inference.rows import checked_singles, joined, open_texts, text_progress, unused
from bertine.models.family import family_of
from bertine.models.generation import OnToken, SearchSettings, Written, search
from bertine.models.precision import resolve_device
from bertine.options.inference import DecodingOptions, GenerateOptions, PlainTexts
from bertine.options.verbs import takes_options
from bertine.tokenization.tokenizer import Tokenizer

# Sequence start: the special tokens before a text that a model continues.


def sequence_start(loaded: LoadedModel) -> tuple[int, ...]:
    """Return the ids of the special tokens that begin the sequences of the model's pre-training;
    where the model directory does not record them, those of its kind. None for GPT-1's published
    weights, whose sequences are stretches of running text."""
    form = FORMATS[family_of(loaded.config.model_type).input_format]
    if loaded.task is not None:
        form = FORMATS.get(loaded.task.training.get("input_format", ""), form)
    return () if form.bare else loaded.tokenizer.template.running.before


# Incremental decoding: the part of a growing text that is final.

#: The replacement for bytes that are not a whole character yet.
_UNFINISHED = "\ufffd"


class IncrementalDecoder:
    """A decoder that returns the text of tokens as they arrive.

    Args:
        tokenizer: the tokenizer of the tokens.
        prompt: the tokens before them; empty: they are a separate text.
        tokens: tokens that were generated already.
    """

    def __init__(
        self, tokenizer: Tokenizer, prompt: Sequence[int] = (), tokens: Sequence[int] = ()
    ) -> None:
        self._tokenizer, self._prompt = tokenizer, list(prompt)
        self._before = tokenizer.decode(self._prompt) if prompt else ""
        # Unknown tokens are not decoded, so they do not show that a space follows.
        unknown = bool(prompt) and self._prompt[-1] == tokenizer.unk_token_id
        self._gap = " " if unknown else ""
        self._tokens = list(tokens)
        self._shown = ""

    def add(self, token: int) -> str:
        """Add a token; return the text that is final now and was not before: whole characters."""
        self._tokens.append(token)
        return self._more(self.text.rstrip(_UNFINISHED))

    def rest(self) -> str:
        """Return the text that was not returned before, as no token follows; if the final text
        differs from the returned one, from the place where it does."""
        text = self.text
        same = takewhile(lambda pair: pair[0] == pair[1], zip(text, self._shown, strict=False))
        return text[sum(1 for _ in same) :]

    @property
    def text(self) -> str:
        """All text that the tokens add to the prompt's text, after a space where one belongs
        there."""
        whole = self._tokenizer.decode([*self._prompt, *self._tokens])
        if whole.startswith(self._before):
            added = whole[len(self._before) :]
            return added if not added or added[0].isspace() else self._gap + added
        return " " + self._tokenizer.decode(self._tokens)

    def _more(self, text: str) -> str:
        # The join of two tokens may remove the end of the first one, so that waits for the end.
        if not text.startswith(self._shown):
            return ""
        more = text[len(self._shown) :]
        self._shown = text
        return more


# Generator: a language model with the settings of its generation.

#: Tokens that are kept at once: prompts and generated tokens of all sequences.
_TOKENS = 8192


@dataclass(frozen=True)
class ReadPrompt:
    """A text that a model has read.

    Attributes:
        number: its number among all texts, for the random draws.
        text: the text as it was given.
        tokens: its tokens, as many as fit into the model.
    """

    number: int
    text: str
    tokens: Sequence[int]


@dataclass(frozen=True)
class Generated:
    """The texts generated for one prompt.

    Attributes:
        prompt: the text that was given.
        texts: the generated texts without the prompt, the best or the first drawn first. If they
            continue the prompt, they include the space in between.
        log_probabilities: the summed log-probability of the tokens of each text in nats, its end
            token included.
        goes_on: whether the texts continue the prompt.
    """

    prompt: str
    texts: tuple[str, ...]
    log_probabilities: tuple[float, ...]
    goes_on: bool

    @property
    def whole(self) -> tuple[str, ...]:
        """The texts, after the prompt where they continue it."""
        if not self.goes_on:
            return tuple(text.strip() for text in self.texts)
        return tuple(self.prompt.rstrip() + text for text in self.texts)


@dataclass
class TextGenerator:
    """A model with the settings of its generation.

    Attributes:
        loaded: the model.
        choosing: the settings for choosing tokens.
        settings: the same settings, with the model's own end tokens.
        goes_on: whether the model continues a prompt; else an encoder reads the prompt.
        cut: the number of prompts that were too long.
        tokens_lost: the number of tokens cut off from these prompts.
        unknown: the number of prompt tokens that are not in the vocabulary.
        empty: the number of prompts without any token.
    """

    loaded: LoadedModel
    choosing: DecodingOptions
    settings: SearchSettings = field(init=False)
    end_token: str | None = None
    cut: int = 0
    tokens_lost: int = 0
    unknown: int = 0
    empty: int = 0

    def __post_init__(self) -> None:
        tokenizer, config = self.loaded.tokenizer, self.loaded.config
        self.goes_on = not config.encodes_and_decodes
        self._before = list(sequence_start(self.loaded)) if self.goes_on else []
        template = tokenizer.template
        first, forced_end = config.forced_tokens
        end = template.separator if self.goes_on else template.last_id
        ends = [forced_end, end]
        if self.end_token is not None:
            ends.append(tokenizer.token_to_id(self.end_token))
            if ends[-1] is None:
                raise BertineError(f"end_token {self.end_token!r} is not in the vocabulary")
        end_tokens = tuple(dict.fromkeys(token for token in ends if token is not None))
        if self.choosing.min_new_tokens and not end_tokens:
            raise BertineError(
                "min_new_tokens is for models with a token that ends a text, and this one has "
                f"none; name one ({option('end_token', '...')}), or leave it out"
            )
        # A model may have more rows than its tokenizer has pieces, to reach a round number.
        never = set(range(tokenizer.vocab_size, config.vocab_size))
        if self.goes_on:
            never |= tokenizer.special_ids - set(end_tokens)
        self.settings = SearchSettings(
            self.choosing,
            end_tokens,
            frozenset(never),
            first_token=first,
            ends_at_limit=forced_end is not None,
        )
        taken = self.choosing.max_new_tokens + len(self._before) if self.goes_on else 0
        self.room = config.longest_input - taken
        if self.room < 1 or self.choosing.max_new_tokens > config.longest_input:
            shared = ", those of the prompt among them" if self.goes_on else ""
            raise BertineError(
                f"max_new_tokens is {self.choosing.max_new_tokens}, but the model has places for "
                f"{config.longest_input} tokens{shared}; give "
                f"{config.longest_input - self.goes_on - len(self._before)} or fewer"
            )

    @classmethod
    def opened(
        cls,
        model: LoadedModel | Path | str,
        choosing: DecodingOptions,
        end_token: str | None,
        device: str | None,
    ) -> TextGenerator:
        """Load a model directory, unless `model` is loaded already.

        Raises:
            BertineError: the model cannot be loaded, or generates no texts; options that exclude
                each other; an end token that is not in the vocabulary; more tokens than the model
                has positions for.
        """
        SearchSettings.check(choosing)
        name = "this model" if isinstance(model, LoadedModel) else str(model)
        config = model.config if isinstance(model, LoadedModel) else load_config(model)
        if not config.writes_with:
            why = "" if config.reads_forward else ": it sees both sides of a word"
            raise BertineError(
                f"{name}: is of type {config.model_type}, which writes no texts{why}; give one of "
                "a type that does, such as openai-gpt or bart"
            )
        loaded = model if isinstance(model, LoadedModel) else load_model(model)
        if not isinstance(model, LoadedModel):
            log_all(loaded.report.lines())
        if config.writes_with not in loaded.model.heads:
            title = loaded.model.family.heads[config.writes_with].title
            raise BertineError(
                f"{name}: has no {title}, so it writes no texts (fine-tuning drops that head)"
            )
        author = cls(loaded, choosing, end_token=end_token)
        where = resolve_device(device)
        if device is not None or not isinstance(model, LoadedModel):
            loaded.model.to(where)
        loaded.model.eval()
        return author

    def is_empty(self, text: str) -> bool:
        """Return whether a text has only special tokens."""
        return not self.loaded.tokenizer.encode_plain([text])[0]

    def tokens(self, text: str) -> list[int]:
        """Return all tokens of a prompt."""
        tokenizer = self.loaded.tokenizer
        return (
            tokenizer.encode_plain([text])[0] if self.goes_on else tokenizer.encode(text).input_ids
        )

    def read(self, text: str, number: int) -> ReadPrompt:
        """Turn a text into a prompt, and count what was cut off: the beginning of a text to
        continue, the end of a text for an encoder."""
        tokenizer, tokens = self.loaded.tokenizer, self.tokens(text)
        if self.is_empty(text):
            self.empty += 1
            return ReadPrompt(number, text, [])
        kept = tokens[-self.room :]
        if not self.goes_on and len(tokens) > self.room:
            kept = tokenizer.encode(text, max_length=self.room).input_ids
        self.cut += len(tokens) > len(kept)
        self.tokens_lost += len(tokens) - len(kept)
        if tokenizer.unk_token_id is not None:
            self.unknown += kept.count(tokenizer.unk_token_id)
        return ReadPrompt(number, text, kept)

    def nothing(self, prompt: ReadPrompt) -> Generated:
        """Return the result for a prompt without tokens."""
        return Generated(prompt.text, (), (), self.goes_on)

    def notes(self, prompts: int) -> list[str]:
        """Return notes on prompts that were cut, unknown or empty, out of `prompts`."""
        notes = []
        if self.cut:
            which = "first" if self.goes_on else "last"
            notes.append(
                f"{self.cut} of {plural(prompts, 'prompt')} were longer than the "
                f"{self.room} tokens that there is room for; their {which} tokens were not read "
                f"({plural(self.tokens_lost, 'token')})"
            )
        if self.unknown:
            notes.append(
                f"{plural(self.unknown, 'token')} of the prompts unknown to the vocabulary"
            )
        if self.empty:
            notes.append(f"{plural(self.empty, 'prompt', 'is', 'are')} empty; nothing was written")
        return notes

    def write(
        self, prompts: Sequence[ReadPrompt], on_token: OnToken | None = None
    ) -> list[Generated]:
        """Generate texts for prompts that have tokens, a few prompts of similar length at a time;
        in their order."""
        results: dict[int, Generated] = {}
        for batch in self._batches(prompts):
            tokens = [[*self._before, *prompts[at].tokens] for at in batch]
            model = self.loaded.model
            writer, starts = model.backbone.writer(model.next_scores, tokens)
            numbers = [prompts[at].number for at in batch]
            texts = search(writer, starts, self.settings, numbers=numbers, on_token=on_token)
            for at, written in zip(batch, texts, strict=True):
                results[at] = self._generated(prompts[at], written)
        return [results[at] for at in range(len(prompts))]

    def growing(self, prompt: ReadPrompt, tokens: Sequence[int] = ()) -> IncrementalDecoder:
        """Return the decoder of the tokens after a prompt, some of which may exist already."""
        before = prompt.tokens if self.goes_on else ()
        return IncrementalDecoder(self.loaded.tokenizer, before, tokens)

    def _generated(self, prompt: ReadPrompt, written: Sequence[Written]) -> Generated:
        texts = tuple(self.growing(prompt, sequence.tokens).rest() for sequence in written)
        chances = tuple(sequence.log_probability for sequence in written)
        return Generated(prompt.text, texts, chances, self.goes_on)

    def _batches(self, prompts: Sequence[ReadPrompt]) -> Iterator[list[int]]:
        """Yield the indices of prompts of similar length that are processed together."""
        order = sorted(range(len(prompts)), key=lambda at: len(prompts[at].tokens))
        rows = max(self.choosing.beams, self.choosing.sequences)
        batch: list[int] = []
        for at in order:
            length = len(prompts[at].tokens) + self.choosing.max_new_tokens
            if batch and (len(batch) + 1) * rows * length > _TOKENS:
                yield batch
                batch = []
            batch.append(at)
        if batch:
            yield batch


# ``generate``: texts for a few prompts or for a file of them.

#: Rows of a file that are processed at once, so that a long file shows its progress.
_ROWS = 64
#: The column of the generated texts.
_COLUMN = "generated"
_LINE_BREAKS = re.compile(r"\s*[\r\n\x0b\x0c\x85\u2028\u2029]\s*")
#: Called with a part of the text as soon as it is final.
OnText = Callable[[str], None]
#: Writes a row and its generated texts to a file.
_Write = Callable[[TableRow, Generated], None]


@dataclass(repr=False)
class GeneratedTexts(ReportOf[Generated]):
    """The texts of :func:`generate`, a sequence of
    :class:`~bertine.inference.generate.Generated`.

    Attributes:
        items: the texts of each prompt, in their order; empty where they were written to a file.
        written: the number of prompts answered in a file.
        empty: the number of prompts without any token, for which nothing is generated.
        seconds: wall time.
        notes: notes on prompts that were cut, unknown or empty, and on what was repaired in the
            input.
    """

    items: list[Generated] = field(default_factory=list)
    written: int = 0
    empty: int = 0
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Return the texts, one a line, after the prompts that they continue; for an output file,
        the amount written."""
        if self.written:
            done = plural(self.written, "prompt")
            return [f"wrote texts for {done} {pace(self.written, self.seconds)}"]
        return [one_line(text) for item in self.items for text in item.whole]


def one_line(text: str) -> str:
    """Replace each line break of a text by a space."""
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
    """Generate the continuation of, or the answer to, one text or many.

    GPT-1 continues the text, BART reads it and writes another. Each token is the most probable one,
    unless tokens are drawn (`sample`) or several sequences are followed at once (`beams`). The same
    arguments give the same text: a draw is a function of the seed, the number of the prompt and the
    place, independent of other prompts.

    Args:
        model: a model directory, or a model that was loaded from one.
        texts: one prompt, or several. Not with `input`.
        input: prompts as a csv, tsv, JSON lines, Parquet, .xlsx or plain-text file, or ``-`` for
            stdin; or a table in memory, as for `finetune`.
        output: a file, or ``-`` for stdout: the columns of the input with ``generated`` added (with
            several `sequences` ``generated_1``, ``generated_2``, …), in the format of the input, or
            that of its suffix (.csv, .jsonl, .parquet); for plain text a line for each text, the
            prompt before its continuation. None: the texts are returned.
        on_text: called with the parts of the texts as soon as they are final, each prompt before
            its continuation and a line break after each text; with beams or several sequences a
            text is final when it has ended. Not with `output`.
        show_progress: on stderr, with a file.
        options: the options described below.

    Raises:
        BertineError: no such model, or one that generates no texts; neither or both of `texts` and
            `input`; a prompt without any token; options that exclude each other; a file that cannot
            be read; an output in which the texts cannot be written.
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
        author = TextGenerator.opened(
            model, DecodingOptions.of(options), options.end_token, options.device
        )
    report = GeneratedTexts()
    with ExitStack() as stack:
        if given:
            _check_given(author, prompts)
            table = Table(InMemoryTable("texts", (LINE_COLUMN,), {LINE_COLUMN: prompts}))
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
            writing = _writing(output, layout, table, column, options)
            write = stack.enter_context(writing)
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
    log_all(report.notes, logger.warning)
    return report


def _nothing(count: int) -> None:
    """Show no progress."""


def _check_given(author: TextGenerator, texts: Sequence[str]) -> None:
    """Refuse a given text without any token."""
    for number, text in enumerate(texts):
        if author.is_empty(text):
            which = f"texts[{number}]" if in_python() else f"text {number + 1}"
            which = "the text" if len(texts) == 1 else which
            raise BertineError(f"{which} has nothing to go on from; give a word or more")


def _answers(
    author: TextGenerator, texts: Sequence[str], first: int, on_text: OnText | None
) -> list[Generated]:
    """Generate texts for some prompts, the first of which has the number `first`; nothing for those
    without tokens."""
    prompts = [author.read(text, first + at) for at, text in enumerate(texts)]
    written = iter(_heard(author, [p for p in prompts if p.tokens], on_text))
    return [next(written) if p.tokens else author.nothing(p) for p in prompts]


def _heard(
    author: TextGenerator, prompts: Sequence[ReadPrompt], on_text: OnText | None
) -> list[Generated]:
    """Generate texts for prompts, and pass on their parts as soon as they are final."""
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
    output: Path | str,
    read: TableLayout,
    table: Table,
    column: str,
    options: GenerateOptions,
) -> Iterator[_Write]:
    """Open the output file for the rows of `table`, whose prompts are in `column`."""
    sequences = options.sequences
    layout = written_layout(output, read, encoding=options.output_encoding)
    flat = layout.kind == "text" or (layout.kind == "tsv" and not layout.quotes)
    names = [_COLUMN] if sequences == 1 else [f"{_COLUMN}_{n}" for n in range(1, sequences + 1)]
    added = [unused(name, table.columns, "model_") for name in names]
    columns = [LINE_COLUMN] if layout.kind == "text" else [*table.columns, *added]
    with open_writer(output, layout, columns, source=table) as writer:

        def write(row: TableRow, item: Generated) -> None:
            if layout.kind == "text":
                for text in item.whole or (item.prompt,):
                    writer.write({LINE_COLUMN: one_line(text)})
                return
            # Rules may leave fewer texts than were requested.
            texts = [one_line(text) if flat else text for text in item.texts]
            texts += [""] * (sequences - len(texts))
            values = dict(zip(added, texts, strict=True))
            writer.write(joined(table.name, row, values, [column]), row)

        yield write
