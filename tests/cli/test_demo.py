import re

import jax
import jax.numpy as jnp
import pytest
from PIL import Image

import jaxenvs
from jaxenvs.cli import demo
from jaxenvs.cli._console import console


@pytest.fixture
def brief(monkeypatch):
    """Speeds are measured in one short run each."""
    rate = demo._rate
    monkeypatch.setattr(demo, "_rate", lambda run, steps: rate(run, steps, seconds=0.01))


def push_right(observation, key):
    return jnp.ones(observation.shape[0], jnp.int32)


def test_a_policy_reaches_in_gymnasium_what_it_reaches_here():
    here = jaxenvs.evaluate(jaxenvs.make_vec(demo.ID, 100), push_right, 1, jax.random.key(0))
    there = demo.gymnasium_returns(push_right, seed=0)
    assert there.shape == (100,) and 8 <= there.min() <= there.max() <= 11
    assert abs(float(here.mean) - there.mean()) < 0.5


def test_small_ratios_of_speeds_are_not_shown_as_zero(monkeypatch, capsys):
    monkeypatch.setattr(demo, "_rate", lambda run, steps: steps)
    console().print(demo.speed_table())
    ratios = re.findall(r"([\d.]+)x *$", capsys.readouterr().out, re.MULTILINE)
    assert ratios == ["0.003", "0.004", "0.06", "0.25", "1.00", "0.31", "5.00"]


@pytest.mark.slow
def test_a_policy_that_fails_is_told_and_exits_with_1(brief, tmp_path, capsys):
    left_over = tmp_path / "cartpole.gif"
    left_over.write_text("from the last time")
    assert demo.main(["--output", f"{tmp_path}", "--total-steps", "2048"]) == 1
    printed = capsys.readouterr().out
    assert "not solved" in printed and "SyncVectorEnv" in printed and "jitted rollout" in printed
    with Image.open(left_over) as gif:
        assert gif.n_frames > 3


@pytest.mark.optimized
@pytest.mark.slow
def test_the_demonstration_solves_cartpole_here_and_in_gymnasium(brief, tmp_path, capsys):
    assert demo.main(["--output", f"{tmp_path}"]) == 0
    printed = capsys.readouterr().out
    assert "not solved" not in printed and "400,000 steps" in printed
    with Image.open(tmp_path / "cartpole.gif") as gif:
        assert gif.n_frames > 238 and gif.size == (300, 200)  # every second of 476 or more states
    with Image.open(tmp_path / "learning_curve.png") as curve:
        assert curve.width > curve.height > 100
