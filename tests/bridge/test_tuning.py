"""What "auto" chooses, and `jaxenvs tune` keeps."""

import dataclasses
import itertools
import logging
import os

import pytest

import jaxenvs
from jaxenvs.bridge import _choosing
from jaxenvs.bridge.tuning import Load, Measurement, Way, keep, kept, num_cores, split, ways
from jaxenvs.cli import main
from tests.bridge.envs import Counter

US = 1e-6


def measurement(step, *, cpu=None, spread=0.0, cores=4, free=None):
    return Measurement(
        step=step,
        spread=spread,
        cpu=step if cpu is None else cpu,
        spent=0.1,
        cores=cores,
        free_cores=cores if free is None else free,
    )


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    from jaxenvs.bridge import tuning

    monkeypatch.setattr(tuning, "cache_folder", lambda: tmp_path)
    return tmp_path


def best(m, num_envs, batch_size=None):
    return ways(m, num_envs, batch_size or num_envs)[0]


def test_one_environment_and_tiny_batches_stay_with_the_caller():
    assert best(measurement(5 * US), 1).backend == "serial"
    assert best(measurement(1 * US), 2).backend == "serial"


def test_steps_that_compute_are_divided_among_the_cores():
    way = best(measurement(1000 * US), 64)
    assert way.backend == "process" and way.num_workers + way.caller_steps == 4
    assert way.seconds == pytest.approx(16e-3, rel=0.05)


def test_never_more_workers_than_cores_where_steps_compute():
    for way in ways(measurement(50 * US, cores=2), 64, 64):
        assert way.num_workers + way.caller_steps <= 2


def test_a_machine_that_others_use_is_left_to_them():
    assert best(measurement(20 * US, cores=2, free=0.9), 16).backend == "serial"


def test_steps_that_wait_overlap_on_as_many_workers_as_wait():
    way = best(measurement(1000 * US, cpu=5 * US), 64)
    assert way.num_workers >= 32
    assert way.seconds < 64e-3 / 10


def test_uneven_steps_get_a_worker_each_where_results_are_taken_as_they_come():
    way = best(measurement(1000 * US, spread=5000 * US), 16, batch_size=8)
    assert (way.backend, way.num_workers) == ("process", 16)


@pytest.mark.parametrize("num_workers", [1, 2, 3, 7])
@pytest.mark.parametrize("step", [1 * US, 30 * US, 1000 * US])
def test_a_split_gives_every_environment_to_one_worker_and_the_one_at_home_the_fewest(
    num_workers, step
):
    bounds = split(50, num_workers, step)
    assert bounds[0] == 0 and bounds[-1] == 50 and len(bounds) == num_workers + 1
    counts = [b - a for a, b in itertools.pairwise(bounds)]
    assert min(counts) >= 1 and counts[0] <= min(counts) + 1


def test_free_cores_are_no_more_than_there_are():
    assert 0 <= Load().free_cores(num_cores(), 0.0) <= num_cores()


def test_what_was_tuned_is_kept_for_these_environments_alone(own_cache):
    way = Way("process", 3, (2, 4, 6, 8), True, 1e-3)
    keep("A", 8, 8, way)
    keep("B", 8, 4, Way("thread", 8))
    assert kept("A", 8, 8) == way
    assert kept("A", 9, 9) is None
    (own_cache / "tuned.json").write_text("damaged")
    assert kept("A", 8, 8) is None


def test_auto_takes_what_was_tuned_and_says_so(caplog):
    keep("CartPole-v1", 3, 3, Way("thread", 2))
    with caplog.at_level(logging.INFO, "jaxenvs"), jaxenvs.make_pool("CartPole-v1", 3) as pool:
        assert (pool.backend, pool.num_workers) == ("thread", 2)
    assert "jaxenvs tune" in caplog.text


def test_auto_says_what_it_measured_and_needs_a_reset_like_any_pool(caplog):
    with caplog.at_level(logging.INFO, "jaxenvs"), jaxenvs.make_pool(Counter, 4, seed=5) as pool:
        with pytest.raises(jaxenvs.errors.PoolError, match="reset"):
            pool.step([0] * 4)
        _, info = pool.reset()
        assert info["seed"].tolist() == [5, 6, 7, 8]  # the trial did not use it up
    assert "a step takes" in caplog.text and "cores are free" in caplog.text


def test_the_trial_uses_up_no_seed(monkeypatch):
    def won(pool, seconds):
        pool.reset()
        return 1e-9

    monkeypatch.setattr(_choosing, "throughput", won)
    hopeful = Way("process", 1, seconds=0.0)
    monkeypatch.setattr(_choosing, "ways", lambda *given: [hopeful, *ways(*given)])
    with jaxenvs.make_pool(Counter, 4, seed=5) as pool:
        assert pool.backend == "process"
        assert pool.reset()[1]["seed"].tolist() == [5, 6, 7, 8]


def test_auto_falls_back_to_serial_where_the_trial_was_slower(monkeypatch):
    def hopeful(m, num_envs, batch_size):
        found = ways(m, num_envs, batch_size)
        return sorted(found, key=lambda way: way.backend != "process")

    monkeypatch.setattr(_choosing, "ways", hopeful)
    monkeypatch.setattr(_choosing, "throughput", lambda pool, seconds: 1.0)
    with jaxenvs.make_pool(Counter, 4) as pool:
        assert pool.backend == "serial"
        pool.reset()
        pool.step([0] * 4)


class _RaisesOnce(Counter):
    """Raises in the third step of its first life; it is what the trial meets."""

    def __init__(self, marker):
        super().__init__()
        self.marker = marker

    def step(self, action):
        if self.count == 2 and not os.path.exists(self.marker):
            with open(self.marker, "w"):
                pass
            raise ValueError("a deliberate error")
        return super().step(action)


@pytest.mark.parametrize("batch_size", [1, 2, 4])
def test_an_exception_in_the_trial_leaves_a_pool_that_begins_anew(
    batch_size, monkeypatch, tmp_path, caplog
):
    def hopeful(m, num_envs, batch_size):
        found = [dataclasses.replace(way, seconds=1e-3) for way in ways(m, num_envs, batch_size)]
        return sorted(found, key=lambda way: way.backend != "process" or way.caller_steps)

    monkeypatch.setattr(_choosing, "ways", hopeful)
    # Long enough for the third step on a busy machine; the exception ends the trial.
    monkeypatch.setattr(_choosing, "_TRIAL_SECONDS", 60.0)
    fns = [Counter, Counter, lambda: _RaisesOnce(str(tmp_path / "raised")), Counter]
    with (
        caplog.at_level(logging.INFO, "jaxenvs"),
        jaxenvs.make_pool(fns, batch_size=batch_size) as pool,
    ):
        assert "failed in step: ValueError" in caplog.text and pool.backend == "process"
        assert pool.owes == 0
        observation, _ = pool.reset(seed=0)
        assert observation[:, 2].tolist() == [0] * 4
        assert pool.step([0] * 4, [0, 1, 2, 3])[0][:, 2].tolist() == [1] * 4


def test_whoever_is_watched_is_stepped_by_a_worker():
    with jaxenvs.make_pool(Counter, 1, timeout=5.0) as pool:
        assert pool.backend == "process" and not pool.caller_steps
    for options in ({"backend": "serial"}, {"caller_steps": True}):
        with pytest.raises(jaxenvs.errors.PoolError, match="nobody watches"):
            jaxenvs.make_pool(Counter, 2, timeout=5.0, **options)


def test_what_cannot_be_sent_to_a_process_stays_here():
    lock = __import__("threading").Lock()

    def make():
        assert lock is not None
        return Counter()

    with jaxenvs.make_pool(make, 2) as pool:
        assert pool.backend == "serial"


def test_the_command_shows_every_way_and_keeps_the_best(capsys, own_cache):
    arguments = ["tune", "CartPole-v1", "--num-envs", "2", "--seconds", "0.01"]
    assert main([*arguments, "--dry-run"]) == 0
    assert not (own_cache / "tuned.json").exists()
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert all(backend in out for backend in ("serial", "process", "thread", "asyncio"))
    assert kept("CartPole-v1", 2, 2) is not None


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--num-envs", "0"], "--num-envs 0"),
        (["--num-envs", "2", "--batch-size", "0"], "--batch-size 0"),
        (["--num-envs", "2", "--batch-size", "3"], "--batch-size 3"),
        (["--seconds", "-1"], "--seconds -1"),
    ],
)
def test_the_command_says_which_number_cannot_work(arguments, named, capsys):
    assert main(["tune", "CartPole-v1", *arguments]) != 0
    printed = capsys.readouterr()
    assert f"tune got {named}" in " ".join((printed.out + printed.err).split())


def test_a_way_says_what_it_is():
    way = Way("process", 1, (8, 16), caller_steps=True)
    assert str(way) == "process with 1 workers and the caller"
    assert dataclasses.replace(way, caller_steps=False) != way
