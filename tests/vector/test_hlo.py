"""The compiled program of a scan of steps contains no unused work."""

import functools

import jax
import jax.numpy as jnp
import pytest

import jaxenvs
from benchmarks import hlo

N, T = 1024, 8
OBSERVATIONS = f"f32[{N},4]"  # the shape of a CartPole batch

pytestmark = [
    pytest.mark.optimized,
    pytest.mark.skipif(
        jax.default_backend() != "cpu", reason="the shape of the program is that of XLA on CPU"
    ),
]

READ = {
    "rewards": lambda timestep: (timestep.reward, timestep.done),
    "observations": lambda timestep: (timestep.observation, *READ["rewards"](timestep)),
    "final observations": lambda timestep: (timestep.final_observation, *READ["rewards"](timestep)),
    "both": lambda timestep: (timestep.final_observation, *READ["observations"](timestep)),
}


@functools.cache
def compiled(id, read, mode="same_step", chunk=None):
    """Compiles T steps with given actions that return only what `READ[read]` selects."""
    env = jaxenvs.make_vec(id, N, autoreset_mode=mode, reset_chunk=chunk)

    def play(state, actions, key):
        def step(state, xs):
            number, action = xs
            state, timestep = env.step(state, action, jax.random.fold_in(key, number))
            return state, READ[read](timestep)

        return jax.lax.scan(step, state, (jnp.arange(T, dtype=jnp.int32), actions))

    state, _ = jax.eval_shape(env.reset, jax.random.key(0))
    actions = jax.ShapeDtypeStruct((T, N), jnp.int32)
    return jax.jit(play).lower(state, actions, jax.random.key(0)).compile()


def counts(*args, **kwargs):
    return hlo.count(compiled(*args, **kwargs).as_text(), N)


def kinds_with_result(result, text):
    """Returns the kinds of the instructions that produce `result`: ["add", "copy", ...]."""
    return [kind for found, kind in hlo._INSTRUCTION.findall(text) if found.startswith(result)]


def test_step_does_not_reset_the_whole_batch():
    few = counts("CartPole-v1", "observations")
    assert few["threefry xors"] > 0 == few["threefry xors of N or more"]
    assert counts("CartPole-v1", "observations", chunk=N)["threefry xors of N or more"] > 0


@pytest.mark.parametrize("id", ["MountainCar-v0", "CartPole-v1"])
def test_steps_without_draws_compute_no_keys(id):
    assert counts(id, "observations", mode="disabled")["threefry xors"] == 0


def test_unused_observations_are_not_computed():
    assert not kinds_with_result(OBSERVATIONS, compiled("CartPole-v1", "rewards").as_text())
    read = kinds_with_result(OBSERVATIONS, compiled("CartPole-v1", "observations").as_text())
    # Writes new observations over those of finished episodes.
    assert "dynamic-update-slice" in read


def test_unused_final_observations_are_not_computed():
    unread, read = (compiled("CartPole-v1", name) for name in ("observations", "both"))
    fewer, more = hlo.count(unread.as_text(), N), hlo.count(read.as_text(), N)
    for cost in ("instructions", "copies of N elements or more", "kernels on each step"):
        is_one_kernel = cost.startswith("kernels") and fewer[cost] == more[cost] == 0
        assert fewer[cost] < more[cost] or is_one_kernel, cost
    spared = unread.memory_analysis(), read.memory_analysis()
    assert spared[0].temp_size_in_bytes < spared[1].temp_size_in_bytes


def test_final_observations_alone_need_no_overwrite():
    text = compiled("CartPole-v1", "final observations").as_text()
    kinds = kinds_with_result(OBSERVATIONS, text)
    assert kinds and "dynamic-update-slice" not in kinds
