import json

import pytest

from hashlearn.evaluation import SETTINGS, Protocol, choose_setting, setting


def test_every_field_has_a_default_and_the_choices_survive_json():
    assert Protocol() == Protocol(ap="all", cutoff=None, ties="expected", radii=(2, 3, 4), distance="hamming")
    protocol = Protocol(ap="trapezoid", cutoff=10, ties="index", radii=(1,), distance="spherical")
    assert Protocol(**json.loads(json.dumps(protocol.as_dict()))) == protocol


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"ap": "mean"}, "ap must be one of all, retrieved, trapezoid; got 'mean'"),
        ({"ties": "random"}, "ties must be one of index, expected; got 'random'"),
        ({"distance": "euclidean"}, "distance must be one of hamming, spherical; got 'euclidean'"),
        ({"cutoff": 0}, "cutoff must be a whole number of at least 1"),
        ({"cutoff": 1.5}, "cutoff must be a whole number of at least 1"),
        ({"cutoff": True}, "cutoff must be a whole number of at least 1"),
        ({"radii": (1.5,)}, "radii must be distinct"),
        ({"radii": (-1,)}, "radii must be distinct"),
        ({"radii": (2, 2)}, "radii must be distinct"),
    ],
)
def test_bad_choices_are_refused(choices, words):
    with pytest.raises(ValueError, match=words):
        Protocol(**choices)


def test_the_papers_settings():
    for name in ("mnist", "cifar10"):
        assert (setting(name).truth, setting(name).k) == ("neighbors", 50)
        assert Protocol.preset(name).cutoff is None
        assert Protocol.preset(name).radii == (3, 4)
    for name in ("sift1m", "sift-photos"):
        assert (setting(name).truth, setting(name).k, setting(name).protocol.cutoff) == ("neighbors", 10_000, 10_000)
    assert setting("cifar10-dh").truth == "labels"
    assert Protocol.preset("cifar10-dh").radii == (2,)
    assert all(s.protocol.ties == "index" and s.protocol.ap == "all" for s in SETTINGS.values())
    with pytest.raises(ValueError, match="no setting is named 'mnits'; choose from mnist"):
        Protocol.preset("mnits")


def test_each_choice_shows_in_the_text():
    texts = {
        str(p)
        for p in (
            Protocol(),
            Protocol(ap="retrieved"),
            Protocol(ap="trapezoid"),
            Protocol(cutoff=9),
            Protocol(ties="index"),
            Protocol(distance="spherical"),
        )
    }
    assert len(texts) == 6
    assert "ranked by spherical Hamming distance" in str(Protocol(distance="spherical"))


def test_a_number_of_neighbors_means_truth_by_neighbors():
    """Also on data that are otherwise judged by labels."""
    for supervised in (False, True):
        usual = choose_setting("cifar10-dh", supervised=supervised)
        assert (usual.truth, usual.k) == ("labels", None)
        chosen = choose_setting("cifar10-dh", k=7, supervised=supervised)
        assert (chosen.truth, chosen.k) == ("neighbors", 7)
    assert choose_setting("cifar10-dh", truth="neighbors").k == 50


def test_a_chosen_setting_is_the_papers_but_for_what_is_chosen():
    assert choose_setting("sift1m", ap=None, cutoff=None, ties=None, radii=None, distance=None) == setting("sift1m")
    assert choose_setting("mnist", supervised=True) == setting("mnist-labels")
    assert choose_setting("sift1m", cutoff=0).protocol.cutoff is None
    assert choose_setting("sift1m", cutoff=9, radii=(1,)).protocol == Protocol(cutoff=9, ties="index", radii=(1,))


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"k": 0}, "k must be at least 1; got 0"),
        ({"k": 3, "truth": "labels"}, "k goes with truth by neighbors, not by labels"),
        ({"truth": "faith"}, "truth must be neighbors or labels; got 'faith'"),
        ({"ap": "mean"}, "ap must be one of all, retrieved, trapezoid; got 'mean'"),
    ],
)
def test_a_setting_that_can_not_be_is_refused(choices, words):
    with pytest.raises(ValueError, match=words):
        choose_setting("mnist", **choices)
