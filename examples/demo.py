"""Learn codes for MNIST, judge them, and look at what they find.

    python examples/demo.py            # writes build/demo/neighbours.png

Where MNIST can't be had (no network), scikit-learn's bundled digits take its place.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from hashlearn import METHODS, Hasher
from hashlearn.codes import hamming
from hashlearn.datasets import Dataset, load
from hashlearn.errors import DatasetError
from hashlearn.evaluation import setting
from hashlearn.experiments import dataset_truth, judge

PICTURE = Path("build/demo/neighbours.png")
# UDH-DNN as it learns most in a minute: from ITQ's codes on, fewer steps than the paper's (docs/methods/udh-dnn.md).
METHODS_SHOWN: dict[str, dict[str, object]] = {
    "lsh": {},
    "itq": {},
    "udh-dnn": {"init": "itq", "max_iter": 4, "lbfgs_iter": 30},
}
N_QUERIES, N_NEIGHBOURS = 8, 10


def main() -> None:
    try:
        dataset = load("mnist")
    except DatasetError as error:
        print(f"{error}\nGoing on with scikit-learn's digits instead.", file=sys.stderr)
        dataset = load("digits")
    how = setting(dataset.name)
    truth = dataset_truth(dataset, how)
    table = Table(title=f"{dataset.name}: {len(dataset.queries):,} queries, {len(dataset.database):,} items")
    for column in ("method", "bits", "mAP", *(f"P@{r}" for r in how.protocol.radii), "fit", "evaluate"):
        table.add_column(column, justify="left" if column == "method" else "right")
    for n_bits in (16, 32):
        for name, options in METHODS_SHOWN.items():
            start = time.perf_counter()
            hasher = METHODS[name](n_bits=n_bits, random_state=0, **options).fit(dataset.train)
            fitted = time.perf_counter()
            scores = judge(hasher, dataset, how, truth=truth)
            done = time.perf_counter()
            shares = (scores.map, *scores.precision_at_radius.values())
            numbers = [f"{100 * share:.2f}" for share in shares]
            table.add_row(name, str(n_bits), *numbers, f"{fitted - start:.1f} s", f"{done - fitted:.1f} s")
    console = Console()
    console.print(table)
    console.print(f"percent; truth: {truth.description}; {how.protocol}", soft_wrap=True)
    shown = ", ".join(f"{key}={value}" for key, value in METHODS_SHOWN["udh-dnn"].items())
    console.print(f"udh-dnn with {shown}; the paper's settings are the default, and take longer", soft_wrap=True)
    draw_neighbours(hasher, dataset, PICTURE)
    console.print(f"Queries beside their nearest neighbours by {hasher.name} code: {PICTURE}", soft_wrap=True)


def draw_neighbours(hasher: Hasher, dataset: Dataset, path: Path) -> None:
    """A picture with a row for each of a few queries: itself, then the items whose codes are nearest to its own."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    side = int(dataset.queries.shape[1] ** 0.5)
    queries = np.sort(np.random.default_rng(1).choice(len(dataset.queries), N_QUERIES, replace=False))
    distances = hamming(hasher.encode(dataset.queries[queries]), hasher.encode(dataset.database))
    order = np.argsort(distances, axis=1, kind="stable")[:, :N_NEIGHBOURS]
    figure, axes = plt.subplots(N_QUERIES, 1 + N_NEIGHBOURS, figsize=(1 + N_NEIGHBOURS, 1.25 * N_QUERIES))
    for row, (query, ids) in enumerate(zip(queries, order, strict=True)):
        pictures = [dataset.queries[query], *dataset.database[ids]]
        labels = [dataset.query_labels[query], *dataset.database_labels[ids]]
        for column, (axis, picture, label) in enumerate(zip(axes[row], pictures, labels, strict=True)):
            axis.imshow(picture.reshape(side, side), cmap="gray_r")
            axis.set(xticks=[], yticks=[])
            right = label == labels[0]
            colour = "black" if column == 0 else "tab:green" if right else "tab:red"
            axis.spines[:].set(color=colour, linewidth=2)
            title = "query" if column == 0 else str(distances[row, ids[column - 1]])
            axis.set_title(title, fontsize=8, color=colour, pad=3)
    figure.suptitle(
        f"{dataset.name}, {hasher.name}, {hasher.n_bits_} bits: queries and the items with the nearest codes, "
        "with their Hamming distances\n(green: of the query's class; red: of another)",
        fontsize=9,
    )
    figure.tight_layout(rect=(0, 0, 1, 0.99), h_pad=0.6, w_pad=0.1)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=80)
    plt.close(figure)


if __name__ == "__main__":
    main()
