"""Which small architecture learns the most per second of a CPU: candidates for the modern presets.

    python benchmarks/modern.py STORE HELD [--steps N | --seconds S] [--only NAME ...]
        [--width H] [--layers N] [--seed N] [--json FILE]

STORE and HELD are token stores of ``bertine prepare`` with one tokenizer, HELD of other documents.
Each candidate is pre-trained with masks alone in one thread, from the same seeds: on the same
number of batches (``--steps``), or on as many as fit into the same CPU time (``--seconds``). What
counts is the masked-LM loss on the same masks of HELD (15%, whatever is trained with). The cost of
a step is measured apart: candidates take turns, each step's CPU time is taken, and the lower
quartile counts, so that other programs on the machine matter little.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from modern_candidates import change

from bertine.core.names import OptimizerName
from bertine.core.process import keep_freed_memory
from bertine.corpora.pretraining_data import PretrainingData
from bertine.corpora.store import TokenStore
from bertine.families.bert import BertConfig, mimic_trained_attention
from bertine.families.modernbert_layers import ModernBertConfig
from bertine.inference.heldout import score_batches
from bertine.models.config import Config
from bertine.models.heads import Model
from bertine.models.precision import cpu_has_bf16
from bertine.objectives.losses import Mlm
from bertine.options.pretraining import InstanceSettings
from bertine.options.training import Updates
from bertine.tokenization.tokenizer import Tokenizer
from bertine.training.adamw import row_gradients
from bertine.training.optimizers import optimizer_for
from bertine.training.schedules import linear
from bertine.training.step import accumulate

DTYPE = torch.bfloat16 if cpu_has_bf16() else torch.float32


@dataclass(frozen=True)
class Candidate:
    """An architecture and how it is trained.

    Attributes:
        config: changes to the base's config.
        bert: whether the base is a BERT and not a ModernBERT.
        parts: see :func:`modern_candidates.change`.
        mimetic: whether a BERT begins with mimetic weights.
        rate: the highest learning rate.
        masks: of the tokens, at the beginning and at the end.
        optimizer: of its weights.
    """

    config: dict[str, Any] = field(default_factory=dict)
    bert: bool = False
    parts: dict[str, Any] = field(default_factory=dict)
    mimetic: bool = False
    rate: float = 2e-3
    masks: tuple[float, float] = (0.15, 0.15)
    optimizer: OptimizerName = "adamw"


@dataclass(frozen=True)
class Base:
    """What the candidates of a run have in common: the budget of sizes.

    Attributes:
        width, layers: of the encoder; a feed-forward has about 8 width² weights.
        batch, length: sequences of a batch, and their tokens.
        seed: of the initial weights.
    """

    width: int
    layers: int
    batch: int
    length: int
    seed: int = 0

    @property
    def sizes(self) -> dict[str, Any]:
        return {
            "hidden_size": self.width,
            "num_hidden_layers": self.layers,
            "num_attention_heads": max(1, self.width // 64),
            "pad_token_id": 0,
        }

    def inner(self, width: int) -> int:
        """The inner size of a gated feed-forward with as many weights as a plain one."""
        return round(8 * width / 3 / 16) * 16


def candidates(base: Base) -> dict[str, Candidate]:
    """Return the candidates by name."""
    width, layers = base.width, base.layers
    found = {
        "bert": Candidate({"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}, True),
        "bert, no dropout": Candidate(bert=True),
        "bert, mimetic": Candidate(bert=True, mimetic=True),
        "bert, mimetic, 4e-3": Candidate(bert=True, mimetic=True, rate=4e-3),
        "bert, mimetic, 1e-3": Candidate(bert=True, mimetic=True, rate=1e-3),
        "modern": Candidate(),
        "modern, 1e-3": Candidate(rate=1e-3),
        "modern, 4e-3": Candidate(rate=4e-3),
        "all global": Candidate({"global_attn_every_n_layers": 1}),
        "theta 10,000": Candidate({"global_rope_theta": 10_000.0}),
        "theta 1,000": Candidate({"global_rope_theta": 1_000.0, "local_rope_theta": 1_000.0}),
        "window 32": Candidate({"local_attention": 32}),
        "window 16": Candidate({"local_attention": 16}),
        "biases": Candidate({"attention_bias": True, "mlp_bias": True, "norm_bias": True}),
        "plain feed-forward": Candidate(parts={"plain": 4 * width}),
        "learned positions": Candidate(parts={"learned": True}),
        "relative bias": Candidate(parts={"relative": True}),
        "post-norm": Candidate(parts={"post": True}),
        "RMS norm": Candidate(parts={"rms": True}),
        "initial 0.05": Candidate({"initializer_range": 0.05}),
        "initial 0.1": Candidate({"initializer_range": 0.1}),
        "dropout 0.1": Candidate(
            {
                "hidden_dropout_prob": 0.1,
                "attention_probs_dropout_prob": 0.1,
                "embedding_dropout": 0.1,
            }
        ),
        "masks 30%": Candidate(masks=(0.3, 0.3)),
        "masks 30 to 15%": Candidate(masks=(0.3, 0.15)),
        "window 16, masks 30%": Candidate({"local_attention": 16}, masks=(0.3, 0.3)),
        "window 16, masks 30 to 15%": Candidate({"local_attention": 16}, masks=(0.3, 0.15)),
        "window 16, all local": Candidate(
            {"local_attention": 16, "layer_types": ("sliding_attention",) * layers}
        ),
        "LAMB, 5e-3": Candidate(optimizer="lamb", rate=5e-3),
        "LAMB, 2e-2": Candidate(optimizer="lamb", rate=2e-2),
        "Muon": Candidate(optimizer="muon"),
        "Muon, 6e-3": Candidate(optimizer="muon", rate=6e-3),
        "window 16, masks 30%, Muon, 6e-3": Candidate(
            {"local_attention": 16}, masks=(0.3, 0.3), optimizer="muon", rate=6e-3
        ),
        "window 16, masks 30%, Muon, 1.2e-2": Candidate(
            {"local_attention": 16}, masks=(0.3, 0.3), optimizer="muon", rate=1.2e-2
        ),
        "window 16, masks 30%, LAMB, 2e-2": Candidate(
            {"local_attention": 16}, masks=(0.3, 0.3), optimizer="lamb", rate=2e-2
        ),
        "bert, mimetic, masks 30%, Muon, 6e-3": Candidate(
            bert=True, mimetic=True, masks=(0.3, 0.3), optimizer="muon", rate=6e-3
        ),
        "masks 40%": Candidate(masks=(0.4, 0.4)),
    }
    for depth in (2, 3, 6, 8, 12):
        # The same weights in the layers, in multiples of 32.
        wide = round((width * width * layers / depth) ** 0.5 / 32) * 32
        if depth != layers:
            found[f"{depth} layers of {wide}"] = Candidate(
                {
                    "hidden_size": wide,
                    "num_hidden_layers": depth,
                    "num_attention_heads": max(1, round(wide / 64)),
                    "intermediate_size": base.inner(wide),
                }
            )
    return found


def build(candidate: Candidate, base: Base, vocab_size: int) -> Model:
    """Make a new model."""
    torch.manual_seed(base.seed)
    sizes = {**base.sizes, "vocab_size": vocab_size}
    config: Config
    if candidate.bert:
        none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        sizes |= {"intermediate_size": 4 * base.width, **none, **candidate.config}
        config = BertConfig(**sizes)
    else:
        sizes |= {"intermediate_size": base.inner(base.width), **candidate.config}
        config = ModernBertConfig(**{"max_position_embeddings": 512, **sizes})
    model = Model(config, Mlm.heads(config), add_pooler=False)
    if candidate.mimetic:
        mimic_trained_attention(model.backbone)
    return change(model, candidate.parts).train()


def steps_of(
    candidate: Candidate, model: Model, batches: Callable[[float, int], Any], steps: int
) -> Callable[[int], float]:
    """Return a function that trains one step of `steps`, and returns its CPU time."""
    updates = Updates(optimizer=candidate.optimizer, weight_decay=0.01, adam_beta2=0.98)
    optimizer = optimizer_for(model, updates, DTYPE)
    objective = Mlm()
    first, last = candidate.masks

    def step(number: int) -> float:
        share = first + (last - first) * number / steps
        batch = batches(share, number)
        began = time.process_time()
        with row_gradients(model):
            accumulate(model, objective, [batch], dtype=DTYPE, seeds=[0, number])
            rate = candidate.rate * linear(number, steps, max(1, steps // 12))
            optimizer.clipped_step(rate, 1.0)
        optimizer.zero_grad(set_to_none=True)
        return time.process_time() - began

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("store", type=Path)
    parser.add_argument("held", type=Path)
    parser.add_argument("--steps", type=int, default=0, help="of every candidate")
    parser.add_argument("--seconds", type=float, default=0.0, help="CPU time of every candidate")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--turns", type=int, default=12, help="steps timed of each, 2 or more")
    parser.add_argument("--scored", type=int, default=100_000, help="held-out tokens")
    parser.add_argument("--seed", type=int, default=0, help="of the initial weights")
    parser.add_argument("--only", nargs="+", metavar="NAME")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    base = Base(
        *(arguments.width, arguments.layers, arguments.batch, arguments.length, arguments.seed)
    )
    chosen = candidates(base)
    if arguments.only:
        chosen = {name: chosen[name] for name in arguments.only}
    store = TokenStore.open(arguments.store)
    held = TokenStore.open(arguments.held)
    tokenizer = Tokenizer.load(arguments.store / "tokenizer")
    made: dict[float, PretrainingData] = {}

    def batches(share: float, number: int, source: TokenStore = store) -> Any:
        share = round(share, 2)
        if share not in made:
            settings = InstanceSettings(
                input_format="full-sentences",
                batch_size=base.batch,
                max_seq_length=base.length,
                masked_lm_prob=share,
            )
            made[share] = PretrainingData(store, tokenizer, settings, corruption=Mlm.corruption)
        return made[share].batch(number)

    settings = InstanceSettings(
        input_format="full-sentences", batch_size=base.batch, max_seq_length=base.length
    )
    questions = PretrainingData(held, tokenizer, settings, corruption=Mlm.corruption)

    costs = cost(chosen, base, tokenizer.vocab_size, batches, arguments.turns)
    rows = []
    heads = zip(
        ("ms/step", "weights", "steps", "loss", "accuracy", "CPU s"),
        (9, 11, 7, 8, 10, 8),
        strict=True,
    )
    print(" " * 34 + "".join(f"{head:>{width}}" for head, width in heads))
    for name, candidate in chosen.items():
        steps = arguments.steps or int(arguments.seconds / costs[name])
        model = build(candidate, base, tokenizer.vocab_size)
        row: dict[str, Any] = {"name": name, "ms": 1e3 * costs[name], "steps": steps}
        row["weights"] = model.num_parameters()
        if steps:
            step = steps_of(candidate, model, batches, steps)
            row["seconds"] = sum(step(number) for number in range(steps))
            scores = score_batches(
                model, Mlm(), questions.batch, tokens=arguments.scored, dtype=DTYPE
            )
            row |= {"loss": scores["mlm_loss"], "accuracy": scores["mlm_accuracy"]}
        rows.append(row)
        print(
            f"{name:34}{row['ms']:9.1f}{row['weights']:11,}{steps:7}{row.get('loss', 0):8.3f}"
            f"{row.get('accuracy', 0):10.2%}{row.get('seconds', 0):8.0f}",
            flush=True,
        )
        if arguments.json:
            arguments.json.write_text(json.dumps(rows, indent=1))


def cost(
    chosen: dict[str, Candidate],
    base: Base,
    vocab_size: int,
    batches: Callable[[float, int], Any],
    turns: int,
) -> dict[str, float]:
    """Return the CPU seconds of a step of each candidate: the lower quartile, taken in turns."""
    models = {name: build(candidate, base, vocab_size) for name, candidate in chosen.items()}
    steps = {name: steps_of(c, models[name], batches, 1000) for name, c in chosen.items()}
    times: dict[str, list[float]] = {name: [] for name in chosen}
    for turn in range(turns + 2):
        for name, step in steps.items():
            seconds = step(turn)
            if turn >= 2:
                times[name].append(seconds)
    return {name: statistics.quantiles(each, n=4)[0] for name, each in times.items()}


if __name__ == "__main__":
    main()
