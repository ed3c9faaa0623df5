"""The classic gym interface: one flag for the end of an episode, and a method `seed`.

    observation = env.reset()
    observation, reward, done, info = env.step(action)

This is the interface of gym up to release 0.21, and of agymc for a batch. The package gym is not
needed: the spaces are Gymnasium's, which have the same methods.
"""

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

import jax
import numpy as np

from jaxenvs.core import VectorEnv
from jaxenvs.errors import check_choice
from jaxenvs.faces._host_timestep import HostTimeStep
from jaxenvs.faces._pickling import EzPickleMixin
from jaxenvs.faces._pool_runner import PoolRunner
from jaxenvs.faces._runner import BatchRunner
from jaxenvs.faces._single import info_row, step_single, take_rows
from jaxenvs.faces.gym_vector_env import RENDER_FPS, GymVectorEnv, output_converter
from jaxenvs.rendering.window import Window, mosaic

if TYPE_CHECKING:
    from jaxenvs.bridge.pool import Pool

RENDER_MODES = ("human", "rgb_array")
_POOL_INFOS = ("env_id", "elapsed_step", "restarted")  # the infos that a pool adds


class LazyInfoList(Sequence):
    """A sequence of N dicts that is built on first access, because many callers never look."""

    def __init__(self, length: int, make: Callable[[], list[dict[str, Any]]]) -> None:
        self._length, self._make = length, make

    @functools.cached_property
    def _dicts(self) -> list[dict[str, Any]]:
        return self._make()

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Any) -> Any:
        return self._dicts[index]

    def __repr__(self) -> str:
        return repr(self._dicts)

    def __eq__(self, other: object) -> bool:
        return self._dicts == list(other) if isinstance(other, Sequence) else NotImplemented

    __hash__ = None  # like a list  # pyright: ignore[reportAssignmentType]

    def __reduce__(self) -> Any:
        return list, (self._dicts,)


class _ClassicBase(EzPickleMixin):
    """The common part of `ClassicEnv` and `ClassicVectorEnv`."""

    reward_range = (-float("inf"), float("inf"))
    metadata = {"render.modes": list(RENDER_MODES), "video.frames_per_second": RENDER_FPS}  # noqa: RUF012

    def __init__(
        self,
        env: "VectorEnv | Pool",
        *,
        seed: int | Sequence[int] | None = None,
        render_mode: str | None = None,
        output: Literal["numpy", "torch"] = "numpy",
        validate: bool = True,
        device: jax.Device | None = None,
        spec: Any = None,
    ) -> None:
        self.render_mode = "human" if render_mode is None else _checked(render_mode)
        self.spec = spec if isinstance(env, VectorEnv) else env.spec
        self._batch: Any
        self._runner: BatchRunner | PoolRunner
        self._to_output = output_converter(output)
        if isinstance(env, VectorEnv):
            self._batch = GymVectorEnv(env, validate=validate, device=device)
            self._runner = self._batch.runner
            self._infos_function: Any = lambda timestep: functools.partial(self._infos, timestep)
        else:
            self._batch, self._runner = env, PoolRunner(env)
            self._infos_function = functools.partial(_pool_infos, env.autoreset_mode)
        self._is_same_step = env.autoreset_mode == "same_step"
        self._seeds: list[int] | None = None
        self._window = Window(RENDER_FPS)
        if seed is not None:
            self.seed(seed)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.env!r})"

    @property
    def env(self) -> "VectorEnv | Pool":
        """The native environment, with its current parameters; or the pool."""
        return self._runner.env

    @property
    def unwrapped(self) -> Self:
        """This object. Wrappers of jaxenvs are compiled into it."""
        return self

    def seed(self, seed: int | Sequence[int | None] | None = None) -> list[int]:
        """Sets the seeds of the next `reset`.

        Args:
            seed: an int s gives instance i the seed s + i, as in gym's vector environments. A
                sequence has one seed per instance. None draws random seeds. Episodes of an instance
                depend on its own seed only.

        Returns:
            The N seeds.

        Raises:
            SeedError: a seed is invalid, or the number of seeds is not N.
        """
        seeds = self._runner.parse_seeds(seed)
        self._seeds = [*seeds]
        return seeds

    def render(self, mode: str | None = None) -> Any:
        """Draws the current state.

        Args:
            mode: "human" shows it in a window, as a mosaic for a batch; "rgb_array" returns it.
                None is the `render_mode` given to `make_gym`, or else "human".

        Returns:
            None, or a frame, uint8[H, W, 3]; for a batch, a tuple of N frames.

        Raises:
            ParameterError: there is no such mode.
            MissingExtraError: the window needs pygame, which is not installed.
        """
        mode = self.render_mode if mode is None else _checked(mode)
        frames = self._runner.render()
        if mode == "rgb_array":
            return self._select(tuple(frames))
        self._window.show(mosaic(frames))
        return None

    def close(self) -> None:
        """Drops the state and the window."""
        self._batch.close()
        self._window.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def _select(self, batch: Any) -> Any:
        """Converts N results to the form that the interface returns."""
        return batch

    def _reset(self) -> Any:
        seeds, self._seeds = self._seeds, None
        return self._to_output(self._runner.reset(seeds).observation)

    def _infos(self, timestep: HostTimeStep) -> list[dict[str, Any]]:
        infos: list[dict[str, Any]] = [{} for _ in range(self._batch.num_envs)]
        for name, value in timestep.final_info.items():
            value = self._to_output(value)
            for i, info in enumerate(infos):
                info[name] = take_rows(value, i)
        if timestep.any_done:
            final = self._to_output(timestep.final_observation) if self._is_same_step else None
            for i in np.flatnonzero(timestep.terminated | timestep.truncated).tolist():
                infos[i]["TimeLimit.truncated"] = not timestep.terminated[i]
                if self._is_same_step:
                    infos[i]["terminal_observation"] = take_rows(final, i)
        return infos


class ClassicVectorEnv(_ClassicBase):
    """N instances with the classic interface. `make_gym(id, num_envs, api="gym")` makes it.

    By default nothing is reset automatically, as in agymc: a finished instance keeps done true
    until all are `reset`, so `while not all(done)` ends. Its reward is 0 and its observation is the
    last one; agymc has None for both. With autoreset_mode="same_step", instances restart within the
    step, as in gym's vector environments.

    Over a pool, rewards are float64, and the dicts contain the infos of the environments.
    """

    def __init__(self, env: "VectorEnv | Pool", **options: Any) -> None:
        super().__init__(env, **options)
        self.num_envs = env.num_envs
        self.single_observation_space = self._batch.single_observation_space
        self.single_action_space = self._batch.single_action_space
        self.observation_space = self._batch.observation_space
        self.action_space = self._batch.action_space

    def reset(self) -> Any:
        """Starts an episode in every instance.

        Returns:
            The observations, [N, ...].
        """
        return self._reset()

    def step(self, actions: Any) -> tuple[Any, Any, Any, LazyInfoList]:
        """Takes one action in every instance.

        Args:
            actions: [N, ...] of the action space.

        Returns:
            Observations [N, ...], rewards float32[N], done bool[N], and a sequence of N dicts. The
            dict of a finished instance has "TimeLimit.truncated": whether the episode was truncated
            before the task terminated. (gym omits it if the limit was not reached, so read it with
            `get`.) Under autoreset_mode="same_step" it also has "terminal_observation".

        Raises:
            ActionError: the actions do not fit; no step was taken.
        """
        return self._to_step_result(self._runner.step(actions))

    def step_async(self, actions: Any) -> None:
        """Starts a step, and returns before a long one ends."""
        self._runner.send(actions, "step_async")

    def step_wait(self) -> tuple[Any, Any, Any, LazyInfoList]:
        """Waits for the step in flight and returns the result of `step`."""
        return self._to_step_result(self._runner.receive())

    def _to_step_result(self, timestep: HostTimeStep) -> tuple[Any, Any, Any, LazyInfoList]:
        done = timestep.terminated | timestep.truncated
        infos = LazyInfoList(self.num_envs, self._infos_function(timestep))
        to_output = self._to_output
        return to_output(timestep.observation), to_output(timestep.reward), to_output(done), infos

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Calls a method of the environment, or reads a parameter.

        Returns:
            N results, one per instance.

        Raises:
            UnknownParameterError: there is no such method or parameter.
        """
        return self._batch.call(name, *args, **kwargs)

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Reads a parameter of every instance.

        Raises:
            UnknownParameterError: there is no such parameter.
        """
        return self._batch.get_attr(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Sets a parameter: one value for all instances, or a list or tuple of N.

        Raises:
            UnknownParameterError: there is no such parameter.
            ParameterError: there are not N values.
        """
        self._batch.set_attr(name, values)


class ClassicEnv(_ClassicBase):
    """One instance with the classic interface. `make_gym(id, api="gym")` makes it.

    It behaves like an instance of a `ClassicVectorEnv` with the same seed. By default, after the
    end of an episode, it keeps its last observation with reward 0 and done true until `reset`. In
    gym such a step was undefined; its CartPole warned, returned reward 0 and continued.
    """

    def __init__(self, env: "VectorEnv | Pool", **options: Any) -> None:
        super().__init__(env, **options)
        self.observation_space = self._batch.single_observation_space
        self.action_space = self._batch.single_action_space

    def reset(self) -> Any:
        """Starts an episode and returns the observation."""
        return take_rows(self._reset())

    def step(self, action: Any) -> tuple[Any, float, bool, dict[str, Any]]:
        """Takes one action.

        Returns:
            The observation, the reward, whether the episode is over, and the info. At the end of an
            episode, "TimeLimit.truncated" in the info tells whether the episode was truncated
            before the task terminated; under autoreset_mode="same_step", "terminal_observation" is
            the last observation of the episode.

        Raises:
            ActionError: the action does not fit.
        """
        timestep = step_single(self._runner.step, self.action_space, action)
        has_info = timestep.any_done or self._runner.has_info
        info = self._infos_function(timestep)()[0] if has_info else {}
        observation = take_rows(self._to_output(timestep.observation))
        return observation, float(timestep.reward[0]), timestep.any_done, info

    def _select(self, batch: Any) -> Any:
        return batch[0]


def _pool_infos(autoreset_mode: str, timestep: HostTimeStep) -> Callable[[], list[dict[str, Any]]]:
    """Returns a function that makes one info per environment, as classic gym has them."""
    infos, num_envs = timestep.info, len(timestep.terminated)
    # Computed now, because the caller may write to the flags later.
    done = timestep.terminated | timestep.truncated
    truncated_only = timestep.truncated & ~timestep.terminated

    def make() -> list[dict[str, Any]]:
        rows = [info_row(infos, i) for i in range(num_envs)]
        for i in np.flatnonzero(done).tolist():
            final_observation = rows[i].pop("final_obs", None)
            final_info = rows[i].pop("final_info", {})
            if autoreset_mode == "same_step" and final_observation is not None:
                # The other infos belong to the new episode, except those of the pool itself.
                own = {name: rows[i][name] for name in _POOL_INFOS if name in rows[i]}
                rows[i] = {**final_info, **own, "terminal_observation": final_observation}
            rows[i]["TimeLimit.truncated"] = bool(truncated_only[i])
        return rows

    return make


def _checked(mode: str) -> str:
    check_choice("the classic interface got render_mode", mode, RENDER_MODES)
    return mode
