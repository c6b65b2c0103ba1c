"""Define Family, the constant of a model type, and read and recognize files by it.

:mod:`bertine.core.names` lists where each family's constant is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from bertine.core.errors import BertineError, naming
from bertine.core.files import read_json_object
from bertine.core.names import (
    FAMILIES,
    InputFormat,
    TokenizerKind,
    implementation,
)
from bertine.core.task_info import TASK as TASK
from bertine.core.task_info import TaskInfo
from bertine.core.text import briefly
from bertine.models.config import Config
from bertine.models.config_file import CONFIG, ConfigFile, ConfigKeys, activation_of, labels_of
from bertine.models.encoder import Backbone
from bertine.models.tensor_names import WeightNames

#: The end of model_type in the ``config.json`` of a model whose head transformers does not have.
#: Without it, transformers would load the model with a new head, whose answers are random; with it,
#: transformers says that it does not know the type and loads nothing.
ONLY_HERE = "-for-bertine-only"


@dataclass(frozen=True)
class HeadKind:
    """A kind of head: how it is made, what it reads, what it is called.

    A module whose outputs are a task's calls its last layer ``out``; one that has a layer of its
    own before it calls that ``dense`` and the activation between them, if not tanh, ``act``:
    fitting a head alone sets both.

    Attributes:
        reads: what of the encoded batch: the "pooled" output, the state of the "first" token, the
            states of all "tokens", the "rows" at given places, "text", the vector of each text, or
            "texts", the vectors of texts that are encoded apart. One that reads "inputs" has layers
            of its own over the backbone's embeddings: it is for pre-training and not written with
            the model.
        new: (config, number of outputs, …) → the module with new weights.
        title: what messages call it.
        suffix: of transformers' class that has it, or of the name that is ours.
        published: whether transformers has such a class.
        named: whether its outputs have names, the task's labels.
        tied: whether it multiplies with the word embeddings.
        partner: the head that it is trained beside and means little without, where that one is
            not written with the model; "" where there is none.
    """

    reads: Literal["pooled", "first", "tokens", "rows", "text", "texts", "inputs"]
    new: Callable[..., nn.Module]
    title: str
    suffix: str
    published: bool = True
    named: bool = False
    tied: bool = False
    partner: str = ""


@dataclass(frozen=True)
class Family:
    """All that belongs to one model type.

    Attributes:
        config: the class of its configs.
        heads: what heads its models can have, by name.
        new_backbone: (config, whether it gets a pooler) → a backbone with new weights.
        class_prefix: what transformers' classes begin with.
        names: of its weights.
        keys: of its ``config.json``.
        tokenizer: the kind of its published tokenizers; it reads their special tokens too.
        objectives: that it can be pre-trained with, the paper's first.
        input_format: what the paper's sequences are made of
            (:data:`bertine.corpora.formats.FORMATS`).
        presets: its published sizes by name.
        without_pooler: heads whose models get no pooler if they have no others; None: all that do
            not read the pooled output.
        pretraining: heads that together make the class ``ForPreTraining``.
        published: whether transformers has such models.
    """

    config: type[Config]
    heads: Mapping[str, HeadKind]
    new_backbone: Callable[[Any, bool], Backbone]
    class_prefix: str
    names: WeightNames
    keys: ConfigKeys
    tokenizer: TokenizerKind
    objectives: tuple[str, ...]
    input_format: InputFormat
    presets: Mapping[str, Config]
    without_pooler: frozenset[str] | None = None
    pretraining: frozenset[str] = frozenset()
    published: bool = True

    def needs_pooler(self, config: Config, heads: Iterable[str]) -> bool:
        """Tell whether a new model with these heads gets a pooler; without heads, a bare
        backbone."""
        names = set(heads)
        if not config.has_pooler or not names:
            return config.has_pooler
        if self.without_pooler is not None:
            return not names <= self.without_pooler
        return any(self.heads[name].reads == "pooled" for name in names)

    def tensor_sizes(self, config: Config) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the tensors before the layers and of the first layer of each kind,
        by canonical name: they tell every size of `config` but the number of layers. Nothing is
        computed."""
        counts = (*config.layer_counts, *(stack.count for stack in self.names.above))
        least = config.replace(**dict.fromkeys(counts, 1))
        with torch.device("meta"):
            backbone = self.new_backbone(least, False)
        state = {f"backbone.{name}": tensor for name, tensor in backbone.state_dict().items()}
        return {n: tuple(t.shape) for n, t in self.names.to_canonical(state, least).items()}

    def architecture_name(self, heads: Iterable[str]) -> str:
        """Return transformers' class with these heads, which ``AutoModel`` opens, or a name of
        Bertine's own if there is none."""
        held = frozenset(heads)
        if self._pretrains(held):
            return f"{self.class_prefix}ForPreTraining"
        last = self._last(held)
        return self.class_prefix + ("Model" if last is None else last.suffix)

    def why_only_here(self, heads: Iterable[str]) -> str | None:
        """Return why transformers does not open a model with these heads; None: it does."""
        held = frozenset(heads)
        if not self.published:
            return f"transformers has no {self.config.title}"
        last = None if self._pretrains(held) else self._last(held)
        if last is None or last.published:
            return None
        return f"transformers has no {self.config.title} with a {last.title}"

    def _pretrains(self, held: frozenset[str]) -> bool:
        """Tell whether a model has the heads of pre-training, and none of a task."""
        named = {name for name, kind in self.heads.items() if kind.named}
        return bool(self.pretraining) and held >= self.pretraining and held.isdisjoint(named)

    def _last(self, held: frozenset[str]) -> HeadKind | None:
        """Return the head that says what transformers' class is."""
        return next((self.heads[name] for name in reversed(list(self.heads)) if name in held), None)

    def head_of(self, architecture: str) -> str | None:
        """Return the head that transformers' class `architecture` has; None where that is none or
        not known."""
        for name, kind in self.heads.items():
            if architecture == self.class_prefix + kind.suffix:
                return name
        return None


def family_of(model_type: object) -> Family:
    """Return the family of a model type.

    Raises:
        BertineError: there is no such type.
    """
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        raise BertineError(
            f"model_type is {briefly(model_type)}, another architecture; Bertine has "
            f"{', '.join(FAMILIES)}"
        )
    family: Family = implementation(FAMILIES[model_type])
    return family


def config_to_huggingface(
    config: Config,
    *,
    heads: Iterable[str] = (),
    labels: Sequence[str] = (),
    problem_type: str = "single_label_classification",
) -> dict[str, Any]:
    """Return the contents of ``config.json`` for a model with these `heads`, keys sorted as usual.

    Args:
        labels: the class names of the classifier, in the order of its outputs.
        problem_type: transformers' name of its task.
    """
    family, heads = family_of(config.model_type), frozenset(heads)
    values = family.keys.write(config) | {
        "architectures": [family.architecture_name(heads)],
        "dtype": "float32",
    }
    if family.published and family.why_only_here(heads):
        values["model_type"] += ONLY_HERE
    named = [name for name in heads if family.heads[name].named]
    if named:
        values["id2label"] = {str(i): label for i, label in enumerate(labels)}
        values["label2id"] = {label: i for i, label in enumerate(labels)}
    if named and all(family.heads[name].reads != "tokens" for name in named):
        values["problem_type"] = problem_type
    return dict(sorted(values.items()))


def read_config(path: Path) -> ConfigFile:
    """Read a ``config.json``.

    Raises:
        BertineError: the file is missing or not JSON; the type is unknown to Bertine; or an error
            of :meth:`bertine.models.config_file.ConfigKeys.read`.
    """
    values = read_json_object(path)
    if "model_type" not in values:
        raise BertineError(f'{path}: has no model_type; for a BERT add "model_type": "bert"')
    kind = values["model_type"]
    with naming(path):
        family = family_of(kind.removesuffix(ONLY_HERE) if isinstance(kind, str) else kind)
    names = values.get("architectures")
    architecture = str(names[0]) if isinstance(names, list) and names else ""
    _check_architecture(path, architecture, family)
    activation, labels = activation_of(path, values), labels_of(path, values)
    config, unknown = family.keys.read(path, values, family.config)
    problem = values.get("problem_type")
    if problem is not None and not isinstance(problem, str):
        raise BertineError(f"{path}: problem_type is {briefly(problem)}, but must be a text")
    return ConfigFile(config, architecture, labels, problem, activation, unknown)


def _check_architecture(path: Path, architecture: str, family: Family) -> None:
    """Refuse a class of another family: one of the two keys is wrong, and they determine the
    computation."""
    if not architecture or architecture.startswith(family.class_prefix):
        return
    for other in map(family_of, FAMILIES):
        if re.match(rf"{other.class_prefix}(Model|For)", architecture):
            raise BertineError(
                f"{path}: architectures names {briefly(architecture)}, but model_type is "
                f"{family.config.model_type}; correct whichever is wrong (that "
                f"of {other.config.title} is {other.config.model_type})"
            )


# Mixed files: recognition of two families' files in one folder.


def check_same_family(source: Path, names: Iterable[str], family: Family) -> None:
    """Refuse weights of another family than ``config.json`` says.

    Args:
        source: the weights' file, for the message.
        names: of its tensors, as they are in the file.
        family: the one in ``config.json``.

    Raises:
        BertineError: no tensor has a name of `family`'s layers, but some have names of another
            one's.
    """
    names = list(names)
    if _has_layers(names, family):
        return
    others = [other for other in map(family_of, FAMILIES) if _has_layers(names, other)]
    # Several families share the names without a prefix.
    prefixed = [o for o in others if any(name.startswith(o.names.prefix) for name in names)]
    if others := prefixed or others:
        titles = " or ".join(dict.fromkeys(other.config.title for other in others))
        raise BertineError(
            f"{source}: has the weights of a {titles}, but model_type in {CONFIG} is "
            f"{family.config.model_type}; the two files do not belong together"
        )


def _has_layers(names: Iterable[str], family: Family) -> bool:
    table = family.names
    bare = [name.removeprefix(table.prefix) for name in names]
    # The presets of one family may have layers of several kinds.
    return any(table.has_layers(bare, known) for known in family.presets.values())


# Tasks and heads: read from the weights and the ``config.json`` of a model directory that has no
# ``bertine.json``.

#: transformers' name of the classifier of a text that may have many labels.
MULTI_LABEL = "multi_label_classification"
#: Its names of all kinds; None: it decides by the labels in training.
_PROBLEM_TYPES = (None, "single_label_classification", MULTI_LABEL, "regression")


def count_outputs(
    tensors: Mapping[str, Tensor], settings: ConfigFile, family: Family, present: Collection[str]
) -> int:
    """Count the outputs of the classifier that the file holds, where it holds one."""
    named = next((head for head in present if family.heads[head].named), None)
    if named is None:
        return 0
    output = family.names.heads[named].output()
    last = tensors.get(f"{output}.weight")  # a row for each output
    return last.shape[0] if last is not None and last.dim() else len(settings.labels) or 2


def task_of(folder: Path, settings: ConfigFile, present: Set[str], outputs: int) -> TaskInfo | None:
    """Return the task of ``bertine.json``; else what config.json says of a classifier with so many
    `outputs`, or that there is a head for spans."""
    kinds = family_of(settings.config.model_type).heads
    named = any(kinds[head].named for head in present)
    if (folder / TASK).exists():
        task = TaskInfo.read(folder / TASK)
        if named and settings.labels and task.labels and task.labels != settings.labels:
            raise BertineError(
                f"{folder / TASK}: its labels are not those of id2label in {CONFIG}; "
                "one of the two files is from another model"
            )
        return task
    # transformers' names where there are none; for two outputs it writes no names.
    labels = settings.labels or tuple(f"LABEL_{number}" for number in range(outputs))
    if "classifier" in present:
        return _classifying(folder / CONFIG, settings, labels)
    if "token_classifier" in present:
        return TaskInfo(name="tagging", labels=labels)
    if "spans" in present:
        return TaskInfo(name="spans")
    return TaskInfo(name="choice") if "choice" in present else None


def _classifying(where: Path, settings: ConfigFile, labels: tuple[str, ...]) -> TaskInfo:
    """Return the task of a classifier that transformers or sentence-transformers saved.

    Args:
        where: its ``config.json``, for messages.
        labels: of its outputs.
    """
    kind, one = settings.problem_type, len(labels) == 1
    if kind not in _PROBLEM_TYPES:
        raise BertineError(
            f"{where}: problem_type is {briefly(kind)}, but must be "
            f"{', '.join(filter(None, _PROBLEM_TYPES))}, or left out; correct it"
        )
    if kind == "regression" and not one:
        raise BertineError(
            f"{where}: problem_type is 'regression', but the classifier has {len(labels)} outputs; "
            "several numbers for a text are not computed here"
        )
    if kind == "single_label_classification" and one:
        raise BertineError(
            f"{where}: problem_type is {kind!r}, but the classifier has one output, which would be "
            "the label of every text; if it is a number, set problem_type to regression"
        )
    of_pairs: dict[str, Any] = {}
    if settings.activation is not None:
        of_pairs = {"text_columns": ("query", "text"), "settings": _after(where, settings, one)}
    if kind == MULTI_LABEL:
        return TaskInfo(name="multi-label", labels=labels, **of_pairs)
    return TaskInfo(name="regression", **of_pairs) if one else TaskInfo("text", labels, **of_pairs)


def _after(where: Path, settings: ConfigFile, one: bool) -> dict[str, Any]:
    """Return the settings of the task that reproduce sentence-transformers' activation of the
    outputs of a cross-encoder, `one` or several: by default a single one becomes a probability."""
    name = (settings.activation or "").rpartition(".")[2] or ("Sigmoid" if one else "Identity")
    if name == "Sigmoid" and one:
        return {"sigmoid": True}
    if name != "Identity":
        raise BertineError(
            f"{where}: the outputs go through {briefly(settings.activation)}, which is not "
            "computed here; only torch's Identity and, of one output, Sigmoid are"
        )
    return {}
