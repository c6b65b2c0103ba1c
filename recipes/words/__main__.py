"""Train a language model on a given number of words, and score it on BLiMP.

    python recipes/words --corpus FILE_OR_FOLDER ... --out FOLDER

Ten million words and ten epochs are what BabyLM's track strict-small allows (Hu et al. 2024,
"Findings of the Second BabyLM Challenge"). The words are whole documents drawn at random, as many
from each argument of --corpus. Stopped and run again, it goes on where it was.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import bertine
from bertine.commands.parser import Parser, whole
from bertine.core.console import human_time, logger, plural
from bertine.core.files import atomic_file, read_json, write_json
from bertine.core.process import run_program
from bertine.tokenization.documents import Corpus

CONFIG = Path(__file__).with_name("config.json")

VOCAB: dict[str, Any] = {"kind": "word-bpe", "vocab_size": 8192}

#: Of ``bertine.pretrain``. Sequences are short since BLiMP's sentences are, and begin with a
#: sentence as these do.
PRETRAIN: dict[str, Any] = {
    "objective": "clm",
    "input_format": "doc-sentences",
    "max_seq_length": 64,
    "batch_size": 128,
    "optimizer": "muon",
    "learning_rate": 8e-3,
    "warmup_ratio": 0.03,
    "weight_decay": 0.1,
    "adam_beta2": 0.98,
    "dropout": 0.0,
    "log_every": 50,
}


def cut_to(text: str, words: int) -> str:
    """Return the first paragraphs of a text, up to the one that reaches so many words."""
    paragraphs: list[str] = []
    for paragraph in text.split("\n"):
        if words <= 0:
            break
        paragraphs.append(paragraph)
        words -= len(paragraph.split())
    return "\n".join(paragraphs)


def chosen_documents(path: Path, words: int, seed: Sequence[int]) -> list[int]:
    """Draw documents of a file or a folder until they have so many words; return their numbers,
    the one that reaches the number last.

    Raises:
        BertineError: all of them have fewer.
    """
    counts = np.array([len(document.text.split()) for document in Corpus([path])])
    if counts.sum() < words:
        raise bertine.BertineError(
            f"{path}: has {plural(int(counts.sum()), 'word')}, but its share is {words:,}; give "
            "fewer --words, or more text"
        )
    order = np.random.default_rng(seed).permutation(len(counts))
    reached = int(np.searchsorted(np.cumsum(counts[order]), words))
    return [int(number) for number in order[: reached + 1]]


def draw_text(corpus: Sequence[Path], out: Path, words: int, seed: int) -> dict[str, int]:
    """Write documents with so many words, as many words from each of `corpus`, in their order, and
    return how many they have.

    Raises:
        BertineError: one of `corpus` has fewer words than its share.
    """
    share = -(-words // len(corpus))
    count = {"documents": 0, "words": 0}
    with atomic_file(out) as new, new.open("w", encoding="utf-8") as file:
        for number, path in enumerate(corpus):
            chosen = chosen_documents(path, share, (seed, number))
            wanted, last, left = {*chosen}, chosen[-1], share
            texts: dict[int, str] = {}
            # Read again, so that never more than the text that is drawn is in memory.
            for at, document in enumerate(Corpus([path])):
                if at in wanted:
                    texts[at] = document.text
                    if at != last:
                        left -= len(document.text.split())
            for at in sorted(texts):
                text = cut_to(texts[at], left) if at == last else texts[at]
                count["documents"] += 1
                count["words"] += len(text.split())
                file.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
    return count


class Parts:
    """The parts of the work, each done once, with the seconds that it took.

    Args:
        file: where they are written down.
        settings: what they depend on.

    Raises:
        BertineError: the parts in `file` were done with other settings.
    """

    def __init__(self, file: Path, settings: dict[str, Any]) -> None:
        self._file = file
        self.done: dict[str, dict[str, Any]] = {}
        if file.exists():
            known = read_json(file)
            if known["settings"] != settings:
                raise bertine.BertineError(
                    f"{file}: was begun with other arguments; give the same, or choose another "
                    "folder"
                )
            self.done = known["parts"]
        self._settings = settings

    def do(self, name: str, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return what `work` returns, and the seconds that it took if it does not say them; where
        it is done, from the file."""
        if name not in self.done:
            logger.info(f"--- {name}")
            began = time.monotonic()
            result = work()
            seconds = result.get("seconds", time.monotonic() - began)
            self.done[name] = {**result, "seconds": round(seconds, 1)}
            write_json(self._file, {"settings": self._settings, "parts": self.done})
        return self.done[name]


def train(store: Path, model: Path | str, out: Path, tokens: int) -> dict[str, Any]:
    """Pre-train on so many tokens, and return the last line of the log."""
    result = bertine.pretrain(store, model=model, out=out, tokens=tokens, resume=True, **PRETRAIN)
    print("\n".join(result.lines()))
    # Of all starts of the run, not of the last one alone.
    return {**result.final, "seconds": result.final["elapsed"]}


def score(model: Path, pairs: Path | None) -> dict[str, Any]:
    """Score a model on minimal pairs, and return its metrics and its phenomena."""
    report = bertine.blimp(model, data=pairs)
    print("\n".join(report.lines()))
    return {"metrics": report.metrics, "phenomena": report.phenomena}


def words(arguments: Sequence[str]) -> None:
    """Do what the command is for."""
    assert __doc__ is not None
    parser = Parser("python recipes/words", __doc__)
    parser.add_argument(
        "--corpus", metavar="PATH", type=Path, nargs="+", required=True, help="files and folders"
    )
    parser.add_argument("--out", metavar="DIR", type=Path, required=True, help="of all it makes")
    parser.add_argument("--words", metavar="N", type=whole(1), default=10_000_000, help="to draw")
    parser.add_argument("--epochs", metavar="N", type=whole(1), default=10, help="over the words")
    parser.add_argument(
        "--model", metavar="FILE", default=str(CONFIG), help="config.json of a GPT-1, or a preset"
    )
    parser.add_argument(
        "--pairs",
        metavar="PATH",
        type=Path,
        help="minimal pairs, as 'bertine blimp' takes them (not given: BLiMP)",
    )
    parser.add_argument("--seed", metavar="N", type=whole(0), default=0, help="of the draw")
    given = parser.parse(arguments)
    out = given["out"]
    if out.exists() and not out.is_dir():
        raise bertine.BertineError(f"{out}: is a file; choose another folder")
    Corpus(given["corpus"])
    settings = {name: given[name] for name in ("words", "epochs", "model", "seed")}
    settings |= {"corpus": [str(path.absolute()) for path in given["corpus"]]}
    settings |= {"vocab": VOCAB, "pretrain": PRETRAIN}
    out.mkdir(parents=True, exist_ok=True)
    parts = Parts(out / "words.json", settings)
    text, vocab, store, run = (out / name for name in ("text.jsonl", "vocab", "store", "run"))
    drawn_text = parts.do(
        "text", lambda: draw_text(given["corpus"], text, given["words"], given["seed"])
    )

    def write_vocab() -> dict[str, Any]:
        bertine.train_vocab([text], out=vocab, **VOCAB)
        return {}

    parts.do("vocabulary", write_vocab)
    prepared = parts.do(
        "preparation",
        lambda: {
            "tokens": bertine.prepare([text], tokenizer=vocab, out=store).manifest["num_tokens"]
        },
    )
    tokens = given["epochs"] * prepared["tokens"]
    parts.do("pre-training", lambda: train(store, given["model"], run, tokens))
    pairs = given["pairs"]
    scored = parts.do(str(pairs or "BLiMP"), lambda: score(run / "model", pairs))
    shares = ", ".join(f"{name} {100 * share:.1f}%" for name, share in scored["metrics"].items())
    seconds = sum(part["seconds"] for part in parts.done.values())
    print(
        f"{drawn_text['words']:,} words, {prepared['tokens']:,} tokens, "
        f"{plural(given['epochs'], 'epoch')}, {human_time(seconds)}: {shares}"
    )


def main() -> int:
    """Run the program; return its exit status."""
    return run_program(words)


if __name__ == "__main__":
    sys.exit(main())
