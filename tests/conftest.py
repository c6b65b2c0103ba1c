"""What holds for all tests."""

from __future__ import annotations

import os

# Several processes of pytest share the cores (make test): one thread each, in what they start as
# well. With more, the threads of one would wait for cores that another's hold, and a step takes ten
# times as long. Said before PyTorch is imported, which reads it then.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["OMP_NUM_THREADS"] = "1"
