"""Fetch published data sets by name, ``hf:ORGANIZATION/NAME/CONFIGURATION/PART@REVISION``, and find
the files of their parts.

The card (``README.md``) says which files are which part of which configuration, else their names
do. Only tables are fetched, never a script. Where a repository has none, the Hugging Face hub may
have converted it to Parquet, in a branch of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any

from bertine.core.console import logger
from bertine.core.errors import BertineError
from bertine.core.files import sha256_file
from bertine.core.published import PublishedName, fetch, name_in_cache
from bertine.core.text import listing
from bertine.data.in_memory import SPLIT_NAMES, DataParts
from bertine.data.parquet import CARD, count_rows, is_parquet, read_card
from bertine.data.streams import COMPRESSIONS

#: The branch with what the hub has converted.
_CONVERTED = "refs/convert/parquet"
#: The name of a configuration without one.
_DEFAULT = "default"
_OTHERS = (".csv", ".tsv", ".jsonl", ".json")
_TABLES = (".parquet", *(kind + packed for kind in _OTHERS for packed in ("", *COMPRESSIONS)))
#: The end of the name of one of several files of a table; the names of files in a folder for each
#: part.
_SHARD, _NUMBER = re.compile(r"-\d{5}-of-\d{5}(-[0-9a-f]+)?$"), re.compile(r"\d{4,5}")
#: Most configurations named in a message.
_SHOWN = 20

#: Configuration → the name of a part → its files.
Layout = dict[str, dict[str, list[str]]]


def published_data(name: PublishedName) -> DataParts:
    """Fetch the files of a published data set that are not in the cache yet, and say how many rows
    they have and what their licence is.

    Args:
        name: its part is a configuration, one of the parts (``test``), or both.

    Returns:
        The parts, named by the configuration and the revision.

    Raises:
        BertineError: there is no such data set, configuration or part; it has several
            configurations and no default; it has no tables; or an error of
            :func:`~bertine.core.published.fetch`.
    """
    folder, files = _card_of(name)
    card = read_card(folder)
    layout = _by_card(card, files) or _by_names(files)
    at = name
    if not layout and name.hub == "hf" and name.revision is None:
        at = replace(name, revision=_CONVERTED)
        try:
            folder, files = _card_of(at)
        except BertineError as error:
            raise _no_tables(name, files) from error
        layout = _by_names(files)
    if not layout:
        raise _no_tables(name, files)
    configuration, word = _choose(name, layout, card)
    words = {"train": word} if word else _roles(layout[configuration])
    wanted = {role: layout[configuration][word] for role, word in words.items()}
    patterns = {role: _pattern(name, some, files) for role, some in wanted.items()}
    if name.hub == "hf":
        at = replace(at, revision=folder.name)
    folder = fetch(at, lambda _: [file for some in wanted.values() for file in some], "dataset")
    inside = [configuration] * (len(layout) > 1) + [word] * bool(word)
    at = replace(at, part="/".join(inside))
    tables = {role: folder / pattern for role, pattern in patterns.items()}
    # Only Parquet says how many rows it has.
    counts = [
        f"{words[role]} " + (f"{count_rows(table):,}" if is_parquet(table) else f"in {table.name}")
        for role, table in tables.items()
    ]
    rows = " rows" if any(map(is_parquet, tables.values())) else ""
    left = [other for other in layout[configuration] if other not in words.values() and not word]
    unused = f" ({listing(left)} not used)" if left else ""
    logger.info(f"{at}: {listing(counts)}{rows}{unused}; licence: {_licence(card)}")
    return DataParts(**tables, name=str(at), alone=bool(word))


def recorded_data(data: object) -> dict[str, Any]:
    """Return what the record of a run says of its data: where they are (``data_path``), and of a
    published data set, which is named with its revision, the SHA-256 of its files
    (``data_files``)."""
    tables = [data.train, data.validation, data.test] if isinstance(data, DataParts) else []
    paths = [table for table in tables if isinstance(table, Path)]
    files = [file for path in paths for file in sorted(path.parent.glob(path.name))]
    hashes = {name_in_cache(file) or file.name: sha256_file(file) for file in files}
    return {"data_path": str(data), **({"data_files": hashes} if hashes else {})}


def data_of_run(data: Any, begun: Mapping[str, Any] | None) -> Any:
    """Return the data that a run begins or goes on with: of a published data set the revision in
    the settings of a run that has `begun`; else `data` itself."""
    given = PublishedName.parse(data) if isinstance(data, str | Path) else None
    was = PublishedName.parse(str((begun or {}).get("data_path")))
    if given is None or was is None or given.revision is not None:
        return data
    same = was.repository == given.repository and was.part.endswith(given.part)
    return str(was) if same else data


def _card_of(name: PublishedName) -> tuple[Path, list[str]]:
    """Fetch the card, if there is one; return the folder and the paths of all files."""
    listed: list[str] = []

    def card(files: Sequence[str]) -> list[str]:
        listed[:] = files
        return [file for file in files if file in (CARD, ".gitattributes")]

    return fetch(name, card, "dataset"), sorted(listed)


def _by_card(card: Mapping[str, Any], files: Sequence[str]) -> Layout:
    """Find the files of each part as the card says; empty if it says nothing."""
    layout: Layout = {}
    for entry in _mappings(card.get("configs")):
        parts = layout.setdefault(str(entry.get("config_name", _DEFAULT)), {})
        top = f"{entry.get('data_dir') or ''}/".lstrip("./")
        given = entry.get("data_files")
        if given is None:
            parts |= next(iter(_by_names([f for f in files if f.startswith(top)]).values()), {})
        for item in _pairs(given):
            for pattern in item[1] if isinstance(item[1], list) else [item[1]]:
                path = top + str(pattern).removeprefix("./")
                some = [f for f in files if fnmatchcase(f, path) and f.endswith(_TABLES)]
                parts[item[0]] = [*dict.fromkeys([*parts.get(item[0], []), *some])]
    return {
        name: {word: some for word, some in parts.items() if some}
        for name, parts in layout.items()
        if any(parts.values())
    }


def _pairs(given: Any) -> Iterator[tuple[str, Any]]:
    """Yield the names of parts, and their files, of a ``data_files`` of any form."""
    if isinstance(given, Mapping):
        yield from ((str(word), files) for word, files in given.items())
        return
    for item in given if isinstance(given, list) else [given] if given else []:
        if isinstance(item, Mapping):
            yield str(item.get("split", "train")), item.get("path")
        else:
            yield "train", item


def _by_names(files: Sequence[str]) -> Layout:
    """Find the files of each part by their names: ``CONFIGURATION/PART-00000-of-00002.parquet``,
    ``CONFIGURATION/PART/0000.parquet``, ``train.csv``."""
    parquet = [file for file in files if file.endswith(".parquet")]
    layout: Layout = {}
    for file in parquet or [file for file in files if file.endswith(_TABLES)]:
        path = PurePosixPath(file)
        stem, folder = path.name.split(".")[0], path.parent
        word = _SHARD.sub("", stem)
        if _NUMBER.fullmatch(stem):
            word, folder = folder.name.removeprefix("partial-"), folder.parent
        elif word == stem and not any(word in names for names in SPLIT_NAMES.values()):
            continue
        name = "/".join(folder.parts[folder.parts[:1] == ("data",) :]) or _DEFAULT
        layout.setdefault(name, {}).setdefault(word, []).append(file)
    return layout


def _choose(name: PublishedName, layout: Layout, card: Mapping[str, Any]) -> tuple[str, str]:
    """Return the configuration that is meant, and the part, "" for all of them.

    Raises:
        BertineError: there is none such, or it is not clear which one is meant.
    """
    usual = [
        str(entry.get("config_name"))
        for entry in _mappings(card.get("configs"))
        if entry.get("default") is True
    ]
    usual = [*layout] if len(layout) == 1 else [*usual, _DEFAULT]
    default = next((one for one in usual if one in layout), "")
    names = listing([*list(layout)[:_SHOWN], *["…"] * (len(layout) > _SHOWN)])
    first = f"{name.hub}:{name.repository}/{next(iter(layout))}"
    if not name.part and not default:
        raise BertineError(f"{name}: has the configurations {names}; name one, as in {first}")
    if not name.part or name.part in layout:
        configuration, word = name.part or default, ""
    else:
        configuration, _, word = name.part.rpartition("/")
        parts = layout.get(configuration or default, {})
        word = _roles(parts).get(word, word)
        if word not in parts:
            there = f"parts {listing(list(parts))}" if parts else f"configurations {names}"
            raise BertineError(f"{name}: there is no {name.part!r} in it; it has the {there}")
        configuration = configuration or default
    if not word and not _roles(layout[configuration]):
        words = list(layout[configuration])
        raise BertineError(
            f"{name}: has the parts {listing(words)}, none of which is called train, validation or "
            f"test; name one, as in {name.hub}:{name.repository}/{words[0]}"
        )
    return configuration, word


def _roles(parts: Mapping[str, Any]) -> dict[str, str]:
    """Return what the training, validation and test parts are called, as far as there are any."""
    there = {role: [word for word in names if word in parts] for role, names in SPLIT_NAMES.items()}
    return {role: words[0] for role, words in there.items() if words}


def _pattern(name: PublishedName, some: Sequence[str], files: Sequence[str]) -> str:
    """Return the path of a table, or the pattern of its several files.

    Raises:
        BertineError: they are not Parquet, or no pattern stands for just these.
    """
    if len(some) == 1:
        return some[0]
    pattern = re.sub(r"\d{5}(-of-\d{5})(-[0-9a-f]+)?(?=\.parquet$)", r"*\1*", some[0])
    if pattern == some[0]:
        pattern = f"{PurePosixPath(pattern).parent}/*.parquet"
    if [file for file in files if fnmatchcase(file, pattern)] != sorted(some):
        raise BertineError(
            f"{name}: a part is in {len(some)} files ({some[0]}, …), which are read as one table "
            "only if they are Parquet, in a folder of their own"
        )
    return pattern


def _no_tables(name: PublishedName, files: Sequence[str]) -> BertineError:
    scripts = [file for file in files if file.endswith(".py")]
    script = f"; its script {scripts[0]} is not run" if scripts else ""
    return BertineError(
        f"{name}: has no Parquet, csv or JSON lines named train, validation or test, and the hub "
        f"has not converted it to Parquet{script}"
    )


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _licence(card: Mapping[str, Any]) -> str:
    given = card.get("license")
    words = [str(item) for item in (given if isinstance(given, list) else [given]) if item]
    return ", ".join(words) or "not stated on its card"
