import signal

import chex
import jax
import numpy as np
import pytest

from jaxenvs.cli._loop import Loop, Stop, stoppable
from jaxenvs.training import PPO, ActorCritic, make_train


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
    """The rows of two seeds, and their states."""
    loop, rows = Loop(train, num_seeds=2), []
    state, seconds = loop.run(loop.init(5), lambda *row: rows.append(row), Stop())
    assert seconds["compile"] > 0 and seconds["run"] > 0
    return rows, loop.each(state)


def test_rows_are_reported_and_the_last_one_may_be_shorter(whole):
    rows, states = whole
    assert [updates for updates, _ in rows] == [3, 6, 7]
    assert all(row["value_loss"].shape == (2,) for _, row in rows)
    np.testing.assert_array_equal(
        [row["steps"] for _, row in rows], [[48] * 2, [96] * 2, [112] * 2]
    )
    assert [int(state.updates) for state in states] == [7, 7]


def test_a_seed_learns_the_same_alone_and_beside_others(train, whole):
    loop, rows = Loop(train), []
    state, _ = loop.run(loop.init(6), lambda *row: rows.append(row), Stop())
    _, (_, second) = whole
    chex.assert_trees_all_equal(jax.random.key_data(state.key), jax.random.key_data(second.key))
    chex.assert_trees_all_close(state.params, second.params, rtol=1e-4, atol=1e-6)
    assert [row["value_loss"].shape for _, row in rows] == [(1,)] * 3


def test_a_stop_comes_behind_a_whole_row_and_the_rest_can_follow(train, whole):
    loop, stop, rows = Loop(train, num_seeds=2), Stop(), []

    def report(updates, metrics):
        rows.append((updates, metrics))
        stop.asked = signal.SIGINT

    state, _ = loop.run(loop.init(5), report, stop)
    assert loop.updates(state) == 3
    state = loop.together(loop.each(state))
    state, _ = loop.run(state, lambda *row: rows.append(row), Stop())
    chex.assert_trees_all_equal(rows, whole[0])
