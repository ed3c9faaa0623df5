import signal
from pathlib import Path

import chex
import jax
import numpy as np
import pytest

from jaxenvs.cli import _loop
from jaxenvs.cli._loop import OneProgram, Stop, WithWorkers, stoppable
from jaxenvs.errors import TrainingError
from jaxenvs.training import PPO, ActorCritic, Scheme, make_train, remote


@pytest.fixture(scope="module")
def train():
    return make_train(
        "CartPole-v1",
        PPO(epochs=1, minibatches=1),
        actor=ActorCritic(hidden_sizes=(4,)),
        num_envs=2,
        unroll_length=8,
        total_steps=112,  # seven updates
        report_every=3,
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_asks_to_stop_and_a_second_one_stops(number):
    before = signal.signal(number, signal.default_int_handler)
    try:
        with stoppable() as stop:
            assert stop.asked is None and stop.status == 0
            signal.raise_signal(number)
            assert stop.asked == number and stop.status == 128 + number
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(number)
        assert signal.getsignal(number) is signal.default_int_handler
    finally:
        signal.signal(number, before)


def test_the_second_signal_is_one_also_where_it_ended_a_program_before_python_had_it(capfd):
    cancelled = jax.errors.JaxRuntimeError("CANCELLED: KeyboardInterrupt: interrupted.")
    with pytest.raises(jax.errors.JaxRuntimeError), stoppable():
        raise cancelled

    def stopped_twice():
        with stoppable():
            signal.raise_signal(signal.SIGINT)
            raise cancelled

    with pytest.raises(KeyboardInterrupt):
        stopped_twice()
    assert capfd.readouterr().err == "jaxenvs: stops after this row; again to stop at once\n"


@pytest.fixture(scope="module")
def whole(train):
    """The rows of two seeds, and what they came to."""
    loop, rows = OneProgram(train, 5, num_seeds=2), []
    loop.run(lambda *row: rows.append(row), Stop())
    assert loop.compile_seconds > 0 and loop.run_seconds > 0 and loop.timed_updates == 7
    return rows, loop.behaviors()


def test_rows_are_reported_and_the_last_one_may_be_shorter(whole):
    rows, behaviors = whole
    assert [updates for updates, _ in rows] == [3, 6, 7]
    assert all(row["value_loss"].shape == (2,) for _, row in rows)
    np.testing.assert_array_equal(
        [row["steps"] for _, row in rows], [[48] * 2, [96] * 2, [112] * 2]
    )
    assert [int(each.updates) for each in behaviors] == [7, 7]


def test_a_seed_learns_the_same_alone_and_beside_others(train, whole):
    loop, rows = OneProgram(train, 6), []
    loop.run(lambda *row: rows.append(row), Stop())
    (alone,), (_, second) = loop.behaviors(), whole[1]
    chex.assert_trees_all_close(alone.params, second.params, rtol=1e-4, atol=1e-6)
    assert [row["value_loss"].shape for _, row in rows] == [(1,)] * 3


def test_a_stop_comes_behind_a_whole_row_and_the_rest_can_follow(train, whole, tmp_path):
    loop, stop, rows = OneProgram(train, 5, num_seeds=2), Stop(), []

    def report(updates, metrics):
        rows.append((updates, metrics))
        stop.asked = signal.SIGINT

    loop.run(report, stop)
    assert loop.updates == 3
    paths = [tmp_path / "a", tmp_path / "b"]
    loop.save(paths)
    loop.advance()
    loop.restore(paths)
    assert loop.updates == 3
    loop.run(lambda *row: rows.append(row), Stop())
    for (updates, row), (expected_updates, expected) in zip(rows, whole[0], strict=True):
        assert updates == expected_updates and row.keys() == expected.keys()
        for name in row.keys() - {"steps_per_second"}:
            np.testing.assert_array_equal(row[name], expected[name])


def test_checkpoints_of_seeds_are_of_one_time_whenever_the_process_ends(
    train, monkeypatch, tmp_path
):
    paths = [tmp_path / "a" / "x", tmp_path / "b" / "x"]
    loop, write = OneProgram(train, 5, num_seeds=2), _loop.save

    def dies(path, state):
        if "b" in path.parts:
            raise RuntimeError("the machine is gone")
        return write(path, state)

    loop.advance()
    loop.save(paths)
    loop.advance()
    with monkeypatch.context() as patch:
        patch.setattr(_loop, "save", dies)
        with pytest.raises(RuntimeError, match="gone"):
            loop.save(paths)
    loop.restore(paths)  # the first seed has a newer one, which the second has not
    assert np.asarray(loop.learner_state.updates).tolist() == [3, 3]

    loop.advance()
    rename = Path.rename

    def moves(self, target):
        if self == tmp_path / "b" / "x.next":
            raise RuntimeError("the machine is gone")
        return rename(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", moves)
        with pytest.raises(RuntimeError, match="gone"):
            loop.save(paths)
    loop.restore(paths)  # all were written, not all are in their places
    assert np.asarray(loop.learner_state.updates).tolist() == [6, 6]
    loop.save(paths)
    assert sorted(path.name for path in tmp_path.rglob("*x*") if path.is_dir()) == ["x", "x"]


def test_checkpoints_of_several_times_are_refused(train, tmp_path):
    paths = [tmp_path / "seed_5" / "x", tmp_path / "seed_6" / "x"]
    loop = OneProgram(train, 5)
    loop.save(paths[:1])
    loop.advance()
    loop.save(paths[1:])
    several = OneProgram(train, 5, num_seeds=2)
    with pytest.raises(TrainingError, match=r"seed_5 at 0 steps, \S*seed_6 at 48 steps") as refusal:
        several.restore(paths)
    assert f"--resume {paths[0].parent}" in str(refusal.value)


def test_workers_report_rows_of_several_updates_and_go_on_from_a_checkpoint(tmp_path):
    scheme = Scheme(
        "CartPole-v1",
        PPO(epochs=1, minibatches=1),
        ActorCritic(hidden_sizes=(4,)),
        num_envs=2,
        unroll_length=8,
        collection=remote(2),
    )
    rows = []
    loop = WithWorkers(scheme, total_steps=5 * 32, seed=0, report_every=2)
    try:
        loop.advance()
        loop.save([tmp_path / "a"])
        loop.run(lambda *row: rows.append(row), Stop())
        assert [updates for updates, _ in rows] == [4, 5] and loop.timed_updates == 3
        assert rows[0][1]["steps"] == [128] and rows[0][1]["collection_lag"] == [0]
        assert np.isfinite(rows[-1][1]["value_loss"]).all()
        loop.restore([tmp_path / "a"])
        assert loop.updates == 2 and int(loop.behaviors()[0].updates) == 2
    finally:
        loop.close()
