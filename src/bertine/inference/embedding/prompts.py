"""The prompts of a model directory: texts that are put before a text, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bertine.errors import BertineError
from bertine.interop.sentence_modules import SentenceModules, read_sentence_modules

#: What models call the prompt of queries, and that of the texts among which is searched, in the
#: order in which they are tried.
_QUERIES = ("query", "search_query")
_DOCUMENTS = ("document", "passage", "corpus", "search_document")


@dataclass(frozen=True)
class Prompts:
    """The prompts of a model directory.

    Attributes:
        where: the directory, for messages.
        texts: by name.
        default: the name of the one that is put before a text where none is named.
        pooled: whether their pieces count in a vector, as they do here.
    """

    where: str = ""
    texts: Mapping[str, str] = field(default_factory=dict)
    default: str | None = None
    pooled: bool = True

    @classmethod
    def of(cls, where: Path | str, modules: SentenceModules | None) -> Prompts:
        """Return those that the `modules` of a directory have."""
        if modules is None:
            return cls(str(where))
        return cls(str(where), modules.prompts, modules.default_prompt, modules.include_prompt)

    @classmethod
    def read(cls, where: Path | str) -> Prompts:
        """Read those of a model directory.

        Raises:
            BertineError: what its modules cannot be read for.
        """
        return cls.of(where, read_sentence_modules(where))

    @property
    def for_queries(self) -> str | None:
        """The name of the prompt of queries; None: there is none, or it could not be put."""
        return self.for_kind(_QUERIES[0])

    @property
    def for_documents(self) -> str | None:
        """The name of the prompt of texts among which is searched; None as above."""
        return self.for_kind(_DOCUMENTS[0])

    def for_kind(self, kind: str) -> str | None:
        """Return the name of the prompt for texts of a kind, as models, or the clients of Cohere
        and NVIDIA, call it; None as above."""
        names = next((names for names in (_QUERIES, _DOCUMENTS) if kind in names), (kind,))
        return next((name for name in names if self.pooled and name in self.texts), None)

    def meant(self) -> tuple[str, str]:
        """Return what is put before documents and before queries where nothing else is said."""
        if not self.pooled:
            return "", ""
        return self.text(self.for_documents), self.text(self.for_queries)

    def text(self, name: str | None) -> str:
        """Return the prompt of this name, "" for ""; None: the default one, or "".

        Raises:
            BertineError: there is none of this name, or it would be left out of the vectors.
        """
        name = self.default if name is None else name
        if not name:
            return ""
        before = f"{self.where}: " if self.where else ""
        if name not in self.texts:
            known = ", ".join(self.texts) or "none"
            raise BertineError(f"{before}there is no prompt {name!r}; there are: {known}")
        if not self.pooled:
            raise BertineError(
                f"{before}its pooling leaves the prompt out (include_prompt), which is not "
                'computed here; say prompt "" for none'
            )
        return self.texts[name]
