"""Fill masks and measure steps during pre-training, and hold the result of a run.

The sentences and the hidden words are chosen once, as a function of the store and the seed. At
every evaluation ``fill`` computes the model's predictions, and ``write_samples`` writes them to the
run's folder, one JSON object a line:

    {"step": 1000, "samples": [{"text": "the [MASK] sleeps in the sofa.", "truth": "cat",
     "mask": "[MASK]", "truth_probability": 0.61,
     "guesses": [{"token": "cat", "probability": 0.61}, ...]}, ...]}

Pieces are written as their names (:mod:`bertine.tokenization.base`).
"""

from __future__ import annotations

import copy
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from bertine.core.console import Report, human_count, human_time, logger
from bertine.core.errors import BertineError
from bertine.core.files import write_text
from bertine.core.loss_names import TERMS, main_term, rarer_answers, terms_among
from bertine.core.rng import generator
from bertine.core.scores import ranking, score_name
from bertine.core.task_info import TaskInfo
from bertine.corpora.batch import Batch
from bertine.corpora.loader import batches_ahead
from bertine.corpora.store import TokenStore
from bertine.hub.model_directory import TASK
from bertine.inference.compute import computing_with, device_of
from bertine.models.heads import Model
from bertine.models.precision import resolve_precision
from bertine.objectives.losses import Loss
from bertine.options.training import Updates
from bertine.reports.diagnosis import Finding
from bertine.reports.findings import finetune_command
from bertine.reports.pretraining_checks import AT_LEVEL
from bertine.reports.run_files import pretraining_names, read_log
from bertine.reports.run_page import report
from bertine.tasks.base import Features, pad_features
from bertine.tokenization.sentences import remove_cjk_spaces
from bertine.tokenization.tokenizer import Tokenizer
from bertine.training.checkpoint import Best, recorded_best
from bertine.training.distributed import DistContext
from bertine.training.optimizers import optimizer_for
from bertine.training.parallel import wait_for
from bertine.training.run_folder import Run
from bertine.training.step import TrainStep

SAMPLES = "samples.jsonl"

#: The shortest sentence (in pieces) that has meaning by itself; and the longest that is easy to
#: read.
_SHORTEST, _LONGEST = 8, 40
#: Draws from the store for each sample before it is given up: stores of very short or very long
#: sentences have few suitable ones.
_TRIES = 200


@dataclass(frozen=True)
class _Sample:
    """A sentence with one hidden piece: ids with special tokens, the position and the hidden
    piece."""

    input_ids: tuple[int, ...]
    position: int
    truth: int


class MaskSamples:
    """A few fixed sentences with one hidden word each.

    A hidden word is one whole piece of letters. Of the words of a sentence rarer ones are chosen
    more often, by the fourth root of their frequency: with equal probability most hidden words
    would be "the" and similar ones; by rarity alone most would be words that no small model can
    predict.

    Args:
        tokenizer: of the model.
        source: a store (a held-out one, or the training store), made by `tokenizer`; or sentences.
        seed: of the choice.
        count: how many; from a store, fewer if it has not enough suitable sentences. All suitable
            ones of given sentences are taken, up to `count`.
        max_length: tokens of a sample with special tokens: no more than the model is trained on;
            None: up to the length that is easy to read.

    Raises:
        BertineError: the store was made by another tokenizer, or no sentence is suitable: 8 to 40
            pieces, within `max_length`, none of them unknown, one of them a whole word of letters.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        source: TokenStore | Sequence[str],
        seed: int = 0,
        *,
        count: int = 8,
        max_length: int | None = None,
    ) -> None:
        self.tokenizer = tokenizer
        self._mask_id = tokenizer.require_mask("guessing hidden words")
        room = _LONGEST if max_length is None else max_length - tokenizer.template.added()
        self._longest = min(_LONGEST, room)
        self._whole = np.array([name.isalpha() for name in tokenizer.names])
        self._whole &= ~tokenizer.continues
        self._whole[list(tokenizer.special_ids)] = False
        if isinstance(source, TokenStore):
            source.check_tokenizer(tokenizer)
            name = str(source.path)
            chosen = self._from_store(source, seed, count)
        else:
            name = "the sentences"
            ids = [np.asarray(one, np.int64) for one in tokenizer.encode_plain(source)]
            flat = np.ones(tokenizer.vocab_size, np.int64)
            hidden = (self._hide(one, flat, seed, index) for index, one in enumerate(ids))
            chosen = [sample for sample in hidden if sample is not None][:count]
        if not chosen:
            raise BertineError(
                f"{name}: no sentence for mask samples; one must have {_SHORTEST} to "
                f"{self._longest} pieces, none unknown, and a word of one piece"
            )
        self._samples = chosen

    def __len__(self) -> int:
        return len(self._samples)

    def _from_store(self, store: TokenStore, seed: int, count: int) -> list[_Sample]:
        """Draw sentences that contain random tokens of the store, each sentence once."""
        chosen: list[_Sample] = []
        taken: set[tuple[int, int]] = set()
        for number in range(count):
            for attempt in range(_TRIES):
                draw = generator(seed, "mask samples", number, attempt)
                document, offset = store.locate(int(draw.integers(store.num_tokens)))
                chunk, row = store.row(document)
                sentence, start = chunk.sentence_at(row, offset)
                if (document, sentence) in taken:
                    continue
                length = chunk.sentence_lengths[chunk.sentence_offsets[row] + sentence]
                first = chunk.token_offsets[row] + start
                ids = store.unmark(chunk.input_ids[first : first + length])[0].astype(np.int64)
                sample = self._hide(ids, store.unigram_counts, seed, number, attempt)
                if sample is not None:
                    taken.add((document, sentence))
                    chosen.append(sample)
                    break
        return chosen

    def _hide(
        self, ids: npt.NDArray[np.int64], counts: npt.NDArray[np.int64], seed: int, *where: int
    ) -> _Sample | None:
        """Return `ids` with a piece hidden, or None if the sentence is not suitable."""
        tokenizer = self.tokenizer
        if not _SHORTEST <= len(ids) <= self._longest or tokenizer.unk_token_id in ids:
            return None
        goes_on = np.append(tokenizer.continues[ids[1:]], False)
        candidates = np.flatnonzero(self._whole[ids] & ~goes_on)
        if not len(candidates):
            return None
        weights = np.maximum(counts[ids[candidates]], 1) ** -0.25
        draw = generator(seed, "hidden words", *where)
        position = int(draw.choice(candidates, p=weights / weights.sum()))
        masked = ids.tolist()
        truth = masked[position]
        masked[position] = self._mask_id
        frame = tokenizer.template.one
        (start,) = frame.starts([len(masked)])
        return _Sample(tuple(frame.join([masked])), start + position, truth)

    def fill(
        self, model: Model, *, top_k: int = 5, dtype: torch.dtype = torch.float32
    ) -> list[dict[str, Any]]:
        """Predict each hidden word with `model`.

        Args:
            model: with a masked-LM head, on any device; put into evaluation mode and back into its
                former mode.
            top_k: guesses to keep.
            dtype: to compute in: bf16 (by autocast) or fp32.

        Returns:
            For each sample, as JSON values: ``text`` with the ``mask`` in it, ``truth``, the
            ``truth_probability`` that the model gave to it (0 to 1), and its best ``guesses``, best
            first, each a ``token`` with its ``probability``.

        Raises:
            BertineError: the model has no masked-LM head, or too few positions or pieces.
        """
        tokenizer, config = self.tokenizer, model.config
        if "mlm" not in model.heads:
            raise BertineError("the model has no masked-LM head; use a pre-trained model")
        width = max(len(sample.input_ids) for sample in self._samples)
        if width > config.longest_input or tokenizer.vocab_size > config.vocab_size:
            raise BertineError(
                f"the mask samples have {width} pieces of a vocabulary of {tokenizer.vocab_size}, "
                f"but the model takes {config.longest_input} of {config.vocab_size}"
            )
        features = [
            Features(np.array(sample.input_ids), np.zeros(len(sample.input_ids)), row)
            for row, sample in enumerate(self._samples)
        ]
        batch = pad_features(features, tokenizer.pad_token_id, width).to(device_of(model))
        positions = torch.tensor([sample.position for sample in self._samples])
        places = torch.arange(len(self)) * width + positions
        with computing_with(model, dtype):
            encoded = model.encode(batch)
            logits = model.read("mlm", encoded, places=places.to(batch.input_ids.device))
            logits = logits[:, : tokenizer.vocab_size].float().cpu()
            probabilities = logits.softmax(-1)
        begin, behind = len(tokenizer.template.one.before), len(tokenizer.template.one.after)
        return [
            {
                "text": remove_cjk_spaces(
                    tokenizer.show(sample.input_ids[begin : len(sample.input_ids) - behind])
                ),
                "mask": tokenizer.mask_text,
                "truth": tokenizer.names[sample.truth],
                "truth_probability": float(probabilities[row, sample.truth]),
                "guesses": [
                    {
                        "token": tokenizer.names[index],
                        "probability": float(probabilities[row, index]),
                    }
                    for index in ranking(logits[row].numpy(), top_k).tolist()
                ],
            }
            for row, sample in enumerate(self._samples)
        ]


def write_samples(folder: Path, step: int, samples: list[dict[str, Any]]) -> None:
    """Write the samples of :meth:`MaskSamples.fill` after `step` steps to ``folder/samples.jsonl``.

    Lines of this and later steps are replaced: a run that was killed and resumed from an earlier
    checkpoint reaches these steps again, and each step occurs once. The file is replaced as a
    whole, so a crash leaves the old or the new one.

    Raises:
        BertineError: the file cannot be read or written.
    """
    path = folder / SAMPLES
    kept = [entry for entry in read_log(path, mend=True) if entry["step"] < step]
    entries = [*kept, {"step": step, "samples": samples}]
    write_text(path, "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in entries))


# Speed: the duration of a step on this machine, measured to plan a run that has a time limit and no
# number of steps.

#: Steps before the measurement, in which memory is allocated.
_WARM_UP = 3
#: Steps that are measured. With batches of many sizes it takes some tens of steps until most
#: products have been compiled.
_LEAST, _MOST = 3, 200
#: The most seconds of a run's time for measuring the speed, and the largest share of it.
_MEASURING, _MEASURING_SHARE = 20.0, 0.01


def seconds_per_step(
    model: Model,
    objective: Loss,
    batch: Callable[[int], Batch],
    *,
    dtype: torch.dtype,
    max_tokens_per_micro_batch: int | None = None,
    seconds: float = 10.0,
    world: DistContext | None = None,
    shard: bool = False,
    compile: bool | None = None,
    workers: int = 0,
    updates: Updates | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Measure the seconds of a training step of a copy of `model`: batch, forward and backward
    pass, update.

    The result is the median of the later half of the measured steps: the first ones have new
    shapes, for which products are compiled.

    Args:
        seconds: for the measurement, approximately; at least three steps are measured.
        world: the processes that compute a step together; all must call this, and get the first
            one's figure.
        shard: as in :func:`bertine.training.fit.fit`.
        compile, workers: as in :class:`~bertine.training.fit.FitConfig`.
        updates: the optimizer and its settings; None: AdamW.
        clock: returns the time in seconds.
    """
    world, updates = world or DistContext(), updates or Updates()
    twin = copy.deepcopy(model).train()
    device = next(twin.parameters()).device
    stepper = TrainStep(
        twin,
        objective,
        batch,
        world=world,
        dtype=dtype,
        max_tokens=max_tokens_per_micro_batch,
        shard=shard,
        compile=compile,
    )
    optimizer = optimizer_for(stepper.model, updates, dtype)
    times: list[float] = []
    ends = clock() + seconds
    steps = _WARM_UP + _MOST
    with (
        stepper.training(),
        batches_ahead(batch, 0, steps, workers=workers) as next_batch,
    ):
        for step in range(steps):
            began = clock()
            stepper.accumulate(next_batch(step), [0, step])
            optimizer.clipped_step(1e-6, 1.0)
            optimizer.zero_grad(set_to_none=True)
            wait_for(device)
            if step >= _WARM_UP:
                times.append(clock() - began)
            if len(times) >= _LEAST and world.any(clock() > ends):
                break
    return world.from_main(statistics.median(times[len(times) // 2 :]))


def steps_for_hours(
    hours: float,
    model: Model,
    objective: Loss,
    batches: Sequence[Callable[[int], Batch]],
    shares: Sequence[float],
    *,
    began: float,
    precision: str,
    world: DistContext,
    **options: Any,
) -> int:
    """Return the number of steps that this machine does in the time, if its speed stays the same.

    Args:
        hours: of the whole run, including the measurement.
        batches: of each phase, as functions of the step.
        shares: the share of all steps of each phase.
        began: the time of :func:`time.monotonic` when the time of the run began.
        precision: as in :class:`~bertine.training.fit.FitConfig`.
        options: for :func:`seconds_per_step`.
    """
    dtype = resolve_precision(precision, next(model.parameters()).device)
    measuring = min(_MEASURING, _MEASURING_SHARE * 3600 * hours) / len(batches)
    step_seconds = sum(
        share
        * seconds_per_step(
            model, objective, batch, dtype=dtype, seconds=measuring, world=world, **options
        )
        for batch, share in zip(batches, shares, strict=True)
    )
    spent = time.monotonic() - latest_beginning(began, hours)
    left = world.from_main(3600 * hours - spent)
    steps = max(1, int(left / step_seconds))
    logger.info(
        f"a step takes {1000 * step_seconds:.0f} ms at present: about {steps:,} steps in the time"
    )
    return steps


def latest_beginning(began: float, hours: float) -> float:
    """Return when the time of a run began: at `began`, or later if the preparation took more than
    half of the time, so that half is left for training."""
    return max(began, time.monotonic() - 1800 * hours)


# Read the result of a pre-training run from its folder.

#: With fewer lines than this, a log has no curve to show, so no page is written.
_PAGE_FROM = 20


@dataclass(frozen=True, repr=False)
class PretrainResult(Report):
    """The result of a pre-training run.

    Attributes:
        model: the model directory.
        final: the last line of the log about training (losses in nats, accuracies as shares).
        held_out: the last evaluation on held-out text; empty if there was none.
        unigram_entropy: of the store, in nats: the loss of a model that knows the frequency of each
            piece and nothing else.
        kept: share of the chosen tokens that were left unchanged.
        findings: the findings of the diagnosis of the log.
        page: the HTML report; None for a run too short to draw.
        best: the best evaluation on held-out text; its checkpoint is kept.
        best_saved: whether the model directory has the weights of that one, not the last.
        main: the term by which the model is judged (:data:`bertine.core.loss_names.TERMS`).
        generator: the model directory of the generator; None if none was kept.
    """

    model: Path
    final: dict[str, Any]
    held_out: dict[str, float]
    unigram_entropy: float
    kept: float
    findings: list[Finding]
    page: Path | None = None
    best: Best | None = None
    best_saved: bool = False
    main: str = "mlm"
    generator: Path | None = None

    def _verdict(self, name: str) -> str:
        """Compare the loss of a term whose targets are words with the entropy of word
        frequencies."""
        loss, entropy = self.final[f"{name}_loss"], self.unigram_entropy
        # A model without context can still copy the chosen tokens that were left unchanged.
        kept = self.kept if TERMS[name].copied else 0.0
        if loss < (1.0 - kept) * entropy - AT_LEVEL:
            return f"{entropy - loss:.2f} nats below the unigram entropy {entropy:.2f}"
        if loss > entropy + AT_LEVEL:
            return (
                f"{loss - entropy:.2f} nats above the unigram entropy {entropy:.2f}: it does not "
                "even know how frequent each piece is; train longer, or with another rate"
            )
        if kept == 1.0:
            return f"unigram entropy {entropy:.2f}; every chosen token is there to be copied"
        return (
            f"unigram entropy {entropy:.2f}: it knows frequencies only; train longer, or with a "
            "higher rate"
        )

    def _losses(self) -> list[str]:
        """List the terms whose losses are printed: the main one, and those of predicting words."""
        of_words = [name for name in terms_among(self.final) if TERMS[name].words]
        return list(dict.fromkeys((self.main, *of_words)))

    def lines(self) -> list[str]:
        """Return what the command prints at the end."""
        end, names = self.final, self._losses()
        lines = [f"saw {human_count(end['tokens'])} tokens in {human_time(end['elapsed'])}"]
        for name in names:
            verdict = f" ({self._verdict(name)})" if TERMS[name].words else ""
            lines.append(f"{TERMS[name].title} loss {end[f'{name}_loss']:.3f}{verdict}")
        lines += [", ".join(_accuracies(end)), *_guessing(end)]
        if self.held_out:
            held = self.held_out
            facts = []
            for name in names:
                facts.append(f"{TERMS[name].title} loss {held[f'{name}_loss']:.3f}")
                if f"{name}_perplexity" in held:
                    facts.append(f"perplexity {held[f'{name}_perplexity']:.1f}")
            lines.append(f"held-out text: {', '.join(facts + _accuracies(held))}")
        if self.best is not None:
            lines.append(
                f"best on held-out text: after step {self.best.step}, "
                f"{score_name(self.best.metric)} {self.best.value:.3f}; "
                + ("its weights are the model's" if self.best_saved else "its checkpoint is kept")
            )
        lines += [str(finding) for finding in self.findings]
        if self.page is not None:
            lines.append(f"report: {self.page}")
        if self.generator is not None:
            lines.append(f"generator: {self.generator}")
        return [*lines, f"model: {self.model}"]

    def next_lines(self) -> list[str]:
        """Return the command to run next: a language model is fine-tuned."""
        model = {"model": str(self.model.parent), "data": "DATA.csv", "out": "RUN"}
        return ["next:", f"  {finetune_command('text', model)}"]


def _accuracies(scores: Mapping[str, Any]) -> list[str]:
    """Describe how many targets of each term were predicted correctly."""
    return [
        f"{term.title} accuracy {scores[f'{name}_accuracy']:.1%}"
        for name, term in TERMS.items()
        if f"{name}_accuracy" in scores
    ]


def _guessing(scores: Mapping[str, Any]) -> list[str]:
    """Describe, for terms with a rare answer, how many targets have it, how many of these were
    detected, and the accuracy of guessing."""
    lines = []
    for name, term in TERMS.items():
        if rarer := rarer_answers(name, scores):
            share, detected, guessed = rarer
            lines.append(
                f"{term.title}: {share:.1%} of the {term.targets} were {term.rarer}, "
                f"{detected:.1%} of these detected; guessing gives an accuracy of {guessed:.1%}"
            )
    return lines


def _lines(run: Run, main: str) -> list[dict[str, Any]]:
    """Read the log, with the names of its terms."""
    log = read_log(run.folder / "log.jsonl")
    return [dict(line) for line in pretraining_names(log, main)]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def last_line(run: Run, objective: str) -> dict[str, Any]:
    """Return the last line of the log about training.

    Args:
        objective: of the run.

    Raises:
        BertineError: it has none.
    """
    main = main_term(objective)
    needed = ("tokens", "elapsed", f"{main}_loss")
    complete = [line for line in _lines(run, main) if all(_is_number(line.get(k)) for k in needed)]
    if not complete:
        raise BertineError(
            f"{run.folder / 'log.jsonl'}: has no line about training; put it back, or delete the "
            f"newest folder in {run.checkpoints} and go on from the one before"
        )
    return complete[-1]


def result_of(
    run: Run, store: TokenStore, kept: float, world: DistContext, *, objective: str
) -> PretrainResult:
    """Read the result of a finished run; all processes must call it."""
    main = main_term(objective)

    def look() -> tuple[int, dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any] | None]:
        log = _lines(run, main)
        evaluations = [line for line in log if f"eval_{main}_loss" in line]
        training = TaskInfo.read(run.model / TASK).training
        best = recorded_best(run.checkpoints)
        fields = None if best is None else best.to_dict()
        return (
            len(log),
            last_line(run, objective),
            evaluations[-1] if evaluations else {},
            training,
            fields,
        )

    lines, final, held, training, best = world.alone(look)
    page = report(run.folder) if lines >= _PAGE_FROM and world.main else None
    return PretrainResult(
        run.model,
        final,
        {key.removeprefix("eval_"): v for key, v in held.items() if key.startswith("eval_")},
        store.unigram_entropy,
        kept,
        [] if page is None else page.findings,
        None if page is None else page.path,
        None if best is None else Best(**best),
        bool(training.get("save_best")),
        main,
        run.generator if run.generator.is_dir() else None,
    )
