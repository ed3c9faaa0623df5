"""Returned arrays belong to the caller: they never change, and the caller may write to them."""

import copy
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxenvs
from jaxenvs import wrappers
from jaxenvs.faces import GymVectorEnv, _programs
from jaxenvs.testing import CountingEnv
from tests.ids import diagonal, every_nth
from tests.opaque import OpaqueVectorEnv

N = 4
MODES = ("next_step", "same_step", "disabled")
WRAPPERS = (
    wrappers.NormalizeObservation,
    wrappers.NormalizeReward,
    wrappers.RecordEpisodeStatistics,
    functools.partial(wrappers.FrameStackObservation, stack_size=2),
)


class CounterWithInfo(CountingEnv):
    """A `CountingEnv` whose state contains the same arrays that the caller sees."""

    def reset(self, key):
        state, timestep = super().reset(key)
        return state, timestep.replace(info=self.info_of(state))

    def step(self, state, action, key):
        state, timestep = super().step(state, action, key)
        return state, timestep.replace(info=self.info_of(state))

    def info_of(self, state):
        return {"length": state.length, "more": {"count": state.count, "same": jnp.arange(3)}}

    def render(self, state):
        return jnp.full((2, 2, 3), state.count).astype(jnp.uint8)


def overwrite(tree):
    if isinstance(tree, np.ndarray) and tree.dtype != object:
        if tree.flags.writeable:
            np.copyto(tree, 77, casting="unsafe")
    elif isinstance(tree, dict):
        overwrite([*tree.values()])
    elif isinstance(tree, (list, tuple, np.ndarray)) or hasattr(tree, "_dicts"):
        for part in tree:
            overwrite(part)


def assert_same(left, right):
    if hasattr(left, "_dicts"):  # infos of classic gym, whose copies are lists
        left, right = [*left], [*right]
    assert type(left) is type(right)
    if isinstance(left, dict):
        assert left.keys() == right.keys()
        left, right = [*left.values()], [*right.values()]
    if isinstance(left, np.ndarray) and left.dtype != object:
        np.testing.assert_array_equal(left, right, strict=True)
    elif isinstance(left, (list, tuple, np.ndarray)):
        for one, other in zip(left, right, strict=True):
            assert_same(one, other)
    else:
        assert left == right


class Pair:
    """Runs two equal environments, overwrites the results of one, and keeps those of the other."""

    def __init__(self, make):
        self.written, self.untouched, self.kept = make(), make(), []

    def __getattr__(self, name):
        def call(*args, **kwargs):
            out = getattr(self.written, name)(*args, **kwargs)
            expected = getattr(self.untouched, name)(*args, **kwargs)
            assert_same(out, expected)
            self.kept.append((expected, copy.deepcopy(expected)))
            overwrite(out)

        return call

    def assert_results_never_changed(self):
        for result, before in self.kept:
            assert_same(result, before)


def batch(stack, mode):
    env = jaxenvs.vectorize(CounterWithInfo(has_key=True), N, autoreset_mode=mode)
    for wrapper in WRAPPERS if stack != "plain" else ():
        env = (OpaqueVectorEnv(env) if stack == "beside" else env).wrap(wrapper)
    return GymVectorEnv(env, render_mode="rgb_array")


@pytest.fixture(params=every_nth(2, ["packed", "arrays"]))
def way(request, monkeypatch):
    if request.param == "arrays":
        monkeypatch.setattr(_programs, "_PACKED_WORDS", -1)
    _programs._cached_programs.cache_clear()
    yield
    _programs._cached_programs.cache_clear()


@pytest.mark.parametrize(("stack", "mode"), diagonal(["plain", "inside", "beside"], MODES))
def test_results_belong_to_the_caller(stack, mode, way):
    pair = Pair(lambda: batch(stack, mode))
    pair.reset(seed=3)
    for t in range(16):
        pair.step(np.full(N, t % 2))
        if t % 4 == 2:
            pair.reset(options={"reset_mask": np.arange(N) == t % 3})
        if t % 8 == 3:
            pair.render()
        if t == 9 and stack != "beside":
            pair.set_attr("truncates", True)
        if t == 12:
            pair.reset(seed=5, options={"reset_mask": np.arange(N) > 1})
    pair.reset()
    pair.assert_results_never_changed()


@pytest.mark.parametrize("face", ["single", "classic", "dm", "dm batch", "sb3"])
def test_results_of_other_faces_belong_to_the_caller(face, way, monkeypatch):
    if face == "sb3":
        monkeypatch.setattr("time.time", lambda: 0.0)  # the infos contain it
        sb3 = pytest.importorskip("jaxenvs.faces.stable_baselines3", exc_type=ImportError)
    options = {"seed": 0, "wrappers": WRAPPERS}
    pair = Pair(
        {
            "single": lambda: jaxenvs.make_gym(CounterWithInfo(), **options),
            "classic": lambda: jaxenvs.make_gym(
                CounterWithInfo(), N, api="gym", autoreset_mode="same_step", **options
            ),
            "dm": lambda: jaxenvs.make_dm(CounterWithInfo(), **options),
            "dm batch": lambda: jaxenvs.make_dm(CounterWithInfo(), N, **options),
            "sb3": lambda: sb3.JaxVecEnv(CounterWithInfo(), N, **options),
        }[face]
    )
    action = 1 if face in ("single", "dm") else np.ones(N, np.int64)
    pair.reset()
    for t in range(12):
        if face == "sb3":
            pair.step_async(action)
            pair.step_wait()
        else:
            pair.step(action)
        if t % 5 == 4:
            pair.reset()
    pair.assert_results_never_changed()


def test_no_two_arrays_of_a_step_share_memory(way):
    envs = batch("plain", "same_step")
    envs.reset(seed=0)
    for _ in range(5):
        *parts, infos = envs.step(np.zeros(N, int))
        leaves = jax.tree.leaves((parts, dict(infos)))
        leaves = [leaf for leaf in leaves if leaf.dtype != object]
        for i, leaf in enumerate(leaves):
            assert leaf.flags.writeable
            assert not any(np.shares_memory(leaf, other) for other in leaves[:i])


def test_arrays_that_are_parameters_are_copied():
    given, shared, action = np.arange(1.0, N + 1), np.array(2.0), np.zeros((N, 1), np.float32)
    settings = {"num_envs": N, "batched": ["g"]}
    pair = Pair(lambda: jaxenvs.make_gym("Pendulum-v1", g=given.copy(), **settings))
    pair.written = jaxenvs.make_gym("Pendulum-v1", g=given, **settings)
    given[:] = 50
    pair.reset(seed=0)
    pair.step(action)
    pair.get_attr("g")
    pair.untouched.set_attr("mass", np.array(2.0))
    pair.written.set_attr("mass", shared)
    shared[...] = 50
    pair.get_attr("mass")
    pair.step(action)
    assert pair.written.get_attr("g") == (1, 2, 3, 4)
    assert pair.written.get_attr("mass") == (2, 2, 2, 2)
