"""Read a sheet of a workbook, as a program of its own: ``python sheets.py SHEET < WORKBOOK``.

A workbook of a few bytes can make a library ask for hundreds of gigabytes, which ends the process.
Here it ends this one, whose memory is limited; :mod:`bertine.data.workbooks` starts it and reports
that. It imports python-calamine and Python's own modules only, so that it starts at once.

It prints JSON lines: first an object of what is known of the sheet; then for each row that is not
empty its number in the sheet, and its values in the columns that are not empty. If it cannot, its
status is not 0, and the last line of stderr says why.
"""

from __future__ import annotations

import contextlib
import json
import math
import posixpath
import re
import sys
import zipfile
from collections.abc import Iterator
from itertools import islice
from typing import Any, BinaryIO
from xml.etree import ElementTree

#: Address space of the process, and most bytes that the parts of a workbook unpack to.
MEMORY = MOST_UNPACKED = 4 << 30
#: Numbers from here on are no longer exact in a workbook.
EXACT = 10**15
#: What the library leaves unknown, in the XML of Excel and of LibreOffice: cells with an error,
#: formulas without a value, and merged cells.
_EXCEL = {
    "errors": re.compile(rb'<(?:\w+:)?c\b[^>]*\st="e"'),
    "formulas": re.compile(
        rb'<(?:\w+:)?c\b(?![^>]*\st="str")[^>]*><(?:\w+:)?f\b[^<]*(?:</(?:\w+:)?f>)?'
        rb"(?:<(?:\w+:)?v\s*/>|<(?:\w+:)?v></(?:\w+:)?v>|</(?:\w+:)?c>)"
    ),
}
_OPEN_DOCUMENT = {
    "errors": re.compile(rb'\scalcext:value-type="error"'),
    "merged": re.compile(rb'\stable:number-(?:columns|rows)-spanned="(?!1")'),
}


class Refused(Exception):
    """The reason why a workbook is not read, for the user."""


def main(wanted: str) -> None:
    """Print the sheet `wanted` of the workbook on stdin; "": the first with a table."""
    try:
        for line in _lines(sys.stdin.buffer, wanted):
            print(json.dumps(line))
    except Refused as error:
        sys.exit(str(error))
    except BaseException as error:  # a panic of the library is not an Exception
        if type(error).__name__ == "PasswordError":
            sys.exit("is protected by a password; save it without one")
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        sys.exit(f"is damaged, cut short or no workbook ({reason}); save it again as .xlsx")


def _lines(file: BinaryIO, wanted: str) -> Iterator[Any]:
    import python_calamine as calamine

    archive = zipfile.ZipFile(file) if zipfile.is_zipfile(file) else None
    size = sum(part.file_size for part in archive.infolist()) if archive else 0
    if size > MOST_UNPACKED:
        raise Refused(
            f"unpacks to {size >> 30:,} GiB, but at most {MOST_UNPACKED >> 30} are read; save the "
            "sheet as csv"
        )
    file.seek(0)
    book = calamine.load_workbook(file)
    kind, visible = calamine.SheetTypeEnum.WorkSheet, calamine.SheetVisibleEnum.Visible
    known = [item for item in book.sheets_metadata if item.typ == kind]
    names = [item.name for item in known]
    # Those that are hidden come last.
    tried = sorted(names, key=lambda name: known[names.index(name)].visible != visible)
    if wanted:
        at = int(wanted) - 1 if wanted.isdecimal() else -1
        tried = [wanted] if wanted in names else names[at : at + 1] if at >= 0 else []
        if not tried:
            raise Refused(f"there is no sheet {wanted!r}; it has {', '.join(map(repr, names))}")
    # A table has two rows, and a cover page perhaps one.
    counted = {name: len(list(islice(_filled(book, name), 2))) for name in tried}
    name = max(tried, key=lambda name: counted[name], default="")
    if not counted.get(name):
        raise Refused(f"there is no cell with a value in {', '.join(map(repr, tried))}")
    numbers = []
    used: set[int] = set()
    for number, values in _filled(book, name):
        numbers.append(number)
        used.update(at for at, value in enumerate(values) if value is not None)
    sheet: Any = book.get_sheet_by_name(name)
    columns = sorted(used)
    yield {
        "sheet": name,
        "others": [other for other in names if other != name],
        "columns": [sheet.start[1] + at + 1 for at in columns],
        "rows": len(numbers),
        "empty": numbers[-1] - numbers[0] + 1 - len(numbers),
        "merged": len(sheet.merged_cell_ranges or ()),
        **(_count_unknown(archive, name, book.sheet_names.index(name)) if archive else {}),
    }
    for number, values in _filled(book, name):
        yield [number, *(values[at] for at in columns)]


def _filled(book: Any, name: str) -> Iterator[tuple[int, list[Any]]]:
    """Yield the rows of a sheet that are not empty, with their numbers."""
    for number, row in enumerate(book.get_sheet_by_name(name).iter_rows(), 1):
        if row.count("") < len(row):
            values = [_plain(value) for value in row]
            if values.count(None) < len(values):
                yield number, values


def _plain(value: Any) -> Any:
    """Convert a value to one of JSON: a number as the program shows it, in 15 digits; a date as its
    ISO text; an empty text, or one of blanks, is none."""
    if isinstance(value, float):
        value = float(f"{value:.15g}") if math.isfinite(value) else str(value)
        whole = isinstance(value, float) and value.is_integer() and abs(value) < EXACT
        return int(value) if whole else value
    value = value if isinstance(value, bool | int) else str(value)
    return None if isinstance(value, str) and not value.strip() else value


def _count_unknown(archive: zipfile.ZipFile, name: str, index: int) -> dict[str, int]:
    """Count in the XML of a sheet what the library leaves unknown."""
    parts = archive.namelist()
    if "xl/workbook.xml" in parts:
        patterns, xml = _EXCEL, archive.read(sheet_part(archive, name))
    elif "content.xml" in parts:
        patterns = _OPEN_DOCUMENT
        xml = re.split(rb"<table:table\s", archive.read("content.xml"))[index + 1]
    else:
        return {}
    return {what: sum(1 for _ in one.finditer(xml)) for what, one in patterns.items()}


def sheet_part(archive: zipfile.ZipFile, name: str) -> str:
    """Return the name of the part of an Excel workbook that holds the sheet `name`."""
    links = ElementTree.fromstring(archive.read("xl/_rels/workbook.xml.rels"))
    targets = {link.get("Id"): link.get("Target", "") for link in links}
    for sheet in ElementTree.fromstring(archive.read("xl/workbook.xml")).iter():
        if sheet.tag.endswith("}sheet") and sheet.get("name") == name:
            # The attribute's namespace is another one in files of the strict kind.
            link = next(value for key, value in sheet.attrib.items() if key.endswith("}id"))
            return posixpath.normpath(posixpath.join("/xl", targets[link]))[1:]
    raise KeyError(name)


if __name__ == "__main__":
    with contextlib.suppress(ImportError):  # another system than Unix
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_AS)
        limit = MEMORY if most == resource.RLIM_INFINITY else min(MEMORY, most)
        resource.setrlimit(resource.RLIMIT_AS, (limit, most))
    main(sys.argv[1])
