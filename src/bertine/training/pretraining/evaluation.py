"""What is evaluated along the way of pre-training: masks filled, held-out text scored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bertine.data.instances.formats import make_instances
from bertine.data.instances.pretraining import PretrainingData
from bertine.data.store import TokenStore
from bertine.errors import BertineError
from bertine.inference.heldout import evaluate_pretraining
from bertine.models.electra.generator import as_masked_lm
from bertine.models.model import Model
from bertine.models.precision import resolve_precision
from bertine.objectives.base import Objective
from bertine.options.instances import InstanceSettings
from bertine.scores import score_name
from bertine.terminal.console import warn
from bertine.terms import TERMS, choosing_score, main_term
from bertine.text.tokenizer import Tokenizer
from bertine.training.loop.display import Display
from bertine.training.pretraining.samples import MaskSamples, write_samples
from bertine.training.run import Run


def held_out_store(path: Path | str, tokenizer: Tokenizer, data: PretrainingData) -> TokenStore:
    """Return the store `path`, which can be made into sequences like those of `data`."""
    store = TokenStore.open(path)
    store.check_tokenizer(tokenizer)
    make_instances(
        data.settings.input_format,
        store,
        tokenizer.template,
        max_seq_length=data.max_seq_length,
    )
    if store.manifest["shards"] == data.store.manifest["shards"]:
        warn(f"{path}: the text held out is the text trained on; its scores tell nothing of other")
    return store


def evaluation(
    run: Run,
    model: Model,
    tokenizer: Tokenizer,
    objective: Objective,
    data: PretrainingData,
    held: TokenStore | None,
    precision: str,
) -> Callable[[Display, int], dict[str, float]]:
    """Return what `fit` calls along the way: the same hidden words guessed, held-out text
    scored."""
    dtype = resolve_precision(precision, next(model.parameters()).device)
    samples: MaskSamples | None = None
    if "mlm" in (as_masked_lm(model) or model).heads:
        source, seed = (data.store if held is None else held), data.settings.seed
        try:
            samples = MaskSamples(tokenizer, source, seed, max_length=data.max_seq_length)
        except BertineError as error:
            warn(f"{error}; none are shown")

    def evaluate(display: Display, step: int) -> dict[str, float]:
        if samples is not None:
            write_samples(run.folder, step, samples.fill(as_masked_lm(model) or model, dtype=dtype))
        if held is None:
            return {}
        scores = evaluate_pretraining(
            model,
            tokenizer,
            held,
            objective=objective,
            settings=InstanceSettings(
                input_format=data.settings.input_format,
                whole_word_mask=data.settings.whole_word_mask,
                ngrams=data.settings.ngrams,
                max_seq_length=data.settings.max_seq_length,
                masked_lm_prob=data.settings.masked_lm_prob,
            ),
            dtype=dtype,
        )
        main, chosen = main_term(objective.name), choosing_score(objective.name)
        line = f"held-out text after step {step}: "
        if chosen != f"{main}_loss":
            line += f"{score_name(chosen)} {scores[chosen]:.3f}, "
        line += f"{TERMS[main].title} loss"
        line += f" {scores[f'{main}_loss']:.3f}"
        if f"{main}_accuracy" in scores:
            line += f", accuracy {scores[f'{main}_accuracy']:.1%}"
        display.note(line)
        return scores

    return evaluate
