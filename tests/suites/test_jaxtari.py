"""Environments of JAXtari beside the library itself, with rectangles for sprites."""

import jax
import numpy as np
import pytest

import jaxenvs
from jaxenvs.errors import InstallationError, UnknownParameterError, WrapperError
from jaxenvs.suites import adapt
from jaxenvs.suites._shared import by_name, cast_like
from jaxenvs.testing import check_env
from tests.rounding import assert_agree
from tests.suites.combinations import check_combinations

core = pytest.importorskip("jaxtari.core")

pytestmark = pytest.mark.interop

ID, STEPS, N = "jaxtari/pong", 5_000, 4
SPRITES = {"background": (210, 160), "player": (16, 4), "enemy": (16, 4), "ball": (4, 2)}
SPRITES |= {f"{who}_score_{i}": (20, 12) for who in ("player", "enemy") for i in range(10)}


@pytest.fixture(autouse=True)
def _sprites(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    folder = tmp_path / "jaxtari" / "sprites" / "pong"
    folder.mkdir(parents=True)
    (folder.parent / ".version").write_text("1")
    (folder.parent.parent / ".alternative_sprites_installed").touch()
    for i, (name, shape) in enumerate(SPRITES.items()):
        np.save(folder / f"{name}.npy", np.full((*shape, 4), (9 * i, 99, 99, 255), np.uint8))


def test_without_sprites_the_error_names_the_command(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "empty"))
    with pytest.raises(InstallationError, match=r"python -m jaxtari\.install_sprites"):
        jaxenvs.make(ID)


def test_first_episodes_equal_those_of_the_library():
    env, library = jaxenvs.make(ID, ENEMY_STEP_SIZE=3), core.make("pong")
    library = type(library)(library.consts.replace(ENEMY_STEP_SIZE=3))

    def both(key):
        state, first = env.reset(key)
        observation, theirs = library.reset(jax.random.key_data(key))

        def once(states, key):
            action = env.action_space.sample(key)
            ours, timestep = env.step(states[0], action, key)
            obs, theirs, reward, done, _ = library.step(states[1], action)
            result = (timestep.observation, timestep.reward, timestep.terminated)
            theirs = cast_like(theirs, states[1])
            return (ours, theirs), (result, cast_like((by_name(obs), reward, done), result))

        states = state, cast_like(theirs, state)
        steps = jax.lax.scan(once, states, jax.random.split(key, STEPS))[1]
        return (first.observation, by_name(observation)), steps

    keys = jax.random.split(jax.random.key(0), N)
    firsts, (ours, theirs) = jax.device_get(jax.jit(jax.vmap(both))(keys))
    assert_agree(firsts[0], cast_like(firsts[1], firsts[0]))
    done = theirs[2]
    assert done.any(axis=1).all()
    before = np.cumsum(done, axis=1) - done == 0  # up to the end of the first episode
    assert_agree(*(jax.tree.map(lambda leaf: leaf[before], tree) for tree in (ours, theirs)))


@pytest.mark.parametrize("pixels", [False, True])
def test_jaxtari_follows_the_contract(pixels):
    check_env(jaxenvs.make(ID, time_limit=5, pixels=pixels), num_steps=12, num_envs=4)


def test_mesh_and_autoreset_mode_do_not_change_results():
    check_combinations(jaxenvs.make(ID, time_limit=3))


def test_pixels_are_the_picture_of_the_library():
    env = jaxenvs.make(ID, pixels=True)
    state, first = env.reset(jax.random.key(0))
    assert first.observation.shape == (210, 160, 3) and first.observation.dtype == np.uint8
    np.testing.assert_array_equal(first.observation, core.make("pong").render(state))
    np.testing.assert_array_equal(first.observation, env.render(state))


def test_constants_are_validated_and_modified_games_adapted():
    with pytest.raises(UnknownParameterError, match='Close: "ENEMY_STEP_SIZE"'):
        jaxenvs.make(ID, ENEMY_STEPS=1)
    modified = adapt(core.make("pong", mods=["lazy_enemy"]))
    state, first = modified.reset(jax.random.key(0))
    following = modified.step(state, np.int32(0), jax.random.key(1))[1]
    assert jax.tree.structure(first) == jax.tree.structure(following)
    with pytest.raises(WrapperError, match="expected an environment of jaxtari"):
        adapt(jaxenvs.suites.jaxtari.core.JaxtariWrapper(modified.env.value))
