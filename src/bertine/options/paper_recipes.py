"""How the papers fine-tune: passes, batches, rate and what else they say, by family and task.

Where a paper or its published code counts steps, the passes are those that come to so many steps on
the official training file. Where it searches among values, the first one here is used and the
others are named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class PaperRecipe:
    """How a paper fine-tunes on a task.

    Attributes:
        epochs: passes over the training examples.
        batch_size: examples in an update.
        learning_rate: its highest value.
        source: where that stands.
        warmup_ratio: the share of the steps in which the rate rises; None: as the schedule has it.
        weight_decay, layer_decay: None: Bertine's defaults, which are those of BERT's paper.
        others: what else is tried, of which the best on the development set is taken; "": nothing.
    """

    epochs: int
    batch_size: int
    learning_rate: float
    source: str = ""
    warmup_ratio: float | None = None
    weight_decay: float | None = None
    layer_decay: float | None = None
    others: str = ""

    def __str__(self) -> str:
        rate = (
            f"{self.learning_rate:.3g}"
            if self.learning_rate < 1e-4
            else f"{self.learning_rate:.0e}"
        )
        rate = rate.replace("e-0", "e-")
        parts = [f"{self.epochs} epochs, batches of {self.batch_size}, {rate}"]
        for name, value in (
            ("warm-up", self.warmup_ratio),
            ("weight decay", self.weight_decay),
            ("layer decay", self.layer_decay),
        ):
            parts += [] if value is None else [f"{name} {value:g}"]
        return ", ".join([*parts, *([f"also {self.others}"] if self.others else [])])


_GLUE = ("CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI", "QNLI", "RTE", "WNLI")
_BERT = "Devlin et al. 2018, sections 4 and A.3"
_BERT_GLUE = PaperRecipe(3, 32, 5e-5, _BERT, others="rates 4e-5, 3e-5 and 2e-5")
#: Of a task that a paper does not have, or where a family has no paper with one recipe.
_OTHERS = PaperRecipe(3, 32, 5e-5, _BERT, others="batches of 16, rates to 2e-5, 2 and 4 epochs")

_ROBERTA = PaperRecipe(10, 16, 1e-5, "Liu et al. 2019, table 10, and fairseq's README.glue.md")
_ROBERTA = replace(_ROBERTA, warmup_ratio=0.06, weight_decay=0.1)
_ROBERTA_SQUAD = replace(_ROBERTA, epochs=2, batch_size=48, learning_rate=1.5e-5, weight_decay=0.01)
_ALBERT = PaperRecipe(10, 16, 1e-5, "Lan et al. 2019, table 14")
_GPT = PaperRecipe(3, 32, 6.25e-5, "Radford et al. 2018, section 4.1", warmup_ratio=0.002)
_XLNET = PaperRecipe(3, 128, 2e-5, "Yang et al. 2019, table 8")


def _albert(epochs: int, batch_size: int, rate: float, steps: int, warmup: int) -> PaperRecipe:
    return replace(
        _ALBERT,
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=rate,
        warmup_ratio=round(warmup / steps, 4),
    )


def _electra(size: str, rate: float, layer_decay: float) -> dict[str, PaperRecipe]:
    usual = PaperRecipe(
        *(3, 32, rate, f"Clark et al. 2020, table 7 ({size})"),
        warmup_ratio=0.1,
        weight_decay=0.0,
        layer_decay=layer_decay,
    )
    long, short = replace(usual, epochs=10), replace(usual, epochs=2)
    return {
        "": usual,
        **dict.fromkeys(("glue/RTE", "glue/STS-B"), long),
        **dict.fromkeys(("squad/v1.1", "squad/v2.0"), short),
    }


#: Family → task, or the public data set that it is, → its recipe. "" is for all others.
PAPER_RECIPES: Mapping[str, Mapping[str, PaperRecipe]] = {
    "BERT": {
        "": _OTHERS,
        **{f"glue/{name}": _BERT_GLUE for name in _GLUE},
        "squad/v1.1": PaperRecipe(3, 32, 5e-5, _BERT),
        "squad/v2.0": PaperRecipe(2, 48, 5e-5, _BERT),
        "swag": PaperRecipe(3, 16, 2e-5, _BERT),
    },
    "RoBERTa": {
        "": replace(_ROBERTA, others="2e-5 and 3e-5, batches of 32"),
        **dict.fromkeys(("glue/CoLA", "glue/MRPC"), _ROBERTA),
        **dict.fromkeys(("glue/RTE", "glue/STS-B"), replace(_ROBERTA, learning_rate=2e-5)),
        **{f"glue/{n}": replace(_ROBERTA, batch_size=32) for n in ("SST-2", "MNLI", "QNLI")},
        "glue/QQP": replace(_ROBERTA, batch_size=32, warmup_ratio=0.25),
        **dict.fromkeys(("squad/v1.1", "squad/v2.0"), _ROBERTA_SQUAD),
    },
    "ALBERT": {
        "": _OTHERS,
        "glue/CoLA": _albert(10, 16, 1e-5, 5336, 320),
        "glue/STS-B": _albert(10, 16, 2e-5, 3598, 214),
        "glue/SST-2": _albert(10, 32, 1e-5, 20935, 1256),
        "glue/MNLI": _albert(3, 128, 3e-5, 10000, 1000),
        "glue/QNLI": _albert(10, 32, 1e-5, 33112, 1986),
        "glue/QQP": _albert(5, 128, 5e-5, 14000, 1000),
        "glue/RTE": _albert(10, 32, 3e-5, 800, 200),
        "glue/MRPC": _albert(7, 32, 2e-5, 800, 200),
        "glue/WNLI": _albert(50, 16, 2e-5, 2000, 250),
        "squad/v1.1": _albert(2, 48, 5e-5, 3649, 365),
        "squad/v2.0": _albert(3, 48, 3e-5, 8144, 814),
    },
    "ELECTRA-Small": _electra("small", 3e-4, 0.8),
    "ELECTRA-Base": _electra("base", 1e-4, 0.8),
    "ELECTRA-Large": _electra("large", 5e-5, 0.9),
    "GPT-1": {"": _GPT},
    "XLNet": {
        "": _OTHERS,
        "glue/MNLI": _XLNET,
        **dict.fromkeys(
            ("squad/v1.1", "squad/v2.0"),
            replace(_XLNET, batch_size=48, learning_rate=3e-5, layer_decay=0.75),
        ),
    },
}


def paper_recipe(family: str, task: str) -> PaperRecipe:
    """Return how the paper of a `family` fine-tunes on a `task`; as BERT's where it does not say.

    Args:
        family: a key of :data:`PAPER_RECIPES`, or the name of a family without one.
        task: a public data set ("glue/CoLA"), or the name of a task.
    """
    recipes = PAPER_RECIPES.get(family, PAPER_RECIPES["BERT"])
    found = recipes.get(task) or recipes[""]
    return PAPER_RECIPES["BERT"].get(task, found) if found is _OTHERS else found


def recipe_lines() -> list[str]:
    """Return the table: a line for each family, with its recipes and the tasks that have each."""
    lines = []
    for family, recipes in PAPER_RECIPES.items():
        tasks: dict[PaperRecipe, list[str]] = {}
        for task, recipe in recipes.items():
            if family == "BERT" or recipe is not _OTHERS:
                tasks.setdefault(recipe, []).append(task.removeprefix("glue/") or "others")
        parts = [f"{', '.join(names)}: {recipe}" for recipe, names in tasks.items()]
        lines.append(f"{family} ({recipe.source}): {'; '.join(parts)}")
    return lines
