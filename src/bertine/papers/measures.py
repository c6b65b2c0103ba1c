"""The columns of the tables: how a model is scored for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal


@dataclass(frozen=True)
class Measure:
    """A way to score a model.

    Attributes:
        verb: what is run: ``finetune``, or ``feature_based`` on frozen states, for every seed;
            ``pairs`` answers pairs of held-out text; ``blimp`` tells right sentences from wrong
            ones; ``time`` measures how long answering takes; ``pretrain`` is nothing more, since
            that has scored its held-out text.
        score: the name of the score among those of the verb.
        arguments: of the verb, beside data and model.
        data: where its data stand in the folder of all data, the first that is there.
        percent: whether the score is a share, written times 100.
    """

    verb: Literal["finetune", "feature_based", "pairs", "blimp", "time", "pretrain"]
    score: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    data: tuple[str, ...] = ()
    percent: bool = True

    def find(self, data: Path) -> Path | None:
        """Return where its data are below `data`; None where they are not there."""
        places = (data / place for place in self.data)
        return next((place for place in places if place.exists()), None)


def _glue(name: str, score: str = "accuracy") -> Measure:
    arguments = {"task": "glue", "glue_task": name}
    return Measure("finetune", score, arguments, (f"glue/{name}", name))


def _squad(version: str, score: str) -> Measure:
    file = f"train-v{version}.json"
    return Measure("finetune", score, {"task": "squad"}, (f"squad/{file}", file))


#: Folders of sentences with tagged entities.
_ENTITIES = ("ner", "conll2003", "wnut17")


def _texts(columns: list[str], label: str, data: tuple[str, ...]) -> Measure:
    arguments = {"task": "text", "text_columns": columns, "label_column": label}
    return Measure("finetune", "accuracy", arguments, data)


def _held_out(score: str, **more: Any) -> Measure:
    return Measure("pretrain", score, **more)


#: By their names in the tables. Accuracies of sentence pairs are of the pairs of held-out text;
#: BLiMP asks what pre-training alone has taught, and says something of the smallest models too.
MEASURES = {
    "CoLA": _glue("CoLA", "matthews"),
    "SST-2": _glue("SST-2"),
    "MRPC": _glue("MRPC"),
    "MRPC F1": _glue("MRPC", "f1"),
    "STS-B": _glue("STS-B", "pearson"),
    "STS-B Spearman": _glue("STS-B", "spearman"),
    "QQP": _glue("QQP"),
    "QQP F1": _glue("QQP", "f1"),
    "MNLI-m": _glue("MNLI"),
    "MNLI-mm": _glue("MNLI", "mismatched_accuracy"),
    "QNLI": _glue("QNLI"),
    "RTE": _glue("RTE"),
    "WNLI": _glue("WNLI"),
    "SQuAD 1.1": _squad("1.1", "f1"),
    "SQuAD 1.1 EM": _squad("1.1", "exact_match"),
    "SQuAD 2.0": _squad("2.0", "f1"),
    "SQuAD 2.0 EM": _squad("2.0", "exact_match"),
    "SWAG": Measure("finetune", "accuracy", {"task": "swag"}, ("swag", "swag-format-codah")),
    "NER": Measure("finetune", "f1", {"task": "tagging"}, _ENTITIES),
    "NER by features": Measure(
        "feature_based",
        "f1",
        {"task": "tagging", "rows": ["concat-last-four"]},
        _ENTITIES,
    ),
    "topics": _texts(["text"], "category", ("sib200", "single-sib200")),
    "OCNLI": _texts(["sentence1", "sentence2"], "label", ("ocnli",)),
    "LM perplexity": _held_out("perplexity", percent=False),
    "MLM": _held_out("mlm_accuracy"),
    "NSP": Measure("pairs", "accuracy", {"input_format": "segment-pair"}),
    "SOP": Measure("pairs", "accuracy", {"input_format": "sentence-order"}),
    "BLiMP": Measure("blimp", "paradigm_mean"),
    "seconds": Measure("time", "seconds", {}, _glue("STS-B").data, percent=False),
}
