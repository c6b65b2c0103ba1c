"""An update is the gradient step of the paper's loss, pair by pair."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bertine.contrib.options import WordVectorModel
from bertine.contrib.word2vec.train import BREAK, BlockDraws, Steps, Weights, batch_words

SIZE, WIDTH, NEGATIVES = 11, 6, 3
#: Words that share their negatives, by the method.
CHUNK: dict[WordVectorModel, int] = {"skip-gram": 32, "cbow": 16}


def drawn(length: int, window: int, chunk: int = 32, shared: int = 4) -> BlockDraws:
    rng = np.random.default_rng(5)
    words = rng.integers(0, SIZE, length)
    words[[7, 33]] = BREAK
    negatives = rng.integers(0, SIZE, (-(-length // chunk), shared))
    return BlockDraws(words, rng.integers(1, window + 1, length), negatives)


def pairs_of(text: BlockDraws) -> list[list[int]]:
    """For each place those of its context, word by word."""
    result: list[list[int]] = []
    for at, word in enumerate(text.words.tolist()):
        context: list[int] = []
        for step in (-1, 1):
            for far in range(1, int(text.windows[at]) + 1):
                other = at + step * far
                if not 0 <= other < len(text.words) or text.words[other] == BREAK:
                    break
                context.append(other)
        result.append(context if word != BREAK else [])
    return result


def weights() -> Weights:
    made = Weights(SIZE, WIDTH, 0)
    made.words.mul_(5)
    made.contexts += torch.randn(SIZE, WIDTH, generator=torch.Generator().manual_seed(1))
    return made


@pytest.mark.parametrize("model", ["skip-gram", "cbow"])
@pytest.mark.parametrize("window", [2, 5, 40])  # 40: the margins reach over several chunks
def test_an_update_is_the_gradient(model: WordVectorModel, window: int) -> None:
    text, rate, length = drawn(90, window, CHUNK[model]), 0.05, 96
    ours, before = weights(), weights()
    steps = Steps(ours, model, window=window, negatives=NEGATIVES, batch=length)
    with torch.inference_mode():
        steps.run(text, torch.tensor([rate]))
    v, u = (before.words.clone().requires_grad_(), before.contexts.clone().requires_grad_())
    means: list[torch.Tensor] = []
    loss = torch.zeros(())
    for at, context in enumerate(pairs_of(text)):
        negatives = torch.from_numpy(text.negatives[at // CHUNK[model]])
        weight = NEGATIVES / len(negatives)
        word, around = int(text.words[at]), torch.from_numpy(text.words[context])
        if model == "skip-gram":
            for other in around.tolist():
                loss = loss - torch.nn.functional.logsigmoid(v[word] @ u[other])
                loss = (
                    loss - weight * torch.nn.functional.logsigmoid(-(u[negatives] @ v[word])).sum()
                )
        elif context:
            # Of a sum divided by a constant the gradient is the mean's; the program gives each
            # of the context the whole gradient of the mean.
            part = v[around]
            mean = part.mean(0).detach() + (part - part.detach()).sum(0)
            means.append(mean)
            loss = loss - torch.nn.functional.logsigmoid(mean @ u[word])
            loss = loss - weight * torch.nn.functional.logsigmoid(-(u[negatives] @ mean)).sum()
    loss.backward()  # type: ignore[no-untyped-call]
    assert v.grad is not None
    assert u.grad is not None
    torch.testing.assert_close(ours.words, before.words - rate * v.grad, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(ours.contexts, before.contexts - rate * u.grad, rtol=1e-5, atol=1e-5)


def test_batches_see_the_text_once() -> None:
    """Cut into batches, every pair is still updated once: with a rate that changes next to
    nothing, the sum of the moves is that of one batch."""
    text, moved = drawn(90, 5), []
    for batch in (32, 96):
        ours, before = weights(), weights()
        steps = Steps(ours, "skip-gram", window=5, negatives=NEGATIVES, batch=batch)
        steps.run(text, torch.full((-(-90 // batch),), 1e-5))
        moved.append(ours.words - before.words)
    torch.testing.assert_close(moved[0], moved[1], rtol=0, atol=5e-7)
    assert moved[0].abs().max() > 1e-5


def test_few_words_make_small_batches() -> None:
    settings = {"negatives": 5, "window": 5, "learning_rate": 0.025}
    assert batch_words("skip-gram", 0.001, 0.005, **settings) == 512  # type: ignore[arg-type]
    assert batch_words("skip-gram", 0.05, 0.05, **settings) == 64  # type: ignore[arg-type]
    assert batch_words("skip-gram", 0.5, 0.5, **settings) == 4  # type: ignore[arg-type]
