"""What has to be done for a table: its steps, in their order."""

from __future__ import annotations

import dataclasses
import json
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
_TEXT, _VOCABULARY, _STORE, _HELD = "text", "vocabulary", "store", "held-out-store"
#: The verbs that make of texts what a model reads.
_OF_TEXT = ("train_vocab", "prepare")


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
    texts = _Texts(corpus, options)
    steps: dict[str, Step] = {}
    sizes = architecture_of(options.model)
    columns, left_out = _columns(table, data, options)
    parameters: dict[str, int] = {}
    cells = []
    needed = [*rows, *_before(table, rows)]
    for row in (*table.runs, *table.rows):
        if row.name not in needed:
            continue
        if row.weights is not None:
            parameters[row.name] = architecture_of(row.weights).num_parameters
            continue
        if row.snapshot_of is not None:
            parameters[row.name] = parameters[row.snapshot_of]
            if row.share == 1:
                continue
            step = _snapshot(row, table, options)
        else:
            before, step, parameters[row.name] = _pretraining(row, sizes, texts, options)
            if row.model_of is None:
                steps |= {each.name: each for each in before}
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
    known = [row.name for row in table.rows if row.weights is not None or not table.given]
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
        others = [name for name in (row.teacher, row.model_of, row.snapshot_of) if name is not None]
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


class _Texts:
    """The steps from texts to the token stores that rows are trained on.

    Args:
        corpus: texts, or one token store.
    """

    def __init__(self, corpus: list[Path], options: PaperOptions) -> None:
        self._options = options
        self._store = corpus[0] if len(corpus) == 1 and is_store(corpus[0]) else None
        if self._store is None and options.held_out is not None:
            raise BertineError(
                f"{options.held_out}: a store is held out of a store; of texts documents are held "
                f"out by themselves, so leave {option('held_out')} out"
            )
        texts = [str(path.absolute()) for path in corpus]
        self._split = Step(_TEXT, "split", given={"corpus": texts})
        #: What vocabularies and stores are made with, as JSON → what their folders are called.
        self._known: dict[str, str] = {}

    def of(self, row: TableRow, data: str) -> tuple[list[Step], dict[str, str], dict[str, str]]:
        """Return how the text of a row is made.

        Args:
            data: the name of the argument that takes the store.

        Returns:
            The steps; the arguments that are paths of the user's; those that are below the
            table's folder.

        Raises:
            BertineError: the row has a vocabulary of its own, but a store is given.
        """
        own = {verb: row.arguments[verb] for verb in _OF_TEXT if verb in row.arguments}
        if self._store is not None:
            if own:
                raise BertineError(
                    f"{self._store}: is a token store, but rows have vocabularies of their own; "
                    "give texts"
                )
            given = {data: str(self._store.absolute())}
            if self._options.held_out is not None:
                given["held_out"] = str(Path(self._options.held_out).absolute())
            return [], given, {}
        key = json.dumps(own, sort_keys=True)
        name = self._known.setdefault(key, f"-{row.name}" if own else "")
        vocabulary, store, held_out = f"{_VOCABULARY}{name}", f"{_STORE}{name}", f"{_HELD}{name}"
        steps = [
            self._split,
            Step(
                vocabulary,
                "train_vocab",
                {"vocab_size": self._options.vocab_size, **own.get("train_vocab", {})},
                inside={"corpus": [f"{_TEXT}/{TRAINING}"]},
                needs=(_TEXT,),
            ),
            *(
                Step(
                    made,
                    "prepare",
                    own.get("prepare", {}),
                    inside={"corpus": [f"{_TEXT}/{file}"], "tokenizer": vocabulary},
                    needs=(_TEXT, vocabulary),
                )
                for made, file in ((store, TRAINING), (held_out, HELD_OUT))
            ),
        ]
        return steps, {}, {data: store, "held_out": held_out}


def _pretraining(
    row: TableRow, sizes: Config, texts: _Texts, options: PaperOptions
) -> tuple[list[Step], Step, int]:
    """Return the steps that make the text of a row, that which makes its model, and how many
    parameters that has."""
    verb = "pretrain" if row.teacher is None else "distill"
    before, given, inside = texts.of(row, "store" if verb == "pretrain" else "data")
    needs = [step.name for step in before if step.verb == "prepare"]
    config = config_of(row.sizes, sizes).replace(vocab_size=options.vocab_size)
    if row.teacher is not None:
        inside["teacher"] = f"pretrained/{row.teacher}/model"
        needs.append(f"pretrained/{row.teacher}")
    arguments = {**_length(options), **_COMMON, **row.arguments.get(verb, {})}
    if verb == "pretrain" or row.new_weights:
        arguments["config"] = config_to_huggingface(config)
    if verb == "pretrain":
        # Those begin behind a linear layer, where the heads that mimetic weights are for read.
        narrow = hasattr(config, "embedding_size")
        arguments.setdefault("initialization", "normal" if narrow else "mimetic")
    step = Step(f"pretrained/{row.name}", verb, arguments, given, inside, tuple(needs))
    return before, step, config.num_parameters


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
        # There is a checkpoint of each evaluation too.
        "evaluate_every": steps // len(points),
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
    name = f"finetuned/{row.name}/{column.replace(' ', '-')}"
    data = str(place.absolute())
    given: dict[str, Any] = {"data": data}
    inside: dict[str, Any] = {}
    needs: tuple[str, ...] = ()
    if row.weights is not None:
        # A name of a model in the package is no path.
        there = Path(row.weights).exists()
        given["model"] = str(Path(row.weights).absolute()) if there else row.weights
    else:
        inside["model"], needs = f"{row.pretrained}/model", (row.pretrained,)
    if options.paper_grid:
        arguments |= {"restarts": options.seeds, "score": measure.score}
        return [Step(f"{name}/grid", "search", arguments, given, inside, needs)]
    return [
        Step(f"{name}/seed-{seed}", "finetune", {**arguments, "seed": seed}, given, inside, needs)
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
