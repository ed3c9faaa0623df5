import gymnasium
import jax
import numpy as np
import pytest

import jaxenvs
from jaxenvs import spaces
from jaxenvs.errors import WrapperError
from jaxenvs.testing import CountingEnv, check_env
from jaxenvs.wrappers import (
    AddRenderObservation,
    FrameStackObservation,
    GrayscaleObservation,
    ResizeObservation,
    TransformObservation,
)
from tests.ids import every_nth
from tests.wrappers._batches import MODES, N
from tests.wrappers._observations import Painted, Tape, assert_as_in_gymnasium, record, record_batch

PICTURES = spaces.Box(0, 255, (6, 9, 3), np.uint8)


def painted(**options):
    return AddRenderObservation(Painted(), **options)


def shown(count):
    """Returns the image of each count, [..., 6, 9, 3]."""
    pixels = np.arange(6 * 9 * 3).reshape(6, 9, 3) * 5
    return (pixels + np.asarray(count, int)[..., None, None, None] * 37) % 256


@pytest.mark.parametrize("mode", every_nth(3, MODES, first=1))
def test_images_show_the_state_of_their_step(mode):
    vector_env = jaxenvs.vectorize(Painted(), N, autoreset_mode=mode, reset_chunk=N)
    timesteps = record(vector_env.wrap(AddRenderObservation, render_only=False))
    assert np.asarray(timesteps.done).sum() > 2
    for observation in (timesteps.observation, timesteps.final_observation):
        np.testing.assert_array_equal(observation["pixels"], shown(observation["state"][..., 0]))


@pytest.mark.parametrize("layout", ["array", "dict"])
def test_keys_and_space_match_gymnasium(layout):
    env = Painted(layout=layout)
    ours = AddRenderObservation(env, render_only=False, render_key="frame", obs_key="numbers")
    key = jax.random.key(0)
    state, timestep = env.reset(key)
    rows = jax.tree.map(lambda leaf: np.asarray(leaf)[None], timestep)
    tape = Tape(env.observation_space, rows, pictures=[np.asarray(env.render(state))])
    theirs = gymnasium.wrappers.AddRenderObservation(
        tape, render_only=False, render_key="frame", obs_key="numbers"
    )
    assert spaces.to_gymnasium(ours.observation_space) == theirs.observation_space
    jax.tree.map(np.testing.assert_array_equal, ours.reset(key)[1].observation, theirs.reset()[0])


@pytest.mark.slow  # the pipeline below passes it, too
@pytest.mark.parametrize("render_only", [True, False])
def test_images_pass_check_env(render_only):
    check_env(painted(render_only=render_only), num_steps=16, num_envs=4)


def test_images_are_those_of_render():
    env = AddRenderObservation(jaxenvs.make("CartPole-v1", gravity=3.7))
    assert env.observation_space == spaces.Box(0, 255, (400, 600, 3), np.uint8)
    state, timestep = jax.jit(env.reset)(jax.random.key(0))
    np.testing.assert_array_equal(timestep.observation, jax.jit(env.render)(state))


def test_environments_without_render_are_rejected():
    with pytest.raises(WrapperError, match="CountingEnv does not define"):
        AddRenderObservation(CountingEnv())


def test_existing_key_is_reported():
    with pytest.raises(WrapperError, match='render_key="draw"'):
        AddRenderObservation(Painted(layout="dict"), render_only=False, render_key="draw")
    with pytest.raises(WrapperError, match='render_key="state"'):
        AddRenderObservation(Painted(), render_only=False, render_key="state")


@pytest.mark.parametrize("keep_dim", [False, True])
def test_gray_matches_gymnasium_up_to_rounding(keep_dim):
    assert_as_in_gymnasium(
        lambda env: GrayscaleObservation(env, keep_dim),
        lambda env: gymnasium.wrappers.GrayscaleObservation(env, keep_dim),
        painted(),
        atol=1,
    )


def test_gray_is_exact_for_every_level():
    gray = GrayscaleObservation(painted()).map_observation
    levels = np.arange(256, dtype=np.uint8)
    np.testing.assert_array_equal(gray(np.stack([levels] * 3, -1)[None]), levels[None])
    colors = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    expected = colors.astype(object) @ np.array([2125, 7154, 721], object) // 10_000
    np.testing.assert_array_equal(gray(colors), expected.astype(np.uint8))


@pytest.mark.parametrize("shape", every_nth(2, [((3, 3),), ((4, 5),), ((12, 27),), ((6, 9),)]))
def test_resizing_matches_gymnasium_up_to_rounding(shape):
    pytest.importorskip("cv2")
    assert_as_in_gymnasium(
        lambda env: ResizeObservation(env, shape),
        lambda env: gymnasium.wrappers.ResizeObservation(env, shape),
        painted(),
        atol=1,
    )


@pytest.mark.parametrize("old", [(210, 160), (400, 600), (42, 84)])
def test_shrinking_noise_matches_opencv_inter_area(old):
    cv2 = pytest.importorskip("cv2")
    noise = np.random.default_rng(1).integers(0, 256, (*old, 3), np.uint8)
    env = TransformObservation(
        painted(), lambda picture: noise, spaces.Box(0, 255, noise.shape, np.uint8)
    )
    ours = np.asarray(jax.jit(ResizeObservation(env, (42, 84)).map_observation)(noise))
    theirs = cv2.resize(noise, (84, 42), interpolation=cv2.INTER_AREA)
    difference = np.abs(ours.astype(int) - theirs.astype(int))
    assert difference.max() <= 1 and (difference > 0).mean() < 0.02


@pytest.mark.parametrize("mode", every_nth(3, MODES))
def test_image_pipeline_with_opaque_and_accessible_batches(mode):
    def wrap(env):
        return (
            env.wrap(GrayscaleObservation)
            .wrap(ResizeObservation, (3, 4))
            .wrap(FrameStackObservation, 2)
        )

    timesteps = record_batch(wrap, painted(), mode)
    assert timesteps.observation.shape[2:] == (2, 3, 4)


def test_image_pipeline_passes_check_env():
    env = ResizeObservation(GrayscaleObservation(painted()), [3, 4])
    check_env(env, num_steps=16, num_envs=4)


@pytest.mark.parametrize("shape", [3, (3,), (3, 0), (3.0, 4)])
def test_invalid_shapes_are_rejected(shape):
    with pytest.raises(WrapperError, match="height, width"):
        ResizeObservation(painted(), shape)


@pytest.mark.parametrize(
    "wrapper", [GrayscaleObservation, lambda env: ResizeObservation(env, (3, 3))]
)
def test_non_images_are_rejected(wrapper):
    with pytest.raises(WrapperError, match="needs image observations"):
        wrapper(CountingEnv())
