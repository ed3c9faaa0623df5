"""A native batch as a Gymnasium vector environment."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.vector import AutoresetMode as GymAutoresetMode
from gymnasium.vector.utils import batch_space

from jaxenvs import spaces, struct
from jaxenvs.core import Environment, VectorEnv, Wrapper
from jaxenvs.errors import (
    ActionError,
    ParameterError,
    UnknownParameterError,
    closest,
    describe,
    missing_extra,
)
from jaxenvs.faces._host_timestep import HostTimeStep
from jaxenvs.faces._pickling import EzPickleMixin
from jaxenvs.faces._reset_options import parse_options
from jaxenvs.faces._runner import BatchRunner, copy_arrays
from jaxenvs.rendering.window import Window, mosaic
from jaxenvs.vector.vectorized_env import VectorizedEnv

RENDER_MODES = ("human", "rgb_array", "rgb_array_list")
RENDER_FPS = 30


class GymVectorEnv(EzPickleMixin, gymnasium.vector.VectorEnv):
    """N native instances as a `gymnasium.vector.VectorEnv`. `make_gym` makes it.

    Returned arrays never change later, and callers may write to them. A copied or unpickled
    environment is a new one with the same parameters, which has to be reset first.

    `np_random` is one generator, for the caller's use, and `np_random_seed` is its seed, that of
    instance 0, as in Gymnasium's vectorized environments; `SyncVectorEnv` has tuples.
    """

    def __init__(
        self,
        env: VectorEnv,
        *,
        seed: int | Sequence[int] | None = None,
        render_mode: str | None = None,
        output: Literal["numpy", "torch"] = "numpy",
        validate: bool = True,
        device: jax.Device | None = None,
        spec: Any = None,
    ) -> None:
        self.runner = BatchRunner(env, device=device, validate=validate)
        self.num_envs = env.num_envs
        self._set_spaces()
        self.render_mode = render_mode
        self.output = output
        self.spec = spec  # pyright: ignore[reportIncompatibleVariableOverride]
        # SyncVectorEnv has the attribute, too.
        self.autoreset_mode = GymAutoresetMode[env.autoreset_mode.upper()]
        self.metadata = {
            "autoreset_mode": self.autoreset_mode,
            "render_modes": list(RENDER_MODES),
            "render_fps": RENDER_FPS,
        }
        self._initial_seed = seed
        self._is_same_step = env.autoreset_mode == "same_step"
        self._has_info = self.runner.has_info
        self._to_output = output_converter(output)
        self._window = Window(RENDER_FPS)
        self._frames: list[list[np.ndarray]] = [[] for _ in range(env.num_envs)]
        self._done = np.zeros(env.num_envs, bool)  # in the previous step
        self._reset_result: tuple[Any, dict[str, Any]] | None = None  # of `async_reset`, for `recv`

    @property
    def env(self) -> VectorEnv:
        """The native environment, with its current parameters."""
        return self.runner.env

    @property
    def spec(self) -> Any:
        """Gymnasium's spec, with the time limit that this environment has."""
        return self._spec

    @spec.setter
    def spec(self, spec: Any) -> None:
        # `gymnasium.make_vec` sets a spec with the limit of the id, whatever limit it was given.
        self._spec = with_limit_of(self.env, spec)

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Starts an episode in every instance.

        Args:
            seed: an int s gives instance i the seed s + i. A sequence has one seed per instance, in
                which None draws a random one. Episodes of an instance depend on its own seed only.
                None continues with the random numbers of the last seed.
            options: {"reset_mask": bool[N]} resets only the instances where the mask is true; the
                first reset ignores the mask. Classic control also has Gymnasium's bounds of the
                first states, `low` and `high`, in Pendulum `x_init` and `y_init`; later automatic
                resets do not use them.

        Returns:
            The observations, [N, ...], and the infos.

        Raises:
            SeedError: a seed is invalid, or the number of seeds is not N.
            ParameterError: there is no such option, a bound is not a number, or the mask is not
                bool[N], or is all false.
        """
        params = parse_options(self.env, options, ["reset_mask"])
        mask = self._parse_mask(options)
        if not self.runner.has_state:
            mask = None
        seed = self._initial_seed if seed is None else seed
        seeds = None if seed is None else self.runner.parse_seeds(seed)
        timestep = self.runner.reset(seeds, mask, params)
        self._initial_seed = None
        if seeds is not None:
            super().reset(seed=seeds[0])  # seeds `envs.np_random`
        if self.render_mode is not None:
            started = np.ones(self.num_envs, bool) if mask is None else mask
            self._done[started] = False
            self._update_frames(started, started)
        return self._to_output(timestep.observation), self._add_masks(timestep.info, mask)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Takes one action in every instance.

        Args:
            actions: [N, ...] of the action space.

        Returns:
            Observations [N, ...], rewards float32[N], terminations bool[N], truncations bool[N] and
            infos. Under same-step autoreset, `infos["final_obs"]` and `infos["final_info"]` belong
            to the episodes that ended, and the masks `_final_obs` and `_final_info` tell which
            instances have them.

        Raises:
            ActionError: the actions do not fit; no step was taken.
        """
        return self._to_step_result(self.runner.step(actions))

    def step_async(self, actions: Any) -> None:
        """Starts a step, and returns before a long one ends."""
        self.runner.send(actions, "step_async")

    def step_wait(self) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Waits for the step in flight and returns the result of `step`."""
        return self._to_step_result(self.runner.receive())

    def _to_step_result(self, timestep: HostTimeStep) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Converts a timestep to the result of `step`, and records its frames."""
        observation, reward, terminated, truncated, any_done, _ = timestep
        if self.render_mode is not None:
            was_done, self._done = self._done, terminated | truncated
            started = {"same_step": self._done, "next_step": was_done}
            self._update_frames(started.get(self.env.autoreset_mode, ()))
        infos: dict[str, Any] = {}
        if self._has_info or (any_done and self._is_same_step):
            infos = self._step_infos(timestep, terminated | truncated if any_done else None)
        if self.output == "torch":
            parts = map(self._to_output, (observation, reward, terminated, truncated))
            return (*parts, infos)  # pyright: ignore[reportReturnType]
        return observation, reward, terminated, truncated, infos

    def send(self, action: Any, env_id: np.ndarray | None = None) -> None:
        """Starts a step, as in EnvPool. All N instances take part.

        Args:
            action: [N, ...].
            env_id: int[N], the instance that takes each action; None for 0, 1, ..., N - 1.

        Raises:
            ActionError: the actions do not fit, or `env_id` does not list every instance once.
        """
        if env_id is not None:
            order = np.ravel(env_id)
            if not np.array_equal(np.sort(order), np.arange(self.num_envs)):
                raise ActionError(
                    f"send got env_id={order.tolist()}; all {self.num_envs} instances step"
                    " together, so it must list each of them once.  Pass info['env_id'] of recv."
                )
            rows = np.argsort(order)
            # An array of another length is refused below.
            action = jax.tree.map(
                lambda part: np.asarray(part)[rows] if len(part) == len(rows) else part, action
            )
        self.runner.send(action, "send")

    def async_reset(self, *, seed: int | Sequence[int] | None = None) -> None:
        """Starts an episode in every instance, for `recv` to return, as in EnvPool."""
        self._reset_result = self.reset(seed=seed)

    def recv(self) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Returns the result of `send` or `async_reset`; `info["env_id"]` is int32[N]."""
        first, self._reset_result = self._reset_result, None
        if first is None:
            result = self.step_wait()
        else:
            observations, infos = first
            zeros = (np.zeros(self.num_envs, dtype) for dtype in (np.float32, bool, bool))
            result = (observations, *map(self._to_output, zeros), infos)
        result[-1]["env_id"] = np.arange(self.num_envs, dtype=np.int32)
        return result

    def render(self) -> Any:
        """Returns frames of all instances, uint8[H, W, 3] each.

        Returns:
            A tuple of N frames. Under "rgb_array_list", a tuple of N lists: the frames of the
            current episode since the last call. Under "human", None; a window shows a mosaic.
        """
        if self.render_mode is None:
            return gymnasium.logger.warn(
                "render was called without a render_mode.  Pass render_mode='rgb_array' to"
                " make_gym to get frames."
            )
        self.runner.check_ready("render")
        if self.render_mode == "rgb_array_list":
            frames, self._frames = self._frames, [[] for _ in range(self.num_envs)]
            return tuple(frames)
        if self.render_mode == "human":
            return self._update_frames()
        return tuple(self.runner.render())

    def close_extras(self, **kwargs: Any) -> None:
        """Drops the state and the window, after waiting for the step in flight."""
        self.runner.close()
        self._window.close()

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Calls a method of the environment, or reads a parameter.

        Returns:
            N results, one per instance.

        Raises:
            UnknownParameterError: there is no such method or parameter.
        """
        if name == "render":
            return self.render() or (None,) * self.num_envs
        if name in self.env.parameters:
            return self.get_attr(name)
        env: Any = self.env.env if isinstance(self.env, VectorizedEnv) else self.env
        if not hasattr(env, name):  # wrappers do not forward attributes
            env = env.unwrapped if isinstance(env, Environment) else env
        if not hasattr(env, name):
            raise self._unknown_parameter(name)
        value = getattr(env, name)
        return (value(*args, **kwargs) if callable(value) else value,) * self.num_envs

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Reads a parameter of every instance.

        Raises:
            UnknownParameterError: there is no such parameter.
        """
        if name not in self.env.parameters:
            if hasattr(self.env, name):
                return self.call(name)
            raise self._unknown_parameter(name)
        value = self.env.parameters[name]
        if name in getattr(self.env, "batched", ()):
            leaves, treedef = jax.tree.flatten(jax.tree.map(np.array, value))
            return tuple(jax.tree.unflatten(treedef, row) for row in zip(*leaves, strict=True))
        return (copy_arrays(value),) * self.num_envs

    def set_attr(self, name: str, values: Any) -> None:
        """Sets a parameter of every instance.

        Episodes continue. The next step is compiled again.

        Args:
            name: the parameter.
            values: one value for all instances, or a list or tuple of N values.

        Raises:
            UnknownParameterError: there is no such parameter.
            ParameterError: there are not N values, a value has another shape, or the values differ
                although all instances share the parameter.
        """
        if name not in self.env.parameters:
            raise self._unknown_parameter(name)
        env: Any = self.env
        is_batched = name in getattr(env, "batched", ())
        is_list = isinstance(values, (list, tuple))
        column: list[Any] = [*values] if is_list else [values] * self.num_envs
        self._check_values(name, column, self.get_attr(name)[0], is_list)
        differ = is_list and any(not _trees_equal(value, column[0]) for value in column)
        if is_batched or differ:
            if not isinstance(env, VectorizedEnv) or _is_static(env.env, name):
                raise ParameterError(
                    f'set_attr("{name}") got different values for the instances of {env!r}, which'
                    " share this parameter.  Pass a single value."
                )
            stacked = jax.tree.map(lambda *rows: jnp.asarray(rows), *column)
            changed = env.env.replace(**{name: stacked})
            batched = env.batched if is_batched else (*env.batched, name)
            env = dataclasses.replace(env, env=changed, batched=batched)
        else:
            env = env.replace(**{name: column[0]})
        self.runner.replace_env(env)
        self._set_spaces()  # the parameter may be a bound
        self._spec = with_limit_of(env, self._spec)  # or the time limit

    def _check_values(self, name: str, column: list[Any], current: Any, is_list: bool) -> None:
        if len(column) != self.num_envs:
            raise ParameterError(
                f'set_attr("{name}") got {len(column)} values for num_envs={self.num_envs}.'
                "  Pass one per instance, or a single one."
            )
        for value in column:
            if isinstance(value, np.ndarray | jax.Array) and value.shape != np.shape(current):
                raise ParameterError(
                    f'set_attr("{name}") got {describe(value)} {"in" if is_list else "as"} its'
                    f" values; one value has the shape {list(np.shape(current))}.  Pass a list,"
                    " values.tolist(), to set one value per instance."
                )

    def _set_spaces(self) -> None:
        """Sets the spaces that changed; the others keep their random number generators."""
        for name in ("observation_space", "action_space"):
            single = spaces.to_gymnasium(getattr(self.env, f"single_{name}"))
            if single != getattr(self, f"single_{name}", None):
                setattr(self, f"single_{name}", single)
                setattr(self, name, batch_space(single, self.num_envs))

    def _parse_mask(self, options: dict[str, Any] | None) -> np.ndarray | None:
        mask = (options or {}).get("reset_mask")
        if mask is None:
            return None
        mask = np.asarray(mask)
        if mask.shape != (self.num_envs,) or mask.dtype != np.bool_ or not mask.any():
            raise ParameterError(
                f"options['reset_mask'] got {mask.dtype}{list(mask.shape)} with"
                f" {int(np.count_nonzero(mask))} true; expected bool[{self.num_envs}] with at"
                " least one true."
            )
        return mask

    def _add_masks(self, info: dict[str, Any], rows: np.ndarray | None) -> dict[str, Any]:
        """Adds to each entry the mask, bool[N], of the instances that have it, as in Gymnasium."""
        masks = np.empty((len(info), self.num_envs), bool)  # a copy for each, made at once
        masks[:] = True if rows is None else rows
        infos: dict[str, Any] = {}
        for (name, value), mask in zip(info.items(), masks, strict=True):
            is_dict = isinstance(value, dict)
            infos[name] = self._add_masks(value, rows) if is_dict else self._to_output(value)
            infos[f"_{name}"] = mask
        return infos

    def _step_infos(self, timestep: HostTimeStep, done: np.ndarray | None) -> dict[str, Any]:
        infos = self._add_masks(timestep.info, None)
        if done is not None and self._is_same_step:
            infos.update(
                final_obs=self._final_observations(timestep.final_observation, done),
                _final_obs=done,
                final_info=self._add_masks(timestep.final_info, done),
                _final_info=done.copy(),
            )
        return infos

    def _final_observations(self, observation: Any, done: np.ndarray) -> np.ndarray:
        """Returns object[N]: the last observation of each episode that ended, None elsewhere."""
        rows = np.flatnonzero(done)
        leaves, treedef = jax.tree.flatten(observation)
        columns = [list(self._to_output(leaf[rows])) for leaf in leaves]
        final = np.full(self.num_envs, None, dtype=object)
        if jax.tree_util.treedef_is_leaf(treedef):
            each: Any = columns[0]
        else:
            each = [jax.tree.unflatten(treedef, row) for row in zip(*columns, strict=True)]
        final[rows] = np.fromiter(each, dtype=object, count=len(rows))
        return final

    def _update_frames(self, started: Any = (), drawn: Any = slice(None)) -> None:
        """Records or shows frames, depending on the render mode.

        Args:
            started: bool[N], where an episode started, so earlier frames are dropped; () for
                nowhere.
            drawn: the instances that have a new frame.
        """
        if self.render_mode == "rgb_array_list":
            for i in np.flatnonzero(started):
                self._frames[i] = []
            rows = np.arange(self.num_envs)[drawn]
            for i, frame in zip(rows, self.runner.render(rows.tolist()), strict=True):
                self._frames[i].append(frame)
        elif self.render_mode == "human":
            self._window.show(mosaic(self.runner.render()))

    def _unknown_parameter(self, name: str) -> UnknownParameterError:
        known = self.env.parameters
        return UnknownParameterError(
            f'{self.env!r} has no parameter "{name}".{closest(name, known)}'
            f"  Its parameters: {', '.join(known) or 'none'}."
        )


def output_converter(output: Literal["numpy", "torch"]) -> Callable[[Any], Any]:
    """Returns a function that turns a tree of arrays into tensors that share their memory.

    For "numpy" it returns the arrays unchanged.

    Raises:
        MissingExtraError: PyTorch is not installed.
    """
    if output == "numpy":
        return lambda tree: tree
    try:
        import torch
    except ImportError as error:
        raise missing_extra('make_gym(output="torch")', "torch", "torch") from error
    from_dlpack = torch.from_dlpack
    return lambda tree: jax.tree.map(from_dlpack, tree)


def with_limit_of(env: Any, spec: Any) -> Any:
    """Returns a spec of Gymnasium with the time limit of `env`; None if there is no spec."""
    while not isinstance(env, Environment | None):
        env = getattr(env, "env", None)
    limit = None if env is None else env.time_limit
    limit = None if limit is None else int(np.max(limit))
    return None if spec is None else dataclasses.replace(spec, max_episode_steps=limit)


def _is_static(env: Any, name: str) -> bool:
    """Returns whether a parameter of `env`, or of what it wraps, is a static field."""
    own = any(field.name == name and struct.is_static(field) for field in dataclasses.fields(env))
    return own or (isinstance(env, Wrapper) and _is_static(env.env, name))


def _trees_equal(tree: Any, other: Any) -> bool:
    (leaves, treedef), (others, other_treedef) = map(jax.tree.flatten, (tree, other))
    return treedef == other_treedef and all(map(np.array_equal, leaves, others))
