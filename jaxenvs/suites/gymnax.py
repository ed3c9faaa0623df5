"""Environments of gymnax, 0.0.9 and 1.x, as native environments.

Until 1.0, gymnax merges its time limit with the end of the task. Here the limit truncates.
"""

import types
from typing import Any

import gymnasium
import jax

from jaxenvs import spaces
from jaxenvs.core import Environment
from jaxenvs.errors import RenderError, missing_extra
from jaxenvs.spaces.unbounded import unbounded
from jaxenvs.suites import _gymnax_like
from jaxenvs.suites._shared import (
    check_kind,
    field_names,
    figure_picture,
    python_picture,
    with_globals,
)

try:
    import gymnax
    from gymnax.environments.environment import Environment as GymnaxEnvironment
    from gymnax.visualize import Visualizer, vis_circle, vis_gym
    from matplotlib.patches import Circle
except ImportError as error:
    raise missing_extra(__name__, "gymnax", "gymnax") from error

_LIMIT = "max_steps_in_episode"
_IS_MERGED = not hasattr(GymnaxEnvironment, "is_truncated")
_OUTSIDE = ("GaussianBandit-misc", "MemoryChain-bsuite")  # gymnax's bounds exclude observations


class FromGymnax(_gymnax_like.GymnaxLike):
    """An environment of gymnax. `info` is that of the library, without the discount."""

    @property
    def observation_space(self) -> spaces.Space:
        space = super().observation_space
        return unbounded(space) if self.env.value.name in _OUTSIDE else space

    def render(self, state: Any) -> jax.Array:
        return python_picture("gymnax", self.env.value.name, self._draw, state)

    def _draw(self, state: Any) -> Any:
        env, params = self.env.value, self.params
        if env.name in gymnasium.registry:
            if _IS_MERGED:
                raise RenderError(
                    f"gymnax below 1.0 draws {env.name} with classic Gym.  Install gymnax 1.0."
                )
            return vis_gym.render_gym_frame(env.name, state, params)
        scene: Any = types.SimpleNamespace(env=env, env_params=params, state_seq=[state], im=None)

        def draw(axes: Any) -> None:
            if env.name == "PointRobot-misc":
                plt = types.SimpleNamespace(axis=axes.axis, Circle=Circle)
                init = with_globals(vis_circle.init_circle, plt=plt)
                scene.im = init(axes, env, state, params)
            else:
                scene.fig, scene.ax = axes.figure, axes
                Visualizer.init(scene)  # the constructor would open a window

        picture = figure_picture(draw)
        return None if scene.im is None else picture


def from_gymnax(env: Any, params: Any = None) -> Environment:
    """Returns an environment of gymnax as a native environment.

    Args:
        env: the environment.
        params: its parameters; None for `env.default_params`. The number of steps
            `max_steps_in_episode` becomes the time limit.

    Raises:
        WrapperError: `env` is not a gymnax environment.
        SpaceError: jaxenvs has no such space.
    """
    check_kind("from_gymnax", env, GymnaxEnvironment)
    params = env.default_params if params is None else params
    return _gymnax_like.adapt(env, params, limit=_LIMIT, is_merged=_IS_MERGED, cls=FromGymnax)


def names() -> list[str]:
    """Returns the names of gymnax's environments."""
    return [*gymnax.registered_envs]


def make(name: str, **parameters: Any) -> Environment:
    """Makes an environment of gymnax by its name.

    Args:
        name: one of `names()`.
        **parameters: fields of the environment's parameters, or arguments of its constructor.
    """
    fields = field_names(gymnax.make(name)[1])
    changes = {key: parameters.pop(key) for key in fields if key in parameters}
    env, params = gymnax.make(name, **parameters)
    return from_gymnax(env, params.replace(**changes))
