"""Read and write a model directory: a Hugging Face one, with a file of Bertine's for the task.

``config.json``, ``model.safetensors``, ``vocab.txt``, ``tokenizer.json`` and
``tokenizer_config.json`` are as in transformers, so each program opens the other's directories;
``bertine.json`` describes the task that the model was trained for. A model whose head transformers
does not have has a type of its own, and transformers does not open it (:func:`only_here`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

from bertine.core.console import Shown, logger, visible_list
from bertine.core.contrib import refuse_contrib
from bertine.core.errors import BertineError, naming
from bertine.core.files import atomic_dir, write_json, write_text
from bertine.core.model_folders import BUNDLED, locate
from bertine.core.names import ABOUT, option
from bertine.core.published import how_to_get
from bertine.core.task_info import TaskInfo
from bertine.families.bart import GENERATION_CONFIG, generation_config
from bertine.hub.model_card import CARD, model_card
from bertine.hub.weights import (
    SAFETENSORS,
    LoadReport,
    adopt,
    check_against_weights,
    check_fits,
    fill,
    is_model_directory,
    is_of_checkpoint,
    origin_line,
    read_settings,
    read_weights,
    settings_file,
    sort_tensors,
    weight_files,
)
from bertine.models.config import Config
from bertine.models.config_file import (
    CONFIG,
    MODULES,
    OLD_MODES,
    SETTINGS,
    TRANSFORMER,
    ConfigFile,
    SentenceModules,
)
from bertine.models.family import (
    MULTI_LABEL,
    TASK,
    check_same_family,
    config_to_huggingface,
    count_outputs,
    family_of,
    task_of,
)
from bertine.models.heads import PAIR_CLASSIFIER, VECTOR_CLASSIFIER, Model, new_head
from bertine.models.pooling import Pooling
from bertine.tokenization.tokenizer import KINDS, Tokenizer, holds_tokenizer

# sentence-transformers: its modules, written so that it and :mod:`bertine.models.config_file`
# compute the same vectors.

_TYPE = "sentence_transformers.models."


def write_sentence_modules(folder: Path, modules: SentenceModules, width: int) -> None:
    """Write the settings of `modules` to the `folder` of a model directory.

    The keys are those of version 2, which all later ones read.

    Args:
        folder: of the model directory, which holds the encoder.
        modules: pooling, normalizing and the rest; ``transformer`` is not read.
        width: hidden size of the encoder.
    """
    kinds = [("Transformer", ""), ("Pooling", "1_Pooling")]
    if modules.normalize:
        kinds.append(("Normalize", "2_Normalize"))
    listed = [
        {"idx": number, "name": str(number), "path": path, "type": _TYPE + kind}
        for number, (kind, path) in enumerate(kinds)
    ]
    for _, path in kinds[1:]:
        (folder / path).mkdir()
    pooling = {
        "word_embedding_dimension": width,
        **{key: mode in modules.modes for key, mode in OLD_MODES.items()},
        "include_prompt": modules.include_prompt,
    }
    write_json(folder / "1_Pooling" / "config.json", pooling)
    if modules.normalize:
        write_json(folder / "2_Normalize" / "config.json", {})
    settings = {"max_seq_length": modules.max_length, "do_lower_case": modules.lowercase}
    write_json(folder / TRANSFORMER, settings)
    about: dict[str, Any] = {
        "prompts": dict(modules.prompts),
        "default_prompt_name": modules.default_prompt,
        "similarity_fn_name": "cosine",
    }
    if modules.dimensions is not None:
        about["truncate_dim"] = modules.dimensions
    write_json(folder / SETTINGS, about)
    write_json(folder / MODULES, listed)


#: Suffixes of archives, and of files that are data.
_ARCHIVES = (".zip", ".tar", ".tgz", ".7z", ".rar")
_TABLES = (".csv", ".tsv", ".json", ".jsonl", ".parquet", ".xlsx", ".ods")
#: What a head reads that is a vector of a text → the setting of the task that says which.
_POOLINGS = {"text": "text_pooling", "texts": "pair_pooling"}
#: Published models have embeddings for up to this share of ids that are no token: vocabularies were
#: filled up to a round number, or made after the model.
_SPARE = 0.05


@dataclass(repr=False)
class LoadedModel(Shown):
    """The contents of a model directory, ready to use.

    Attributes:
        model: in fp32 on the CPU, in evaluation mode.
        config: its architecture.
        tokenizer: of its vocabulary.
        task: from ``bertine.json``, or derived from config.json's labels for a classifier that
            transformers saved; None if neither describes one.
        report: which tensors were loaded, new or dropped.
    """

    model: Model
    config: Config
    tokenizer: Tokenizer
    task: TaskInfo | None
    report: LoadReport

    def lines(self) -> list[str]:
        """Describe what was loaded."""
        config = self.config
        return [
            f"LoadedModel: {config.title}, {len(config.passes)} layers of "
            f"{config.hidden_size}, vocabulary {config.vocab_size:,}; "
            + ("no task" if self.task is None else f"task {self.task.name}"),
            *self.report.lines(),
        ]


def save_model(
    out: str | Path,
    model: Model,
    tokenizer: Tokenizer,
    *,
    task: TaskInfo | None = None,
    modules: SentenceModules | None = None,
) -> None:
    """Write a model directory; an existing `out` is replaced completely, or stays unchanged.

    Weights are written in fp32, together with a card for readers (:mod:`bertine.hub.model_card`).
    The classifier's classes in config.json are ``task.labels``. With `modules` it is a directory of
    sentence-transformers as well.

    Raises:
        BertineError: the tokenizer has more pieces than the model, the number of labels differs
            from that of the classifier's outputs, or the folder cannot be written.
    """
    out = Path(out)
    _check_vocabulary(out, model.config, tokenizer)
    labels = _class_names(out, model, task)
    # Other programs should cut texts where the fine-tuned model does.
    longest = model.config.longest_input
    longest = longest if task is None else task.input_length(longest)
    names = model.family.names
    # Beside backbone and heads there may be what helped in training alone.
    state = {
        name: tensor
        for name, tensor in model.state_dict().items()
        if name.startswith(("backbone.", "heads."))
    }
    tensors = {
        name: tensor.detach().to("cpu", torch.float32).contiguous()
        for name, tensor in names.to_huggingface(
            state, model.config, headed=bool(model.heads)
        ).items()
    }
    with atomic_dir(out) as folder:
        config = model.config.replace(pad_token_id=tokenizer.pad_token_id)
        values = config_to_huggingface(
            config,
            heads=model.heads.keys(),
            labels=labels,
            problem_type=_problem_type(task),
        )
        write_json(folder / CONFIG, values)
        save_file(tensors, folder / SAFETENSORS, metadata={"format": "pt"})
        tokenizer.save(
            folder,
            model_max_length=longest,
            one_type=config.type_vocab_size == 1,
            pads_left=config.reads_last,
        )
        if model.heads.keys() == {config.writes_with}:
            writing = generation_config(
                config,
                task,
                pieces=tokenizer.vocab_size,
                separator=tokenizer.template.separator,
                special=tokenizer.special_ids,
            )
            write_json(folder / GENERATION_CONFIG, writing)
        if task is not None:
            write_json(folder / TASK, task.to_dict())
        if modules is not None:
            write_sentence_modules(folder, modules, config.hidden_size)
        write_text(folder / CARD, model_card(model, task, only_here(model)))


def only_here(model: Model) -> str | None:
    """Return why transformers does not open the directory of a model, and the remedy; None if it
    does."""
    reason = model.family.why_only_here(model.heads)
    if reason and any(head in model.heads for head in (VECTOR_CLASSIFIER, PAIR_CLASSIFIER)):
        reason += f" (fine-tuned with {option('frozen', False)} it opens there)"
    return reason


def _problem_type(task: TaskInfo | None) -> str:
    """Return transformers' name of a classifier's task."""
    kinds = {"regression": "regression", "multi-label": MULTI_LABEL}
    return kinds.get("" if task is None else task.name, "single_label_classification")


def _class_names(where: Path, model: Model, task: TaskInfo | None) -> tuple[str, ...]:
    """Return the names of the classifier's outputs: the task's labels, or else LABEL_0, LABEL_1,
    ..."""
    named = next((head for head in model.heads if model.family.heads[head].named), None)
    if named is None:
        return ()
    names = model.family.names
    tensors = names.to_canonical(model.state_dict(), model.config)
    outputs = tensors[f"{names.heads[named].output()}.weight"].shape[0]
    if task is None or not task.labels:
        return tuple(f"LABEL_{i}" for i in range(outputs))
    if len(task.labels) != outputs:
        raise BertineError(
            f"{where}: the classifier has {outputs} outputs, but the task has "
            f"{len(task.labels)} labels ({', '.join(task.labels[:5])})"
        )
    return task.labels


def load_config(path: str | Path, *, dropout: float | None = None) -> Config:
    """Return the architecture of a model directory, from its ``config.json`` only, or from the
    ``bert_config.json`` and the index of a TensorFlow checkpoint.

    `dropout` replaces its rates on hidden states and attention, unless None.

    Raises:
        BertineError: the folder or file does not exist, or is that of a model type that Bertine
            does not have.
    """
    return _with_dropout(read_settings(model_folder(path)), dropout).config


def _with_dropout(settings: ConfigFile, p: float | None) -> ConfigFile:
    return dataclasses.replace(settings, config=settings.config.with_dropout(p))


def load_model(
    path: str | Path,
    *,
    heads: Mapping[str, nn.Module] | None = None,
    fresh: Collection[str] | Callable[[TaskInfo | None], Collection[str]] = (),
    seed: int = 0,
    dropout: float | None = None,
) -> LoadedModel:
    """Read a model directory of Bertine's or transformers', or a folder of Google's with a
    TensorFlow checkpoint; if there are several, a note names the chosen one.

    Args:
        path: the folder.
        heads: the heads that the model should have, by name. Those in the file are loaded; the
            others are new. A classifier with another number of labels than the file's is new too.
            None: the heads in the file.
        fresh: names of `heads` to create new even if the file holds them, e.g. the classifier
            when the labels have changed; or a function that returns them for the task in the file
            (None if there is none).
        seed: of the random weights of new parts.
        dropout: on hidden states and attention, instead of the model's own rates.

    Weights in bf16, fp16 or fp64 are converted to fp32.

    Raises:
        BertineError: a file is missing, broken or cut short; a tensor is missing from a part that
            the file holds, has another shape than config.json says, or belongs to no known part;
            the tokenizer has more pieces than the model.
    """
    # Sizes and vocabulary.
    folder = model_folder(path)
    settings = _with_dropout(read_settings(folder), dropout)
    described_in = settings_file(folder)
    tokenizer = _load_tokenizer(folder, settings.config)
    _check_vocabulary(folder, settings.config, tokenizer)
    # Tensors, under Bertine's names for them.
    source = weight_files(folder)[0]
    tensors = read_weights(folder)
    config, family = settings.config, family_of(settings.config.model_type)
    names = family.names
    check_same_family(source, tensors, family)
    with naming(source):
        canonical = names.canonical_names(tensors, family.head_of(settings.architecture))
    check_against_weights(source, canonical, config, family, described_in.name)
    check_fits(described_in, config)
    # Heads: those in the file (`present`), those to have, and of these the ones to create anew.
    parts = {names.part_of(name) for name in canonical}
    present = {head for head in family.heads if head in parts or names.is_weightless(head)}
    # Of a head that is not asked for nothing need be known.
    asked = present if heads is None else present & heads.keys()
    outputs = count_outputs(canonical, settings, family, asked)
    task = task_of(folder, settings, asked, outputs)
    renewed = set(fresh(task) if callable(fresh) else fresh)
    if heads is None:
        heads = _heads_of(source, settings, present, task, outputs)
        renewed = set()
    unknown = renewed - set(heads)
    if unknown:
        raise ValueError(f"fresh names no head of this model: {', '.join(sorted(unknown))}")

    # The model: its structure without values, then the values.
    pooler = any(family.heads[head].reads == "pooled" for head in heads)
    if "pooler" in parts and family.needs_pooler(config, heads):
        pooler = True
    with torch.device("meta"):
        model = Model(config, heads, add_pooler=pooler)
    keep, report = sort_tensors(source, canonical, model, names, renewed, described_in.name)
    fill(model, keep, names, seed)
    adopt(model, {n: t for n, t in canonical.items() if n in report.dropped}, names, report)
    if origin := origin_line(folder, lowercase=tokenizer.lowercase):
        logger.info(origin)
    if settings.unknown:
        keys = visible_list(settings.unknown[:10]) + ", …" * (len(settings.unknown) > 10)
        logger.warning(
            f"{described_in}: Bertine does not know what it says of {keys}; it is not read"
        )
    _say_of_spare_ids(folder, config, tokenizer)
    return LoadedModel(model.eval(), settings.config, tokenizer, task, report)


def _heads_of(
    source: Path,
    settings: ConfigFile,
    present: Collection[str],
    task: TaskInfo | None,
    outputs: int,
) -> dict[str, nn.Module]:
    """Make heads without values (on the meta device) for what the file holds."""
    heads: dict[str, nn.Module] = {}
    config = settings.config
    if outputs and settings.labels and len(settings.labels) != outputs:
        raise BertineError(
            f"{source}: the classifier has {outputs} outputs, but id2label in {CONFIG} has "
            f"{len(settings.labels)} labels"
        )
    with torch.device("meta"):
        for head, kind in family_of(config.model_type).heads.items():
            if head not in present:
                continue
            options: dict[str, Any] = {}
            if setting := _POOLINGS.get(kind.reads):
                pooling = "" if task is None else task.setting(setting, "")
                if not pooling:
                    raise BertineError(
                        f"{source}: the {kind.title} needs the {setting} of a {TASK}; copy that "
                        "file too"
                    )
                assert task is not None
                options["pooling"] = Pooling.named(pooling)
                if head == PAIR_CLASSIFIER:
                    options["shared_pieces"] = bool(task.setting("shared_pieces", False))
            with naming(source.parent / TASK):
                count = outputs if kind.named else 1
                heads |= new_head(config, head, count, **options)
    return heads


def model_folder(path: str | Path) -> Path:
    """Return the model directory that `path` is or names, or that the run's folder `path` holds.

    Raises:
        BertineError: it is neither, or the run has not finished.
    """
    folder = locate(path)
    if not folder.is_dir():
        if is_of_checkpoint(folder):
            raise BertineError(f"{folder}: is of a checkpoint; give its folder, {folder.parent}")
        if not folder.exists() and (hint := how_to_get(str(path))):
            raise BertineError(hint)
        kind, hint = "does not exist", ""
        if folder.exists():
            kind = "is a file"
            if folder.suffix.lower() in _ARCHIVES:
                kind = "is an archive, which is to be unpacked first"
            elif folder.suffix.lower() not in _TABLES:
                hint = "; files of word vectors are known by .bin, .txt and .vec"
        raise BertineError(
            f"{folder}: {kind}; expected a model directory with {CONFIG} "
            f"({', '.join(BUNDLED)} come with Bertine; hf:NAME fetches a published model){hint}"
        )
    refuse_contrib(folder)
    if not is_model_directory(folder):
        if (folder / "run.json").exists():
            raise BertineError(
                f"{folder}: is a run that has not finished; go on with it by "
                f"{option('resume', True)}"
            )
        if (folder / "manifest.json").exists():
            raise BertineError(
                f"{folder}: is a token store, not a model directory; give the folder of a run of "
                "'bertine pretrain' on it"
            )
        inside = sorted(child for child in folder.iterdir() if is_model_directory(child))
        hint = f"; give one of those in it: {', '.join(map(str, inside[:5]))}" if inside else ""
        raise BertineError(f"{folder}: is not a model directory: it has no {CONFIG}{hint}")
    if (folder / ABOUT).is_file():
        raise BertineError(
            f"{folder}: is an exported model, for 'bertine predict' and for other programs "
            "(ONNX Runtime, PyTorch); here give the model directory that it was made of"
        )
    return folder


def _load_tokenizer(folder: Path, config: Config) -> Tokenizer:
    if not holds_tokenizer(folder):
        groups = KINDS[family_of(config.model_type).tokenizer].vocabularies
        *names, last = ("tokenizer.json", *(" with ".join(group) for group in groups))
        raise BertineError(f"{folder}: has no vocabulary; expected {', '.join(names)} or {last}")
    return Tokenizer.load(folder)


def _check_vocabulary(where: Path, config: Config, tokenizer: Tokenizer) -> None:
    # The opposite is common: vocabularies padded to a round number.
    if tokenizer.vocab_size > config.vocab_size:
        raise BertineError(
            f"{where}: the tokenizer has {tokenizer.vocab_size} pieces, but the model's "
            f"vocab_size is {config.vocab_size}; they do not belong together"
        )
    wanted, last = config.last_token_id, tokenizer.template.last_id
    if wanted is not None and last != wanted:
        raise BertineError(
            f"{where}: a text ends with the id {last} in the tokenizer, but "
            f"eos_token_id in {CONFIG} is {wanted}; they do not belong together"
        )
    # Positions that count real tokens depend on the padding's id.
    if config.first_position and tokenizer.pad_token_id != config.pad_token_id:
        raise BertineError(
            f"{where}: the tokenizer's padding has the id {tokenizer.pad_token_id}, but "
            f"pad_token_id in {CONFIG} is {config.pad_token_id}; they do not belong together"
        )


def _say_of_spare_ids(where: Path, config: Config, tokenizer: Tokenizer) -> None:
    """Log that a model has embeddings of ids without a token: a vocabulary that was padded to a
    round number, or that of another model."""
    tokens, embeddings = tokenizer.vocab_size, config.vocab_size
    if tokens < embeddings:
        line = (
            f"{where}: the vocabulary has {tokens:,} tokens, the model embeddings of "
            f"{embeddings:,}; ids from {tokens} on belong to no token"
        )
        if embeddings - tokens <= _SPARE * embeddings:
            logger.info(line)
        else:
            logger.warning(f"{line}; make sure that the vocabulary is this model's, and whole")
