import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import wrappers as gym

import jaxenvs
from jaxenvs import TimeStep, spaces, struct
from jaxenvs.errors import WrapperError
from jaxenvs.wrappers import ClipAction, DiscretizeAction, RescaleAction, TransformAction
from tests.ids import every_nth
from tests.wrappers._batches import HIGH, LOW, MODES, Echo, GymEcho, assert_as_in_gymnasium

KEY = jax.random.key(0)
KEYS = jax.random.split(KEY, 8)
BOX = spaces.Box(-1.0, 1.0, (2,))


def half(action):
    return 0.5 * action


@jax.jit
def given(env, action):
    """Returns the actions that the wrapped environment receives."""
    state, _ = env.reset(KEY)
    return env.step(state, action, KEY)[1].observation[:2]


# The numbers of bins let no reward be half-way between integers, where rounding could differ.
CASES = {
    "transform": (
        lambda env: env.wrap(TransformAction, half, BOX),
        lambda env: gym.TransformAction(env, half, spaces.to_gymnasium(BOX)),
    ),
    "clip": (ClipAction, gym.ClipAction),
    "rescale": (
        lambda env: env.wrap(RescaleAction, -1.0, np.array([1.0, 4.0], np.float32)),
        lambda env: gym.RescaleAction(env, -1.0, np.array([1.0, 4.0], np.float32)),
    ),
    "discretize": (
        lambda env: env.wrap(DiscretizeAction, 4),
        lambda env: gym.DiscretizeAction(env, 4),
    ),
    "discretize each": (
        lambda env: env.wrap(DiscretizeAction, (2, 4), multidiscrete=True),
        lambda env: gym.DiscretizeAction(env, (2, 4), multidiscrete=True),
    ),
}


@pytest.mark.parametrize(
    ("case", "mode"),
    every_nth(2, [*((c, "same_step") for c in CASES), *(("rescale", m) for m in MODES[1:])]),
)
def test_actions_match_gymnasium(case, mode):
    assert_as_in_gymnasium(*CASES[case], mode)


def test_spaces_match_gymnasium():
    for wrap, gym_wrap in CASES.values():
        space = wrap(Echo()).action_space
        assert spaces.to_gymnasium(space) == gym_wrap(GymEcho([2])).action_space


def test_rescale_action_maps_end_points_exactly():
    env = RescaleAction(Echo(), -0.3, 0.7)
    np.testing.assert_array_equal(given(env, np.full(2, -0.3, np.float32)), LOW)
    np.testing.assert_array_equal(given(env, np.full(2, 0.7, np.float32)), HIGH)


def test_bounds_are_leaves():
    env = RescaleAction(Echo(), 0.0, 1.0)

    def act(high):
        return given(env.replace(max_action=high), jnp.ones(2))

    wide = jax.jit(jax.vmap(act))(np.array([1.0, 2.0], np.float32))
    np.testing.assert_allclose(wide, [HIGH, (LOW + HIGH) / 2], rtol=1e-6)
    assert np.isfinite(jax.jit(jax.jacobian(act))(np.float32(2.0))).all()


class Echoed(jaxenvs.Environment):
    """Its observation is the action."""

    action_space: spaces.Box = struct.static()

    @property
    def observation_space(self):
        return self.action_space

    def reset(self, key):
        zeros = jnp.zeros(self.action_space.shape, self.action_space.dtype)
        return jnp.int32(0), TimeStep.first(zeros)

    def step(self, state, action, key):
        return state, TimeStep.transition(action, reward=0.0, terminated=False)


BOXES = [
    spaces.Box(0, 10, (), np.int32),
    spaces.Box(0, 255, (2,), np.uint8),
    spaces.Box(0.0, np.inf, (2,)),
    spaces.Box(-1.0, 3.0, ()),
]


@pytest.mark.parametrize("box", BOXES, ids=str)
@pytest.mark.parametrize(
    "wrap",
    [
        lambda env: ClipAction(env),
        lambda env: RescaleAction(env, -0.5, 0.5),
        lambda env: DiscretizeAction(env, 3),
        lambda env: DiscretizeAction(env, 3, multidiscrete=True),
    ],
    ids=["clip", "rescale", "discretize", "each"],
)
def test_every_box_gets_its_members_or_an_error(wrap, box):
    try:
        env = wrap(Echoed(box))
    except WrapperError:
        is_integer = np.issubdtype(box.dtype, np.integer)
        assert wrap(Echoed(BOXES[3])) and (is_integer or not np.isfinite(box.high).all())
        return
    state, _ = env.reset(KEY)
    reached = [env.step(state, env.action_space.sample(k), k)[1].observation for k in KEYS]
    assert all(box.contains(each) for each in reached)
    assert len({np.asarray(each).tobytes() for each in reached}) > 1


@pytest.mark.parametrize(
    ("wrap", "word"),
    [
        (lambda: TransformAction(Echo(), 3, BOX), "function"),
        (lambda: TransformAction(Echo(), half, None), "action_space"),
        (lambda: RescaleAction(Echo(), 1.0, -1.0), "swapped"),
        (lambda: RescaleAction(Echo(), -np.ones(3, np.float32), 1.0), "min_action"),
        (lambda: RescaleAction(Echoed(BOXES[0]), -1.0, 1.0), "floating-point"),
        (lambda: DiscretizeAction(Echoed(BOXES[1]), 3), "floating-point"),
        (lambda: DiscretizeAction(Echo(), 0), "bins"),
        (lambda: DiscretizeAction(Echo(), (2, 3, 4)), "2 elements"),
        (lambda: DiscretizeAction(Echo(), 2**16), "int32"),
        (lambda: DiscretizeAction(ClipAction(Echo()), 3), "finite"),
        (lambda: ClipAction(jaxenvs.make("CartPole-v1")), "Box"),
    ],
)
def test_invalid_arguments_are_rejected(wrap, word):
    with pytest.raises(WrapperError, match=word):
        wrap()
