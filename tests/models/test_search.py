"""The search against that of transformers, on random tiny models, and against itself: one prompt or
several, with what is kept or without."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from bertine.core.errors import BertineError
from bertine.core.rng import generator
from bertine.models.encoder import TextInputs
from bertine.models.generation import NextTokens, SearchSettings, search
from bertine.models.heads import Model, new_head
from bertine.options.inference import DecodingOptions
from family.variants import VARIANTS, scramble

GPT = VARIANTS["openai-gpt"]
#: As if it ended texts: random models say it often enough.
END = 7


@cache
def model_of(seed: int) -> Model:
    config = GPT.tiny(seed).replace(max_position_embeddings=48)
    model = Model(config, new_head(config, "lm")).eval()
    scramble(model, seed)
    return model


@cache
def twin_of(seed: int) -> Any:
    return GPT.twin(model_of(seed))


def prompts_of(seed: int) -> list[list[int]]:
    """Of different lengths, with runs that come twice."""
    draw = generator(seed, "prompts")
    return [
        draw.integers(0, min(12, model_of(seed).config.vocab_size), int(length)).tolist()
        for length in (1, 9, 4, 6)
    ]


def writer(model: Model, prompts: Sequence[Sequence[int]]) -> NextTokens:
    written: NextTokens = model.backbone.writer(model.next_scores, prompts)[0]
    return written


class WithoutCache:
    """Reads all of each row again, by the model's one way in."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.rows: list[list[int]] = []

    def start(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        self.rows = [list(prompt) for prompt in prompts]
        return torch.cat([self.scores(row) for row in self.rows])

    def advance(self, rows: Tensor, tokens: Tensor) -> Tensor:
        pairs = zip(rows.tolist(), tokens.tolist(), strict=True)
        self.rows = [[*self.rows[row], token] for row, token in pairs]
        return torch.cat([self.scores(row) for row in self.rows])

    def scores(self, row: list[int]) -> Tensor:
        encoded = self.model.encode(TextInputs(torch.tensor([row])))
        return self.model.read("lm", encoded, places=torch.tensor([len(row) - 1]))


def settings_of(**options: Any) -> SearchSettings:
    return SearchSettings(DecodingOptions(**{"max_new_tokens": 12, **options}), (END,))


GREEDY = [
    {"no_repeat_ngram_size": size, "min_new_tokens": least}
    for size, least in product((0, 1, 2, 3), (0, 5))
]
BEAMS = [
    {
        "beams": beams,
        "sequences": beams if early else 1,
        "length_penalty": penalty,
        "no_repeat_ngram_size": size,
        "early_stopping": early,
        "min_new_tokens": 4 * (size == 1),
    }
    for beams, penalty, size, early in product((2, 4), (0.5, 1.0, 2.0), (0, 2, 3), (False, True))
] + [{"beams": 3, "length_penalty": penalty} for penalty in (-1.0, 0.0)]


@pytest.mark.fast_cases(seed=(0,))
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("options", [*GREEDY, *BEAMS], ids=str)
def test_the_same_as_transformers(seed: int, options: dict[str, Any]) -> None:
    """Tokens and scores, one prompt at a time."""
    model, twin = model_of(seed), twin_of(seed)
    # Of a token's log-probability sums over hidden states and vocabulary, then over the tokens.
    terms = model.config.hidden_size + model.config.vocab_size + 12
    rounding = torch.finfo(torch.float32).eps * terms
    known = {"beams": "num_beams", "sequences": "num_return_sequences"}
    theirs_options = {known.get(name, name): value for name, value in options.items()}
    for prompt in prompts_of(seed)[:2]:
        (found,) = search(writer(model, [prompt]), [prompt], settings_of(**options))
        theirs = twin.generate(
            torch.tensor([prompt]),
            max_new_tokens=12,
            do_sample=False,
            eos_token_id=END,
            pad_token_id=END,
            return_dict_in_generate=True,
            output_scores=True,
            **theirs_options,
        )
        rows = [row[len(prompt) :] for row in theirs.sequences.tolist()]
        expected = [row[: row.index(END)] if END in row else row for row in rows]
        assert [list(written.tokens) for written in found] == expected
        assert [written.ended for written in found] == [END in row for row in rows]
        if options.get("beams", 1) > 1:
            scores = [written.score for written in found]
            assert scores == pytest.approx(theirs.sequences_scores.tolist(), rel=rounding)


SAMPLED = {"sample": True, "temperature": 0.7, "top_k": 9, "top_p": 0.9, "sequences": 3}


@pytest.mark.fast_cases(seed=(0,))
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "options", [{}, {"beams": 3, "sequences": 2}, BEAMS[9], SAMPLED, {"no_repeat_ngram_size": 2}]
)
def test_prompts_of_different_lengths_and_each_alone(seed: int, options: dict[str, Any]) -> None:
    """And the same with every row read anew at every token."""
    model, prompts = model_of(seed), prompts_of(seed)
    settings = settings_of(**options)
    together = search(writer(model, prompts), prompts, settings)
    again = search(WithoutCache(model), prompts, settings)
    for number, prompt in enumerate(prompts):
        alone = search(writer(model, [prompt]), [prompt], settings, numbers=[number])
        assert [w.tokens for w in alone[0]] == [w.tokens for w in together[number]]
        assert [w.tokens for w in again[number]] == [w.tokens for w in together[number]]
        for ours, theirs in zip(alone[0], together[number], strict=True):
            assert ours.log_probability == pytest.approx(theirs.log_probability, abs=1e-4)


class Fixed:
    """Scores that do not depend on what stands before: for what is drawn."""

    def __init__(self, scores: Tensor) -> None:
        self.scores = scores

    def start(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        return self.scores.repeat(len(prompts), 1)

    def advance(self, rows: Tensor, tokens: Tensor) -> Tensor:
        return self.scores.repeat(len(rows), 1)


@pytest.mark.takes(2)
@pytest.mark.fast_cases(options=({"top_k": 2},))
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [0.4, 0.3, 0.15, 0.1, 0.05]),
        ({"temperature": 0.5}, [0.16, 0.09, 0.0225, 0.01, 0.0025]),
        ({"top_k": 2}, [0.4, 0.3, 0.0, 0.0, 0.0]),
        ({"temperature": 0}, [1.0, 0.0, 0.0, 0.0, 0.0]),
        ({"temperature": 1e-300}, [1.0, 0.0, 0.0, 0.0, 0.0]),
        ({"top_p": 0.5}, [0.4, 0.3, 0.0, 0.0, 0.0]),
        ({"top_p": 0.7001}, [0.4, 0.3, 0.15, 0.0, 0.0]),
        ({"top_k": 3, "top_p": 0.1}, [1.0, 0.0, 0.0, 0.0, 0.0]),
    ],
)
def test_tokens_are_drawn_by_their_probabilities(
    options: dict[str, float], expected: list[float]
) -> None:
    """20,000 draws: four standard errors are below 0.014."""
    model = Fixed(torch.tensor([0.15, 0.4, 0.05, 0.3, 0.1]).log())
    choosing = DecodingOptions(sample=True, max_new_tokens=100, sequences=200, **options)  # type: ignore[arg-type]
    (found,) = search(model, [[0]], SearchSettings(choosing))
    counts = torch.bincount(torch.tensor([w.tokens for w in found]).flatten(), minlength=5)
    shares = (counts / counts.sum())[torch.tensor([1, 3, 0, 4, 2])]
    wanted = torch.tensor(expected)
    torch.testing.assert_close(shares, wanted / wanted.sum(), rtol=0, atol=0.014)


def test_draws_follow_the_seed_and_the_prompts_number() -> None:
    model = Fixed(torch.zeros(50))
    choosing = DecodingOptions(sample=True, sequences=2, max_new_tokens=8)

    def drawn(seed: int, number: int) -> list[tuple[int, ...]]:
        settings = SearchSettings(DecodingOptions.of(choosing, seed=seed))
        (found,) = search(model, [[0]], settings, numbers=[number])
        return [written.tokens for written in found]

    assert drawn(0, 0) == drawn(0, 0)
    assert len({*drawn(0, 0), *drawn(1, 0), *drawn(0, 1)}) == 6


def test_tokens_that_are_forced_or_never_written() -> None:
    """As a summarizer's: a token to begin with, and an end whatever the model says."""
    scores = torch.tensor([0.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    for options in ({}, {"beams": 2}):
        settings = SearchSettings(
            DecodingOptions(max_new_tokens=4, **options),  # type: ignore[arg-type]
            end_tokens=(0,),
            never=frozenset({5, 4}),
            first_token=1,
            ends_at_limit=True,
        )
        ((best, *_),) = search(Fixed(scores), [[2]], settings)
        assert (best.tokens, best.ended) == ((1, 3, 3), True)


def test_a_search_ends_where_nothing_may_come() -> None:
    for options in ({}, {"beams": 2}, {"sample": True}):
        choosing = DecodingOptions(no_repeat_ngram_size=1, max_new_tokens=9, **options)  # type: ignore[arg-type]
        ((best, *_),) = search(Fixed(torch.zeros(4)), [[2]], SearchSettings(choosing))
        assert sorted(best.tokens) == [0, 1, 3]
        assert not best.ended


def test_tokens_are_told_as_soon_as_they_are_sure() -> None:
    model, prompts = model_of(0), prompts_of(0)
    heard: dict[int, list[int]] = {}
    found = search(
        writer(model, prompts),
        prompts,
        settings_of(),
        on_token=lambda sequence, token: heard.setdefault(sequence, []).append(token),
    )
    assert heard == {n: list(w.tokens) for n, (w,) in enumerate(found) if w.tokens}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 0.5}, "temperature is for sampling; add sample=True"),
        ({"top_k": 4}, "top_k is for sampling"),
        ({"seed": 4}, "seed is for sampling"),
        ({"sample": True, "beams": 2}, "beams are not sampled"),
        ({"early_stopping": True}, "early_stopping is for beams"),
        ({"sequences": 2}, "sequences is 2, more than beams"),
        ({"beams": 2, "sequences": 3}, "or give beams=3"),
        ({"min_new_tokens": 50}, "min_new_tokens is 50, but max_new_tokens is only 40"),
        ({"top_p": 0.0}, r"top_p is 0, but must be in \(0, 1\]"),
        ({"temperature": -0.1}, "temperature is -0.1"),
        ({"temperature": float("nan")}, "temperature is nan"),
    ],
)
def test_options_that_exclude_each_other(options: dict[str, Any], message: str) -> None:
    make: Callable[[], object] = lambda: SearchSettings(DecodingOptions(**options))  # noqa: E731
    with pytest.raises(BertineError, match=message):
        make()
