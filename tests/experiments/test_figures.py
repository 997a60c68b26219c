"""Charts: valid, complete, and every mark where its number belongs."""

import itertools
import re
from xml.etree import ElementTree

import pytest
from fake_records import make_outcomes, make_records

from hashlearn.experiments.figures import ablates, chart, difference_chart, line_chart
from hashlearn.experiments.grid import experiment, names
from hashlearn.experiments.summary import group_outcomes

SVG = "{http://www.w3.org/2000/svg}"


def parse(svg):
    return ElementTree.fromstring(svg)


def points(svg):
    """Label and length → (x, y) of the mark, words, and the ends of the error bar if there is one."""
    found = {}
    for group in parse(svg).iter(f"{SVG}g"):
        title = group.find(f"{SVG}title")
        if title is None:
            continue
        label, n_bits, words = re.fullmatch(r"(.*), (\d+) bits: (.*)", title.text).groups()
        drawn = {path.get("class"): path for path in group.findall(f"{SVG}path")}
        x, y = map(float, re.fullmatch(r"translate\((\S+) (\S+)\)", drawn["mark"].get("transform")).groups())
        found[label, int(n_bits)] = (x, y), words, drawn["bar"].get("d") if "bar" in drawn else None
    return found


def test_marks_are_where_their_numbers_belong():
    outcomes = make_outcomes("fig-cifar10", {("lsh", b): [v] for b, v in {8: 0.1, 16: 0.2, 32: 0.3, 64: 0.4}.items()})
    drawn = points(line_chart(outcomes, "map"))
    # Percents from 0 to 40 over 220 pixels below 34; lengths at equal steps from 60 to 334.
    assert [drawn["LSH", b][0] for b in (8, 16, 32, 64)] == [
        pytest.approx((60, 199), abs=0.01),
        pytest.approx((60 + 274 / 3, 144), abs=0.01),
        pytest.approx((60 + 2 * 274 / 3, 89), abs=0.01),
        pytest.approx((334, 34), abs=0.01),
    ]
    assert drawn["LSH", 16][1:] == ("20.00, 1 run", None)


def test_the_axis_says_the_same_as_the_marks():
    outcomes = make_outcomes("fig-cifar10", {("lsh", 8): [0.91], ("itq", 8): [0.85], ("sh", 8): [0.95]})
    svg = line_chart(outcomes, "map")
    ticks = {t.text: float(t.get("y")) - 4 for t in parse(svg).iter(f"{SVG}text") if t.get("text-anchor") == "end"}
    drawn = points(svg)
    assert {"86", "94"} <= set(ticks)  # an axis that starts far from 0 where all values are
    assert "0" not in ticks
    for label, value in (("LSH", 91), ("ITQ", 85), ("SH", 95)):
        expected = ticks["86"] + (value - 86) * (ticks["94"] - ticks["86"]) / 8
        assert drawn[label, 8][0][1] == pytest.approx(expected, abs=0.02)


def test_error_bars_are_one_standard_deviation_up_and_down():
    outcomes = make_outcomes("fig-cifar10", {("itq", 8): [0.1, 0.2, 0.3], ("sh", 8): [0.4]})
    (x, y), words, bar = points(line_chart(outcomes, "map"))["ITQ", 8]
    assert words == "20.00 ± 10.00, 3 runs"
    low, high = map(float, re.match(rf"M{x:g} (\S+)V([\d.]+)M", bar).groups())
    # 40 percent are 220 pixels, so 10 are 55.
    assert (low - y, y - high) == pytest.approx((55, 55), abs=0.01)


def test_one_length_stands_in_the_middle():
    drawn = points(line_chart(make_outcomes("fig-cifar10", {("itq", 32): [0.2, 0.3]}), "map"))
    assert drawn["ITQ", 32][0][0] == 197


def test_no_line_is_drawn_across_a_missing_length():
    values = {("lsh", b): [0.1] for b in (8, 16, 64)} | {("itq", b): [0.2] for b in (8, 16, 32, 64)}
    svg = line_chart(make_outcomes("fig-cifar10", values), "map")
    lines = [path.get("d") for path in parse(svg).iter(f"{SVG}path") if path.get("class") == "line"]
    moves = sorted(line.count("M") for line in lines if "L" in line)
    assert moves == [1, 2]
    assert set(points(svg)) == {(label, b) for label, b in itertools.product(("LSH", "ITQ"), (8, 16, 32, 64))} - {
        ("LSH", 32)
    }


def test_without_a_result_of_a_method_that_is_drawn_there_is_no_chart():
    outcomes = make_outcomes("fig-cifar10", {("itq", 8): [0.1], ("dh", 8): [0.1]})
    assert chart(outcomes, "p@9") is None
    assert set(points(chart(outcomes, "map"))) == {("ITQ", 8)}
    assert chart(make_outcomes("fig-cifar10", {("dh", 8): [0.1]}), "map") is None
    without_the_whole = make_outcomes("ablation", {("itq", 16): [0.1]})
    assert difference_chart(without_the_whole, "map") is None
    assert chart(without_the_whole, "map") is None


def test_differences_from_the_whole_method():
    whole = {("udh-dnn", 16): [0.50, 0.54], ("udh-dnn", 32): [0.6]}
    values = {**whole, ("linear", 16): [0.48, 0.54], ("linear", 32): [0.58], ("itq", 16): [0.53, 0.57]}
    outcomes = make_outcomes("ablation", values)
    svg = chart(outcomes, "map")
    drawn = points(svg)
    assert {key: words for key, (_, words, _) in drawn.items()} == {
        ("no hidden layer", 16): "−1.00 ± 1.41, 2 runs",
        ("no hidden layer", 32): "−2.00, 1 run",
        ("ITQ", 16): "+3.00 ± 0.00, 2 runs",
    }
    x = {key: place[0] for key, (place, _, _) in drawn.items()}
    (zero,) = [p for p in parse(svg).iter(f"{SVG}path") if "zero" in p.get("class", "").split()]
    zero = float(re.match(r"M([\d.]+) ", zero.get("d")).group(1))
    point = (zero - x["no hidden layer", 32]) / 2
    assert point > 0
    assert (x["ITQ", 16] - zero) / 3 == pytest.approx(point, abs=0.02)
    low, high = map(float, re.match(r"M(\S+) \S+H([\d.]+)M", drawn["no hidden layer", 16][2]).groups())
    assert high - low == pytest.approx(2 * 2**0.5 * point, abs=0.05)


@pytest.mark.parametrize("name", names())
def test_all_points_of_an_experiment_are_drawn_and_all_lines_differ(name):
    (outcomes,) = group_outcomes(make_records(name))
    chosen = experiment(name)
    for measure in chosen.measures:
        svg = chart(outcomes, measure)
        root = parse(svg)
        assert root.get("role") == "img"
        assert chosen.title in root.get("aria-label")
        left = {chosen.subject} if ablates(chosen) else set(chosen.undrawn)
        methods = [m for m in chosen.methods if m not in left]
        assert set(points(svg)) == {(outcomes.label(m), b) for m in methods for b in chosen.bits}
        if not ablates(chosen):
            looks = [g.get("class") for g in root.findall(f"{SVG}g") if g.find(f"{SVG}title") is None][: len(methods)]
            assert len(set(looks)) == len(methods)


def test_the_papers_method_stands_out():
    (outcomes,) = group_outcomes(make_records("fig-cifar10"))
    groups = [g for g in parse(line_chart(outcomes, "map")).findall(f"{SVG}g") if g.find(f"{SVG}g") is not None]
    looks = {g.find(f"{SVG}g/{SVG}title").text.rpartition(", 8 bits")[0]: g.get("class") for g in groups}
    assert looks["UDH-DNN"] == "s0 thick"
    assert looks["UDH-DNN, from ITQ"] == "s0 thick dashed"
    assert looks["KMH, 8 bits a subspace"] == f"{looks['KMH']} dashed"


@pytest.mark.parametrize("name", names())
def test_texts_stay_inside_and_apart(name):
    (outcomes,) = group_outcomes(make_records(name))
    root = parse(chart(outcomes, outcomes.experiment.measures[-1]))
    _, _, width, height = map(float, root.get("viewBox").split())
    boxes = []
    for text in root.iter(f"{SVG}text"):
        x, y, wide = float(text.get("x")), float(text.get("y")), 6.6 * len(text.text)
        left = x - wide * {None: 0, "middle": 0.5, "end": 1}[text.get("text-anchor")]
        boxes.append((left, y - 11, left + wide, y + 3))
        assert boxes[-1][0] >= 0
        assert boxes[-1][2] <= width
        assert boxes[-1][3] <= height
    for a, b in itertools.combinations(boxes, 2):
        assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1], (a, b)


def test_labels_are_escaped():
    from dataclasses import replace

    (outcomes,) = group_outcomes(make_records("check-siftsmall"))
    chosen = outcomes.experiment
    entries = tuple(replace(entry, label=f"<b>&{entry.name}") for entry in chosen.entries)
    odd = replace(outcomes, experiment=replace(chosen, title='"<&>"', entries=entries))
    assert {label for label, _ in points(line_chart(odd, "map"))} == {f"<b>&{name}" for name in chosen.methods}
