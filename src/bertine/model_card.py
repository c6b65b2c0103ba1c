"""Write the card of a model: the README.md of its directory, with the block that the Hugging Face
hub reads (its "Model cards": ``library_name``, ``tags``, ``pipeline_tag``, ``model-index``).

All of it follows from what the directory says of the model; nothing is asked for, and nothing of
the machine's folders is written: a card is made to be given away.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from bertine.intervals import correlation_interval, wilson_interval
from bertine.models.model import Model
from bertine.taskinfo import TaskInfo
from bertine.terminal.console import counted, human_time
from bertine.version import __version__

CARD = "README.md"
#: The task of ``bertine.json`` → the hub's name for it.
_PIPELINES = {
    "text": "text-classification",
    "multi-label": "text-classification",
    "regression": "text-classification",
    "spans": "question-answering",
    "tagging": "token-classification",
    "choice": "multiple-choice",
    "seq2seq": "text2text-generation",
}
#: The head of a pre-trained model → the hub's name for what it does, the first that there is.
_PRETRAINED = {"mlm": "fill-mask", "lm": "text-generation"}
#: Settings of a training that a reader wants to see, in this order, and their names in words.
_SETTINGS = {
    "objective": "objective",
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


def model_card(model: Model, task: TaskInfo | None) -> str:
    """Describe a model for its README.md.

    Args:
        model: as it is saved.
        task: what its ``bertine.json`` says; None: the directory has none.

    Returns:
        The hub's block, and Markdown: what the model is, four lines of code, scores with 95%
        intervals where they are known, data and their fingerprints, what was cut off, the recipe,
        machine and time.
    """
    facts = {} if task is None else task.training
    title = _title(model, task)
    sections = [
        f"# {title}",
        _summary(model, task),
        _code(model, task),
        _section("Scores", _scores(task, facts)),
        _section("Data", _data(facts)),
        _section("Recipe", _recipe(facts)),
        _section("Machine and time", _machine(facts)),
    ]
    front = yaml.safe_dump(_block(model, task, title), sort_keys=False, allow_unicode=True)
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
    }
    kind = "" if task is None else kinds.get(task.name, "")
    return f"{model.config.title} {kind}".strip()


def _block(model: Model, task: TaskInfo | None, title: str) -> dict[str, Any]:
    """Return the hub's block."""
    name = "" if task is None else task.name
    pipeline = _PIPELINES.get(name) or next(
        (what for head, what in _PRETRAINED.items() if head in model.heads), "feature-extraction"
    )
    # transformers has no class for pairs whose texts are encoded apart.
    library = "bertine" if "pair_classifier" in model.heads else "transformers"
    block: dict[str, Any] = {
        "library_name": library,
        "pipeline_tag": pipeline,
        "tags": ["bertine", model.config.model_type, *([name] if name else [])],
    }
    evaluation = {} if task is None else task.training.get("evaluation") or {}
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


def _summary(model: Model, task: TaskInfo | None) -> str:
    config = model.config
    lines = [
        f"{counted(len(config.passes), 'layer')} of {config.hidden_size}, "
        f"{model.num_parameters():,} parameters, a vocabulary of {config.vocab_size:,} pieces, "
        f"inputs of at most {config.longest_input:,} tokens. Written by Bertine {__version__}."
    ]
    if task is not None and task.labels:
        shown = ", ".join(f"`{label}`" for label in task.labels[:30])
        more = f" and {len(task.labels) - 30} more" if len(task.labels) > 30 else ""
        lines.append(f"Labels: {shown}{more}.")
    if task is not None and task.text_columns:
        columns = " and ".join(f"`{name}`" for name in task.text_columns)
        lines.append(f"It reads {columns}, cut at {task.max_length} tokens.")
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
    elif "lm" in model.heads:
        lines = ['(written,) = bertine.generate("FOLDER", "Once upon a time")', "print(written)"]
    elif "mlm" in model.heads:
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
    evaluation = facts.get("evaluation") or {}
    metrics, count = _numbers(evaluation.get("metrics")), evaluation.get("num_examples")
    if metrics and isinstance(count, int):
        yield f"On {count:,} validation examples; the interval holds what other examples of the same kind may give."
        yield ""
        yield "| metric | value | 95% interval |"
        yield "|---|---|---|"
        for name, value in metrics:
            yield f"| {name} | {value:.4f} | {_interval(name, value, count)} |"
        if facts.get("frozen"):
            yield ""
            yield "The head alone was fitted; the encoder is as it was before."
    final = facts.get("final")
    if isinstance(final, Mapping):
        yield "At the end of training, on its own text:"
        yield ""
        for name, value in _numbers(final):
            if name.endswith(("_loss", "_accuracy")):
                yield f"- {name.replace('_', ' ')}: {value:.4g}"
        entropy = final.get("unigram_entropy")
        if isinstance(entropy, float):
            yield f"- a model that knows only how frequent pieces are: loss {entropy:.4g}"


def _interval(name: str, value: float, count: int) -> str:
    """Return the 95% interval of a metric in words; of those that need the answers, a dash."""
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
    for key, unit in (("documents", "document"), ("sentences", "sentence"), ("tokens", "token")):
        if isinstance(count := facts.get(f"num_{key}"), int):
            yield f"- {counted(count, unit)}"
    if isinstance(count := facts.get("num_examples"), int):
        yield f"- {counted(count, 'training example')}"
    for key, what in (
        ("examples_fingerprint", "examples"),
        ("tokenizer_fingerprint", "vocabulary"),
        ("weights_fingerprint", "weights that training began with"),
    ):
        if key in facts:
            yield f"- fingerprint of the {what}: `{facts[key]}`"
    for part, what in (("train", "training"), ("validation", "validation")):
        look = (facts.get("data") or {}).get(part) or {}
        for key, text in (
            ("cut", "cut at the longest input"),
            ("duplicates", "with a text that came before"),
            ("empty", "without text"),
            ("unlabelled", "left out, for they have no label"),
            ("in_training", "among the training examples too"),
        ):
            if count := look.get(key):
                yield f"- {counted(count, f'{what} example')} {text}"


def _recipe(facts: Mapping[str, Any]) -> Iterator[str]:
    for key, name in _SETTINGS.items():
        value = facts.get(key)
        if value is not None and not isinstance(value, Mapping):
            yield f"- {name}: {value:g}" if isinstance(value, float) else f"- {name}: {value}"
    if path := facts.get("model_path"):
        yield f"- began with: `{_file(path)}`"


def _machine(facts: Mapping[str, Any]) -> Iterator[str]:
    environment = facts.get("environment") or {}
    if environment:
        versions = [f"{key} {environment.get(key)}" for key in ("bertine", "torch", "python")]
        threads = environment.get("threads")
        cores = f", {counted(threads, 'thread')}" if isinstance(threads, int) else ""
        yield f"- {facts.get('device', 'cpu')}, {environment.get('machine', '')}{cores}"
        yield f"- {', '.join(versions)}"
    final = facts.get("final") or {}
    elapsed = facts.get("elapsed", final.get("elapsed") if isinstance(final, Mapping) else None)
    if isinstance(elapsed, int | float):
        yield f"- {human_time(elapsed)} of training"
    if isinstance(final, Mapping) and isinstance(tokens := final.get("tokens"), int):
        yield f"- {counted(tokens, 'token')} seen"


def _section(title: str, lines: Iterator[str]) -> str:
    """Return a section, or nothing where it has no lines."""
    text = "\n".join(lines)
    return f"## {title}\n\n{text}" if text else ""


def _numbers(values: Any) -> Sequence[tuple[str, float]]:
    """Return the finite numbers of a mapping."""
    if not isinstance(values, Mapping):
        return []
    return [
        (name, float(value))
        for name, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and value == value
    ]


def _file(path: Any) -> str:
    """Return the last part of a path: what lies above it is the machine's."""
    return Path(str(path)).name or str(path)
