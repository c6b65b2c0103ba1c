"""Write the card of a model: the README.md of its directory.

It begins with the block that the Hugging Face hub reads (its "Model cards": ``library_name``,
``tags``, ``pipeline_tag``, ``model-index``). Everything follows from the contents of the directory.
No option is needed, and no folder of the machine is named, because cards are meant to be shared.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PureWindowsPath
from typing import Any

from bertine.core.console import human_time, plural
from bertine.core.names import __version__
from bertine.core.scores import correlation_interval, wilson_interval
from bertine.core.task_info import TaskInfo
from bertine.models.heads import Model

CARD = "README.md"
#: The task of ``bertine.json`` → the hub's name for it.
_PIPELINES = {
    "text": "text-classification",
    "multi-label": "text-classification",
    "regression": "text-classification",
    "spans": "question-answering",
    "tagging": "token-classification",
    "choice": "multiple-choice",
    "seq2seq": "text-generation",
}
#: The head of a pre-trained model → the hub's name of its task; the first one applies.
_PRETRAINED = {"mlm": "fill-mask", "lm": "text-generation"}
#: Training settings for readers, in this order, with their names in words.
_SETTINGS = {
    "objective": "objective",
    "kind": "learned from",
    "loss": "loss",
    "vector_lengths": "lengths of vectors",
    "input_format": "sequences of",
    "steps": "steps",
    "epochs": "epochs",
    "batch_size": "sequences in a batch",
    "max_seq_length": "longest sequence (tokens)",
    "masked_lm_prob": "share of tokens predicted",
    "optimizer": "optimizer",
    "learning_rate": "learning rate",
    "schedule": "schedule",
    "warmup_steps": "steps with a rising rate",
    "weight_decay": "weight decay",
    "dropout": "dropout",
    "precision": "computed in",
    "initialization": "first weights",
    "seed": "seed",
}


def model_card(model: Model, task: TaskInfo | None, only_here: str | None = None) -> str:
    """Describe a model for its README.md.

    Args:
        model: the saved model.
        task: the task in its ``bertine.json``; None: the directory has none.
        only_here: why transformers does not open it; None: it does.

    Returns:
        The hub's block, and Markdown: a description of the model, four lines of code, scores with
        95% intervals if they are known, data and their fingerprints, texts that were cut, the
        recipe, machine and time.
    """
    import yaml

    facts = {} if task is None else task.training
    title = _title(model, task)
    sections = [
        f"# {title}",
        _summary(model, task, only_here),
        _code(model, task),
        _section("Scores", _scores(task, facts)),
        _section("Data", _data(facts)),
        _section("Recipe", _recipe(facts)),
        _section("Machine and time", _machine(facts)),
    ]
    block = _block(model, task, title, only_here)
    front = yaml.safe_dump(block, sort_keys=False, allow_unicode=True)
    return f"---\n{front}---\n\n" + "\n\n".join(filter(None, sections)) + "\n"


def _title(model: Model, task: TaskInfo | None) -> str:
    kinds = {
        "text": "that classifies texts",
        "multi-label": "that gives texts any number of labels",
        "regression": "that gives texts a number",
        "spans": "that finds answers in a text",
        "tagging": "that tags words",
        "choice": "that chooses an ending",
        "seq2seq": "that writes a text for a text",
        "pretraining": "pre-trained on text",
        "similarity": "that turns texts into vectors",
    }
    kind = "" if task is None else kinds.get(task.name, "")
    return f"{model.config.title} {kind}".strip()


def _block(
    model: Model, task: TaskInfo | None, title: str, only_here: str | None
) -> dict[str, Any]:
    """Return the hub's block."""
    name = "" if task is None else task.name
    pipeline = _PIPELINES.get(name) or next(
        (what for head, what in _PRETRAINED.items() if head in model.heads), "feature-extraction"
    )
    library = "bertine" if only_here else "transformers"
    if name == "similarity":
        library, pipeline = "sentence-transformers", "sentence-similarity"
    block: dict[str, Any] = {
        "library_name": library,
        "pipeline_tag": pipeline,
        "tags": ["bertine", model.config.model_type, *([name] if name else [])],
    }
    began = "" if task is None else str(task.training.get("model_path"))
    if began.startswith("hf:"):
        block["base_model"] = began.removeprefix("hf:").partition("@")[0]
    evaluation = {} if task is None else _mapping(task.training.get("evaluation"))
    metrics = [
        {"type": metric, "value": round(value, 4)}
        for metric, value in _numbers(evaluation.get("metrics"))
        if task is not None and metric in task.metrics
    ]
    if metrics:
        assert task is not None
        data = task.dataset or _file(task.training.get("data_path"))
        result = {
            "task": {"type": pipeline},
            "dataset": {"name": data, "type": data, "split": "validation"},
            "metrics": metrics,
        }
        block["model-index"] = [{"name": title, "results": [result]}]
    return block


def _summary(model: Model, task: TaskInfo | None, only_here: str | None) -> str:
    config = model.config
    lines = [
        f"{plural(len(config.passes), 'layer')} of {config.hidden_size}, "
        f"{model.num_parameters():,} parameters, a vocabulary of {config.vocab_size:,} pieces, "
        f"inputs of at most {config.longest_input:,} tokens. Written by Bertine {__version__}."
    ]
    if task is not None and task.labels:
        shown = ", ".join(f"`{label}`" for label in task.labels[:30])
        more = f" and {len(task.labels) - 30} more" if len(task.labels) > 30 else ""
        lines.append(f"Labels: {shown}{more}.")
    if task is not None and task.text_columns:
        columns = " and ".join(f"`{name}`" for name in task.text_columns)
        most = f", at most {task.max_length} tokens at a time" if task.max_length else ""
        lines.append(f"It reads {columns}{most}.")
    if only_here:
        lines.append(f"It is for Bertine alone: {only_here}.")
    return "\n\n".join(lines)


def _code(model: Model, task: TaskInfo | None) -> str:
    name = "" if task is None else task.name
    if name in _PIPELINES and task is not None:
        two = len(task.text_columns) > 1 or name in ("spans", "choice")
        text = '("a text", "its second text")' if two else '"a text"'
        if name == "spans":
            text = '("a question", "the text that answers it")'
        if name == "choice":
            text = '("a beginning", "an ending", "another ending")'
        lines = ['model = bertine.Predictor.load("FOLDER")', f"print(model.predict([{text}])[0])"]
    elif name != "similarity" and "lm" in model.heads:
        lines = ['(written,) = bertine.generate("FOLDER", "Once upon a time")', "print(written)"]
    elif name != "similarity" and "mlm" in model.heads:
        mask = "the mask as its vocabulary has it"
        lines = [
            'model = bertine.load_model("FOLDER")',
            f"mask = model.tokenizer.mask_text  # {mask}",
            'print(bertine.fill_mask(model, f"A {mask} in a text."))',
        ]
    else:
        lines = ['vectors = bertine.Embedder.load("FOLDER")(["a text", "another"])']
        lines.append("print(vectors.shape)")
    lines[0] += "  # FOLDER: where this file is"
    return "\n".join(["```python", "import bertine", "", *lines, "```"])


def _scores(task: TaskInfo | None, facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield the scores on validation examples, or the last line of a pre-training."""
    evaluation = _mapping(facts.get("evaluation"))
    metrics, count = _numbers(evaluation.get("metrics")), evaluation.get("num_examples")
    if metrics and isinstance(count, int):
        yield f"On {count:,} validation examples. The interval: how much a score may change on"
        yield "other examples of the same kind."
        yield ""
        yield "| metric | value | 95% interval |"
        yield "|---|---|---|"
        for name, value in metrics:
            # In tagging the units are words, and those of a sentence are not independent.
            by_example = task is not None and task.name != "tagging"
            interval = _interval(name, value, count) if by_example else "–"
            yield f"| {name} | {value:.4f} | {interval} |"
        if isinstance(seen := evaluation.get("seen"), int):
            yield ""
            yield f"The model that training began with was trained on {seen:,} of these examples:"
            yield "the scores say little about new texts."
    final = _mapping(facts.get("final"))
    if final:
        if facts.get("save_best"):
            yield "The weights are those of the best evaluation on held-out text. Those of the last"
            yield "step, on the text trained on:"
        else:
            yield "At the end of training, on the text trained on:"
        yield ""
        for name, value in _numbers(final):
            if name.endswith(("_loss", "_accuracy")):
                yield f"- {name.replace('_', ' ')}: {value:.4g}"
        entropy = final.get("unigram_entropy")
        if isinstance(entropy, float):
            yield f"- a model that knows only how frequent pieces are: loss {entropy:.4g}"


def _interval(name: str, value: float, count: int) -> str:
    """Return the 95% interval of a metric in words; a dash for metrics that need the answers."""
    if name == "accuracy":
        low, high = wilson_interval(round(value * count), count)
    elif name in ("pearson", "spearman") and count > 3 and abs(value) < 1:
        low, high = correlation_interval(value, count)
    else:
        return "–"
    return f"{low:.4f} to {high:.4f}"


def _data(facts: Mapping[str, Any]) -> Iterator[str]:
    if path := facts.get("data_path"):
        yield f"- trained on `{_file(path)}`"
        for file, digest in sorted(_mapping(facts.get("data_files")).items()):
            yield f"  - `{file}`, SHA-256 `{digest}`"
    for key, unit in (("documents", "document"), ("sentences", "sentence"), ("tokens", "token")):
        if isinstance(count := facts.get(f"num_{key}"), int):
            yield f"- {plural(count, unit)}"
    if isinstance(count := facts.get("num_examples"), int):
        yield f"- {plural(count, 'training example')}"
    for key, what in (
        ("examples_fingerprint", "examples"),
        ("tokenizer_fingerprint", "vocabulary"),
        ("weights_fingerprint", "weights that training began with"),
    ):
        if key in facts:
            yield f"- fingerprint of the {what}: `{facts[key]}`"
    for part, what in (("train", "training"), ("validation", "validation")):
        look = _mapping(_mapping(facts.get("data")).get(part))
        for key, text in (
            ("cut", "were cut at the longest input"),
            ("duplicates", "repeat an earlier text"),
            ("empty", "have no text"),
            ("unlabelled", "were left out: they have no label"),
            ("in_training", "are among the training examples too"),
        ):
            if count := look.get(key):
                yield f"- {plural(count, f'{what} example')} {text}"


def _recipe(facts: Mapping[str, Any]) -> Iterator[str]:
    frozen = facts.get("frozen")
    if frozen:
        yield "- the head alone was fitted; the encoder is as it was before"
    for key, name in _SETTINGS.items():
        # Training settings do not apply to a head that is fitted directly.
        value = facts.get(key) if not frozen or key in ("precision", "seed") else None
        if value is not None and not isinstance(value, Mapping):
            yield f"- {name}: {value:g}" if isinstance(value, float) else f"- {name}: {value}"
    if path := facts.get("model_path"):
        yield f"- began with: `{_file(path)}`"
        for file, digest in sorted(_mapping(facts.get("model_files")).items()):
            yield f"  - `{file}`, SHA-256 `{digest}`"


def _machine(facts: Mapping[str, Any]) -> Iterator[str]:
    environment = _mapping(facts.get("environment"))
    if environment:
        versions = [f"{key} {environment.get(key)}" for key in ("bertine", "torch", "python")]
        threads = environment.get("threads")
        cores = f", {plural(threads, 'thread')}" if isinstance(threads, int) else ""
        yield f"- {facts.get('device', 'cpu')}, {environment.get('machine', '')}{cores}"
        yield f"- {', '.join(versions)}"
    final = _mapping(facts.get("final"))
    elapsed = facts.get("elapsed", final.get("elapsed"))
    if isinstance(elapsed, int | float):
        yield f"- {human_time(elapsed)} of training"
    if isinstance(tokens := final.get("tokens"), int):
        yield f"- {plural(tokens, 'token')} seen"


def _section(title: str, lines: Iterator[str]) -> str:
    """Return a section, or an empty text if it has no lines."""
    text = "\n".join(lines)
    # No literal "##" in this line: word pieces are written that way, which only tokenizers handle.
    return f"{'#' * 2} {title}\n\n{text}" if text else ""


def _numbers(values: Any) -> Sequence[tuple[str, float]]:
    """Return the finite numbers of a mapping."""
    return [
        (name, float(value))
        for name, value in _mapping(values).items()
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    ]


def _mapping(value: Any) -> Mapping[str, Any]:
    """Return `value`, or an empty mapping if it is not a mapping: ``training`` in a bertine.json
    may be anything."""
    return value if isinstance(value, Mapping) else {}


def _file(path: Any) -> str:
    """Return the last part of a path of any system, or the run's for the model of a run. The
    folders above are private to the machine."""
    if str(path).startswith(("hf:", "modelscope:")):
        return str(path)  # with the revision
    parts = PureWindowsPath(str(path))
    named = parts.parent.name if parts.name == "model" else ""
    return named or parts.name or str(path)
