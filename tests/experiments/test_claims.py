"""Rules and claims on results whose answers are known."""

from dataclasses import replace

import pytest

from hashlearn.experiments import grid
from hashlearn.experiments.claims import CLAIMS, claims_of
from hashlearn.experiments.rules import View, as_large, below_some, best, both, drops, grows, level, mostly, peak
from hashlearn.experiments.summary import Outcomes, outcomes_of


def record(experiment, method, n_bits, seed=0, data="cifar10", limit=None, **scores):
    return {
        "experiment": experiment,
        "method": method,
        "n_bits": n_bits,
        "seed": seed,
        "data": {"name": data, "limit": limit},
        "scores": {name.replace("_at_", "@"): value / 100 for name, value in scores.items()},
    }


def view(values, rivals=("itq", "lsh"), measure="map"):
    """``values[method][n_bits]``: a number, or a list of one a seed."""
    records = []
    for method, by_bits in values.items():
        for n_bits, found in by_bits.items():
            for seed, value in enumerate(found if isinstance(found, list) else [found]):
                records.append(record("fig-cifar10", method, n_bits, seed, **{measure.replace("@", "_at_"): value}))
    return View(Outcomes(grid.experiment("fig-cifar10"), "cifar10", tuple(records)), "udh-dnn", rivals)


FOUR = (8, 16, 32, 64)


def of(*values):
    return dict(zip(FOUR, values, strict=True))


def test_best():
    better = view({"udh-dnn": of(2, 4, 6, 8), "itq": of(1, 3, 5, 7), "lsh": of(1.5, 1, 1, 1)})
    held, words = best()(better)
    assert held
    assert words.startswith("mAP at 8 bits 2.00, LSH 1.50 (+0.50); mAP at 16 bits 4.00, ITQ 3.00 (+1.00)")
    worse = view({"udh-dnn": of(2, 4, 6, 8), "itq": of(1, 3, 5, 8.01), "lsh": of(0, 0, 0, 0)})
    assert not best()(worse)[0]
    assert best(bits=(8, 16, 32))(worse)[0]
    assert not best()(view({"udh-dnn": of(1, 1, 1, 1), "itq": of(1, 0, 0, 0), "lsh": of(0, 0, 0, 0)}))[0]


def test_clearly_asks_for_a_point_and_two_standard_errors():
    def by(mine, theirs):
        values = {"udh-dnn": {32: mine}, "itq": {32: theirs}, "lsh": {32: 0}}
        return best(bits=(32,), clearly=True)(view(values))[0]

    assert by(6.1, 5.0)
    assert not by(5.9, 5.0)
    # means 8 and 5; standard errors 2/√3 and 0: two of them are 2.3
    assert by([6, 8, 10], 5.0)
    # standard errors 2/√3 each: √2 · 1.155 · 2 = 3.27 > 3
    assert not by([6, 8, 10], [3, 5, 7])


def test_level_is_two_sided():
    for difference, held in ((0.9, True), (-0.9, True), (1.1, False), (-1.1, False)):
        values = {"udh-dnn": {8: 5 + difference}, "itq": {8: 5}, "lsh": {8: 1}}
        assert level(("map",), (8,), 1.0)(view(values))[0] is held


def test_as_large_allows_two_points():
    values = {"udh-dnn": of(20, 10, 10, 10), "itq": of(5.5, 5, 5, 5)}
    assert as_large({8: 16.0})(view(values, ("itq",)))[0]
    held, words = as_large({8: 17.0, 16: 3})(view(values, ("itq",)))
    assert not held
    assert words == "8 bits +14.50 (published +17.0); 16 bits +5.00 (published +3.0)"


def test_grows():
    lead = {"itq": of(1, 1, 1, 1), "lsh": of(0, 0, 0, 0)}
    assert grows()(view({"udh-dnn": of(1.1, 1.1, 1.5, 1.5), **lead}))[0]
    assert not grows()(view({"udh-dnn": of(1.5, 1.5, 1.1, 1.1), **lead}))[0]
    assert not grows()(view({"udh-dnn": of(0.1, 0.1, 0.5, 0.5), **lead}))[0]  # no lead at all
    assert "−0.90 at 8" in grows()(view({"udh-dnn": of(0.1, 0.1, 0.5, 0.5), **lead}))[1]


def test_drops():
    def by(itq, **but):
        values = {"udh-dnn": {32: 5, 64: 4}, "itq": itq, "lsh": {32: 2, 64: 1}}
        return drops(("p@4",), 32, 64, **but)(view(values, measure="p@4"))

    assert by({32: 3, 64: 2})[0]
    held, words = by({32: 3, 64: 3.5})
    assert not held
    assert words == "P@4 rises from 32 to 64 bits for ITQ (+0.50)"
    assert by({32: 3, 64: 3.5}, but={"p@4": "itq"})[0]
    assert not by({32: 3, 64: 2.5}, but={"p@4": "itq"})[0]


def test_below_some_and_peak_and_mostly():
    values = {"udh-dnn": of(1, 2, 9, 3), "itq": of(1, 2, 3, 4), "lsh": of(1, 2, 3, 1)}
    chosen = view(values, measure="p@3")
    assert below_some(("p@3",), 64)(chosen)[0]
    assert not below_some(("p@3",), 32)(chosen)[0]
    assert peak(("p@3",), 32)(chosen) == (
        True,
        "highest P@3: UDH-DNN at 32 bits, 9.00 (UDH-DNN at 32 bits 9.00)",
    )
    higher = view({**values, "lsh": of(1, 2, 3, 10)}, measure="p@3")
    assert not peak(("p@3",), 32)(higher)[0]
    assert not peak(("p@3",), 64)(chosen)[0]
    empty = view({"udh-dnn": {64: 51}}, measure="empty@3")
    assert mostly(("empty@3",), 64)(empty) == (True, "queries with nothing within 3, percent, at 64 bits 51.00")
    assert not mostly(("empty@3",), 64)(view({"udh-dnn": {64: 49}}, measure="empty@3"))[0]
    assert both(peak(("p@3",), 32), below_some(("p@3",), 64))(chosen)[0]
    assert not both(peak(("p@3",), 32), below_some(("p@3",), 32))(chosen)[0]


def whole(experiment, data, score, limit=None):
    """A record for each method and length, of ``score(method, n_bits)``."""
    chosen = grid.experiment(experiment)
    return [
        record(
            experiment,
            method,
            n_bits,
            0,
            data,
            limit,
            **dict.fromkeys(("map", "p_at_2", "p_at_3", "p_at_4", "empty_at_3", "empty_at_4"), score(method, n_bits)),
        )
        for method in chosen.methods
        for n_bits in chosen.bits
    ]


def test_every_claim_is_tested_once_all_is_run():
    data = {name: grid.experiment(name).data[0] for name in grid.names()}
    records = [r for name in grid.names() for r in whole(name, data[name], lambda method, n_bits: 10 + len(method))]
    untested = [finding for finding in claims_of(outcomes_of(records)) if finding.verdict == "not tested"]
    assert [finding.words[:24] for finding in untested] == ["The exhaustive search fo", "What SDH assumes, that g"]
    assert {claim.experiment for claim in CLAIMS} == set(grid.names()) - {"check-siftsmall"}


def test_readings():
    scores = {"udh-dnn": 5, "udh-dnn-from-itq": 7, "ba-from-itq": 6}
    records = whole("fig-cifar10", "cifar10", lambda method, n_bits: scores.get(method, 4))
    finding = claims_of(outcomes_of(records))[0]
    assert finding.words == "UDH-DNN has the best mAP at all code lengths."
    assert [(reading.name, reading.verdict) for reading in finding.readings] == [
        ("as published", "holds"),
        ("UDH-DNN, from ITQ", "holds"),
        ("UDH-DNN against SPH, by its own distance, KMH, 8 bits a subspace, BA, from ITQ too", "does not hold"),
        ("UDH-DNN, from ITQ against SPH, by its own distance, KMH, 8 bits a subspace, BA, from ITQ too", "holds"),
    ]
    against_ba = claims_of(outcomes_of(records))[1]
    assert [(reading.name, reading.verdict) for reading in against_ba.readings] == [
        ("as published", "holds"),
        ("UDH-DNN, from ITQ", "holds"),
        ("UDH-DNN against BA, from ITQ", "does not hold"),
        ("UDH-DNN, from ITQ against BA, from ITQ", "holds"),
    ]


def test_a_stand_in_does_not_test_the_genuine_data():
    def score(method, n_bits):
        return 9 if method == "udh-dnn" else 4

    by_data = {}
    for data in ("sift1m", "sift-photos"):
        findings = claims_of(outcomes_of(whole("fig-sift", data, score)))
        by_data[data] = next(f for f in findings if f.experiment == "fig-sift")
    assert by_data["sift1m"].verdict == "holds"
    assert by_data["sift-photos"].verdict == "not tested"
    assert [(r.name, r.verdict) for r in by_data["sift-photos"].readings][:2] == [
        ("SIFT1M", "not tested"),
        ("sift-photos, as published", "holds"),
    ]


def test_small_versions_and_missing_runs_test_nothing():
    small = whole("fig-cifar10", "cifar10", lambda method, n_bits: 5, limit={"train": 2000, "queries": 200})
    assert claims_of(outcomes_of(small))[0].readings[0].numbers == "fig-cifar10 was not run."
    elsewhere = whole("fig-cifar10", "digits", lambda method, n_bits: 5)
    assert claims_of(outcomes_of(elsewhere))[0].verdict == "not tested"
    records = whole("fig-cifar10", "cifar10", lambda method, n_bits: 5)
    partial = [r for r in records if (r["method"], r["n_bits"]) != ("ba", 16)]
    finding = claims_of(outcomes_of(partial))[0]
    assert (finding.verdict, finding.readings[0].numbers) == ("not tested", "BA at 16 bits is not there.")


def test_outcomes():
    records = [
        record("fig-cifar10", "itq", 16, 1, map=4, p_at_3=1),
        record("fig-cifar10", "itq", 16, 0, map=2, p_at_3=1),
        record("fig-cifar10", "lsh", 8, 0, map=1),
        record("fig-cifar10", "gone", 8, 0, map=1),
        record("unknown", "lsh", 8, 0, map=1),
    ]
    (found,) = outcomes_of(records)
    assert (found.methods, found.bits) == (["lsh", "itq"], [8, 16])
    cell = found.cell("itq", 16, "map")
    assert cell.values == pytest.approx((2, 4))
    assert (cell.mean, cell.std, cell.error) == pytest.approx((3, 2**0.5, 1))
    single = found.cell("lsh", 8, "map")
    assert (single.mean, single.std, single.error) == (pytest.approx(1), None, 0)
    assert found.cell("lsh", 8, "p@3") is None
    assert found.cell("lsh", 16, "map") is None
    assert not found.small
    assert replace(found, data="digits").small
