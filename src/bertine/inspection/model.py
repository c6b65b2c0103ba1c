"""Describe what a model directory holds: ``bertine inspect MODEL``.

Of a safetensors file only the header is read, so a large model is described at once.
"""

from __future__ import annotations

from pathlib import Path

from bertine.interop.config_file import ConfigFile
from bertine.interop.directory import origin_line, read_settings
from bertine.interop.family import family_of
from bertine.interop.weights import read_facts, weight_files
from bertine.modeldir import TASK, TaskInfo, model_folder
from bertine.models.config import Config
from bertine.presets import PRESETS
from bertine.terminal.console import counted, visible_list
from bertine.text.tokenizer import Tokenizer


def _preset_of(config: Config) -> str:
    # Pre-training takes both from the vocabulary.
    own = {"vocab_size": config.vocab_size, "pad_token_id": config.pad_token_id}
    for name, preset in PRESETS.items():
        if preset.replace(**own) == config:
            return f" ({name})"
    return ""


def _architecture(settings: ConfigFile) -> str:
    c = settings.config
    return (
        f"architecture: {c.title}{_preset_of(c)}, {counted(len(c.passes), 'layer')} of "
        f"{c.hidden_size}, {counted(c.num_attention_heads, 'head')}, "
        f"feed-forward {c.intermediate_size} ({c.hidden_act}), "
        f"{c.longest_input} positions, vocabulary {c.vocab_size:,}"
    )


def _weights(folder: Path, config: Config) -> list[str]:
    names = family_of(config.model_type).names
    # Copies and constants that a file may hold besides the parameters.
    constants = (
        file_name
        for head, of_head in names.heads.items()
        if of_head.constant
        for _, file_name in of_head.rows(head)
    )
    passive = ("position_ids", *(copy for copy, _ in names.copies), *constants)
    tied = names.tied(config)
    counts: dict[str, int] = {}
    dtypes: set[str] = set()
    tensors = read_facts(folder)
    for original, name in names.bare_names(tensors).items():
        facts = tensors[original]
        if name.endswith(passive) or name in tied:
            continue
        part = names.part_of(name) or "unknown"
        if name.startswith("embeddings."):
            part = "embeddings"
        counts[part] = counts.get(part, 0) + facts.size
        dtypes.add(facts.dtype)
    titles = {part: part for part in ("embeddings", "encoder", "pooler")}
    titles |= {head: kind.title for head, kind in config.heads.items()} | {"unknown": "unknown"}
    by_part = ", ".join(
        f"{title} {counts[part]:,}" for part, title in titles.items() if part in counts
    )
    files = weight_files(folder)
    size = sum(file.stat().st_size for file in files) / 1e6
    shards = f" and {len(files) - 1} more" if len(files) > 1 else ""
    return [
        f"parameters: {sum(counts.values()):,} ({by_part})",
        f"weights: {files[0].name}{shards}, {size:.1f} MB, {', '.join(sorted(dtypes))}",
    ]


def _task(folder: Path, settings: ConfigFile) -> list[str]:
    labels = settings.labels if "Classification" in settings.architecture else ()
    lines = []
    if (folder / TASK).exists():
        task = TaskInfo.read(folder / TASK)
        labels = task.labels
        facts = [task.name]
        if task.text_columns:
            facts.append(f"text from {' and '.join(task.text_columns)}")
        if task.label_column:
            facts.append(f"label from {task.label_column}")
        if task.max_length:
            facts.append(f"at most {task.max_length} tokens")
        lines.append(f"task: {', '.join(facts)}")
        if task.settings:
            settled = ", ".join(f"{key} {value}" for key, value in task.settings.items())
            lines.append(f"settings: {settled}")
        if task.training:
            trained = ", ".join(
                f"{key} {value}"
                for key, value in task.training.items()
                if isinstance(value, str | int | float)
            )
            lines.append(f"training: {trained or f'see {TASK}'}")
    if labels:
        more = f" and {len(labels) - 20} more" if len(labels) > 20 else ""
        lines.append(f"labels ({len(labels)}): {visible_list(labels[:20])}{more}")
    return lines


def describe_model(path: str | Path) -> list[str]:
    """Describe a model directory: sizes, parameters, tokenizer, task.

    Raises:
        BertineError: `path` is not a model directory, or one of its files is broken.
    """
    folder = model_folder(path)
    settings = read_settings(folder)
    tokenizer = Tokenizer.load(folder)
    case = "lowercased" if tokenizer.lowercase else "cased"
    origin = origin_line(folder, lowercase=tokenizer.lowercase)
    saved_as = f"saved as: {settings.architecture}" if settings.architecture else ""
    return [
        f"model: {folder}",
        _architecture(settings),
        *([saved_as] if saved_as else []),
        *([f"checkpoint: {origin}"] if origin else []),
        *_weights(folder, settings.config),
        f"tokenizer: {tokenizer.title}, {case}, {tokenizer.vocab_size:,} pieces, "
        f"fingerprint {tokenizer.fingerprint[:12]}",
        *_task(folder, settings),
    ]
