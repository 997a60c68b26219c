"""Makes the modules of hostile tests, and what others need of tests/collection, importable."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "collection"))
