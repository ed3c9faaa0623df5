"""The public checker of the environment contract."""

from typing import Any

import jax
import numpy as np

from jaxenvs.spaces.composite import leaf_dtypes
from jaxenvs.testing import _run_checks, _trace_checks
from jaxenvs.testing._report import CheckReport


def check_env(
    env: Any, *, quick: bool = False, seed: int = 0, num_steps: int = 128, num_envs: int = 8
) -> None:
    """Checks that a single environment follows the contract, and reports how to fix violations.

    Most checks only trace the environment. If they pass, a random rollout and a comparison of the
    autoreset modes are compiled and run, which takes several seconds. `quick=True` leaves these
    out. It takes a fraction of a second for a small environment, so you can run it at each save.

    | check | what it requires |
    |---|---|
    | environment | an `Environment` with numbers as leaves and hashable static fields |
    | trace | `reset` and `step` can be traced; `step` accepts the actions of `action_space` |
    | purity | nothing is mutated; two traces give one program, two runs the same bits |
    | leak | no traced value outlives its trace |
    | keys | no key is used twice (`jax.debug_key_reuse`) |
    | tree | `reset` and `step` return the same structure, shapes and dtypes |
    | info | both return a dict with the same keys |
    | reward, flags | float32[] and finite (float64 if observations are); bool[] |
    | weak type | no leaf comes from a Python number without a dtype |
    | observation space | types of observations fit, and values during a rollout |
    | turns | with several agents, none that has ended is to act, during a rollout |
    | x64 | dtypes do not change under `jax_enable_x64` |
    | vmap, parameters | a batch of states, or of parameters, gives a batch of the same types |
    | retrace | other states, keys and parameter values reuse the first trace |
    | render | if defined, returns uint8[H, W, 3], under jit and vmap too |
    | independence | instance i of a batch equals one stepped alone with `fold_in(key, i)` |
    | autoreset | `same_step` with naive and `next_step` with compacted resets equal a plain loop |

    Args:
        env: a single environment, wrapped or not.
        quick: whether to trace the environment only, without compiling or running anything. Values,
            `independence`, `autoreset`, and `turns` are not checked then.
        seed: the seed of all random draws.
        num_steps: length of the random rollout, whose episodes are truncated after 1 to 256 steps.
        num_envs: number of instances in the rollout, at least 2.

    Raises:
        EnvironmentCheckError: a check fails; the message lists all failures.

    Example:
        >>> check_env(jaxenvs.make("CartPole-v1"))
    """
    report = CheckReport(type(getattr(env, "unwrapped", env)).__name__)
    _trace_checks.check_environment(env, report)
    report.raise_failures()

    float64 = np.dtype(np.float64) in leaf_dtypes(env.observation_space)
    with jax.enable_x64(float64):
        traced = _trace_checks.trace(env, seed, report)
        if traced is not None:
            _trace_checks.check_timesteps(traced, report, float64)
            for check in (
                _trace_checks.check_trees,
                _trace_checks.check_leaks,
                _trace_checks.check_key_reuse,
                _trace_checks.check_programs,
                _trace_checks.check_retrace,
                _trace_checks.check_vmap,
                _trace_checks.check_render,
            ):
                check(traced, report)
            if not float64:
                _trace_checks.check_x64(traced, report)
            # These failures would make a scan or a vmap of the environment fail as well.
            if not quick and not report.has_failed(
                *("tree", "info", "reward", "flags", "observation space", "vmap", "parameters")
            ):
                _run_checks.check_runs(env, seed, num_steps, num_envs, report)
    report.raise_failures()
