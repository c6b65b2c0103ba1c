"""Train a model for sentence vectors: ``finetune_similarity``, with its rows, scores and result."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from bertine.core.console import log_all, logger, plural, progress
from bertine.core.errors import BertineError
from bertine.core.files import read_json_object, scratch_dir, write_json
from bertine.core.model_folders import locate, recorded_model
from bertine.core.names import PairKind, option
from bertine.core.task_info import TaskInfo
from bertine.data.examples import ROWS, find_splits, row_number, rows_as_facts, share_of
from bertine.data.in_memory import Data, TableLike, as_data
from bertine.data.languages import model_for
from bertine.data.published import data_of_run, recorded_data
from bertine.data.text_pairs import KINDS, PairColumns, PairRow, PairRows
from bertine.hub.model_directory import LoadedModel, load_model, save_model
from bertine.inference.embedding.embedder import Embedder
from bertine.inference.embedding.evaluate_vectors import JUDGED, SimilarityReport
from bertine.inference.train_overlap import START, overlap_line, rows_known_by
from bertine.models.config_file import SentenceModules, read_sentence_modules
from bertine.models.precision import resolve_device
from bertine.options.vectors import SimilarityOptions
from bertine.options.verbs import takes_options
from bertine.reports.run_files import read_log
from bertine.tokenization.sentences import iter_sentences
from bertine.training.checkpoint import Choice, load_best
from bertine.training.computing import computing_of_run
from bertine.training.defaults import pairs_in_batch, similarity_config
from bertine.training.display import Display
from bertine.training.distributed import DistContext
from bertine.training.fit import FitConfig
from bertine.training.run_folder import Run
from bertine.training.similarity.data import (
    HeldOut,
    MinedNegatives,
    PairFile,
    PairSampler,
    hold_out,
)
from bertine.training.similarity.fitting import (
    Evaluator,
    SimilarityResult,
    check_lengths,
    train_on_pairs,
    training_rows,
    validation_rows,
    with_model,
)
from bertine.training.similarity.objective import PairLoss

#: The file of a run with its scores.
SCORES = "scores.json"
#: One in this many pairs is held out if no validation file is given, up to the second number.
_HELD_OUT, _MOST_HELD_OUT = 10, 2000
#: Fewer held-out pairs than this are not used for evaluation.
_LEAST_HELD_OUT = 20
#: The kinds of rows with more information than their texts: which belong together, or how similar
#: they are.
_SAY_MORE = ("pairs", "scores", "labels")


def _neighbours(rows: PairRows) -> Iterator[PairRow]:
    """Yield the pairs of neighbouring sentences of each text."""
    for row in rows:
        last = None
        for sentence in iter_sentences(row.texts[0]):
            if last is not None:
                yield PairRow(row.line, (last, sentence))
            last = sentence


def _number_of(row: PairRow) -> int:
    """Return the number of a text or a pair; adding texts that do not match does not change it."""
    return row_number(replace(row, texts=row.texts[:2]))


@dataclass(eq=False)
class SimilarityRun:
    """A run, from its rows to its model directory.

    Attributes:
        row: the word for a row.
        judging: the kinds of rows of which some are held out.
        title: of the display.
    """

    row: ClassVar[str] = "pair"
    judging: ClassVar[tuple[PairKind, ...]] = JUDGED
    title: ClassVar[str] = "similarity"

    folder: Path
    options: SimilarityOptions
    embedder: Embedder
    modules: SentenceModules | None
    columns: PairColumns
    loss: PairLoss
    start: Path

    def __post_init__(self) -> None:
        self.kind: PairKind = self.columns.kind
        self.notes: list[str] = []
        self.rows = array("I")
        self.judge: Evaluator | None = None
        self.report: SimilarityReport | None = None
        where, options = resolve_device(self.options.device), self.options
        self.device, world = where.type, DistContext(device=where)
        self.computing = computing_of_run(
            self.folder, options.precision, options.resume, self.embedder.model, world
        )
        self.precision = self.computing.precision

    @property
    def metric(self) -> str:
        """The score that decides; empty without evaluation."""
        return "" if self.judge is None else self.judge.metric

    def read(self, rows: PairRows, scratch: Path) -> PairFile:
        """Tokenize the rows into the scratch folder."""
        pairs = _neighbours(rows) if self.kind == "sentences" else rows
        with progress() as bar:
            job = bar.add_task("read", total=None)

            def counted_rows() -> Iterator[PairRow]:
                for row in pairs:
                    bar.advance(job)
                    if self.kind in _SAY_MORE:
                        self.rows.append(_number_of(row))
                    yield row

            file = PairFile(scratch).write(counted_rows(), self.embedder)
        log_all(rows.notes(), logger.warning)
        if file.cut:
            cut = plural(file.cut, "text", "is", "are")
            self.notes.append(f"{cut} cut at {self.embedder.max_length} pieces")
        if file.unknown is not None and (line := file.unknown.note()):
            logger.warning(f"{rows.source}: {line}")
        if len(file) < 2:
            raise BertineError(f"{rows.source}: needs at least two rows to learn from")
        if self.kind == "scores" and not file.low < file.high:
            raise BertineError(f"{rows.source}: all scores are equal, so there is nothing to learn")
        return file

    def train(
        self, file: PairFile, scratch: Path, judged: PairRows | None, model: str, data: Data
    ) -> SimilarityResult:
        """Train, evaluate and save."""
        options = self.options
        held = HeldOut() if judged is not None else self._hold_out(file)
        mined = None
        if options.mine_negatives:
            mined = self._mine(file, scratch, held.rows.tolist())
        draws = PairSampler(
            file,
            self.kind,
            batch_size=pairs_in_batch(options, self.kind),
            seed=options.seed,
            held=held,
            mined=mined,
        )
        if draws.labels is not None:
            logger.info(
                f"{plural(len(file.labels), 'label')}: {draws.labels.alike:,} pairs of texts with "
                f"the same label, {draws.labels.different:,} with different ones; they are drawn "
                "as they are needed"
            )
            if draws.labels.different == 0:
                raise BertineError(f"{data}: all texts have one label, so none is unlike another")
        config, every = similarity_config(
            options, self.embedder.model.config, len(file), draws.steps_per_epoch, self.precision
        )
        self._judge_by(judged, file, held.rows.tolist())
        known = rows_known_by(self.start)
        self._note_seen(judged, held.rows.tolist(), known)
        settings = self._settings(file, config, every, draws, model, data)
        began = time.monotonic()
        with Run.open(self.folder, settings, options.resume) as run:
            if run.finished:
                logger.info(f"{run.folder}: the run was finished already")
                return self._known(run, file, len(held))
            self._prepare(run)
            try:
                before = self._before()
            except BaseException:
                if run.checkpoint is None:
                    run.discard()
                raise
            self._fit(
                draws,
                config=config,
                run=run,
                title=self.title,
                evaluate=None if self.judge is None else self._evaluate,
                evaluate_every=every,
                choose=Choice(self.metric, highest=True) if self.judge else None,
            )
            after, steps = self._take_best(run, config.steps)
            kept_start = bool(after) and after[self.metric] <= before[self.metric]
            if kept_start:
                after, steps = before, 0
                self._take_start()
            shortened = self._shortened()
            elapsed = [
                line["elapsed"] for line in read_log(run.folder / "log.jsonl") if "elapsed" in line
            ]
            seconds = float(elapsed[-1]) if elapsed else time.monotonic() - began
            facts = {**settings, "elapsed": seconds, "environment": run.environment}
            rows = np.array(self.rows, dtype=np.uint32)
            own = np.unique(np.delete(rows, held.rows) if len(rows) else rows)
            facts[ROWS] = rows_as_facts(own, known)
            if after:
                count = 0 if self.report is None else self.report.num_examples
                facts["evaluation"] = {"num_examples": count, "metrics": after}
            info = TaskInfo(
                "similarity",
                text_columns=self.columns.texts,
                max_length=self.embedder.max_length,
                metrics=(self.metric,) if self.judge else (),
                training=facts,
            )
            result = SimilarityResult(
                run.model, self.kind, len(file) - len(held), steps, before, after, self.metric,
                seconds, kept_start, self.notes, shortened,
            )  # fmt: skip
            write_json(run.folder / SCORES, {
                "step": steps, "before": before, "final": after, "seconds": seconds,
                "rows": result.rows, "kept_start": kept_start,
                "shortened": {str(length): value for length, value in shortened.items()},
            })  # fmt: skip
            save_model(
                run.model,
                self.embedder.model,
                self.embedder.tokenizer,
                task=info,
                modules=self._modules(),
            )
            run.remove_checkpoints()
            return result

    def _prepare(self, run: Run) -> None:
        """Make what training needs in the folder of the run; nothing here."""

    def _fit(self, draws: PairSampler, **training: Any) -> None:
        """Train on the rows of each step; see :func:`train_on_pairs`."""
        train_on_pairs(self.embedder, draws, loss=self.loss, **training)

    def _hold_out(self, file: PairFile) -> HeldOut:
        """Return the rows that are held out for validation; none if they would not judge vectors,
        or if they would be too few for an evaluation."""
        asked, row = self.options.held_out_pairs, self.row
        name = f"held_out_{row}s"
        count = min(len(file) // _HELD_OUT, _MOST_HELD_OUT) if asked is None else asked
        if self.kind not in self.judging:
            if asked:
                raise BertineError(
                    f"{option(name, asked)} is for pairs; these are "
                    f"{KINDS[self.kind]}, so give {option('validation', 'FILE')}"
                )
            return HeldOut()
        if asked and asked > len(file) - 2:
            raise BertineError(
                f"{option(name, asked)} leaves too few of {plural(len(file), row)} to train on"
            )
        if count < _LEAST_HELD_OUT and not asked:
            if asked is None:
                logger.warning(
                    f"{plural(len(file), row, 'is', 'are')} too few to hold a tenth out, so "
                    f"nothing judges the vectors; give {option('validation', 'FILE')}, or "
                    f"{option(name, 10)}"
                )
            return HeldOut()
        least = min(count, _LEAST_HELD_OUT)
        held = hold_out(file.pair_column(), count, least, self.options.seed)
        if not held.apart:
            logger.warning(
                f"nearly all {row}s are connected by texts that they have in common, so texts of "
                f"the {row}s held out are trained on too; for a score of new texts give "
                f"{option('validation')}"
            )
        return held

    def _mine(self, file: PairFile, scratch: Path, held: list[int]) -> MinedNegatives:
        mined = MinedNegatives(scratch / "mined.bin", self.options.mine_negatives)
        with progress() as bar:
            job = bar.add_task("look for negatives", total=len(file))
            mined.mine(
                file,
                with_model(self.embedder, self.precision),
                margin=self.options.negative_max_ratio,
                seed=self.options.seed,
                held=held,
                advance=lambda count: bar.advance(job, count),
            )
        logger.info(
            f"mined {mined.found / max(1, len(file)):.1f} negatives a pair; skipped "
            f"{plural(mined.skipped, 'text')} nearly as near as the match, or nearer"
        )
        return mined

    def _judge_by(self, rows: PairRows | None, file: PairFile, held: list[int]) -> None:
        """Choose the validation rows, if there are any."""
        if rows is not None:
            self.judge = Evaluator.of_rows(rows)
        elif held:
            self.judge = self._judge_of(file, held)
            logger.info(f"{plural(len(held), self.row)} held out for validation")

    def _judge_of(self, file: PairFile, held: list[int]) -> Evaluator:
        """Return the evaluation on held-out rows."""
        return Evaluator.of_held_out(file, held, self.kind)

    def _note_seen(self, judged: PairRows | None, held: list[int], known: frozenset[int]) -> None:
        """Record how many of the validation rows the model was trained on before."""
        if not known or self.judge is None:
            return
        own = [self.rows[n] for n in held if self.rows]
        numbers = own if judged is None else [*map(_number_of, judged)]
        seen = share_of(numbers, known)
        if line := overlap_line(seen, len(numbers), START, "validation pairs"):
            logger.warning(line.removeprefix("note: "))
            self.notes.append(line)

    def _scored(self, judge: Evaluator) -> SimilarityReport:
        return judge.score(with_model(self.embedder, self.precision))

    def _evaluate(self, display: Display, step: int) -> dict[str, float]:
        assert self.judge is not None
        self.embedder.model.eval()
        self.report = self._scored(self.judge)
        value = self.report.metrics[self.metric]
        display.keep("validation", f"{self.metric} {value:.4f}")
        display.note(f"step {step}: {self.metric} {value:.4f}")
        return self.report.metrics

    def _before(self) -> dict[str, float]:
        """Return the scores before training; empty without evaluation."""
        if self.judge is None:
            return {}
        scores: dict[str, float] = self._scored(self.judge).metrics
        logger.info(f"before training: {self.metric} {scores[self.metric]:.4f}")
        return scores

    def _take_best(self, run: Run, steps: int) -> tuple[dict[str, float], int]:
        """Load the weights of the best evaluation into the model; return its scores and its
        step."""
        if self.judge is None:
            return {}, steps
        best = load_best(run.checkpoints, self.embedder.model)
        self.report = self._scored(self.judge)
        return self.report.metrics, steps if best is None else best.step

    def _shortened(self) -> dict[int, float]:
        """Return the score that decides, for vectors of each length that was trained."""
        if self.judge is None:
            return {}
        return {
            length: self.judge.score(
                with_model(self.embedder, self.precision, dimensions=length)
            ).metrics[self.metric]
            for length in sorted({*self.loss.lengths}, reverse=True)
        }

    def _take_start(self) -> None:
        """Restore the weights of the model before training."""
        where = self.modules.transformer if self.modules else self.start
        weights = load_model(where, heads={}).model.state_dict()
        self.embedder.model.load_state_dict(weights)

    def _known(self, run: Run, file: PairFile, held: int) -> SimilarityResult:
        """Return the result of a run that had finished before."""
        run.remove_checkpoints()
        known = read_json_object(run.folder / SCORES, lenient=True)
        return SimilarityResult(
            run.model, self.kind, len(file) - held, known["step"], known["before"], known["final"],
            self.metric, known["seconds"], known["kept_start"], self.notes,
            {int(length): value for length, value in known.get("shortened", {}).items()},
        )  # fmt: skip

    def _settings(
        self,
        file: PairFile,
        config: FitConfig,
        every: int,
        draws: PairSampler,
        model: str,
        data: Data,
    ) -> dict[str, Any]:
        options = self.options
        settings = {
            "task": "similarity",
            "kind": self.kind,
            **recorded_data(data),
            **recorded_model(model),
            "num_examples": len(file),
            "examples_fingerprint": file.fingerprint(),
            "weights_fingerprint": self.embedder.model.fingerprint(),
            "device": self.device,
            **self._loss_settings(),
            "pooling": self.embedder.pooling.name,
            "max_length": self.embedder.max_length,
            "batch_size": draws.batch_size,
            "dropout": options.dropout,
            "held_out": len(draws.held),
            "held_out_fingerprint": sha256(draws.held.rows.tobytes()).hexdigest(),
            "evaluate_every": every,
            "save_best": self.judge is not None,
            "metric": self.metric,
            "validation_fingerprint": self.judge.fingerprint if self.judge else "",
            **config.settings(),
            **self.computing.facts,
        }
        return settings | options.recorded()

    def _loss_settings(self) -> dict[str, Any]:
        """Return the settings of what is learned."""
        loss, lengths = self.loss, None
        if loss.lengths:
            lengths = list(loss.all_lengths(self.embedder.dimensions))
        return {
            "loss": loss.name,
            "scale": loss.scale,
            "symmetric": loss.symmetric,
            "vector_lengths": lengths,
            "mine_negatives": self.options.mine_negatives,
            "negative_max_ratio": self.options.negative_max_ratio,
        }

    def _modules(self) -> SentenceModules:
        """Return the description of the vectors for the directory."""
        known = self.modules or SentenceModules(self.folder)
        return replace(
            known,
            modes=self.embedder.pooling.modes,
            normalize=self.embedder.pooling.normalize,
            max_length=self.embedder.max_length,
            include_prompt=True,
            refused=None,
        )


# ``finetune_similarity``: train a model directory on similar texts, and write one for sentence
# vectors.

#: The rows that a model is chosen by.
_SAMPLE = 1000
#: The default of the longest text, if the model can read more.
_LONGEST = 128


@takes_options()
def finetune_similarity(
    *,
    model: Path | str | None = None,
    data: Path | str | TableLike,
    out: Path | str,
    validation: Path | str | TableLike | None = None,
    options: SimilarityOptions,
) -> SimilarityResult:
    """Train a model to give similar texts similar vectors.

    It learns from pairs of a text and its match, with all other texts of a batch and columns of
    negatives as wrong answers (Henderson et al. 2017; Reimers and Gurevych 2019); from pairs with
    scores (CoSENT); from texts with labels, with pairs drawn as they are needed; or from texts
    only, each its own match under another dropout (Gao et al. 2021, SimCSE), or with its
    neighbouring sentences as pairs. Texts are read from disk. The weights of the best evaluation
    are saved, or those before training if none is better.

    Args:
        model: as for :func:`bertine.finetune`.
        data: a table, or a folder with a training and a validation file.
        out: the run's folder; the model directory is ``out/model``, one of sentence-transformers.
        validation: a table of pairs, with a score (judged by Spearman) or without (by nDCG@10).
            None: that of the folder, else a tenth of the pairs, at most 2,000, is held out; for
            texts without pairs nothing is held out.
        options: the values of the other arguments.

    Raises:
        BertineError: no such model or data, a column that is missing or not recognized; `out` holds
            another run; a loss that needs scores, and there are none.
    """
    Run.check(out, options.resume)
    model = Run.model_of(out, model, options.resume)
    if options.steps is not None and options.epochs is not None:
        raise BertineError(f"give {option('steps')} or {option('epochs')}, not both")
    folder = Path(out)
    begun = Run.begun(folder) if options.resume else None
    data = as_data(data_of_run(data, begun))
    parts = find_splits(data)
    if parts.train is None:
        raise BertineError(f"{data}: has no training file")
    rows = training_rows(parts.train, options)
    columns = rows.open_columns()
    loss = _loss(columns, options)
    logger.info(columns.line(str(parts.train)))
    if model is None:
        model = (begun or {}).get("model_path") or model_for(list(islice(rows, _SAMPLE)))
    embedder, modules = embedder_to_train(
        model, options, lambda folder: load_model(folder, heads={}, dropout=options.dropout)
    )
    check_lengths(loss.lengths, embedder.dimensions)
    judged = validation_rows(parts.validation, validation, options)
    if judged is not None and options.held_out_pairs:
        raise BertineError(
            f"{option('held_out_pairs', options.held_out_pairs)} is for data without a validation "
            f"file; here {judged.source} judges"
        )
    config = embedder.model.config
    if columns.kind == "texts" and not (
        config.hidden_dropout_prob or config.attention_probs_dropout_prob
    ):
        raise BertineError(
            "texts alone are learned by reading each under two dropout masks, but this model has "
            f"no dropout; give {option('dropout', 0.1)}"
        )
    work = SimilarityRun(folder, options, embedder, modules, columns, loss, Path(locate(model)))
    with scratch_dir(folder) as scratch:
        file = work.read(rows, scratch)
        with file:
            return work.train(file, scratch, judged, str(model), data)


def _loss(columns: PairColumns, options: SimilarityOptions) -> PairLoss:
    """Return the loss to minimize.

    Raises:
        BertineError: the rows lack what this loss needs.
    """
    scored = columns.kind == "scores"
    name = options.loss or ("cosent" if scored else "ranking")
    if scored == (name == "ranking"):
        needed = "pairs without scores" if scored else "pairs with scores"
        raise BertineError(f"{option('loss', name)} is for {needed}; these are of the other kind")
    if options.mine_negatives and columns.kind not in ("pairs", "sentences"):
        raise BertineError(f"{option('mine_negatives')} is for pairs without scores")
    return PairLoss(name, options.scale, options.symmetric, tuple(options.vector_lengths or ()))


def embedder_to_train(
    model: Path | str, options: SimilarityOptions, load: Callable[[Path], LoadedModel]
) -> tuple[Embedder, SentenceModules | None]:
    """Load the model to train, and the description of its vectors in its directory.

    Args:
        model: its directory.
        options: pooling, longest text and device.
        load: loads the model, from the folder of its encoder.
    """
    path = Path(locate(model))
    modules = read_sentence_modules(path)
    loaded = load(modules.transformer if modules else path)
    longest = options.max_length
    if longest is None:
        known = modules.max_length if modules else None
        longest = min(known or _LONGEST, _LONGEST, loaded.config.longest_input)
    embedder = Embedder.load(
        path,
        pooling=options.pooling,
        max_length=longest,
        device=options.device,
        precision="fp32",
        loaded=loaded,
    )
    log_all(embedder.load_lines)
    return embedder, modules
