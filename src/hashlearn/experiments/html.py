"""The full report: one HTML page without scripts, external fonts or other files."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files

from hashlearn.experiments import grid, tables
from hashlearn.experiments.claims import Finding, Reading
from hashlearn.experiments.figures import chart
from hashlearn.experiments.gallery import Gallery, Sheet
from hashlearn.experiments.summary import Outcomes
from hashlearn.experiments.tables import Table, Td

#: The symbol that is shown beside each verdict.
SIGNS = {"holds": "✓", "does not hold": "✗", "not tested": "–"}
#: How to read the claims.
CLAIMS_ARE_READ = (
    "The verdict on a claim is that of its first reading, by default: every method has its default settings, which are "
    "those of its paper where the paper gives them. Weaker or stricter readings follow, unless they lead to the same "
    "numbers. A difference is the mean over the seeds or splits that both methods have, ± its standard error. Within "
    "the spread means less than two standard errors, which is a weak test with three seeds. The spread of a single run "
    "is unknown, and not required."
)
#: What the words of the claims mean.
WORDS_MEAN = {
    "best, above, highest, below": "by the means",
    "clearly, by a fair margin": "by at least one point, and beyond the spread",
    "need, better, less, more (of the parts of UDH-DNN)": "beyond the spread",
    "clearer at high code lengths": "there is a lead at 32 and 64 bits, on average larger than at 8 and 16",
    "similar": "all within a quarter of the best",
    "comparable": "without labels, the lower of the method and its best rival is within a quarter of the higher; with "
    "labels, they are within two points",
    "about the same": "within two points",
    "a little, slightly": "by at most two points",
    "gains N points": "N less two is enough",
}
_PLURALS = {"holds": "hold", "does not hold": "do not hold", "not tested": "not tested"}


def html_report(
    outcomes: Sequence[Outcomes],
    claims: Sequence[Finding],
    *,
    galleries: Mapping[str, Gallery] | None = None,
    commands: Sequence[str] = ("hashlearn reproduce", "hashlearn report"),
) -> str:
    """Return the report as an HTML page.

    Parameters
    ----------
    outcomes : sequence of Outcomes
    claims : sequence of Finding
    galleries : mapping of str to Gallery, optional
        Examples of search results by the name of the section.
    commands : sequence of str
        The commands that made the report.
    """
    galleries = galleries or {}
    sections = [(section_name(one, outcomes), one) for one in outcomes]
    links = [
        _item(_link("claims", "The claims of the paper")),
        *(_item(_link(name, one.plan.title)) for name, one in sections),
    ]
    body = [
        "<h1>hashlearn: results of the experiments</h1>",
        '<section id="summary">' + _summary(outcomes, claims, commands) + "</section>",
        f'<nav aria-label="Contents"><h2>Contents</h2><ol>{"".join(links)}</ol></nav>',
        f'<section id="claims"><h2>The claims of the paper</h2>{_claims(claims, sections)}</section>',
        *(_experiment(name, one, galleries.get(name, Gallery())) for name, one in sections),
    ]
    style = files("hashlearn.experiments").joinpath("report.css").read_text(encoding="utf-8")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>hashlearn: results of the experiments</title>\n<style>\n{style}</style>\n</head>\n"
        "<body>\n<main>\n" + "\n".join(body) + "\n</main>\n</body>\n</html>\n"
    )


def section_name(one: Outcomes, outcomes: Sequence[Outcomes]) -> str:
    """Return the name of a section: that of the experiment, with the data set if there are several sections of it."""
    name = one.experiment.name
    alone = sum(other.experiment.name == name for other in outcomes) == 1
    return name if alone else f"{name}-{one.data}" + ("-small" if one.small else "")


def counted(verdicts: Iterable[str]) -> str:
    """Count the verdicts: ``3 hold, 1 does not hold``."""
    counts = Counter(verdicts)
    return ", ".join(
        f"{counts[name]} {name if counts[name] == 1 else _PLURALS[name]}" for name in SIGNS if counts[name]
    )


def by_experiment(claims: Sequence[Finding]) -> dict[str, list[Finding]]:
    """Group the claims by the experiment that tests them."""
    groups: dict[str, list[Finding]] = {}
    for finding in claims:
        groups.setdefault(finding.experiment, []).append(finding)
    return groups


def claims_title(experiment: str) -> str:
    """Return the heading of the claims that an experiment tests, or of those that none does."""
    return grid.experiment(experiment).title if experiment else "General claims"


def reading_words(reading: Reading) -> str:
    """Format a reading: its name, if any, and its numbers."""
    return f"{reading.name}: {reading.numbers}" if reading.name else reading.numbers


def _summary(outcomes: Sequence[Outcomes], claims: Sequence[Finding], commands: Sequence[str]) -> str:
    words = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in tables.overview(outcomes))
    tested = f"{len(claims)} claims of the paper: {counted(finding.verdict for finding in claims)}"
    verdicts = f"<p>{_link('claims', tested)}.</p>" if claims else ""
    made = "\n".join(map(escape, commands))
    return f"{_small_words(outcomes)}{verdicts}<dl>{words}</dl><p>Made by</p><pre><code>{made}</code></pre>"


def _small_words(outcomes: Sequence[Outcomes]) -> str:
    small = [one.experiment.name for one in outcomes if one.small]
    if not small:
        return ""
    which = "All results" if len(small) == len(outcomes) else f"The results of {', '.join(small)}"
    return _note(f"{which} are of a small version on few vectors: they say nothing about the paper.")


def _claims(claims: Sequence[Finding], sections: Sequence[tuple[str, Outcomes]]) -> str:
    if not claims:
        return "<p>No claim was tested.</p>"
    parts = [
        f"<p>{len(claims)} claims: {counted(finding.verdict for finding in claims)}. {CLAIMS_ARE_READ}</p>",
        _details(
            "What the words of the claims mean", _list([f"{words}: {rule}" for words, rule in WORDS_MEAN.items()])
        ),
    ]
    for experiment, findings in by_experiment(claims).items():
        tested = [(name, one.plan.title) for name, one in sections if one.experiment.name == experiment]
        title = ", ".join(_link(name, words) for name, words in tested) or escape(claims_title(experiment))
        verdicts = counted(finding.verdict for finding in findings)
        parts.append(f"<h3>{title}: {verdicts}</h3>" + "".join(map(_claim, findings)))
    return "".join(parts)


def _claim(finding: Finding) -> str:
    first, *others = finding.readings
    rest = ""
    if others:
        readings = "".join(_item(f"{_verdict(one.verdict)} {escape(reading_words(one))}") for one in others)
        rest = _details(f"Other readings: {counted(one.verdict for one in others)}", f"<ul>{readings}</ul>")
    return (
        f'<article class="claim"><p>{_verdict(finding.verdict)} <strong>{escape(finding.words)}</strong> '
        f'<span class="faint">({escape(finding.where)})</span></p><p>{escape(reading_words(first))}</p>{rest}</article>'
    )


def _experiment(name: str, outcomes: Outcomes, gallery: Gallery) -> str:
    measures = tables.available_measures(outcomes)
    charts = "".join(f"<figure>{drawn}</figure>" for measure in measures if (drawn := chart(outcomes, measure)))
    parts = [f"<h2>{escape(outcomes.plan.title)}</h2><p><code>{escape(outcomes.experiment.name)}</code></p>"]
    if outcomes.small:
        parts.append(_note("A small version on few vectors: it says nothing about the paper."))
    if missing := tables.missing_words(outcomes):
        count, _, which = missing.partition(". ")
        parts.append(f'<div class="note">{escape(count)}.{_details("Which", f"<p>{escape(which)}</p>")}</div>')
    parts.append(_list(tables.protocol_words(outcomes)))
    if parameters := tables.parameter_words(outcomes):
        parts.append(_details("Parameters that are not defaults", _list(parameters)))
    parts.append(f'<div class="charts">{charts}</div>')
    parts.append("<h3>Scores</h3>" + _how_to_read(outcomes))
    for measure in measures:
        parts += map(_table, tables.measure_tables(outcomes, measure))
    expected = _table(tables.score_table(outcomes, "map_expected_ties"))
    parts.append(_details("mAP with ties by expectation over all orders", expected))
    parts.append("<h3>Codes, time and memory</h3>")
    parts.append(_details("Codes: balance, correlation, utilization", _table(tables.code_table(outcomes))))
    parts.append(_details("Time and memory", _table(tables.cost_table(outcomes))))
    warnings = tables.warning_words(outcomes)
    parts.append(f"<p>Warnings: {'' if warnings else 'none.'}</p>" + (_list(warnings) if warnings else ""))
    parts.append(_gallery(gallery))
    return f'<section id="{escape(name)}">{"".join(parts)}</section>'


def _how_to_read(outcomes: Outcomes) -> str:
    beside = any(name in outcomes.experiment.variants for name in outcomes.methods)
    return (
        "<p>Mean ± standard deviation over runs. Bold with ▸: the best mean of a column, whatever the number of runs."
        + (" Below the line: not part of the paper's comparison." if beside else "")
        + "</p>"
    )


def _gallery(gallery: Gallery) -> str:
    if not gallery.sheets:
        return f"<p>{escape(gallery.note)}</p>" if gallery.note else ""
    sheets = "".join(map(_sheet, gallery.sheets))
    return (
        "<h3>Examples</h3><p>On the left a query, then the ten items with the nearest codes by Hamming distance. Blue "
        "frame and tick: of the query's class. Orange frame and cross: of another.</p>"
        f'<div class="sheets">{sheets}</div>'
    )


def _sheet(sheet: Sheet) -> str:
    data = base64.b64encode(sheet.png).decode("ascii")
    return (
        f"<figure><figcaption>{escape(sheet.words)}</figcaption>"
        f'<img src="data:image/png;base64,{data}" width="{2 * sheet.width}" height="{2 * sheet.height}" '
        f'style="max-width:{2 * sheet.width}px" loading="lazy" alt="{escape(sheet.alt)}"></figure>'
    )


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{escape(words)}</th>' for words in table.head)
    spread = [any("±" in row[j].text for row in table.rows) for j in range(1, len(table.head))]
    rows = []
    for i, (name, *fields) in enumerate(table.rows):
        kind = ' class="beside"' if i == table.variants and i else ""
        cells = "".join(_field(td, spread[j]) for j, td in enumerate(fields))
        rows.append(f'<tr{kind}><th scope="row">{escape(name.text)}</th>{cells}</tr>')
    caption = escape(table.caption)
    return (
        f'<figure><figcaption>{caption}.</figcaption><div class="scroll" tabindex="0" role="region" '
        f'aria-label="{caption}"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
        "</div></figure>"
    )


def _field(td: Td, spread: bool) -> str:
    """Align a number without standard deviation with the means of its column."""
    kind = ' class="single"' if spread and "±" not in td.text else ""
    text = escape(td.text)
    return f"<td{kind}>{f'<b>{text}</b>' if td.best else text}</td>"


def _verdict(verdict: str) -> str:
    return (
        f'<span class="verdict {verdict.split()[0]}"><span aria-hidden="true">{SIGNS[verdict]}</span> {verdict}</span>'
    )


def _link(name: str, words: str) -> str:
    return f'<a href="#{escape(name)}">{escape(words)}</a>'


def _item(content: str) -> str:
    return f"<li>{content}</li>"


def _list(words: Sequence[str]) -> str:
    return f"<ul>{''.join(_item(escape(line)) for line in words)}</ul>"


def _note(words: str) -> str:
    return f'<p class="note">{escape(words)}</p>'


def _details(words: str, content: str) -> str:
    return f"<details><summary>{escape(words)}</summary>{content}</details>"
