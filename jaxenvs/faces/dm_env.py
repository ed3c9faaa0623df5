"""The dm_env interface: `TimeStep`s that say where an episode begins and ends, and specs."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import jax
import numpy as np

from jaxenvs import spaces
from jaxenvs._forks import check_not_forked
from jaxenvs.core import Environment, VectorEnv
from jaxenvs.errors import missing_extra
from jaxenvs.faces._copies import MadeAgain
from jaxenvs.faces._engine import Engine, as_device
from jaxenvs.faces._programs import HostStep
from jaxenvs.faces._single import row, step_one
from jaxenvs.factory import is_hosted, make_from
from jaxenvs.vector.vectorize import vectorize

if TYPE_CHECKING:
    from jaxenvs.bridge.pool import Pool

dm_env: Any
specs: Any
try:
    import dm_env
    from dm_env import specs
except ImportError:  # make_dm says what to install
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
    """Makes an id for programs that know dm_env.

    Args:
        id: a registered id, or an `Environment`; or what is not JAX, an id with its library in
            front, "gymnasium/CartPole-v1", a function that makes one, or a pool of `make_pool` with
            autoreset "next_step", whose arrays are views unless it was made with `copy=True`.
        num_envs: N for `TimeStep`s of arrays, [N, ...]; None for a plain `dm_env.Environment`.
        seed: of the first episode, from which all that follow are drawn. An int s gives instance
            i the seed s + i; or one each.
        time_limit: steps after which an episode is truncated; None for no limit, "default" for
            the id's own. An `Environment` has none of its own.
        wrappers: from `jaxenvs.wrappers`, the innermost first; compiled with the step.
        validate: refuse actions out of range or not a number.
        device: where the environment runs, a `jax.Device` or "cpu", "gpu", "tpu"; None is the
            CPU.
        **params: parameters of the environment, such as `gravity=3.7`; of what is not JAX, options
            of `make_pool` too.

    Returns:
        `DmEnv`, or `DmVectorEnv` with `num_envs`.

    Raises:
        UnknownEnvironmentError, UnknownParameterError: the message names the closest.
        ParameterError: the time limit is less than one step, or no number; wrappers or a device
            for what is not JAX.
        SeedError: not a seed, or not N of them.
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
    if is_hosted(id) or not isinstance(id, str | Environment):
        from jaxenvs.faces.pools import make_hosted_dm

        return make_hosted_dm(
            id,
            num_envs,
            seed=seed,
            validate=validate,
            time_limit=time_limit,
            params=params,
            wrappers=wrappers,
            device=device,
        )
    check_not_forked()
    env = make_from(id, time_limit=time_limit, **params)
    vector_env: Any = vectorize(
        env, 1 if num_envs is None else num_envs, autoreset_mode="next_step"
    )
    for wrapper in wrappers:
        vector_env = vector_env.wrap(wrapper)
    return (DmEnv if num_envs is None else DmVectorEnv)(
        vector_env, seed=seed, validate=validate, device=as_device(device)
    )


class _Dm(MadeAgain, _Environment):
    """What one environment and a batch have in common."""

    def __init__(
        self,
        env: "VectorEnv | Pool",
        *,
        seed: int | Sequence[int] | None = None,
        validate: bool = True,
        device: jax.Device | None = None,
    ) -> None:
        self._options = {"seed": seed, "validate": validate, "device": device}
        self.engine: Any
        self._specs: Any
        self._is_native = isinstance(env, VectorEnv)
        if isinstance(env, VectorEnv):
            self.engine = Engine(env, device=device, validate=validate)
            self._specs = spaces.to_dm_env
        else:
            from jaxenvs.faces.pools import PoolEngine, specs_of

            self.engine, self._specs = PoolEngine(env), specs_of
        self.engine.seeds(seed)  # refuses now what reset would refuse
        self._seed = seed
        self._is_started = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.env!r})"

    @property
    def env(self) -> "VectorEnv | Pool":
        """The native environment, or the pool."""
        return self.engine.env

    def close(self) -> None:
        """Drops the state."""
        self.engine.close()

    def _restarted(self, step: HostStep) -> Any:
        """bool[N]: where an environment was made anew, so that an episode has begun; or False."""
        return not self._is_native and step.info["restarted"]

    def _begin(self) -> HostStep:
        step = self.engine.reset(self._seed)
        self._seed, self._is_started = None, True
        return step


class DmEnv(_Dm):
    """One instance as a `dm_env.Environment`. Made by `make_dm`.

    Does what an instance of a `DmVectorEnv` with the same seed does. A copy, or what `pickle`
    loads, is a new environment, not reset yet.
    """

    def __init__(self, env: "VectorEnv | Pool", **options: Any) -> None:
        super().__init__(env, **options)
        space: Any = env.single_action_space
        self._action_space = spaces.to_gymnasium(space) if self._is_native else space
        self._ended_by: Any = None  # the action that led to LAST, after which any other is ignored

    def reset(self) -> Any:
        """Starts an episode: FIRST, with neither reward nor discount."""
        self._ended_by = None
        return dm_env.restart(row(self._begin().observation))

    def step(self, action: Any) -> Any:
        """Takes one action.

        Before any `reset`, and after LAST, it starts an episode instead and ignores the action.

        Returns:
            A `TimeStep`; its discount is 0 where the task terminated, and 1 in every other step,
            truncations included.

        Raises:
            ActionError: the action does not fit.
        """
        if not self._is_started:
            return self.reset()
        if self._ended_by is not None:
            step = step_one(self.engine, self._action_space, self._ended_by)
            self._ended_by = None
            return dm_env.restart(row(step.observation))
        step = step_one(self.engine, self._action_space, action)
        reward, observation = float(step.reward[0]), row(step.observation)
        if np.any(self._restarted(step)):
            return dm_env.restart(observation)
        if not step.any_done:
            return dm_env.transition(reward, observation)
        self._ended_by = jax.tree.map(np.array, action)  # the caller's may change
        end = dm_env.termination if step.terminated[0] else dm_env.truncation
        return end(reward, observation)

    def observation_spec(self) -> Any:
        """The spec of an observation; of a `Dict` or `Tuple`, a dict or tuple of specs."""
        return self._specs(self.env.single_observation_space, "observation")

    def action_spec(self) -> Any:
        """The spec of an action, likewise."""
        return self._specs(self.env.single_action_space, "action")


class DmVectorEnv(_Dm):
    """N instances behind dm_env's interface. Made by `make_dm` with `num_envs`.

    A `TimeStep` holds arrays: `step_type` int32[N] of `dm_env.StepType`'s values, `reward` and
    `discount` float32[N], `observation` [N, ...]; `timestep.last()` is therefore bool[N]. Each
    instance goes its own way: the step after its LAST ignores its action and is the FIRST of its
    next episode. There is no None in an array, so FIRST rows have reward 0 and discount 1. An
    environment of a pool that had to be made anew is at a FIRST that no LAST precedes.
    """

    def __init__(self, env: "VectorEnv | Pool", **options: Any) -> None:
        super().__init__(env, **options)
        self.num_envs = env.num_envs
        self._goes_on = np.zeros(self.num_envs, bool)  # where the next step is no FIRST

    def reset(self) -> Any:
        """Starts an episode in every instance."""
        self._goes_on = np.zeros(self.num_envs, bool)
        return self._timestep(self._begin())

    def step(self, action: Any) -> Any:
        """Takes one action in every instance; before any `reset` it starts them instead.

        Args:
            action: [N, ...], valid in ended instances too.

        Returns:
            A `TimeStep` of arrays.

        Raises:
            ActionError: the actions do not fit; nothing was done.
        """
        return self._timestep(self.engine.step(action)) if self._is_started else self.reset()

    def observation_spec(self) -> Any:
        """The spec of N observations; of a `Dict` or `Tuple`, a dict or tuple of [N, ...] specs."""
        return self._specs(self.env.observation_space, "observation")

    def action_spec(self) -> Any:
        """The spec of N actions, likewise; N discrete actions are a `BoundedArray` of ints."""
        return self._specs(self.env.action_space, "action")

    def single_observation_spec(self) -> Any:
        """The spec of one instance's observation."""
        return self._specs(self.env.single_observation_space, "observation")

    def single_action_spec(self) -> Any:
        """The spec of one instance's action."""
        return self._specs(self.env.single_action_space, "action")

    def reward_spec(self) -> Any:
        """float32[N]; float64[N] of a pool."""
        dtype = np.float32 if self._is_native else np.float64
        return specs.Array((self.num_envs,), dtype, "reward")

    def discount_spec(self) -> Any:
        """float32[N], from 0 to 1."""
        return specs.BoundedArray((self.num_envs,), np.float32, 0.0, 1.0, "discount")

    def _timestep(self, step: HostStep) -> Any:
        done = step.terminated | step.truncated
        # FIRST is 0, where an episode began; MID is 1, and LAST 2.
        step_type = np.add(self._goes_on, done, dtype=np.int32)
        self._goes_on = ~done
        restarted = self._restarted(step)
        if np.any(restarted):  # FIRST of an episode whose forerunner broke off
            step_type[restarted], self._goes_on[restarted] = 0, True
        discount = np.subtract(1, step.terminated, dtype=np.float32)
        return dm_env.TimeStep(step_type, step.reward, discount, step.observation)
