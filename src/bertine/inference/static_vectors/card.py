"""Write the card of a table of vectors: the README.md of its directory, with the hub's block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from bertine.inference.static_vectors.table import StaticTable
from bertine.terminal.console import counted
from bertine.version import __version__

CARD = "README.md"
_CODE = """```python
import bertine

vectors = bertine.Embedder.load("FOLDER")(["a text", "another"])  # FOLDER: where this file is
print(vectors.shape)
```

`model2vec.StaticModel.from_pretrained("FOLDER")` opens it too."""


def static_card(table: StaticTable, precision: str, facts: Mapping[str, Any]) -> str:
    """Describe a table of vectors for its README.md.

    Args:
        table: as it is saved.
        precision: of the numbers in the file.
        facts: how it was made.
    """
    title = "Static vectors" + (f" of {facts['teacher']}" if facts.get("teacher") else "")
    front = yaml.safe_dump(
        {
            "library_name": "model2vec",
            "pipeline_tag": "feature-extraction",
            "tags": ["bertine", "model2vec", "static-embeddings", "sentence-transformers"],
        },
        sort_keys=False,
    )
    parts = [
        f"---\n{front}---",
        f"# {title}",
        f"{counted(table.pieces, 'piece')} with a vector of {table.dimensions} numbers each "
        f"({precision}), {table.vectors.size:,} numbers. A text's vector is the mean of its "
        f"pieces', brought to length 1. Written by Bertine {__version__}.",
        _CODE,
    ]
    recipe = "\n".join(_recipe(facts))
    if recipe:
        parts.append(f"{'#' * 2} Recipe\n\n{recipe}")
    return "\n\n".join(parts) + "\n"


def _recipe(facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield what was done, in words."""
    for key, text in (
        ("explained_variance", "share of the variance that the principal components keep: {:.1%}"),
        ("weights", "weights of pieces: {}"),
        ("data_path", "texts: `{}`"),
        ("texts", "texts that were counted: {:,}"),
        ("trained_on", "texts whose vectors by the teacher were learned from: {:,}"),
        ("words_added", "words of the texts with a vector of their own: {:,}"),
        ("cosine_before", "cosine with the teacher's vectors of held-out texts, before: {:.3f}"),
        ("cosine_after", "and after learning from the teacher: {:.3f}"),
    ):
        if facts.get(key) is not None:
            yield "- " + text.format(facts[key])
