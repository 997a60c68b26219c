"""Learn codes for MNIST, evaluate them, and draw the nearest neighbors of a few queries.

    python examples/demo.py            # writes build/demo/neighbors.png

Takes about a minute on two cores. Without MNIST (no network), it uses the digits that come with scikit-learn.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from hashlearn import METHODS, HammingIndex, Hasher
from hashlearn.datasets import Dataset, load
from hashlearn.errors import DatasetError
from hashlearn.evaluation import Truth, euclidean_neighbors, evaluate, setting

PICTURE = Path("build/demo/neighbors.png")
N_BITS = 32
# UDH-DNN is trained by Adam: as good as the paper's L-BFGS, which takes minutes.
METHODS_SHOWN: dict[str, dict[str, object]] = {
    "lsh": {},
    "itq": {},
    "udh-dnn": {"solver": "adam"},
    "neighbor-hash": {},
}
N_QUERIES, N_NEIGHBORS = 8, 10
# In pixels: the side of an image, its frame, the height of the caption above it.
SIDE, FRAME, CAPTION = 56, 3, 14
SAME, OTHER, QUERY = (36, 110, 214), (224, 108, 0), (90, 90, 90)

START = time.perf_counter()


def say(text: str) -> None:
    """Print a line with the seconds since the start, at once even if the output is a file."""
    print(f"{time.perf_counter() - START:5.1f} s  {text}", flush=True)


def main() -> None:
    say("Loading MNIST (the first time: downloading it)")
    try:
        dataset = load("mnist")
    except DatasetError as error:
        print(f"{error}\nUsing scikit-learn's digits instead.", file=sys.stderr)
        dataset = load("digits")
    queries, database = dataset.queries, dataset.database
    k, protocol = setting(dataset.name).k, setting(dataset.name).protocol
    assert k is not None
    say(f"Finding the {k} true neighbors of {len(queries):,} queries among {len(database):,} images")
    truth = Truth.neighbors(euclidean_neighbors(queries, database, k, cache=True), f"{k} Euclidean nearest neighbors")
    for name, options in METHODS_SHOWN.items():
        text = "".join(f", {key}={value!r}" for key, value in options.items())
        say(f"Training {name} on {len(dataset.train):,} images ({N_BITS} bits{text})")
        hasher = METHODS[name](n_bits=N_BITS, random_state=0, **options).fit(dataset.train)
        codes = hasher.encode(database)
        scores = evaluate(hasher.encode(queries), codes, truth, n_bits=N_BITS, protocol=protocol)
        precisions = "".join(f"  P@{r} {100 * p:5.2f}" for r, p in scores.precision_at_radius.items())
        say(f"    {name:13} mAP {100 * scores.map:5.2f}{precisions}")
    say(f"Percent, {N_BITS} bits; truth: {truth.description}; {protocol}")
    draw_neighbors(hasher, codes, dataset, PICTURE)
    say(f"{PICTURE}: queries and their nearest neighbors by {hasher.name} code, with the Hamming distances")


def draw_neighbors(hasher: Hasher, codes: NDArray[np.uint8], dataset: Dataset, path: Path) -> None:
    """Draw a row for each of a few queries: its image, then the images with the nearest codes.

    Blue frames: the same class as the query; orange: another class.
    """
    assert dataset.query_labels is not None
    assert dataset.database_labels is not None
    queries = np.sort(np.random.default_rng(1).choice(len(dataset.queries), N_QUERIES, replace=False))
    index = HammingIndex(N_BITS)
    index.add(codes)
    distances, ids = index.search(hasher.encode(dataset.queries[queries]), k=N_NEIGHBORS)
    step = SIDE + 2 * FRAME + 4
    sheet = Image.new("RGB", (step * (N_NEIGHBORS + 1) + 12, (step + CAPTION) * N_QUERIES + 4), "white")
    draw = ImageDraw.Draw(sheet)

    def put(row: int, column: int, vector: NDArray[np.uint8], caption: str, color: tuple[int, int, int]) -> None:
        x, y = 4 + column * step + (8 if column else 0), row * (step + CAPTION) + CAPTION
        side = round(len(vector) ** 0.5)
        gray = 255 - np.asarray(vector * (255.0 / dataset.database.max()), dtype=np.uint8).reshape(side, side)
        draw.rectangle((x, y, x + SIDE + 2 * FRAME - 1, y + SIDE + 2 * FRAME - 1), fill=color)
        sheet.paste(Image.fromarray(gray).resize((SIDE, SIDE)), (x + FRAME, y + FRAME))
        draw.text((x + FRAME + SIDE / 2, y - 1), caption, fill=color, anchor="mb")

    for row, query in enumerate(queries):
        put(row, 0, dataset.queries[query], "query", QUERY)
        for column, item in enumerate(ids[row], start=1):
            same = dataset.database_labels[item] == dataset.query_labels[query]
            put(row, column, dataset.database[item], str(distances[row, column - 1]), SAME if same else OTHER)
    path.parent.mkdir(parents=True, exist_ok=True)
    sheet.quantize(64).save(path, optimize=True)


if __name__ == "__main__":
    main()
