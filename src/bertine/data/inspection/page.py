"""Instances with their masks as a page: one file that loads nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from bertine.data.inspection.marks import Kind, MarkedToken, gaps, joined
from bertine.files import write_text
from bertine.text.pieces import bare

_STYLE = """
:root { color-scheme: light dark; --line: #c8ccd0; --soft: #5c6570; --back: #f4f5f6;
  --masked: #cfe3ff; --replaced: #ffd9c7; --kept: #d5efd0; --a: #3b6fb6; --b: #b0662a; }
@media (prefers-color-scheme: dark) {
  :root { --line: #444a50; --soft: #a2abb5; --back: #1f2327;
    --masked: #1d3f6e; --replaced: #6b3420; --kept: #24502a; --a: #7fb0f0; --b: #e0a06a; } }
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; overflow-wrap: anywhere; }
h2 { font-size: 1.05rem; margin: 2rem 0 .2rem; }
pre { background: var(--back); border: 1px solid var(--line); padding: .8rem; overflow-x: auto;
  font-size: .85rem; white-space: pre-wrap; }
p.about { color: var(--soft); margin: 0 0 .6rem; }
.segment { border-left: 4px solid var(--a); padding: .1rem 0 .1rem .8rem; margin: .5rem 0;
  line-height: 2.3; }
.segment.odd { border-color: var(--b); }
.name { color: var(--soft); font-size: .8rem; margin-right: .4rem; }
.added { color: var(--soft); font-size: .8rem; }
ruby { border-radius: .2rem; padding: 0 .2rem; }
rt { font-size: .7rem; }
.masked { background: var(--masked); } .replaced { background: var(--replaced); }
.kept { background: var(--kept); }
"""

_LEGEND: tuple[tuple[Kind, str, str, str], ...] = (
    ("masked", "", "what it was", "hidden"),  # what stands for a mask is the vocabulary's
    ("replaced", "another", "what it was", "replaced by a random token"),
    ("kept", "itself", "itself", "to be predicted, but left as it was"),
)


@dataclass(frozen=True)
class ShownInstance:
    """An instance as it is shown.

    Attributes:
        name: such as "instance 0".
        heading: what it was made of.
        segments: the name of each, and its tokens.
    """

    name: str
    heading: str
    segments: Sequence[tuple[str, Sequence[MarkedToken]]]


def write_page(
    path: Path | str,
    title: str,
    facts: Sequence[str],
    instances: Sequence[ShownInstance],
    mask: str,
) -> None:
    """Write the facts and instances of a store as one HTML file, atomically.

    Above every token to be predicted stands what it was. `mask` is what the model sees of one
    that is hidden.

    Raises:
        BertineError: it cannot be written.
    """
    body = [f"<h1>{escape(title)}</h1>", f"<pre>{escape(chr(10).join(facts))}</pre>"]
    if instances:
        entries = (f"{_ruby(kind, seen or mask, was)} {text}" for kind, seen, was, text in _LEGEND)
        body.append(f"<p>{', &ensp;'.join(entries)}</p>")
    for instance in instances:
        kinds = [token.kind for _, tokens in instance.segments for token in tokens]
        counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind, *_ in _LEGEND)
        body += [
            "<section>",
            f"<h2>{escape(instance.name)}</h2>",
            f'<p class="about">{escape(instance.heading)}; {len(kinds)} tokens, {counts}</p>',
        ]
        for number, (name, tokens) in enumerate(instance.segments):
            odd = " odd" if number % 2 else ""
            text = "".join(map(_token, tokens, joined(tokens), gaps(tokens)))
            body.append(
                f'<p class="segment{odd}"><span class="name">{escape(name)}</span>{text}</p>'
            )
        body.append("</section>")
    write_text(
        path,
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n",
    )


def _token(token: MarkedToken, inside: bool, gap: str) -> str:
    if token.kind == "plain":
        return gap + escape(bare(token.text) if inside else token.text)
    if token.kind == "added":
        return f'{gap}<span class="added">{escape(token.text)}</span>'
    return gap + _ruby(token.kind, token.text, token.was)


def _ruby(kind: Kind, seen: str, was: str) -> str:
    return f'<ruby class="{kind}">{escape(seen)}<rt>{escape(was)}</rt></ruby>'
