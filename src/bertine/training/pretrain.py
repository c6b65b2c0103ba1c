"""``pretrain``: a token store in, a model directory out."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from bertine import rng
from bertine.console import human_count, human_time, say, warn
from bertine.data.pretraining import PretrainingData
from bertine.data.store import TokenStore
from bertine.errors import BertineError
from bertine.modeldir import load_config, load_model, save_model
from bertine.models.model import Model
from bertine.models.precision import precision_name, resolve_device
from bertine.objectives.mlm_nsp import MlmNsp
from bertine.presets import PRESETS, preset
from bertine.taskinfo import TaskInfo
from bertine.text.tokenizer import Tokenizer
from bertine.training.fit import FitConfig, fit
from bertine.training.run import Run
from bertine.training.tracking import read_log


@dataclass(frozen=True)
class PretrainResult:
    """What a pre-training run ended with.

    Attributes:
        model: the model directory.
        final: the last line of the log (losses in nats, accuracies as shares).
        unigram_entropy: of the store, in nats: the loss of a model that knows how frequent
            each piece is and nothing else.
    """

    model: Path
    final: dict[str, Any]
    unigram_entropy: float

    def lines(self) -> list[str]:
        """What the command prints at the end."""
        end, entropy = self.final, self.unigram_entropy
        mlm = end["mlm_loss"]
        verdict = (
            f"{entropy - mlm:.2f} nats below the unigram entropy {entropy:.2f}: it uses context"
            if mlm < entropy - 0.05
            else f"not below the unigram entropy {entropy:.2f}: it knows frequencies only; "
            "train longer, or with a higher rate"
        )
        return [
            f"saw {human_count(end['tokens'])} tokens in {human_time(end['elapsed'])}",
            f"MLM loss {mlm:.3f} ({verdict})",
            f"MLM accuracy {end['mlm_accuracy']:.1%}, NSP accuracy {end['nsp_accuracy']:.1%}",
            f"model: {self.model}",
        ]


def pretrain(
    store: Path | str,
    *,
    model: Path | str,
    out: Path | str,
    steps: int | None = None,
    tokens: int | None = None,
    batch_size: int = 32,
    max_seq_length: int = 128,
    masked_lm_prob: float = 0.15,
    max_predictions_per_seq: int = 20,
    short_seq_prob: float = 0.1,
    learning_rate: float = 1e-4,
    warmup_steps: int | None = None,
    warmup_ratio: float = 0.01,
    weight_decay: float = 0.01,
    adam_beta1: float = 0.9,
    adam_beta2: float = 0.999,
    adam_epsilon: float = 1e-6,
    bias_correction: bool = True,
    max_grad_norm: float = 1.0,
    max_tokens_per_micro_batch: int | None = None,
    dropout: float | None = None,
    device: str | None = None,
    precision: str = "auto",
    seed: int = 0,
    checkpoint_every: int | None = 1000,
    keep_checkpoints: int = 2,
    log_every: int = 10,
    tensorboard: bool = False,
    resume: bool = False,
) -> PretrainResult:
    """Pre-train with masked LM and next-sentence prediction (paper, section 3.1 and appendix A).

    Args:
        store: what ``prepare`` wrote, its tokenizer inside.
        model: a preset ("bert-mini") for new weights, or a model directory to go on from, whose
            vocabulary must be the store's.
        out: the run's folder; the model directory is ``out/model``.
        steps: updates; or
        tokens: real tokens to see, about: turned into steps by the mean length of a batch.
        dropout: on hidden states and attention, in place of the model's own rate.
        device: as PyTorch calls it; None: the GPU if there is one.

    The others are described at :class:`~bertine.data.pretraining.PretrainingData` and
    :class:`~bertine.training.fit.FitConfig`.

    Raises:
        BertineError: see those; also neither or both of `steps` and `tokens`; `out` holds another
            run; `max_seq_length` is more than the model's positions.
    """
    where = resolve_device(device)
    Run.check(out, resume)
    opened = TokenStore.open(store)
    tokenizer = Tokenizer.load(opened.tokenizer_path)
    data = PretrainingData(
        opened,
        tokenizer,
        batch_size=batch_size,
        max_seq_length=max_seq_length,
        seed=seed,
        masked_lm_prob=masked_lm_prob,
        max_predictions_per_seq=max_predictions_per_seq,
        short_seq_prob=short_seq_prob,
    )
    for warning in data.warnings():
        warn(warning)
    steps = _steps(steps, tokens, data)
    built = _build(model, data, tokenizer, dropout, seed)
    config = FitConfig(
        steps=steps,
        learning_rate=learning_rate,
        warmup_steps=round(warmup_ratio * steps) if warmup_steps is None else warmup_steps,
        weight_decay=weight_decay,
        adam_beta1=adam_beta1,
        adam_beta2=adam_beta2,
        adam_epsilon=adam_epsilon,
        bias_correction=bias_correction,
        max_grad_norm=max_grad_norm,
        max_tokens_per_micro_batch=max_tokens_per_micro_batch,
        precision=precision_name(precision, where),
        seed=seed,
        log_every=log_every,
        checkpoint_every=checkpoint_every,
        keep_checkpoints=keep_checkpoints,
        tensorboard=tensorboard,
    )
    described = data.describe()
    described["data_path"] = described.pop("store")
    settings = {
        **described,
        **dataclasses.asdict(config),
        "model_path": str(model),
        "weights_fingerprint": built.fingerprint(),
        "device": where.type,
        "architecture": built.config.to_dict(),
    }
    run = Run.open(out, settings, resume)
    built.to(where)
    entropy = opened.unigram_entropy
    say(
        f"{human_count(built.num_parameters())} parameters, {human_count(opened.num_tokens)} "
        f"tokens in the store, {steps} steps of {batch_size} sequences "
        f"({steps / data.steps_per_epoch:.2g} epochs); unigram entropy {entropy:.3f} nats"
    )
    if run.finished:
        say(f"{run.folder}: the run was finished already")
    else:
        fit(
            built,
            MlmNsp(),
            data.batch,
            config,
            run,
            title="pretrain",
            facts={"unigram_entropy": entropy},
        )
        final = read_log(run.folder / "log.jsonl")[-1]
        facts = {**settings, "final": final, "objective": MlmNsp.name}
        save_model(
            run.model,
            built,
            tokenizer,
            task=TaskInfo(name="pretraining", max_length=max_seq_length, training=facts),
        )
    return PretrainResult(run.model, read_log(run.folder / "log.jsonl")[-1], entropy)


def _steps(steps: int | None, tokens: int | None, data: PretrainingData) -> int:
    if (steps is None) == (tokens is None):
        raise BertineError("say how long to train: give one of --steps and --tokens")
    if steps is not None:
        return steps
    assert tokens is not None
    probe = sum(data.batch(i).num_tokens for i in range(4)) / 4
    return max(1, round(tokens / probe))


def _build(
    model: Path | str, data: PretrainingData, tokenizer: Tokenizer, dropout: float | None, seed: int
) -> Model:
    """New weights for a preset, or a model directory's."""
    if str(model) not in PRESETS and Path(model).exists():
        config = load_config(model, dropout=dropout)
        loaded = load_model(model, heads=MlmNsp.heads(config), seed=seed, dropout=dropout)
        if loaded.tokenizer.fingerprint != tokenizer.fingerprint:
            raise BertineError(
                f"{model}: its vocabulary is not that of the store {data.store.path}; prepare the "
                f"store with --tokenizer {model}"
            )
        for line in loaded.report.lines():
            say(line)
        built = loaded.model
    else:
        if str(model) not in PRESETS and os.sep in str(model):
            raise BertineError(
                f"{model}: no such folder, nor a preset; the presets are {', '.join(PRESETS)}"
            )
        config = preset(
            str(model), vocab_size=tokenizer.vocab_size, pad_token_id=tokenizer.pad_token_id
        )
        if dropout is not None:
            config = config.replace(
                hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout
            )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(rng.key(seed, "initial weights") & 0x7FFF_FFFF_FFFF_FFFF)
            built = Model(config, MlmNsp.heads(config))
    if data.max_seq_length > config.max_position_embeddings:
        raise BertineError(
            f"max_seq_length is {data.max_seq_length}, but the model has positions for "
            f"{config.max_position_embeddings}"
        )
    return built
