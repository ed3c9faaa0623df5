"""A loop that is saved and restored goes on as if it had never stopped."""

import os
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxenvs
from jaxenvs.testing import CountingEnv

pytest.importorskip("orbax.checkpoint")
from jaxenvs.errors import TrainingError
from jaxenvs.training.checkpoint import restore, save
from tests.ids import every_nth
from tests.rounding import assert_same

KEY = jax.random.key(3)
T = 11


def remember(memory, timestep, key):
    memory = jnp.where(timestep.done, 0, memory) + 1
    return memory, (memory + jax.random.randint(key, memory.shape, 0, 2)) % 2


ENVS = {
    "keyed": lambda: jaxenvs.vectorize(CountingEnv(has_key=True, layout="dict"), 6),
    "next_step": lambda: jaxenvs.vectorize(CountingEnv(), 6, autoreset_mode="next_step"),
    "disabled": lambda: jaxenvs.vectorize(CountingEnv(), 6, autoreset_mode="disabled"),
    "staggered": lambda: jaxenvs.make_vec("Pendulum-v1", 6, stagger=20),
}


@pytest.mark.parametrize("name", every_nth(2, ENVS))
def test_a_restored_loop_goes_on_bit_for_bit(name, tmp_path):
    env = ENVS[name]()
    policy, carry = (None, None) if name == "staggered" else (remember, jnp.zeros(6, jnp.int32))

    def start():
        return jaxenvs.rollout(env, policy, T, KEY, policy_carry=carry).state

    state = start()
    save(tmp_path / "loop", state)
    restored = restore(tmp_path / "loop", jax.eval_shape(start))
    assert_same(restored, state)
    expected = jaxenvs.rollout(env, policy, T, state=state)
    actual = jaxenvs.rollout(env, policy, T, state=restored)
    assert_same(actual.trajectory, expected.trajectory)
    assert_same(actual.state, expected.state)
    assert_same(actual.statistics, expected.statistics)


PROGRAM = """
    import sys
    import jax
    import numpy as np
    import jaxenvs
    from jaxenvs.training.checkpoint import restore

    env = jaxenvs.make_vec("CartPole-v1", 8, stagger=30)
    start = lambda: jaxenvs.rollout(env, None, 1, jax.random.key(0)).state
    state = restore(sys.argv[1], jax.eval_shape(start))
    trajectory = jaxenvs.rollout(env, None, 40, state=state).trajectory
    np.savez(sys.argv[2], *jax.tree.leaves(trajectory))
"""


@pytest.mark.optimized
@pytest.mark.slow
def test_a_fresh_process_with_fewer_devices_goes_on_bit_for_bit(tmp_path):
    env = jaxenvs.make_vec("CartPole-v1", 8, stagger=30)
    state = jaxenvs.rollout(env, None, 25, KEY).state
    assert np.unique(state.env_state.elapsed).size > 1  # in the middle of their episodes
    mesh = jax.make_mesh((jax.device_count(),), ("devices",))
    everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    save(tmp_path / "loop", jax.device_put(state, everywhere))
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM), tmp_path / "loop"]
    one_device = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    subprocess.run([*command, tmp_path / "rows.npz"], check=True, env=one_device)
    expected = jaxenvs.rollout(env, None, 40, state=state).trajectory
    with np.load(tmp_path / "rows.npz") as rows:
        assert_same(list(rows.values()), jax.tree.leaves(expected))
    assert np.asarray(expected.terminated).any()


def test_a_flipped_bit_is_found_and_told_in_one_line(tmp_path, capfd):
    state = {"weights": jax.random.normal(KEY, (64, 64)), "updates": jnp.int32(3)}
    path = save(tmp_path / "state", state)
    data = max(path.rglob("*"), key=lambda file: file.stat().st_size * file.is_file())
    written = data.read_bytes()
    half = len(written) // 2
    for damaged in (
        written[:half] + bytes([written[half] ^ 0x40]) + written[half + 1 :],
        written[:half],
        b"",
    ):
        data.write_bytes(damaged)
        with pytest.raises(
            TrainingError, match=r"^the checkpoint at .* is damaged: .*another one\.$"
        ):
            restore(path, state)
    data.write_bytes(written)
    assert_same(restore(path, state), state)
    assert capfd.readouterr().err == ""
