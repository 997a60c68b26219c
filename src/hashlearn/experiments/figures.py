"""Charts of results as small, standalone SVG, for use within an HTML page or as a file.

Colors are CSS variables that follow the reader's light or dark scheme. They can be told apart with color blindness, and
no two lines of a chart differ by color alone: each method has its own marker.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from hashlearn.experiments.grid import Entry, Experiment
from hashlearn.experiments.summary import Cell, Outcomes, measure_label
from hashlearn.progress import count

# In pixels at the natural size of the drawing.
_WIDTH = 360  # of a phone, so that text does not shrink
_LEFT, _RIGHT, _TOP, _HEIGHT = 44, 10, 34, 220
_INSET = 16  # of the first and last points from the frame
_LINE = 19  # height of a line of the legend
_CHARACTER = 7.0  # a generous mean width: fonts differ
_SWATCH = 34
_GAP = 14

# Colors and markers: 0 is the paper's own method. A method has the same in all charts; those that share a number don't
# meet in one.
_SLOTS = {"lsh": 1, "sh": 2, "itq": 3, "sph": 4, "kmh": 5, "ba": 6, "dh": 6, "itq-cca": 1, "ksh": 2, "bre": 4, "sdh": 5}
_SLOTS |= {"decoder-hash": 5, "faiss-pq": 2}
_LIGHT = ("#d1420f", "#87919a", "#4a3a00", "#1554b8", "#009a76", "#d659c4", "#3d1a78")
_DARK = ("#ff7849", "#7d8893", "#f2d45c", "#4a86f0", "#23b889", "#f08fd8", "#a9e4ff")
# Around (0, 0): circle, square, triangle, diamond, inverted triangle, cross, four-pointed star.
_MARKERS = (
    "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0z",
    "M-3.5 -3.5h7v7h-7z",
    "M0 -4.6L4.4 3.4H-4.4z",
    "M0 -5L4.2 0L0 5L-4.2 0z",
    "M0 4.6L4.4 -3.4H-4.4z",
    "M-4 -2.2L-2.2 -4L0 -1.8L2.2 -4L4 -2.2L1.8 0L4 2.2L2.2 4L0 1.8L-2.2 4L-4 2.2L-1.8 0z",
    "M0 -5.5L1.5 -1.5L5.5 0L1.5 1.5L0 5.5L-1.5 1.5L-5.5 0L-1.5 -1.5z",
)


def _variables(paper: str, ink: str, faint: str, grid: str, colors: Sequence[str]) -> str:
    numbered = "".join(f"--hl-{i}:{color};" for i, color in enumerate(colors))
    return f".hl-chart{{--hl-paper:{paper};--hl-ink:{ink};--hl-faint:{faint};--hl-grid:{grid};{numbered}}}"


_STYLE = (
    _variables("#fff", "#1b2127", "#56606a", "#dde2e6", _LIGHT)
    + "@media (prefers-color-scheme:dark){"
    + _variables("#15181c", "#e8ebee", "#a3adb6", "#343b42", _DARK)
    + "}"
    + "".join(f".hl-chart .s{i}{{color:var(--hl-{i})}}" for i in range(len(_LIGHT)))
    + ".hl-chart{font:13px system-ui,sans-serif}"
    ".hl-chart text{fill:var(--hl-ink)}"
    ".hl-chart .paper{fill:var(--hl-paper)}"
    ".hl-chart .head{font-size:14px;font-weight:600}"
    ".hl-chart .axis{fill:var(--hl-faint)}"
    ".hl-chart .grid{stroke:var(--hl-grid);fill:none}"
    ".hl-chart .zero{stroke:var(--hl-faint);stroke-width:1.5}"
    ".hl-chart .line{fill:none;stroke:currentColor;stroke-width:1.5;stroke-linejoin:round}"
    ".hl-chart .bar{fill:none;stroke:currentColor;stroke-width:1.2}"
    ".hl-chart .mark{fill:currentColor;stroke:currentColor}"
    ".hl-chart .thick .line{stroke-width:3.2}"
    ".hl-chart .dashed .line{stroke-dasharray:6 3}"
    ".hl-chart .dashed .mark{fill:var(--hl-paper);stroke-width:1.5}"
)


@dataclass(frozen=True)
class Series:
    """One line of a chart, with a cell for each number of bits that has results."""

    label: str
    cells: dict[int, Cell]
    slot: int
    thick: bool = False
    dashed: bool = False

    @property
    def classes(self) -> str:
        return " ".join([f"s{self.slot}", *(["thick"] if self.thick else []), *(["dashed"] if self.dashed else [])])


def ablates(experiment: Experiment) -> bool:
    """Whether it compares one method with versions of itself, so that the differences are drawn."""
    method = experiment.entry(experiment.subject).method
    compared = [entry for entry in experiment.entries if entry.name not in experiment.variants]
    return sum(entry.method == method for entry in compared) > 1


def chart(outcomes: Outcomes, measure: str) -> str | None:
    """Draw the chart that suits the experiment; None for a study or if there are no results."""
    if outcomes.experiment.held_out:  # of more settings than a chart has room for
        return None
    return (difference_chart if ablates(outcomes.experiment) else line_chart)(outcomes, measure)


def line_chart(outcomes: Outcomes, measure: str) -> str | None:
    """Draw a measure in percent by number of bits, ± one standard deviation; None if there are no results."""
    chosen = outcomes.experiment
    drawn = [entry for entry in chosen.entries if entry.name not in chosen.undrawn]
    series = [one for entry in drawn if (one := _series(outcomes, entry, measure)).cells]
    if not series:
        return None
    bits = sorted({n_bits for one in series for n_bits in one.cells})
    ends = [end for one in series for cell in one.cells.values() for end in _ends(cell)]
    ticks = _ticks(min(ends), max(ends), from_zero=True)
    name = f"{measure_label(measure)} in percent by number of bits: {chosen.title}"
    parts = [_text(8, 18, f"{measure_label(measure)}, percent", "head")]
    bottom = _TOP + _HEIGHT
    for tick in ticks:
        y = _y(tick, ticks)
        parts.append(f'<path class="grid" d="M{_LEFT} {_n(y)}H{_WIDTH - _RIGHT}"/>')
        parts.append(_text(_LEFT - 6, y + 4, _tick_words(tick, ticks), "axis", "end"))
    for n_bits in bits:
        x = _x(n_bits, bits)
        parts.append(f'<path class="grid" d="M{_n(x)} {_TOP}V{bottom}"/>')
        parts.append(_text(x, bottom + 17, str(n_bits), "axis", "middle"))
    parts.append(_text((_LEFT + _WIDTH - _RIGHT) / 2, bottom + 34, "bits", "axis", "middle"))
    # The paper's own method is drawn over the others.
    for one in sorted(series, key=lambda one: one.slot == 0):
        parts.append(_draw_line(one, bits, ticks))
    legend, height = _legend(series, bottom + 50)
    return _svg(name, _description(series), [*parts, *legend], bottom + 50 + height)


def difference_chart(outcomes: Outcomes, measure: str) -> str | None:
    """Draw the difference of each method from the subject in percentage points; None if there is none to compare."""
    chosen, bits = outcomes.experiment, outcomes.bits
    whole = outcomes.label(chosen.subject)
    rows = [
        Series(outcomes.label(name), cells, 0)
        for name in outcomes.methods
        if name != chosen.subject and (cells := _differences(outcomes, name, measure))
    ]
    if not rows:
        return None
    ends = [end for row in rows for cell in row.cells.values() for end in _ends(cell)]
    ticks = _ticks(min([0.0, *ends]), max([0.0, *ends]), steps=3)
    left = _GAP + _CHARACTER * max(len(row.label) for row in rows)
    height = max(20.0, 15.0 * len(bits) + 8)
    bottom = _TOP + height * len(rows)

    def x(value: float) -> float:
        return left + 8 + (value - ticks[0]) / (ticks[-1] - ticks[0]) * (_WIDTH - _RIGHT - 8 - left)

    name = f"{measure_label(measure)}, percentage points from {whole}: {chosen.title}"
    parts = [_text(8, 18, f"{measure_label(measure)}, percentage points from {whole}", "head")]
    for tick in ticks:
        kind = "grid zero" if tick == 0 else "grid"
        parts.append(f'<path class="{kind}" d="M{_n(x(tick))} {_TOP}V{_n(bottom)}"/>')
        parts.append(_text(x(tick), bottom + 17, _tick_words(tick, ticks), "axis", "middle"))
    slots = (0, 3, 4, 5, 2, 1, 6)
    styles = [Series(f"{n_bits} bits", {}, slot, dashed=slot != 0) for n_bits, slot in zip(bits, slots, strict=False)]
    for i, row in enumerate(rows):
        middle = _TOP + height * (i + 0.5)
        parts.append(f'<path class="grid" d="M8 {_n(middle + height / 2)}H{_WIDTH - _RIGHT}"/>')
        parts.append(_text(8, middle + 4, row.label))
        for j, (n_bits, style) in enumerate(zip(bits, styles, strict=False)):
            if n_bits in row.cells:
                cell = row.cells[n_bits]
                y = middle + 15 * (j - (len(bits) - 1) / 2)
                low, high = map(x, _ends(cell))
                bar = f"M{_n(low)} {_n(y)}H{_n(high)}M{_n(low)} {_n(y - 4)}v8M{_n(high)} {_n(y - 4)}v8"
                words = f"{row.label}, {n_bits} bits: {cell.words(signed=True)}, {_runs(cell)}"
                parts.append(_point(style, x(cell.mean), y, bar if cell.std is not None else "", words))
    legend, below = _legend(styles, bottom + 34)
    return _svg(name, _description(rows, signed=True), [*parts, *legend], bottom + 34 + below)


def _series(outcomes: Outcomes, entry: Entry, measure: str) -> Series:
    chosen = outcomes.experiment
    cells = {b: cell for b in outcomes.bits if (cell := outcomes.cell(entry.name, b, measure)) is not None}
    is_subject = entry.method == chosen.entry(chosen.subject).method
    return Series(
        entry.label,
        cells,
        slot=0 if is_subject else _SLOTS.get(entry.method, 1),
        thick=entry.name in (chosen.subject, chosen.tuned),
        dashed=entry.name != chosen.subject and (is_subject or entry.name != entry.method),
    )


def _differences(outcomes: Outcomes, name: str, measure: str) -> dict[int, Cell]:
    subject = outcomes.experiment.subject
    cells = {n_bits: outcomes.difference(name, subject, n_bits, measure) for n_bits in outcomes.bits}
    return {n_bits: cell for n_bits, cell in cells.items() if cell is not None}


def _ends(cell: Cell) -> tuple[float, float]:
    half = cell.std or 0.0
    return cell.mean - half, cell.mean + half


def _runs(cell: Cell) -> str:
    return count(len(cell.values), "run")


def _ticks(low: float, high: float, *, steps: int = 5, from_zero: bool = False) -> list[float]:
    """Return round numbers in about ``steps`` steps that cover ``low`` to ``high``; from 0 if that is near."""
    if from_zero and 0 <= low <= high / 2:
        low = 0.0
    span = high - low or abs(high) or 1.0
    size = 10.0 ** math.floor(math.log10(span / steps))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor * (1 + 1e-9) >= span / steps)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [i * step for i in range(first, max(last, first + 1) + 1)]


def _tick_words(tick: float, ticks: Sequence[float]) -> str:
    decimals = max(0, -math.floor(math.log10(ticks[1] - ticks[0]) + 1e-9))
    return f"{tick:.{decimals}f}".replace("-", "−")


def _x(n_bits: int, bits: Sequence[int]) -> float:
    """Place 8, 16, 32 and 64 at equal steps, and a single number in the middle."""
    left, right = _LEFT + _INSET, _WIDTH - _RIGHT - _INSET
    if bits[0] == bits[-1]:
        return (left + right) / 2
    return left + (right - left) * math.log2(n_bits / bits[0]) / math.log2(bits[-1] / bits[0])


def _y(value: float, ticks: Sequence[float]) -> float:
    return _TOP + _HEIGHT * (ticks[-1] - value) / (ticks[-1] - ticks[0])


def _draw_line(one: Series, bits: Sequence[int], ticks: Sequence[float]) -> str:
    path, joined, points = "", False, []
    for n_bits in bits:
        cell = one.cells.get(n_bits)
        if cell is None:  # a gap where there is no result
            joined = False
            continue
        x, y = _x(n_bits, bits), _y(cell.mean, ticks)
        path += f"{'L' if joined else 'M'}{_n(x)} {_n(y)}"
        joined = True
        low, high = (_y(end, ticks) for end in _ends(cell))
        bar = f"M{_n(x)} {_n(low)}V{_n(high)}M{_n(x - 4)} {_n(low)}h8M{_n(x - 4)} {_n(high)}h8"
        words = f"{one.label}, {n_bits} bits: {cell.words()}, {_runs(cell)}"
        points.append(_point(one, x, y, bar if cell.std is not None else "", words, wrap=False))
    return f'<g class="{one.classes}"><path class="line" d="{path}"/>{"".join(points)}</g>'


def _point(one: Series, x: float, y: float, bar: str, words: str, *, wrap: bool = True) -> str:
    kind = f' class="{one.classes}"' if wrap else ""
    bars = f'<path class="bar" d="{bar}"/>' if bar else ""
    mark = f'<path class="mark" transform="translate({_n(x)} {_n(y)})" d="{_MARKERS[one.slot]}"/>'
    return f"<g{kind}><title>{escape(words)}</title>{bars}{mark}</g>"


def _legend(series: Sequence[Series], top: float) -> tuple[list[str], float]:
    """Return a legend in as many columns as fit, and its height."""
    for n_columns in (3, 2, 1):
        n_rows = -(-len(series) // n_columns)
        columns = [series[i : i + n_rows] for i in range(0, len(series), n_rows or 1)]
        widths = [_SWATCH + _GAP + _CHARACTER * max(len(one.label) for one in column) for column in columns]
        if sum(widths) <= _WIDTH - 8:
            break
    parts, x = [], 8.0
    for column, width in zip(columns, widths, strict=True):
        for i, one in enumerate(column):
            y = top + _LINE * i + 6
            line = f'<path class="line" d="M{_n(x)} {_n(y)}h26"/>' if one.cells else ""
            mark = f'<path class="mark" transform="translate({_n(x + 13)} {_n(y)})" d="{_MARKERS[one.slot]}"/>'
            parts.append(f'<g class="{one.classes}">{line}{mark}</g>')
            parts.append(_text(x + _SWATCH, y + 4, one.label))
        x += width
    return parts, _LINE * max(map(len, columns), default=0)


def _description(series: Sequence[Series], *, signed: bool = False) -> str:
    """Describe the chart in words, for screen readers."""
    return "; ".join(
        f"{one.label}: " + ", ".join(f"{b} bits {cell.words(signed=signed)}" for b, cell in one.cells.items())
        for one in series
    )


def _svg(name: str, description: str, parts: Sequence[str], height: float) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="hl-chart" viewBox="0 0 {_WIDTH} {_n(height)}" '
        f'width="{_WIDTH}" height="{_n(height)}" role="img" aria-label="{escape(name)}">'
        f"<desc>{escape(description)}</desc><style>{_STYLE}</style>"
        f'<rect class="paper" width="100%" height="100%"/>{"".join(parts)}</svg>\n'
    )


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "") -> str:
    classes = f' class="{kind}"' if kind else ""
    anchored = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text x="{_n(x)}" y="{_n(y)}"{classes}{anchored}>{escape(words)}</text>'


def _n(value: float) -> str:
    """Format a coordinate, to a hundredth of a pixel."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
