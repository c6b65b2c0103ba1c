"""A family of models as one constant, and what is done with it: which names, which keys, which
class of transformers. :mod:`bertine.registry` says where each family's constant is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from bertine.errors import BertineError
from bertine.files import read_json_object
from bertine.interop.config_file import ConfigFile, ConfigKeys, activation_of, labels_of
from bertine.interop.names import WeightNames
from bertine.interop.tensorflow.variables import Variables
from bertine.models.config import Config
from bertine.models.heads import HeadKind
from bertine.names import InputFormat, TokenizerKind
from bertine.registry import FAMILIES, WORD_MODELS
from bertine.terminal.text import briefly

#: What model_type ends with in the ``config.json`` of a model whose head transformers does not
#: have. It would take the same model_type without it for a model with a new head, whose answers are
#: random; so it says that it does not know the type, and opens nothing.
ONLY_HERE = "-for-bertine-only"


@dataclass(frozen=True)
class Family:
    """All that belongs to one model type.

    Attributes:
        config: the class of its configs.
        class_prefix: what transformers' classes begin with.
        names: of its weights.
        keys: of its ``config.json``.
        tokenizer: the kind of its published tokenizers.
        objectives: that it can be pre-trained with, the paper's first.
        input_format: what the paper's sequences are made of
            (:data:`bertine.data.instances.formats.FORMATS`).
        presets: its published sizes by name.
        pretraining: heads that together make the class ``ForPreTraining``.
        variables: what Google's program calls the weights; None where there is no such program, or
            its checkpoints are not read.
        published: whether transformers has such models.
    """

    config: type[Config]
    class_prefix: str
    names: WeightNames
    keys: ConfigKeys
    tokenizer: TokenizerKind
    objectives: tuple[str, ...]
    input_format: InputFormat
    presets: Mapping[str, Config]
    pretraining: frozenset[str] = frozenset()
    variables: Variables | None = None
    published: bool = True

    def architecture_name(self, heads: Iterable[str]) -> str:
        """Return transformers' class that has these heads, which ``AutoModel`` opens; or a name of
        ours, where it has none."""
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
        named = {name for name, kind in self.config.heads.items() if kind.named}
        return bool(self.pretraining) and held >= self.pretraining and held.isdisjoint(named)

    def _last(self, held: frozenset[str]) -> HeadKind | None:
        """Return the head that says what transformers' class is."""
        kinds = self.config.heads
        return next((kinds[name] for name in reversed(list(kinds)) if name in held), None)

    def head_of(self, architecture: str) -> str | None:
        """Return the head that transformers' class `architecture` has; None where that is none or
        not known."""
        for name, kind in self.config.heads.items():
            if architecture == self.class_prefix + kind.suffix:
                return name
        return None


def family_of(model_type: object) -> Family:
    """Return the family of a model type.

    Raises:
        BertineError: there is none of this name.
    """
    if isinstance(model_type, str) and model_type in WORD_MODELS:
        raise BertineError(
            f"model_type is {model_type}, whose vectors are those of words or pieces, without "
            "layers and heads: use it with embed or similar"
        )
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        raise BertineError(
            f"model_type is {briefly(model_type)}, another architecture; Bertine has "
            f"{', '.join(FAMILIES)}"
        )
    module, _, name = FAMILIES[model_type].partition(":")
    family: Family = getattr(import_module(module), name)
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
        problem_type: what transformers calls its task.
    """
    family, heads = family_of(config.model_type), frozenset(heads)
    values = family.keys.write(config) | {
        "architectures": [family.architecture_name(heads)],
        "dtype": "float32",
    }
    if family.published and family.why_only_here(heads):
        values["model_type"] += ONLY_HERE
    named = [name for name in heads if config.heads[name].named]
    if named:
        values["id2label"] = {str(i): label for i, label in enumerate(labels)}
        values["label2id"] = {label: i for i, label in enumerate(labels)}
    if named and all(config.heads[name].reads != "tokens" for name in named):
        values["problem_type"] = problem_type
    return dict(sorted(values.items()))


def read_config(path: Path) -> ConfigFile:
    """Read a ``config.json``.

    Raises:
        BertineError: missing or not JSON; of a type that Bertine does not have; what
            :meth:`bertine.interop.config_file.ConfigKeys.read` raises.
    """
    values = read_json_object(path)
    if "model_type" not in values:
        raise BertineError(f'{path}: has no model_type; for a BERT add "model_type": "bert"')
    kind = values["model_type"]
    try:
        family = family_of(kind.removesuffix(ONLY_HERE) if isinstance(kind, str) else kind)
    except BertineError as error:
        raise BertineError(f"{path}: {error}") from error
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
    """Refuse a class of another family: one of the two keys is wrong, and which one decides what is
    computed."""
    if not architecture or architecture.startswith(family.class_prefix):
        return
    for other in map(family_of, FAMILIES):
        if re.match(rf"{other.class_prefix}(Model|For)", architecture):
            raise BertineError(
                f"{path}: architectures names {briefly(architecture)}, but model_type is "
                f"{family.config.model_type}; correct whichever is wrong (that "
                f"of {other.config.title} is {other.config.model_type})"
            )
