import dataclasses
import functools
import json
import multiprocessing

import gymnasium
import numpy as np
import pytest

from benchmarks import _common, gym_api
from benchmarks.gym_api import Contestant

SMALL = ["--min-seconds", "0", "--repeats", "3", "--memory-ids", "", "--quiet"]


class Counter(gymnasium.vector.VectorEnv):
    """Instance i finishes every `length` calls; remembers what it was given."""

    def __init__(self, num_envs, length=10, array=np.array):
        self.num_envs, self.length, self.array = num_envs, length, array
        self.single_action_space = self.action_space = gymnasium.spaces.Discrete(3)
        self.calls, self.closed_times, self.actions = 0, 0, []

    def reset(self, *, seed=None, options=None):
        return np.zeros(self.num_envs, np.float32), {}

    def step(self, actions):
        self.calls += 1
        self.actions.append(actions)
        done = np.full(self.num_envs, self.calls % self.length == 0)
        zeros = np.zeros(self.num_envs, np.float32)
        return self.array(zeros), zeros, done, np.zeros_like(done), {}

    def close(self, **kwargs):
        self.closed_times += 1


@pytest.fixture
def made():
    """The environments that `fake` contestants made."""
    return []


@pytest.fixture
def fake(made):
    def fake(name, kind, **keywords):
        def make(id, num_envs):
            made.append(Counter(num_envs, **keywords))
            return made[-1]

        return Contestant(name, kind, "numpy", make)

    return fake


@pytest.fixture
def absent_ours(monkeypatch):
    monkeypatch.setattr(Contestant, "objection", lambda self, id, num_envs: None)


def measure(contestants, *arguments):
    return gym_api.measure(gym_api._parse([*SMALL, *arguments]), arguments, contestants)


def entry(kind, contestant, speeds, ours, num_envs=16, id="CartPole-v1"):
    """A measurement as the report has it."""
    measurement = gym_api.Measurement(
        *(id, num_envs, contestant, kind, 0.0, 1, speeds),
        ours_over_this=[a / b for a, b in zip(ours, speeds, strict=True)],
        calls_per_episode=23.0,
    )
    return dataclasses.asdict(measurement)


def test_ratios_use_the_faster_envpool_and_median_repetitions():
    ours = [90.0, 100.0, 400.0]
    rows = gym_api.ratios(
        [
            entry("jaxenvs", "jaxenvs", ours, ours),
            entry("envpool", "EnvPool, 1 thread", [10.0, 10.0, 10.0], ours),
            entry("envpool", "EnvPool, 2 threads", [15.0, 20.0, 200.0], ours),
            entry("vectorized", "Gymnasium vectorized", [50.0, 25.0, 400.0], ours),
            entry("sync", "Gymnasium Sync", [900.0, 900.0, 900.0], ours),
        ]
    )
    assert [(row["contestant"], row["ratio"], row["required"]) for row in rows] == [
        ("EnvPool, 2 threads", 5.0, 4.5),
        ("Gymnasium vectorized", 1.8, 3.0),
    ]


def test_required_figures_depend_on_id_contestant_and_num_envs():
    def required(kind, **keywords):
        (row,) = gym_api.ratios([entry(kind, "peer", [1.0], [2.0], **keywords)])
        return row["required"]

    assert required("envpool", num_envs=16384) == 25
    assert required("envpool", num_envs=256) is None
    assert required("vectorized", num_envs=256) == 1
    assert required("envpool", id="Pendulum-v1") is None


def test_ratios_are_taken_within_a_repetition(fake, made, absent_ours):
    field = [fake("jaxenvs", "jaxenvs"), fake("EnvPool, 1 thread", "envpool")]
    report = measure(field, "--ids", "CartPole-v1", "--num-envs", "4")
    ours, theirs = report["measurements"]
    assert ours["ours_over_this"] == [1, 1, 1]
    expected = np.divide(ours["steps_per_second"], theirs["steps_per_second"])
    np.testing.assert_allclose(theirs["ours_over_this"], expected)
    assert report["ratios"][0]["ratio"] == pytest.approx(np.median(expected))
    assert [env.closed_times for env in made] == [1, 1]


def test_every_contestant_gets_the_same_actions(fake, made, absent_ours):
    field = [fake("jaxenvs", "jaxenvs"), fake("Gymnasium Sync", "sync")]
    field[1] = dataclasses.replace(field[1], discrete_dtype=np.int32)
    measure(field, "--ids", "CartPole-v1", "--num-envs", "4")
    ours, theirs = (env.actions for env in made)
    assert ours[0].dtype == np.int64 and theirs[0].dtype == np.int32
    np.testing.assert_array_equal(ours[:64], theirs[:64])
    assert set(np.unique(ours)) == {0, 1, 2}


def test_actions_of_a_box_fill_it_and_vary():
    space = gymnasium.spaces.Box(-2.0, 2.0, (1,))
    actions = np.stack(gym_api.draw_actions(space, 8, np.int64))
    assert actions.shape == (1024, 8, 1) and actions.dtype == np.float32
    assert -2 <= actions.min() < -1.9 and 1.9 < actions.max() <= 2


def test_episodes_are_counted_whole(fake, absent_ours):
    report = measure([fake("jaxenvs", "jaxenvs", length=7)], "--ids", "CartPole-v1")
    assert all(entry["calls_per_episode"] == 7 for entry in report["measurements"])


def test_non_numpy_results_are_refused_and_environment_closed(fake, made, absent_ours):
    with pytest.raises(TypeError, match="list"):
        measure([fake("jaxenvs", "jaxenvs", array=list)], "--num-envs", "4")
    assert made[0].closed_times == 1


def test_all_environments_are_closed_when_one_cannot_be_made(fake, made, absent_ours):
    def fail(id, num_envs):
        raise OSError("no more processes")

    field = [fake("jaxenvs", "jaxenvs"), Contestant("EnvPool", "envpool", "numpy", fail)]
    with pytest.raises(OSError, match="no more"):
        measure(field, "--num-envs", "4")
    assert made[0].closed_times == 1


def test_missing_contestant_is_named_once_with_the_reason(fake, capsys):
    absent = dataclasses.replace(fake("Nobody", "envpool"), package="no-such-package")
    small = dataclasses.replace(fake("Small", "sync"), max_num_envs=2)
    report = measure([absent, small], "--ids", "CartPole-v1", "--num-envs", "2,4,8")
    assert [(e["contestant"], e["num_envs"]) for e in report["measurements"]] == [("Small", 2)]
    assert report["measurements"][0]["ours_over_this"] == [] and report["ratios"] == []
    notes = capsys.readouterr().err
    assert notes.count("Nobody is skipped: no-such-package is not installed") == 1
    assert notes.count("Small is skipped: N is at most 2") == 1


def test_only_cartpole_has_a_vectorized_class():
    (vectorized,) = (c for c in gym_api.CONTESTANTS if c.kind == "vectorized")
    assert [id for id in _common.IDS if not vectorized.objection(id, 1)] == ["CartPole-v1"]


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Gymnasium's own, measured as from the command line."""
    path = tmp_path_factory.mktemp("gym_api") / "results.json"
    arguments = ("--ids", "CartPole-v1", "--num-envs", "2", "--peers", "vectorized,sync,async")
    gym_api.main([*SMALL, *arguments, "--output", str(path)])
    return json.loads(path.read_text())


def test_gymnasium_in_its_three_ways_is_measured(report):
    names = {entry["contestant"] for entry in report["measurements"]} - {"jaxenvs"}
    assert names == {"Gymnasium vectorized", "Gymnasium Sync", "Gymnasium Async"}
    for entry in report["measurements"]:
        assert len(entry["steps_per_second"]) == 3
        assert all(speed > 0 for speed in entry["steps_per_second"])


def test_no_worker_process_outlives_its_measurement(report):
    assert not multiprocessing.active_children()


def test_the_table_shows_every_contestant(report):
    text = gym_api.table(report)
    assert all(f"| {entry['contestant']} |" in text for entry in report["measurements"])


def test_the_table_says_which_figure_is_reached(report):
    ours = [60.0]
    report = report | {
        "measurements": [entry("envpool", "EnvPool, 1 thread", [10.0], ours)],
        "ratios": gym_api.ratios(
            [
                entry("envpool", "EnvPool, 1 thread", [10.0], ours),
                entry("vectorized", "Gymnasium vectorized", [30.0], ours),
            ]
        ),
    }
    text = gym_api.table(report)
    assert "| EnvPool, 1 thread | 6.00 | 4.5 | reached |" in text
    assert "| Gymnasium vectorized | 2.00 | 3 | **missed** |" in text


@pytest.mark.interop
@pytest.mark.parametrize("id", _common.IDS)
def test_envpool_takes_the_actions_as_they_are(id):
    pytest.importorskip("envpool")
    contestants = [c for c in gym_api.CONTESTANTS if c.kind == "envpool"]
    one, two = gym_api.race(id, 4, contestants, repeats=1, min_seconds=0)
    assert (one.contestant, two.contestant) == ("EnvPool, 1 thread", "EnvPool, 2 threads")


def test_memory_grows_with_the_number_of_environments():
    pytest.importorskip("psutil")
    (sync,) = (c for c in gym_api.CONTESTANTS if c.kind == "sync")
    few, many = (gym_api.memory(sync, "CartPole-v1", num_envs) for num_envs in (1, 1000))
    assert few["memory_mb"] + 0.5 < many["memory_mb"] < few["memory_mb"] + 100


def test_quick_option_yields_to_explicit_options():
    parse = functools.partial(gym_api._parse, ["--quick", "--num-envs", "8"])
    assert parse().ids == ["CartPole-v1"] and parse().num_envs == [8] and parse().repeats == 7
