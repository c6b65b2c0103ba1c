"""A run that is asked to end does so as it is, and its model is written."""

from __future__ import annotations

from pathlib import Path

from safetensors.torch import load_file

import bertine
import toys
from bertine.training.checkpoint import stop_when


def test_a_run_ends_after_the_step_at_which_it_is_asked_to(
    store: Path, model: Path, tmp_path: Path
) -> None:
    asked: list[int] = []

    def over(done: int) -> bool:
        asked.append(done)
        return done == 3

    options = {"model": model, "steps": 6, "batch_size": 2, "max_seq_length": 16, "log_every": 10}
    with stop_when(over):
        ended = bertine.pretrain(
            store, out=tmp_path / "ended", checkpoint_every=2, save_best=False, **options
        )
    assert asked == [1, 2, 3]
    assert [row["step"] for row in toys.log(tmp_path / "ended")] == [3]
    assert ended.final["step"] == 3
    # Up to there it is the run that goes on, which is not asked here.
    whole = bertine.pretrain(store, out=tmp_path / "whole", checkpoint_every=1, **options)
    assert whole.final["step"] == 6
    assert asked == [1, 2, 3]
    first, again = (
        load_file(folder / "model.safetensors")
        for folder in (ended.model, tmp_path / "whole" / "model")
    )
    assert any(not tensor.equal(again[name]) for name, tensor in first.items())
