"""Copy a file of articles without those that the demo reads or asks about.

    python tools/leave_out_demo.py wiki-2.jsonl.zst OUT/wiki-2.jsonl.zst

The model in the package may not have read them (``tools/bundle_model.py``).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from bundle_model import demo_articles
from compressed_rows import read_lines, write_lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("articles", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    demo, lines = demo_articles(), list(read_lines(given.articles))
    kept = [line for line in lines if json.loads(line)["title"] not in demo]
    write_lines(given.out, kept, level=10)
    print(f"{given.out}: {len(kept):,} of {len(lines):,} articles")


if __name__ == "__main__":
    main()
