"""The Gymnasium interface: NumPy in, NumPy out."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.vector import AutoresetMode as GymAutoresetMode
from gymnasium.vector.utils import batch_space

from jaxenvs import spaces, struct
from jaxenvs._forks import check_not_forked
from jaxenvs.catalog.gymnasium_registration import gymnasium_id
from jaxenvs.core import AutoresetMode, Environment, VectorEnv, Wrapper
from jaxenvs.errors import (
    ActionError,
    ParameterError,
    UnknownParameterError,
    closest,
    describe,
)
from jaxenvs.faces._copies import MadeAgain, device_name
from jaxenvs.faces._engine import Engine, as_device, own_arrays
from jaxenvs.faces._infos import StepInfos
from jaxenvs.faces._programs import HostStep
from jaxenvs.faces._single import step_one
from jaxenvs.faces._torch import torch_converter
from jaxenvs.factory import is_hosted, make_from
from jaxenvs.rendering.window import Window, mosaic
from jaxenvs.vector.vectorize import VectorizedEnv, vectorize

if TYPE_CHECKING:
    from jaxenvs.bridge.pool import Pool

GYM_MODES = {
    "same_step": GymAutoresetMode.SAME_STEP,
    "next_step": GymAutoresetMode.NEXT_STEP,
    "disabled": GymAutoresetMode.DISABLED,
}
RENDER_MODES = ("human", "rgb_array", "rgb_array_list")
RENDER_FPS = 30


def make_gym(
    id: "str | Environment | Pool | Callable[[], Any] | Sequence[Callable[[], Any]]",
    num_envs: int | None = None,
    *,
    seed: int | Sequence[int] | None = None,
    autoreset_mode: AutoresetMode | GymAutoresetMode | None = None,
    api: Literal["gymnasium", "gym"] = "gymnasium",
    render_mode: str | None = None,
    wrappers: Sequence[Callable[[Any], Any]] = (),
    output: Literal["numpy", "torch"] = "numpy",
    validate: bool = True,
    device: jax.Device | str | None = None,
    time_limit: int | None | Literal["default"] = "default",
    batched: Sequence[str] = (),
    stagger: bool | int = False,
    **params: Any,
) -> Any:
    """Makes an id for programs that know Gymnasium and NumPy.

    Args:
        id: a registered id, or an `Environment`; or what is not JAX, an id with its library in
            front, "gymnasium/CartPole-v1", a function that makes one, or a pool of `make_pool`,
            whose arrays are views unless it was made with `copy=True`.
        num_envs: N for a `gymnasium.vector.VectorEnv`; None for a `gymnasium.Env`.
        seed: of the first `reset`, where that is not given one.
        autoreset_mode: what follows a finished episode: "next_step" (the default of a batch, as
            in Gymnasium and EnvPool), "same_step", "disabled", or Gymnasium's `AutoresetMode`.
            Under "disabled" a finished instance stays as it is, flags up and reward 0, until it
            is reset.
        api: "gymnasium", or "gym" for the classic interface: `reset() -> observation`,
            `step(action) -> observation, reward, done, info`.
        render_mode: "rgb_array", "rgb_array_list", "human" or None.
        wrappers: from `jaxenvs.wrappers`, the innermost first; compiled with the step.
        output: "torch" returns PyTorch tensors over the same memory, and takes them as actions.
        validate: refuse actions out of range or not a number.
        device: where the environment runs, a `jax.Device` or "cpu", "gpu", "gpu:1". None is the
            CPU: a small batch takes less time there than its way to an accelerator and back.
        time_limit: steps after which an episode is truncated; "default" for the id's own.
        batched: parameters given as [N] values, one for each instance.
        stagger: as in `jaxenvs.vectorize`.
        **params: parameters of the environment, such as `gravity=3.7`; of what is not JAX, options
            of `make_pool` too.

    Returns:
        `GymVectorEnv`, or `GymEnv` without `num_envs`. Of what is not JAX a `Pool`, or the
        Gymnasium environment itself; `wrappers`, `output`, `device`, `batched` and `stagger` are
        refused there.

    Raises:
        UnknownEnvironmentError, UnknownParameterError: the message names the closest.
        ParameterError: an option has no such value.
        MissingExtraError: output="torch" without PyTorch.
        ForkError: this process was forked from one that had used JAX.

    Example:
        >>> envs = jaxenvs.make_gym("CartPole-v1", num_envs=3)
        >>> observations, infos = envs.reset(seed=0)
        >>> observations.shape
        (3, 4)
    """
    _check_choice("api", api, ("gymnasium", "gym"))
    _check_choice("output", output, ("numpy", "torch"))
    _check_choice("render_mode", render_mode, (None, *RENDER_MODES))
    if is_hosted(id) or not isinstance(id, str | Environment):
        from jaxenvs.faces.pools import make_hosted_gym

        return make_hosted_gym(
            id,
            num_envs,
            seed=seed,
            autoreset_mode=autoreset_mode,
            api=api,
            render_mode=render_mode,
            validate=validate,
            time_limit=time_limit,
            params=params,
            wrappers=wrappers,
            output=output,
            device=device,
            batched=batched,
            stagger=stagger,
        )
    check_not_forked()
    mode = _native_mode(autoreset_mode)
    env, spec = make_from(id, time_limit=time_limit, **params), None
    if isinstance(id, str):
        options = {
            "seed": seed,
            "autoreset_mode": mode,
            "render_mode": render_mode,
            "wrappers": wrappers,
            "output": output,
            "validate": validate,
            "device": device_name(device),
            "batched": batched,
            "stagger": stagger,
        }
        spec = _gymnasium_spec(id, num_envs, time_limit, options, params)
    if num_envs is None:
        default: AutoresetMode = "disabled"
    else:
        default = "next_step" if api == "gymnasium" else "disabled"
    vector_env: Any = vectorize(
        env,
        1 if num_envs is None else num_envs,
        autoreset_mode=mode or default,
        batched=batched,
        stagger=stagger,
    )
    for wrapper in wrappers:
        vector_env = vector_env.wrap(wrapper)
    options = {
        "seed": seed,
        "render_mode": render_mode,
        "output": output,
        "validate": validate,
        "device": as_device(device),
        "spec": spec,
    }
    if api == "gym":
        from jaxenvs.faces.gym_classic import ClassicEnv, ClassicVectorEnv

        return (ClassicEnv if num_envs is None else ClassicVectorEnv)(vector_env, **options)
    return (GymEnv if num_envs is None else GymVectorEnv)(vector_env, **options)


class GymVectorEnv(MadeAgain, gymnasium.vector.VectorEnv):
    """N native instances as a `gymnasium.vector.VectorEnv`. Made by `make_gym`.

    Arrays that a call returns never change later, and may be written to. A copy, or what `pickle`
    loads, is a new environment with the same parameters, not reset yet.
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
        self._options = {
            "seed": seed,
            "render_mode": render_mode,
            "output": output,
            "validate": validate,
            "device": device,
            "spec": spec,
        }
        self.engine = Engine(env, device=device, validate=validate)
        self.num_envs = env.num_envs
        self._set_spaces()
        self.render_mode = render_mode
        self.spec = spec
        self.autoreset_mode = GYM_MODES[env.autoreset_mode]  # as SyncVectorEnv has it
        self.metadata = {
            "autoreset_mode": self.autoreset_mode,
            "render_modes": list(RENDER_MODES),
            "render_fps": RENDER_FPS,
        }
        self._first_seed = seed
        self._is_same_step = env.autoreset_mode == "same_step"
        self._has_info = bool(jax.eval_shape(env.reset, jax.random.key(0))[1].info)
        self._convert = torch_converter() if output == "torch" else None
        self._window = Window(RENDER_FPS)
        self._frames: list[list[np.ndarray]] = [[] for _ in range(env.num_envs)]
        self._ended = np.zeros(env.num_envs, bool)

    @property
    def env(self) -> VectorEnv:
        """The native environment, with its present parameters."""
        return self.engine.env

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Starts an episode in every instance.

        Args:
            seed: an int s gives instance i the seed s + i; or one each, where None draws one.
                What an instance does depends on its own seed alone. None goes on from the last.
            options: {"reset_mask": bool[N]} resets those instances alone; not the first time.

        Returns:
            The observations, [N, ...], and the infos.

        Raises:
            SeedError: not a seed, or not N of them.
            ParameterError: the mask is not bool[N], or all false.
        """
        mask = self._mask(options)
        if not self.engine.has_state:
            mask = None
        step = self._begin(seed, mask)
        return self._out(step.observation), self._infos(step.info, mask)

    def _begin(self, seed: Any, mask: np.ndarray | None) -> HostStep:
        seed = self._first_seed if seed is None else seed
        seeds = None if seed is None else self.engine.seeds(seed)
        step = self.engine.reset(seeds, mask)
        self._first_seed = None
        if seeds is not None:
            super().reset(seed=seeds[0])  # for those who draw from envs.np_random
        if self.render_mode is not None:
            begun = np.ones(self.num_envs, bool) if mask is None else mask
            self._ended[begun] = False
            self._render_frame(begun, begun)
        return step

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Takes one action in every instance.

        Args:
            actions: [N, ...] of the action space.

        Returns:
            Observations [N, ...], rewards float32[N], terminations bool[N], truncations bool[N]
            and infos. Under autoreset in the same step `infos["final_obs"]` and
            `infos["final_info"]` have what ended there, and masks `_final_obs`, `_final_info`
            of the instances concerned.

        Raises:
            ActionError: the actions do not fit; nothing was done.
        """
        return self._result(self.engine.step(actions))

    def step_async(self, actions: Any) -> None:
        """Starts a step and returns at once; the device works while the caller goes on."""
        self.engine.send(actions, "step_async")

    def step_wait(self, **kwargs: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Waits for the step under way and returns what `step` does."""
        return self._result(self.engine.receive())

    def _result(self, step: HostStep) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        observation, reward, terminated, truncated, any_done, _ = step
        if self.render_mode is not None:
            ended, self._ended = self._ended, terminated | truncated
            begun = {"same_step": self._ended, "next_step": ended}.get(self.env.autoreset_mode, ())
            self._render_frame(begun)
        has_infos = self._has_info or (any_done and self._is_same_step)
        infos: dict[str, Any] = {}
        if has_infos:
            # Taken now: the flags are the caller's, to write to.
            done = terminated | truncated if any_done else None
            infos = StepInfos.later(self._step_infos, step, done)
        if self._convert is not None:
            parts = map(self._convert, (observation, reward, terminated, truncated))
            return (*parts, infos)  # pyright: ignore[reportReturnType]
        return observation, reward, terminated, truncated, infos

    def send(self, action: Any, env_id: np.ndarray | None = None) -> None:
        """Starts a step as EnvPool does; all N instances take part.

        Args:
            action: [N, ...].
            env_id: int[N], the instance of each action; None for their order.

        Raises:
            ActionError: `env_id` does not name every instance once.
        """
        if env_id is not None:
            order = np.asarray(env_id)
            if not np.array_equal(np.sort(order.reshape(-1)), np.arange(self.num_envs)):
                raise ActionError(
                    f"send got env_id={order.tolist()}; all {self.num_envs} instances step"
                    " together, so each has to be named once.  Pass info['env_id'] of recv."
                )
            place = np.argsort(order)
            # What is not one for each is refused below.
            action = jax.tree.map(
                lambda part: np.asarray(part)[place] if len(part) == len(place) else part, action
            )
        self.engine.send(action, "send")

    def async_reset(self, *, seed: int | Sequence[int] | None = None) -> None:
        """Starts an episode everywhere; `recv` returns it, as in EnvPool."""
        self._received = self._begin(seed, None)

    _received: HostStep | None = None

    def recv(self) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Waits for what `send` or `async_reset` started; `info["env_id"]` is int32[N]."""
        first, self._received = self._received, None
        if first is None:
            out = self.step_wait()
        else:
            parts = (first.observation, first.reward, first.terminated, first.truncated)
            out = (*(self._out(part) for part in parts), self._infos(first.info, None))
        out[-1]["env_id"] = np.arange(self.num_envs, dtype=np.int32)
        return out

    def render(self) -> Any:
        """Frames of all instances, uint8[H, W, 3] each.

        Returns:
            A tuple of N frames; under "rgb_array_list" of N lists, of the frames since the last
            call and of this episode; under "human" None, and the window shows a mosaic.
        """
        if self.render_mode is None:
            return gymnasium.logger.warn(
                "render was called without a render_mode; make_gym(..., render_mode='rgb_array')"
                " returns frames."
            )
        self.engine.check_open("render")
        if self.render_mode == "rgb_array_list":
            frames, self._frames = self._frames, [[] for _ in range(self.num_envs)]
            return tuple(frames)
        if self.render_mode == "human":
            return self._render_frame()
        return self._draw()

    def close_extras(self, **kwargs: Any) -> None:
        """Drops the state, the window and what is in flight."""
        self.engine.close()
        self._window.close()

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Calls a method of the environment, or reads a parameter, once for each instance.

        Returns:
            N results.

        Raises:
            UnknownParameterError: there is neither.
        """
        if name == "render":
            return self.render() or (None,) * self.num_envs
        if name in self.env.parameters:
            return self.get_attr(name)
        env: Any = self.env.env if isinstance(self.env, VectorizedEnv) else self.env
        if not hasattr(env, name):  # wrappers have what every environment has
            env = env.unwrapped if isinstance(env, Environment) else env
        if not hasattr(env, name):
            raise self._unknown(name)
        value = getattr(env, name)
        return (value(*args, **kwargs) if callable(value) else value,) * self.num_envs

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Reads a parameter of every instance.

        Raises:
            UnknownParameterError: there is none of that name.
        """
        if name not in self.env.parameters:
            return self.call(name) if hasattr(self.env, name) else self._refuse(name)
        value = self.env.parameters[name]
        if name in getattr(self.env, "batched", ()):
            leaves, form = jax.tree.flatten(jax.tree.map(np.array, value))
            return tuple(jax.tree.unflatten(form, row) for row in zip(*leaves, strict=True))
        return (own_arrays(value),) * self.num_envs

    def set_attr(self, name: str, values: Any) -> None:
        """Sets a parameter: one value for all instances, or a list or tuple of N.

        The step is compiled anew. State and episodes go on.

        Raises:
            UnknownParameterError: there is no parameter of that name.
            ParameterError: not N values, of another shape, or different ones that all share.
        """
        if name not in self.env.parameters:
            self._refuse(name)
        env: Any = self.env
        is_batched = name in getattr(env, "batched", ())
        each = isinstance(values, (list, tuple))
        column: list[Any] = [*values] if each else [values] * self.num_envs
        self._check_values(name, column, self.get_attr(name)[0], each)
        differ = each and any(not _are_equal(value, column[0]) for value in column)
        if is_batched or differ:
            if not isinstance(env, VectorizedEnv) or _is_static(env.env, name):
                raise ParameterError(
                    f'set_attr("{name}") got different values for the instances of {env!r}, which'
                    " share one.  Pass a single value."
                )
            stacked = jax.tree.map(lambda *rows: jnp.asarray(rows), *column)
            changed = env.env.replace(**{name: stacked})
            batched = env.batched if is_batched else (*env.batched, name)
            env = dataclasses.replace(env, env=changed, batched=batched)
        else:
            env = env.replace(**{name: column[0]})
        self.engine.replace_env(env)
        self._set_spaces()  # a parameter may be a bound

    def _check_values(self, name: str, column: list[Any], present: Any, each: bool) -> None:
        if len(column) != self.num_envs:
            raise ParameterError(
                f'set_attr("{name}") got {len(column)} values for num_envs={self.num_envs}.'
                "  Pass one for each instance, or a single one."
            )
        for value in column:
            if isinstance(value, np.ndarray | jax.Array) and value.shape != np.shape(present):
                raise ParameterError(
                    f'set_attr("{name}") got {describe(value)} {"among" if each else "as"} its'
                    f" values; one has the shape {list(np.shape(present))}.  Pass a list,"
                    " values.tolist(), for one value per instance."
                )

    def _set_spaces(self) -> None:
        """Sets those that changed; the others keep their generators."""
        for name in ("observation_space", "action_space"):
            single = spaces.to_gymnasium(getattr(self.env, f"single_{name}"))
            if single != getattr(self, f"single_{name}", None):
                setattr(self, f"single_{name}", single)
                setattr(self, name, batch_space(single, self.num_envs))

    def _out(self, tree: Any) -> Any:
        return tree if self._convert is None else self._convert(tree)

    def _mask(self, options: dict[str, Any] | None) -> np.ndarray | None:
        if not isinstance(options, dict | None):
            raise ParameterError(
                f'reset got options={options!r:.80}; expected a dict, {{"reset_mask": mask}}.'
            )
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

    def _infos(self, info: dict[str, Any], rows: np.ndarray | None) -> dict[str, Any]:
        """Gymnasium's form of `info`: beside each entry the mask of the rows that have it."""
        rows = np.ones(self.num_envs, bool) if rows is None else rows
        infos: dict[str, Any] = {}
        for name, value in info.items():
            infos[name] = self._infos(value, rows) if isinstance(value, dict) else self._out(value)
            infos[f"_{name}"] = rows.copy()
        return infos

    def _step_infos(self, step: HostStep, done: np.ndarray | None) -> dict[str, Any]:
        infos = self._infos(step.info, None)
        if done is not None and self._is_same_step:
            infos.update(
                final_obs=self._final_observations(step.final_observation, done),
                _final_obs=done,
                final_info=self._infos(step.final_info, done),
                _final_info=done.copy(),
            )
        return infos

    def _final_observations(self, observation: Any, done: np.ndarray) -> np.ndarray:
        """object[N]: the last observation of every episode that ended, else None."""
        rows = np.flatnonzero(done)
        leaves, treedef = jax.tree.flatten(observation)
        columns = [list(self._out(leaf[rows])) for leaf in leaves]
        final = np.full(self.num_envs, None, dtype=object)
        if jax.tree_util.treedef_is_leaf(treedef):
            each: Any = columns[0]
        else:
            each = [jax.tree.unflatten(treedef, row) for row in zip(*columns, strict=True)]
        final[rows] = np.fromiter(each, dtype=object, count=len(rows))
        return final

    def _draw(self) -> tuple[np.ndarray, ...]:
        return tuple(self.engine.render(range(self.num_envs)))

    def _render_frame(self, begun: Any = (), drawn: Any = slice(None)) -> None:
        """Keeps or shows frames.

        Args:
            begun: bool[N], where an episode began, so that earlier frames are dropped; () nowhere.
            drawn: which instances have a new frame.
        """
        if self.render_mode == "rgb_array_list":
            for i in np.flatnonzero(begun):
                self._frames[i] = []
            rows = np.arange(self.num_envs)[drawn]
            for i, frame in zip(rows, self.engine.render(rows.tolist()), strict=True):
                self._frames[i].append(frame)
        elif self.render_mode == "human":
            self._window.show(mosaic(self._draw()))

    def _unknown(self, name: str) -> UnknownParameterError:
        known = self.env.parameters
        return UnknownParameterError(
            f'{self.env!r} has no parameter "{name}".{closest(name, known)}'
            f"  It has: {', '.join(known) or 'none'}."
        )

    def _refuse(self, name: str) -> Any:
        raise self._unknown(name)


class GymEnv(MadeAgain, gymnasium.Env):
    """One native instance as a `gymnasium.Env`. Made by `make_gym` without `num_envs`.

    `reset(seed=s)` begins the trajectory that an instance with seed s has in a `GymVectorEnv`.
    A copy, or what `pickle` loads, is a new environment with the same parameters, not reset yet.
    """

    metadata = {"render_modes": list(RENDER_MODES), "render_fps": RENDER_FPS}  # noqa: RUF012

    def __init__(
        self,
        env: VectorEnv,
        *,
        seed: int | None = None,
        render_mode: str | None = None,
        output: Literal["numpy", "torch"] = "numpy",
        validate: bool = True,
        device: jax.Device | None = None,
        spec: Any = None,
    ) -> None:
        self._batch = GymVectorEnv(
            env, render_mode=render_mode, output=output, validate=validate, device=device
        )
        self._options = {**self._batch._options, "seed": seed}
        self.observation_space = self._batch.single_observation_space
        self.action_space = self._batch.single_action_space
        self.render_mode = render_mode
        self.spec = spec
        self._first_seed = seed

    @property
    def env(self) -> VectorEnv:
        """The native environment, a batch of one."""
        return self._batch.env

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Starts an episode; `seed` makes it, and all that follow, reproducible.

        Raises:
            SeedError: not a seed.
        """
        del options  # there is nothing to choose
        seed = self._first_seed if seed is None else seed
        if seed is not None:
            (seed,) = self._batch.engine.seeds([seed])
        observations, infos = self._batch.reset(seed=seed)
        self._first_seed = None
        super().reset(seed=seed)  # for those who draw from env.np_random
        return _row(self.observation_space, observations), _row_infos(infos)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Takes one action.

        Returns:
            Observation, reward, whether the task terminated, whether the episode was cut, infos.

        Raises:
            ActionError: the action does not fit.
        """
        step = step_one(self._batch.engine, self.action_space, action)
        observations, rewards, terminated, truncated, infos = self._batch._result(step)
        return (
            _row(self.observation_space, observations),
            float(rewards[0]),
            bool(terminated[0]),
            bool(truncated[0]),
            _row_infos(infos),
        )

    def render(self) -> Any:
        """A frame, uint8[H, W, 3]; the frames since the last call under "rgb_array_list"."""
        frames = self._batch.render()
        return None if frames is None else frames[0]

    def close(self) -> None:
        """Drops the state and the window."""
        self._batch.close()

    def has_wrapper_attr(self, name: str) -> bool:
        """Whether there is such a parameter, or such an attribute of this object."""
        return name in self.env.parameters or super().has_wrapper_attr(name)

    def get_wrapper_attr(self, name: str) -> Any:
        """A parameter of the environment, or an attribute of this object."""
        if name in self.env.parameters:
            return self._batch.get_attr(name)[0]
        return super().get_wrapper_attr(name)

    def set_wrapper_attr(self, name: str, value: Any, *, force: bool = True) -> bool:
        """Sets a parameter of the environment, or an attribute of this object.

        A parameter takes effect from the next step on; spaces that depend on it change too.
        """
        if name not in self.env.parameters:
            return super().set_wrapper_attr(name, value, force=force)
        self._batch.set_attr(name, [value])
        self.observation_space = self._batch.single_observation_space
        self.action_space = self._batch.single_action_space
        return True


def _gymnasium_spec(
    id: str,
    num_envs: int | None,
    time_limit: Any,
    options: dict[str, Any],
    params: dict[str, Any],
) -> Any:
    """Gymnasium's entry for `id`, from which `make` or `make_vec` makes the same again."""
    entry = gymnasium.registry.get(gymnasium_id(id))
    if entry is None:  # an id that Gymnasium cannot read
        return None
    defaults = make_gym.__kwdefaults__ or {}
    given = {name: value for name, value in options.items() if value is not defaults[name]}
    if num_envs is not None:
        given |= {"num_envs": num_envs, "vectorization_mode": "vector_entry_point"}
        if "wrappers" in given:  # which make_vec takes for Gymnasium's own
            given["native_wrappers"] = given.pop("wrappers")
    limit = entry.max_episode_steps if isinstance(time_limit, str) else time_limit
    return dataclasses.replace(
        entry, max_episode_steps=limit, kwargs={**entry.kwargs, **given, **params}
    )


def _is_static(env: Any, name: str) -> bool:
    """Whether parameter `name` of `env`, or of what it wraps, decides the program."""
    own = any(field.name == name and struct.is_static(field) for field in dataclasses.fields(env))
    return own or (isinstance(env, Wrapper) and _is_static(env.env, name))


def _are_equal(value: Any, other: Any) -> bool:
    (leaves, form), (others, form_of_other) = map(jax.tree.flatten, (value, other))
    return form == form_of_other and all(map(np.array_equal, leaves, others))


def _row(space: gymnasium.Space, batch: Any) -> Any:
    """The only row of `batch`, as a member of `space`."""
    if isinstance(space, gymnasium.spaces.Dict):
        return {key: _row(part, batch[key]) for key, part in space.items()}
    if isinstance(space, gymnasium.spaces.Tuple):
        return tuple(_row(part, batch[i]) for i, part in enumerate(space.spaces))
    if isinstance(space, gymnasium.spaces.Discrete) and isinstance(batch, np.ndarray):
        return np.int64(batch[0])
    return batch[0, ...]  # an array even where [0] would give a number


def _row_infos(infos: dict[str, Any]) -> dict[str, Any]:
    """What the infos of a batch of one say of its only instance."""
    return {
        name: _row_infos(value) if isinstance(value, dict) else value[0]
        for name, value in infos.items()
        if f"_{name}" in infos and infos[f"_{name}"][0]
    }


def _native_mode(mode: Any) -> AutoresetMode | None:
    names = {gym_mode: name for name, gym_mode in GYM_MODES.items()}
    mode = names.get(mode, mode) if isinstance(mode, GymAutoresetMode) else mode
    mode = {gym_mode.value: name for gym_mode, name in names.items()}.get(mode, mode)
    _check_choice("autoreset_mode", mode, (None, *GYM_MODES))
    return mode


def _check_choice(name: str, value: Any, choices: Sequence[Any]) -> None:
    if value not in choices:
        known = [choice for choice in choices if choice is not None]
        raise ParameterError(
            f"make_gym got {name}={value!r}; expected one of {list(choices)}."
            f"{closest(str(value), known)}"
        )
