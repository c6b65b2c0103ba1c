"""Beam search: the most probable sequences found by going on with several at once.

Candidates, ended sequences and the ways to stop are those of transformers (``generation/utils.py:
_beam_search``, version 5), which follow tensor2tensor's and fairseq's.

Shape legend: R rows, V vocabulary size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from bertine.core.errors import BertineError
from bertine.core.names import option
from bertine.core.rng import generator
from bertine.core.scores import ranking
from bertine.options.inference import DecodingOptions

# What a model is to the search: scores of the next token, for rows that go on.


class NextTokens(Protocol):
    """A model that scores what token comes next in each of its rows, and remembers the rows.

    One object is for one batch of prompts. A decoder of an encoder is made with what the encoder
    read; its prompts are the tokens that its own texts begin with.
    """

    def start(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        """Read N prompts of any lengths, at least one token each: row n is prompt n.

        Returns:
            fp32 [N, V], scores before the softmax.
        """
        ...

    def advance(self, rows: Tensor, tokens: Tensor) -> Tensor:
        """Go on with chosen rows, each by one token.

        Args:
            rows: int64 [R], which row of the last call each new row continues; one may be there
                several times, or not at all, and is forgotten then.
            tokens: int64 [R], what it is continued by.

        Returns:
            fp32 [R, V], as :meth:`start`.
        """
        ...


@dataclass(frozen=True)
class Written:
    """A sequence that was found.

    Attributes:
        tokens: those behind the prompt, without the one that ended it.
        log_probability: of all of them, and of that one: in nats, the sum. Without temperature
            and what else sampling changes.
        ended: whether a token ended it, and not the number of tokens.
        score: what it was chosen by: with beams the log-probability divided by a power of the
            length; else the log-probability.
    """

    tokens: tuple[int, ...]
    log_probability: float
    ended: bool
    score: float


# What a search is to find: how it chooses, how long, and what ends a sequence.


@dataclass(frozen=True)
class SearchSettings:
    """The settings of a search.

    Attributes:
        choosing: how tokens are chosen.
        end_tokens: ids that end a sequence; none: only the number of tokens does.
        never: ids that are not written.
        first_token: the id that each sequence begins with behind its prompt, whatever the model
            says; None: as it says (``forced_bos_token_id`` of transformers).
        ends_at_limit: whether the last token that a sequence may have is the first of
            `end_tokens`, whatever the model says (``forced_eos_token_id``).

    Raises:
        BertineError: options that exclude each other; see :meth:`check`.
    """

    choosing: DecodingOptions
    end_tokens: tuple[int, ...] = ()
    never: frozenset[int] = frozenset()
    first_token: int | None = None
    ends_at_limit: bool = False

    def __post_init__(self) -> None:
        self.check(self.choosing)

    @staticmethod
    def check(choosing: DecodingOptions) -> None:
        """Refuse options that exclude each other.

        Raises:
            BertineError: options of sampling without it; sampling with beams; options of beams
                without them; more sequences than there can be; a least number of tokens above the
                greatest.
        """
        usual, sample = DecodingOptions(), option("sample", True)
        beams = option("beams", 4)
        for name in ("temperature", "top_k", "top_p", "seed"):
            said = getattr(choosing, name)
            certain = name == "temperature" and said == 0  # as without sampling
            if not choosing.sample and said != getattr(usual, name) and not certain:
                raise BertineError(f"{name} is for sampling; add {sample}, or leave it out")
        if choosing.sample and choosing.beams > 1:
            raise BertineError(f"beams are not sampled; leave out {sample}, or beams")
        for name in ("length_penalty", "early_stopping"):
            if choosing.beams == 1 and getattr(choosing, name) != getattr(usual, name):
                raise BertineError(f"{name} is for beams; give {beams}, or leave it out")
        if choosing.sequences > choosing.beams and not choosing.sample:
            raise BertineError(
                f"sequences is {choosing.sequences}, more than beams ({choosing.beams}); add "
                f"{sample}, or give {option('beams', choosing.sequences)}"
            )
        if choosing.min_new_tokens > choosing.max_new_tokens:
            raise BertineError(
                f"min_new_tokens is {choosing.min_new_tokens}, but max_new_tokens "
                f"{choosing.max_new_tokens}"
            )


# What may come next: tokens that are never written, runs that must not come twice, lengths.
#
# Shape legend: R rows, V vocabulary size.

_NEVER = float("-inf")


class Constraints:
    """The rules of a search, which make scores -inf where a token may not come.

    Args:
        settings: of the search.
        device: of the scores.
    """

    def __init__(self, settings: SearchSettings, device: torch.device) -> None:
        self._settings, self._choosing = settings, settings.choosing
        self._ends = torch.tensor(settings.end_tokens, dtype=torch.int64, device=device)
        never = sorted(settings.never)
        self._banned = torch.tensor(never, dtype=torch.int64, device=device)

    def apply(self, scores: Tensor, histories: Sequence[Sequence[int]], step: int) -> Tensor:
        """Return `scores` [R, V] with -inf at what may not come; they may be changed.

        Args:
            histories: R sequences of tokens, the prompts' included.
            step: how many tokens each has behind its prompt.
        """
        settings, choosing = self._settings, self._choosing
        if step == 0 and settings.first_token is not None:
            return _only(scores, settings.first_token)
        if settings.ends_at_limit and settings.end_tokens and step == choosing.max_new_tokens - 1:
            return _only(scores, settings.end_tokens[0])
        if len(self._banned):
            scores.index_fill_(1, self._banned, _NEVER)
        if step < choosing.min_new_tokens and len(self._ends):
            scores.index_fill_(1, self._ends, _NEVER)
        size = choosing.no_repeat_ngram_size
        if size:
            for row, history in enumerate(histories):
                found = last_of_repeated(history, size)
                if len(found):
                    scores[row, torch.from_numpy(found).to(scores.device)] = _NEVER
        return scores


def _only(scores: Tensor, token: int) -> Tensor:
    forced = torch.full_like(scores, _NEVER)
    forced[:, token] = 0.0
    return forced


def last_of_repeated(history: Sequence[int], size: int) -> np.ndarray:
    """Return the tokens that would make the last `size` tokens of a history a run that it has
    already: int64, one may be there twice."""
    ids = np.asarray(history, np.int64)
    if len(ids) < size:
        return ids[:0]
    windows = np.lib.stride_tricks.sliding_window_view(ids, size)
    same = (windows[:, :-1] == ids[len(ids) + 1 - size :]).all(1)
    return windows[same, -1]


# One path for each sequence: the most probable token each time, or one that is drawn.
#
# Shape legend: N prompts, R rows, V vocabulary size.

#: Called with the number of a sequence (prompt by prompt, its sequences one after the other) and a
#: token as soon as it is chosen.
OnToken = Callable[[int, int], None]
#: At a temperature below this (0 included) the most probable token is certain.
_COLD = 1e-6


@dataclass
class _Path:
    """A sequence on its way: its number, what its draws are keyed by, prompt and tokens."""

    number: int
    draws: tuple[int, int]
    history: list[int]
    tokens: list[int] = field(default_factory=list)
    log_probability: float = 0.0
    ended: bool = False


def write_paths(
    model: NextTokens,
    prompts: Sequence[Sequence[int]],
    settings: SearchSettings,
    numbers: Sequence[int],
    on_token: OnToken | None = None,
) -> list[list[Written]]:
    """Write the sequences of each prompt, each by itself; see
    :func:`bertine.models.generation.search`."""
    choosing = settings.choosing
    many = choosing.sequences
    paths = [
        _Path(row * many + which, (numbers[row], which), list(prompt))
        for row, prompt in enumerate(prompts)
        for which in range(many)
    ]
    scores = model.start(prompts)
    device = scores.device
    constraints = Constraints(settings, device)
    scores = scores[torch.arange(len(prompts), device=device).repeat_interleave(many)]
    open_paths, state = paths, [path.number // many for path in paths]
    for step in range(choosing.max_new_tokens):
        # What the model says of a token, before rules and temperature.
        log_probabilities = scores.log_softmax(-1)
        scores = constraints.apply(scores, [path.history for path in open_paths], step)
        possible = (scores > float("-inf")).any(1).tolist()
        chosen = _drawn(scores, choosing, open_paths, step) if choosing.sample else scores.argmax(1)
        said = log_probabilities.gather(1, chosen[:, None])[:, 0].tolist()
        going: list[tuple[int, int]] = []
        for row, (path, token) in enumerate(zip(open_paths, chosen.tolist(), strict=True)):
            if not possible[row]:
                continue
            path.log_probability += said[row]
            if token in settings.end_tokens:
                path.ended = True
                continue
            path.tokens.append(token)
            path.history.append(token)
            if on_token is not None:
                on_token(path.number, token)
            going.append((row, token))
        if not going or step + 1 == choosing.max_new_tokens:
            break
        rows = [state[row] for row, _ in going]
        scores = model.advance(
            torch.tensor(rows, device=device),
            torch.tensor([token for _, token in going], device=device),
        )
        open_paths = [open_paths[row] for row, _ in going]
        state = list(range(len(going)))
    written = [
        Written(tuple(path.tokens), path.log_probability, path.ended, path.log_probability)
        for path in paths
    ]
    return [written[first : first + many] for first in range(0, len(written), many)]


def _drawn(scores: Tensor, choosing: DecodingOptions, paths: Sequence[_Path], step: int) -> Tensor:
    """Draw a token for each row: where the running sum of the probabilities, the greatest first,
    passes a number that depends on the seed, the sequence and the step alone."""
    order, probabilities = among(scores, choosing)
    sums = probabilities.double().cumsum(1)
    numbers = [generator(choosing.seed, "generate", *p.draws, step).random() for p in paths]
    points = torch.from_numpy(np.array(numbers)).to(scores.device)[:, None] * sums[:, -1:]
    places = (sums <= points).sum(1, keepdim=True)
    # The last place that has any probability, should rounding lead beyond it.
    last = (probabilities > 0).sum(1, keepdim=True) - 1
    return order.gather(1, torch.minimum(places, last.clamp(min=0)))[:, 0]


def among(scores: Tensor, choosing: DecodingOptions) -> tuple[Tensor, Tensor]:
    """Return what is drawn among (Holtzman et al. 2020, section 3.1; Fan et al. 2018, section 5.4).

    Args:
        scores: fp32 [R, V], -inf at what may not come.

    Returns:
        Tokens int64 [R, C], the most probable first, and their probabilities fp32 [R, C], which
        need not be 1 together.
    """
    top_k = choosing.top_k
    if choosing.temperature < _COLD:
        top_k = 1
    else:
        scores = scores / choosing.temperature
    if top_k is not None and top_k < scores.shape[1]:
        best = np.stack([ranking(row, top_k) for row in scores.cpu().numpy()])
        order = torch.from_numpy(best).to(scores.device)
        scores = scores.gather(1, order)
    else:
        scores, order = scores.sort(dim=1, descending=True, stable=True)
    probabilities = scores.softmax(-1)
    if choosing.top_p < 1.0:
        before = probabilities.cumsum(1) - probabilities
        # The most probable one is among them in any case.
        probabilities = probabilities.masked_fill(before >= choosing.top_p, 0.0)
    return order, probabilities


@dataclass(frozen=True)
class _Beam:
    """A sequence that goes on: tokens behind the prompt, and their log-probability, an fp32
    number."""

    tokens: tuple[int, ...]
    log_probability: float


@dataclass(frozen=True)
class _Candidate:
    """A beam, by its row, with one more token."""

    log_probability: float
    row: int
    token: int


def write_beams(
    model: NextTokens, prompts: Sequence[Sequence[int]], settings: SearchSettings
) -> list[list[Written]]:
    """Find the best sequences of each prompt; see :func:`bertine.models.generation.search`."""
    choosing = settings.choosing
    searches = [_PromptSearch(list(prompt), settings) for prompt in prompts]
    scores = model.start(prompts)
    device = scores.device
    constraints = Constraints(settings, device)
    going = searches
    for step in range(choosing.max_new_tokens):
        histories = [[*one.prompt, *beam.tokens] for one in going for beam in one.beams]
        scores = constraints.apply(scores.log_softmax(-1), histories, step)
        before = [beam.log_probability for one in going for beam in one.beams]
        scores = scores + torch.tensor(before, device=device)[:, None]
        first = 0
        rows: list[int] = []
        for one in going:
            count = len(one.beams)
            parents = one.advance(scores[first : first + count])
            rows += [first + row for row in parents]
            first += count
        going = [one for one in going if one.beams]
        if not going:
            break
        tokens = [beam.tokens[-1] for one in going for beam in one.beams]
        scores = model.advance(
            torch.tensor(rows, device=device), torch.tensor(tokens, device=device)
        )
    return [one.best() for one in searches]


class _PromptSearch:
    """The search for one prompt.

    Attributes:
        prompt: its tokens.
        beams: the sequences that go on, best first; none once the search has ended.
    """

    def __init__(self, prompt: list[int], settings: SearchSettings) -> None:
        self.prompt = prompt
        self.beams = [_Beam((), 0.0)]
        self._settings, self._choosing = settings, settings.choosing
        self._done: list[Written] = []
        # Beside as many sequences that end there are as many that go on.
        self._candidates = max(2, 1 + len(settings.end_tokens)) * self._choosing.beams

    def advance(self, scores: Tensor) -> list[int]:
        """Go on by one token.

        Args:
            scores: fp32 [R, V], the log-probability of each beam with each token behind it.

        Returns:
            The rows that the beams of now go on from.
        """
        choosing, vocabulary = self._choosing, scores.shape[1]
        flat = scores.flatten().cpu().numpy()
        best = ranking(flat, self._candidates).tolist()  # of equals the lower row, then token
        candidates = [
            _Candidate(float(flat[at]), at // vocabulary, at % vocabulary)
            for at in best
            if flat[at] > -np.inf
        ]
        length = len(self.beams[0].tokens) + 1
        at_limit = length == choosing.max_new_tokens
        ends = [at_limit or c.token in self._settings.end_tokens for c in candidates]
        for candidate, ended in zip(candidates[: choosing.beams], ends, strict=False):
            if ended:
                self._add(candidate, length)
        if not candidates:  # nothing may come any more
            self._done += [self._written(beam, False) for beam in self.beams]
        best = ranking([written.score for written in self._done], choosing.beams)
        self._done = [self._done[at] for at in best]
        open_ones = [c for c, ended in zip(candidates, ends, strict=True) if not ended]
        open_ones = open_ones[: choosing.beams]
        self.beams = [
            _Beam((*self.beams[c.row].tokens, c.token), c.log_probability) for c in open_ones
        ]
        if self._ends(length):
            self.beams = []
        return [c.row for c in open_ones] if self.beams else []

    def best(self) -> list[Written]:
        """Return the sequences found, best first."""
        return self._done[: self._choosing.sequences]

    def _ends(self, length: int) -> bool:
        """Tell whether what goes on is no longer looked at: there are enough sequences, and no
        better one is to be had, as far as the best of now says it."""
        if not self.beams:
            return True
        if len(self._done) < self._choosing.beams:
            return False
        if self._choosing.early_stopping:
            return True
        return self._score(self.beams[0].log_probability, length) <= self._done[-1].score

    def _add(self, candidate: _Candidate, length: int) -> None:
        tokens = self.beams[candidate.row].tokens
        ended = candidate.token in self._settings.end_tokens
        if not ended:
            tokens = (*tokens, candidate.token)
        score = self._score(candidate.log_probability, length)
        self._done.append(Written(tokens, candidate.log_probability, ended, score))

    def _written(self, beam: _Beam, ended: bool) -> Written:
        score = self._score(beam.log_probability, max(1, len(beam.tokens)))
        return Written(beam.tokens, beam.log_probability, ended, score)

    def _score(self, log_probability: float, length: int) -> float:
        """Divide by a power of the length, in fp32."""
        power = np.float32(length**self._choosing.length_penalty)
        return float(np.float32(log_probability) / power)


# The one way into the search.


@torch.inference_mode()
def search(
    model: NextTokens,
    prompts: Sequence[Sequence[int]],
    settings: SearchSettings,
    *,
    numbers: Sequence[int] | None = None,
    on_token: OnToken | None = None,
) -> list[list[Written]]:
    """Find what comes behind each of N prompts.

    The same for a prompt whatever stands beside it, up to the last bits of its scores: draws are
    keyed by the seed, the prompt's number, the sequence and the step.

    Args:
        model: scores the next tokens; in evaluation mode.
        prompts: tokens, at least one each, of any lengths. All of them, and the tokens that come
            behind them, must have room in the model.
        settings: how tokens are chosen, and what ends a sequence.
        numbers: of the prompts, for what is drawn; None: 0, 1, 2, …
        on_token: called with each token as soon as it is sure, by sequence; not with beams.

    Returns:
        For each prompt its sequences, as many as are asked for: of beams the best first, and fewer
        where the rules leave fewer.
    """
    if not prompts:
        return []
    if settings.choosing.beams > 1:
        return write_beams(model, prompts, settings)
    numbers = range(len(prompts)) if numbers is None else numbers
    return write_paths(model, prompts, settings, numbers, on_token)
