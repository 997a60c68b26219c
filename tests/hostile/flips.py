"""Single bits of whole files, flipped: a file with checksums is refused, or says what it said before.

python tests/hostile/flips.py --flips 5000
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

from seeds import Seed, all_seeds, scratch_folder


def flip_bits(seed: Seed, n: int, folder: Path, rng: random.Random) -> tuple[Counter[str], list[str]]:
    """Flip ``n`` bits of one file, one after the other, or each if it has no more; how often what came of it."""
    whole = folder / f"whole{seed.ending}"
    seed.make(whole)
    content, expected = whole.read_bytes(), seed.read(whole)
    content = whole.read_bytes()  # what opening it to write brings up to date
    bits = range(8 * len(content)) if n >= 8 * len(content) else sorted(rng.sample(range(8 * len(content)), n))
    path, counts, wrong = folder / f"flipped{seed.ending}", Counter[str](), []
    for bit in bits:
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        try:
            outcome = "the same" if seed.read(path) == expected else "wrong"
        except seed.refusals:
            outcome = "refused"
        except Exception as error:
            outcome = f"{type(error).__name__}"
        if outcome not in ("the same", "refused"):
            wrong.append(f"{seed.name}: bit {bit} of {8 * len(content)}: {outcome}")
        counts[outcome] += 1
    return counts, wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flips", type=int, default=5000, help="of each kind of file; all bits of a smaller one")
    parser.add_argument("--only", default="", help="kinds whose name begins so")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    bad = []
    for seed in all_seeds():
        if seed.checked and seed.name.startswith(options.only):
            with tempfile.TemporaryDirectory(dir=scratch_folder()) as folder:
                counts, wrong = flip_bits(seed, options.flips, Path(folder), random.Random(options.seed))
            print(f"{seed.name}: {dict(counts)}", flush=True)
            bad += wrong
    print("\n".join(bad[:40]) or "no bit made a file say something else")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1] / "search"))
    main()
