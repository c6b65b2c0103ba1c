"""Requests are computed together, nobody waits for the large ones, and no one pays for another's
mistake."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

pytest.importorskip("fastapi")

from bertine.serving.batcher import (
    Batcher,
    Closed,
    ComputedBatch,
    CostModel,
    InferenceThread,
    QueueFull,
)


class Model:
    """Answers 2 x, and remembers its batches. It waits at `gate` before each."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.gate = threading.Event()
        self.gate.set()

    def double(self, inputs: Sequence[int]) -> list[int]:
        self.batches.append(list(inputs))
        assert self.gate.wait(10)
        if -1 in inputs:
            raise ValueError("minus one")
        return [2 * value for value in inputs]


Make = Callable[..., Batcher]


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def make(model: Model) -> Iterator[Make]:
    made: list[Batcher] = []
    computing = InferenceThread()

    def build(**changes: Any) -> Batcher:
        settings: dict[str, Any] = {"max_tokens": 8, "max_queue": 100, "max_wait": 0.0}
        operations = {"double": model.double, "other": model.double}
        made.append(Batcher(operations, computing=computing, **{**settings, **changes}))
        return made[-1]

    yield build
    model.gate.set()
    for batcher in made:
        batcher.close(10)
    computing.close(10)


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(work, 20))


async def begun(model: Model, count: int = 1) -> None:
    """Wait until the model works on its batch number `count`."""
    while len(model.batches) < count:
        await asyncio.sleep(0.001)


def waiting_together(model: Model, batcher: Batcher, costs: Sequence[int]) -> list[list[int]]:
    """The batches made of inputs 0, 1, … of these costs, each a request, that all wait at once;
    without that of 99, for which they wait."""

    async def work() -> None:
        model.gate.clear()
        first = asyncio.ensure_future(batcher.submit("double", [99], [1]))
        await begun(model)
        rest = [
            asyncio.ensure_future(batcher.submit("double", [n], [cost]))
            for n, cost in enumerate(costs)
        ]
        await asyncio.sleep(0.05)
        model.gate.set()
        await asyncio.gather(first, *rest)

    run(work())
    return [sorted(batch) for batch in model.batches[1:]]


def test_every_request_gets_its_own_results_in_order(make: Make) -> None:
    batcher = make(max_queue=1000)

    async def work() -> None:
        requests = [list(range(start, start + 1 + start % 7)) for start in range(0, 300, 10)]
        found = await asyncio.gather(
            *(batcher.submit("double", values, [1] * len(values)) for values in requests)
        )
        assert found == [[2 * value for value in values] for values in requests]
        assert await batcher.submit("double", [], []) == []

    run(work())
    assert batcher.waiting == 0


def test_what_waits_is_computed_together_up_to_the_budget(model: Model, make: Make) -> None:
    seen: list[ComputedBatch] = []
    batcher = make(on_batch=seen.append)

    async def work() -> None:
        model.gate.clear()
        first = asyncio.ensure_future(batcher.submit("double", [1], [3]))
        await begun(model)
        rest = [asyncio.ensure_future(batcher.submit("double", [n], [3])) for n in (2, 3, 4)]
        await asyncio.sleep(0)
        model.gate.set()
        await asyncio.gather(first, *rest)

    run(work())
    assert model.batches == [[1], [2, 3], [4]]  # two of three tokens go into a budget of eight
    assert [(done.requests, done.tokens) for done in seen] == [(1, 3), (2, 6), (1, 3)]


def test_like_lengths_are_computed_together_and_the_oldest_is_among_them(
    model: Model, make: Make
) -> None:
    batcher = make(max_tokens=300)

    async def work() -> None:
        model.gate.clear()
        first = asyncio.ensure_future(batcher.submit("double", [0], [1]))
        await begun(model)
        costs = {1: 20, 2: 100, 3: 24, 4: 90, 5: 96, 6: 18}
        rest = [asyncio.ensure_future(batcher.submit("double", [n], [costs[n]])) for n in costs]
        await asyncio.sleep(0.05)
        model.gate.set()
        await asyncio.gather(first, *rest)

    run(work())
    # Three of 100 tokens are 300; 20, 24 and 18 are alike.
    assert [sorted(batch) for batch in model.batches] == [[0], [1, 3, 6], [2, 4, 5]]


def test_what_would_be_mostly_padding_is_left_for_the_next_batch(model: Model, make: Make) -> None:
    batcher = make(max_tokens=10_000)
    costs = [100, 20, 99, 21, 19, 98, 20, 97, 18, 20]

    assert waiting_together(model, batcher, costs) == [[1, 3, 4, 6, 8, 9], [0, 2, 5, 7]]


def test_where_no_padding_is_computed_only_tokens_count(model: Model, make: Make) -> None:
    batcher = make(max_tokens=100, unpadded={"double"})
    # A long one goes along with short ones, until there are twice as many places as tokens.
    assert waiting_together(model, batcher, [30, 10, 10, 10, 10, 3]) == [[0, 1, 2, 3, 4, 5]]
    model.batches.clear()
    assert waiting_together(model, batcher, [40, 10, 10, 10, 10, 3]) == [[1, 2, 3, 4, 5], [0]]


@pytest.mark.parametrize("cancelled", [0, 50])
def test_a_long_text_gets_its_share_among_small_ones(
    model: Model, make: Make, cancelled: int
) -> None:
    """Whoever has left before counts for nothing."""
    batcher = make(max_tokens=10, max_queue=10_000)

    async def work() -> int:
        left = [
            asyncio.ensure_future(batcher.submit("double", [7], [10**6])) for _ in range(cancelled)
        ]
        await asyncio.sleep(0.01)
        for each in left:
            each.cancel()
        done = asyncio.Event()

        async def small(n: int) -> None:
            while not done.is_set():
                await batcher.submit("double", [n], [10])

        clients = [asyncio.ensure_future(small(n)) for n in range(4)]
        await asyncio.sleep(0.01)
        before = len(model.batches)
        await batcher.submit("double", [99], [100])
        done.set()
        place = next(at for at, batch in enumerate(model.batches) if 99 in batch)
        await asyncio.gather(*clients)
        return place - before

    # In its turn four others have ten times ten tokens each.
    assert run(work()) < 60


def test_small_requests_are_served_between_greedy_ones(model: Model, make: Make) -> None:
    """One after the other, each of them is in the next batch; and the greedy ones are done in
    their turn all the same."""
    batcher = make(max_tokens=40, max_queue=10_000)

    async def work() -> list[int]:
        greedy = [
            asyncio.ensure_future(batcher.submit("double", [n] * 60, [10] * 60)) for n in range(8)
        ]
        await begun(model)
        begun_before = {}
        for n in range(100, 130):
            model.gate.clear()  # until it waits with the others, the batch of now goes on
            begun_before[n] = len(model.batches) + 1
            small = asyncio.ensure_future(batcher.submit("double", [n], [3]))
            await asyncio.sleep(0.002)
            model.gate.set()
            await small
        await asyncio.gather(*greedy)
        places = {n: at for at, batch in enumerate(model.batches) for n in batch}
        return [places[n] - before for n, before in begun_before.items()]

    assert max(run(work())) <= 1


def test_a_batch_takes_no_longer_than_is_good_for_others() -> None:
    pace = CostModel()
    assert 0 < pace.tokens_in(0.1) < 500  # nothing is known
    for _ in range(30):
        pace.add(1000, 1.0)
    assert pace.tokens_in(0.1) == pytest.approx(100)


def test_the_cost_of_a_batch_is_learned() -> None:
    draw = random.Random(3)
    for overhead in (0.0, 30.0, 400.0):
        pace = CostModel()
        assert (
            pace.overhead == CostModel().overhead > 0
        )  # something usual, before there is any batch
        pace.add(10, 60.0)  # the first one also packs weights
        for _ in range(200):
            tokens = draw.randint(3, 700)
            pace.add(tokens, 0.001 * (tokens + overhead) * draw.uniform(0.95, 1.05))
        assert pace.overhead == pytest.approx(overhead, rel=0.15, abs=8)
    pace = CostModel()
    for _ in range(100):  # as many as there may be take no longer than one
        pace.add(draw.randint(3, 700), 0.001 * draw.uniform(0.99, 1.01))
    assert pace.overhead > 10_000
    pace = CostModel()
    for _ in range(100):  # nothing can be told of batches that are alike
        pace.add(draw.randint(62, 66), 0.001 * draw.uniform(0.9, 1.1))
    assert pace.overhead == CostModel().overhead


def test_an_input_above_the_budget_is_a_batch_of_its_own(model: Model, make: Make) -> None:
    batcher = make()
    assert run(batcher.submit("double", [1, 2, 3], [50, 1, 50])) == [2, 4, 6]
    assert sorted(model.batches) == [[1], [2], [3]]


def test_a_small_request_is_in_the_next_batch_beside_a_large_one(model: Model, make: Make) -> None:
    batcher = make(max_tokens=4)

    async def work() -> None:
        model.gate.clear()
        large = asyncio.ensure_future(batcher.submit("double", list(range(40)), [1] * 40))
        await begun(model)
        small = asyncio.ensure_future(batcher.submit("double", [1000], [1]))
        await asyncio.sleep(0.05)
        model.gate.set()
        assert await small == [2000]
        assert await large == [2 * n for n in range(40)]

    run(work())
    assert 1000 in model.batches[1]


def test_kinds_of_work_take_turns(model: Model, make: Make) -> None:
    batcher = make(max_tokens=4)

    async def work() -> None:
        model.gate.clear()
        large = asyncio.ensure_future(batcher.submit("double", list(range(40)), [1] * 40))
        await begun(model)
        other = asyncio.ensure_future(batcher.submit("other", [1000], [1]))
        await asyncio.sleep(0.05)
        model.gate.set()
        await asyncio.gather(large, other)

    run(work())
    assert [1000] in model.batches[:3]


def test_a_mistake_is_told_to_its_request_alone(model: Model, make: Make) -> None:
    batcher = make(max_tokens=100)

    async def work() -> None:
        model.gate.clear()
        first = asyncio.ensure_future(batcher.submit("double", [0], [1]))
        await begun(model)
        requests = [[1, 2], [3, -1, 4], [5]]
        futures = [
            asyncio.ensure_future(batcher.submit("double", values, [1] * len(values)))
            for values in requests
        ]
        await asyncio.sleep(0.05)
        model.gate.set()
        await first
        good, bad, fine = await asyncio.gather(*futures, return_exceptions=True)
        assert (good, fine) == ([2, 4], [10])
        assert isinstance(bad, ValueError)
        assert await batcher.submit("double", [7], [1]) == [14]

    run(work())


def test_after_a_mistake_nothing_of_the_request_is_left_in_the_queue(make: Make) -> None:
    batcher = make(max_tokens=2)

    async def work() -> None:
        with pytest.raises(ValueError, match="minus one"):
            await batcher.submit("double", [-1] * 50, [1] * 50)
        assert batcher.waiting == 0
        assert await batcher.submit("double", [1], [1]) == [2]

    run(work())


def test_a_full_queue_refuses_whole_requests_and_says_for_how_long(
    model: Model, make: Make
) -> None:
    batcher = make(max_queue=4)

    async def work() -> None:
        model.gate.clear()
        first = asyncio.ensure_future(batcher.submit("double", [1], [1]))
        await begun(model)
        second = asyncio.ensure_future(batcher.submit("double", [1, 2, 3], [1, 1, 1]))
        await asyncio.sleep(0)
        with pytest.raises(QueueFull) as refused:
            await batcher.submit("double", [1, 2], [1, 1])
        assert 1 <= refused.value.retry_after <= 60
        assert batcher.waiting == 3
        third = asyncio.ensure_future(batcher.submit("double", [9], [1]))
        await asyncio.sleep(0)
        model.gate.set()
        assert await asyncio.gather(first, second, third) == [[2], [2, 4, 6], [18]]

    run(work())


def test_who_gives_up_leaves_the_queue(model: Model, make: Make) -> None:
    batcher = make()

    async def work() -> None:
        model.gate.clear()
        first = asyncio.ensure_future(batcher.submit("double", [1], [1]))
        await begun(model)
        second = asyncio.ensure_future(batcher.submit("double", [2] * 50, [1] * 50))
        await asyncio.sleep(0.01)
        assert batcher.waiting == 50
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        assert batcher.waiting == 0
        model.gate.set()
        assert await first == [2]

    run(work())
    assert model.batches == [[1]]


def test_whoever_is_alone_does_not_wait_for_company(make: Make) -> None:
    batcher = make(max_wait=1000.0)

    async def work() -> list[list[int]]:
        return [await batcher.submit("double", [n], [1]) for n in range(3)]

    assert run(work()) == [[0], [2], [4]]


async def crowd(model: Model, batcher: Batcher) -> None:
    """Three that are computed together, after which company is to be expected."""
    model.gate.clear()
    asked = [asyncio.ensure_future(batcher.submit("double", [n], [1])) for n in range(3)]
    await begun(model)
    model.gate.set()
    await asyncio.gather(*asked)


def test_where_there_was_company_it_is_waited_for(model: Model, make: Make) -> None:
    batcher = make(max_wait=1000.0, max_tokens=3)

    async def work() -> None:
        await crowd(model, batcher)
        before = len(model.batches)
        asked = []
        for number in (10, 11, 12):  # with the third the batch is full
            asked.append(asyncio.ensure_future(batcher.submit("double", [number], [1])))
            await asyncio.sleep(0.02)
        await asyncio.gather(*asked)
        assert model.batches[before:] == [[10, 11, 12]]

    run(work())


def test_the_wait_for_company_has_an_end(model: Model, make: Make) -> None:
    batcher = make(max_wait=0.05, max_tokens=3)

    async def work() -> None:
        await crowd(model, batcher)
        assert await batcher.submit("double", [10], [1]) == [20]

    run(work())


def test_closing_answers_what_waits_and_takes_no_more(model: Model, make: Make) -> None:
    batcher = make()

    async def work() -> None:
        model.gate.clear()
        waiting = [asyncio.ensure_future(batcher.submit("double", [n], [1])) for n in range(20)]
        await begun(model)
        closing = asyncio.ensure_future(asyncio.to_thread(batcher.close, 10))
        while batcher.alive:
            await asyncio.sleep(0.001)
        with pytest.raises(Closed):
            await batcher.submit("double", [1], [1])
        model.gate.set()
        assert await asyncio.gather(*waiting) == [[2 * n] for n in range(20)]
        await closing

    run(work())


def test_all_is_computed_in_one_thread_in_the_order_of_asking() -> None:
    computing = InferenceThread()
    order: list[int] = []
    began, ended = threading.Event(), threading.Event()

    def hold() -> int:
        began.set()
        ended.wait(10)
        return threading.get_ident()

    def ask(name: int) -> None:
        computing.run(lambda: order.append(name))

    with ThreadPoolExecutor(6) as pool:
        held = pool.submit(computing.run, hold)
        assert began.wait(5)
        asked = []
        for name in range(5):
            asked.append(pool.submit(ask, name))
            while computing._asked.qsize() <= name:  # so that they ask one after the other
                time.sleep(0.001)
        assert not order
        ended.set()
        for each in asked:
            each.result(5)
    assert order == [0, 1, 2, 3, 4]
    with pytest.raises(ZeroDivisionError):
        computing.run(lambda: 1 // 0)
    # It goes on, and is still the same.
    assert computing.run(threading.get_ident) == held.result() != threading.get_ident()
    computing.close(5)
    assert not computing._thread.is_alive()
    with pytest.raises(RuntimeError, match="closed"):
        computing.run(threading.get_ident)
