"""Environments of Kinetix beside the library itself; few, because they take long to compile."""

import jax
import numpy as np
import pytest

import jaxenvs
from jaxenvs.errors import UnknownParameterError
from jaxenvs.suites import adapt
from jaxenvs.suites._shared import cast_like
from jaxenvs.testing import check_env
from tests.rounding import assert_agree
from tests.suites.combinations import check_combinations

pytest.importorskip("kinetix")

pytestmark = pytest.mark.interop

ID, LIMIT, N = "kinetix/s/h8_unicycle_balance", 22, 8


def test_first_episodes_match_kinetix_and_limit_truncates():
    env = jaxenvs.make(ID, max_timesteps=LIMIT)
    assert env.time_limit == LIMIT
    from kinetix import environment
    from kinetix.environment.ued import ued
    from kinetix.util import load_from_json_file

    _, fixed, params = load_from_json_file("s/h8_unicycle_balance")
    params = params.replace(max_timesteps=LIMIT)
    kind = environment.ActionType.MULTI_DISCRETE, environment.ObservationType.SYMBOLIC_FLAT
    reset = ued.make_reset_fn_list_of_levels(["s/h8_unicycle_balance"], fixed)
    library = environment.make_kinetix_env(*kind, reset, params, fixed, auto_reset=False)

    def both(key):
        state, first = env.reset(key)
        observation, theirs = library.reset(key, params)

        def once(states, key):
            action = env.action_space.sample(key)
            ours, timestep = env.step(states[0], action, key)
            obs, theirs, reward, done, _ = library.step(key, states[1], action, params)
            result = (timestep.observation, timestep.reward, timestep.done), (obs, reward, done)
            return (ours, cast_like(theirs, states[1])), (*result, timestep.truncated)

        states = state, cast_like(theirs, state.inner)
        steps = jax.lax.scan(once, states, jax.random.split(key, LIMIT))[1]
        return (first.observation, observation), steps

    keys = jax.random.split(jax.random.key(0), N)
    firsts, (ours, theirs, truncated) = jax.device_get(jax.jit(jax.vmap(both))(keys))
    assert_agree(*firsts)
    done = theirs[2]
    before = np.cumsum(done, axis=1) - done == 0  # up to the end of the first episode
    assert_agree(*([leaf[before] for leaf in leaves] for leaves in (ours, theirs)))
    early = done[:, :-1].any(axis=1)
    assert early.any() and not early.all()
    assert not truncated[:, :-1].any() and truncated[~early, -1].all()


def test_kinetix_follows_the_contract():
    check_env(jaxenvs.make(ID, time_limit=5), num_steps=12, num_envs=4)


def test_mesh_and_autoreset_mode_do_not_change_results():
    check_combinations(jaxenvs.make(ID, time_limit=3))


def test_pictures_show_the_level():
    env = jaxenvs.make(ID)
    state, _ = env.reset(jax.random.key(0))
    picture = np.asarray(env.render(state))
    assert picture.shape == (500, 500, 3) and picture.dtype == np.uint8
    floor, sky = picture[-1, 2:-2], picture[0]
    assert (floor == floor[0]).all() and (sky == 255).all() and floor[0, 0] != 255


def test_observation_type_action_type_and_parameters_apply():
    env = jaxenvs.make(ID, observation_type="symbolic_entity", action_type="continuous", dt=0.01)
    assert env.observation_space.spaces["circles"].shape == (2, 19)
    assert env.action_space.shape == (6,) and env.parameters["dt"] == 0.01
    own = env.unwrapped.env.value
    assert adapt(own, own.default_params.replace(max_timesteps=9)).time_limit == 9
    with pytest.raises(UnknownParameterError, match='Close: "frame_skip"'):
        jaxenvs.make(ID, frame_skips=1)
