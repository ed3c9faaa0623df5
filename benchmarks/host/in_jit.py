"""Pools stepped by compiled programs, through custom calls (FFI) and callbacks, and by Python.

Custom calls run on a CPU only; elsewhere callbacks are compared with Python.
"""

import contextlib
import functools
import itertools
import time
from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

import jaxenvs
from benchmarks import _common
from benchmarks.host.environments import NoOp, cartpole, pong
from benchmarks.host.record import Record, Timed, ratios

WIDTH = 64  # of each of the two hidden layers
# (observation, key) -> action
Policy = Callable[[Any, chex.PRNGKey], jax.Array]


def measure(record: Record) -> None:
    steps = 100 if record.quick else 1000
    if _has_ffi():
        _empty_call(record, 10 * steps)
    noop = functools.partial(NoOp, 4)
    constant = functools.partial(_constant, num_envs=64)
    _scan(record, "no-op", noop, 64, steps, constant)
    _scan(record, "CartPole-v1", cartpole, 64, steps, _at_random(2, 64), {"Python": 0.8})
    _with_network(record, steps)
    if _common.version("ale-py") and _common.version("opencv-python-headless"):
        _scan(record, "Pong", pong, 16, steps // 10, _at_random(6, 16), {"Python": 0.9})
    else:
        record.note("ale-py and opencv-python-headless are not installed: no Pong.")


def _has_ffi() -> bool:
    return jax.default_backend() == "cpu"


def _empty_call(record: Record, calls: int) -> None:
    """Measures a call that sends actions to no environment, minus an iteration of an empty scan.

    It is the pool's own custom call and does what every call does: it looks up and locks the pool,
    and checks and advances its token.
    """
    with contextlib.closing(jaxenvs.make_pool([NoOp] * 2, num_workers=1)) as pool:
        pool.reset()
        env = jaxenvs.HostEnv(pool, final_observation=False)
        state, _ = env.reset(jax.random.key(0))
        no_envs = jnp.zeros((0,), jnp.int32)

        @jax.jit
        def with_call(state: Any) -> Any:
            def body(state: Any, _: None) -> Any:
                return env.send(state, no_envs, no_envs), None

            return jax.lax.scan(body, state, length=calls)[0]

        @jax.jit
        def without(state: Any) -> Any:
            def body(state: Any, _: None) -> Any:
                # The same result, computed step by step: the barrier keeps XLA from summing it.
                token = jax.lax.optimization_barrier(state.token)
                return state.replace(token=token.at[0, 1].add(1)), None

            return jax.lax.scan(body, state, length=calls)[0]

        states = {"call": state, "none": state}

        def run(name: str, program: Any, count: int) -> float:
            begin = time.perf_counter()
            for _ in range(count):
                states[name] = jax.block_until_ready(program(states[name]))
            return time.perf_counter() - begin

        case = f"{calls:,} calls of nothing"
        sides = {
            "FFI, scan": functools.partial(run, "call", with_call),
            "empty scan": functools.partial(run, "none", without),
        }
        took = record.race(case, sides)
    pairs = zip(took["FFI, scan"], took["empty scan"], strict=True)
    micros = [1e6 * (call - none) / calls for call, none in pairs]
    record.figure(case, "µs a call", micros, 2.0, at_least=False)


def _scan(
    record: Record,
    name: str,
    env_fn: Any,
    num_envs: int,
    steps: int,
    policy: Policy,
    required: dict[str, float] | None = None,
) -> None:
    """Takes the same number of steps in a scan, through both paths, and in a Python loop."""
    case = f"{name}, N = {num_envs}, {steps:,} steps"
    cores = _common.cores()
    make = functools.partial(
        jaxenvs.make_pool, [env_fn] * num_envs, backend="process", num_workers=cores
    )
    with contextlib.ExitStack() as stack:
        pools = {
            each: stack.enter_context(make()) for each in ("FFI", "callback", "Python", "drawn")
        }
        required = required if _has_ffi() else None
        for pool in pools.values():
            pool.reset(seed=0)
        sides: dict[str, Timed] = {
            "Python": functools.partial(_python_steps, pools["Python"], steps),
            "callback": _scanned(pools["callback"], "callback", steps, policy),
        }
        if _has_ffi():
            sides["FFI"] = _scanned(pools["FFI"], "ffi", steps, policy)
        if required:
            sides["FFI, actions drawn before"] = _scanned(
                pools["drawn"], "ffi", steps, policy, beforehand=True
            )
        took = record.race(case, sides, num_envs=num_envs)
    if name == "no-op" and _has_ffi():
        micros = [1e6 * seconds / steps for seconds in took["FFI"]]
        record.figure(case, "FFI, µs a step", micros, 35, at_least=False)
    for peer, least in (required or {}).items():
        record.figure(case, f"FFI / {peer}", ratios(took[peer], took["FFI"]), least)
        drawn = took["FFI, actions drawn before"]
        record.figure(case, f"FFI, actions drawn before / {peer}", ratios(took[peer], drawn))
    record.figure(case, "callback / Python", ratios(took["Python"], took["callback"]))


def _scanned(
    pool: Any, path: Any, steps: int, policy: Policy, *, beforehand: bool = False
) -> Timed:
    """Returns a function that runs a compiled scan in which `policy` maps observations to actions.

    With `beforehand`, the actions are drawn before the scan.
    """
    env = jaxenvs.HostEnv(pool, path=path, final_observation=False)

    @jax.jit
    def program(state: Any, observation: Any, key: chex.PRNGKey) -> Any:
        keys = jax.random.split(key, steps)
        given = jax.vmap(lambda key: policy(observation, key))(keys) if beforehand else None

        def body(carry: Any, each: Any) -> Any:
            state, observation = carry
            key, action = each
            action = policy(observation, key) if action is None else action
            state, timestep = env.step(state, action, key)
            return (state, timestep.observation), jnp.sum(timestep.reward)

        carry, rewards = jax.lax.scan(body, (state, observation), (keys, given))
        return carry, jnp.sum(rewards)

    state, timestep = env.reset(jax.random.key(0))
    last = [(state, timestep.observation)]
    keys = iter(jax.random.split(jax.random.key(1), 4096))

    def run(calls: int) -> float:
        seconds = 0.0
        for _ in range(calls):
            key = jax.block_until_ready(next(keys))
            begin = time.perf_counter()
            last[0], _ = jax.block_until_ready(program(*last[0], key))
            seconds += time.perf_counter() - begin
        return seconds

    return run


def _python_steps(pool: Any, steps: int, calls: int) -> float:
    """Takes the steps in Python, with actions that NumPy draws in each step."""
    generator = np.random.default_rng(0)
    high, num_envs = int(pool.single_action_space.n), pool.num_envs
    total = 0.0
    begin = time.perf_counter()
    for _ in range(calls * steps):
        _, reward, _, _, _ = pool.step(generator.integers(0, high, num_envs))
        total += reward.sum()
    return time.perf_counter() - begin


def _with_network(record: Record, steps: int) -> None:
    """Measures a policy network with two hidden layers, in the scan and in a Python loop."""
    num_envs = 64
    case = f"CartPole-v1 and MLP policy, N = {num_envs}, {steps:,} steps"
    policy = _network(4, 2)
    make = functools.partial(
        jaxenvs.make_pool,
        [cartpole] * num_envs,
        backend="process",
        num_workers=_common.cores(),
    )
    with contextlib.ExitStack() as stack:
        pools = [stack.enter_context(make()) for _ in range(3)]
        observation, _ = pools[0].reset(seed=0)
        act = jax.jit(lambda observation, key: _act_and_split(policy, observation, key))
        carried = [observation, jax.random.key(0)]

        def python(calls: int) -> float:
            observation, key = carried
            total = 0.0
            begin = time.perf_counter()
            for _ in range(calls * steps):
                action, key = act(observation, key)
                observation, reward, _, _, _ = pools[0].step(np.asarray(action))
                total += reward.sum()
            carried[:] = observation, key
            return time.perf_counter() - begin

        sides: dict[str, Timed] = {
            "Python, jitted policy": python,
            "callback": _scanned(pools[1], "callback", steps, policy),
        }
        if _has_ffi():
            sides["FFI"] = _scanned(pools[2], "ffi", steps, policy)
        took = record.race(case, sides, num_envs=num_envs)
    loop = took["Python, jitted policy"]
    if _has_ffi():
        record.figure(case, "FFI / Python", ratios(loop, took["FFI"]), 1.5)
    record.figure(case, "callback / Python", ratios(loop, took["callback"]))


def _act_and_split(policy: Policy, observation: Any, key: chex.PRNGKey) -> Any:
    key, own = jax.random.split(key)
    return policy(observation, own), key


def _network(inputs: int, outputs: int) -> Policy:
    generator = np.random.default_rng(0)
    sizes = (inputs, WIDTH, WIDTH, outputs)
    weights = [
        (generator.normal(0, n**-0.5, (n, m)).astype(np.float32), np.zeros(m, np.float32))
        for n, m in itertools.pairwise(sizes)
    ]

    def policy(observation: Any, key: chex.PRNGKey) -> jax.Array:
        *hidden, (kernel, bias) = weights
        x = observation
        for inner, offset in hidden:
            x = jnp.tanh(x @ inner + offset)
        return jax.random.categorical(key, x @ kernel + bias).astype(jnp.int32)

    return policy


def _at_random(high: int, num_envs: int) -> Policy:
    def policy(observation: Any, key: chex.PRNGKey) -> jax.Array:
        return jax.random.randint(key, (num_envs,), 0, high, jnp.int32)

    return policy


def _constant(observation: Any, key: chex.PRNGKey, *, num_envs: int) -> jax.Array:
    return jnp.zeros(num_envs, jnp.int32)
