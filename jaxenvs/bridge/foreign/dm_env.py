"""Environments with the interface of dm_env."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from jaxenvs.bridge.foreign.adapter import Adapter, unbounded
from jaxenvs.errors import PoolError


class DmEnvAdapter(Adapter):
    """An adapter for environments of dm_env.

    A missing reward becomes 0. An episode that ends with discount 0 is terminated; with any other
    discount it is truncated. A discount other than 0 and 1 is in `info["discount"]`.

    dm_env has no seeds. A seed is passed to dm_control's random states, or to a method `seed`.
    """

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.observation_space = space_of_spec(env.observation_spec())
        self.action_space = space_of_spec(env.action_spec())
        self._physics = getattr(env, "physics", None)
        if self._physics is not None:
            self.render_mode = "rgb_array"
            fps = round(1 / env.control_timestep())
            self.metadata = {"render_modes": ["rgb_array"], "render_fps": fps, **self.metadata}
        simple = isinstance(self.action_space, spaces.Discrete)
        # The pool passes Python ints; some environments require the dtype of their spec.
        self._action = env.action_spec().dtype.type if simple else lambda action: action

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self._take(seed, options)
        return self.env.reset().observation, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        timestep = self.env.step(self._action(action))
        reward, discount = timestep.reward, timestep.discount
        over = bool(timestep.last())
        terminated = over and discount is not None and not discount
        info = {} if discount is None or discount in (0, 1) else {"discount": float(discount)}
        reward = 0.0 if reward is None else float(reward)
        return timestep.observation, reward, terminated, over and not terminated, info

    def render(self, **kwargs: Any) -> Any:
        """Returns a frame by `env.physics.render`, which takes `height`, `width`, `camera_id`."""
        if self._physics is None:
            return self.env.render(**kwargs)
        return self.env.physics.render(**kwargs)

    def _seed(self, seed: int) -> bool:
        task = getattr(self.env, "task", None)
        states = [getattr(task, "random", None), getattr(self.env, "random_state", None)]
        states = [state for state in states if isinstance(state, np.random.RandomState)]
        for state in states:
            state.seed(seed % 2**32)
        return super()._seed(seed) or bool(states)


def space_of_spec(spec: Any) -> spaces.Space:
    """Returns the space of a dm_env spec, or of a dict, list or tuple of specs; dtypes are kept.

    Raises:
        PoolError: a spec is not numeric.
    """
    if isinstance(spec, Mapping):
        return spaces.Dict([(name, space_of_spec(sub)) for name, sub in spec.items()])
    if isinstance(spec, Sequence):
        return spaces.Tuple([space_of_spec(sub) for sub in spec])
    if hasattr(spec, "num_values"):
        return spaces.Discrete(int(spec.num_values))
    if np.dtype(spec.dtype).kind not in "fiub":
        raise PoolError(
            f"a pool cannot hold {spec!r:.100}, which is not numeric.  Wrap the environment so that"
            " its specs are arrays of numbers."
        )
    if not hasattr(spec, "minimum"):
        return unbounded(spec.shape, spec.dtype)
    bounds = spec.minimum, spec.maximum
    low, high = (np.broadcast_to(bound, spec.shape).astype(spec.dtype) for bound in bounds)
    return spaces.Box(low, high, spec.shape, np.dtype(spec.dtype).type)
