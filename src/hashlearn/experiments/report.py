"""Write the report of a folder of results: an HTML page, and a short Markdown file with charts."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hashlearn.experiments.claims import check_claims
from hashlearn.experiments.figures import ablates, chart
from hashlearn.experiments.gallery import make_gallery
from hashlearn.experiments.grid import COMPARED
from hashlearn.experiments.html import html_report, section_name
from hashlearn.experiments.markdown import markdown_report
from hashlearn.experiments.results import Record, Results
from hashlearn.experiments.summary import Outcomes, group_outcomes
from hashlearn.experiments.tables import available_measures
from hashlearn.progress import count
from hashlearn.storage import atomic_path


@dataclass(frozen=True)
class Report:
    """The files that were written, and the number of runs in them.

    ``n_missing`` counts the runs of the same experiments without a result, ``n_left_out`` the results that do not
    belong to the grid, and ``n_outdated`` those among them of another revision of their method.
    """

    out: Path
    markdown: Path | None
    figures: tuple[Path, ...]
    n_runs: int
    n_missing: int
    n_left_out: int = 0
    n_outdated: int = 0


def write_report(
    folder: str | os.PathLike[str],
    out: str | os.PathLike[str],
    markdown: str | os.PathLike[str] | None = None,
    figures: str | os.PathLike[str] | None = None,
    images: bool = True,
) -> Report:
    """Write the report of the results in a folder.

    Parameters
    ----------
    folder : path
        The results of `hashlearn reproduce`.
    out : path
        The HTML page to write.
    markdown : path, optional
        The short Markdown file to write.
    figures : path, optional
        The folder of the charts, as SVG files; by default ``figures`` beside ``markdown``, if that is given.
    images : bool
        Whether to show examples of search results, for which the images are loaded.

    Returns
    -------
    Report

    Raises
    ------
    FileNotFoundError
        There is no such folder.
    ValueError
        It holds no results of the experiments, or only outdated ones.
    """
    folder, out = Path(folder), Path(out)
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder} of results; `hashlearn reproduce` makes one.")
    records = list(Results(folder).all())
    outcomes = group_outcomes(records)
    n_outdated = sum(map(_is_outdated, records))
    if not outcomes:
        left_out = f" ({left_out_words(len(records), n_outdated)})" if records else ""
        raise ValueError(f"{folder} holds no results of the experiments{left_out}; `hashlearn reproduce` makes them.")
    claims = [] if _only_studies(outcomes) else check_claims(outcomes)
    text = None if markdown is None else Path(markdown)
    drawings = Path(figures) if figures is not None else text.parent / "figures" if text is not None else None
    commands = (
        f"hashlearn reproduce{_arguments(outcomes)} --out {_shown(folder)}",
        _report_command(folder, out, text, drawings if figures is not None else None, images),
    )
    galleries = {
        section_name(one, outcomes): make_gallery(one) for one in outcomes if images and not ablates(one.experiment)
    }
    drawn = {} if drawings is None else _draw(outcomes, drawings)
    if text is not None:
        links = {key: Path(os.path.relpath(path, text.parent)).as_posix() for key, path in drawn.items()}
        _write(text, markdown_report(outcomes, claims, links, commands=commands))
    _write(out, html_report(outcomes, claims, galleries=galleries, commands=commands))
    n_missing = sum(len(one.missing()) for one in outcomes)
    n_runs = sum(len(one.records) for one in outcomes)
    return Report(out, text, tuple(drawn.values()), n_runs, n_missing, len(records) - n_runs, n_outdated)


def _is_outdated(record: Record) -> bool:
    method = COMPARED.get(record["library_method"])
    return method is not None and method.revision != record["revision"]


def left_out_words(n_left_out: int, n_outdated: int) -> str:
    """Say which results a report leaves out: ``left out: 2 results of another revision of the method``."""
    other = n_left_out - n_outdated
    words = [f"{count(n_outdated, 'result')} of another revision of the method"] if n_outdated else []
    if other:
        words.append(f"{count(other, 'result')} of data sets, methods, parameters or settings that are not the grid's")
    return f"left out: {', '.join(words)}"


def _draw(outcomes: Sequence[Outcomes], folder: Path) -> dict[tuple[str, str], Path]:
    drawn = {}
    for one in outcomes:
        name = section_name(one, outcomes)
        for measure in available_measures(one):
            if drawing := chart(one, measure):
                drawn[name, measure] = path = folder / f"{name}-{measure.replace('@', '').replace('_', '-')}.svg"
                _write(path, drawing)
    return drawn


def _write(path: Path, text: str) -> None:
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _arguments(outcomes: Sequence[Outcomes]) -> str:
    """Return the arguments of `hashlearn reproduce` that lead to such results: studies, small versions, other data."""
    studies = "".join(f" {one.experiment.name}" for one in outcomes) if _only_studies(outcomes) else ""
    if not all(one.small for one in outcomes):
        return studies
    other_data = {one.data for one in outcomes if one.data not in one.experiment.data}
    return f"{studies} --quick" + (
        f" --data {other_data.pop()}" if len({one.data for one in outcomes}) == len(other_data) == 1 else ""
    )


def _only_studies(outcomes: Sequence[Outcomes]) -> bool:
    return all(one.experiment.held_out for one in outcomes)


def _shown(path: Path) -> str:
    """Quote a path for a shell; of an absolute path, which belongs to one machine, only the last part."""
    return shlex.quote(path.name if path.is_absolute() else path.as_posix())


def _report_command(folder: Path, out: Path, markdown: Path | None, figures: Path | None, images: bool) -> str:
    """Return the command that writes the same report."""
    paths = {"--out": out, "--markdown": markdown, "--figures": figures}
    options = "".join(f" {option} {_shown(path)}" for option, path in paths.items() if path is not None)
    return f"hashlearn report {_shown(folder)}{options}" + ("" if images else " --no-images")
