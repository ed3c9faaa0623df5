import json
import math

import jax
import numpy as np
import pytest

from jaxenvs.errors import ParameterError, TrainingError
from jaxenvs.training import sweeps
from jaxenvs.training.config import Config, config_for
from jaxenvs.training.sweeps import Interval, sample, sweep

CONFIG = Config(
    id="CartPole-v1",
    algorithm="A2C",
    num_envs=4,
    unroll_length=16,
    total_steps=4 * 16 * 8,
    actor={"hidden_sizes": [8]},
    seed=3,
)


@pytest.fixture
def train(monkeypatch):
    """Replaces training: the score of a trial is its gamma. Returns the trained (part, trials)."""
    calls = []

    def _train(configs, keys, part, metric, parallel):
        calls.append((part, [*configs]))
        for trial, config in configs.items():
            yield trial, config.total_steps // part, np.full(len(keys), config.settings["gamma"])

    monkeypatch.setattr(sweeps, "_train", _train)
    return calls


def gammas(*values):
    return [{"gamma": value} for value in values]


def test_samples_are_in_the_space_and_follow_its_scales():
    space = {
        "rate": Interval(1e-4, 1e-2, log=True),
        "count": Interval(1, 4),
        "share": Interval(-1, 3.0),
        "kind": ["a", None, [8]],
    }
    for sampler in ("sobol", "random"):
        trials = sample(space, 1024, sampler=sampler)
        rates, shares = (np.array([x[name] for x in trials]) for name in ("rate", "share"))
        assert rates.min() > 1e-4 and rates.max() < 1e-2 and -1 < shares.min() < shares.max() < 3
        np.testing.assert_allclose([(rates < 1e-3).mean(), (shares < 1).mean()], 0.5, atol=0.05)
        counts = [trial["count"] for trial in trials]
        np.testing.assert_allclose(np.bincount(counts) / 1024, [0, *[0.25] * 4], atol=0.05)
        assert all(type(count) is int for count in counts)
        kinds = [sum(trial["kind"] == kind for trial in trials) for kind in space["kind"]]
        np.testing.assert_allclose(np.array(kinds) / 1024, 1 / 3, atol=0.05)
        assert trials == sample(space, 1024, sampler=sampler)
        assert trials != sample(space, 1024, sampler=sampler, seed=1)


def test_sobol_samples_are_one_in_each_slice():
    trials = sample({"a": Interval(0.0, 1.0), "b": Interval(0.0, 1.0)}, 16)
    for name in "ab":
        assert sorted(int(16 * trial[name]) for trial in trials) == [*range(16)]
    assert len(sample({"a": [1, 2]}, 1)) == 1 and len(sample({"a": [1, 2]}, 5)) == 5


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Interval(2, 1), "a lower and a higher"),
        (lambda: Interval(0, 1, log=True), "both positive"),
        (lambda: sample({}, 3), "empty space"),
        (lambda: sample({"a": []}, 3), "empty space"),
        (lambda: sample({"a": [1]}, 0), "trials=0"),
        (lambda: sweep(CONFIG, gammas(0.5), factor=1), "factor=1"),
        (lambda: sweep(CONFIG, [{"gama": 0.5}]), 'Close: "gamma"'),
        (lambda: sweep(CONFIG, [{"env.gravty": 9.0}]), "gravity"),
        (lambda: sweep(CONFIG.replace(scheme={"gradients": "remote:2"}), gammas(0.5)), "scheme"),
    ],
)
def test_wrong_arguments_of_a_sweep_are_explained(call, message):
    with pytest.raises((TrainingError, LookupError, TypeError), match=message):
        call()


def test_unknown_sampler_is_refused():
    with pytest.raises(ParameterError, match='Close: "sobol"'):
        sample({"a": [1]}, 3, sampler="sobl")


def test_rungs_keep_the_best_and_the_last_has_all_steps(train):
    trials = gammas(0.1, 0.7, 0.3, 0.9, 0.5, 0.8, 0.2)
    results = [*sweep(CONFIG, trials, rungs=3, factor=2, seeds=2)]
    assert train == [(4, [*range(7)]), (2, [3, 5, 1, 4]), (1, [3, 5])]
    assert [each.steps for each in results] == [128] * 7 + [256] * 4 + [512] * 2
    assert results[-1].score == pytest.approx(0.8) and results[-1].scores == (0.8, 0.8)
    assert results[-1].settings == {"gamma": 0.8} and results[-1].rung == 2


def test_a_trial_with_a_score_that_is_nan_is_the_worst(monkeypatch):
    def _train(configs, keys, part, metric, parallel):
        for trial in configs:
            yield trial, 1, np.array([[-5, -9], [9, math.nan], [-7, -7]][trial], np.float64)

    monkeypatch.setattr(sweeps, "_train", _train)
    results = [*sweep(CONFIG, gammas(0.1, 0.2, 0.3), rungs=2, factor=2, seeds=2)]
    assert [each.trial for each in results] == [0, 1, 2, 0, 2] and results[1].score == -math.inf


def test_an_interrupted_sweep_continues_where_it_was(train, tmp_path):
    trials = gammas(0.1, 0.9, 0.5)
    arguments = {"rungs": 2, "seeds": 2, "folder": tmp_path / "new"}
    expected = [*sweep(CONFIG, trials, **arguments)]
    assert train == [(3, [0, 1, 2]), (1, [1])]
    file = tmp_path / "new" / "trials.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    assert [json.loads(line)["trial"] for line in lines] == [0, 1, 2, 1]
    file.write_text(lines[0] + lines[1] + lines[2][:-9])  # killed while it was written
    train.clear()
    assert [*sweep(CONFIG, trials, **arguments)] == expected
    assert train == [(3, [2]), (1, [1])] and file.read_text() == "".join(lines)
    train.clear()
    assert [*sweep(CONFIG, trials, **arguments)] == expected and train == [(3, []), (1, [])]
    for other in (CONFIG.replace(seed=4), trials), (CONFIG, trials[:2]):
        with pytest.raises(TrainingError, match="contains another sweep"):
            sweep(*other, **arguments)


def test_trials_train_as_each_would_alone(monkeypatch):
    groups = []
    original = sweeps._vectorized

    def _vectorized(structure, rows, metric):
        groups.append(len(rows))
        return original(structure, rows, metric)

    monkeypatch.setattr(sweeps, "_vectorized", _vectorized)
    trials = [{"learning_rate": rate, "env.gravity": 9.0 + rate} for rate in (0.1, 0.01, 0.001)]
    results = [*sweep(CONFIG, trials, rungs=2, factor=2, seeds=2, parallel=2)]
    assert groups == [3, 2]  # a program for each rung
    for result in results:
        assert result.steps == 256 * (1 + result.rung)
    keys = jax.numpy.stack([jax.random.key(3), jax.random.key(4)])
    config = CONFIG.with_settings(trials[2])
    rows = jax.jit(jax.vmap(config.make_train(report_every=1)))(keys).metrics["episode_return"]
    own = next(each for each in results if (each.trial, each.rung) == (2, 0))
    np.testing.assert_allclose(own.scores, rows[:, 3], rtol=1e-5)
    assert len({each.scores for each in results}) > 3
    assert sweeps._program(config, 2, "episode_return").context.num_updates == 8


def test_settings_that_change_shapes_are_other_groups(monkeypatch):
    groups = []

    def _vectorized(structure, rows, metric):
        groups.append(len(rows))
        varying = [i for i, leaf in enumerate(rows[0]) if any(row[i] != leaf for row in rows)]
        return lambda trials, keys: np.zeros((len(trials[0]), len(keys))), varying

    monkeypatch.setattr(sweeps, "_vectorized", _vectorized)
    space = {
        "actor.hidden_sizes": [[8], [16]],
        "num_envs": [4, 8],
        "learning_rate": Interval(1e-4, 1e-2, log=True),
        "max_gradient_norm": [None, 0.5],
    }
    results = [*sweep(CONFIG, sample(space, 32), parallel=3)]
    assert sorted(each.trial for each in results) == [*range(32)]
    assert len(groups) == 8 and sum(groups) == 32
    assert {each.steps for each in results} == {512}


def test_metric_that_training_does_not_have_is_refused():
    with pytest.raises(TrainingError, match='Close: "episode_return"'):
        next(sweep(CONFIG, gammas(0.5), metric="episode_retrun"))


@pytest.mark.slow
def test_greedy_policy_is_evaluated_at_the_end_of_each_rung():
    config = CONFIG.replace(evaluation_episodes=4)
    results = [*sweep(config, gammas(0.9), rungs=2, seeds=2, metric="evaluation_return")]
    assert len(results) == 2 and all(min(each.scores) >= 1 for each in results)


@pytest.mark.slow
def test_hosted_environments_train_one_after_another():
    config = config_for("a2c", "gymnasium/CartPole-v1").replace(
        num_envs=2, unroll_length=16, total_steps=256
    )
    config = config.with_settings({"env.backend": "serial", "actor.hidden_sizes": [8]})
    trials = [{"learning_rate": 1e-3}, {"learning_rate": 1e-2}]
    results = [*sweep(config, trials, seeds=2)]
    assert [each.trial for each in results] == [0, 1]
    assert all(min(each.scores) > 5 and each.steps == 256 for each in results)
