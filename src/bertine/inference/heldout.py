"""Score pre-trained models on held-out text: losses and accuracies of each term of the objective.

The instances, their pairs and their masks are a function of the store and a fixed seed, so every
evaluation of a run, and of runs that are compared, has the same questions.
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch

from bertine.core.console import log_all, progress
from bertine.core.errors import BertineError
from bertine.core.loss_names import TERMS, rarer_answers, terms_among
from bertine.core.names import option
from bertine.corpora.batch import Batch, check_batch, split
from bertine.corpora.pretraining_data import PretrainingData
from bertine.corpora.store import TokenStore
from bertine.hub.model_directory import LoadedModel, load_model, model_folder
from bertine.inference.compute import batch_tokens, evaluating
from bertine.models.heads import Model
from bertine.models.precision import (
    autocast,
    resolve_device,
    resolve_precision,
    trained_precision,
)
from bertine.objectives import check_format, objective_of
from bertine.objectives.losses import Loss, Objective, Term
from bertine.objectives.rtd import read_generator
from bertine.options.pretraining import InstanceSettings, ObjectiveOptions
from bertine.tasks.report import EvaluationReport
from bertine.tokenization.tokenizer import Tokenizer

#: Real tokens of an evaluation. 200,000 have some 30,000 masks: the standard error of the MLM loss
#: is about 0.02 nats, that of the accuracy 0.3 points; and masks do not change between evaluations,
#: so that differences are more exact still.
EVALUATION_TOKENS = 200_000


def score_batches(
    model: Model,
    objective: Loss,
    batch: Callable[[int], Batch],
    *,
    tokens: int = EVALUATION_TOKENS,
    max_batches: int | None = None,
    dtype: torch.dtype = torch.float32,
    max_tokens: int | None = None,
    on_batch: Callable[[int], None] | None = None,
) -> dict[str, float]:
    """Compute mean losses and accuracies of `model` over ``batch(0)``, ``batch(1)``, …, without
    gradients and without dropout. The same arguments give the same bits on the same machine.

    Args:
        model: a model on any device; put into evaluation mode and back into the mode it was in.
        objective: the objective whose terms are measured.
        batch: a pure function of its number, such as ``PretrainingData.batch``.
        tokens: the number of real tokens after which scoring ends; the batch that reaches it is the
            last.
        max_batches: the maximum number of batches, such as those of an epoch; None: no limit.
        dtype: the type to compute in: bf16 (by autocast) or fp32.
        max_tokens: the maximum of tokens that are computed at once, with padding; None: by the kind
            of device.
        on_batch: called with the real tokens of each finished batch.

    Returns:
        For each term T of the objective (``mlm``, ``nsp``, ``sop``, ``rtd``, ``generator``):
        ``T_loss`` in nats, the mean over all its targets; ``T_accuracy`` (where it has one) and
        other shares of the targets such as ``rtd_replaced``, shares of 1; ``T_count``, the
        targets. ``loss``, the weighted sum of the losses; ``T_perplexity``, e to the loss, of
        words; and ``tokens`` and ``sequences`` that were seen.

    Raises:
        BertineError: a batch does not fit the model, a term has no target at all, or `tokens` or
            `max_batches` is below 1.
    """
    for name, value in (("tokens", tokens), ("max_batches", max_batches)):
        if value is not None and value < 1:
            raise BertineError(f"{name} is {value}, but must be at least 1")
    device = next(model.parameters()).device
    limit = batch_tokens(device, max_tokens)
    sums: dict[str, _Sum] = defaultdict(_Sum)
    seen = sequences = number = 0
    with evaluating(model):
        while seen < tokens and (max_batches is None or number < max_batches):
            whole = batch(number)
            check_batch(whole, model.config)
            for part in split(whole, limit):
                with autocast(dtype, device):
                    terms = objective.terms(model, part.to(device))
                for name, term in terms.items():
                    sums[name].add(term)
            seen += whole.num_tokens
            sequences += whole.num_sequences
            number += 1
            if on_batch is not None:
                on_batch(whole.num_tokens)
    return _scores(sums) | {"tokens": seen, "sequences": sequences}


@dataclass
class _Sum:
    """The sums of one term of the objective over all batches."""

    total: float = 0.0
    count: int = 0
    correct: int | None = None
    weight: float = 1.0
    shares: dict[str, int] = field(default_factory=dict)

    def add(self, term: Term) -> None:
        # fp32 sums are added in double; the order of the parts is fixed.
        self.total += float(term.total)
        self.count += term.count
        self.weight = term.weight
        if term.correct is not None:
            self.correct = (self.correct or 0) + int(term.correct)
        for name, number in term.shares.items():
            self.shares[name] = self.shares.get(name, 0) + int(number)


def _scores(sums: Mapping[str, _Sum]) -> dict[str, float]:
    empty = [name for name, term in sums.items() if not term.count]
    if empty:
        raise BertineError(
            f"the held-out batches have no target for {' and '.join(empty)}; evaluate on more text"
        )
    losses = {name: term.total / term.count for name, term in sums.items()}
    scores = {"loss": sum(term.weight * losses[name] for name, term in sums.items())}
    for name, term in sums.items():
        scores[f"{name}_loss"] = losses[name]
        if name in TERMS and TERMS[name].words:
            # e**700 and more overflow a double; such a model has learnt nothing anyway.
            scores[f"{name}_perplexity"] = math.exp(min(losses[name], 700.0))
        if term.correct is not None:
            scores[f"{name}_accuracy"] = term.correct / term.count
        for share, number in term.shares.items():
            scores[f"{name}_{share}"] = number / term.count
        scores[f"{name}_count"] = term.count
    return scores


def evaluate_pretraining(
    model: Model,
    tokenizer: Tokenizer,
    store: TokenStore,
    *,
    objective: Objective | None = None,
    settings: InstanceSettings | None = None,
    tokens: int = EVALUATION_TOKENS,
    dtype: torch.dtype = torch.float32,
    max_tokens: int | None = None,
    on_batch: Callable[[int], None] | None = None,
) -> dict[str, float]:
    """Score a pre-trained `model` on a held-out `store`: MLM loss, perplexity and accuracy, NSP
    accuracy, with the same instances and masks every time.

    Masks are those of the objective's paper (80/10/10; for replaced tokens 85/0/15) however the
    model was trained, so that models can be compared. At most one epoch of the store is seen
    (the last batch of it may reach into the next one). For other instances, call
    :func:`score_batches`.

    Args:
        tokenizer: the tokenizer of the model and of the store.
        objective: the objective; None: the first one of the model's family for which the model has
            the heads.
        settings: the settings of the instances; lengths above the model's positions are reduced to
            these. Segment pairs are not made shorter, and masks are drawn anew. Whole-word masks
            are harder, so compare like with like; keep the default seed to compare with other
            evaluations. Batches of `batch_size` sequences are computed in parts of `max_tokens`.
        tokens: the minimum of real tokens to read.

    The other arguments and the result are described at :func:`score_batches`.

    Raises:
        BertineError: the model has no masked-LM head; the tokenizer is not the store's; the
            objective is not available with this format; see also
            :class:`~bertine.corpora.pretraining_data.PretrainingData`.
    """
    objective = objective or objective_of(model)
    if objective is None:
        raise BertineError(
            f"the model has no {_first_head(model)}; evaluate a pre-trained model on a token store "
            "(fine-tuning drops that head)"
        )
    settings = settings or InstanceSettings()
    check_format(objective, settings.input_format)
    usual = InstanceSettings()
    settings = dataclasses.replace(
        settings,
        max_seq_length=min(settings.max_seq_length, model.config.longest_input),
        masking=usual.masking,
        mask_split=objective.mask_split,
        short_seq_prob=0.0,
    )
    data = PretrainingData(store, tokenizer, settings, corruption=objective.corruption)
    # A text of a few sequences is read once, not as often as it fits into a batch.
    data.batch_size = min(settings.batch_size, data.instances_per_epoch)
    return score_batches(
        model,
        objective,
        data.batch,
        tokens=tokens,
        max_batches=data.steps_per_epoch,
        dtype=dtype,
        max_tokens=max_tokens,
        on_batch=on_batch,
    )


@dataclass(repr=False)
class HeldOutReport(EvaluationReport):
    """The scores of :func:`evaluate_store`: a :class:`~bertine.tasks.report.EvaluationReport`.

    Attributes:
        metrics: the metrics of :func:`score_batches`.
        source: the store.
        instances: the kind of its sequences.
        notes: empty; nothing is dropped or cut here.
        worst: empty; the text has no labels.
    """

    metrics: dict[str, float]
    unigram_entropy: float
    instances: str

    json_keys = ("source", "unigram_entropy", "instances", "**metrics")
    # The loss of a model that has learned only frequencies is close to the unigram entropy, which
    # the report shows.
    collapsed = False

    def lines(self) -> list[str]:
        """Return the scores as lines of text."""
        metrics = self.metrics
        hidden = ", ".join(
            f"{metrics[f'{name}_count']:,.0f} of them "
            + ("hidden" if TERMS[name].copied else "predicted")
            for name in terms_among(metrics)
            if TERMS[name].words
        )
        lines = [
            f"{metrics['tokens']:,.0f} tokens of {self.source}, {hidden} "
            f"(unigram entropy {self.unigram_entropy:.3f} nats); {self.instances}"
        ]
        for name in terms_among(metrics):
            line = f"{TERMS[name].title} loss {metrics[f'{name}_loss']:.4f}"
            if f"{name}_perplexity" in metrics:
                line += f", perplexity {metrics[f'{name}_perplexity']:.2f}"
            if f"{name}_accuracy" in metrics:
                line += f", accuracy {metrics[f'{name}_accuracy']:.2%}"
            if rarer := rarer_answers(name, metrics):
                share, detected, guessed = rarer
                line += f" ({share:.2%} {TERMS[name].rarer}, {detected:.2%} of these detected; "
                line += f"guessing gives an accuracy of {guessed:.2%})"
            lines.append(line)
        return [*lines, *self.notes]


def evaluate_store(
    model: Path | str,
    store: Path | str,
    *,
    device: str | None = None,
    precision: str = "auto",
    show_progress: bool = True,
) -> HeldOutReport:
    """Score a pre-trained model directory on a held-out store; see :func:`evaluate_pretraining`.

    A model that detects replaced tokens is scored with the generator that its run wrote to its
    folder. Sequences and targets are made as in the model's pre-training here, so that the scores
    are comparable with the held-out scores of the run. For a model from elsewhere they are segment
    pairs of 128 tokens, in order or swapped for a SOP head, or full sentences where it has neither
    that nor a NSP head; for a model that predicts the next token, running text in sequences of its
    maximum length.

    Raises:
        BertineError: no such model or store; see also :func:`evaluate_pretraining`.
    """
    where = resolve_device(device)
    opened = TokenStore.open(store)
    loaded = load_model(model)
    log_all(loaded.report.lines())
    objective = objective_of(loaded.model)
    if objective is None and loaded.model.missing_partners():
        objective = _with_generator(Path(model), loaded)
    if objective is None:
        raise BertineError(
            f"{model}: has no {_first_head(loaded.model)}, so there is nothing to evaluate on the "
            f"token store {store}; give a pre-trained model, or labelled examples"
        )
    objective = _as_trained(loaded, objective)
    making = _making(loaded, objective)
    if precision == "auto":
        training = {} if loaded.task is None else loaded.task.training
        precision = trained_precision(training, loaded.model, where)
    with progress(show=show_progress) as bar:
        job = bar.add_task("evaluate", total=min(EVALUATION_TOKENS, opened.num_tokens))
        metrics = evaluate_pretraining(
            loaded.model.to(where),
            loaded.tokenizer,
            opened,
            objective=objective,
            dtype=resolve_precision(precision, where),
            on_batch=lambda tokens: bar.advance(job, tokens),
            settings=making,
        )
    words = ", whole words" if making.whole_word_mask else ""
    words += f", runs of up to {making.ngrams}" if making.ngrams > 1 else ""
    instances = f"{making.input_format} of at most {making.max_seq_length} tokens{words}"
    return HeldOutReport(metrics, opened.unigram_entropy, instances, source=str(store))


def _with_generator(model: Path, loaded: LoadedModel) -> Objective | None:
    """Add the generator of the run, in the folder ``generator`` of the model, to a model that
    detects replaced tokens, and return the objective of both.

    Raises:
        BertineError: there is no generator, or it belongs to another model.
    """
    extra = model_folder(model).parent / "generator"
    if not extra.is_dir():
        raise BertineError(
            f"{model}: detects replaced tokens, and has no generator to replace any: "
            f"{extra} is not there ({option('save_generator', True)} of 'bertine pretrain' writes "
            "it); give a masked language model, or labelled examples"
        )
    loaded.model.heads["generator"] = read_generator(extra, loaded.model, loaded.tokenizer)
    return objective_of(loaded.model)


def _first_head(model: Model) -> str:
    """Name the head that a pre-trained model of this kind has in any case."""
    for name, kind in model.family.heads.items():
        if name in TERMS:
            return kind.title
    return "head of pre-training"


def _as_trained(loaded: LoadedModel, objective: Objective) -> Objective:
    """Return the objective with the options of the model's own pre-training, where these are
    known."""
    facts = {} if loaded.task is None else loaded.task.training
    known = {name: facts[name] for name in objective.settings() if name in facts}
    return objective.configured(ObjectiveOptions(**known)) if known else objective


def _making(loaded: LoadedModel, objective: Objective) -> InstanceSettings:
    """Choose the settings of instances for a model: those of its own pre-training, where these are
    known."""
    usual = InstanceSettings(input_format=objective.formats[0])
    facts = {} if loaded.task is None else loaded.task.training
    known = {
        name: facts[name]
        for name in (
            "input_format",
            "whole_word_mask",
            "ngrams",
            "max_seq_length",
            "masked_lm_prob",
        )
        if type(facts.get(name)) is type(getattr(usual, name))
    }
    length = usual.max_seq_length
    if loaded.config.reads_forward:  # a token is predicted from all tokens before it
        length = loaded.config.longest_input
    longest = min(known.get("max_seq_length", length), loaded.config.longest_input)
    return dataclasses.replace(usual, **{**known, "max_seq_length": longest})
