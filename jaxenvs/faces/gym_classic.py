"""The classic gym interface: one flag for the end of an episode, seeds apart from `reset`.

    observation = env.reset()
    observation, reward, done, info = env.step(action)

As gym had it up to its release 0.21, and agymc for a batch. Nothing of the package gym is
needed: spaces are Gymnasium's, which have the same methods.
"""

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

import jax
import numpy as np

from jaxenvs.core import VectorEnv
from jaxenvs.errors import ParameterError, closest
from jaxenvs.faces._copies import MadeAgain
from jaxenvs.faces._programs import HostStep
from jaxenvs.faces._single import row, step_one
from jaxenvs.faces.gym import RENDER_FPS, GymVectorEnv
from jaxenvs.rendering.window import Window, mosaic

if TYPE_CHECKING:
    from jaxenvs.bridge.pool import Pool

MODES = ("human", "rgb_array")


class _Classic(MadeAgain):
    """What one environment and a batch have in common."""

    reward_range = (-float("inf"), float("inf"))
    metadata = {"render.modes": list(MODES), "video.frames_per_second": RENDER_FPS}  # noqa: RUF012

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
        self.render_mode = "human" if render_mode is None else _checked_mode(render_mode)
        self.spec = spec
        self._batch: Any
        if isinstance(env, VectorEnv):
            mode = env.autoreset_mode
            self._batch = GymVectorEnv(env, output=output, validate=validate, device=device)
            self._options = {**self._batch._options, "seed": seed, "render_mode": render_mode}
            self._later_infos = self._native_infos
        else:
            from jaxenvs.faces.pools import ClassicBatch, classic_infos

            mode, self._batch = env.autoreset_mode, ClassicBatch(env)
            self._later_infos = functools.partial(classic_infos, autoreset_mode=mode)
        self._is_same_step = mode == "same_step"
        self._seeds: list[int] | None = None
        self._window = Window(RENDER_FPS)
        if seed is not None:
            self.seed(seed)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.env!r})"

    @property
    def env(self) -> "VectorEnv | Pool":
        """The native environment, with its present parameters; or the pool."""
        return self._batch.env

    @property
    def unwrapped(self) -> Self:
        """This object: wrappers of jaxenvs are compiled into it."""
        return self

    def seed(self, seed: int | Sequence[int | None] | None = None) -> list[int]:
        """Sets what the next `reset` starts from.

        Args:
            seed: an int s gives instance i the seed s + i, as gym's vector environments did; or
                one each. None draws them. What an instance does depends on its own seed alone.

        Returns:
            The N seeds.

        Raises:
            SeedError: not a seed, or not N of them.
        """
        seeds: list[int] = self._batch.engine.seeds(seed)  # refuses now what reset would refuse
        self._seeds = [*seeds]
        return seeds

    def render(self, mode: str | None = None) -> Any:
        """Draws the present state.

        Args:
            mode: "human" shows it in a window, a batch as a mosaic; "rgb_array" returns it. None
                is the `render_mode` that `make_gym` was given, else "human".

        Returns:
            None, or a frame, uint8[H, W, 3]; of a batch a tuple of N frames.

        Raises:
            ParameterError: there is no such mode.
            MissingExtraError: the window needs pygame.
        """
        mode = self.render_mode if mode is None else _checked_mode(mode)
        frames = self._batch._draw()
        if mode == "rgb_array":
            return self._own(frames)
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

    def _own(self, batch: Any) -> Any:
        """What a caller gets of N things."""
        return batch

    def _reset(self) -> Any:
        seeds, self._seeds = self._seeds, None
        return self._batch._out(self._batch.engine.reset(seeds).observation)

    def _native_infos(self, step: HostStep) -> Callable[[], list[dict[str, Any]]]:
        return functools.partial(self._infos, step)

    def _infos(self, step: HostStep) -> list[dict[str, Any]]:
        out = self._batch._out
        infos: list[dict[str, Any]] = [{} for _ in range(self._batch.num_envs)]
        for name, value in step.final_info.items():
            value = out(value)
            for i, info in enumerate(infos):
                info[name] = row(value, i)
        if step.any_done:
            final = out(step.final_observation) if self._is_same_step else None
            for i in np.flatnonzero(step.terminated | step.truncated).tolist():
                infos[i]["TimeLimit.truncated"] = not step.terminated[i]
                if self._is_same_step:
                    infos[i]["terminal_observation"] = row(final, i)
        return infos


class ClassicVectorEnv(_Classic):
    """N instances behind the classic interface. Made by `make_gym(..., api="gym")`.

    By default nothing resets by itself, as in agymc: a finished instance keeps done true until
    all are `reset`, and `while not all(done)` therefore ends. Its reward is 0 and its observation
    stays the last, where agymc has None for both. gym's own vector environments restarted it
    within the step: that is autoreset_mode="same_step".

    Over a pool rewards are float64, and the dicts have what the environments' own infos have.
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

    def step(self, actions: Any) -> tuple[Any, Any, Any, "Infos"]:
        """Takes one action in every instance.

        Args:
            actions: [N, ...] of the action space.

        Returns:
            Observations [N, ...], rewards float32[N], done bool[N], and a sequence of N dicts.
            Where done is true the dict has "TimeLimit.truncated", whether the episode was cut
            before its task ended (gym left a false one away unless the limit was reached; `get`
            reads both), and under autoreset_mode="same_step" "terminal_observation".

        Raises:
            ActionError: the actions do not fit; nothing was done.
        """
        return self._result(self._batch.engine.step(actions))

    def step_async(self, actions: Any) -> None:
        """Starts a step and returns at once; the device works while the caller goes on."""
        self._batch.engine.send(actions, "step_async")

    def step_wait(self) -> tuple[Any, Any, Any, "Infos"]:
        """Waits for the step under way and returns what `step` does."""
        return self._result(self._batch.engine.receive())

    def _result(self, step: HostStep) -> tuple[Any, Any, Any, "Infos"]:
        done = step.terminated | step.truncated
        infos = Infos(self.num_envs, self._later_infos(step))
        out = self._batch._out
        return out(step.observation), out(step.reward), out(done), infos

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Calls a method of the environment, or reads a parameter; N results.

        Raises:
            UnknownParameterError: there is neither.
        """
        return self._batch.call(name, *args, **kwargs)

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Reads a parameter of every instance.

        Raises:
            UnknownParameterError: there is none of that name.
        """
        return self._batch.get_attr(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Sets a parameter: one value for all instances, or a list or tuple of N.

        Raises:
            UnknownParameterError: there is no parameter of that name.
            ParameterError: not N values.
        """
        self._batch.set_attr(name, values)


class ClassicEnv(_Classic):
    """One instance behind the classic interface. Made by `make_gym(id, api="gym")`.

    Does what an instance of a `ClassicVectorEnv` with the same seed does. After the end of an
    episode it stays as it is until `reset`, unless made with another autoreset_mode: done true,
    reward 0, the last observation. In gym such a step was undefined; its CartPole warned, gave
    reward 0 and let the pole fall on.
    """

    def __init__(self, env: "VectorEnv | Pool", **options: Any) -> None:
        super().__init__(env, **options)
        self.observation_space = self._batch.single_observation_space
        self.action_space = self._batch.single_action_space

    def reset(self) -> Any:
        """Starts an episode and returns the observation."""
        return row(self._reset())

    def step(self, action: Any) -> tuple[Any, float, bool, dict[str, Any]]:
        """Takes one action.

        Returns:
            Observation, reward, whether the episode is over, and infos: where it is over
            "TimeLimit.truncated" says whether it was cut before its task ended, and under
            autoreset_mode="same_step" "terminal_observation" is the episode's last.

        Raises:
            ActionError: the action does not fit.
        """
        step = step_one(self._batch.engine, self.action_space, action)
        info = self._later_infos(step)()[0] if step.any_done or self._batch._has_info else {}
        observation = row(self._batch._out(step.observation))
        return observation, float(step.reward[0]), step.any_done, info

    def _own(self, batch: Any) -> Any:
        return batch[0]


class Infos(Sequence):
    """N dicts, made when they are first looked at, since many a caller never does."""

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

    __hash__ = None  # as a list has none  # pyright: ignore[reportAssignmentType]

    def __reduce__(self) -> Any:
        return list, (self._dicts,)


def _checked_mode(mode: Any) -> str:
    if mode not in MODES:
        raise ParameterError(
            f"the classic interface cannot render mode={mode!r}; expected one of {list(MODES)}."
            f"{closest(str(mode), MODES)}"
        )
    return mode
