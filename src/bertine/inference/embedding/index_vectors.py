"""``index_vectors``: make an index of a file of vectors, for many searches."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from bertine.files import atomic_dir, check_replaceable
from bertine.inference.embedding.vector_files import open_vectors
from bertine.inference.embedding.vector_index import DESCRIPTION, IndexDescription, VectorIndex
from bertine.options.vectors import IndexOptions
from bertine.options.verbs import takes_options
from bertine.terminal.console import counted, human_time, progress
from bertine.terminal.shown import Shown


@dataclass(frozen=True, repr=False)
class IndexReport(Shown):
    """The report of making an index.

    Attributes:
        folder: of the index.
        vectors: the file that it was made of.
        description: what it is, and the recall that was measured.
        megabytes: on disk.
        seconds: that it took.
    """

    folder: Path
    vectors: Path
    description: IndexDescription
    megabytes: float
    seconds: float

    def lines(self) -> list[str]:
        """Return what a person reads in the terminal."""
        index = self.description
        lines = [
            f"indexed {counted(index.rows, 'vector')} of {index.dimensions} numbers in "
            f"{human_time(self.seconds)}; {self.megabytes:,.0f} MB",
            f"a search reads {index.read:,} of {index.lists:,} lists, and finds "
            f"{100 * index.recall:.1f}% of the ten nearest rows (measured with rows of the "
            "file; queries unlike them find fewer)",
        ]
        if index.recall < index.wanted:
            lines.append(
                f"this is less than {100 * index.wanted:.1f}% although all lists are read: 8 bits "
                "are too few to tell these vectors apart; search without an index"
            )
        return [*lines, f"index: {self.folder}"]


@takes_options()
def index_vectors(
    vectors: Path | str, *, out: Path | str, show_progress: bool = True, options: IndexOptions
) -> IndexReport:
    """Make an index of a file of vectors, with which :func:`~bertine.similar` searches among
    millions without reading all of them. Needs the package faiss-cpu.

    The index has a byte for each number. The vectors' file is still needed: the best candidates are
    compared with it, so scores are exact, and only rows can be missed.

    Args:
        vectors: a ``.npy`` as :func:`~bertine.embed` writes it.
        out: the folder of the index, complete or not there at all.
        show_progress: on stderr.
        options: what the other arguments say.

    Raises:
        BertineError: `vectors` is no ``.npy`` of vectors, or has fewer than 10,000, or a number
            that is none; `out` holds something else; faiss is missing.
    """
    table = open_vectors(vectors)
    check_replaceable(out, "index of vectors", lambda folder: (folder / DESCRIPTION).is_file())
    started = time.monotonic()
    with progress(show=show_progress) as bar, atomic_dir(out) as folder:
        job = bar.add_task("index", total=len(table))
        index = VectorIndex.build(
            table,
            recall=options.recall,
            seed=options.seed,
            name=str(vectors),
            advance=lambda count: bar.update(job, advance=count),
        )
        index.write(folder)
        megabytes = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
    seconds = time.monotonic() - started
    return IndexReport(Path(out), Path(vectors), index.description, megabytes, seconds)
