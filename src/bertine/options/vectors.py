"""Options of what a text's vector is."""

from __future__ import annotations

from bertine.names import PoolingName, VectorPooling
from bertine.options.fields import NOT_KNOWN, OptionGroup, declare, like
from bertine.options.machine import Device
from bertine.options.run import Seed


class VectorForm(OptionGroup):
    """Options that say which states become a vector, and of how much text."""

    title = "vectors"

    layer: int | None = declare(
        None,
        "whose states: 0 are the embeddings, -1 the last layer's, -2 those before",
        otherwise="the last",
        least=-1000,
    )
    max_length: int | None = declare(
        None,
        "pieces of a text, longer ones are cut",
        otherwise="as the model directory says, else all that the model has positions for",
    )


class TextVectors(VectorForm):
    """Options that say how one vector is made of a text."""

    title = "vectors"

    pooling: VectorPooling | None = declare(
        None,
        "what becomes of the tokens' states",
        otherwise="as the model directory says, else mean",
    )


class AnyVectors(VectorForm):
    """Options that say how one vector is made of a text, or one of each token."""

    title = "vectors"

    pooling: PoolingName | None = declare(
        None,
        "what becomes of the tokens' states; tokens: each keeps its own",
        otherwise="as the model directory says, else mean",
        unknown=NOT_KNOWN,
    )


class Normalizing(OptionGroup):
    """Options that say how long vectors are."""

    title = "vectors"

    normalize: bool | None = declare(
        None, "to length 1", otherwise="as the model directory says, else not"
    )


class Prompt(OptionGroup):
    """Options that say what is put before texts."""

    title = "vectors"

    prompt: str | None = declare(
        None,
        "one of the prompts of the model directory, put before every text; '' for none",
        otherwise="its default",
    )


class Shortening(OptionGroup):
    """Options that say how many numbers of a vector are kept."""

    title = "vectors"

    dimensions: int | None = declare(
        None,
        "keep so many of a vector's first numbers; for static vectors, and models that are trained "
        "for it ('bertine finetune similarity' with lengths of vectors)",
        otherwise="as the model directory says, else all",
        more="What is kept has length 1 again where whole vectors have.",
        least=1,
    )


class VectorOptions(AnyVectors, Normalizing, Shortening, Prompt, Device):
    """All options that an :class:`~bertine.Embedder` is loaded with, beside its precision."""


class IndexOptions(OptionGroup):
    """Options of ``index``."""

    title = "index"

    recall: float = declare(
        0.95,
        "share of the ten nearest rows that a search is to find; higher is slower",
        above=0,
        most=1,
    )
    seed: int = like(
        Seed, "seed", help="of the rows that it learns from and is measured with", title=""
    )
