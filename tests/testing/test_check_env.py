"""Environments that break the contract in one way each, and what check_env reports."""

import re
from typing import Any, ClassVar

import chex
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxenvs
from jaxenvs import spaces, struct
from jaxenvs.core import Environment, TimeStep
from jaxenvs.errors import EnvironmentCheckError
from jaxenvs.testing import PROBES, CountingEnv, ScriptedEnv, check_env
from jaxenvs.wrappers import TimeLimit
from tests.ids import every_nth


@chex.dataclass(frozen=True)
class WalkState:
    position: jax.Array  # float32[]


class Walk(Environment[WalkState]):
    """A valid environment; each class below breaks it in one way."""

    stride: float = 1.0

    @property
    def observation_space(self):
        return spaces.Box(-10.0, 10.0, (1,))

    @property
    def action_space(self):
        return spaces.Discrete(3)

    def reset(self, key):
        position = jax.random.uniform(key, (), jnp.float32, -1.0, 1.0)
        return WalkState(position=position), TimeStep.first(position[None])

    def step(self, state, action, key):
        noise = jax.random.uniform(key, (), jnp.float32)
        push = self.stride * (action.astype(jnp.float32) - 1) + noise
        position = jnp.clip(state.position + push, -10.0, 10.0)
        return WalkState(position=position), TimeStep.transition(
            position[None], reward=-position, terminated=position >= 9
        )

    def render(self, state):
        column = jnp.arange(20, dtype=jnp.int32) == (state.position + 10).astype(jnp.int32)
        return jnp.broadcast_to(column[None, :, None], (4, 20, 3)).astype(jnp.uint8) * 255


class IntegerReward(Walk):
    def step(self, state, action, key):
        state, timestep = super().step(state, action, key)
        return state, timestep.replace(reward=jnp.int32(1))

    def reset(self, key):
        state, timestep = super().reset(key)
        return state, timestep.replace(reward=jnp.int32(0))


class HalfReward(Walk):
    def step(self, state, action, key):
        state, timestep = super().step(state, action, key)
        return state, timestep.replace(reward=timestep.reward.astype(jnp.float16))


class InfiniteReward(Walk):
    def step(self, state, action, key):
        state, timestep = super().step(state, action, key)
        return state, timestep.replace(reward=jnp.log(timestep.reward * 0))


class FloatFlag(Walk):
    def step(self, state, action, key):
        state, timestep = super().step(state, action, key)
        return state, timestep.replace(terminated=timestep.terminated.astype(jnp.float32))


class WeakState(Walk):
    def reset(self, key):
        state, timestep = super().reset(key)
        return state.replace(position=jnp.asarray(0.5)), timestep


class WideUnderX64(Walk):
    def reset(self, key):
        state, timestep = super().reset(key)
        return state.replace(position=jnp.zeros(())), timestep


class Outside(Walk):
    @property
    def observation_space(self):
        return spaces.Box(-2.0, 2.0, (1,))


class OutsideAtTheEnd(Outside):
    def step(self, state, action, key):
        state, timestep = super().step(state, action, key)
        return state, timestep.replace(terminated=jnp.abs(state.position) > 2)


class NotANumber(Walk):
    def step(self, state, action, key):
        state, timestep = super().step(state, action, key)
        return state, timestep.replace(observation=timestep.observation * jnp.nan)


class WrongShape(Walk):
    @property
    def observation_space(self):
        return spaces.Box(-10.0, 10.0, (2,))


class WrongStructure(Walk):
    @property
    def observation_space(self):
        return spaces.Dict({"position": spaces.Box(-10.0, 10.0, (1,))})


class DictWalk(Walk):
    """Also valid; its state is a dict."""

    def reset(self, key):
        state, timestep = super().reset(key)
        return {"position": state.position}, timestep

    def step(self, state, action, key):
        position = state["position"].astype(jnp.float32)
        state, timestep = super().step(WalkState(position=position), action, key)
        return {"position": state.position}, timestep

    def render(self, state):
        return super().render(WalkState(**state))


class DriftingType(DictWalk):
    def reset(self, key):
        _, timestep = super().reset(key)
        return {"position": jnp.int32(0)}, timestep


class DriftingTree(DictWalk):
    def step(self, state, action, key):
        state, timestep = super().step(state, action, key)
        return state | {"count": jnp.int32(1)}, timestep


class DriftingContainer(Walk):
    def step(self, state, action, key):
        state, timestep = Walk.step(self, WalkState(position=state[0]), action, key)
        return (state.position,), timestep

    def reset(self, key):
        state, timestep = super().reset(key)
        return [state.position], timestep


class LateInfo(Walk):
    def step(self, state, action, key):
        state, timestep = super().step(state, action, key)
        return state, timestep.replace(info={"speed": state.position})


class InfoWithoutNames(Walk):
    def step(self, state, action, key):
        state, timestep = super().step(state, action, key)
        return state, timestep.replace(info=[state.position])


class SetsFinalObservation(Walk):
    def step(self, state, action, key):
        state, timestep = super().step(state, action, key)
        return state, timestep.replace(final_observation=timestep.observation)


calls = 0


class CountsInPython(Walk):
    def step(self, state, action, key):
        global calls
        calls += 1
        state, timestep = super().step(state, action, key)
        return state, timestep.replace(reward=timestep.reward + calls)


class DrawsFromNumpy(Walk):
    def reset(self, key):
        state, timestep = super().reset(key)
        noise = np.random.default_rng().uniform(size=1).astype(np.float32)
        return state, timestep.replace(observation=timestep.observation * noise)


class CountsInItsClass(Walk):
    history: ClassVar = []

    def step(self, state, action, key):
        self.history.append("step")
        return super().step(state, action, key)


class DrawsInACallback(Walk):
    def step(self, state, action, key):
        state, timestep = super().step(state, action, key)
        shape = jax.ShapeDtypeStruct((), np.float32)
        noise = jax.pure_callback(
            lambda _: np.float32(np.random.default_rng().uniform()),
            shape,
            state.position,
            vmap_method="sequential",
        )
        return state, timestep.replace(reward=noise)


class ChangesItsArgument(DictWalk):
    def step(self, state, action, key):
        moved, timestep = super().step(state, action, key)
        state["position"] = moved["position"]
        return state, timestep


class Remembers(Walk):
    def step(self, state, action, key):
        self.last = state
        return super().step(state, action, key)


leaked = []


class Leaks(Walk):
    def step(self, state, action, key):
        leaked.append(state.position)
        return super().step(state, action, key)


class Branches(Walk):
    def step(self, state, action, key):
        if state.position > 0:
            return self.reset(key)
        return super().step(state, action, key)


class Converts(Walk):
    def step(self, state, action, key):
        position = float(state.position) + 1
        return super().step(WalkState(position=jnp.float32(position)), action, key)


class CallsNumpy(Walk):
    def step(self, state, action, key):
        state, timestep = super().step(state, action, key)
        return state, timestep.replace(reward=jnp.float32(np.sin(state.position)))


class NeedsTwoNumbers(Walk):
    @property
    def action_space(self):
        return spaces.Box(-1.0, 1.0, (2,))

    def step(self, state, action, key):
        return super().step(state, jnp.arange(3)[action], key)


class FiveValues(Walk):
    def step(self, state, action, key):
        state, timestep = super().step(state, action, key)
        return timestep.observation, timestep.reward, timestep.done, timestep.done, {}


class SizedByALeaf(Walk):
    size: int = 3

    def reset(self, key):
        state, timestep = super().reset(key)
        return state, timestep.replace(info={"map": jnp.zeros(self.size, jnp.float32)})

    def step(self, state, action, key):
        state, timestep = super().step(state, action, key)
        return state, timestep.replace(info={"map": jnp.zeros(self.size, jnp.float32)})


class NarrowState(Walk):
    """A state in half precision, which a parameter given as a float32 array promotes."""

    def reset(self, key):
        return {"position": jnp.float16(0)}, TimeStep.first(jnp.zeros(1, jnp.float32))

    def step(self, state, action, key):
        position = state["position"] * self.stride
        return {"position": position}, TimeStep.transition(
            jnp.zeros(1, jnp.float32), reward=0, terminated=False
        )


class Rules:
    """Compared by identity."""


class FreshRules(Walk):
    rules: Any = struct.static(None)

    def __post_init__(self):
        object.__setattr__(self, "rules", Rules())


class UnhashableField(Walk):
    rules: Any = struct.static(())


class RemembersAnyway(Walk):
    def step(self, state, action, key):
        object.__setattr__(self, "steps", getattr(self, "steps", 0) + 1)
        return super().step(state, action, key)


class TextParameter(Walk):
    mode: str = "easy"


class GymnasiumSpace(Walk):
    @property
    def action_space(self):
        return gymnasium.spaces.Discrete(3)


class BrokenSpace(Walk):
    @property
    def observation_space(self):
        return spaces.Box(-self.width, self.width, (1,))


class FloatFrame(Walk):
    def render(self, state):
        return super().render(state).astype(jnp.float32)


class GrayFrame(Walk):
    def render(self, state):
        return super().render(state)[..., 0]


class NumpyFrame(Walk):
    def render(self, state):
        return np.asarray(super().render(state))


class AxisName(Walk):
    def step(self, state, action, key):
        state, timestep = super().step(state, action, key)
        return state, timestep.replace(reward=jax.lax.pmean(timestep.reward, "batch"))


@jax.custom_batching.custom_vmap
def centered(x):
    return x


@centered.def_vmap
def _(axis_size, in_batched, x):
    return x - jnp.mean(x), True


class LooksAtTheBatch(Walk):
    def step(self, state, action, key):
        state, timestep = super().step(state, action, key)
        return state, timestep.replace(reward=centered(timestep.reward))


@jax.custom_batching.custom_vmap
def crowd(x):
    return x * 0 + 1


@crowd.def_vmap
def _(axis_size, in_batched, x):
    return x * 0 + min(axis_size, 2), True


class KnowsItsResetBatch(Walk):
    """Consistent as long as several instances are reset at once; alone, a reset differs."""

    def reset(self, key):
        state, timestep = super().reset(key)
        return state, timestep.replace(observation=timestep.observation * crowd(state.position))


BROKEN = [
    (IntegerReward(), "reward", r"step's timestep\.reward is int32\[\].*float32\[\]"),
    (HalfReward(), "reward", r"float16\[\]"),
    (InfiniteReward(), "reward", r"is -inf; it must be finite"),
    (FloatFlag(), "flags", r"terminated is float32\[\]; it must be bool\[\]"),
    (WeakState(), "weak type", r"reset's state\.position .* write jnp\.float32"),
    (WideUnderX64(), "x64", r"reset's state\.position is float64 with jax_enable_x64"),
    (
        Outside(),
        "observation space",
        r"outside \[-2\.0, 2\.0\], (before|after) step \d+ of instance",
    ),
    (NotANumber(), "observation space", r"observation\[0\] is nan"),
    (WrongShape(), "observation space", r"observation is float32\[1\], expected float32\[2\]"),
    (WrongStructure(), "observation space", r"expected a dict with keys \['position'\]"),
    (
        DriftingType(),
        "tree",
        r"state\['position'\] is int32\[\] from reset and float32\[\] from step",
    ),
    (DriftingTree(), "tree", r"state\['count'\] comes from step and not from reset"),
    (DriftingContainer(), "tree", "containers of different types"),
    (LateInfo(), "info", r"\[\] from reset and \['speed'\] from step"),
    (InfoWithoutNames(), "info", "dict from names to arrays"),
    (SetsFinalObservation(), "tree", "vectorize sets it"),
    (CountsInPython(), "purity", "two traces of step gave two programs"),
    (DrawsFromNumpy(), "purity", "two traces of reset gave two programs"),
    (CountsInItsClass(), "purity", r"CountsInItsClass\.history changed"),
    (DrawsInACallback(), "purity", "run twice from the same key"),
    (ChangesItsArgument(), "purity", r"step changed its argument in place, at .*position"),
    (Remembers(), "trace", "FrozenInstanceError.* immutable"),
    (Leaks(), "leak", "step leaked a traced value"),
    (Branches(), "trace", r"test_check_env\.py:\d+.*jnp\.where"),
    (Converts(), "trace", "ConcretizationTypeError.*branch on a traced value, convert"),
    (CallsNumpy(), "trace", r"jax\.numpy"),
    (NeedsTwoNumbers(), "trace", r"an action of action_space, float32\[2\]"),
    (FiveValues(), "trace", r"it must return \(state, TimeStep\)"),
    (SizedByALeaf(), "parameters", r"struct\.static"),
    (NarrowState(), "parameters", "under vmap over a batch of parameters"),
    (FreshRules(), "retrace", "after a parameter was replaced"),
    (UnhashableField(rules=["no", "lists"]), "environment", "unhashable.*use tuples"),
    (RemembersAnyway(), "purity", r"RemembersAnyway\.steps changed"),
    (TextParameter(), "environment", r"TextParameter\.mode is a str.*struct\.static"),
    (GymnasiumSpace(), "environment", r"action_space is a Discrete.*from_gymnasium"),
    (BrokenSpace(), "environment", "observation_space raised AttributeError"),
    (OutsideAtTheEnd(), "observation space", r"outside \[-2\.0, 2\.0\], after step \d+"),
    (FloatFrame(), "render", r"float32\[4, 20, 3\]; it must be uint8\[H, W, 3\]"),
    (GrayFrame(), "render", r"uint8\[4, 20\]; it must be"),
    (NumpyFrame(), "render", r"render\(state\) raised TracerArrayConversionError"),
    (AxisName(), "trace", "describes one instance"),
    (LooksAtTheBatch(), "independence", r"timestep\.reward = .*stepped alone"),
    (KnowsItsResetBatch(), "autoreset", r"timestep\.observation = "),
    (Walk, "environment", "Subclass jaxenvs.Environment"),
    (gymnasium.make("CartPole-v1"), "environment", "is not an Environment"),
    (jaxenvs.vectorize(Walk(), 2), "environment", "single environment, not a vectorized"),
]


def _name(case):
    return case.__name__ if isinstance(case, type) else type(case).__name__


NEED_A_RUN = (
    InfiniteReward,
    Outside,
    NotANumber,
    DrawsInACallback,
    LooksAtTheBatch,
    KnowsItsResetBatch,
)


def failures_of(env: Any, **options: Any) -> str:
    with pytest.raises(EnvironmentCheckError) as caught:
        check_env(env, num_steps=32, **options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("env", "check", "says"), every_nth(2, BROKEN), ids=[_name(env) for env, _, _ in BROKEN]
)
def test_a_broken_environment_is_reported(env, check, says):
    failures = failures_of(env, quick=not isinstance(env, NEED_A_RUN))
    entries = failures.replace("\n      ", " ").split("\n  ")
    assert any(entry.startswith(f"[{check}] ") and re.search(says, entry) for entry in entries), (
        entries
    )


@pytest.mark.parametrize(
    "env",
    every_nth(
        2,
        [
            Walk(),
            CountingEnv(),
            DictWalk(),
            CountingEnv(layout="dict", truncates=True),
            CountingEnv(layout="tuple", has_key=True),
            ScriptedEnv(),
            TimeLimit(CountingEnv(lengths=(2, 9)), time_limit=4),
            *(probe() for probe in PROBES),
        ],
    ),
    ids=repr,
)
def test_a_valid_environment_passes(env):
    assert check_env(env, num_steps=32) is None


def test_a_quick_check_compiles_and_runs_nothing(caplog):
    jax.random.key(0), jax.random.key(1)  # compiled here if not before
    with jax.log_compiles():
        assert all(check_env(make(), quick=True) is None for make in NEED_A_RUN)
        assert not [each for each in caplog.messages if "XLA compilation" in each]
        jax.jit(lambda x: x + 3)(jnp.float32(0))
    assert [each for each in caplog.messages if "XLA compilation" in each]


def test_all_failures_are_reported_at_once():
    class Worst(FloatFlag, IntegerReward, FloatFrame):
        pass

    message = failures_of(Worst())
    assert message.startswith("Worst breaks the contract in ")
    assert all(f"[{check}]" in message for check in ("reward", "flags", "render"))


def test_the_exception_of_a_call_is_chained():
    with pytest.raises(EnvironmentCheckError) as caught:
        check_env(CallsNumpy())
    assert isinstance(caught.value.__cause__, jax.errors.TracerArrayConversionError)


def test_float64_rewards_go_with_float64_observations():
    class Precise(Walk):
        @property
        def observation_space(self):
            return spaces.Box(-10.0, 10.0, (1,), dtype=np.float64)

        def reset(self, key):
            position = jax.random.uniform(key, (), jnp.float64, -1.0, 1.0)
            return WalkState(position=position), TimeStep.first(position[None])

        def step(self, state, action, key):
            del key
            position = jnp.clip(state.position + action.astype(jnp.float64) - 1, -10.0, 10.0)
            return WalkState(position=position), TimeStep.transition(
                position[None], reward=position, terminated=False
            )

    check_env(Precise(), num_steps=32)
