"""Static vectors made of a model: how fast they answer and what they score, beside their teacher
and model2vec's of the same teacher.

    python benchmarks/static_vectors.py --data FOLDER --texts FILE --keep FOLDER

Makes a table of the teacher's pieces alone, and one that learns from the teacher's vectors of the
texts; both are kept in a folder, and made again only where they are not there. Where the package
model2vec is there, it distils the same teacher, and its table is computed by model2vec, and by
Bertine. Speed: texts of emotion, other ones in each turn, one system after the other. Scores:
Spearman with STS-B's dev file by the cosine; logistic regression on the vectors of emotion and
SST-2.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from common import Timing, describe_machine, machine, minilm, print_table, save_json
from scipy.stats import spearmanr
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import bertine
from bertine.core.console import quietly
from bertine.data.examples import read_examples

#: From texts to vectors [N, D].
Vectors = Callable[[Sequence[str]], np.ndarray]
#: Task → folder, training file, file to score on.
TASKS = {
    "emotion": ("emotion", "train.txt", "val.txt"),
    "SST-2": ("glue/SST-2", "train.tsv", "dev.tsv"),
}
#: The systems that are no tables.
_ENCODERS = ("teacher", "bertine-en")


def ours(args: argparse.Namespace, name: str, texts: Path | None) -> Vectors:
    """Return what computes with a table of ours, which is made where it is not there yet."""
    folder = args.keep / name
    if not folder.exists():
        begun = time.perf_counter()
        with quietly():
            result = bertine.distill(
                texts,
                static=True,
                teacher=args.teacher,
                out=folder,
                teacher_texts=args.teacher_texts,
            )
        print("\n".join(result.lines()), flush=True)
        print(f"{name}: made in {time.perf_counter() - begun:.0f} s", flush=True)
    return bertine.Embedder.load(folder)


def model2vec_folder(args: argparse.Namespace) -> Path | None:
    """Return a table that model2vec distilled; None: the package is not there."""
    if importlib.util.find_spec("model2vec") is None:
        return None
    folder: Path = args.keep / "model2vec"
    if not folder.exists():
        from model2vec.distill import distill

        begun = time.perf_counter()
        distill(model_name=str(args.teacher)).save_pretrained(folder)
        print(f"model2vec: made in {time.perf_counter() - begun:.0f} s", flush=True)
    return folder


def systems(args: argparse.Namespace) -> dict[str, Vectors]:
    """Return all that are compared, by name; the teacher first."""
    found: dict[str, Vectors] = {"teacher": bertine.Embedder.load(args.teacher)}
    found["bertine-en"] = bertine.Embedder.load("bertine-en")
    found["static, pieces alone"] = ours(args, "pieces", None)
    if args.texts is not None:
        found["static, learned from texts"] = ours(args, "learned", args.texts)
    folder = model2vec_folder(args)
    if folder is not None:
        from model2vec import StaticModel

        found["model2vec"] = StaticModel.from_pretrained(folder).encode
        found["model2vec's, computed by Bertine"] = bertine.Embedder.load(folder)
    return found


def speeds(
    compared: dict[str, Vectors], texts: Sequence[str], args: argparse.Namespace
) -> dict[str, Timing]:
    """Return seconds a text, of each turn; slow systems compute fewer texts."""
    seconds: dict[str, list[float]] = {name: [] for name in compared}
    for turn in range(args.turns + 1):
        for name, vectors in compared.items():
            count = args.slow_texts if name in _ENCODERS else args.fast_texts
            start = turn * count % max(1, len(texts) - count)
            part = list(texts[start : start + count])
            begun = time.perf_counter()
            vectors(part)
            if turn:  # the first makes what is made at a first call
                seconds[name].append((time.perf_counter() - begun) / len(part))
    return {name: Timing(each) for name, each in seconds.items()}


def spearman(vectors: Vectors, data: Path) -> float:
    """Return Spearman's correlation of the cosines with STS-B's scores, times 100."""
    pairs, scores = [], []
    for number, line in enumerate((data / "glue/STS-B/dev.tsv").read_text("utf-8").splitlines()):
        cells = line.split("\t")
        if not number:
            places = [cells.index(each) for each in ("sentence1", "sentence2", "score")]
            continue
        pairs.append((cells[places[0]], cells[places[1]]))
        scores.append(float(cells[places[2]]))
    first, second = (_unit(vectors([pair[side] for pair in pairs])) for side in (0, 1))
    return 100 * float(spearmanr((first * second).sum(1), scores)[0])


def _unit(vectors: np.ndarray) -> np.ndarray:
    vectors = np.asarray(vectors, np.float32)
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)


def accuracy(vectors: Vectors, data: Path, task: str, examples: int) -> float:
    """Return the accuracy of logistic regression on the vectors of the first `examples`."""
    inside, train, held = TASKS[task]
    parts = [read_examples(data / inside / name).items for name in (train, held)]
    parts[0] = parts[0][:examples]
    inputs = [np.asarray(vectors([item.texts[0] for item in part]), np.float32) for part in parts]
    labels = [[str(item.label) for item in part] for part in parts]
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300, C=0.1))
    model.fit(inputs[0], labels[0])
    return 100 * float(model.score(inputs[1], labels[1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with emotion and glue")
    parser.add_argument("--texts", type=Path, help="texts to learn from the teacher, a line each")
    parser.add_argument("--teacher", type=Path, default=None, help="all-MiniLM-L6-v2 without it")
    parser.add_argument("--teacher-texts", type=int, default=20_000)
    parser.add_argument("--keep", type=Path, required=True, help="folder of the tables")
    parser.add_argument("--examples", type=int, default=4000, help="of the classifiers")
    parser.add_argument("--fast-texts", type=int, default=4000, help="of a turn")
    parser.add_argument("--slow-texts", type=int, default=200, help="of a turn of an encoder")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument(
        "--no-encoder-scores",
        action="store_true",
        help="measure the speed of the teacher and of bertine-en, but not their scores",
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    args.teacher = args.teacher or minilm()
    torch.set_num_threads(args.threads)
    facts = machine(args.threads)
    print(describe_machine(facts), flush=True)
    compared = systems(args)
    inside, train, _ = TASKS["emotion"]
    texts = [item.texts[0] for item in read_examples(args.data / inside / train).items]
    times = speeds(compared, texts, args)
    rows = {}
    for name, vectors in compared.items():
        rows[name] = {
            "texts_a_second": 1 / times[name].median,
            "times_as_fast": times["teacher"].median / times[name].median,
            "spread": times[name].spread,
        }
        if args.no_encoder_scores and name in _ENCODERS:
            continue
        rows[name]["STS-B"] = spearman(vectors, args.data)
        for task in TASKS:
            rows[name][task] = accuracy(vectors, args.data, task, args.examples)
        print(f"{name}: done", flush=True)
    print_table(
        ["", "texts/s", "x teacher", "spread", "STS-B", *TASKS],
        [
            [
                name,
                f"{row['texts_a_second']:,.0f}",
                f"{row['times_as_fast']:.1f}",
                f"{row['spread']:.0%}",
                *(f"{row[task]:.1f}" if task in row else "" for task in ("STS-B", *TASKS)),
            ]
            for name, row in rows.items()
        ],
    )
    save_json(args.json, {"machine": facts, "systems": rows})


if __name__ == "__main__":
    main()
