"""Makes the modules of hostile tests, and what others need of tests/search, importable."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "search"))
