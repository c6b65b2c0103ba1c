"""What is shown of a text is what the model is given, for every variant."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import bertine
import toys
from bertine.data.examples import Example, Examples
from bertine.hub.model_directory import load_model, save_model
from bertine.models.heads import Model
from bertine.reports.text_input import TextInput
from bertine.tasks.classification import TextClassification
from bertine.tokenization.tokenizer import Tokenizer

from .variants import VARIANTS, Variant, scramble

TEXTS = ("the old cat sleeps in the sofa .", "a warm soup")


@pytest.fixture(scope="module", params=VARIANTS)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    """A variant, and a model of it with the vocabulary of its kind."""
    variant, folder = VARIANTS[request.param], tmp_path_factory.mktemp("model")
    corpus = toys.write_corpus(folder / "corpus.txt", 8)
    style = {"special_tokens": variant.vocab[1]} if variant.vocab else {}
    kind = variant.family.tokenizer
    bertine.train_vocab([corpus], folder / "vocab", kind=kind, vocab_size=300, **style)
    tokenizer = Tokenizer.load(folder / "vocab")
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 64, "max_position_embeddings": 66}
    config = variant.family.presets[variant.preset].replace(**(sizes | variant.small))
    ends = tokenizer.template.first_id, tokenizer.template.last_id
    config = config.for_vocabulary(
        tokenizer.vocab_size, pad=tokenizer.pad_token_id, first=ends[0], last=ends[1]
    )
    model = Model(config, {})
    scramble(model, 1)
    save_model(folder / "model", model, tokenizer)
    return variant, folder / "model"


def shown(folder: Path, *texts: str, **options: object) -> TextInput:
    result = bertine.inspect(folder, text=texts, **options)
    assert isinstance(result, TextInput)
    return result


@pytest.mark.parametrize("count", [1, 2])
def test_ids_and_segments_are_those_of_a_batch(made: tuple[Variant, Path], count: int) -> None:
    """Of one that a task makes of the same texts, which reaches the backbone as it is."""
    _, folder = made
    loaded = load_model(folder)
    columns = ("first", "second")[:count]
    task = TextClassification(("x", "y"), columns, max_length=32)
    examples = Examples("texts", columns, None, [Example(TEXTS[:count])])
    features = task.featurize(examples, loaded.tokenizer)
    batch = task.collate(features, loaded.tokenizer.pad_token_id)
    given: list[tuple[Tensor, ...]] = []
    loaded.model.backbone.register_forward_pre_hook(lambda _, args: given.append(args))
    loaded.model.encode(batch)
    ids, mask, types = given[0][:3]
    real = mask[0].bool()  # batches are padded to a round width
    tokens = shown(folder, *TEXTS[:count]).tokens
    assert [token.id for token in tokens] == ids[0, real].tolist()
    if loaded.config.type_vocab_size != 1 and tokens[0].segment is not None:
        assert [token.segment for token in tokens] == types[0, real].tolist()


def test_positions_and_segments_are_those_that_transformers_looks_up(
    made: tuple[Variant, Path],
) -> None:
    variant, folder = made
    loaded, tokens = load_model(folder), shown(folder, *TEXTS).tokens
    theirs = variant.twin(loaded.model)
    looked_up: dict[str, list[tuple[Tensor, Tensor]]] = {"position": [], "token_type": []}
    for name, module in theirs.named_modules():
        for kind, rows in looked_up.items():
            if isinstance(module, nn.Embedding) and kind in name and "decoder" not in name:
                module.register_forward_hook(
                    lambda table, _, out, rows=rows: rows.append((table.weight, out))
                )
    ids = torch.tensor([[token.id for token in tokens]])
    types = {"token_type_ids": torch.tensor([[token.segment or 0 for token in tokens]])}
    with torch.no_grad():
        theirs(ids, **(types if loaded.config.token_types else {}))
    for kind, numbers in (
        ("position", [token.position for token in tokens]),
        ("token_type", [token.segment for token in tokens]),
    ):
        rows = looked_up[kind]
        if not rows:
            assert kind == "token_type" or numbers == [None] * len(tokens)
        for weight, out in rows:
            assert torch.equal(weight[torch.tensor(numbers)], out.reshape(len(tokens), -1))


@pytest.mark.parametrize("count", [1, 2])
def test_a_masked_text_is_the_same_but_where_it_says_so(
    made: tuple[Variant, Path], count: int
) -> None:
    variant, folder = made
    plain = shown(folder, *TEXTS[:count]).tokens
    masked = shown(folder, *TEXTS[:count], mask=True, seed=5)
    (note,) = (line for line in masked.notes if line.startswith("masks: "))
    if variant.model_type == "openai-gpt":
        assert masked.tokens == plain
        assert "from those before it" in note
    elif variant.model_type == "bart":
        mask = load_model(folder).tokenizer.mask_token_id
        assert [token.id for token in masked.tokens].count(mask)
        assert "the decoder is to write the whole text" in note
    else:
        asked = [place for place, token in enumerate(masked.tokens) if token.change]
        assert asked
        for place, (before, after) in enumerate(zip(plain, masked.tokens, strict=True)):
            if place in asked:
                assert not before.special
                assert after.was == before.piece
                assert (after.id == before.id) == (after.change in ("kept", "guessed"))
            else:
                assert after.id == before.id
            assert (before.position, before.segment is None) == (
                after.position,
                after.segment is None,
            )
        split = "85% masked, 15% kept" if variant.model_type == "electra" else "80% masked, 10%"
        assert ("a sixth" if variant.model_type == "xlnet" else split) in note
