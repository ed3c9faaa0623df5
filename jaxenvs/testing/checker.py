"""The contract's checker."""

import time
from typing import Any

import numpy as np

from jaxenvs import spaces
from jaxenvs.testing import _running, _tracing
from jaxenvs.testing._findings import Findings

_BATCHING = ("vmap", "parameters")


def check_env(
    env: Any, *, seed: int = 0, num_steps: int = 128, num_envs: int = 8, verbose: bool = False
) -> None:
    """Checks that one environment keeps the contract; says what to change where it does not.

    Most checks only trace. Where these pass, a random rollout and a comparison of the ways of
    resetting are compiled, which takes about a second for a small environment.

    | check | what holds |
    |---|---|
    | environment | it is an `Environment`; leaves are numbers, static fields hashable |
    | trace | `reset` and `step` can be traced; a `step` takes the actions of `action_space` |
    | purity | nothing is mutated; two traces give one program, two runs the same bits |
    | leak | no traced value survives its trace |
    | keys | no key is used twice (`jax.debug_key_reuse`) |
    | tree | `reset` and `step` return the same structure, shapes and dtypes |
    | info | a dict with the same keys from both |
    | reward, flags | float32[], finite (float64 where the observation space is); bool[] |
    | weak type | no leaf is a Python number in disguise |
    | observation space | type and values of observations, over a rollout |
    | x64 | dtypes do not change under `jax_enable_x64` |
    | vmap, parameters | a batch of states, or of parameters, gives a batch of the same |
    | retrace | other states, keys and parameter values reuse the first trace |
    | render | uint8[H, W, 3] under jit and vmap, where it is defined |
    | independence | an instance of a batch does what it does alone with `fold_in(key, i)` |
    | autoreset | naive and compacted resets, and `next_step`, equal a loop written by hand |

    Args:
        env: a single environment, wrappers included.
        seed: of all random draws.
        num_steps: length of the random rollout, whose episodes are cut after 1 to 256 steps.
        num_envs: instances in it, at least 2.
        verbose: print each stage with its time.

    Raises:
        EnvironmentCheckError: something fails; the message lists every failure at once.

    Example:
        >>> check_env(jaxenvs.make("CartPole-v1"))
    """
    findings = Findings(type(getattr(env, "unwrapped", env)).__name__)
    stage = _stages(verbose)

    _tracing.check_environment(env, findings)
    stage("parameters and spaces")
    if findings.failures:
        findings.report()

    float64 = any(dtype == np.float64 for dtype in _dtypes(env.observation_space))
    with _tracing.x64(float64):
        traced = _tracing.trace(env, seed, findings)
        if traced is None:
            return findings.report()
        _tracing.check_timesteps(traced, findings, float64)
        _tracing.check_trees(traced, findings)
        _tracing.check_leaks(traced, findings)
        _tracing.check_key_reuse(traced, findings)
        _tracing.check_programs(traced, findings)
        _tracing.check_retrace(traced, findings)
        _tracing.check_vmap(traced, findings)
        _tracing.check_render(traced, findings)
        if not float64:
            _tracing.check_x64(traced, findings)
        stage("tracing")

        # What does not fit a scan's carry cannot run; the rest is worth running.
        if not findings.found("tree", "info", "reward", "flags", "observation space", *_BATCHING):
            _running.check_rollout(env, seed, num_steps, num_envs, findings)
            stage("random rollout")
            _running.check_autoreset(env, seed, num_envs, findings)
            stage("ways of resetting")
    return findings.report()


def _stages(verbose: bool) -> Any:
    """A function that prints what was done and how long it took; silent unless `verbose`."""
    last = time.perf_counter()

    def done(what: str) -> None:
        nonlocal last
        now = time.perf_counter()
        if verbose:
            print(f"{what}: {now - last:.2f} s")
        last = now

    return done


def _dtypes(space: spaces.Space) -> list[Any]:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
        return [dtype for part in parts for dtype in _dtypes(part)]
    return [space.dtype]
