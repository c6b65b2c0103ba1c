"""What has to be done for a table: its steps, in their order."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bertine.data.store import is_store
from bertine.errors import BertineError
from bertine.interop.family import config_to_huggingface, family_of
from bertine.models.config import Config
from bertine.options.names import option
from bertine.options.papers import PaperOptions
from bertine.papers.measures import MEASURES, Measure
from bertine.papers.splitting import HELD_OUT, TRAINING
from bertine.papers.steps import Step
from bertine.papers.table import PaperTable, TableRow
from bertine.registry import FAMILIES
from bertine.training.pretraining.initial_weights import architecture_of

#: Tokens of pre-training for each row, where nobody says.
_TOKENS = 30_000_000
#: What pre-training and distilling have where a table says nothing; new weights are mimetic ones
#: then, with which small models learn soonest.
_COMMON: dict[str, Any] = {
    "max_seq_length": 128,
    "batch_size": 64,
    "learning_rate": 1e-3,
    "warmup_ratio": 0.05,
}
#: What a fine-tuning run of a table has where its file says nothing.
_FINETUNE: dict[str, Any] = {"save_best": False, "frozen": False}
_TEXT, _VOCABULARY, _STORE, _HELD_OUT = "text", "vocabulary", "store", "held-out-store"


@dataclass(frozen=True)
class Cell:
    """A cell of the table, and the steps that its scores come from, one a seed."""

    row: str
    column: str
    steps: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """What has to be done.

    Attributes:
        steps: by their names, each after those that it needs.
        cells: of the table.
        left_out: columns without data, and where these were looked for.
        parameters: of the model of each row.
    """

    steps: Mapping[str, Step]
    cells: tuple[Cell, ...]
    left_out: Mapping[str, str]
    parameters: Mapping[str, int] = field(default_factory=dict)

    def levels(self) -> list[list[Step]]:
        """Return the steps in groups, each of which needs those before it alone."""
        level: dict[str, int] = {}
        for name, step in self.steps.items():
            level[name] = 1 + max((level[other] for other in step.needs), default=-1)
        groups: list[list[Step]] = [[] for _ in range(1 + max(level.values(), default=-1))]
        for name, step in self.steps.items():
            groups[level[name]].append(step)
        return groups

    def with_needed(self, cells: tuple[Cell, ...]) -> Plan:
        """Return the plan with some cells alone, and the steps that they need."""
        wanted: set[str] = set()
        waiting = [name for cell in cells for name in cell.steps]
        while waiting:
            name = waiting.pop()
            if name not in wanted:
                wanted.add(name)
                waiting += self.steps[name].needs
        steps = {name: step for name, step in self.steps.items() if name in wanted}
        return dataclasses.replace(self, steps=steps, cells=cells)


def plan_of(
    table: PaperTable, corpus: list[Path], data: Path | None, options: PaperOptions
) -> Plan:
    """Plan a table.

    Args:
        corpus: texts, or one token store.
        data: the folder of labelled data; None: only what needs none is run.

    Raises:
        BertineError: a size that cannot be; no such row or column; no column has its data.
    """
    rows = _chosen(table, options)
    steps = _preparing(corpus, options)
    sizes = architecture_of(options.model)
    columns, left_out = _columns(table, data, options)
    parameters: dict[str, int] = {}
    cells = []
    needed = [*rows, *_before(table, rows)]
    for row in (*table.runs, *table.rows):
        if row.name not in needed:
            continue
        if row.snapshot_of is not None:
            parameters[row.name] = parameters[row.snapshot_of]
            if row.share == 1:
                continue
            step = _snapshot(row, table, options)
        else:
            step, parameters[row.name] = _pretraining(row, sizes, corpus, options)
        if row in table.runs:
            step = _with_checkpoints(step, table, options)
        if row.model_of is None:
            steps[step.name] = step
    for row in table.rows:
        if row.name not in rows:
            continue
        for column, place in columns.items():
            measure = MEASURES[column]
            if measure.verb == "pretrain":
                cells.append(Cell(row.name, column, (row.pretrained,)))
                continue
            assert place is not None
            runs = _finetuning(row, column, measure, place, options)
            steps |= {step.name: step for step in runs}
            cells.append(Cell(row.name, column, tuple(step.name for step in runs)))
    return Plan(steps, tuple(cells), left_out, parameters)


def _chosen(table: PaperTable, options: PaperOptions) -> list[str]:
    """Return the names of the wanted rows.

    Raises:
        BertineError: there is no such row.
    """
    known = [row.name for row in table.rows]
    for name in options.rows or ():
        if name not in known:
            raise BertineError(f"{table.name} has no row {name!r}; it has {', '.join(known)}")
    return [name for name in known if options.rows is None or name in options.rows]


def _before(table: PaperTable, rows: list[str]) -> list[str]:
    """Return the rows whose models those of `rows` begin with, or learn from."""
    before: list[str] = []
    waiting = list(rows)
    while waiting:
        row = table.row(waiting.pop())
        others = [
            name
            for name in (row.begins_with, row.teacher, row.model_of, row.snapshot_of)
            if name is not None
        ]
        before += others
        waiting += others
    return before


def _columns(
    table: PaperTable, data: Path | None, options: PaperOptions
) -> tuple[dict[str, Path | None], dict[str, str]]:
    """Return where the data of each column are, and the columns without data."""
    for name in options.columns or ():
        if name not in table.columns:
            raise BertineError(
                f"{table.name} has no column {name!r}; it has {', '.join(table.columns)}"
            )
    found: dict[str, Path | None] = {}
    left_out: dict[str, str] = {}
    for name in table.columns:
        if options.columns is not None and name not in options.columns:
            continue
        measure = MEASURES[name]
        if measure.verb == "pretrain":
            found[name] = None
        elif data is None:
            left_out[name] = f"needs {option('data')}"
        elif (place := measure.find(data)) is not None:
            found[name] = place
        else:
            left_out[name] = f"there is no {measure.data[0]} in {data}"
    if not found:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in left_out.items())
        raise BertineError(f"{table.name}: no column can be run ({reasons})")
    return found, left_out


def _preparing(corpus: list[Path], options: PaperOptions) -> dict[str, Step]:
    """Return the steps from texts to token stores; none where the corpus is a store."""
    if len(corpus) == 1 and is_store(corpus[0]):
        return {}
    if options.held_out is not None:
        raise BertineError(
            f"{options.held_out}: a store is held out of a store; of texts documents are held out "
            f"by themselves, so leave {option('held_out')} out"
        )
    texts = [str(path.absolute()) for path in corpus]
    steps = [
        Step(_TEXT, "split", given={"corpus": texts}),
        Step(
            _VOCABULARY,
            "train_vocab",
            {"vocab_size": options.vocab_size},
            inside={"corpus": [f"{_TEXT}/{TRAINING}"]},
            needs=(_TEXT,),
        ),
        *(
            Step(
                store,
                "prepare",
                inside={"corpus": [f"{_TEXT}/{file}"], "tokenizer": _VOCABULARY},
                needs=(_TEXT, _VOCABULARY),
            )
            for store, file in ((_STORE, TRAINING), (_HELD_OUT, HELD_OUT))
        ),
    ]
    return {step.name: step for step in steps}


def _pretraining(
    row: TableRow, sizes: Config, corpus: list[Path], options: PaperOptions
) -> tuple[Step, int]:
    """Return the step that makes the model of a row, and how many parameters that has."""
    verb = "pretrain" if row.teacher is None else "distill"
    given: dict[str, Any] = {}
    inside: dict[str, Any] = {}
    needs: list[str] = []
    data = "store" if verb == "pretrain" else "data"
    if len(corpus) == 1 and is_store(corpus[0]):
        given[data] = str(corpus[0].absolute())
        if options.held_out is not None:
            given["held_out"] = str(Path(options.held_out).absolute())
    else:
        inside |= {data: _STORE, "held_out": _HELD_OUT}
        needs += [_STORE, _HELD_OUT]
    config = config_of(row.sizes, sizes).replace(vocab_size=options.vocab_size)
    if row.begins_with is not None:
        inside["model" if verb == "pretrain" else "student"] = f"pretrained/{row.begins_with}/model"
        needs.append(f"pretrained/{row.begins_with}")
    if row.teacher is not None:
        inside["teacher"] = f"pretrained/{row.teacher}/model"
        needs.append(f"pretrained/{row.teacher}")
    arguments = {**_length(options), **_COMMON, **row.arguments.get(verb, {})}
    if row.begins_with is None and (verb == "pretrain" or row.new_weights):
        arguments["config"] = config_to_huggingface(config)
    if verb == "pretrain" and row.begins_with is None:
        arguments.setdefault("initialization", "mimetic")
    step = Step(f"pretrained/{row.name}", verb, arguments, given, inside, tuple(needs))
    return step, config.num_parameters


def _steps_of_curve(run: TableRow, options: PaperOptions) -> int:
    """Return how many steps a run has whose model is taken along the way.

    Raises:
        BertineError: it is not known before it ends.
    """
    if options.hours is not None:
        raise BertineError(
            f"a curve needs to know its steps beforehand; give {option('steps')} or "
            f"{option('tokens')} in place of {option('hours')}"
        )
    if options.steps is not None:
        return options.steps
    arguments = {**_COMMON, **run.arguments.get("pretrain", {})}
    return max(
        1,
        (options.tokens or _TOKENS) // (arguments["batch_size"] * arguments["max_seq_length"]),
    )


def _with_checkpoints(step: Step, table: PaperTable, options: PaperOptions) -> Step:
    """Return the pre-training of a curve, which keeps a checkpoint for each of its points."""
    run = table.row(step.name.removeprefix("pretrained/"))
    points = [row.share for row in table.rows if row.snapshot_of == run.name]
    steps = _steps_of_curve(run, options)
    if steps < len(points):
        raise BertineError(f"a curve of {len(points)} points needs as many steps at least")
    arguments = {name: value for name, value in step.arguments.items() if name != "tokens"}
    arguments |= {
        "steps": steps,
        "checkpoint_every": steps // len(points),
        # The last one may come on top, where the steps are no multiple.
        "keep_checkpoints": len(points) + 1,
    }
    return dataclasses.replace(step, arguments=arguments)


def _snapshot(row: TableRow, table: PaperTable, options: PaperOptions) -> Step:
    """Return the step that takes the model of a run along its way."""
    run = table.row(str(row.snapshot_of))
    points = [other.share for other in table.rows if other.snapshot_of == run.name]
    every = _steps_of_curve(run, options) // len(points)
    return Step(
        row.pretrained,
        "snapshot",
        {"step": round(row.share * len(points)) * every},
        inside={"run": run.pretrained},
        needs=(run.pretrained,),
    )


def _length(options: PaperOptions) -> dict[str, Any]:
    """Return how long each row is pre-trained, as arguments of ``pretrain``.

    Raises:
        BertineError: it is said in two ways.
    """
    said = {
        name: value
        for name in ("hours", "steps", "tokens")
        if (value := getattr(options, name)) is not None
    }
    if len(said) > 1:
        raise BertineError(f"give one of {' and '.join(option(name) for name in said)}")
    return said or {"tokens": _TOKENS}


def _finetuning(
    row: TableRow, column: str, measure: Measure, place: Path, options: PaperOptions
) -> list[Step]:
    """Return the runs of a cell, one a seed."""
    arguments = {**_FINETUNE, **measure.arguments, **row.arguments.get("finetune", {})}
    if options.epochs is not None:
        arguments["epochs"] = options.epochs
    folder = column.replace(" ", "-")
    return [
        Step(
            f"finetuned/{row.name}/{folder}/seed-{seed}",
            "finetune",
            {**arguments, "seed": seed},
            given={"data": str(place.absolute())},
            inside={"model": f"{row.pretrained}/model"},
            needs=(row.pretrained,),
        )
        for seed in range(options.seeds)
    ]


def config_of(sizes: Mapping[str, Any], base: Config) -> Config:
    """Make the configuration of a row.

    Args:
        sizes: ``type`` of the model; ``layers``, ``width``, ``heads`` as shares of those of
            `base`, ``embedding`` as a share of the width; others are fields of the configuration.
        base: the model whose sizes stand for those of the paper's base model.

    Raises:
        BertineError: a size that cannot be.
    """
    sizes = dict(sizes)
    kind = sizes.pop("type", base.model_type)
    heads = max(1, round(base.num_attention_heads * sizes.pop("heads", 1)))
    width = heads * max(1, round(base.hidden_size * sizes.pop("width", 1) / heads))
    layers = max(1, round(base.num_hidden_layers * sizes.pop("layers", 1)))
    known: dict[str, Any] = {
        "num_hidden_layers": layers,
        "hidden_size": width,
        "num_attention_heads": heads,
        "intermediate_size": round(base.intermediate_size * width / base.hidden_size),
    }
    if sizes.get("num_hidden_groups") == "own":
        sizes["num_hidden_groups"] = layers
    if "embedding" in sizes:
        known["embedding_size"] = max(8, round(width * sizes.pop("embedding")))
    whole = base
    if kind != base.model_type:
        if kind not in FAMILIES:
            raise BertineError(f"there are no models of type {kind!r}")
        whole = next(iter(family_of(kind).presets.values()))
    if whole.encodes_and_decodes:
        # As many layers in all, as the paper compares them.
        known["num_hidden_layers"] = known["decoder_layers"] = max(1, layers // 2)
        known |= {"decoder_attention_heads": heads, "decoder_ffn_dim": known["intermediate_size"]}
    return whole.replace(**{**known, **sizes})
