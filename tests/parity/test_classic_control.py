"""Parity of the classic control tasks with Gymnasium, step by step from the same states.

Gymnasium runs in NumPy and every step is recorded. jaxenvs then takes all of these steps in one
batch. States and actions are float32 numbers, so that both sides start from the same values.
"""

import dataclasses
import functools
import itertools
import types
from collections.abc import Mapping
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from gymnasium.envs.classic_control import (
    acrobot,
    cartpole,
    continuous_mountain_car,
    mountain_car,
    pendulum,
)

import jaxenvs
from benchmarks.oracles.classic_control import HEAVY_POLE, LINKS
from jaxenvs.envs.classic_control import (
    AcrobotState,
    CartPoleState,
    MountainCarState,
    PendulumState,
)
from jaxenvs.spaces import to_gymnasium
from jaxenvs.wrappers.time_limit import TimeLimitState
from tests.ids import every_nth

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*CartPole-v0 is out of date:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*has already returned terminated:UserWarning"),
]

EPISODES, STEPS = 30, 10_000  # the minimum of each
REFERENCE_MODULES = (acrobot, cartpole, continuous_mountain_car, mountain_car, pendulum)
STATES = {
    "CartPole": CartPoleState,
    "MountainCar": MountainCarState,
    "MountainCarContinuous": MountainCarState,
    "Acrobot": AcrobotState,
    "Pendulum": PendulumState,
}
WIDE_STARTS = {  # reset options that cover the state space better than random play does
    "CartPole": {"low": -0.2, "high": 0.2},
    "MountainCar": {"low": -1.19, "high": 0.49},
    "MountainCarContinuous": {"low": -1.19, "high": 0.44},
    "Acrobot": {"low": -3.1, "high": 3.1},
    "Pendulum": {"x_init": 3.0, "y_init": 8.0},
}


@dataclasses.dataclass(frozen=True)
class Case:
    """One configuration, applied to both sides."""

    id: str
    tolerance: float  # absolute, for state, observation and reward in float32
    ours: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    theirs: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # attributes to set
    made_with: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # constructor arguments
    max_steps: int | None = None  # replaces the time limit of the id

    @property
    def task(self) -> str:
        return self.id.split("-")[0]

    def __str__(self) -> str:
        return "-".join([self.id, *self.ours])


def set_on_both(id: str, tolerance: float, max_steps: int | None = None, **values: Any) -> Case:
    """Returns a case whose parameters are attributes of the same names on both sides."""
    return Case(id, tolerance, ours=values, theirs=values, max_steps=max_steps)


def made_with(id: str, tolerance: float, max_steps: int | None = None, **values: Any) -> Case:
    """Returns a case whose parameters are arguments of the constructors of both sides."""
    return Case(id, tolerance, ours=values, made_with=values, max_steps=max_steps)


SLOW_PENDULUM = {"dt": 0.03, "max_speed": 6.0, "max_torque": 1.5}
# About twice the largest measured error: a few units in the last place of the compared numbers. The
# pendulum's angle is not wrapped and grows to 80.
CARTPOLE, CAR, ACROBOT, PENDULUM = 1e-6, 2.5e-7, 2e-6, 8e-6
CASES = [
    Case("CartPole-v0", CARTPOLE),
    Case("CartPole-v1", CARTPOLE),
    set_on_both("CartPole-v1", CARTPOLE, kinematics_integrator="semi-implicit euler"),
    made_with("CartPole-v1", CARTPOLE, sutton_barto_reward=True),
    Case(
        "CartPole-v1",
        CARTPOLE,
        ours=HEAVY_POLE,
        theirs=HEAVY_POLE | {"total_mass": 0.3 + 2.0, "polemass_length": 0.3 * 0.8},
    ),
    set_on_both("CartPole-v1", CARTPOLE, tau=0.05, theta_threshold_radians=0.4, x_threshold=1.0),
    Case("MountainCar-v0", CAR),
    made_with("MountainCar-v0", CAR, goal_velocity=0.03),
    set_on_both(
        "MountainCar-v0", CAR, force=0.004, gravity=0.002, max_speed=0.05, goal_position=0.3
    ),
    Case("MountainCarContinuous-v0", CAR),
    made_with("MountainCarContinuous-v0", CAR, 200, goal_velocity=0.03),
    set_on_both(
        *("MountainCarContinuous-v0", CAR, 200),
        power=0.004,
        max_action=0.8,
        max_speed=0.05,
        min_position=-1.0,
    ),
    Case("Acrobot-v1", ACROBOT),
    set_on_both("Acrobot-v1", ACROBOT, 150, book_or_nips="nips"),
    Case(
        "Acrobot-v1",
        ACROBOT,
        ours=LINKS | {"dt": 0.1},
        theirs={name.upper(): value for name, value in LINKS.items()} | {"dt": 0.1},
        max_steps=150,
    ),
    set_on_both("Acrobot-v1", ACROBOT, 150, torque_noise_max=0.5),
    Case("Pendulum-v1", PENDULUM),
    made_with("Pendulum-v1", PENDULUM, g=3.7),
    Case(
        "Pendulum-v1",
        PENDULUM,
        ours={"mass": 0.7, "length": 1.3, **SLOW_PENDULUM},
        theirs={"m": 0.7, "l": 1.3, **SLOW_PENDULUM},
    ),
]
each_case = pytest.mark.parametrize("case", CASES, ids=str)
IDS = sorted({case.id for case in CASES})


@dataclasses.dataclass
class Transitions:
    """S recorded steps of the reference."""

    state: np.ndarray  # float64[S, n], before the step
    elapsed: np.ndarray  # int32[S]
    action: np.ndarray  # [S, ...]
    noise: np.ndarray  # float64[S], added to the torque
    next_state: np.ndarray  # float64[S, n]
    observation: np.ndarray  # [S, m]
    reward: np.ndarray  # float64[S]
    terminated: np.ndarray  # bool[S]
    truncated: np.ndarray  # bool[S]


class RecordedNoise:
    """A replacement for the reference's generator that records its draws."""

    def __init__(self, seed: int) -> None:
        self.generator, self.last = np.random.default_rng(seed), 0.0

    def uniform(self, low: float, high: float) -> float:
        self.last = float(np.float32(self.generator.uniform(low, high)))
        return self.last


def make_reference(case: Case) -> gymnasium.Env:
    env = gymnasium.make(
        case.id,
        disable_env_checker=True,
        max_episode_steps=case.max_steps,
        **case.made_with,
    )
    for name, value in case.theirs.items():
        assert hasattr(env.unwrapped, name)
        setattr(env.unwrapped, name, value)
    return env


def random_action(env: gymnasium.Env, random: np.random.Generator, double: bool) -> Any:
    if isinstance(env.action_space, gymnasium.spaces.Discrete):
        return int(random.integers(env.action_space.n))
    bound = 1.5 * env.action_space.high  # a third of the actions are out of bounds
    action = random.uniform(-bound, bound).astype(np.float32)
    return action.astype(np.float64) if double else action


def climbing_action(env: gymnasium.Env, action: Any) -> Any:
    """Pushes in the direction of the velocity, which takes a mountain car to the goal."""
    forwards = env.unwrapped.state[1] >= 0
    if isinstance(env.action_space, gymnasium.spaces.Discrete):
        return 2 if forwards else 0
    return np.abs(action) if forwards else -np.abs(action)


def play(case: Case, double: bool) -> Transitions:
    """Runs the reference with random actions, alternating its own and wide initial states.

    Mountain cars run the same number of extra episodes with mostly climbing actions, because they
    rarely reach the goal at random.
    """
    env, random = make_reference(case), np.random.default_rng(7)
    noise, records, random_steps = RecordedNoise(seed=8), [], 0
    climbs = case.task.startswith("MountainCar")
    for episode in itertools.count():
        climbing = climbs and episode % 3 == 2
        env.reset(seed=episode, options=WIDE_STARTS[case.task] if episode % 2 else None)
        elapsed, done = 0, False
        while not done:
            action = random_action(env, random, double)
            if climbing and random.uniform() < 0.9:
                action = climbing_action(env, action)
            state = np.asarray(env.unwrapped.state, np.float32).astype(np.float64)
            env.unwrapped.state = state.astype(np.float64 if double else played_dtype(case))
            if case.task == "Acrobot":
                env.unwrapped._np_random = noise
            observation, reward, terminated, truncated, _ = env.step(action)
            if case.task == "Acrobot":
                env.unwrapped._np_random = None
            after = np.asarray(env.unwrapped.state, np.float64)
            flags = (terminated, truncated)
            records.append((state, elapsed, action, noise.last, after, observation, reward, *flags))
            elapsed, done = elapsed + 1, terminated or truncated
        random_steps += 0 if climbing else elapsed
        random_episodes = (episode + 1) * 2 // 3 if climbs else episode + 1
        if random_episodes >= EPISODES and random_steps >= STEPS:
            return Transitions(*(np.array(column) for column in zip(*records, strict=True)))
    raise AssertionError


def played_dtype(case: Case) -> Any:
    """Returns the dtype in which the reference stores its state between steps."""
    return np.float32 if case.task == "MountainCarContinuous" else np.float64


@functools.cache
def played(case_index: int, double: bool) -> Transitions:
    """Calls `play`. With `double`, the reference does not round to float32."""
    with pytest.MonkeyPatch.context() as patch:
        if double:
            wide = types.SimpleNamespace(**{**vars(np), "float32": np.float64})
            for module in REFERENCE_MODULES:
                patch.setattr(module, "np", wide)
        return play(CASES[case_index], double)


@functools.partial(jax.jit, static_argnames="state_type")
def advance(env: Any, state_type: Any, state: Any, elapsed: Any, action: Any, noise: Any) -> Any:
    def one(state, elapsed, action, noise):
        wrapped = env
        if noise is not None:  # use the reference's draw instead of ours
            torques = tuple(torque + noise for torque in env.unwrapped.avail_torque)
            wrapped = env.replace(avail_torque=torques, torque_noise_max=None)
        fields = [field.name for field in dataclasses.fields(state_type)]
        names = fields[: state.shape[0]]  # a pendulum also stores its torque for render
        inner = state_type(**dict.fromkeys(fields, jnp.zeros((), state.dtype)))
        inner = inner.replace(**dict(zip(names, state, strict=True)))
        before = TimeLimitState(inner=inner, elapsed=elapsed)
        after, timestep = wrapped.step(before, action, jax.random.key(0))
        return jnp.stack([getattr(after.inner, name) for name in names]), timestep

    return jax.vmap(one)(state, elapsed, action, noise)


def ours(case: Case, steps: Transitions, dtype: Any) -> tuple[np.ndarray, Any]:
    limit = "default" if case.max_steps is None else case.max_steps
    env = jaxenvs.make(case.id, time_limit=limit, **case.ours)
    continuous = np.issubdtype(steps.action.dtype, np.floating)
    next_state, timestep = advance(
        env,
        STATES[case.task],
        np.asarray(steps.state, dtype),
        np.asarray(steps.elapsed, np.int32),
        np.asarray(steps.action, dtype if continuous else np.int32),
        np.asarray(steps.noise, dtype) if "torque_noise_max" in case.ours else None,
    )
    assert next_state.dtype == timestep.observation.dtype == timestep.reward.dtype == dtype
    return jax.tree.map(np.asarray, (next_state, timestep))


def state_of(state_type: Any, values: np.ndarray) -> Any:
    names = [field.name for field in dataclasses.fields(state_type)]
    return state_type(**dict(zip(names, map(np.float32, values), strict=True)))


def distance_to_threshold(case: Case, steps: Transitions) -> np.ndarray:
    """Returns float64[S], the distance of the reference's next state from the nearest threshold."""
    env = make_reference(case).unwrapped
    state = steps.next_state
    if case.task == "CartPole":
        return np.minimum(
            np.abs(np.abs(state[:, 0]) - env.x_threshold),
            np.abs(np.abs(state[:, 2]) - env.theta_threshold_radians),
        )
    if case.task.startswith("MountainCar"):
        to_goal = np.minimum(
            np.abs(state[:, 0] - env.goal_position), np.abs(state[:, 1] - env.goal_velocity)
        )
        # At the wall the car stops; just before it, it does not.
        unclipped = steps.state[:, 0] + np.where(state[:, 1] == 0, np.inf, state[:, 1])
        touched = (state[:, 0] == np.float32(env.min_position)) | (state[:, 0] == env.min_position)
        return np.where(touched, np.inf, np.minimum(to_goal, np.abs(unclipped - env.min_position)))
    if case.task == "Acrobot":
        height = -np.cos(state[:, 0]) - np.cos(state[:, 0] + state[:, 1])
        return np.abs(height - 1.0)
    return np.full(len(state), np.inf)


def check(case: Case, double: bool) -> dict[str, float]:
    """Compares every step and returns the largest absolute differences."""
    dtype, tolerance = (np.float64, 1e-10) if double else (np.float32, case.tolerance)
    steps = played(CASES.index(case), double)
    next_state, timestep = ours(case, steps, dtype)
    ended = steps.terminated | steps.truncated
    assert len(ended) >= STEPS and ended.sum() >= EPISODES
    assert case.task == "Pendulum" or steps.terminated.sum() >= 10

    # Rounding may move a state across a threshold. Such steps are rare and close to a threshold.
    near = distance_to_threshold(case, steps) <= tolerance
    assert near.mean() <= 1e-3
    np.testing.assert_array_equal(timestep.terminated[~near], steps.terminated[~near])
    np.testing.assert_array_equal(timestep.truncated, steps.truncated)

    difference = next_state.astype(np.float64) - steps.next_state
    if case.task == "Acrobot":  # angles lie on a circle that both sides cut at pi
        difference[:, :2] = (difference[:, :2] + np.pi) % (2 * np.pi) - np.pi
    errors = {
        "state": difference[~near],
        "observation": (timestep.observation - steps.observation.astype(np.float64))[~near],
        "reward": (timestep.reward - steps.reward)[~near],
    }
    errors = {name: float(np.abs(error).max()) for name, error in errors.items()}
    largest_reward = max(1.0, np.abs(steps.reward).max())
    assert errors["state"] <= tolerance
    assert errors["observation"] <= tolerance
    assert errors["reward"] <= (tolerance if double else 1e-6 * largest_reward)
    return errors


@each_case
def test_float32_steps_match_gymnasium(case):
    check(case, double=False)


@pytest.mark.parametrize("case", every_nth(3, CASES, first=1), ids=str)
def test_float64_steps_match_gymnasium_to_1e_10(case):
    with jax.enable_x64(True):
        check(case, double=True)


@pytest.mark.parametrize("id", [id for id in IDS if not id.startswith("Pendulum")])
def test_termination_and_truncation_in_one_step(id):
    case = next(case for case in CASES if case.id == id)
    steps = played(CASES.index(case), False)
    last = dataclasses.replace(case, max_steps=1)
    state = steps.state[steps.terminated][0]
    action = steps.action[steps.terminated][0]
    reference = make_reference(last)
    reference.reset(seed=0)
    reference.unwrapped.state = state.copy()
    observation, reward, terminated, truncated, _ = reference.step(action)
    assert terminated and truncated

    one = [np.array([value]) for value in (state, 0, action, 0.0, state, observation, reward)]
    _, timestep = ours(last, Transitions(*one, np.array([True]), np.array([True])), np.float32)
    assert timestep.terminated[0] and timestep.truncated[0]
    np.testing.assert_allclose(timestep.reward[0], reward, rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "last"),
    [({}, [1.0, 0.0, 0.0, 0.0]), ({"sutton_barto_reward": True}, [-1.0, -1.0, -1.0, -1.0])],
)
def test_rewards_after_termination_match_gymnasium(options, last):
    reference = gymnasium.make("CartPole-v1", **options).unwrapped
    step = jax.jit(jaxenvs.make("CartPole-v1", **options).unwrapped.step)
    for seed in range(20):
        reference.reset(seed=seed)
        fallen, theirs, ours = 0, [], []
        while fallen < 4:
            state = np.asarray(reference.state, np.float32)
            reference.state = state.astype(np.float64)
            _, reward, terminated, _, _ = reference.step(1)
            _, timestep = step(state_of(CartPoleState, state), 1, jax.random.key(0))
            assert timestep.terminated == terminated
            theirs.append(reward), ours.append(float(timestep.reward))
            fallen += terminated
        assert ours == theirs and ours[-4:] == last


@pytest.mark.parametrize("id", IDS)
def test_spaces_match_gymnasium(id):
    theirs, env = gymnasium.make(id), jaxenvs.make(id)
    assert to_gymnasium(env.observation_space) == theirs.observation_space
    assert to_gymnasium(env.action_space) == theirs.action_space


@pytest.mark.parametrize("id", IDS)
def test_time_limits_and_thresholds_match_gymnasium(id):
    theirs, spec = gymnasium.spec(id), jaxenvs.registry[id]
    assert (spec.time_limit, spec.reward_threshold) == (
        theirs.max_episode_steps,
        theirs.reward_threshold,
    )


RESETS = [
    *((id, {}, None) for id in IDS),
    ("CartPole-v1", {"start_low": -0.1, "start_high": 0.2}, {"low": -0.1, "high": 0.2}),
    ("MountainCar-v0", {"start_low": -1.0, "start_high": 0.1}, {"low": -1.0, "high": 0.1}),
    (
        "MountainCarContinuous-v0",
        {"start_low": -1.0, "start_high": 0.1},
        {"low": -1.0, "high": 0.1},
    ),
    ("Acrobot-v1", {"start_low": -0.5, "start_high": 1.0}, {"low": -0.5, "high": 1.0}),
    ("Pendulum-v1", {"x_init": 0.5, "y_init": 3.0}, {"x_init": 0.5, "y_init": 3.0}),
]


@pytest.mark.parametrize(("id", "params", "options"), RESETS)
def test_reset_distribution_matches_gymnasium(id, params, options):
    count = 3_000
    reference = gymnasium.make(id, disable_env_checker=True)
    theirs = np.stack([reference.reset(seed=i, options=options)[0] for i in range(count)])
    reset = jax.jit(jax.vmap(jaxenvs.make(id, **params).reset))
    _, timestep = reset(jax.random.split(jax.random.key(3), count))
    np.testing.assert_array_equal(timestep.reward, 0)
    assert not (np.asarray(timestep.terminated) | np.asarray(timestep.truncated)).any()
    ours = np.asarray(timestep.observation)
    for column in range(ours.shape[1]):
        # 30 columns in total. At this level, a correct distribution fails for one seed in 300.
        assert scipy.stats.ks_2samp(ours[:, column], theirs[:, column]).pvalue > 1e-4
    covariance = np.cov(theirs.T)  # zero off the diagonal if columns are independent
    np.testing.assert_allclose(np.cov(ours.T), covariance, atol=0.1 * covariance.max())


def test_torque_noise_distribution_matches_gymnasium():
    count, start = 3_000, np.array([0.3, -0.2, 0.1, 0.4], np.float32)
    reference = gymnasium.make("Acrobot-v1", disable_env_checker=True).unwrapped
    reference.torque_noise_max = 0.7
    reference.reset(seed=0)
    theirs = np.empty(count)
    for i in range(count):
        reference.state = start.copy()
        reference.step(2)
        theirs[i] = reference.state[3]
    env = jaxenvs.make("Acrobot-v1", torque_noise_max=0.7).unwrapped
    state = state_of(AcrobotState, start)
    keys = jax.random.split(jax.random.key(4), count)
    after, _ = jax.jit(jax.vmap(env.step, in_axes=(None, None, 0)))(state, jnp.int32(2), keys)
    assert scipy.stats.ks_2samp(np.asarray(after.theta2_dot), theirs).pvalue > 1e-3
    assert np.ptp(theirs) > 0.1
