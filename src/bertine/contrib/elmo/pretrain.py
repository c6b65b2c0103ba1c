"""Pre-train ELMo on a corpus: ``pretrain_elmo``, with its windows and its training loop."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bertine.contrib.elmo.files import load_elmo, read_elmo_config, save_elmo
from bertine.contrib.elmo.model import (
    DIRECTIONS,
    PRESETS,
    BidirectionalLm,
    ElmoConfig,
    LstmStates,
    SampledWords,
    WordSoftmax,
    sample_words,
)
from bertine.contrib.elmo.perplexity import (
    SPECIAL,
    UNKNOWN,
    Perplexity,
    Windows,
    WordCorpus,
    encoded_words,
    perplexity,
    read_words,
    stream_of,
    vocabulary_of,
)
from bertine.contrib.options import ElmoOptions
from bertine.contrib.recognize import elmo_folder
from bertine.core import rng
from bertine.core.console import Report, human_count, human_time, log_all, logger
from bertine.core.errors import BertineError
from bertine.core.names import option
from bertine.core.process import check_memory, keep_freed_memory
from bertine.models.heads import weights_fingerprint
from bertine.models.precision import autocast, resolve_device, resolve_precision, seeded, torch_seed
from bertine.options.data import CorpusReading
from bertine.options.verbs import takes_options
from bertine.reports.run_files import read_log
from bertine.tokenization.documents import Corpus
from bertine.tokenization.sentences import check_language
from bertine.training.adamw import gradients_of
from bertine.training.checkpoint import Interrupt, load_checkpoint, save_checkpoint, stop_requested
from bertine.training.computing import computing_of_run
from bertine.training.display import Display, Tracker
from bertine.training.distributed import DistContext
from bertine.training.run_folder import Run

# Windows: cut a corpus into training batches for both directions.
#
# Shape legend: W words of the corpus with one mark for each sentence; B rows, T places of a window.


class BothWays:
    """The training windows of a corpus: each row continues in the next window where it ended in
    this one.

    In an epoch the documents are shuffled and concatenated, in B rows of equal length. A rest that
    does not fill a window is left to other epochs, which cut at other places. For the backward
    direction the sentences come in the same order, each reversed (published code: ``LMDataset``
    with ``reverse``).

    Args:
        corpus: the words.
        vocabulary: the words that can be targets.
        rows, window: B and T.
        seed: of the order of documents.

    Raises:
        BertineError: there is too little text for one window.
    """

    def __init__(
        self,
        corpus: WordCorpus,
        vocabulary: Sequence[str],
        *,
        rows: int,
        window: int,
        seed: int,
    ) -> None:
        self.corpus, self.rows, self.window, self.seed = corpus, rows, window, seed
        known = {word: at for at, word in enumerate(vocabulary)}
        unknown = known[UNKNOWN]
        self._ids = np.array([known.get(word, unknown) for word in corpus.types], dtype=np.int64)
        self.steps_of_epoch = corpus.num_targets // rows // window
        if not self.steps_of_epoch:
            raise BertineError(
                f"the corpus has {corpus.num_targets:,} words and ends of sentences, too few for a "
                f"window of {window} in {rows} rows; lower batch_size or give more text"
            )
        self._epoch = -1
        self._streams: dict[str, tuple[np.ndarray, np.ndarray]] = {}

    @property
    def unknown_share(self) -> float:
        """The share of the words that are not in the vocabulary."""
        return float((self._ids[self.corpus.words] == SPECIAL.index(UNKNOWN)).mean())

    def at(self, step: int) -> dict[str, Windows]:
        """Return the windows of a step, by direction; they depend only on data, seed and step."""
        epoch, place = divmod(step, self.steps_of_epoch)
        if epoch != self._epoch:
            self._streams, self._epoch = self._laid_out(epoch), epoch
        here = slice(place * self.window, (place + 1) * self.window)
        return {
            direction: Windows(inputs[:, here].T.copy(), targets[:, here].T.copy())
            for direction, (inputs, targets) in self._streams.items()
        }

    def _laid_out(self, epoch: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Return inputs and targets of an epoch, [B, steps * T] each, by direction."""
        documents = [0, *self.corpus.documents.tolist()]
        draw = rng.generator(self.seed, "documents of ELMo", epoch)
        order = draw.permutation(len(documents) - 1)
        sentences = np.concatenate(
            [np.arange(documents[at], documents[at + 1], dtype=np.int64) for at in order]
        )
        width = self.steps_of_epoch * self.window
        spare = self.corpus.num_targets - self.rows * width
        begin = int(draw.integers(0, spare + 1))
        streams = {}
        for direction in ("forward", "backward"):
            inputs, targets = stream_of(self.corpus, self._ids, sentences, direction)
            kept = slice(begin, begin + self.rows * width)
            streams[direction] = (
                inputs[kept].reshape(self.rows, width),
                targets[kept].reshape(self.rows, width),
            )
        return streams


# The learner: the model, the softmax of both directions, and the state carried from batch to batch,
# in one module so that a checkpoint contains all of it.
#
# Shape legend: B rows, T places of a window, N = T B words, L LSTMs of a direction, P width of a
# state.


class ElmoLearner(nn.Module):
    """The module that is trained, with the state that it carries from batch to batch.

    Args:
        model: the two language models.
        softmax: the softmax of both directions.
        types: words by their numbers in the corpus.
        rows: B.
    """

    def __init__(
        self, model: BidirectionalLm, softmax: WordSoftmax, types: Sequence[str], rows: int
    ) -> None:
        super().__init__()
        self.model, self.softmax, self.types = model, softmax, types
        device = next(model.parameters()).device
        zero = {name: LstmStates.zero(model.config, rows, device) for name in DIRECTIONS}
        # Parameters, so that checkpoints contain them; they are not trained.
        self.carried = nn.ParameterDict(
            {
                f"{direction}_{part}": nn.Parameter(getattr(state, part), requires_grad=False)
                for direction, state in zero.items()
                for part in ("states", "cells")
            }
        )

    def learned(self) -> list[nn.Parameter]:
        """Return the weights that are trained."""
        return [parameter for parameter in self.parameters() if parameter.requires_grad]

    def losses(
        self,
        windows: dict[str, Windows],
        sampled: SampledWords | None,
        seed: int,
        step: int,
        dtype: torch.dtype,
    ) -> dict[str, Tensor]:
        """Compute the mean loss of each direction, and store the final states of the rows.

        Args:
            sampled: the words to compare with; None: all.
            seed, step: of the dropout.
            dtype: to compute in.
        """
        config = self.model.config
        device = next(self.parameters()).device
        with autocast(dtype, device):
            words = encoded_words(self.model, self.types, windows)
        losses = {}
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            torch.manual_seed(torch_seed(seed, "dropout of ELMo", step))
            for direction in DIRECTIONS:
                window = windows[direction]
                x = words[direction]
                masks = None
                if config.dropout:
                    masks = _masks(config.num_hidden_layers + 1, x, config.dropout)
                begin = LstmStates(
                    self.carried[f"{direction}_states"], self.carried[f"{direction}_cells"]
                )
                sizes = [window.inputs.shape[1]] * window.inputs.shape[0]
                targets = torch.from_numpy(window.targets).flatten().to(device)
                with autocast(dtype, device):
                    outputs, end = self.model.read(direction, x, sizes, begin, masks)
                    out = outputs[-1] if masks is None else outputs[-1] * masks[-1]
                    if sampled is None:
                        total = self.softmax.full_loss(out, targets)
                    else:
                        total = self.softmax.sampled_loss(out, targets, sampled)
                losses[direction] = total / len(targets)
                self.carried[f"{direction}_states"].data.copy_(end.states)
                self.carried[f"{direction}_cells"].data.copy_(end.cells)
        return losses


def _masks(count: int, x: Tensor, rate: float) -> list[Tensor]:
    keep = torch.empty(count, *x.shape, device=x.device).bernoulli_(1 - rate)
    return list((keep / (1 - rate)).unbind(0))


#: Bytes per weight in training: the weight, its gradient and Adagrad's sum.
_TRAINED = 12
#: With at least this many words for each negative, a sampled softmax costs less than the full one.
_WORTH_SAMPLING = 4


@dataclass(repr=False)
class ElmoResult(Report):
    """The result of pre-training an ELMo.

    Attributes:
        model: its directory.
        steps: the number of steps of training.
        words: the number of words of the corpus.
        vocabulary: the number of words of the softmax.
        loss: mean of the last logged steps, of both directions.
        held_out: the loss on the held-out text; None if no text was held out.
        seconds: of training.
        notes: further notes.
    """

    model: Path
    steps: int
    words: int
    vocabulary: int
    loss: float
    held_out: Perplexity | None
    seconds: float
    notes: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Return the lines to print in the terminal."""
        lines = [
            f"{self.steps:,} steps over {human_count(self.words)} words in "
            f"{human_time(self.seconds)}; loss {self.loss:.3f}"
        ]
        if self.held_out is not None:
            scores = self.held_out.scores()
            lines.append(
                f"held-out perplexity {scores['perplexity']:.2f} (forwards "
                f"{scores['forward_perplexity']:.2f}, backwards "
                f"{scores['backward_perplexity']:.2f}) over {self.held_out.words:,} words, "
                f"{self.held_out.unknown:.1%} of them not among the {self.vocabulary:,} of the "
                "softmax"
            )
        return [*lines, *self.notes, f"model: {self.model}"]


@takes_options()
def pretrain_elmo(
    corpus: Sequence[Path | str] | Path | str,
    *,
    model: Path | str,
    out: Path | str,
    options: ElmoOptions,
) -> ElmoResult:
    """Train ELMo: a forward and a backward language model (Peters et al. 2018, section 3.1).

    The defaults are the published settings: the characters of words as input, a softmax over the
    words of the corpus for the next word, state carried from batch to batch, Adagrad.

    Args:
        corpus: files or folders of text, as :func:`~bertine.train_vocab` reads them; held in memory
            as numbers, 4 bytes a word.
        model: a size by name (elmo-tiny, elmo-mini, elmo-small, elmo-medium, elmo-original), a
            ``config.json`` with custom sizes, or an ELMo to continue from. If that ELMo was trained
            here, its softmax is kept; a published one gets a new softmax.
        out: the run's folder; the model directory is ``out/model``.
        options: the values of the other arguments.

    Raises:
        BertineError: no such model or corpus, or too little text; `out` holds another run; more
            negatives than words; a loss that is not finite.
    """
    began = time.monotonic()
    Run.check(out, options.resume)
    if note := check_language(options.language):
        logger.warning(note)
    device = resolve_device(options.device)
    reading = CorpusReading.of(options).values()
    result = _read(corpus, options, reading)
    config, start, vocabulary = _start(model, result, options)
    log_all(result.notes, logger.warning)
    data = BothWays(
        result, vocabulary, rows=options.batch_size, window=options.window, seed=options.seed
    )
    sampled = _is_sampled(options, len(vocabulary))
    held = None if options.held_out is None else _read(options.held_out, options, reading)
    total = config.num_parameters + len(vocabulary) * (config.projection_size + 1)
    check_memory(f"{model}: a model of {total:,} parameters to be trained ", _TRAINED * total)
    lm, softmax = start[0].to(device), start[1].to(device)
    computing = computing_of_run(
        out,
        options.precision,
        options.resume,
        lm,
        DistContext(device=device),
        options.batch_size,  # an LSTM multiplies one place of each row at a time
    )
    steps = options.steps or max(1, math.ceil(options.epochs * data.steps_of_epoch))
    settings = {
        **{
            name: value
            for name, value in options.values().items()
            if name not in {*CorpusReading().values(), "resume", "device", "epochs", "held_out"}
        },
        "task": "elmo",
        "steps": steps,
        "softmax": "sampled" if sampled else "full",
        "precision": computing.precision,
        **computing.facts,
        "device": device.type,
        "architecture": config.to_dict(),
        "model_path": str(model),
        "weights_fingerprint": weights_fingerprint(lm) + weights_fingerprint(softmax),
        "corpus_fingerprint": result.fingerprint(),
        "held_out_fingerprint": None if held is None else held.fingerprint(),
    }
    with Run.open(out, settings, options.resume) as run:
        logger.info(
            f"{human_count(total)} parameters, {human_count(len(result.words))} words "
            f"({len(result.types):,} different, {data.unknown_share:.1%} not in the softmax of "
            f"{len(vocabulary):,}); {steps:,} steps of {options.batch_size} x {options.window} "
            f"words ({steps / data.steps_of_epoch:.2g} epochs), "
            f"{'sampled' if sampled else 'full'} softmax"
        )
        learner = ElmoLearner(lm, softmax, result.types, options.batch_size)
        if run.finished:
            logger.info(f"{run.folder}: the run was finished already")
            loaded = load_elmo(run.model)
            assert loaded.softmax is not None
            lm, softmax = loaded.model.to(device), loaded.softmax.to(device)
        else:
            dtype = resolve_precision(computing.precision)
            _Training(learner, data, options, run, steps, sampled, dtype).train(
                vocabulary, held, config
            )
            save_elmo(run.model, lm, softmax, vocabulary, training=settings)
        score = None if held is None else perplexity(lm.eval(), softmax, vocabulary, held)
        losses = [line for line in read_log(run.folder / "log.jsonl") if "loss" in line]
        return ElmoResult(
            run.model,
            losses[-1]["step"],
            len(result.words),
            len(vocabulary),
            losses[-1]["loss"],
            score,
            time.monotonic() - began,
        )


def _read(
    paths: Sequence[Path | str] | Path | str, options: ElmoOptions, reading: dict[str, Any]
) -> WordCorpus:
    corpus = Corpus(paths, **reading)
    corpus.check_options()
    return read_words(corpus, options.word_splitting, options.language)


def _start(
    model: Path | str, corpus: WordCorpus, options: ElmoOptions
) -> tuple[ElmoConfig, tuple[BidirectionalLm, WordSoftmax], list[str]]:
    """Return the configuration, the model and softmax to train, and the words of the softmax.

    Raises:
        BertineError: no such size or model, or a model that splits words in another way.
    """
    words = vocabulary_of(corpus, options.min_count, options.vocab_size)
    loaded = None
    if str(model) in PRESETS:
        config = PRESETS[str(model)]
    elif Path(model).is_file():
        config = read_elmo_config(Path(model))
    elif elmo_folder(model) is not None:
        loaded = load_elmo(model)
        config = loaded.model.config
        if loaded.softmax is not None:
            words = loaded.words
            if config.word_splitting != options.word_splitting:
                raise BertineError(
                    f"{model}: was trained with word_splitting {config.word_splitting}; choose the "
                    f"same ({option('word_splitting', config.word_splitting)})"
                )
    else:
        raise BertineError(
            f"{model}: is neither a size ({', '.join(PRESETS)}), nor a config.json, nor a folder "
            "of an ELMo"
        )
    config = dataclasses.replace(
        config,
        vocab_size=len(words),
        word_splitting=options.word_splitting,
        dropout=config.dropout if options.dropout is None else options.dropout,
    )
    with seeded(options.seed, "weights of ELMo"):
        lm, softmax = BidirectionalLm(config), WordSoftmax(config)
    if loaded is not None:
        lm.load_state_dict(loaded.model.state_dict())
        if loaded.softmax is not None:
            softmax.load_state_dict(loaded.softmax.state_dict())
    return config, (lm, softmax), words


def _is_sampled(options: ElmoOptions, words: int) -> bool:
    """Return whether the softmax is over a sample of the words.

    Raises:
        BertineError: there are fewer words than the sample needs.
    """
    if options.softmax == "sampled" and options.negatives >= words:
        raise BertineError(
            f"negatives is {options.negatives:,}, but the vocabulary has {words:,} words; lower "
            f"it, or choose {option('softmax', 'full')}"
        )
    if options.softmax == "auto":
        return words > _WORTH_SAMPLING * options.negatives
    return options.softmax == "sampled"


class _Training:
    """A training run: its state, and the work of each step."""

    def __init__(
        self,
        learner: ElmoLearner,
        data: BothWays,
        options: ElmoOptions,
        run: Run,
        steps: int,
        sampled: bool,
        dtype: torch.dtype,
    ) -> None:
        keep_freed_memory()
        self.learner, self.data, self.options, self.run = learner, data, options, run
        self.steps, self.sampled, self.dtype = steps, sampled, dtype
        self.optimizer = torch.optim.Adagrad(
            learner.learned(), lr=options.learning_rate, initial_accumulator_value=1.0
        )
        self.done, self.elapsed = 0, 0.0
        self.sums = {"forward": 0.0, "backward": 0.0, "steps": 0.0}
        if run.checkpoint is not None:
            state = load_checkpoint(run.checkpoint, learner, self.optimizer)
            self.done, self.elapsed = state["step"], state["elapsed"]
            self.sums = state["meter"]

    def train(self, vocabulary: Sequence[str], held: WordCorpus | None, config: ElmoConfig) -> None:
        """Do all remaining steps."""
        options = self.options
        self.learner.train()
        tracker = Tracker(self.run.folder, resume_step=self.done, tensorboard=options.tensorboard)
        words = options.batch_size * options.window
        try:
            with Interrupt() as interrupt, Display("elmo", self.steps, self.done) as display:
                if self.done:
                    display.note(f"resumed from {self.run.checkpoint}")
                over = self.done >= self.steps
                while not over:
                    began = time.perf_counter()
                    norm = self._step()
                    self.elapsed += time.perf_counter() - began
                    self.done += 1
                    over = self.done >= self.steps or stop_requested(self.done)
                    if self.done % options.log_every == 0 or over:
                        entry = self._entry(norm, words)
                        tracker.log(entry)
                        display.update(
                            self.done,
                            {
                                "loss": f"{entry['loss']:.3f}",
                                "words/s": human_count(entry["words_per_second"]),
                            },
                        )
                    else:
                        display.update(self.done)
                    every = options.evaluate_every
                    if held is not None and every and self.done % every == 0:
                        learner = self.learner
                        score = perplexity(learner.model, learner.softmax, vocabulary, held)
                        scores = score.scores()
                        evaluated = {f"eval_{name}": value for name, value in scores.items()}
                        tracker.log({"step": self.done, **evaluated})
                        display.note(
                            f"step {self.done}: held-out perplexity {scores['perplexity']:.2f}"
                        )
                    stop = interrupt.requested
                    every = options.checkpoint_every
                    if every and (self.done % every == 0 or stop):
                        tracker.sync()
                        self._save()
                    if stop:
                        if every:
                            display.note(
                                f"stopped after step {self.done}; go on with "
                                f"{option('resume', True)}"
                            )
                        raise KeyboardInterrupt
        finally:
            tracker.close()

    def _step(self) -> float:
        """Update the weights once; return the norm of the gradients."""
        options, step = self.options, self.done
        sampled = (
            sample_words(
                self.learner.softmax.weight.shape[0], options.negatives, options.seed, step
            )
            if self.sampled
            else None
        )
        losses = self.learner.losses(self.data.at(step), sampled, options.seed, step, self.dtype)
        both = (losses["forward"] + losses["backward"]) / 2
        # As published: the rate is for the loss summed over a window, not for the mean per word.
        (both * options.window).backward()
        values = {name: float(loss.detach()) for name, loss in losses.items()}
        if not all(math.isfinite(value) for value in values.values()):
            raise BertineError(
                f"the loss of step {step + 1} is {values}, not a number; lower learning_rate"
            )
        norm = clip(self.learner.learned(), options.max_grad_norm)
        # Set explicitly, so that PyTorch does not warn that it is not set.
        with torch.sparse.check_sparse_tensor_invariants(False):
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        for name, value in values.items():
            self.sums[name] += value
        self.sums["steps"] += 1
        return norm

    def _entry(self, norm: float, words: int) -> dict[str, Any]:
        """Return the next line of the log."""
        steps = self.sums["steps"]
        forward, backward = self.sums["forward"] / steps, self.sums["backward"] / steps
        self.sums = {"forward": 0.0, "backward": 0.0, "steps": 0.0}
        return {
            "step": self.done,
            "loss": (forward + backward) / 2,
            "forward_loss": forward,
            "backward_loss": backward,
            "grad_norm": norm,
            "tokens": self.done * words,
            "elapsed": self.elapsed,
            "words_per_second": self.done * words / max(self.elapsed, 1e-9),
        }

    def _save(self) -> None:
        state = {
            "step": self.done,
            "tokens": self.done * self.options.batch_size * self.options.window,
            "elapsed": self.elapsed,
            "meter": self.sums,
            "best": None,
        }
        keep = self.options.keep_checkpoints
        save_checkpoint(self.run.checkpoints, self.learner, self.optimizer, state, keep)


@torch.no_grad()
def clip(parameters: Sequence[Tensor], most: float) -> float:
    """Scale all gradients, including sparse ones, so that their common norm is at most `most` (0:
    no scaling); return the norm before scaling."""
    gradients = gradients_of(parameters)
    norm = float(torch.stack([gradient.norm() for gradient in gradients]).norm())
    if 0 < most < norm:
        for gradient in gradients:
            gradient.mul_(most / norm)
    return norm
