"""A model that writes texts, ready for a search."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bertine.errors import BertineError
from bertine.generation.paths import OnToken
from bertine.generation.scores import Written
from bertine.generation.search import search
from bertine.generation.settings import SearchSettings
from bertine.inference.generating.growing import GrowingText
from bertine.inference.sequence_start import sequence_start
from bertine.modeldir import LoadedModel, load_config, load_model
from bertine.models.precision import resolve_device
from bertine.options.generation import Choosing
from bertine.options.names import option
from bertine.terminal.console import counted, say

#: Tokens that are kept at once: those of the prompts and those that come, of all sequences.
_TOKENS = 8192


@dataclass(frozen=True)
class ReadPrompt:
    """A text that a model has read.

    Attributes:
        number: among all texts, for what is drawn.
        text: as it was given.
        tokens: its tokens, as many as the model has room for.
    """

    number: int
    text: str
    tokens: Sequence[int]


@dataclass(frozen=True)
class Generated:
    """What was written for one prompt.

    Attributes:
        prompt: the text that was given.
        texts: what was written, the best or the first drawn first; without the prompt. Of a model
            that goes on with the prompt, with the space that belongs between.
        log_probabilities: of the tokens of each, in nats, the one that ended it among them.
        goes_on: whether they go on with the prompt.
    """

    prompt: str
    texts: tuple[str, ...]
    log_probabilities: tuple[float, ...]
    goes_on: bool

    @property
    def whole(self) -> tuple[str, ...]:
        """The texts with the prompt before them, where they go on with it."""
        if not self.goes_on:
            return tuple(text.strip() for text in self.texts)
        return tuple(self.prompt.rstrip() + text for text in self.texts)


@dataclass
class Author:
    """A model, and how it is to write.

    Attributes:
        loaded: the model.
        choosing: how tokens are chosen.
        settings: the same, with the model's own end tokens.
        goes_on: whether it goes on with a prompt; else an encoder reads the prompt.
        cut: prompts that were longer than there was room for.
        tokens_lost: tokens that were cut off from them.
        unknown: tokens of prompts that the vocabulary does not have.
        empty: prompts without any token.
    """

    loaded: LoadedModel
    choosing: Choosing
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
        choosing: Choosing,
        end_token: str | None,
        device: str | None,
    ) -> Author:
        """Load a model directory, unless it is loaded.

        Raises:
            BertineError: what loading it raises; a model that writes no texts; options that
                exclude each other; an end token that is not in the vocabulary; more tokens than
                the model has places for.
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
            for line in loaded.report.lines():
                say(line)
        if config.writes_with not in loaded.model.heads:
            title = config.heads[config.writes_with].title
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
        """Tell whether a text has no token but special ones."""
        return not self.loaded.tokenizer.encode_plain([text])[0]

    def tokens(self, text: str) -> list[int]:
        """Return the tokens of a prompt, all of them."""
        tokenizer = self.loaded.tokenizer
        return (
            tokenizer.encode_plain([text])[0] if self.goes_on else tokenizer.encode(text).input_ids
        )

    def read(self, text: str, number: int) -> ReadPrompt:
        """Turn a text into a prompt, and count what was cut off: of a text to go on with the
        beginning, of one to read the end."""
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
        """Return what is written for a prompt without tokens."""
        return Generated(prompt.text, (), (), self.goes_on)

    def notes(self, prompts: int) -> list[str]:
        """Say what was cut, unknown or empty of so many prompts."""
        notes = []
        if self.cut:
            which = "first" if self.goes_on else "last"
            notes.append(
                f"{self.cut} of {counted(prompts, 'prompt')} were longer than the "
                f"{self.room} tokens that there is room for; their {which} tokens were not read "
                f"({counted(self.tokens_lost, 'token')})"
            )
        if self.unknown:
            notes.append(
                f"{counted(self.unknown, 'token')} of the prompts unknown to the vocabulary"
            )
        if self.empty:
            notes.append(f"{counted(self.empty, 'prompt', 'is', 'are')} empty; nothing was written")
        return notes

    def write(
        self, prompts: Sequence[ReadPrompt], on_token: OnToken | None = None
    ) -> list[Generated]:
        """Write the texts of prompts that have tokens, a few prompts of like length at a time; in
        their order."""
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

    def growing(self, prompt: ReadPrompt, tokens: Sequence[int] = ()) -> GrowingText:
        """Return what turns the tokens behind a prompt into text, some of them there already."""
        before = prompt.tokens if self.goes_on else ()
        return GrowingText(self.loaded.tokenizer, before, tokens)

    def _generated(self, prompt: ReadPrompt, written: Sequence[Written]) -> Generated:
        texts = tuple(self.growing(prompt, sequence.tokens).rest() for sequence in written)
        chances = tuple(sequence.log_probability for sequence in written)
        return Generated(prompt.text, texts, chances, self.goes_on)

    def _batches(self, prompts: Sequence[ReadPrompt]) -> Iterator[list[int]]:
        """Yield the numbers of prompts of like length that are written at once."""
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
