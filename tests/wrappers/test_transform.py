import chex
import jax
import jax.numpy as jnp
import pytest

import jaxenvs
from jaxenvs import struct
from jaxenvs.testing import CountingEnv
from jaxenvs.wrappers import TimeLimit, Transform
from tests.ids import diagonal
from tests.opaque import OpaqueVectorEnv
from tests.wrappers._batches import MODES

N = 5


class Noisy(Transform):
    """A transform that stacks three observations and flips some actions at random."""

    length: int = struct.static(3)

    def on_reset(self, timestep):
        memory = jnp.broadcast_to(timestep.observation, (self.length, *timestep.observation.shape))
        return memory, timestep.replace(observation=memory)

    def on_action(self, memory, action, key):
        return memory, jnp.where(jax.random.bernoulli(key, 0.2), 1 - action, action)

    def on_step(self, memory, timestep):
        memory = jnp.concatenate([memory[1:], timestep.observation[None]])
        return memory, timestep.replace(observation=memory)


@pytest.mark.parametrize(("mode", "keys"), diagonal(MODES, ["one key", "a key each"]))
def test_opaque_and_accessible_batches_give_the_same_steps(mode, keys):
    """Accessible and opaque instances agree up to rounding, with steps and partial resets."""

    def key_of(t):
        key = jax.random.fold_in(jax.random.key(0), t)
        return key if keys == "one key" else jax.random.split(key, N)

    vector_env = jaxenvs.vectorize(
        TimeLimit(jaxenvs.make("CartPole-v1"), 30), N, autoreset_mode=mode
    )
    inside, outside = vector_env.wrap(Noisy), OpaqueVectorEnv(vector_env).wrap(Noisy)
    assert type(inside) is type(vector_env) and type(outside) is not type(vector_env)
    mask = jnp.arange(N) % 2 == 0

    def run(env):
        def step(carry, t):
            action = env.action_space.sample(jax.random.fold_in(jax.random.key(1), t))
            carry = env.step(carry[0], action, key_of(t))
            again = env.reset_where(mask, *carry, key_of(t + 1000))
            carry = jax.tree.map(lambda a, b: jnp.where(t % 40 == 39, a, b), again, carry)
            return carry, carry[1]

        return jax.lax.scan(step, env.reset(key_of(999)), jnp.arange(120))[1]

    one, other = jax.jit(run)(inside), jax.jit(run)(outside)
    assert bool(one.done.any())
    chex.assert_trees_all_close(one, other, rtol=1e-5)


def test_identical_wrappers_draw_different_numbers():
    class Recorder(Transform):
        def on_action(self, memory, action, key):
            return jax.random.bits(key), action

        def on_reset(self, timestep):
            return jnp.uint32(0), timestep

    env = Recorder(Recorder(CountingEnv()))
    state, _ = env.reset(jax.random.key(0))
    state, _ = env.step(state, jnp.int32(0), jax.random.key(1))
    assert state.memory != state.inner.memory


def test_wrapped_environment_draws_the_same_numbers():
    env = CountingEnv()
    key = jax.random.key(3)
    state, _ = env.reset(key)
    wrapped, _ = Transform(env).reset(key)
    plain = env.step(state, jnp.int32(0), key)[1]
    chex.assert_trees_all_equal(Transform(env).step(wrapped, jnp.int32(0), key)[1], plain)


def test_repr_shows_wrappers_and_changed_fields():
    env = Noisy(jaxenvs.make("CartPole-v1", gravity=3.7), length=4)
    assert repr(env) == "Noisy(TimeLimit(CartPole(gravity=3.7), time_limit=500), length=4)"
    assert repr(jaxenvs.make_vec("CartPole-v1", 2, autoreset_mode="disabled")) == (
        "VectorizedEnv(TimeLimit(CartPole(), time_limit=500), 2, autoreset_mode='disabled')"
    )
