"""Generate texts: search for the next tokens by sampling, greedily or with beams.

Candidates, ended sequences and stopping rules of beam search are those of transformers
(``generation/utils.py: _beam_search``, version 5), which follow tensor2tensor's and fairseq's.

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

# Models: the interface that the search uses.


class NextTokens(Protocol):
    """A model that scores the next token of each of its rows, and remembers the rows.

    One object serves one batch of prompts. The decoder of an encoder-decoder is created with the
    encoder's output; its prompts are the first tokens of its own texts.
    """

    def start(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        """Read N prompts of any lengths, at least one token each: row n is prompt n.

        Returns:
            fp32 [N, V], scores before the softmax.
        """
        ...

    def advance(self, rows: Tensor, tokens: Tensor) -> Tensor:
        """Continue chosen rows, each by one token.

        Args:
            rows: int64 [R], the row of the last call that each new row continues; a row may occur
                several times, or not at all and is then forgotten.
            tokens: int64 [R], the token that continues it.

        Returns:
            fp32 [R, V], as :meth:`start`.
        """
        ...


@dataclass(frozen=True)
class Written:
    """A generated sequence.

    Attributes:
        tokens: those after the prompt, without the one that ended it.
        log_probability: the sum over all of them and that one, in nats, without temperature and
            other changes for sampling.
        ended: whether a token ended it, rather than the limit.
        score: the criterion of its choice: with beams the log-probability divided by a power of the
            length; otherwise the log-probability.
    """

    tokens: tuple[int, ...]
    log_probability: float
    ended: bool
    score: float


# Settings: how tokens are chosen, how many, and what ends a sequence.


@dataclass(frozen=True)
class SearchSettings:
    """The settings of a search.

    Attributes:
        choosing: how tokens are chosen.
        end_tokens: ids that end a sequence; none: only the limit does.
        never: ids that are not written.
        first_token: the first id of each sequence after its prompt; None: the model chooses
            (``forced_bos_token_id`` of transformers).
        ends_at_limit: whether the last possible token of a sequence is always the first of
            `end_tokens` (``forced_eos_token_id``).

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
            BertineError: sampling options without sampling; sampling with beams; beam options
                without beams; more sequences than are possible; a minimum number of tokens above
                the maximum.
        """
        usual, sample = DecodingOptions(), option("sample", True)
        beams = option("beams", 4)
        for name in ("temperature", "top_k", "top_p", "seed"):
            said = getattr(choosing, name)
            certain = name == "temperature" and said == 0  # as without sampling
            if not choosing.sample and said != getattr(usual, name) and not certain:
                raise BertineError(f"{option(name)} is for sampling; add {sample}, or leave it out")
        if choosing.sample and choosing.beams > 1:
            raise BertineError(f"beams are not sampled; leave out {sample}, or beams")
        for name in ("length_penalty", "early_stopping"):
            if choosing.beams == 1 and getattr(choosing, name) != getattr(usual, name):
                raise BertineError(f"{option(name)} is for beams; give {beams}, or leave it out")
        if choosing.sequences > choosing.beams and not choosing.sample:
            raise BertineError(
                f"sequences is {choosing.sequences}, more than beams ({choosing.beams}); add "
                f"{sample}, or give {option('beams', choosing.sequences)}"
            )
        if choosing.min_new_tokens > choosing.max_new_tokens:
            raise BertineError(
                f"min_new_tokens is {choosing.min_new_tokens}, but max_new_tokens is only "
                f"{choosing.max_new_tokens}"
            )


# Constraints: forbidden tokens, forbidden repetitions, lengths.
#
# Shape legend: R rows, V vocabulary size.

_NEVER = float("-inf")


class Constraints:
    """The rules of a search, which set scores of forbidden tokens to -inf.

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
        """Return `scores` [R, V] with -inf at forbidden tokens; the argument may be changed.

        Args:
            histories: R sequences of tokens, the prompts' included.
            step: how many tokens each has after its prompt.
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
                result = last_of_repeated(history, size)
                if len(result):
                    scores[row, torch.from_numpy(result).to(scores.device)] = _NEVER
        return scores


def _only(scores: Tensor, token: int) -> Tensor:
    forced = torch.full_like(scores, _NEVER)
    forced[:, token] = 0.0
    return forced


def last_of_repeated(history: Sequence[int], size: int) -> np.ndarray:
    """Return the tokens that would repeat a run of `size` tokens in a history: int64, possibly with
    duplicates."""
    ids = np.asarray(history, np.int64)
    if len(ids) < size:
        return ids[:0]
    windows = np.lib.stride_tricks.sliding_window_view(ids, size)
    same = (windows[:, :-1] == ids[len(ids) + 1 - size :]).all(1)
    return windows[same, -1]


# Single paths: one sequence at a time, with the most probable or a drawn token at each step.
#
# Shape legend: N prompts, R rows, V vocabulary size.

#: Called with the number of a sequence (prompt by prompt, its sequences in order) and a token as
#: soon as it is chosen.
OnToken = Callable[[int, int], None]
#: Below this temperature (also at 0) the most probable token is certain.
_COLD = 1e-6


@dataclass
class _Path:
    """An unfinished sequence: its number, the key of its draws, prompt and tokens."""

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
    """Write the sequences of each prompt independently; see
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
        # The model's own scores, before rules and temperature.
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
    """Draw a token for each row: where the running sum of the probabilities, in falling order,
    passes a number that depends only on the seed, the sequence and the step."""
    order, probabilities = among(scores, choosing)
    sums = probabilities.double().cumsum(1)
    numbers = [generator(choosing.seed, "generate", *p.draws, step).random() for p in paths]
    points = torch.from_numpy(np.array(numbers)).to(scores.device)[:, None] * sums[:, -1:]
    places = (sums <= points).sum(1, keepdim=True)
    # At most the last place with any probability, in case of rounding.
    last = (probabilities > 0).sum(1, keepdim=True) - 1
    return order.gather(1, torch.minimum(places, last.clamp(min=0)))[:, 0]


def among(scores: Tensor, choosing: DecodingOptions) -> tuple[Tensor, Tensor]:
    """Return the candidates for drawing (Holtzman et al. 2020, section 3.1; Fan et al. 2018,
    section 5.4).

    Args:
        scores: fp32 [R, V], -inf at forbidden tokens.

    Returns:
        Tokens int64 [R, C], the most probable first, and their probabilities fp32 [R, C], whose sum
        need not be 1.
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
        # The most probable one is always a candidate.
        probabilities = probabilities.masked_fill(before >= choosing.top_p, 0.0)
    return order, probabilities


@dataclass(frozen=True)
class _Beam:
    """An unfinished sequence: tokens after the prompt, and their log-probability, an fp32
    number."""

    tokens: tuple[int, ...]
    log_probability: float


@dataclass(frozen=True)
class _Candidate:
    """A beam, given by its row, with one more token."""

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
        beams: the unfinished sequences, best first; none once the search has ended.
    """

    def __init__(self, prompt: list[int], settings: SearchSettings) -> None:
        self.prompt = prompt
        self.beams = [_Beam((), 0.0)]
        self._settings, self._choosing = settings, settings.choosing
        self._done: list[Written] = []
        # Each beam can end with every end token; as many candidates as beams then still continue.
        self._candidates = max(2, 1 + len(settings.end_tokens)) * self._choosing.beams

    def advance(self, scores: Tensor) -> list[int]:
        """Add one token to each beam.

        Args:
            scores: fp32 [R, V], the log-probability of each beam followed by each token.

        Returns:
            The rows that the new beams continue.
        """
        choosing, vocabulary = self._choosing, scores.shape[1]
        flat = scores.flatten().cpu().numpy()
        best = ranking(flat, self._candidates).tolist()  # ties: the lower row, then token
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
        if not candidates:  # no token is allowed
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
        """Return the generated sequences, best first."""
        return self._done[: self._choosing.sequences]

    def _ends(self, length: int) -> bool:
        """Return whether the search ends: there are enough sequences, and the best current beam
        cannot give a better one by its current score."""
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


# Search: the entry point.


@torch.inference_mode()
def search(
    model: NextTokens,
    prompts: Sequence[Sequence[int]],
    settings: SearchSettings,
    *,
    numbers: Sequence[int] | None = None,
    on_token: OnToken | None = None,
) -> list[list[Written]]:
    """Continue each of N prompts.

    The result for a prompt does not depend on the other prompts, up to the last bits of its scores:
    draws are keyed by the seed, the prompt's number, the sequence and the step.

    Args:
        model: scores the next tokens; in evaluation mode.
        prompts: tokens, at least one each, of any lengths. Each must fit the model together with
            the tokens after it.
        settings: how tokens are chosen, and what ends a sequence.
        numbers: of the prompts, for draws; None: 0, 1, 2, …
        on_token: called with each token as soon as it is final, by sequence; not with beams.

    Returns:
        For each prompt its sequences, as many as are asked for: with beams the best first, and
        fewer if the rules leave fewer.
    """
    if not prompts:
        return []
    if settings.choosing.beams > 1:
        return write_beams(model, prompts, settings)
    numbers = range(len(prompts)) if numbers is None else numbers
    return write_paths(model, prompts, settings, numbers, on_token)
