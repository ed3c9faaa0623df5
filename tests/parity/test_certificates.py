"""A quick form of the certificates of `benchmarks.certify`, for every class with a reference."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxenvs
from benchmarks import certify
from benchmarks.oracles import has_oracle, oracle_for
from jaxenvs.envs.toy_text import FrozenLake
from jaxenvs.wrappers import TimeLimit
from tests.ids import level_ids, one_id_per_class, one_level_per_class, one_mujoco_id_per_class

# Levels of MiniGrid share their rules.
QUICK_LEVELS = (
    "MiniGrid-DoorKey-5x5-v0",
    "MiniGrid-Dynamic-Obstacles-5x5-v0",
    "MiniGrid-Empty-Random-5x5-v0",
    "MiniGrid-KeyCorridorS3R1-v0",
    "MiniGrid-Maze-13x13-v0",
    "MiniGrid-PutNear-6x6-N2-v0",
)

BOX2D = "BipedalWalker-v3", "LunarLander-v3"
MUJOCO = one_mujoco_id_per_class()
SLOW_TO_PLAY = *BOX2D, *MUJOCO, "MinAtar/Asterix-v0", "MinAtar/Seaquest-v0"
SLOW_TO_DRAW = *BOX2D, "dm_control/quadruped-escape"  # a terrain of 40,401 heights


def cases(slow=(), every=1):
    """Yields ids and parameters; `slow` ids are slow, all but one variant, and most levels.

    Only every n-th of the other ids is quick.

    Of the classes of levels, a quarter are here; the certificates have them all.

    gymnax and Stable-Baselines3 are not in the extra `dev`, so their cases belong to the interop
    tests.
    """
    levels = set(level_ids())
    some_levels = [*QUICK_LEVELS, *one_level_per_class()[::4]]
    ids = {*one_id_per_class()} - levels | {*some_levels, *BOX2D, *MUJOCO}
    for number, id in enumerate(sorted(ids)):
        env = jaxenvs.make(id)
        if not has_oracle(env):
            continue
        is_interop = jaxenvs.registry[id].compared_with in ("gymnax", "stable_baselines3")
        marks = [pytest.mark.interop] if is_interop else []
        is_compared = jaxenvs.registry[id].family == "classic_control"  # in a module of its own
        is_long = id in slow or (id in levels and id not in QUICK_LEVELS)
        if number % every or is_long or is_compared:
            marks.append(pytest.mark.slow)
        try:
            variants = oracle_for(env).variants_of("c")
        except ImportError as error:
            missing = pytest.mark.skip(reason=f"could not import {error.name!r}")
            yield pytest.param(id, 0, marks=[*marks, missing], id=id)
            continue
        quick = 1 if id in MUJOCO else 0  # in double precision
        for i in range(len(variants)):
            slow_mark = [] if i == quick else [pytest.mark.slow]
            yield pytest.param(id, i, marks=[*marks, *slow_mark], id=f"{id}-{i}")


def parameters_of(id, variant):
    return oracle_for(jaxenvs.make(id)).variants_of("c")[variant]


@pytest.fixture(autouse=True)
def _precision(request):
    """Runs a case in the precision of its parameters."""
    case = getattr(request.node, "callspec", None)
    is_case = case is not None and "variant" in case.params
    with certify.precision(parameters_of(**case.params) if is_case else {}):
        yield


def make(id, variant):
    env = jaxenvs.make(id, **parameters_of(id, variant))
    return env.env if isinstance(env, TimeLimit) else env


@pytest.mark.parametrize(("id", "variant"), list(cases(slow=BOX2D)))
def test_steps_equal_those_of_the_reference(id, variant):
    env = make(id, variant)
    found = certify.compare_steps(env, 500)
    assert found["passed"]
    assert found["steps"] >= 500


@pytest.mark.parametrize(("id", "variant"), list(cases(slow=SLOW_TO_DRAW, every=2)))
def test_chance_has_the_distribution_of_the_reference(id, variant):
    found = certify.compare_chance(make(id, variant), 400)
    assert min(part["p_value"] for part in found.values()) >= certify.SIGNIFICANCE


@pytest.mark.parametrize(("id", "variant"), list(cases(slow=SLOW_TO_PLAY, every=3)))
def test_episodes_have_the_distribution_of_the_reference(id, variant):
    limit = jaxenvs.make(id).time_limit
    found = certify.compare_episodes(make(id, variant), limit, 60, longest=200)
    assert min(part["p_value"] for part in found.values()) >= certify.SIGNIFICANCE


# The comparisons notice errors.


class WrongRule(FrozenLake):
    """Moves up instead of down in one cell."""

    def apply(self, state, action, draws):
        action = jnp.where((state.s == 1) & (action == 1), 3, action)
        return super().apply(state, action, draws)


class WrongChance(FrozenLake):
    """Slips a little too rarely."""

    def draw(self, state, key):
        return jnp.sqrt(super().draw(state, key))


class WrongObservation(FrozenLake):
    """Shows another cell at the start."""

    def _observe(self, state):
        return state.s + 1


@pytest.mark.parametrize(
    ("compare", "env"),
    [
        (lambda env: certify.compare_steps(env, 500)["mismatches"] == 0, WrongRule()),
        (lambda env: certify.compare_steps(env, 500)["mismatches"] == 0, WrongObservation()),
        (lambda env: certify.compare_chance(env, 400)["steps"]["p_value"] > 1e-3, WrongChance()),
    ],
)
def test_compare_steps_and_chance_notice_errors(compare, env, monkeypatch):
    monkeypatch.setattr(certify, "oracle_for", lambda env: oracle_for(FrozenLake()))
    assert compare(FrozenLake())
    assert not compare(env)


def test_line_counter_tells_which_lines_ran():
    def branches(x):
        if x > 0:
            return 1
        return 2

    counter = certify.LineCounter([branches])
    with counter:
        branches(1)
    assert list(counter.ran().values()) == [True, True, False]


def test_same_distribution_separates_different_samples():
    rng = np.random.default_rng(0)
    a, b, c = rng.normal(size=400), rng.normal(size=400), rng.normal(0.5, size=400)
    assert certify.same_distribution([(a, b)])["p_value"] > 1e-3
    assert certify.same_distribution([(a, c)])["p_value"] < 1e-3
    few, many = rng.integers(0, 3, 400), rng.integers(0, 4, 400)
    assert certify.same_distribution([(few, rng.integers(0, 3, 400))])["p_value"] > 1e-3
    assert certify.same_distribution([(few, many)])["p_value"] < 1e-3
