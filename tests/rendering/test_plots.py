import sys

import numpy as np
import pytest
from PIL import Image

from jaxenvs.errors import MissingExtraError
from jaxenvs.rendering.plots import (
    quartiles,
    write_learning_curve,
    write_learning_curves,
    write_radar,
)


def picture(path):
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


def test_the_curve_follows_the_returns(tmp_path):
    steps = np.arange(50)
    up = write_learning_curve(tmp_path / "new" / "up.png", steps, steps, title="up")
    down = write_learning_curve(tmp_path / "down.png", steps, -steps, title="up")
    up, down = picture(up), picture(down)
    assert up.shape == down.shape and (up != down).any()
    assert len(np.unique(up.reshape(-1, 3), axis=0)) > 10


def test_updates_without_episodes_are_skipped(tmp_path):
    returns = np.array([np.nan, 1.0, np.nan, 2.0])
    gaps = write_learning_curve(tmp_path / "gaps.png", np.arange(4), returns, title="")
    whole = write_learning_curve(tmp_path / "whole.png", [1, 3], [1.0, 2.0], title="")
    np.testing.assert_array_equal(picture(gaps), picture(whole))


def test_curve_shows_seeds_as_a_band_and_threshold_as_a_line(tmp_path):
    steps, curves = np.arange(20), np.random.default_rng(0).normal(size=(5, 20))
    band = write_learning_curve(tmp_path / "band.png", steps, curves, title="")
    median = np.median(curves, axis=0)
    alone = write_learning_curve(tmp_path / "alone.png", steps, median, title="")
    lined = write_learning_curve(tmp_path / "lined.png", steps, median, title="", threshold=1.0)
    assert (picture(band) != picture(alone)).any() and (picture(lined) != picture(alone)).any()


def test_quartiles_interpolate_seeds_to_the_steps_of_all():
    nan = float("nan")
    steps, (low, median, high) = quartiles(
        [
            ([10, 20, 30], [0.0, 10.0, 20.0]),
            ([10, 20, 30], [4.0, nan, 8.0]),  # straight on, over what is not known
            ([20, 25], [8.0, 8.0]),  # ended sooner, began later
            ([40], [nan]),  # nothing is known of it
        ]
    )
    np.testing.assert_array_equal(steps, [10, 20, 25, 30])
    np.testing.assert_allclose(median, [2.0, 8.0, 8.0, 14.0])
    np.testing.assert_allclose(low, [1.0, 7.0, 7.5, 11.0])
    np.testing.assert_allclose(high, [3.0, 9.0, 11.5, 17.0])
    assert quartiles([([1], [nan])])[1].shape == (3, 0)


def test_trainings_are_told_apart_by_color_and_legend(tmp_path):
    steps = np.arange(20)
    both = {"up": [(steps, steps)], "down": [(steps, -steps)]}
    named = write_learning_curves(tmp_path / "named.png", both, title="")
    other = write_learning_curves(
        tmp_path / "other.png", dict(zip(("ab", "cd"), both.values(), strict=True)), title=""
    )
    alone = write_learning_curves(tmp_path / "alone.png", {"up": both["up"]}, title="")
    assert (picture(named) != picture(other)).any() and (picture(named) != picture(alone)).any()


def test_a_radar_shows_each_score_on_its_axis(tmp_path):
    good = dict.fromkeys(["basic", "memory", "noise", "scale"], 1.0)  # right, up, left, down
    all_good, no_memory, no_noise = (
        picture(write_radar(tmp_path / f"{i}.png", {"a": good | changes})).astype(int)
        for i, changes in enumerate(({}, {"memory": 0.0}, {"noise": 0.0}))
    )
    height, width = all_good.shape[:2]
    y, x = np.nonzero((all_good != no_memory).any(axis=-1))
    assert y.mean() < 0.45 * height and abs(x.mean() - width / 2) < 0.05 * width
    y, x = np.nonzero((all_good != no_noise).any(axis=-1))
    assert x.mean() < 0.45 * width and abs(y.mean() - height / 2) < 0.05 * height


def test_without_matplotlib_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"jaxenvs\[render\]"):
        write_learning_curve(tmp_path / "a.png", [1], [1.0], title="")
    with pytest.raises(MissingExtraError, match=r"jaxenvs\[render\]"):
        write_radar(tmp_path / "a.png", {"a": {"memory": 1.0}})
