"""Device work between `send` and `recv`: the share that the environments' steps hide."""

import contextlib
import functools
import time
from typing import Any

import jax
import jax.numpy as jnp

import jaxenvs
from benchmarks.host.environments import Busy, iterations
from benchmarks.host.record import Record

NUM_ENVS = 16
HOST_SECONDS = (1e-3, 1e-2)  # of a step of the batch
STEPS = 50
WIDTH = 64  # of the matrices: small, so that XLA uses one core for a product


def measure(record: Record) -> None:
    for seconds in HOST_SECONDS[:1] if record.quick else HOST_SECONDS:
        _race(record, seconds)


def _race(record: Record, seconds: float) -> None:
    env_fn = functools.partial(Busy, iterations(seconds / NUM_ENVS))
    case = f"{seconds * 1e3:g} ms each, N = {NUM_ENVS}, 1 worker"
    with contextlib.closing(
        jaxenvs.make_pool([env_fn] * NUM_ENVS, backend="process", num_workers=1)
    ) as pool:
        pool.reset()
        env = jaxenvs.HostEnv(pool, final_observation=False)
        matrix = jax.random.normal(jax.random.key(0), (WIDTH, WIDTH)) / WIDTH
        rounds = _calibrated(matrix, seconds)
        action = jnp.zeros(NUM_ENVS, jnp.int32)

        def program(steps_host: bool, works: bool) -> Any:
            def body(carry: Any, _: None) -> Any:
                state, matrix = carry
                if steps_host:
                    state = env.send(state, action)
                if works:
                    # Data dependencies put the work after `send` and before `recv`; otherwise
                    # the compiler may move it.
                    matrix = _work(matrix + (state.token[0, 0] < 0), rounds)
                    late = jnp.isnan(matrix[0, 0]).astype(jnp.int32)
                    state = state.replace(token=state.token + late)
                if steps_host:
                    state, _ = env.recv(state)
                return (state, matrix), None

            return jax.jit(lambda carry: jax.lax.scan(body, carry, length=STEPS)[0])

        state = [env.reset(jax.random.key(0))[0]]

        def run(compiled: Any, calls: int) -> float:
            begin = time.perf_counter()
            for _ in range(calls):
                state[0], _ = jax.block_until_ready(compiled((state[0], matrix)))
            return time.perf_counter() - begin

        sides = {
            "host alone": functools.partial(run, program(True, False)),
            "device alone": functools.partial(run, program(False, True)),
            "both": functools.partial(run, program(True, True)),
        }
        took = record.race(case, sides, num_envs=NUM_ENVS)
    hidden = [
        share_hidden(*each)
        for each in zip(took["host alone"], took["device alone"], took["both"], strict=True)
    ]
    record.figure(case, "share of the shorter that is hidden", hidden, 0.8)


def share_hidden(host: float, device: float, both: float) -> float:
    """Returns 1 if both together take as long as the longer one, and 0 if they take the sum."""
    return (host + device - both) / min(host, device)


def _work(matrix: jax.Array, rounds: Any) -> jax.Array:
    def body(_: Any, x: jax.Array) -> jax.Array:
        return jnp.tanh(x @ matrix + 0.1)

    return jax.lax.fori_loop(0, rounds, body, matrix)


def _calibrated(matrix: jax.Array, seconds: float) -> int:
    """Returns the number of rounds of `_work` that take `seconds`."""
    work = jax.jit(_work)
    rounds = 2000
    work(matrix, rounds).block_until_ready()
    best = float("inf")
    for _ in range(7):
        begin = time.perf_counter()
        work(matrix, rounds).block_until_ready()
        best = min(best, time.perf_counter() - begin)
    return max(1, round(seconds / best * rounds))
