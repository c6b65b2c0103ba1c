"""``feature-based``: tagging with a frozen encoder (paper, section 5.3), the table of its rows.

A two-layer BiLSTM of 768 units reads states of the encoder that are computed once: the embeddings,
one hidden layer, or several, summed with learned weights or joined. Its recipe is ours, for the
paper gives none: Adam, a rate that falls linearly to 0, dropout 0.5 as usual for BiLSTM taggers
(Ma and Hovy 2016). The row of fine-tuning is a run of :func:`bertine.training.finetune.finetune`.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bertine import rng
from bertine.console import human_time, progress, say, warn
from bertine.data.batching import grouped_by_length
from bertine.errors import BertineError
from bertine.files import read_json, write_json
from bertine.inference.predictor import evaluate
from bertine.inference.word_states import WordStates, word_states
from bertine.launch import launched
from bertine.modeldir import load_config, load_model
from bertine.models.bilstm import BiLstmTagger
from bertine.models.precision import precision_name, resolve_device, resolve_precision
from bertine.tasks.conll import Columns, Sentences, find_tagged, read_sentences
from bertine.tasks.labelled import TaggedReading, read_labelled
from bertine.tasks.tagging import Tagging, Tags
from bertine.tasks.tagging_report import TaggingReport
from bertine.training.finetune import finetune

#: The results, in the folder of the runs.
TABLE = "feature-based.json"
FINE_TUNING = "fine-tuning"


@dataclass(frozen=True)
class Row:
    """A row of the table: which states are read (of an encoder of L layers; 0 are the embeddings),
    and whether they are joined or summed."""

    title: str
    layers: Callable[[int], list[int]]
    concatenate: bool = False


#: The rows in the paper's order, by the names of the command line.
ROWS: dict[str, Row] = {
    "embeddings": Row("embeddings", lambda count: [0]),
    "second-to-last": Row("second-to-last hidden", lambda count: [max(0, count - 1)]),
    "last": Row("last hidden", lambda count: [count]),
    "sum-last-four": Row("weighted sum last four hidden", lambda count: _last(count, 4)),
    "concat-last-four": Row("concat last four hidden", lambda count: _last(count, 4), True),
    "sum-all": Row("weighted sum all layers", lambda count: _last(count, count)),
}


def _last(count: int, wanted: int) -> list[int]:
    return list(range(max(1, count - wanted + 1), count + 1))


@dataclass
class FeatureBasedReport:
    """The table.

    Attributes:
        rows: for each row its ``validation`` (and ``test``) metrics, ``best`` (the highest main
            metric of an epoch on the validation sentences) and ``seconds``.
        metric: the name of the main metric, ``f1`` or ``accuracy``.
        folder: of the runs.
        notes: what else to know.
    """

    rows: dict[str, dict[str, Any]]
    metric: str
    folder: Path
    notes: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """A row each: the main metric, times 100, on the validation and test sentences."""
        titles = {FINE_TUNING: "fine-tuning", **{name: row.title for name, row in ROWS.items()}}
        width = max(len(titles[name]) for name in self.rows)
        test = any("test" in row for row in self.rows.values())
        head = f"{'':{width}}  {'dev ' + self.metric:>9}" + ("  test " + self.metric) * test
        lines = [head]
        for name, row in self.rows.items():
            line = f"{titles[name]:{width}}  {100 * row['validation'][self.metric]:>9.2f}"
            if "test" in row:
                line += f"  {100 * row['test'][self.metric]:>{5 + len(self.metric)}.2f}"
            lines.append(f"{line}  {human_time(row['seconds'])}")
        return [*lines, *self.notes, f"results: {self.folder / TABLE}"]

    def to_dict(self) -> dict[str, Any]:
        return {"metric": self.metric, "rows": self.rows, "notes": self.notes}


@dataclass(frozen=True)
class _Recipe:
    epochs: int
    batch_size: int
    learning_rate: float
    lstm_size: int
    lstm_layers: int
    dropout: float
    max_grad_norm: float
    seed: int


@dataclass(frozen=True)
class _Set:
    """Sentences that have words, the ids of their tags, and the states of their words."""

    sentences: Sentences
    states: WordStates
    tags: list[np.ndarray]

    def __len__(self) -> int:
        return len(self.tags)


def feature_based(
    model: Path | str,
    *,
    data: Path | str,
    out: Path | str,
    rows: Sequence[str] | None = None,
    text_columns: Sequence[str] | str | None = None,
    label_column: str | None = None,
    format: str | None = None,
    strict: bool = False,
    word_column: int | None = None,
    tag_column: int | None = None,
    tag_scheme: str | None = None,
    document_context: bool = False,
    max_length: int = 128,
    epochs: int = 10,
    batch_size: int = 32,
    learning_rate: float = 1e-3,
    lstm_size: int = 768,
    lstm_layers: int = 2,
    dropout: float = 0.5,
    max_grad_norm: float = 5.0,
    finetune_epochs: int = 3,
    finetune_learning_rate: float = 5e-5,
    device: str | None = None,
    precision: str = "auto",
    seed: int = 0,
    resume: bool = False,
) -> FeatureBasedReport:
    """Tag words with a frozen encoder and a BiLSTM over its states, in the paper's ways (section
    5.3, table 7), beside fine-tuning; the table is also written to ``out/feature-based.json``.

    The states are computed once and kept in ``out/states``, by a hash of all that they depend on.

    Args:
        model: the model directory of the encoder.
        data: tagged words, as for ``finetune("tagging")``; a test file in a folder is scored too.
        out: the folder of the results; the run of fine-tuning is ``out/fine-tuning``.
        rows: which rows: ``fine-tuning`` and names of :data:`ROWS`; None: all.
        text_columns, label_column, format, strict, word_column, tag_column, tag_scheme,
            document_context, max_length: as for :func:`~bertine.training.finetune.finetune`.
        epochs: of the BiLSTM, over the training sentences.
        batch_size: sentences in an update, of fine-tuning too.
        learning_rate: of the BiLSTM, its highest value (the first).
        lstm_size: units of each direction.
        lstm_layers: of the BiLSTM.
        dropout: on what goes into each layer of it and comes out of the last.
        max_grad_norm: its gradients are clipped to it.
        finetune_epochs, finetune_learning_rate: of the row of fine-tuning.
        device: as PyTorch calls it; None: the GPU if there is one.
        precision: of the encoder; the BiLSTM computes in fp32.
        seed: of all that is random.
        resume: keep the rows that `out` has already, if they were made with the same settings.

    Raises:
        BertineError: an unknown row; what reading the data or the model raises; `out` holds
            results already, or with `resume` those of other settings.
    """
    if launched():
        raise BertineError("feature-based is one process; start it without torchrun")
    wanted = _chosen(rows)
    folder = Path(out)
    where = resolve_device(device)
    config = load_config(model)
    max_length = min(max_length, config.max_position_embeddings)
    labelled = read_labelled(
        Tagging.name,
        data,
        glue=None,
        seed=seed,
        text_columns=text_columns,
        label_column=label_column,
        format=format,
        strict=strict,
        tagging=TaggedReading(word_column, tag_column, tag_scheme, document_context),
    )
    train, validation = labelled.train, labelled.validation
    assert isinstance(train, Sentences)
    assert isinstance(validation, Sentences)
    task = labelled.build(max_length)
    assert isinstance(task, Tagging)
    sets = {"train": train, "validation": validation}
    test_file = find_tagged(data).test
    if test_file is not None:
        sets["test"] = read_sentences(
            test_file,
            Columns.trained_with(train.text_columns, train.label_column),
            scheme=tag_scheme if task.has_entities else "plain",
            format=format,
            strict=strict,
        )
    recipe = _Recipe(
        epochs, batch_size, learning_rate, lstm_size, lstm_layers, dropout, max_grad_norm, seed
    )
    loaded = load_model(model, heads=task.heads(config), seed=seed)
    settings = {
        "recipe": vars(recipe),
        "task": _without_training(task),
        "finetune": [finetune_epochs, finetune_learning_rate],
        "precision": precision_name(precision, where),
        "weights": _fingerprint(loaded.model.backbone.state_dict()),
        "sentences": {name: each.fingerprint() for name, each in sets.items()},
    }
    results = _begun(folder, settings, resume)
    report = FeatureBasedReport({}, "f1" if task.has_entities else "accuracy", folder)

    if any(name not in results for name in wanted if name != FINE_TUNING):
        dtype = resolve_precision(precision, where)
        loaded.model.to(where)
        prepared: dict[str, _Set] = {}
        for name, sentences in sets.items():
            began = time.monotonic()
            states = word_states(
                loaded.model, loaded.tokenizer, task, sentences, folder / "states", dtype=dtype
            )
            prepared[name] = _Set(sentences, states, _tag_ids(task, sentences))
            took = (
                "found" if states.found else f"computed in {human_time(time.monotonic() - began)}"
            )
            say(f"{sentences.source}: the states of {states.starts[-1]} words: {took}")
    for sentences in sets.values():
        for note in sentences.notes:
            warn(note)
    for name in wanted:
        if name in results:
            say(f"{name}: done before")
        else:
            say(f"{name} ({wanted.index(name) + 1} of {len(wanted)})")
            if name == FINE_TUNING:
                results[name] = _finetuned(
                    model,
                    folder / FINE_TUNING,
                    sets,
                    test_file,
                    resume=resume,
                    arguments={
                        "data": data,
                        "text_columns": text_columns,
                        "label_column": label_column,
                        "format": format,
                        "strict": strict,
                        "word_column": word_column,
                        "tag_column": tag_column,
                        "tag_scheme": tag_scheme,
                        "document_context": document_context,
                        "max_length": max_length,
                        "epochs": finetune_epochs,
                        "learning_rate": finetune_learning_rate,
                        "batch_size": batch_size,
                        "device": device,
                        "precision": precision,
                        "seed": seed,
                    },
                )
            else:
                layers = ROWS[name].layers(config.num_hidden_layers)
                results[name] = _train_row(
                    name, layers, prepared, task, recipe, config.hidden_size, where, report.metric
                )
        report.rows[name] = results[name]
        write_json(folder / TABLE, {"settings": settings, **report.to_dict(), "rows": results})
    if config.num_hidden_layers < 4:
        report.notes.append(
            f"the encoder has {config.num_hidden_layers} layers: the last four are all of them"
        )
    return report


def _chosen(rows: Sequence[str] | None) -> list[str]:
    """The names of the wanted rows, in the paper's order."""
    known = [FINE_TUNING, *ROWS]
    for name in rows or ():
        if name not in known:
            raise BertineError(f"there is no row {name!r}; there are {', '.join(known)}")
    return [name for name in known if rows is None or name in rows]


def _without_training(task: Tagging) -> dict[str, Any]:
    info = task.task_info().to_dict()
    del info["training"]
    return info


def _fingerprint(weights: dict[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name, tensor in weights.items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _begun(folder: Path, settings: dict[str, Any], resume: bool) -> dict[str, dict[str, Any]]:
    """The rows that `folder` has, when they may be kept; else none."""
    file = folder / TABLE
    if folder.exists() and not folder.is_dir():
        raise BertineError(f"{folder}: is a file; choose another folder for the results")
    if not file.exists():
        return {}
    if not resume:
        raise BertineError(
            f"{file}: is there already; go on with it by --resume, or choose another"
        )
    known = read_json(file)
    before = known.get("settings", {})
    for key, value in json.loads(json.dumps(settings)).items():
        if before.get(key) != value:
            raise BertineError(f"{file}: was made with another {key}; choose another folder")
    rows: dict[str, dict[str, Any]] = known["rows"]
    return rows


def _tag_ids(task: Tagging, sentences: Sentences) -> list[np.ndarray]:
    return [
        np.array(
            [
                task.label_id(tag, sentences.where(item, at), word)
                for at, (tag, word) in enumerate(zip(item.tags or (), item.words, strict=True))
            ],
            dtype=np.int64,
        )
        for item in sentences.items
    ]


def _finetuned(
    model: Path | str,
    out: Path,
    sets: dict[str, Sentences],
    test_file: Path | None,
    *,
    resume: bool,
    arguments: dict[str, Any],
) -> dict[str, Any]:
    """The row of fine-tuning."""
    resume = resume and (out / "run.json").exists()
    result = finetune(Tagging.name, model=model, out=out, resume=resume, **arguments)
    row: dict[str, Any] = {"validation": result.metrics, "seconds": result.elapsed}
    if test_file is not None:
        named = {
            key: arguments[key] for key in ("format", "strict", "tag_scheme", "device", "precision")
        }
        scored = evaluate(result.model, test_file, show_progress=False, **named)
        row["test"] = dict(scored.metrics)
    return row


def _train_row(
    name: str,
    layers: list[int],
    sets: dict[str, _Set],
    task: Tagging,
    recipe: _Recipe,
    hidden_size: int,
    device: torch.device,
    metric: str,
) -> dict[str, Any]:
    """Train a BiLSTM on the states of some layers, and score it."""
    began = time.monotonic()
    states = {word: each.states.layers(layers) for word, each in sets.items()}
    train = sets["train"]
    lengths = [len(tags) for tags in train.tags]
    full = [index for index, length in enumerate(lengths) if length]
    with torch.random.fork_rng():
        _seed(recipe.seed, "feature-based weights", name)
        tagger = BiLstmTagger(
            hidden_size,
            len(layers),
            len(task.labels),
            concatenate=ROWS[name].concatenate,
            lstm_size=recipe.lstm_size,
            lstm_layers=recipe.lstm_layers,
            dropout=recipe.dropout,
        ).to(device)
        optimizer = torch.optim.Adam(tagger.parameters(), lr=recipe.learning_rate)
        steps = recipe.epochs * -(-len(full) // recipe.batch_size)
        step = 0
        best = 0.0
        report: TaggingReport | None = None
        with progress("{task.fields[note]}") as bar:
            job = bar.add_task(name, total=steps, note="")
            for epoch in range(recipe.epochs):
                tagger.train()
                sizes = [lengths[index] for index in full]
                for batch in grouped_by_length(sizes, recipe.batch_size, recipe.seed, epoch):
                    _seed(recipe.seed, "feature-based dropout", name, step)
                    for group in optimizer.param_groups:
                        group["lr"] = recipe.learning_rate * (1 - step / steps)
                    chosen = [full[at] for at in batch]
                    logits, counts = _logits(tagger, train, states["train"], chosen, device)
                    rows = [logits[at, :count] for at, count in enumerate(counts)]
                    labels = np.concatenate([train.tags[index] for index in chosen])
                    loss = F.cross_entropy(torch.cat(rows), torch.from_numpy(labels).to(device))
                    optimizer.zero_grad(set_to_none=True)
                    loss.backward()
                    torch.nn.utils.clip_grad_norm_(tagger.parameters(), recipe.max_grad_norm)
                    optimizer.step()
                    step += 1
                    bar.advance(job)
                report = _score(tagger, sets["validation"], states["validation"], task, device)
                best = max(best, report.metrics[metric])
                bar.update(job, note=f"{metric} {report.metrics[metric]:.4f}")
        assert report is not None
        row: dict[str, Any] = {"validation": report.metrics, "best": best, "layers": layers}
        if "test" in sets:
            row["test"] = _score(tagger, sets["test"], states["test"], task, device).metrics
    row["seconds"] = time.monotonic() - began
    return row


def _seed(seed: int, *where: int | str) -> None:
    torch.manual_seed(rng.key(seed, *where) & 0x7FFF_FFFF_FFFF_FFFF)


def _logits(
    tagger: BiLstmTagger,
    part: _Set,
    layers: Sequence[Tensor],
    chosen: Sequence[int],
    device: torch.device,
) -> tuple[Tensor, list[int]]:
    """Logits [B, W, K] of the sentences `chosen`, and their numbers of words."""
    starts = part.states.starts
    counts = [int(starts[index + 1] - starts[index]) for index in chosen]
    x = torch.zeros(len(chosen), max(counts), len(layers), layers[0].shape[1])
    for at, (index, count) in enumerate(zip(chosen, counts, strict=True)):
        begin = int(starts[index])
        for number, layer in enumerate(layers):
            x[at, :count, number] = layer[begin : begin + count].float()
    logits: Tensor = tagger(x.to(device), torch.tensor(counts))
    return logits, counts


def _score(
    tagger: BiLstmTagger,
    part: _Set,
    layers: Sequence[Tensor],
    task: Tagging,
    device: torch.device,
) -> TaggingReport:
    """The metrics of the tagger's most probable tags."""
    tagger.eval()
    lengths = [len(tags) for tags in part.tags]
    order = [int(at) for at in np.argsort(lengths, kind="stable") if lengths[at]]
    guesses: dict[int, Tags] = {}
    with torch.inference_mode():
        for start in range(0, len(order), 64):
            chosen = order[start : start + 64]
            logits, counts = _logits(tagger, part, layers, chosen, device)
            best = logits.argmax(-1).cpu()
            for at, (index, count) in enumerate(zip(chosen, counts, strict=True)):
                tags = tuple(task.labels[i] for i in best[at, :count].tolist())
                guesses[index] = Tags(tags, (1.0,) * count)
    nothing = Tags((), ())
    predictions = [guesses.get(index, nothing) for index in range(len(part))]
    return task.report(predictions, [item.tags or () for item in part.sentences.items])
