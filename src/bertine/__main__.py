"""``python -m bertine`` is ``bertine``."""

import sys

from bertine.cli import main

if __name__ == "__main__":
    sys.exit(main())
