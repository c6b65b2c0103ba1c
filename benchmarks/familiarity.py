"""How well `--familiarity` tells texts of none of the labels from usual ones, on CLINC150.

    python benchmarks/familiarity.py --data FOLDER --out FOLDER
    python benchmarks/familiarity.py --data FOLDER --out FOLDER --model minilm --frozen

A model is fine-tuned on the 150 intents; half of the validation texts are its own validation
examples, which the familiarity compares with, and the other half judge, beside the 100 questions of
``oos_val.csv`` that are of no intent. Beside it the largest probability, and the distance to the
fifth nearest training text by scikit-learn, from the same model. AUROC, and the recall at the
threshold that takes 5% of the judging usual texts; of the familiarity also what 0.05 itself takes
of both.
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path

import numpy as np
from common import describe_machine, machine, print_table
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import NearestNeighbors

import bertine
from bertine.inference.embedding.vectors import unit

NEIGHBOURS = 5


def read(path: Path) -> list[str]:
    with open(path, encoding="utf-8", newline="") as file:
        return [row["text"] for row in csv.DictReader(file)]


def write_data(data: Path, folder: Path) -> list[str]:
    """Write the training and the validation file, and return the other validation texts."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.csv").write_bytes((data / "train.csv").read_bytes())
    with open(data / "val.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    with open(folder / "dev.csv", "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows[::2])
    return [row["text"] for row in rows[1::2]]


def row_of(name: str, usual: np.ndarray, strange: np.ndarray) -> list[str]:
    """A row of the table from how strange texts are, larger for stranger ones."""
    right = np.r_[np.zeros(len(usual)), np.ones(len(strange))]
    area = roc_auc_score(right, np.r_[usual, strange])
    recall = (strange > np.quantile(usual, 0.95)).mean()
    return [name, f"{100 * area:.1f}", f"{100 * recall:.0f}%"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, required=True, help="folder with clinc150/")
    parser.add_argument("--out", type=Path, required=True, help="folder of the run")
    parser.add_argument("--model", default="bertine-en")
    parser.add_argument("--frozen", action="store_true", help="train the head alone")
    parser.add_argument("--epochs", type=int, help="not given: the default")
    args = parser.parse_args()
    data = args.data / "clinc150"
    usual = write_data(data, args.out / "data")
    strange = read(data / "oos_val.csv")
    epochs = {} if args.epochs is None else {"epochs": args.epochs}
    learner = bertine.finetune(
        "text",
        model=args.model,
        data=args.out / "data",
        out=args.out / "run",
        frozen=args.frozen,
        baselines=False,
        resume=True,
        **epochs,
    )
    print(f"accuracy on its validation examples: {learner.metrics['accuracy']:.1%}")
    model = str(learner.model)
    plain = bertine.Predictor.load(model, precision="fp32", threads=1)
    telling = plain.judging_familiarity()
    seconds = []
    for predictor in (plain, telling, plain, telling):
        began = time.perf_counter()
        predictor.predict(usual)
        seconds.append(time.perf_counter() - began)
    known, other = (telling.predict(texts) for texts in (usual, strange))
    familiar = [np.array([answer.familiarity for answer in answers]) for answers in (known, other)]
    sure = [np.array([answer.probability for answer in answers]) for answers in (known, other)]
    embedder = bertine.Embedder.load(model, precision="fp32", threads=1)
    nearest = NearestNeighbors(n_neighbors=NEIGHBOURS)
    nearest.fit(unit(embedder.embed(read(data / "train.csv"))))
    far = [nearest.kneighbors(unit(embedder.embed(texts)))[0][:, -1] for texts in (usual, strange)]
    print(describe_machine(machine(1)))
    print_table(
        ["", "AUROC", "recall at 5% false alarms"],
        [
            row_of("familiarity", -familiar[0], -familiar[1]),
            row_of("largest probability", -sure[0], -sure[1]),
            row_of(f"distance to the {NEIGHBOURS}th nearest (scikit-learn)", far[0], far[1]),
        ],
    )
    taken = [100 * (values < 0.05).mean() for values in familiar]
    print(f"below 0.05: {taken[1]:.0f}% of the strange texts, {taken[0]:.1f}% of the usual ones")
    print(f"answering with familiarity takes {sum(seconds[1::2]) / sum(seconds[::2]):.2f} times")


if __name__ == "__main__":
    main()
