"""Plan the steps that create the model of a row.

It is trained on texts (through a token store, or as letters), or built from another row's model.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertine.contrib.elmo.model import PRESETS as ELMO_PRESETS
from bertine.contrib.options import ElmoOptions, PaperOptions
from bertine.contrib.papers.steps import Step
from bertine.contrib.papers.table import HELD_OUT, TRAINING, PaperTable, TableRow
from bertine.core.console import plural
from bertine.core.errors import BertineError
from bertine.core.names import FAMILIES, option
from bertine.corpora.store import is_store
from bertine.models.config import Config
from bertine.models.family import config_to_huggingface, family_of
from bertine.training.pretraining.pretrain import architecture_of

#: The default number of tokens of pre-training for each row.
_TOKENS = 30_000_000
#: The default arguments of pre-training and distilling: a recipe like that of the hour
#: (docs/hour.md), with smaller batches and more hidden tokens, with which small models learn more
#: in minutes (docs/guides/papers.md has figures). New weights of BERT's layers are then mimetic
#: ones, those of other types as published.
_COMMON: dict[str, Any] = {
    # All sequences have one length: if a short run ends with longer ones, whose positions are not
    # trained yet, its loss rises and has no time to fall again.
    "max_seq_length": 128,
    "optimizer": "muon",
    "learning_rate": 4e-3,
    "warmup_ratio": 0.05,
    "weight_decay": 0.1,
    "adam_beta2": 0.98,
    "dropout": 0.0,
}
#: The tokens of a batch if a table does not give its number of sequences.
_BATCH_TOKENS = 2048
#: The default share of hidden words, for the objectives that hide some: a model learns more from
#: each text than with the papers' 15%.
_HIDDEN = 0.4
_HIDING = ("mlm", "mlm-nsp", "mlm-sop")
#: The number of evaluations on held-out text in a run.
_EVALUATIONS = 4
#: The standard deviation of the new weights that are not mimetic, in a model with mimetic weights
#: (docs/results.md, "What a healthy run looks like").
_MIMETIC_RANGE = 0.06
#: The default settings of an ELMo.
_ELMO: dict[str, Any] = {"model": "elmo-mini"}
_TEXT, _VOCABULARY, _STORE, _HELD = "text", "vocabulary", "store", "held-out-store"
#: The verbs that convert texts to the input of a model.
_OF_TEXT = ("train_vocab", "prepare")


@dataclass(frozen=True)
class ModelSteps:
    """The plan of a row's model.

    Attributes:
        before: the steps for its text, and for the model that it starts from.
        step: creates its model.
        parameters: the number of parameters of the model.
    """

    before: tuple[Step, ...]
    step: Step
    parameters: int


class Texts:
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
        #: The names of folders of vocabularies and stores, by their settings as JSON.
        self._known: dict[str, str] = {}

    def of(self, row: TableRow, data: str) -> tuple[list[Step], dict[str, str], dict[str, str]]:
        """Return the steps for the text of a row.

        Args:
            data: the name of the argument that takes the store.

        Returns:
            The steps; the arguments that are paths of the user's; those that are below the table's
            folder.

        Raises:
            BertineError: the row has its own vocabulary, but a store is given.
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

    @property
    def has_held_out(self) -> bool:
        """Whether pre-training can be scored on held-out text."""
        return self._store is None or self._options.held_out is not None

    def as_letters(self) -> Step:
        """Return the step for the text of a model that reads letters.

        Raises:
            BertineError: a store is given, which has only pieces.
        """
        if self._store is not None:
            raise BertineError(
                f"{self._store}: is a token store, but an ELMo reads letters; give texts"
            )
        return self._split


def elmo_size(row: TableRow, options: PaperOptions) -> str | None:
    """Return the size of a row that is an ELMo; None for other rows."""
    own = row.arguments.get("pretrain_elmo")
    if own is None:
        return None
    if options.model in ELMO_PRESETS:
        return options.model
    if options.model != PaperOptions().model:
        raise BertineError(
            f"{options.model}: is no size of an ELMo; give {option('model')} one of "
            f"{', '.join(ELMO_PRESETS)}"
        )
    return str(own.get("model", _ELMO["model"]))


def sizes_of(options: PaperOptions) -> str:
    """Describe the sizes that replace those of the paper's base model."""
    config = architecture_of(options.model)
    sizes = f"{plural(config.num_hidden_layers, 'layer')} of {config.hidden_size}"
    return sizes if Path(options.model).exists() else f"sizes of {options.model} ({sizes})"


def model_steps(
    row: TableRow, table: PaperTable, texts: Texts, options: PaperOptions
) -> ModelSteps:
    """Plan the steps that create the model of a row.

    Raises:
        BertineError: an invalid size; a length that is given in two ways, or that this kind of
            model cannot have; texts are needed, but only a store is given.
    """
    size = elmo_size(row, options)
    if size is not None:
        return _elmo_steps(row, size, texts, options)
    base = architecture_of(options.model)
    config = config_of(row.sizes, base).replace(vocab_size=options.vocab_size)
    made = _of_store(row, config, texts, options)
    if row in table.runs:
        made = dataclasses.replace(made, step=_with_checkpoints(made.step, table, options))
    return made


def _of_store(row: TableRow, config: Config, texts: Texts, options: PaperOptions) -> ModelSteps:
    """Plan a model that is trained on a token store."""
    verb = "pretrain" if row.teacher is None else "distill"
    before, given, inside = texts.of(row, "store" if verb == "pretrain" else "data")
    needs = [step.name for step in before if step.verb == "prepare"]
    arguments = {**_length(options), **_common(options), **row.arguments.get(verb, {})}
    if verb == "distill" or arguments.get("objective") in _HIDING:
        arguments.setdefault("masked_lm_prob", _HIDDEN)
    if arguments["max_seq_length"] > config.longest_input:
        raise BertineError(
            f"{options.model}: reads {config.longest_input} tokens at most, not sequences of "
            f"{arguments['max_seq_length']}; give {option('max_seq_length')} of no more"
        )
    steps = _planned_steps(arguments, options)
    if steps is not None and "held_out" in {**given, **inside}:
        # The score at the end counts; a short run would spend half of its time on those before.
        arguments["evaluate_every"] = max(1, steps // _EVALUATIONS)
    if row.teacher is not None:
        inside["teacher"] = f"pretrained/{row.teacher}/model"
        needs.append(f"pretrained/{row.teacher}")
    if row.begins_with is not None:
        first = _grown(row.begun, row.begins_with, config)
        before.append(first)
        inside["model"] = f"{first.name}/model"
        needs.append(first.name)
    elif verb == "pretrain" or row.new_weights:
        arguments["config"] = config_to_huggingface(config)
    if row.new_weights:
        arguments["fresh_weights"] = True
    if verb == "pretrain" and row.begins_with is None:
        # With an `embedding_size` a linear layer comes first; mimetic heads would read its output.
        narrow = hasattr(config, "embedding_size")
        arguments.setdefault("initialization", "normal" if narrow else "mimetic")
        if arguments["initialization"] == "mimetic":
            arguments.setdefault("initializer_range", _MIMETIC_RANGE)
    step = Step(f"pretrained/{row.name}", verb, arguments, given, inside, tuple(needs))
    return ModelSteps(tuple(before), step, config.num_parameters)


def grown_step(row: TableRow, options: PaperOptions) -> tuple[Step, int]:
    """Return the step that adds layers to the model of another row before fine-tuning, and the
    resulting number of parameters."""
    sizes = {**row.sizes, **row.grown}
    config = config_of(sizes, architecture_of(options.model)).replace(vocab_size=options.vocab_size)
    assert row.model_of is not None
    return _grown(row.begun, row.model_of, config), config.num_parameters


def _grown(name: str, of: str, config: Config) -> Step:
    return Step(
        name,
        "grow",
        {"config": config_to_huggingface(config)},
        inside={"model": f"pretrained/{of}/model"},
        needs=(f"pretrained/{of}",),
    )


def _elmo_steps(row: TableRow, size: str, texts: Texts, options: PaperOptions) -> ModelSteps:
    """Plan an ELMo, which reads letters and therefore needs no vocabulary and no store."""
    if size not in ELMO_PRESETS:
        raise BertineError(f"there is no ELMo {size!r}; there are {', '.join(ELMO_PRESETS)}")
    split = texts.as_letters()
    arguments = {**_ELMO, **row.arguments["pretrain_elmo"], "model": size}
    length = _length(options)
    if "hours" in length:
        raise BertineError(
            f"an ELMo is trained for so many words; give {option('steps')} or {option('tokens')} "
            f"in place of {option('hours')}"
        )
    usual = ElmoOptions()
    if options.max_seq_length is not None:
        raise BertineError(
            f"an ELMo reads windows of words, not sequences; leave {option('max_seq_length')} out"
        )
    of_step = arguments.get("batch_size", usual.batch_size) * arguments.get("window", usual.window)
    arguments["steps"] = length.get("steps") or max(1, length["tokens"] // of_step)
    step = Step(
        f"pretrained/{row.name}",
        "pretrain_elmo",
        arguments,
        inside={"corpus": [f"{_TEXT}/{TRAINING}"], "held_out": f"{_TEXT}/{HELD_OUT}"},
        needs=(split.name,),
    )
    return ModelSteps((split,), step, ELMO_PRESETS[size].num_parameters)


def _steps_of_curve(run: TableRow, options: PaperOptions) -> int:
    """Return the number of steps of a run whose model is taken at several points.

    Raises:
        BertineError: it is not known before the run ends.
    """
    if options.hours is not None:
        raise BertineError(
            f"a curve needs to know its steps beforehand; give {option('steps')} or "
            f"{option('tokens')} in place of {option('hours')}"
        )
    steps = _planned_steps({**_common(options), **run.arguments.get("pretrain", {})}, options)
    assert steps is not None
    return steps


def _common(options: PaperOptions) -> dict[str, Any]:
    """Return the default arguments of pre-training, with sequences of the requested length and
    batches with a fixed number of tokens."""
    length = options.max_seq_length or _COMMON["max_seq_length"]
    return {**_COMMON, "max_seq_length": length, "batch_size": max(1, _BATCH_TOKENS // length)}


def _planned_steps(arguments: Mapping[str, Any], options: PaperOptions) -> int | None:
    """Return the number of steps of a pre-training, approximate if tokens are given; None if hours
    are given."""
    if options.hours is not None:
        return None
    if options.steps is not None:
        return options.steps
    of_step = arguments["batch_size"] * arguments["max_seq_length"]
    return max(1, (options.tokens or _TOKENS) // of_step)


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
        # Each evaluation also has a checkpoint.
        "evaluate_every": steps // len(points),
        # The last checkpoint may be additional, if the number of steps is no multiple.
        "keep_checkpoints": len(points) + 1,
    }
    return dataclasses.replace(step, arguments=arguments)


def snapshot_step(row: TableRow, table: PaperTable, options: PaperOptions) -> Step:
    """Return the step that takes the model of a run at one of its points."""
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
    """Return the length of the pre-training of each row, as arguments of ``pretrain``.

    Raises:
        BertineError: it is given in two ways.
    """
    said = {
        name: value
        for name in ("hours", "steps", "tokens")
        if (value := getattr(options, name)) is not None
    }
    if len(said) > 1:
        raise BertineError(f"give one of {' and '.join(option(name) for name in said)}")
    return said or {"tokens": _TOKENS}


def config_of(sizes: Mapping[str, Any], base: Config) -> Config:
    """Create the configuration of a row.

    Args:
        sizes: ``type`` of the model; ``layers``, ``width``, ``heads`` as shares of those of `base`,
            ``embedding`` and ``lstm`` as shares of the width; others are fields of the
            configuration.
        base: the model whose sizes replace those of the paper's base model.

    Raises:
        BertineError: an invalid size.
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
    if "lstm" in sizes:
        known["lstm_size"] = max(1, round(width * sizes.pop("lstm")))
    if "embedding" in sizes:
        known["embedding_size"] = max(8, round(width * sizes.pop("embedding")))
    whole = base
    if kind != base.model_type:
        if kind not in FAMILIES:
            raise BertineError(f"there are no models of type {kind!r}")
        whole = next(iter(family_of(kind).presets.values()))
    if whole.encodes_and_decodes:
        # As many layers in total, as in the paper's comparison.
        known["num_hidden_layers"] = known["decoder_layers"] = max(1, layers // 2)
        known |= {"decoder_attention_heads": heads, "decoder_ffn_dim": known["intermediate_size"]}
    return whole.replace(**{**known, **sizes})
