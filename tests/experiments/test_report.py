"""The report: well-formed, self-contained, and its numbers are the records'."""

import json
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from fake_records import make_record, make_records

from hashlearn.experiments import gallery as gallery_module
from hashlearn.experiments.claims import Finding, Reading, check_claims
from hashlearn.experiments.grid import experiment, plan_runs, quick
from hashlearn.experiments.html import html_report, section_name
from hashlearn.experiments.markdown import markdown_report
from hashlearn.experiments.report import write_report
from hashlearn.experiments.results import run_seconds
from hashlearn.experiments.summary import group_outcomes
from hashlearn.progress import duration

VOID = {"meta", "img", "br", "hr", "link", "input"}
FINDINGS = [
    Finding("Table 9", "It is <best>.", "fig-mnist", (Reading("as it stands", "does not hold", "1.23 against 4.56"),)),
    Finding(
        "Section 2",
        "It is fair.",
        "fig-mnist",
        (Reading("by default", "holds", "7.89"), Reading("strictly", "not tested", "not run")),
    ),
]


class Page(HTMLParser):
    """Checks the nesting; gathers tables by section and caption, texts, attributes."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.stack, self.tables, self.attributes, self.words = [], {}, [], ""
        self.section = self.caption = None
        self.feed(html)
        self.close()
        assert self.stack == []

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.attributes += [(tag, name, value) for name, value in attrs.items()]
        if tag == "section":
            self.section = attrs["id"]
        elif tag == "figcaption":
            self.caption = ""
        elif tag == "table":
            self.rows = self.tables.setdefault((self.section, self.caption), [])
        elif tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
        if tag not in VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag, attrs):  # SVG's own
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_endtag(self, tag):
        assert self.stack, f"</{tag}> closes nothing"
        assert self.stack.pop() == tag

    def handle_data(self, data):
        if self.stack and self.stack[-1] in ("style", "title", "desc"):
            return
        self.words += data
        if "figcaption" in self.stack:
            self.caption += data
        elif "td" in self.stack or "th" in self.stack:
            self.rows[-1][-1] += data

    def table(self, section, start):
        (found,) = [
            rows for (own, caption), rows in self.tables.items() if own == section and caption.startswith(start)
        ]
        return found


def unwrap(markdown):
    """The text on one line, since Markdown is wrapped."""
    return " ".join(markdown.split())


def make_page(*names, claims=(), **options):
    outcomes = group_outcomes(record for name in names for record in make_records(name, **options))
    return Page(html_report(outcomes, claims)), outcomes


def shown(values):
    """Mean ± standard deviation as the report writes them, by NumPy."""
    values = 100 * np.array(values)
    return f"{values.mean():.2f}" + (f" ± {values.std(ddof=1):.2f}" if len(values) > 1 else "")


def read_values(records, method, n_bits, *path):
    found = [r for r in records if (r["method"], r["n_bits"]) == (method, n_bits)]
    for key in path:
        found = [r[key] for r in found]
    return found


def test_the_page_is_well_formed_and_needs_nothing_else():
    outcomes = group_outcomes(make_records("fig-cifar10") + make_records("ablation"))
    html = html_report(outcomes, FINDINGS)
    page = Page(html)
    assert html.startswith("<!DOCTYPE html>")
    assert "<script" not in html
    assert "@import" not in html
    assert "url(" not in html
    outside = re.compile(r"^\s*(https?:)?//")
    assert not [a for a in page.attributes if a[1] not in ("xmlns",) and outside.match(a[2] or "")]
    ids = [value for _, name, value in page.attributes if name == "id"]
    links = [value for tag, name, value in page.attributes if (tag, name) == ("a", "href")]
    assert len(ids) == len(set(ids))
    assert {"#claims", "#fig-cifar10", "#ablation"} <= set(links)
    assert {link.removeprefix("#") for link in links} <= set(ids)
    assert ("meta", "name", "viewport") in page.attributes


@pytest.mark.parametrize("name", ["fig-mnist", "fig-mnist-sup", "table-dh"])
def test_scores_are_the_records(name):
    page, (outcomes,) = make_page(name)
    chosen = experiment(name)
    measures = {**{m: m.upper().replace("MAP", "mAP") for m in chosen.measures}}
    if chosen.setting.truth == "labels":
        measures["map_new"] = "mAP among new samples"
    for measure, label in measures.items():
        head, *rows = page.table(name, f"{label}, percent.")
        assert head == ["method", *(f"{b} bits" for b in chosen.bits), "runs"]
        assert [row[0] for row in rows] == [entry.label for entry in chosen.entries]
        for method, row in zip(chosen.methods, rows, strict=True):
            values = [read_values(outcomes.records, method, b, "scores", measure) for b in chosen.bits]
            assert row[1:-1] == [shown(v) for v in values]
            counts = [str(len(v)) for v in values]
            assert row[-1] == (counts[0] if len(set(counts)) == 1 else " / ".join(counts))


def test_the_best_of_a_column_is_marked():
    outcomes = group_outcomes(make_records("fig-mnist"))
    html = html_report(outcomes, [])
    table = re.search(r"<figcaption>mAP, percent\..*?</table>", html, re.DOTALL).group()
    best = []
    for n_bits in experiment("fig-mnist").bits:
        means = {m: np.mean(read_values(outcomes[0].records, m, n_bits, "scores", "map")) for m in outcomes[0].methods}
        best.append(shown(read_values(outcomes[0].records, max(means, key=means.get), n_bits, "scores", "map")))
    assert sorted(re.findall(r"<b>(.*?)</b>", table)) == sorted(best)


def test_ours_stand_beside_the_published():
    page, (outcomes,) = make_page("table-dh")
    head, *rows = page.table("table-dh", "mAP, percent: ours")
    assert head[1:4] == ["16 bits, ours", "published", "difference"]
    (row,) = [row for row in rows if row[0] == "UDH-DNN"]
    ours = 100 * np.mean(read_values(outcomes.records, "udh-dnn", 16, "scores", "map"))
    assert row[2] == "16.83"
    assert row[3] == f"{ours - 16.83:+.2f}".replace("-", "−")
    assert "UDH-DNN, unscaled" not in [row[0] for row in rows]  # of which nothing was published


def test_a_small_version_does_not_stand_beside_the_published():
    small = quick(experiment("table-dh"))
    (outcomes,) = group_outcomes(make_record(run) for run in plan_runs(small, "cifar10-dh"))
    assert "published" not in html_report([outcomes], [])


def test_the_command_that_makes_small_versions_names_their_data(tmp_path):
    def command(*pairs):
        folder = tmp_path / "results"
        for name, data in pairs:
            write_records(folder, [make_record(run) for run in plan_runs(quick(experiment(name), data), data)])
        write_report(folder, tmp_path / "page.html", images=False)
        shutil.rmtree(folder)
        (line,) = re.findall("hashlearn reproduce.*", (tmp_path / "page.html").read_text())
        return line.removeprefix("<pre><code>")

    assert command(("fig-mnist", "mnist")) == "hashlearn reproduce --quick --out results"
    assert command(("fig-mnist", "digits")) == "hashlearn reproduce --quick --data digits --out results"
    assert command(("fig-mnist", "digits"), ("fig-cifar10", "cifar10")) == "hashlearn reproduce --quick --out results"
    study = "study-ba-cifar10"
    assert command((study, "digits")) == f"hashlearn reproduce {study} --quick --data digits --out results"


def test_a_report_of_studies_has_their_tables_and_no_claims(tmp_path):
    folder = write_records(tmp_path / "results", make_records("study-bre-cifar10"))
    report = write_report(folder, tmp_path / "page.html", tmp_path / "page.md", images=False)
    assert (report.n_runs, report.n_missing, report.n_left_out, report.figures) == (36, 0, 0, ())
    text = unwrap((tmp_path / "page.md").read_text())
    assert "hashlearn reproduce study-bre-cifar10 --out results" in text
    assert "The queries were held out from the training data; no test query was used." in text
    assert "BRE, kernel=rbf" in text
    assert "claim" not in text
    assert "without any result" not in text


def test_what_is_not_drawn_and_what_is_of_several_versions_is_said():
    given = make_records("fig-cifar10", methods=["itq", "dh"], bits=[8])
    (outcomes,) = group_outcomes(given)
    for text in (html_report([outcomes], []), unwrap(markdown_report([outcomes], [], {}))):
        assert "Shown in the tables only: DH." in text
        assert "several versions" not in text
    newer = {**given[1], "machine": {**given[1]["machine"], "hashlearn": "0.2.0"}}
    (outcomes,) = group_outcomes([given[0], newer])
    assert "The runs were made with several versions of hashlearn: 0.1.0, 0.2.0." in html_report([outcomes], [])


def test_codes_time_and_memory_are_the_records():
    given = make_records("check-siftsmall")
    for record in given:
        if (record["method"], record["n_bits"], record["seed"]) == ("itq", 32, 1):
            record["machine"] = {**record["machine"], "cores": 1}
    (outcomes,) = group_outcomes(given)
    page, records = Page(html_report([outcomes], [])), outcomes.records
    _, *codes = page.table("check-siftsmall", "Statistics of the database codes")
    _, *costs = page.table("check-siftsmall", "Time and memory")
    pairs = [(m, b) for m in ("lsh", "itq", "udh-dnn-from-itq") for b in (16, 32, 64)]
    assert len(codes) == len(costs) == len(pairs)
    for (method, b), code, cost in zip(pairs, codes, costs, strict=True):
        assert code[1] == cost[1] == str(b)
        columns = [("imbalance", ".3f", 1), ("max_imbalance", ".3f", 1), ("correlation", ".3f", 1)]
        columns += [("max_correlation", ".3f", 1), ("n_codes", ",.0f", 1), ("utilization", ".1f", 100)]
        for column, (name, form, factor) in enumerate([*columns, ("entropy", ".2f", 1)], start=2):
            assert code[column] == f"{factor * np.mean(read_values(records, method, b, 'codes', name)):{form}}"
        assert code[9] == f"{100 * np.mean(read_values(records, method, b, 'scores', 'empty@3')):.1f}"
        seconds = read_values(records, method, b, "training", "seconds")
        assert cost[2] == ("1, 2" if (method, b) == ("itq", 32) else "2")
        assert float(cost[3]) == pytest.approx(min(seconds), rel=0.01)
        assert float(cost[4]) == pytest.approx(np.mean(seconds), rel=0.01)
        cpu = np.mean(read_values(records, method, b, "training", "cpu_seconds"))
        assert float(cost[5]) == pytest.approx(cpu, rel=0.01)
        assert cost[6] == f"{max(read_values(records, method, b, 'training', 'peak_bytes')) / 1e6:,.0f}"
        assert float(cost[7]) == pytest.approx(min(read_values(records, method, b, "encoding_microseconds")), abs=0.06)


def test_warnings_are_counted():
    records = make_records("check-siftsmall")
    for record in records:
        if (record["method"], record["n_bits"]) == ("itq", 32) and record["seed"] > 0:
            record["training"]["warnings"] = ["did not converge <yet>"]
        if (record["method"], record["n_bits"]) == ("itq", 16):
            record["training"]["warnings"] = [
                f"{('9.5', '-1.2e-05', '1,500')[record['seed']]}% changed in the last of 5, no 2nd"
            ]
    page = Page(html_report(group_outcomes(records), []))
    assert "ITQ, 32 bits, 2 of 3 runs: did not converge <yet>" in page.words
    assert "ITQ, 16 bits, 3 of 3 runs: -1.2e-05 to 1,500% changed in the last of 5, no 2nd" in page.words
    assert "Warnings: none." in Page(html_report(group_outcomes(make_records("check-siftsmall")), [])).words


def test_missing_runs_are_named():
    records = [r for r in make_records("fig-mnist") if (r["method"], r["n_bits"]) != ("itq", 64) or r["seed"] == 1]
    outcomes = group_outcomes(records)
    words = Page(html_report(outcomes, [])).words
    n = len(list(plan_runs(experiment("fig-mnist"), "mnist")))
    assert f"2 of {n} runs are missing." in words
    assert "ITQ at 64 bits (seeds 0, 2)." in words
    assert "Experiments without any result" in words
    assert "fig-sift, table-dh" in words
    assert "are missing." not in make_page("fig-mnist")[0].words
    assert "ITQ at 64 bits (seeds 0, 2)." in markdown_report(outcomes, [], {})


def test_the_summary_counts_a_run_that_serves_two_experiments_once():
    once = make_records("fig-cifar10", methods=["itq"])  # twelve runs
    copies = [{**r, "experiment": "ablation"} for r in once if r["n_bits"] == 16]
    words = Page(html_report(group_outcomes(once + copies), [])).words
    assert "15 of 2 experiments, of which 3 serve a second experiment" in words
    assert f"{duration(sum(map(run_seconds, once)))} in total, one run after another" in words
    total = sum(record["training"]["seconds"] for record in once)
    assert f"{duration(total)} in total" in words
    assert "a processor, 2 cores" in words
    assert "hashlearn 0.1.0" in words


def test_claims_have_their_verdicts_in_words():
    page, _ = make_page("fig-mnist", methods=["lsh"], claims=FINDINGS)
    assert "2 claims: 1 holds, 1 does not hold." in page.words
    assert "✗ does not hold It is <best>." in page.words
    assert "as it stands: 1.23 against 4.56" in page.words
    assert "– not tested strictly: not run" in page.words


def test_the_real_claims_are_all_shown():
    outcomes = group_outcomes(make_records("fig-mnist"))
    claims = check_claims(outcomes)
    page, text = Page(html_report(outcomes, claims)), unwrap(markdown_report(outcomes, claims, {}))
    assert len(claims) > 10
    for finding in claims:
        assert finding.words in page.words
        assert finding.readings[0].numbers in page.words
        assert finding.words in text


def odd_outcomes():
    (outcomes,) = group_outcomes(make_records("check-siftsmall"))
    entries = tuple(replace(entry, label=f"<i>{entry.name}|&") for entry in outcomes.experiment.entries)
    return [replace(outcomes, experiment=replace(outcomes.experiment, title="<h9>", entries=entries))]


def test_labels_are_escaped():
    html = html_report(odd_outcomes(), [])
    assert "<i>" not in html
    assert "<h9>" not in html
    page = Page(html)
    assert page.table("check-siftsmall", "mAP, percent.")[1][0] == "<i>lsh|&"
    text = markdown_report(odd_outcomes(), [], {})
    assert "<i>" not in text
    assert r"&lt;i&gt;lsh\|&amp;" in text


def test_small_and_whole_results_in_one_folder_stay_apart():
    small = quick(experiment("fig-mnist"), "mnist")
    whole = make_records("fig-mnist", methods=["sh", "itq"])
    found = group_outcomes([*whole, *(make_record(run) for run in plan_runs(small, "mnist"))])
    assert [one.small for one in found] == [False, True]
    assert len(found[0].records) == len(whole)
    assert [section_name(one, found) for one in found] == ["fig-mnist-mnist", "fig-mnist-mnist-small"]


def test_a_small_version_says_so():
    small = quick(experiment("fig-mnist"), "digits")
    outcomes = group_outcomes(make_record(run) for run in plan_runs(small, "digits"))
    assert "say nothing about the paper" in Page(html_report(outcomes, [])).words
    assert "says nothing about the paper" in markdown_report(outcomes, [], {})
    assert "nothing of the paper" not in make_page("fig-mnist")[0].words


def test_markdown_tables_parse_and_hold_the_scores():
    outcomes = group_outcomes(make_records("table-dh") + make_records("ablation"))
    text = markdown_report(outcomes, FINDINGS, {})
    blocks = [block.splitlines() for block in text.split("\n\n") if block.startswith("|")]
    assert len(blocks) > 10
    for head, rule, *rows in blocks:
        n_columns = head.count("|") - 1
        assert re.fullmatch(r"\|( --- \|)+", rule)
        assert rule.count("|") - 1 == n_columns
        assert rows
        for row in rows:
            assert len(re.findall(r"(?<!\\)\|", row)) - 1 == n_columns
    scores = next(block for block in blocks if block[0] == "| method | 16 bits | 32 bits | 64 bits | runs |")
    (row,) = [line for line in scores if line.startswith("| DH |")]
    for field, n_bits in zip(row.split(" | ")[1:-1], (16, 32, 64), strict=True):
        assert field.strip("*") == shown(read_values(outcomes[0].records, "dh", n_bits, "scores", "map"))


def test_a_part_of_an_ablation_without_the_whole_is_shown_without_differences():
    page, outcomes = make_page("ablation", methods=["itq", "linear"])
    assert page.table("ablation", "mAP, percent.")
    assert not [caption for _, caption in page.tables if "points from" in caption]
    assert "points from" not in markdown_report(outcomes, [], {})
    whole, _ = make_page("ablation")
    (row,) = [row for row in whole.table("ablation", "mAP, percentage points from UDH-DNN") if row[0] == "ITQ"]
    records = make_records("ablation")
    ours, theirs = (np.array(read_values(records, m, 16, "scores", "map")) for m in ("itq", "udh-dnn"))
    assert row[1].lstrip("+−") == shown(np.abs(ours - theirs))


def write_records(folder, records):
    folder.mkdir(parents=True, exist_ok=True)
    for record in records:
        with (folder / f"{record['experiment']}.jsonl").open("a") as file:
            file.write(json.dumps(record) + "\n")
    return folder


@pytest.fixture
def folder(tmp_path):
    return write_records(tmp_path / "results", make_records("check-siftsmall"))


def test_files_are_written_and_linked(folder, tmp_path):
    report = write_report(folder, tmp_path / "report.html", tmp_path / "docs" / "RESULTS.md", tmp_path / "pic tures")
    assert (report.n_runs, report.n_missing) == (27, 0)
    text = (tmp_path / "docs" / "RESULTS.md").read_text()
    links = re.findall(r"!\[[^]]*\]\((.*?)\)", text)
    assert len(links) == len(report.figures) == 3
    for link in links:
        assert (tmp_path / "docs" / link.replace("%20", " ")).read_text().startswith("<svg")
    page = Page((tmp_path / "report.html").read_text())
    assert "hashlearn reproduce --out results" in page.words
    assert "hashlearn report results --out report.html --markdown RESULTS.md" in page.words
    for written in (text, (tmp_path / "report.html").read_text()):
        assert str(tmp_path) not in written
    assert sorted(p.name for p in tmp_path.iterdir()) == ["docs", "pic tures", "report.html", "results"]


def test_damaged_results_do_not_stop_a_report(folder, tmp_path, caplog):
    path = folder / "check-siftsmall.jsonl"
    damaged = (b"\xff\0" * 100, b"[" * 100_000, b'{"format": 1' + b"0" * 400 + b"}", b"")
    first, *others = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + b"".join(line + b"\n" for line in damaged) + b"".join(others) + first[:100])
    report = write_report(folder, tmp_path / "report.html", images=False)
    assert (report.n_runs, report.n_missing) == (27, 0)
    assert len(caplog.records) == 5
    assert not any("\n" in record.getMessage() for record in caplog.records)


def test_results_of_another_revision_or_layout_are_named(tmp_path):
    records = make_records("check-siftsmall", methods=["lsh"])
    older = [{**record, "revision": 99} for record in records]
    strange = {**records[0], "options": {"unknown": 1}}
    folder = write_records(tmp_path / "results", [*records[:1], *older[1:3]])
    report = write_report(folder, tmp_path / "report.html", images=False)
    assert (report.n_runs, report.n_left_out, report.n_outdated) == (1, 2, 2)
    words = "left out: 1 result of another revision of the method, 1 result of data sets, methods, parameters or"
    folder = write_records(tmp_path / "other", [strange, older[1]])
    with pytest.raises(ValueError, match=rf"other holds no results of the experiments \({words} .*makes them"):
        write_report(folder, tmp_path / "report.html")
    (tmp_path / "files" / "fig-mnist").mkdir(parents=True)
    (tmp_path / "files" / "fig-mnist" / "itq-16-0-0123456789abcdef.json").write_text("{}")
    with pytest.raises(ValueError, match="files holds results of an older version, one file per run"):
        write_report(tmp_path / "files", tmp_path / "report.html")


def test_a_folder_of_something_else_is_an_error(folder, tmp_path):
    path = folder / "notes.jsonl"
    path.write_text("some notes\n")
    with pytest.raises(ValueError, match=r"notes.jsonl is not a file of results: line 1 can't be read"):
        write_report(folder, tmp_path / "report.html", images=False)
    path.unlink()
    path.mkdir()
    with pytest.raises(OSError, match=r"a file is needed; it is a folder: .*notes.jsonl"):
        write_report(folder, tmp_path / "report.html", images=False)
    assert not (tmp_path / "report.html").exists()


def test_figures_lie_beside_the_markdown_unless_told(folder, tmp_path):
    report = write_report(folder, tmp_path / "report.html", tmp_path / "RESULTS.md", images=False)
    assert {path.parent for path in report.figures} == {tmp_path / "figures"}
    assert "(figures/check-siftsmall-p3.svg)" in (tmp_path / "RESULTS.md").read_text()


def test_a_folder_without_results_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere.*hashlearn reproduce"):
        write_report(tmp_path / "nowhere", tmp_path / "report.html")
    with pytest.raises(ValueError, match=r"no results.*hashlearn reproduce"):
        write_report(tmp_path, tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []


def digits_outcomes():
    small = quick(experiment("fig-mnist"), "digits")
    (outcomes,) = group_outcomes(make_record(run) for run in plan_runs(small, "digits"))
    return outcomes


def test_examples_are_shown_with_their_classes(monkeypatch):
    from io import BytesIO

    from PIL import Image

    blank = np.zeros((6, 24, 24), dtype=np.uint8)
    asked, found = np.array([7, 0, 0, 8, 0, 0]), np.array([8, 7, 7, 1, 8, 2])
    monkeypatch.setitem(gallery_module._SOURCES, "digits", lambda: (blank, asked, blank, found))
    gallery = gallery_module.make_gallery(digits_outcomes())
    assert [sheet.label for sheet in gallery.sheets] == ["UDH-DNN", "ITQ", "LSH"]
    # Queries 0 and 3 are a 7 and an 8; found are items 1, 2, 5 (7, 7, 2) and 4, 0, 2 (8, 8, 7).
    assert gallery.sheets[0].words == "UDH-DNN, 16 bits: 4 of the 6 items are of their query's class"
    image = Image.open(BytesIO(gallery.sheets[0].png)).convert("RGBA")
    assert image.size == (gallery.sheets[0].width, gallery.sheets[0].height) == (126, 58)
    frames = [[image.getpixel((38 + 30 * column, 30 * row)) for column in range(3)] for row in range(2)]
    same, other = (36, 110, 214, 255), (224, 108, 0, 255)
    assert frames == [[same, same, other], [same, same, other]]
    assert image.getpixel((32, 5))[3] == 0  # between the query and what was found
    html = html_report([digits_outcomes()], [], galleries={"fig-mnist": gallery})
    page = Page(html)
    alts = [value for tag, name, value in page.attributes if (tag, name) == ("img", "alt")]
    assert len(alts) == 3
    assert all("query images" in alt for alt in alts)
    sources = [value for tag, name, value in page.attributes if (tag, name) == ("img", "src")]
    assert all(source.startswith("data:image/png;base64,") for source in sources)


@pytest.mark.parametrize(
    "examples",
    [
        None,
        [],
        {},
        {"queries": [0], "items": []},
        {"queries": [0], "items": [[]]},
        {"queries": [0, 1], "items": [[1, 2], [3]]},
        {"queries": [10**9], "items": [[0]]},
        {"queries": [-1], "items": [[0]]},
        {"queries": [0], "items": [[2**70]]},
        {"queries": [0], "items": [["x"]]},
        {"queries": 5, "items": [[0.5]]},
    ],
)
def test_examples_that_are_none_are_not_shown(examples):
    outcomes = digits_outcomes()
    spoiled = replace(outcomes, records=tuple({**record, "examples": examples} for record in outcomes.records))
    assert gallery_module.make_gallery(spoiled).sheets == ()


def test_bundled_digits_have_pictures():
    (sheet, *_) = gallery_module.make_gallery(digits_outcomes()).sheets
    assert len(sheet.png) > 500


def test_images_that_can_not_be_had_are_left_out_with_a_word(monkeypatch, caplog):
    from hashlearn.errors import DatasetError

    def none():
        raise DatasetError("nothing in /a/folder")

    monkeypatch.setitem(gallery_module._SOURCES, "digits", none)
    outcomes = digits_outcomes()
    gallery = gallery_module.make_gallery(outcomes)
    html = html_report([outcomes], [], galleries={"fig-mnist": gallery})
    assert "the images of digits are not available" in Page(html).words
    assert "/a/folder" not in html
    assert "/a/folder" in caplog.text


def test_recalls_are_explained_where_they_are_shown(tmp_path):
    folder = write_records(tmp_path / "results", make_records("beyond-glosses"))
    write_report(folder, tmp_path / "report.html", tmp_path / "RESULTS.md", images=False)
    text = " ".join((tmp_path / "RESULTS.md").read_text().split())
    assert "recall@r: the share of the true neighbors that are among the first r items" in text
    assert "AP: " not in text
    assert "precision@r" not in text
