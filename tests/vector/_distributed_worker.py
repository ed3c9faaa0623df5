"""One of several processes that run one vectorized environment together.

python _distributed_worker.py COORDINATOR NUM_PROCESSES PROCESS_ID FILE
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np

import jaxenvs

N, T, SEED = 16, 60, 5


def play(vector_env, key):
    """Returns the reset timestep [N, ...], T random timesteps [T, N, ...] and the last state."""

    def step(state, number):
        action_key, step_key = jax.random.split(jax.random.fold_in(key, number))
        action = vector_env.action_space.sample(action_key)
        return vector_env.step(state, action, step_key)

    state, first = vector_env.reset(key)
    state, timesteps = jax.lax.scan(step, state, jnp.arange(T, dtype=jnp.int32))
    return first, timesteps, state


def by_path(tree):
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path): leaf for path, leaf in leaves}


def main(coordinator, num_processes, process_id, file):
    jax.distributed.initialize(coordinator, int(num_processes), int(process_id))

    mesh = jax.make_mesh((jax.device_count(),), ("env",))  # devices of all processes
    vector_env = jaxenvs.vectorize(jaxenvs.make("CartPole-v1"), N, mesh=mesh)
    key = jax.random.key(SEED)  # the same in every process
    outcome = jax.jit(lambda key: play(vector_env, key))(key)

    # A process can read only its own share. A piece is named by its leaf and its start indices.
    pieces = {
        f"{path} {' '.join(str(part.start or 0) for part in shard.index)}": np.asarray(shard.data)
        for path, leaf in by_path(outcome).items()
        for shard in leaf.addressable_shards
    }
    np.savez(file, **pieces)


if __name__ == "__main__":
    main(*sys.argv[1:])
