"""Checks that apply to every wrapper in `jaxenvs.wrappers`."""

from pathlib import Path

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxenvs
from jaxenvs import spaces, wrappers
from jaxenvs.core import Wrapper
from jaxenvs.errors import WrapperError
from jaxenvs.testing import check_env
from jaxenvs.wrappers.levels import RandomizedLevel
from tests.ids import every_nth
from tests.opaque import OpaqueVectorEnv
from tests.wrappers._batches import HIGH, LOW, MODES, Echo, N, play

DOCS = Path(__file__).resolve().parents[2] / "docs"


class Toy(Echo):
    """An `Echo` with bounded observations and a render method."""

    @property
    def observation_space(self):
        return spaces.Box([-2.0, 0.0, 0.0], [1.0, 3.0, 5.0])

    def render(self, state):
        pixels = np.arange(6 * 9 * 3, dtype=np.int32).reshape(6, 9, 3) * 5
        return ((pixels + state.count * 37) % 256).astype(jnp.uint8)


def third(x):
    return x / 3


def negative(x):
    return -x


RAW_KEYS = np.arange(10, dtype=np.uint32).reshape(5, 2)

WRAPPERS = {
    "AddRenderObservation": lambda env: env.wrap(wrappers.AddRenderObservation),
    "AddRewardNoise": lambda env: env.wrap(wrappers.AddRewardNoise, 0.5),
    "ClipAction": lambda env: env.wrap(wrappers.ClipAction),
    "ClipReward": lambda env: env.wrap(wrappers.ClipReward, -5.0, 8.0),
    "DelayObservation": lambda env: env.wrap(wrappers.DelayObservation, 2),
    "DiscretizeAction": lambda env: env.wrap(wrappers.DiscretizeAction, 3),
    "DtypeObservation": lambda env: env.wrap(wrappers.DtypeObservation, jnp.float16),
    "FilterObservation": lambda env: env.wrap(wrappers.FilterObservation, ["time", "obs"]),
    "FlattenObservation": lambda env: env.wrap(wrappers.FlattenObservation),
    "FrameStackObservation": lambda env: env.wrap(wrappers.FrameStackObservation, 3),
    "GrayscaleObservation": lambda env: env.wrap(wrappers.GrayscaleObservation),
    "Levels": lambda env: env.wrap(wrappers.Levels, RAW_KEYS),
    "NormalizeObservation": lambda env: env.wrap(wrappers.NormalizeObservation),
    "NormalizeReward": lambda env: env.wrap(wrappers.NormalizeReward),
    "RandomizeParameters": lambda env: env.wrap(
        wrappers.RandomizeParameters, {"gravity": (1.0, 2.0)}
    ),
    "RecordEpisodeStatistics": lambda env: env.wrap(wrappers.RecordEpisodeStatistics),
    "RepeatAction": lambda env: env.wrap(wrappers.RepeatAction, 2),
    "RescaleAction": lambda env: env.wrap(wrappers.RescaleAction, -1.0, 1.0),
    "RescaleObservation": lambda env: env.wrap(wrappers.RescaleObservation, 0.0, 1.0),
    "ResizeObservation": lambda env: env.wrap(wrappers.ResizeObservation, (4, 4)),
    "ScaleReward": lambda env: env.wrap(wrappers.ScaleReward, 0.5),
    "StickyAction": lambda env: env.wrap(wrappers.StickyAction, 0.5),
    "TimeAwareObservation": lambda env: env.wrap(
        wrappers.TimeAwareObservation, flatten=False, default_time_limit=5
    ),
    "TimeLimit": lambda env: env.wrap(wrappers.TimeLimit, 3),
    "TransformAction": lambda env: env.wrap(
        wrappers.TransformAction, negative, spaces.Box(-HIGH, -LOW)
    ),
    "TransformObservation": lambda env: env.wrap(
        wrappers.TransformObservation, third, spaces.Box(-1.0, 2.0, (3,))
    ),
    "TransformReward": lambda env: env.wrap(wrappers.TransformReward, third),
    "Trials": lambda env: env.wrap(wrappers.Trials, 2),
}

# Chains of wrappers from the inside out, which together contain every wrapper. Those in the first
# list of a chain need access to the instances of a batch; those in the second list do not.
CHAINS = {
    "trials": (["Trials"], []),
    "parts": (
        ["RandomizeParameters", "Levels", "TimeLimit"],
        ["TimeAwareObservation", "FilterObservation", "FlattenObservation"],
    ),
    "pictures": (
        ["AddRenderObservation"],
        ["ResizeObservation", "GrayscaleObservation", "FrameStackObservation"],
    ),
    "observations": (
        [],
        [
            "RescaleObservation",
            "TransformObservation",
            "DelayObservation",
            "NormalizeObservation",
            "DtypeObservation",
        ],
    ),
    "actions": (
        ["RepeatAction"],
        ["TransformAction", "RescaleAction", "ClipAction", "StickyAction"],
    ),
    "rewards": (
        [],
        [
            "DiscretizeAction",
            "RecordEpisodeStatistics",
            "ScaleReward",
            "AddRewardNoise",
            "TransformReward",
            "ClipReward",
            "NormalizeReward",
        ],
    ),
}


def wrap(env, names):
    for name in names:
        env = WRAPPERS[name](env)
    return env


def beneath(name):
    """Returns the wrappers before `name` in its chain."""
    chain = next(inner + outer for inner, outer in CHAINS.values() if name in inner + outer)
    return chain[: chain.index(name)]


def test_all_wrappers_are_tested_and_documented():
    public = {name for name, value in vars(wrappers).items() if _is_wrapper(value)}
    assert public == WRAPPERS.keys() | {"Transform"}
    chained = [name for chain in CHAINS.values() for names in chain for name in names]
    assert sorted(chained) == sorted(WRAPPERS)
    for page in ("usage/wrappers.md", "api/wrappers.md"):
        text = (DOCS / page).read_text(encoding="utf-8")
        assert not [name for name in public if name not in text], page


def _is_wrapper(value):
    return isinstance(value, type) and issubclass(value, Wrapper)


@pytest.mark.parametrize("chain", every_nth(2, CHAINS))
def test_wrapped_environment_passes_check_env(chain):
    inner, outer = CHAINS[chain]
    check_env(wrap(Toy(), inner + outer), num_steps=16, num_envs=2)


@pytest.mark.parametrize("chain", every_nth(2, CHAINS))
def test_opaque_and_accessible_batches_give_the_same_steps(chain):
    inner, outer = CHAINS[chain]
    inside = [
        wrap(jaxenvs.vectorize(Toy(), N, autoreset_mode=mode, reset_chunk=N), inner)
        for mode in MODES
    ]
    batches = [[wrap(env, outer), wrap(OpaqueVectorEnv(env), outer)] for env in inside]
    space = batches[0][0].single_observation_space

    @jax.jit
    def run(batches):
        played = [[play(env, 12)[1] for env in both] for both in batches]
        contained = [
            jax.vmap(jax.vmap(space.contains))(observation).all()
            for timesteps, _ in played
            for observation in (timesteps.observation, timesteps.final_observation)
        ]
        return played, contained

    played, contained = jax.device_get(run(batches))
    assert all(contained)
    for mode, (timesteps, others) in zip(MODES, played, strict=True):
        chex.assert_trees_all_close(timesteps, others, rtol=1e-6)
        done = timesteps.done
        assert not done[0].any() and done.sum() >= N
        before, after = (
            jax.tree.map(lambda leaf, rows=rows, done=done: leaf[rows][done[:-1]], timesteps)
            for rows in (slice(None, -1), slice(1, None))
        )
        if mode != "same_step":  # steps that reset or stay finished have no reward
            assert (after.reward == 0).all() and (after.done == (mode == "disabled")).all()
        if mode == "disabled":
            chex.assert_trees_all_equal(after.observation, before.observation)


@pytest.mark.parametrize("chain", CHAINS)
def test_reset_to_a_level_equals_the_reset_that_has_it(chain):
    inner, outer = CHAINS[chain]
    random = WRAPPERS["RandomizeParameters"](Toy())
    names = [name for name in inner + outer if name != "RandomizeParameters"]

    @jax.jit
    def both(key):
        env = wrap(random, names)
        return env.level(key), env.reset_to(env.level(key)), env.reset(key)

    level, begun, expected = both(jax.random.key(0))
    assert isinstance(level, jax.Array if "Levels" in names else RandomizedLevel)
    chex.assert_trees_all_equal(begun, expected)


@pytest.mark.parametrize("chain", CHAINS)
def test_wrappers_that_need_the_instances_report_it(chain):
    inner, outer = CHAINS[chain]
    batch = jaxenvs.vectorize(Toy(), N)
    for name in inner:
        with pytest.raises(WrapperError, match="before it is vectorized"):
            WRAPPERS[name](OpaqueVectorEnv(batch))
    env = wrap(OpaqueVectorEnv(wrap(batch, inner)), outer)
    assert env.num_envs == N and env.action_space.shape[:1] == (N,)


@pytest.mark.parametrize("name", WRAPPERS)
def test_parameters_stay_leaves_and_can_be_replaced(name):
    toy = Toy(gravity=1.25)
    env = wrap(toy, [*beneath(name), name])
    assert env.unwrapped is toy and 1.25 in jax.tree.leaves(env)
    own = {field: value for field, value in vars(env).items() if field != "env"}
    assert env.parameters.items() >= {"gravity": 1.25, **own}.items()
    changed = env.replace(gravity=3.7)
    assert changed.unwrapped.gravity == changed.parameters["gravity"] == 3.7
    assert jax.tree.structure(changed) == jax.tree.structure(env)  # so both share a program
    assert vars(env.replace(**own)).items() >= own.items()
    gravities = jax.vmap(lambda g: env.replace(gravity=g).unwrapped.gravity)(jnp.arange(2.0))
    np.testing.assert_array_equal(gravities, [0.0, 1.0])
    batch = wrap(jaxenvs.vectorize(toy, N), [*beneath(name), name])
    assert batch.parameters == env.parameters
    assert batch.replace(gravity=3.7).parameters == changed.parameters


@pytest.mark.parametrize("name", WRAPPERS)
def test_repr_shows_wrappers_and_arguments(name):
    inside = wrap(Toy(gravity=3.7), beneath(name))
    text = repr(WRAPPERS[name](inside))
    assert text.startswith(f"{name}({inside!r}") and "Toy(gravity=3.7)" in text
    assert " at 0x" not in text
    batch = repr(wrap(jaxenvs.vectorize(Toy(gravity=3.7), N), [*beneath(name), name]))
    # Wrappers apply to the instances or to the batch as a whole.
    assert batch.replace("VectorizedEnv(", "").replace(f", {N})", "") == text


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda env: wrappers.RescaleAction(env, -np.inf, np.inf), "must be finite"),
        (lambda env: wrappers.NormalizeObservation(env, epsilon=-5.0), "epsilon=-5"),
        (lambda env: wrappers.NormalizeReward(env, epsilon=np.nan), "epsilon=nan"),
        (lambda env: wrappers.TransformReward(env, lambda r: r * jnp.ones(3)), r"float32\[3\]"),
        (
            lambda env: wrappers.TransformObservation(env, third, spaces.Box(-1.0, 2.0, (2,))),
            r"returned \(3,\)",
        ),
    ],
)
def test_silently_wrong_arguments_are_rejected(make, words):
    def play():
        env = make(Toy())
        state, _ = env.reset(jax.random.key(0))
        env.step(state, jnp.zeros(2, jnp.float32), jax.random.key(1))

    with pytest.raises(WrapperError, match=words):
        play()
