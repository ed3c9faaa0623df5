"""The dm_env interface: `TimeStep`s that mark the start and the end of episodes, and specs."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import gymnasium
import jax
import numpy as np

from jaxenvs import spaces
from jaxenvs.core import Environment, VectorEnv
from jaxenvs.errors import ParameterError, PoolError, missing_extra
from jaxenvs.faces._host_timestep import HostTimeStep
from jaxenvs.faces._native import make_native_batch
from jaxenvs.faces._pickling import EzPickleMixin
from jaxenvs.faces._pool_runner import PoolRunner
from jaxenvs.faces._runner import BatchRunner, parse_device
from jaxenvs.faces._single import step_single, take_rows
from jaxenvs.factory import check_no_native_options, is_native

if TYPE_CHECKING:
    from jaxenvs.bridge.pool import Pool

dm_env: Any
specs: Any
try:
    import dm_env
    from dm_env import specs
except ImportError:  # make_dm raises MissingExtraError
    dm_env = specs = None
_Environment: Any = object if dm_env is None else dm_env.Environment


def make_dm(
    id: "str | Environment | Pool",
    num_envs: int | None = None,
    *,
    seed: int | Sequence[int] | None = None,
    time_limit: int | None | Literal["default"] = "default",
    wrappers: Sequence[Callable[[Any], Any]] = (),
    validate: bool = True,
    device: jax.Device | str | None = None,
    **params: Any,
) -> Any:
    """Makes an environment for programs that use dm_env.

    Args:
        id: a registered id or an `Environment`. For environments that are not written in JAX: an id
            with its library in front, such as "gymnasium/CartPole-v1", a function that makes an
            environment, or a pool from `make_pool` with autoreset_mode="next_step"; a pool returns
            views unless it was made with `copy=True`.
        num_envs: N for `TimeStep`s of arrays, [N, ...]; None for a plain `dm_env.Environment`.
        seed: the seed of the first episode and of all that follow. An int s gives instance i the
            seed s + i; a sequence has one seed per instance.
        time_limit: the number of steps after which an episode is truncated; None for no limit,
            "default" for the limit of the id. An `Environment` has no default limit.
        wrappers: wrappers to compile into the step, innermost first, as for `VectorEnv.wrap`: a
            class from `jaxenvs.wrappers`, a `functools.partial` of one, or a function that takes a
            batch and returns one.
        validate: whether to refuse actions that are out of range or NaN.
        device: the device that the environment runs on, a `jax.Device` or "cpu", "gpu", "tpu";
            None is the CPU.
        **params: parameters of the environment, such as `gravity=3.7`. For an environment that is
            not written in JAX, options of `make_pool` too.

    Returns:
        A `DmEnv`, or a `DmVectorEnv` with `num_envs`.

    Raises:
        UnknownEnvironmentError: there is no such id; the message names the closest one.
        UnknownParameterError: there is no such parameter; the message names the closest one.
        ParameterError: the time limit is not an integer of at least 1; or wrappers or a device were
            given for an environment that is not written in JAX.
        WrapperError: a wrapper is not one of jaxenvs, or does not return a batch.
        SeedError: a seed is invalid, or the number of seeds is not N.
        MissingExtraError: dm-env is not installed.
        ForkError: this process was forked from one that had used JAX.

    Example:
        >>> env = jaxenvs.make_dm("CartPole-v1", seed=0)
        >>> env.reset().step_type
        <StepType.FIRST: 0>
        >>> env.step(1).reward
        1.0
    """
    if dm_env is None:
        raise missing_extra("make_dm", "dm-env", "dm")
    is_single = num_envs is None
    if not is_native(id):
        # Imported here because most programs need no pools.
        from jaxenvs.faces._hosted import make_over_pool

        check_no_native_options(ParameterError, "make_dm", id, wrappers=wrappers, device=device)
        return make_over_pool(
            "make_dm",
            id,
            num_envs,
            (DmVectorEnv, DmEnv),
            validate=validate,
            time_limit=time_limit,
            options=params,
            defaults={"autoreset_mode": "next_step"},
            seed=seed,
        )
    env = make_native_batch(
        id,
        1 if is_single else num_envs,
        autoreset_mode="next_step",
        wrappers=wrappers,
        time_limit=time_limit,
        params=params,
        device=parse_device(device),
    )
    cls = DmEnv if is_single else DmVectorEnv
    return cls(env, seed=seed, validate=validate, device=parse_device(device))


class _DmBase(EzPickleMixin, _Environment):
    """The common part of `DmEnv` and `DmVectorEnv`."""

    def __init__(
        self,
        env: "VectorEnv | Pool",
        *,
        seed: int | Sequence[int] | None = None,
        validate: bool = True,
        device: jax.Device | None = None,
    ) -> None:
        self.runner: BatchRunner | PoolRunner
        self._make_spec: Any
        self._is_native = isinstance(env, VectorEnv)
        if isinstance(env, VectorEnv):
            self.runner = BatchRunner(
                env, device=device, validate=validate, discrete_dtype=np.int32
            )
            self._make_spec = spaces.to_dm_env
        else:
            if env.autoreset_mode != "next_step":
                raise PoolError(
                    f'make_dm got {env!r} with autoreset_mode="{env.autoreset_mode}"; in dm_env, an'
                    " episode starts with a step of its own.  Make it with"
                    ' autoreset_mode="next_step".'
                )
            self.runner, self._make_spec = PoolRunner(env), _spec_of_gymnasium_space
        self.runner.parse_seeds(seed)  # raises early
        self._seed = seed
        self._has_state = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.env!r})"

    @property
    def env(self) -> "VectorEnv | Pool":
        """The native environment, or the pool."""
        return self.runner.env

    def close(self) -> None:
        """Drops the state."""
        self.runner.close()

    def _restarted(self, timestep: HostTimeStep) -> Any:
        """Returns bool[N]: whether the pool replaced an environment, which starts an episode."""
        return not self._is_native and timestep.info["restarted"]

    def _start_episodes(self) -> HostTimeStep:
        timestep = self.runner.reset(self._seed)
        self._seed, self._has_state = None, True
        return timestep


class DmEnv(_DmBase):
    """One instance as a `dm_env.Environment`. `make_dm` makes it.

    It behaves like an instance of a `DmVectorEnv` with the same seed. A copied or unpickled
    environment is a new one, which has to be reset first.
    """

    def __init__(self, env: "VectorEnv | Pool", **options: Any) -> None:
        super().__init__(env, **options)
        space: Any = env.single_action_space
        self._action_space = spaces.to_gymnasium(space) if self._is_native else space
        # The action that led to LAST. The next step ignores its action, and takes this valid one.
        self._last_action: Any = None

    def reset(self) -> Any:
        """Starts an episode.

        Returns:
            A FIRST `TimeStep`; its reward and discount are None.
        """
        self._last_action = None
        return dm_env.restart(take_rows(self._start_episodes().observation))

    def step(self, action: Any) -> Any:
        """Takes one action.

        Before the first `reset`, and after LAST, it ignores the action and starts an episode.

        Returns:
            A `TimeStep`. Its discount is 0 if the task terminated and 1 otherwise, even if the
            episode was truncated.

        Raises:
            ActionError: the action does not fit.
        """
        if not self._has_state:
            return self.reset()
        if self._last_action is not None:
            timestep = step_single(self.runner.step, self._action_space, self._last_action)
            self._last_action = None
            return dm_env.restart(take_rows(timestep.observation))
        timestep = step_single(self.runner.step, self._action_space, action)
        reward, observation = float(timestep.reward[0]), take_rows(timestep.observation)
        if np.any(self._restarted(timestep)):
            return dm_env.restart(observation)
        if not timestep.any_done:
            return dm_env.transition(reward, observation)
        self._last_action = jax.tree.map(np.array, action)  # the caller may write to `action`
        end = dm_env.termination if timestep.terminated[0] else dm_env.truncation
        return end(reward, observation)

    def observation_spec(self) -> Any:
        """Returns the spec of an observation: for a `Dict` or `Tuple`, a dict or tuple of specs."""
        return self._make_spec(self.env.single_observation_space, "observation")

    def action_spec(self) -> Any:
        """Returns the spec of an action: for a `Dict` or `Tuple`, a dict or tuple of specs."""
        return self._make_spec(self.env.single_action_space, "action")


class DmVectorEnv(_DmBase):
    """N instances with dm_env's interface. `make_dm` makes it with `num_envs`.

    A `TimeStep` holds arrays: `step_type` int32[N], values of `dm_env.StepType`; `reward` and
    `discount` float32[N]; `observation` [N, ...]. So `timestep.last()` is bool[N]. Each instance
    has its own episodes: the step after its LAST ignores its action and returns the FIRST of its
    next episode. Arrays cannot hold None, so FIRST has reward 0 and discount 1. If a pool has to
    replace an environment, its episode is cut off, and the next FIRST comes without a LAST.
    """

    def __init__(self, env: "VectorEnv | Pool", **options: Any) -> None:
        super().__init__(env, **options)
        self.num_envs = env.num_envs
        self._continues = np.zeros(self.num_envs, bool)  # whether the next step is not a FIRST

    def reset(self) -> Any:
        """Starts an episode in every instance.

        Returns:
            A `TimeStep` of arrays, FIRST in every instance.
        """
        self._continues = np.zeros(self.num_envs, bool)
        return self._to_dm_timestep(self._start_episodes())

    def step(self, action: Any) -> Any:
        """Takes one action in every instance; before the first `reset`, it resets instead.

        Args:
            action: [N, ...]; valid in finished instances too.

        Returns:
            A `TimeStep` of arrays.

        Raises:
            ActionError: the actions do not fit; no step was taken.
        """
        return self._to_dm_timestep(self.runner.step(action)) if self._has_state else self.reset()

    def observation_spec(self) -> Any:
        """Returns the spec of N observations; for a `Dict` or `Tuple`, a dict or tuple of specs."""
        return self._make_spec(self.env.observation_space, "observation")

    def action_spec(self) -> Any:
        """Returns the spec of N actions; N discrete actions are a `BoundedArray` of ints."""
        return self._make_spec(self.env.action_space, "action")

    def single_observation_spec(self) -> Any:
        """Returns the spec of one instance's observation."""
        return self._make_spec(self.env.single_observation_space, "observation")

    def single_action_spec(self) -> Any:
        """Returns the spec of one instance's action."""
        return self._make_spec(self.env.single_action_space, "action")

    def reward_spec(self) -> Any:
        """Returns the spec of the rewards: float32[N], or float64[N] for a pool."""
        dtype = np.float32 if self._is_native else np.float64
        return specs.Array((self.num_envs,), dtype, "reward")

    def discount_spec(self) -> Any:
        """Returns the spec of the discounts: float32[N], from 0 to 1."""
        return specs.BoundedArray((self.num_envs,), np.float32, 0.0, 1.0, "discount")

    def _to_dm_timestep(self, timestep: HostTimeStep) -> Any:
        done = timestep.terminated | timestep.truncated
        # FIRST is 0, MID is 1 and LAST is 2.
        step_type = np.add(self._continues, done, dtype=np.int32)
        self._continues = ~done
        restarted = self._restarted(timestep)
        if np.any(restarted):  # FIRST of a new episode; the previous one was cut off
            step_type[restarted], self._continues[restarted] = 0, True
        discount = np.subtract(1, timestep.terminated, dtype=np.float32)
        return dm_env.TimeStep(step_type, timestep.reward, discount, timestep.observation)


def _spec_of_gymnasium_space(space: gymnasium.Space, name: str) -> Any:
    """Returns dm_env's spec of a Gymnasium space, or a dict or tuple of specs; keeps dtypes."""
    make = _spec_of_gymnasium_space
    if isinstance(space, gymnasium.spaces.Dict):
        return {key: make(part, f"{name}/{key}") for key, part in space.spaces.items()}
    if isinstance(space, gymnasium.spaces.Tuple):
        return tuple(make(part, f"{name}/{i}") for i, part in enumerate(space.spaces))
    low: Any
    high: Any
    dtype: Any = space.dtype
    if isinstance(space, gymnasium.spaces.Discrete):
        if not space.start:
            return specs.DiscreteArray(int(space.n), dtype, name)
        low, high = space.start, space.start + space.n - 1
    elif isinstance(space, gymnasium.spaces.MultiDiscrete):
        low, high = space.start, space.start + space.nvec - 1
    elif isinstance(space, gymnasium.spaces.MultiBinary):
        low, high = 0, 1
    elif isinstance(space, gymnasium.spaces.Box):
        low, high = space.low, space.high
        if np.isneginf(low).all() and np.isposinf(high).all():
            return specs.Array(space.shape, dtype, name)
    else:
        raise PoolError(f"dm_env has no spec for {space}.")
    return specs.BoundedArray(space.shape, dtype, low, high, name)
