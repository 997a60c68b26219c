"""The short report: Markdown, with charts in separate files."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from html import escape
from urllib.parse import quote

from hashlearn.experiments import tables
from hashlearn.experiments.claims import Finding
from hashlearn.experiments.html import (
    CLAIMS_ARE_READ,
    SIGNS,
    WORDS_MEAN,
    by_experiment,
    claims_title,
    counted,
    reading_words,
    section_name,
)
from hashlearn.experiments.summary import Outcomes, measure_label
from hashlearn.experiments.tables import Table

# Prose is wrapped at this many columns; tables and code are not.
_COLUMNS = 100
# No line breaks before these: at the beginning of a line they would begin a list, a heading or a quotation.
_BEGINS_BLOCK = re.compile(r" (?=(?:[-+#>]|\d+[.)])(?: |$))")

# The number of bits at which statistics of codes, time and memory are shown.
_BITS = 32


def markdown_report(
    outcomes: Sequence[Outcomes],
    claims: Sequence[Finding],
    figures: Mapping[tuple[str, str], str],
    *,
    commands: Sequence[str] = ("hashlearn reproduce", "hashlearn report"),
) -> str:
    """Return the report as Markdown.

    Parameters
    ----------
    outcomes : sequence of Outcomes
    claims : sequence of Finding
    figures : mapping of (str, str) to str
        The path of each chart by section and measure, relative to the folder of the text.
    commands : sequence of str
        The commands that made the report.
    """
    blocks = [
        "# Results",
        "Made by\n\n```\n" + "\n".join(commands) + "\n```",
        _rows(("", ""), [(_safe(name), _safe(value)) for name, value in tables.overview(outcomes)]),
        *_claims(claims),
    ]
    for one in outcomes:
        blocks += _experiment(section_name(one, outcomes), one, figures)
    return "\n\n".join(block for block in blocks if block) + "\n"


def _claims(claims: Sequence[Finding]) -> list[str]:
    if not claims:
        return []
    blocks = ["## The claims of the paper"]
    blocks.append(_wrap(f"{len(claims)} claims: {counted(finding.verdict for finding in claims)}. {CLAIMS_ARE_READ}"))
    blocks.append("What the words of the claims mean:")
    blocks.append("\n".join(_item(f"{_safe(words)}: {_safe(rule)}") for words, rule in WORDS_MEAN.items()))
    for experiment, findings in by_experiment(claims).items():
        blocks.append(f"### {_safe(claims_title(experiment))}: {counted(finding.verdict for finding in findings)}")
        blocks.append("\n".join(line for finding in findings for line in _claim(finding)))
    return blocks


def _claim(finding: Finding) -> list[str]:
    first, *others = finding.readings
    return [
        _item(f"{SIGNS[finding.verdict]} {finding.verdict}: **{_safe(finding.words)}** {_safe(reading_words(first))}"),
        *(
            _item(f"{SIGNS[one.verdict]} {one.verdict}: {_safe(reading_words(one))}", indent="  ")
            for one in others
            if one.verdict != "not tested"
        ),
    ]


def _experiment(name: str, outcomes: Outcomes, figures: Mapping[tuple[str, str], str]) -> list[str]:
    measures = tables.available_measures(outcomes)
    length = [max((n_bits for n_bits in outcomes.bits if n_bits <= _BITS), default=outcomes.bits[0])]
    blocks = [
        f"## {_safe(outcomes.plan.title)}",
        "A small version on few vectors: it says nothing about the paper." if outcomes.small else "",
        _wrap(_safe(" ".join(tables.protocol_words(outcomes)))),
        _wrap(_safe(tables.missing_words(outcomes))),
        "\n".join(
            f"![{measure_label(measure)} by number of bits]({quote(figures[name, measure])})"
            for measure in measures
            if (name, measure) in figures
        ),
        _wrap(
            "Mean ± standard deviation over runs. Bold: the best mean of a column. Italics: not part of the paper's "
            "comparison."
        ),
    ]
    for measure in measures:
        for table in tables.measure_tables(outcomes, measure):
            blocks += _table(table)
    blocks += _table(tables.code_table(outcomes, length)) + _table(tables.cost_table(outcomes, length))
    if warnings := tables.warning_words(outcomes):
        blocks += ["Warnings:", "\n".join(_item(_safe(words)) for words in warnings)]
    return blocks


def _table(table: Table) -> list[str]:
    rows = []
    for i, (name, *fields) in enumerate(table.rows):
        beside = table.variants is not None and i >= table.variants
        label = f"*{_safe(name.text)}*" if beside else _safe(name.text)
        rows.append((label, *(f"**{_safe(td.text)}**" if td.best else _safe(td.text) for td in fields)))
    return [_wrap(f"{_safe(table.caption)}:"), _rows(table.head, rows)]


def _rows(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [[*map(_safe, head)], ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _item(text: str, *, indent: str = "") -> str:
    """Return an item of a list, wrapped; `indent` makes it an item of a list within a list."""
    return _wrap(text, first=f"{indent}- ", others=f"{indent}  ")


def _wrap(text: str, *, first: str = "", others: str = "") -> str:
    """Return Markdown text in lines of at most 100 columns, with what the first and the other lines begin with."""
    lines = textwrap.wrap(
        _BEGINS_BLOCK.sub("\0", text),
        _COLUMNS,
        initial_indent=first,
        subsequent_indent=others,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines).replace("\0", " ")


def _safe(words: str) -> str:
    """Escape text for Markdown, also within a table."""
    return escape(words, quote=False).replace("|", "\\|").replace("*", "\\*").replace("_", "\\_")
