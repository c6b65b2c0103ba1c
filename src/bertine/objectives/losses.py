"""Define losses, and the objectives of pre-training: masked, causal, permuted and denoised text.

Shape legend: B sequences, T tokens of the longest, P predicted tokens, Q places to predict in a
sequence at most, H hidden size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, Self, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertine.core.errors import BertineError
from bertine.core.names import InputFormat
from bertine.corpora.batch import Batch
from bertine.corpora.collators import CausalLMCollator, Collator, TokenMasking
from bertine.corpora.formats import ORDER_FORMATS, PAIR_FORMATS
from bertine.corpora.sequence_collators import DenoisingCollator, PermutedLMCollator
from bertine.families.xlnet_layers import GuessedPlaces, XlnetBackbone, XlnetOutput, hidden_by_order
from bertine.models.config import Config
from bertine.models.embeddings import Embeddings
from bertine.models.encoder import Encoded, TextInputs, round_number
from bertine.models.heads import Model, new_head
from bertine.models.losses import sum_cross_entropy
from bertine.models.pooling import Pooling
from bertine.options.declare import OptionGroup
from bertine.options.pretraining import (
    DenoisingOptions,
    InstanceSettings,
    NeighbourOptions,
    ObjectiveOptions,
    PermutationOptions,
)

if TYPE_CHECKING:
    from bertine.tokenization.tokenizer import Tokenizer

Options = TypeVar("Options", bound=OptionGroup)


# Losses: terms, and the interface for pre-training and fine-tuning.
#
# A loss can wrap another one: it encodes the batch once, adds the terms of the other
# (:meth:`Loss.terms_of`) to its own, and weights them (:attr:`Term.weight`).


@dataclass
class Term:
    """One part of a loss, as a sum, so that parts of a step add up exactly.

    The loss of a step is, over all terms, ``weight * (sum of totals) / (sum of counts)`` with both
    sums over the whole step: split into micro-batches or not, the result is the same.

    Attributes:
        total: fp32 scalar, the sum of the losses of the targets.
        count: number of targets (plain int, so that reading it needs no synchronization).
        correct: int64 scalar, how many targets were predicted right; None if that has no meaning.
        weight: of this term among the others.
        shares: other numbers of targets, int64 scalars by name: their share of the count is logged
            with the loss, that of "replaced" as ``rtd_replaced``.
    """

    total: Tensor
    count: int
    correct: Tensor | None = None
    weight: float = 1.0
    shares: Mapping[str, Tensor] = field(default_factory=dict)


def guessing_term(logits: Tensor, labels: Tensor, weight: float = 1.0) -> Term:
    """Compute the cross-entropy of labels [N] by their logits [N or more, C]."""
    total, correct = sum_cross_entropy(logits, labels)
    return Term(total, labels.numel(), correct, weight)


class Loss(Protocol):
    """The interface of losses that :func:`bertine.training.fit.fit` minimizes; objectives and tasks
    implement it."""

    def counts(self, batch: Batch) -> dict[str, int]:
        """Count the targets of each term in `batch`, without running the model; the sums of a whole
        step are divided by these."""
        ...

    def encode(self, model: Model, batch: Batch) -> Encoded:
        """Run the backbone of `model` on `batch`."""
        ...

    def terms_of(self, model: Model, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        """Compute the terms of the result of :meth:`encode`; the names are those of
        :meth:`counts`."""
        ...

    def terms(self, model: Model, batch: Batch) -> dict[str, Term]:
        """Encode `batch` and compute the terms."""
        ...


class Objective(Loss, Protocol):
    """The interface of losses for pre-training.

    Attributes:
        name: in :data:`bertine.core.names.OBJECTIVES`.
        formats: the possible formats of sequences, the usual one first
            (:data:`bertine.corpora.formats.FORMATS`).
        mask_split: of the predicted tokens, the shares that its paper masks, replaces at random,
            keeps.
    """

    name: ClassVar[str]
    formats: ClassVar[tuple[InputFormat, ...]]
    mask_split: ClassVar[tuple[float, float, float]]

    def configured(self, options: ObjectiveOptions) -> Self:
        """Return the objective with its part of `options`."""
        ...

    def settings(self) -> dict[str, Any]:
        """Return the settings for a run's record, besides the name."""
        ...

    def corruption(self, tokenizer: Tokenizer, settings: InstanceSettings) -> Collator:
        """Return the collator that turns instances into batches with this objective's targets."""
        ...

    def heads(self, config: Config) -> dict[str, nn.Module]:
        """Return new heads by name for a backbone of `config`."""
        ...


class LossDefaults:
    """Default methods of losses: the batch is encoded unchanged."""

    def encode(self: Loss, model: Model, batch: Batch) -> Encoded:
        """Run the backbone of `model` on `batch`."""
        return model.encode(batch)

    def terms(self: Loss, model: Model, batch: Batch) -> dict[str, Term]:
        """Encode `batch` and compute the terms."""
        return self.terms_of(model, self.encode(model, batch), batch)


class ObjectiveDefaults(LossDefaults):
    """Default methods of objectives: there are no options."""

    mask_split: ClassVar[tuple[float, float, float]] = (0.8, 0.1, 0.1)

    def configured(self, options: ObjectiveOptions) -> Self:
        """Return the objective unchanged, as it has no options."""
        return self

    def settings(self) -> dict[str, Any]:
        """Return no settings, as there are no options."""
        return {}


class ObjectiveWithOptions(ObjectiveDefaults, Generic[Options]):
    """Default methods of objectives with options.

    Args:
        options: None: the defaults.

    Attributes:
        group: the class of the options.
    """

    group: ClassVar[type[Any]]

    def __init__(self, options: Options | None = None) -> None:
        self.options: Options = options or self.group()

    def configured(self, options: ObjectiveOptions) -> Self:
        """Return the objective with its part of `options`."""
        return type(self)(self.group.of(options))

    def settings(self) -> dict[str, Any]:
        """Return the options."""
        return self.options.values()


# MLM: masked language modelling without next-sentence prediction (Liu et al. 2019, section 4.2).


class Mlm(ObjectiveDefaults):
    """The mean MLM loss of the masked tokens, the only ones that pass the MLM head.

    The model has no NSP head. It keeps its pooler, though this loss does not train it: fine-tuning
    classifies with the pooler's output, as in the paper (section 4.1), and every reader of BERT
    expects a model directory with a pooler. It keeps its initial weights, or, when a model is
    trained further, the loaded ones. RoBERTa's fine-tuning begins likewise, with a dense layer that
    pre-training has not trained.
    """

    name: ClassVar[str] = "mlm"
    formats: ClassVar[tuple[InputFormat, ...]] = (
        "full-sentences",
        "doc-sentences",
        *PAIR_FORMATS,
        *ORDER_FORMATS,
        "neighbours",
    )

    @staticmethod
    def corruption(tokenizer: Tokenizer, settings: InstanceSettings) -> TokenMasking:
        """Return the collator that masks tokens."""
        return TokenMasking(tokenizer, settings)

    @staticmethod
    def heads(config: Config) -> dict[str, nn.Module]:
        """Return a new head for `config`."""
        return new_head(config, "mlm")

    def counts(self, batch: Batch) -> dict[str, int]:
        """Count the masked tokens."""
        return {"mlm": batch.targets["mlm_labels"].numel()}

    def terms_of(self, model: Model, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        """Compute the cross-entropy of the masked tokens."""
        places = batch.targets["mlm_positions"]
        if places.device.type == "cpu" and len(places):
            # Rows without labels, which the loss ignores, make a round number.
            places = F.pad(places, (0, round_number(len(places)) - len(places)))
        logits = model.read("mlm", encoded, places=places)
        return {"mlm": guessing_term(logits, batch.targets["mlm_labels"])}


class MlmOfPairs(Mlm):
    """The mean MLM loss of the masked tokens plus the mean loss of a question about the pairs.

    Attributes:
        head: the head that answers the question; its term has the same name.
        answers: the name of the right answers among the targets.
    """

    head: ClassVar[str]
    answers: ClassVar[str]

    @classmethod
    def heads(cls, config: Config) -> dict[str, nn.Module]:
        """Return new heads for `config`."""
        return new_head(config, "mlm") | new_head(config, cls.head)

    def counts(self, batch: Batch) -> dict[str, int]:
        """Count the masked tokens and the pairs."""
        return super().counts(batch) | {self.head: batch.num_sequences}

    def terms_of(self, model: Model, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        """Compute the cross-entropies of the masked tokens and of the pairs."""
        terms = super().terms_of(model, encoded, batch)
        logits = model.read(self.head, encoded)
        return terms | {self.head: guessing_term(logits, batch.targets[self.answers])}


# MLM and NSP: masked language modelling with next-sentence prediction, as in the paper (section
# 3.1).


class MlmNsp(MlmOfPairs):
    """The mean MLM loss of the masked tokens plus the mean NSP loss of the pairs."""

    name: ClassVar[str] = "mlm-nsp"
    formats: ClassVar[tuple[InputFormat, ...]] = PAIR_FORMATS
    head: ClassVar[str] = "nsp"
    answers: ClassVar[str] = "next_sentence_label"


# MLM and SOP: masked language modelling with the order of two sentences (Lan et al. 2019, section
# 3.1).


class MlmSop(MlmOfPairs):
    """The mean MLM loss of the masked tokens plus the mean loss of the pairs' order."""

    name: ClassVar[str] = "mlm-sop"
    formats: ClassVar[tuple[InputFormat, ...]] = ORDER_FORMATS
    head: ClassVar[str] = "sop"
    answers: ClassVar[str] = "sentence_order_label"


# MLM and neighbours: masked language modelling with the recognition of neighbouring texts.
#
# Each text of a batch has its neighbour among the others. A softmax over the cosines of their
# vectors predicts which one it is; the vectors are the means of the last states, as ``bertine
# embed`` and a head that is fitted alone read them. Recognizing the neighbouring sentence among
# those of a batch is from Logeswaran and Lee 2018 (QuickThoughts); neighbouring spans of text,
# compared in this way along with masked language modelling at a temperature of 0.05, are from
# Giorgi et al. 2021 (DeCLUTR). Unlike there, the compared texts are the masked ones, which the
# model encodes anyway, so that the second loss costs very little.


class MlmNeighbours(ObjectiveWithOptions[NeighbourOptions], Mlm):
    """The mean MLM loss of the masked tokens plus the weighted mean loss of recognizing the
    neighbour of each text.

    A text is compared with those that are computed with it: all of a batch if it fits into a
    micro-batch (``max_tokens_per_micro_batch``), otherwise those of its micro-batch.

    Args:
        options: weight and temperature; None: the defaults.
    """

    name: ClassVar[str] = "mlm-neighbours"
    formats: ClassVar[tuple[InputFormat, ...]] = ("neighbours",)
    group: ClassVar[type[NeighbourOptions]] = NeighbourOptions

    def counts(self, batch: Batch) -> dict[str, int]:
        """Count the masked tokens and the texts."""
        return super().counts(batch) | {"neighbours": batch.num_sequences}

    def terms_of(self, model: Model, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        """Compute the cross-entropies of the masked tokens and of the neighbours. Texts 2k and
        2k + 1 of `batch` are neighbours."""
        terms = super().terms_of(model, encoded, batch)
        mask = batch.attention_mask[:, : encoded.last_hidden_state.shape[1]]
        vectors = Pooling(normalize=True)(encoded, mask)
        with torch.autocast(vectors.device.type, enabled=False):
            scores = vectors @ vectors.T / self.options.similarity_temperature
        itself = torch.eye(len(vectors), dtype=torch.bool, device=vectors.device)
        scores = scores.masked_fill(itself, float("-inf"))
        neighbours = torch.arange(len(vectors), device=vectors.device) ^ 1
        total = F.cross_entropy(scores, neighbours, reduction="sum")
        correct = (scores.argmax(1) == neighbours).sum()
        term = Term(total, batch.num_sequences, correct, weight=self.options.neighbours_weight)
        return terms | {"neighbours": term}


# CLM: causal language modelling, in which each token is predicted from those before it (Radford et
# al. 2018, section 3.1, L1).


class Clm(ObjectiveDefaults):
    """The mean cross-entropy of all tokens but the first of each sequence, each scored by the state
    of the token before it."""

    name: ClassVar[str] = "clm"
    formats: ClassVar[tuple[InputFormat, ...]] = ("running-text", "full-sentences", "doc-sentences")

    @staticmethod
    def corruption(tokenizer: Tokenizer, settings: InstanceSettings) -> CausalLMCollator:
        """Return the collator that leaves texts unchanged, as the model sees no later tokens."""
        return CausalLMCollator(tokenizer, settings)

    @staticmethod
    def heads(config: Config) -> dict[str, nn.Module]:
        """Return the head for `config`.

        Raises:
            BertineError: the model sees the token that it should predict.
        """
        if not config.reads_forward:
            raise BertineError(
                f"this {config.title} reads in both directions, so there is no next token to "
                "guess; put layers that do so above a model that is pre-trained"
            )
        return new_head(config, "lm")

    def counts(self, batch: Batch) -> dict[str, int]:
        """Count the predicted tokens."""
        return {"clm": batch.targets["clm_labels"].numel()}

    def terms_of(self, model: Model, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        """Compute the cross-entropy of the next tokens."""
        logits = model.read("lm", encoded, places=batch.targets["clm_positions"])
        return {"clm": guessing_term(logits, batch.targets["clm_labels"])}


# Auxiliary LM: a language model's loss with that of a task: L3 = L2 + λ L1 (Radford et al. 2018,
# section 3.2, equation 5).
#
# Shape legend: B sequences, P places before another token, H hidden size, V vocabulary size, N
# positions.

#: The name of the term in logs.
NAME = "lm"


@dataclass(frozen=True)
class AuxiliaryLM(LossDefaults):
    """A task's loss, and the loss of predicting each token of its inputs from those before it.

    The texts are those that the task reads, including special tokens; the loss is the mean over the
    sequences of the mean over their tokens (openai/finetune-transformer-lm, ``train.py: model``).
    The head has no weights: it multiplies with the word embeddings.

    Attributes:
        task: the task.
        weight: λ.
        positions: whether the position embeddings are rows of the softmax too, as in the published
            code, which holds all embeddings in one table; they are never a target, but take
            probability. transformers has only tokens.
    """

    task: Loss
    weight: float
    positions: bool = False

    def counts(self, batch: Batch) -> dict[str, int]:
        """Count the targets of the task's terms, and the sequences."""
        return self.task.counts(batch) | {NAME: batch.num_sequences}

    def encode(self, model: Model, batch: Batch) -> Encoded:
        """Run the backbone as the task does."""
        return self.task.encode(model, batch)

    def terms_of(self, model: Model, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        """Compute the task's terms, and the cross-entropy of the next tokens."""
        terms = self.task.terms_of(model, encoded, batch)
        real = batch.attention_mask.bool()
        followed = F.pad(real[:, 1:] & real[:, :-1], (0, 1))
        places = followed.flatten().nonzero()[:, 0]
        labels = batch.input_ids.flatten()[places + 1]
        item = 1.0 / followed.sum(1).clamp(min=1)
        weights = item[:, None].expand_as(followed).flatten()[places]
        logits = F.linear(encoded.rows(places), self._table(model))
        total, _ = sum_cross_entropy(logits, labels, weights)
        return terms | {NAME: Term(total, batch.num_sequences, weight=self.weight)}

    def _table(self, model: Model) -> Tensor:
        """Return the matrix that states are multiplied with, [V, H] or [V + N, H]."""
        words = model.backbone.word_weights
        if not self.positions:
            return words
        embeddings = model.backbone.embeddings
        assert isinstance(embeddings, Embeddings)
        return torch.cat([words, embeddings.places()])


# Text to text: the common parts of pre-training and fine-tuning an encoder-decoder.
#
# A batch has the texts to write among its targets: ``target_ids`` int64 [B, T], padded on the
# right, and ``target_mask`` bool [B, T], true at their tokens, including special ones. The decoder
# reads the start token and all of them but the last, and predicts each one.


def count_targets(batch: Batch) -> int:
    """Count the tokens to write."""
    return int(batch.targets["target_mask"].sum())


def encode_and_decode(model: Model, batch: Batch) -> Encoded:
    """Run the encoder on the inputs of `batch` and the decoder on its targets."""
    ids, mask = _targets(batch)
    start = torch.full_like(ids[:, :1], _start_of(model))
    shifted = torch.cat([start, ids[:, :-1]], 1)
    return model.encode(batch, target=TextInputs(shifted, mask))


def written_term(
    model: Model, encoded: Encoded, batch: Batch, label_smoothing: float = 0.0
) -> Term:
    """Compute the cross-entropy of the texts to write.

    Args:
        encoded: the result of :func:`encode_and_decode`.
        label_smoothing: the share of each target that is spread over all words (Szegedy et al.
            2015, section 7).
    """
    ids, mask = _targets(batch)
    places = mask.flatten().nonzero()[:, 0]
    labels = ids.flatten().index_select(0, places)
    logits = model.read("lm", encoded, places=places)
    if not label_smoothing:
        return guessing_term(logits, labels)
    total = F.cross_entropy(
        logits.float(), labels, reduction="sum", label_smoothing=label_smoothing
    )
    return Term(total, labels.numel(), (logits.detach().argmax(-1) == labels).sum())


def _targets(batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the ids to write and their mask. On the host, columns of only padding are left out;
    the targets of a part of a batch are as wide as those of the whole."""
    ids, mask = batch.targets["target_ids"], batch.targets["target_mask"]
    if mask.device.type == "cpu":
        width = int(mask.sum(1).max())
        ids, mask = ids[:, :width], mask[:, :width]
    return ids, mask


def _start_of(model: Model) -> int:
    """Return the start token of the decoder of `model`."""
    start: int = model.config.decoder_start_token_id  # type: ignore[attr-defined]
    return start


# Denoising: the original text is written after a corrupted one was read (Lewis et al. 2019, section
# 2).


class Denoising(ObjectiveWithOptions[DenoisingOptions]):
    """The mean cross-entropy of all tokens of the original text, each predicted from the corrupted
    text and the original tokens before it.

    Args:
        options: how texts are corrupted; None: as in the paper (section 3), 30% of the tokens in
            spans of 3 on average, and all sentences permuted.
    """

    name: ClassVar[str] = "denoising"
    formats: ClassVar[tuple[InputFormat, ...]] = ("full-sentences", "doc-sentences")
    group: ClassVar[type[DenoisingOptions]] = DenoisingOptions

    def corruption(self, tokenizer: Tokenizer, settings: InstanceSettings) -> DenoisingCollator:
        """Return the collator that corrupts texts."""
        return DenoisingCollator(tokenizer, settings, self.options)

    @staticmethod
    def heads(config: Config) -> dict[str, nn.Module]:
        """Return the head for `config`."""
        return new_head(config, "lm")

    def counts(self, batch: Batch) -> dict[str, int]:
        """Count the tokens of the originals."""
        return {self.name: count_targets(batch)}

    def encode(self, model: Model, batch: Batch) -> Encoded:
        """Encode the corrupted texts, and decode the originals."""
        return encode_and_decode(model, batch)

    def terms_of(self, model: Model, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        """Compute the cross-entropy of the originals."""
        return {self.name: written_term(model, encoded, batch)}


# PLM: permutation language modelling, in which tokens are predicted one after the other in a random
# order (Yang et al. 2019, arXiv 1906.08237, sections 2.2 and 2.3).

#: The number of places in a sequence is rounded up to a multiple of this, so that shapes recur.
_PLACES = 8


@dataclass
class EncodedGuesses(XlnetOutput):
    """The states of the places to predict.

    Attributes:
        last_hidden_state: [B, Q, H]; the places of a sequence come first, in order.
        slots: int64 [P], the indices of the predicted tokens (``plm_positions``) in the B * Q.
    """

    slots: Tensor | None = None


class Plm(ObjectiveWithOptions[PermutationOptions]):
    """The mean cross-entropy of the predicted tokens, each given those that are known before it
    and its own place.

    Every layer computes two streams: the states of the text, in which a token to predict sees
    itself and the tokens known before it, and those of the places, which do not see their own
    token. The places attend to the text by the same weights
    (:mod:`bertine.families.xlnet_layers`).

    With a memory, both also attend to the text before the sequence, whose states are computed
    first, without a gradient. In the published code they are those of the step before, by that
    step's weights, and reach further back through their own memory; computed anew they need no
    state besides the weights, so that a batch remains a function of data, seed and step.

    Args:
        options: which tokens are predicted, and in which order.
    """

    name: ClassVar[str] = "plm"
    formats: ClassVar[tuple[InputFormat, ...]] = (
        *PAIR_FORMATS,
        "full-sentences",
        "doc-sentences",
        *ORDER_FORMATS,
    )
    group: ClassVar[type[PermutationOptions]] = PermutationOptions

    def corruption(self, tokenizer: Tokenizer, settings: InstanceSettings) -> PermutedLMCollator:
        """Return the collator that chooses tokens and the order of their prediction."""
        return PermutedLMCollator(tokenizer, settings, self.options)

    @staticmethod
    def heads(config: Config) -> dict[str, nn.Module]:
        """Return the head for `config`."""
        return new_head(config, "plm")

    def counts(self, batch: Batch) -> dict[str, int]:
        """Count the predicted tokens."""
        return {"plm": batch.targets["plm_labels"].numel()}

    def encode(self, model: Model, batch: Batch) -> EncodedGuesses:
        """Compute the states of the places to predict, along with those of the text."""
        targets = batch.targets
        width = batch.input_ids.shape[1]
        places, slots = by_sequence(targets["plm_positions"], batch.num_sequences, width)
        backwards = targets.get("backwards")
        # A micro-batch may be narrower than the batch that defines the order.
        hidden = hidden_by_order(targets["guessing_order"][:, :width])
        backbone = cast(XlnetBackbone, model.backbone)
        memory, seen = None, targets.get("memory_mask")
        if seen is not None:
            with torch.no_grad():
                memory = backbone(
                    targets["memory_ids"], seen, output_memory=True, backwards=backwards
                ).memory
        encoded = backbone(
            batch.input_ids,
            batch.attention_mask,
            batch.token_type_ids,
            memory=memory,
            memory_mask=seen,
            guesses=GuessedPlaces(places, hidden),
            backwards=backwards,
        )
        return EncodedGuesses(encoded.last_hidden_state, slots=slots)

    def terms_of(self, model: Model, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        """Compute the cross-entropy of the predicted tokens."""
        assert isinstance(encoded, EncodedGuesses), "encode() of the same objective made it"
        logits = model.read("plm", encoded, places=encoded.slots)
        return {"plm": guessing_term(logits, batch.targets["plm_labels"])}


def by_sequence(positions: Tensor, sequences: int, width: int) -> tuple[Tensor, Tensor]:
    """Group places in a batch by sequence.

    Args:
        positions: int64 [P], ascending, indices into the flattened [B*T].
        sequences: B.
        width: T.

    Returns:
        The places in their sequences, int64 [B, Q], filled with 0, and the index of each of
        `positions` in these B * Q, int64 [P].
    """
    rows = positions // width
    counts = torch.bincount(rows, minlength=sequences)
    most = -(-max(1, int(counts.max())) // _PLACES) * _PLACES
    before = counts.cumsum(0) - counts
    numbers = torch.arange(len(positions), device=positions.device) - before[rows]
    slots = rows * most + numbers
    places = positions.new_zeros(sequences * most).index_copy_(0, slots, positions % width)
    return places.view(sequences, most), slots
