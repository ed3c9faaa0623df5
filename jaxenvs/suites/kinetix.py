"""Environments of Kinetix as native environments, always those without automatic resets.

Kinetix merges its time limit, 256 steps, with the end of the task. Here the limit truncates.

Source: M. Matthews et al., Kinetix: Investigating the Training of General Agents through Open-Ended
Physics-Based Control Tasks, 2024.
"""

import importlib
import types
from pathlib import Path
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import spaces
from jaxenvs.core import Environment, TimeStep
from jaxenvs.errors import missing_extra
from jaxenvs.spaces.unbounded import unbounded
from jaxenvs.suites import _gymnax_like
from jaxenvs.suites._shared import NO_LIMIT, by_name, check_kind, replace_parameters

try:
    from kinetix import environment as kinetix
    from kinetix.environment.ued import ued
    from kinetix.render import make_render_pixels
    from kinetix.util import saving
except ImportError as error:
    raise missing_extra(__name__, "kinetix", "kinetix") from error

_SIZES = ("s", "m", "l")


def _patch_jax2d() -> None:
    """Gives Kinetix's physics what JAX removed: planar cross products and arguments of `clip`."""

    def cross(a: Any, b: Any) -> jax.Array:
        return a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]

    def clip(x: Any, a_min: Any = None, a_max: Any = None) -> jax.Array:
        return jnp.clip(x, a_min, a_max)

    patched = types.SimpleNamespace(**{**vars(jnp), "cross": cross, "clip": clip})
    for name in ("collision", "engine", "joint"):
        vars(importlib.import_module(f"jax2d.{name}"))["jnp"] = patched


if jax.__version_info__ > (0, 9, 0):  # the newest that Kinetix supports
    _patch_jax2d()


class FromKinetix(_gymnax_like.GymnaxLike):
    """An environment of Kinetix. `info` is Kinetix's."""

    @property
    def observation_space(self) -> spaces.Space:
        return unbounded(by_name(jax.eval_shape(self._reset, jax.random.key(0))[1].observation))

    @property
    def action_space(self) -> spaces.Space:
        with jax.ensure_compile_time_eval():
            space = self.env.value.action_space(self.params)
            if isinstance(space, kinetix.MultiDiscrete):
                return spaces.MultiDiscrete(np.asarray(space.number_of_dims_per_distribution))
            return super().action_space

    def _reset(self, key: chex.PRNGKey) -> tuple[Any, TimeStep]:
        observation, state = self.env.value.reset_env(key, self.params, None)
        return state, TimeStep.first(by_name(observation))

    def _step(self, state: Any, action: Any, key: chex.PRNGKey) -> tuple[Any, TimeStep]:
        params = self.params.replace(max_timesteps=NO_LIMIT)  # so every end is that of the task
        observation, state, reward, done, info = self.env.value.step_env(key, state, action, params)
        return state, TimeStep.transition(
            by_name(observation), reward=reward, terminated=done, info=info
        )

    def render(self, state: Any) -> jax.Array:
        static = self.env.value.static_env_params.replace(downscale=1)
        picture = make_render_pixels(kinetix.EnvParams(), static)(state)
        return jnp.clip(picture, 0, 255).astype(jnp.uint8).transpose(1, 0, 2)[::-1]


def from_kinetix(env: Any, params: Any = None) -> Environment:
    """Returns an environment of Kinetix as a native environment.

    Args:
        env: the environment, with a function for resets.
        params: its parameters; None for `env.default_params`. The number of steps `max_timesteps`
            becomes the time limit.

    Raises:
        WrapperError: `env` is not a Kinetix environment.
    """
    check_kind("from_kinetix", env, kinetix.KinetixEnv)
    params = env.default_params if params is None else params
    return _gymnax_like.adapt(env, params, limit="max_timesteps", is_merged=False, cls=FromKinetix)


def names() -> list[str]:
    """Returns the levels that Kinetix contains, and its distribution of levels in three sizes."""
    levels = Path(saving.BASE_DIR)
    found = [str(path.relative_to(levels).with_suffix("")) for path in levels.rglob("*.json")]
    return sorted(found) + [f"random/{size}" for size in _SIZES]


def make(
    name: str,
    *,
    action_type: str = "multi_discrete",
    observation_type: str = "symbolic_flat",
    **parameters: Any,
) -> Environment:
    """Makes an environment of Kinetix by its name.

    Args:
        name: one of `names()`. Every episode of "random/..." has another level.
        action_type: "multi_discrete", "discrete", or "continuous".
        observation_type: "symbolic_flat", "symbolic_flat_padded", "symbolic_entity", or "pixels".
        **parameters: fields of the environment's parameters or of its static parameters.
    """
    folder, _, rest = name.partition("/")
    if folder == "random":
        params, fixed = kinetix.EnvParams(), kinetix.static_env_params_from_size(rest)
    else:
        _, fixed, params = saving.load_from_json_file(name)
    params, fixed = replace_parameters(f"kinetix/{name}", parameters, params, fixed)
    if folder == "random":
        reset = ued.make_reset_fn_sample_kinetix_level(params, fixed)
    else:
        reset = ued.make_reset_fn_list_of_levels([name], fixed)
    env = kinetix.make_kinetix_env(
        kinetix.ActionType.from_string(action_type),
        kinetix.ObservationType.from_string(observation_type),
        reset,
        params,
        fixed,
        auto_reset=False,
    )
    return from_kinetix(env, params)
