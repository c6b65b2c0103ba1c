"""Define heads, which turn a backbone's states into scores, and Model, a backbone with heads.

Heads are composed with any backbone, never subclassed for one.

Shape legend: B sequences, T tokens of the longest, P masked positions, H hidden size, V vocabulary
size, K labels.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertine.core.errors import BertineError
from bertine.core.names import BOTH_ORDERS as BOTH_ORDERS
from bertine.core.names import PAIR_CLASSIFIER as PAIR_CLASSIFIER
from bertine.core.names import VECTOR_CLASSIFIER as VECTOR_CLASSIFIER
from bertine.models.config import Config
from bertine.models.dropout import StreamDropout
from bertine.models.encoder import (
    Backbone,
    BackboneOutput,
    Encoded,
    Inputs,
    TextInputs,
    with_types,
)
from bertine.models.family import Family, HeadKind, family_of
from bertine.models.layers import activation, init_weights, linear
from bertine.models.pooling import Pooling
from bertine.models.precision import finite


@runtime_checkable
class GuessesWords(Protocol):
    """A head with weights for each word of the vocabulary.

    Attributes:
        vocabulary_tensors: the weights with a place for each word, by their names in the head, with
            their dimension that counts words.
    """

    @property
    def vocabulary_tensors(self) -> Mapping[str, int]: ...

    def compile(self) -> None:
        """Have torch.compile compile the head at its first call."""
        ...


class MlmHead(nn.Module):
    """The masked-LM head: dense, activation, layer norm, then the word embeddings as decoder.

    The decoder's matrix is the backbone's word embedding (tied), so it is an argument, not a
    parameter; the head holds only its bias (google-research/bert, ``get_masked_lm_output``).

    Attributes:
        vocabulary_tensors: see :class:`GuessesWords`.
    """

    vocabulary_tensors: ClassVar[Mapping[str, int]] = {"bias": 0}

    def __init__(self, config: Config, act: str | None = None) -> None:
        """`act` replaces the activation of `config`."""
        super().__init__()
        size = config.embedding_width
        self.dense = nn.Linear(config.hidden_size, size)
        self.layer_norm = nn.LayerNorm(size, eps=config.layer_norm_eps)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))
        self.act = activation(act or config.hidden_act)
        init_weights(self, config.initializer_range)

    def reset_parameters(self) -> None:
        """Set the decoder's bias to 0."""
        nn.init.zeros_(self.bias)

    def forward(self, hidden: Tensor, decoder_weight: Tensor) -> Tensor:
        """Map hidden [P, H] and decoder_weight [V, E] to logits [P, V]."""
        hidden = self.layer_norm(self.act(self.dense(hidden)))
        return linear(hidden, decoder_weight, self.bias, self.training)


class NspHead(nn.Module):
    """The next-sentence head on the pooled output; label 0 is "next", 1 is "random"."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, 2)
        init_weights(self, config.initializer_range)

    def forward(self, pooled: Tensor) -> Tensor:
        """Map pooled [B, H] to logits [B, 2]."""
        return self.dense(pooled)


class SpanHead(nn.Module):
    """One linear layer on every token: its score as the first and as the last of the answer (paper,
    section 4.2; ``BertForQuestionAnswering``). Without dropout, as in the published code."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.out = nn.Linear(config.hidden_size, 2)
        init_weights(self, config.initializer_range)

    def forward(self, hidden: Tensor) -> Tensor:
        """Map hidden [B, T, H] to logits [B, T, 2], of start and end."""
        return self.out(hidden)


def classifier_dropout(config: Config) -> float:
    """Return the rate of the dropout in classifiers: that of states, unless there is another."""
    p = config.classifier_dropout
    return config.hidden_dropout_prob if p is None else p


class ClassificationHead(nn.Module):
    """Dropout and one linear layer on the pooled output (paper, section 4.1)."""

    def __init__(self, config: Config, num_labels: int, *, bias: bool = True) -> None:
        super().__init__()
        self.dropout = StreamDropout(classifier_dropout(config))
        self.out = nn.Linear(config.hidden_size, num_labels, bias)
        init_weights(self, config.initializer_range)

    def forward(self, pooled: Tensor) -> Tensor:
        """Map pooled [B, H] to logits [B, K]."""
        return self.out(self.dropout(pooled))


class DenseHead(nn.Module):
    """Head that scores the state of one token: dropout, dense, activation, dropout, linear.

    Args:
        config: of the backbone.
        num_labels: K.
        act: the activation.
        first: the rate of the first dropout; None: that of classifiers.
        last: the rate of the last dropout; None: that of classifiers.
    """

    def __init__(
        self,
        config: Config,
        num_labels: int,
        act: Callable[[Tensor], Tensor] = torch.tanh,
        first: float | None = None,
        last: float | None = None,
    ) -> None:
        super().__init__()
        usual = classifier_dropout(config)
        self.first_dropout = StreamDropout(usual if first is None else first)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.act = act
        self.last_dropout = StreamDropout(usual if last is None else last)
        self.out = nn.Linear(config.hidden_size, num_labels)
        init_weights(self, config.initializer_range)

    def forward(self, state: Tensor) -> Tensor:
        """Map state [B, H] to logits [B, K]."""
        return self.out(self.last_dropout(self.act(self.dense(self.first_dropout(state)))))


class PairHead(nn.Module):
    """One linear layer on the vectors of two texts that are encoded separately: u, v, |u - v|,
    u * v by element, and their cosine (the vectors and the difference are those of Reimers and
    Gurevych 2019, arXiv 1908.10084, section 3); with `shared_pieces` also on how much of each text
    occurs in the other (:func:`shares_in_common`).

    A model that was trained to give texts vectors knows how similar two texts are; a model that
    reads them as one input, as in the paper, must first learn to compare them. A vector represents
    the topic of a text, but not its exact words, which the shares in common add.

    Args:
        config: of the backbone.
        num_labels: K.
        pooling: how the last states of a text become its vector.
        shared_pieces: whether the shares in common are read; then ``piece_weights`` [V], all 1 in a
            new head, are the weights of the pieces in them.

    Raises:
        BertineError: `pooling` is unknown, or does not give a single vector of the last states.
    """

    def __init__(
        self, config: Config, num_labels: int, pooling: Pooling, shared_pieces: bool = False
    ) -> None:
        super().__init__()
        _check_pooling(pooling, config)
        self.pooling = pooling
        self.piece_weights = None
        if shared_pieces:
            # Counted in the texts, not trained.
            weights = torch.ones(config.vocab_size)
            self.piece_weights = nn.Parameter(weights, requires_grad=False)
        shares = 2 if shared_pieces else 0
        self.out = nn.Linear(4 * pooling.width(config) + 1 + shares, num_labels)
        init_weights(self, config.initializer_range)

    def reset_parameters(self) -> None:
        """Give every piece the same weight."""
        if self.piece_weights is not None:
            nn.init.ones_(self.piece_weights)

    def forward(self, encoded: Encoded, texts: Inputs) -> Tensor:
        """Compare the texts of B pairs.

        Args:
            encoded: the output for the 2 B `texts`, those of :func:`texts_apart`.
            texts: their ids and mask [2 B, T].

        Returns:
            Logits fp32 [B, K].
        """
        features = self.features(encoded, texts)
        with torch.autocast(features.device.type, enabled=False):
            return self.out(features)

    def features(self, encoded: Encoded, texts: Inputs) -> Tensor:
        """Return the linear layer's input for each pair, fp32 [B, 4 D + 1], and 2 more for the
        shares in common; see :meth:`forward`."""
        assert texts.attention_mask is not None
        # A packed backbone leaves out columns of only padding.
        mask = texts.attention_mask[:, : encoded.last_hidden_state.shape[1]]
        vectors = self.pooling(encoded, mask)
        vectors = F.normalize(vectors, dim=-1)
        count = vectors.shape[0] // 2
        u, v = vectors[:count], vectors[count:]
        cosine = (u * v).sum(-1, keepdim=True)
        compared = [u, v, (u - v).abs(), u * v, cosine]
        if self.piece_weights is not None:
            compared.append(shares_in_common(texts, self.piece_weights.float()))
        return torch.cat(compared, -1)


class VectorHead(nn.Module):
    """One linear layer on the vector of a text, without a layer before it: for models whose
    published head has more than a linear layer, which fitting only the head could not set.

    Args:
        config: of the backbone.
        num_labels: K.
        pooling: how the last states of a text become its vector.

    Raises:
        BertineError: `pooling` is unknown, or does not give a single vector of the last states.
    """

    def __init__(self, config: Config, num_labels: int, pooling: Pooling) -> None:
        super().__init__()
        _check_pooling(pooling, config)
        self.pooling = pooling
        self.out = nn.Linear(pooling.width(config), num_labels)
        init_weights(self, config.initializer_range)

    def forward(self, encoded: Encoded, texts: Inputs) -> Tensor:
        """Map the B encoded `texts`, with their mask [B, T], to logits fp32 [B, K]."""
        vectors = self.vectors(encoded, texts)
        with torch.autocast(vectors.device.type, enabled=False):
            return self.out(vectors)

    def vectors(self, encoded: Encoded, texts: Inputs) -> Tensor:
        """Return the linear layer's input for each text, fp32 [B, D]."""
        assert texts.attention_mask is not None
        # A packed backbone leaves out columns of only padding.
        mask = texts.attention_mask[:, : encoded.last_hidden_state.shape[1]]
        return self.pooling(encoded, mask).float()


def _check_pooling(pooling: Pooling, config: Config) -> None:
    """Refuse a pooling that does not give a single vector of the last states of a text."""
    pooling.check(config)
    if pooling.tokens or pooling.needs_all_layers:
        raise BertineError(f"pooling {pooling.name!r} makes no vector of the last states")


def shares_in_common(texts: Inputs, piece_weights: Tensor) -> Tensor:
    """Measure how much of each text of a pair occurs in the other.

    Args:
        texts: 2 B texts, first the first text of each pair, then the second ones: ids and mask
            [2 B, T].
        piece_weights: fp32 [V], at least 0, of each piece.

    Returns:
        fp32 [B, 2], for the first and the second text: the share of its pieces, by weight, that the
        other text has too, each occurrence counted; 0 if no piece has a weight.
    """
    assert texts.attention_mask is not None
    ids, count = texts.input_ids, texts.input_ids.shape[0] // 2
    weights = piece_weights[ids] * texts.attention_mask.to(piece_weights.dtype)
    # Padding has no weight, so it is never in common either.
    counts = (weights > 0).float()
    same = (ids[:count, :, None] == ids[count:, None, :]).float()
    same = same * counts[:count, :, None] * counts[count:, None, :]
    in_other = torch.cat([same.amax(2), same.amax(1)])
    shares = (weights * in_other).sum(1) / weights.sum(1).clamp(min=1e-9)
    return torch.stack([shares[:count], shares[count:]], 1)


def texts_apart(inputs: Inputs) -> TextInputs:
    """Split pairs that are one input each into separate texts.

    Args:
        inputs: of B pairs, with their mask and types: ``[CLS] a [SEP] b [SEP]`` or ``<s> a </s>
            </s> b </s>``, with the type 1 from the first piece of the second text on.

    Returns:
        2 B separate texts, ``[CLS] a [SEP]`` and ``[CLS] b [SEP]``, first all a, without types.
    """
    input_ids = inputs.input_ids
    assert inputs.attention_mask is not None
    real = inputs.attention_mask.bool()
    second = real & (with_types(inputs) == 1)
    first = real & ~second
    before, after = first.sum(1, keepdim=True), second.sum(1, keepdim=True)
    places = torch.arange(input_ids.shape[1], device=input_ids.device)[None, :]
    # [CLS], then the tokens after the last separator between the texts.
    source = (places + before - 1).clamp(max=input_ids.shape[1] - 1) * (places > 0)
    ids = torch.cat([input_ids, input_ids.gather(1, source)])
    # Of two separators between the texts, one stays with the first.
    ends = input_ids.gather(1, (before - 1).clamp(min=0))
    twice = (ends == input_ids.gather(1, (before - 2).clamp(min=0))) & (before > 1)
    return TextInputs(ids, torch.cat([places < before - twice.long(), places < after + 1]))


def encode_both_orders(model: Model, pairs: Inputs) -> BackboneOutput:
    """Encode pairs with the first text first, and with the second text first (Radford et al. 2018,
    section 3.3, similarity).

    Args:
        model: reads from left to right.
        pairs: of B pairs, with their mask and types: ``_start_ a _delimiter_ b _classify_``, with
            the type 1 from the first piece of the second text on.

    Returns:
        The states of the first order, and the sum of the pooled outputs of both, [B, H].
    """
    ids, mask = pairs.input_ids, pairs.attention_mask
    assert mask is not None
    second = mask.bool() & (with_types(pairs) == 1)
    before = (mask.bool() & ~second).sum(1, keepdim=True) - 2  # without _start_ and _delimiter_
    after = second.sum(1, keepdim=True) - 1  # without _classify_
    places = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
    source = torch.where(places <= after, places + before + 1, places - after - 1)
    source = torch.where(places == after + 1, before + 1, source)
    moved = (places > 0) & (places <= before + after + 1)
    swapped = ids.gather(1, torch.where(moved, source, places))
    encoded = model.encode(TextInputs(torch.cat([ids, swapped]), torch.cat([mask, mask])))
    assert encoded.pooler_output is not None
    first, other = encoded.pooler_output.chunk(2)
    return BackboneOutput(encoded.last_hidden_state[: len(ids)], first + other)


#: The heads that read no pooled output.
WITHOUT_POOLER = frozenset({"token_classifier", VECTOR_CLASSIFIER, PAIR_CLASSIFIER})
#: The heads of BERT, by their names in :attr:`bertine.models.heads.Model.heads`, in the order of
#: messages. The last one in a model determines transformers' class.
HEADS: Mapping[str, HeadKind] = {
    "mlm": HeadKind(
        "rows", lambda config, _: MlmHead(config), "MLM head", "ForMaskedLM", tied=True
    ),
    "nsp": HeadKind(
        "pooled", lambda config, _: NspHead(config), "NSP head", "ForNextSentencePrediction"
    ),
    "classifier": HeadKind(
        "pooled", ClassificationHead, "classifier", "ForSequenceClassification", named=True
    ),
    "spans": HeadKind(
        "tokens", lambda config, _: SpanHead(config), "span head", "ForQuestionAnswering"
    ),
    "token_classifier": HeadKind(
        "tokens", ClassificationHead, "token classifier", "ForTokenClassification", named=True
    ),
    "choice": HeadKind("pooled", ClassificationHead, "choice classifier", "ForMultipleChoice"),
    VECTOR_CLASSIFIER: HeadKind(
        *("text", VectorHead, "vector classifier", "ForTextVectorClassification"),
        published=False,
        named=True,
    ),
    PAIR_CLASSIFIER: HeadKind(
        *("texts", PairHead, "pair classifier", "ForTextPairClassification"),
        published=False,
        named=True,
    ),
}


def new_head(config: Config, name: str, outputs: int = 0, **options: Any) -> dict[str, nn.Module]:
    """Return the head `name` for a backbone of `config`, with new weights.

    Args:
        outputs: K; heads with a fixed number of outputs have their own.
        options: further arguments of the kind of head.

    Returns:
        The head by its name, as :class:`bertine.models.heads.Model` takes heads.

    Raises:
        BertineError: models of this type have no such head; or the head refuses its arguments.
    """
    kinds = family_of(config.model_type).heads
    if name not in kinds:
        title = HEADS[name].title if name in HEADS else f"head {name!r}"
        raise BertineError(f"a model of type {config.model_type} has no {title}")
    return {name: kinds[name].new(config, outputs, **options)}


# Model: a backbone and the heads that an objective or task asks for.


class Model(nn.Module):
    """A backbone with named heads.

    Objectives and tasks use the heads; the model only holds the parts, so that one state dict, one
    optimizer and one checkpoint cover them. :meth:`encode` is the only access to the backbone and
    :meth:`read` the only access to the heads.

    Args:
        config: of the backbone.
        heads: by name, of those of its family.
        add_pooler: whether the backbone has a pooler; None: if models with these heads have.

    Attributes:
        config: of the backbone.
        backbone: maps ids to states.
        heads: by name: "mlm", "nsp", "classifier", …
    """

    config: Config
    backbone: Backbone

    def __init__(
        self, config: Config, heads: Mapping[str, nn.Module], add_pooler: bool | None = None
    ) -> None:
        super().__init__()
        self.config = config
        if add_pooler is None:
            add_pooler = self.family.needs_pooler(config, heads)
        self.backbone = self.family.new_backbone(config, add_pooler)
        self.heads = nn.ModuleDict(dict(heads))

    @property
    def family(self) -> Family:
        """The family of its type. Looked up, not held: its functions cannot be pickled."""
        return family_of(self.config.model_type)

    def encode(
        self,
        inputs: Inputs,
        *,
        all_states: bool = False,
        word_vectors: Tensor | None = None,
        target: Inputs | None = None,
    ) -> Encoded:
        """Run the backbone on a batch.

        Args:
            inputs: ids, mask, types and packing; see :class:`bertine.models.encoder.TextInputs`.
            all_states: also return the output of every layer.
            word_vectors: [B, T, E], used instead of the word embeddings of the ids; for batches
                without padding.
            target: the decoder's input, for models that have one; None: the inputs.
        """
        options: dict[str, Any] = {}
        if inputs.packing is not None:  # packed layers for answers on a CPU take none
            options["packing"] = inputs.packing
        if word_vectors is not None:
            options["word_vectors"] = word_vectors
        if target is not None:
            options["target"] = target
        encoded: Encoded = self.backbone(
            inputs.input_ids,
            inputs.attention_mask,
            inputs.token_type_ids,
            output_hidden_states=all_states,
            **options,
        )
        return encoded

    def attention(self, inputs: Inputs, layers: Iterable[int]) -> list[Tensor]:
        """Return what the tokens of one text without padding attend to in some layers.

        Attention shows where heads look; it is no explanation of an answer.

        Args:
            inputs: ids and types, [1, T].
            layers: their numbers, from 0 on.

        Returns:
            For each layer fp32 [A, T, T], the attending token first; the rows sum to 1.

        Raises:
            BertineError: the attention of such a model cannot be shown, or is not finite.
        """
        states = self.encode(inputs, all_states=True).hidden_states
        assert states is not None
        scores = self.backbone.attention_scores
        return [
            finite(scores(layer, states[layer], inputs.token_type_ids)[0].softmax(-1))
            for layer in layers
        ]

    def read(
        self,
        head: str,
        encoded: Encoded,
        *,
        places: Tensor | None = None,
        texts: Inputs | None = None,
        fp32: bool = False,
    ) -> Tensor:
        """Run a head on an encoded batch.

        Args:
            head: its name.
            encoded: the result of :meth:`encode`.
            places: int64 [P], indices into the B * T tokens, for a head that reads rows.
            texts: the encoded inputs, for a head that reads a text or texts.
            fp32: compute the head in fp32, since bf16 has only three digits.

        Returns:
            Logits: [P, V] for rows, [B, K] for the pooled output and for a text, [B, T, K] for
            tokens, [B / 2, K] for texts.
        """
        kind, module = self.family.heads[head], self.heads[head]
        logits: Tensor
        if kind.reads in ("text", "texts"):
            logits = module(encoded, texts)
            return logits
        if kind.reads == "rows":
            assert places is not None, f"the head {head} reads the states at places"
            states: Tensor | None = encoded.rows(places)
        elif kind.reads == "pooled":
            states = encoded.pooler_output
        elif kind.reads == "first":
            states = encoded.first_token
        else:
            states = encoded.last_hidden_state
        assert states is not None, f"the head {head} needs a pooler"
        if kind.tied:
            logits = module(states, self.backbone.word_weights)
        elif fp32:
            with torch.autocast(states.device.type, enabled=False):
                logits = module(states.float())
        else:
            logits = module(states)
        return logits

    def next_scores(self, states: Tensor) -> Tensor:
        """Score the next token by the states before it, [R, H] → [R, V], with the config's head for
        writing texts.

        Raises:
            BertineError: a score is not finite.
        """
        name = self.config.writes_with
        module, tied = self.heads[name], self.family.heads[name].tied
        return finite(module(states, self.backbone.word_weights) if tied else module(states))

    def missing_partners(self) -> list[str]:
        """List the heads that others of this model were trained beside and that it lacks, since
        they are not written with it (:attr:`bertine.models.family.HeadKind.partner`)."""
        kinds = self.family.heads
        partners = [kinds[name].partner for name in self.heads]
        return [name for name in partners if name and name not in self.heads]

    def fingerprint(self) -> str:
        """Return the SHA-256 of all weights in hex digits, which identifies the start of a run."""
        return weights_fingerprint(self)

    def num_parameters(self) -> int:
        """Count the parameters; the tied decoder counts once."""
        return sum(p.numel() for p in self.parameters())


def weights_fingerprint(module: nn.Module, *, heads: bool = True) -> str:
    """Return the SHA-256 of the weights of `module` and their names in hex digits; without `heads`
    not those of a model's heads."""
    digest = hashlib.sha256()
    for name, tensor in module.state_dict().items():
        if not heads and name.startswith("heads."):
            continue
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()
