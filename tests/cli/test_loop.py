import signal

import chex
import numpy as np
import pytest

from jaxenvs.cli._loop import OneProgram, Stop, WithWorkers, stoppable
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


@pytest.fixture(scope="module")
def whole(train):
    """The rows of two seeds, and what they came to."""
    loop, rows = OneProgram(train, 5, num_seeds=2), []
    loop.run(lambda *row: rows.append(row), Stop())
    assert loop.compile_seconds > 0 and loop.run_seconds > 0 and loop.timed_updates == 7
    return rows, loop.behaviours()


def test_rows_are_reported_and_the_last_one_may_be_shorter(whole):
    rows, behaviours = whole
    assert [updates for updates, _ in rows] == [3, 6, 7]
    assert all(row["value_loss"].shape == (2,) for _, row in rows)
    np.testing.assert_array_equal(
        [row["steps"] for _, row in rows], [[48] * 2, [96] * 2, [112] * 2]
    )
    assert [int(each.updates) for each in behaviours] == [7, 7]


def test_a_seed_learns_the_same_alone_and_beside_others(train, whole):
    loop, rows = OneProgram(train, 6), []
    loop.run(lambda *row: rows.append(row), Stop())
    (alone,), (_, second) = loop.behaviours(), whole[1]
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
    chex.assert_trees_all_equal(rows, whole[0])


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
        assert loop.updates == 2 and int(loop.behaviours()[0].updates) == 2
    finally:
        loop.close()
