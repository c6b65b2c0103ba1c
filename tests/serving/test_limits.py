"""What is too much or takes too long is refused, and nobody else suffers for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from bertine.core.errors import BertineError
from bertine.serving.address import Limits

from .conftest import BODY, Client, Held, eventually, fine, post


def test_a_full_queue_is_429_and_says_when(tight: Client) -> None:
    body = {"texts": ["the cat"] * 4}
    with ThreadPoolExecutor(4) as pool, Held(tight) as held:
        first = pool.submit(tight, "/predict", body)
        eventually(lambda: held.begun == 1)
        others = [pool.submit(tight, "/predict", body) for _ in range(2)]
        eventually(lambda: tight.service.batchers["text"].waiting == 8)
        refused = tight("/predict", body)
        assert refused.status == 429
        assert int(refused.headers["retry-after"]) >= 1
        assert "try again in" in refused.message
        # The other model's queue is its own.
        held.gate.set()
        assert [done.result().status for done in (first, *others)] == [200] * 3
    assert fine(tight)


def test_too_late_is_504_and_leaves_nothing_behind(tight: Client) -> None:
    with ThreadPoolExecutor(1) as pool, Held(tight) as held:
        first = pool.submit(tight, "/predict", {"texts": ["the cat"]})
        eventually(lambda: held.begun == 1)
        late = tight("/predict", {"texts": ["the cat"] * 3})
        answer = first.result()
        assert [answer.status, late.status] == [504, 504]
        assert "no answer within 1.5 s" in answer.message
        assert tight.service.batchers["text"].waiting == 0
        assert tight("/health").status == 200
    assert fine(tight)


def test_who_leaves_is_no_longer_computed_for(tight: Client) -> None:
    with Held(tight) as held, tight.connected() as first:
        first.sendall(post("/predict", BODY))
        eventually(lambda: held.begun == 1)
        with tight.connected() as second:
            second.sendall(post("/predict", BODY))
            eventually(lambda: tight.service.batchers["text"].waiting == 1)
        eventually(lambda: tight.service.batchers["text"].waiting == 0)
    assert b'code="499"' in tight("/metrics").body
    assert fine(tight)


def test_short_work_does_not_wait_for_long_work_in_the_thread_of_the_loop(tight: Client) -> None:
    gate = threading.Event()

    async def work() -> None:
        here = threading.get_ident()
        assert await tight.service.aside(1, threading.get_ident) == here
        long = asyncio.ensure_future(tight.service.aside(10**6, gate.wait, 20))
        await asyncio.sleep(0.01)
        # Both may want the tokenizer, which has a lock.
        assert await tight.service.aside(1, threading.get_ident) != here
        gate.set()
        assert await long
        while tight.service._long:
            await asyncio.sleep(0.001)
        assert await tight.service.aside(1, threading.get_ident) == here

    asyncio.run(asyncio.wait_for(work(), 20))


def test_short_work_does_not_wait_for_all_the_long_work_there_is(tight: Client) -> None:
    gate = threading.Event()

    async def work() -> None:
        long = [asyncio.ensure_future(tight.service.aside(10**6, gate.wait, 20)) for _ in range(9)]
        await asyncio.sleep(0.01)
        assert await tight.service.aside(1, gate.is_set) is False
        gate.set()
        assert all(await asyncio.gather(*long))

    asyncio.run(asyncio.wait_for(work(), 5))


def test_a_fault_is_500_for_its_request_alone(tight: Client) -> None:
    operations = tight.service.batchers["text"].operations
    usual = operations["predict"]

    def broken(inputs: Sequence[Any]) -> Sequence[Any]:
        raise ZeroDivisionError("secret detail")

    operations["predict"] = broken  # type: ignore[index]
    try:
        answer = tight("/predict", {"texts": ["the cat"]})
    finally:
        operations["predict"] = usual  # type: ignore[index]
    assert answer.status == 500
    assert "secret" not in answer.message
    assert fine(tight)


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_texts": 0},
        {"max_queue": 5, "max_texts": 6},
        {"request_timeout": 0.0},
        {"request_timeout": float("inf")},
        {"read_timeout": float("nan")},
        {"max_wait_ms": 1e13},
    ],
)
def test_bounds_that_leave_nothing_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BertineError, match=next(iter(wrong))):
        Limits(**wrong)
