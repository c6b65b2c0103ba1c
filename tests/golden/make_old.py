"""Write the folders of ``v01.tar.xz``: done once, by version 0.1, and not to be done again.

    PYTHONPATH=src:tests python -m golden.make_old

They are as small as they can be: of most models only the head is trained, so that the archive
holds the encoder once.
"""

from __future__ import annotations

import contextlib
import functools
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import bertine
from golden import made, taken
from golden.finetuning_cases import interrupted
from golden.old_cases import ARCHIVE, FINETUNING, PRETRAINING

_SIZES = {
    "hidden_size": 8,
    "intermediate_size": 16,
    "max_position_embeddings": 32,
}


#: The runs that are interrupted.
_RUNS: dict[str, Callable[..., Any]] = {
    "pretraining-run": functools.partial(bertine.pretrain, **PRETRAINING),
    "finetuning-run": functools.partial(bertine.finetune, **FINETUNING),
}


def _write_folders() -> None:
    corpus = made.write_corpus(Path("corpus.txt"), 24, "old")
    bertine.train_vocab(corpus, "vocabulary", vocab_size=140)
    bertine.prepare(corpus, tokenizer="vocabulary", out="store", processes=1)
    sizes = made.write_sizes(Path("sizes.json"), **_SIZES)
    first = PRETRAINING | {"model": sizes, "initializer_range": 0.3, "steps": 4}
    bertine.pretrain(out="first", **first)
    Path("first/model").rename("pretrained")
    made.write_table(Path("texts.csv"), ("text", "label"), made.text_rows("old", 32))
    _write_models()
    for name, call in _RUNS.items():
        interrupted(lambda out, call=call: call(out=out), Path()).rename(name)  # type: ignore[misc]


def _write_models() -> None:
    choices = ("question", "choice0", "choice1", "choice2", "label")
    made.write_tagged(Path("tags.conll"), "old", 16)
    pairs = ("premise", "hypothesis", "label")
    tasks: tuple[tuple[str, Any, Any, Any, dict[str, Any]], ...] = (
        ("text", "text", ("text", "label"), made.text_rows, {"freeze_layers": 0}),
        ("pairs", "text", pairs, made.pair_rows, {}),
        ("regression", "regression", ("text", "label"), made.number_rows, {}),
        ("multi-label", "multi-label", ("text", "labels"), made.set_rows, {}),
        ("choice", "choice", choices, made.choice_rows, {}),
        ("spans", "spans", ("question", "context", "answer"), made.question_rows, _SHORT),
        ("tagging", "tagging", (), None, {}),
        ("frozen-text", "text", ("text", "label"), made.text_rows, {"frozen": True}),
        ("frozen-pairs", "text", pairs, made.pair_rows, {"frozen": True}),
    )
    for name, task, columns, rows, options in tasks:
        data = Path("tags.conll")
        if rows is not None:
            data = made.write_table(Path(f"{name}.csv"), columns, rows(f"old {name}", 24))
        given: dict[str, Any] = {"max_length": 32, "device": "cpu", "precision": "fp32", "seed": 7}
        given |= {"frozen": False, "baselines": False, **options}
        if not given["frozen"]:
            given |= {"epochs": 4, "batch_size": 4, "learning_rate": 1e-2}
            given |= {"freeze_embeddings": True, "freeze_layers": 2, **options}
        bertine.finetune(task, model="pretrained", data=data, out=f"run-{name}", **given)
        Path(f"run-{name}/model").rename(name)


_SHORT = {"max_question_length": 8, "doc_stride": 8}
#: What the archive holds.
_KEPT = (
    *("vocabulary", "store", "pretrained", "pretraining-run", "finetuning-run", "texts.csv"),
    *("text", "pairs", "regression", "multi-label", "choice", "spans", "tagging"),
    *("frozen-text", "frozen-pairs", "vectors.npy", "vectors.npy.json"),
)


def _clean(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Leave out when and by whom it was written."""
    member.mtime = member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def main() -> None:
    """Write the archive."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        _write_folders()
        Path("lines.txt").write_text("the old cat\nTom saw the tea.\na dog barks\n")
        bertine.embed("pretrained", "lines.txt", "vectors.npy", device="cpu", precision="fp32")
        with tarfile.open(ARCHIVE, "w:xz", preset=9) as archive:
            for name in _KEPT:
                archive.add(name, filter=_clean)
        # What the interrupted runs are to become.
        for name, call in _RUNS.items():
            call(out="whole")
            call(out=name, resume=True)
            if taken.run(Path("whole")) != taken.run(Path(name)):
                raise AssertionError(f"{name}: the resumed run is not the undisturbed one")
            Path("whole").rename(f"whole-{name}")


if __name__ == "__main__":
    main()
