"""Environments of JaxMARL and games of pgx with several agents, beside the libraries themselves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxenvs
from jaxenvs.catalog.suites import suite_ids
from jaxenvs.errors import WrapperError
from jaxenvs.suites import adapt
from jaxenvs.testing import check_env
from jaxenvs.training import PPO, make_train
from jaxenvs.wrappers import IndependentAgents
from tests.rounding import assert_agree

pytestmark = pytest.mark.interop

N, STEPS = 4, 28

IDS = (
    *("jaxmarl/MPE_simple_spread_v3", "jaxmarl/MPE_simple_adversary_v3", "jaxmarl/overcooked"),
    *("jaxmarl/HeuristicEnemySMAX", "jaxmarl/hanabi", "jaxmarl/coin_game", "jaxmarl/storm_2p"),
    *("pgx/connect_four", "pgx/tic_tac_toe", "pgx/kuhn_poker", "pgx/sparrow_mahjong"),
)


@pytest.fixture(autouse=True)
def _usual_promotion():
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        yield


def jaxmarl_player(name):
    """Returns the library's own functions: observations, rewards and whether the episode ended."""
    env = pytest.importorskip("jaxmarl").make(name)

    def step(state, action, key):
        action = {agent: action[str(agent)] for agent in env.agents}
        observation, state, reward, done, _ = env.step_env(key, state, action)
        return state, by_agent(observation), by_agent(reward), done["__all__"]

    def by_agent(values):
        return [values[agent] for agent in env.agents]

    def reset(key):
        observation, state = env.reset(key)
        return state, by_agent(observation)

    return reset, step


def pgx_player(name):
    env = pytest.importorskip("pgx").make(name)

    def observe(state):
        return [env.observe(state, i) for i in range(env.num_players)]

    def reset(key):
        state = env.init(key)
        return state, observe(state)

    def step(state, action, key):
        chosen = jnp.stack([action[f"player_{i}"] for i in range(env.num_players)])
        state = env.step(state, chosen[state.current_player], key)
        return state, observe(state), [*state.rewards], state.terminated | state.truncated

    return reset, step


@pytest.mark.parametrize("id", IDS)
def test_first_episodes_equal_those_of_the_library(id):
    suite, _, name = id.partition("/")
    reset, step = {"jaxmarl": jaxmarl_player, "pgx": pgx_player}[suite](name)
    env = jaxenvs.make(id)
    has_masks = "action_mask" in str(env.observation_space)

    def seen(observation):
        rows = [observation[agent] for agent in env.agents]
        return [row["observation"] for row in rows] if has_masks else rows

    def act(observation, key):
        return jaxenvs.sample_legal(observation, key) if has_masks else env.action_space.sample(key)

    def play(key):
        state, timestep = env.reset(key)
        theirs, observation = reset(key)
        first = seen(timestep.observation), observation

        def advance(carry, keys):
            state, timestep, theirs = carry
            action = act(timestep.observation, keys[0])
            state, timestep = env.step(state, action, keys[1])
            theirs, *results = step(theirs, action, keys[1])
            theirs = jax.tree.map(lambda x, like: jnp.asarray(x, like.dtype), theirs, carry[2])
            rewards = [timestep.reward[agent] for agent in env.agents]
            ours = seen(timestep.observation), rewards, timestep.done
            return (state, timestep, theirs), (ours, tuple(results))

        theirs = jax.tree.map(
            lambda x, like: jnp.asarray(x, like.dtype),
            theirs,
            jax.eval_shape(step, theirs, act(timestep.observation, key), key)[0],
        )
        keys = jax.random.split(key, (STEPS, 2))
        return first, jax.lax.scan(advance, (state, timestep, theirs), keys)[1]

    first, (ours, theirs) = jax.device_get(
        jax.jit(jax.vmap(play))(jax.random.split(jax.random.key(5), N))
    )
    assert_agree(*map(as_floats, first))
    before = np.cumsum(theirs[2], axis=1) - theirs[2] == 0  # up to the end of the first episode
    np.testing.assert_array_equal(ours[2][before], theirs[2][before])
    for mine, other in zip(jax.tree.leaves(ours[:2]), jax.tree.leaves(theirs[:2]), strict=True):
        assert_agree(np.float32(mine)[before], np.float32(other)[before])


def as_floats(tree):
    return [np.float32(leaf) for leaf in jax.tree.leaves(tree)]


@pytest.mark.parametrize(
    "id", ["jaxmarl/MPE_simple_spread_v3", "jaxmarl/HeuristicEnemySMAX", "pgx/tic_tac_toe"]
)
def test_it_follows_the_contract(id):
    pytest.importorskip(id.partition("/")[0])
    check_env(jaxenvs.make(id))


def test_the_limit_truncates_and_keeps_the_last_observation():
    pytest.importorskip("jaxmarl")
    batch = jaxenvs.make_vec("jaxmarl/MPE_simple_spread_v3", N, max_steps=3)
    trajectory = jaxenvs.rollout(batch, None, 9, jax.random.key(0)).trajectory
    done = np.asarray(trajectory.truncated["agent_0"])
    assert done.any()
    assert not np.asarray(trajectory.terminated["agent_0"]).any()
    # Velocities are 0 at the start of an episode, and not at its end.
    speeds = np.abs(np.asarray(trajectory.final_observation["agent_0"])[..., :2]).sum(-1)
    assert speeds[done].min() > 0
    starts = np.abs(np.asarray(trajectory.observation["agent_0"])[1:][done[:-1]][:, :2])
    assert not starts.any()


def test_units_that_die_end_before_the_others():
    pytest.importorskip("jaxmarl")
    batch = jaxenvs.make_vec("jaxmarl/HeuristicEnemySMAX", 8)
    trajectory = jaxenvs.rollout(batch, jaxenvs.sample_legal, 60, jax.random.key(0)).trajectory
    ended = np.stack([trajectory.terminated[agent] for agent in batch.agents])
    assert (ended.any(axis=0) & ~ended.all(axis=0)).any()
    # An agent that has ended stays so until all have.
    over = ended.all(axis=0)
    assert (ended[:, 1:] | over[:-1] | ~ended[:, :-1]).all()


def test_only_the_player_to_move_has_a_choice():
    pytest.importorskip("pgx")
    batch = jaxenvs.make_vec("pgx/connect_four", N)
    state, timestep = batch.reset(jax.random.key(0))
    for t in range(5):
        masks = np.stack([timestep.observation[agent]["action_mask"] for agent in batch.agents])
        acts = np.stack([timestep.to_act[agent] for agent in batch.agents])
        assert (acts.sum(axis=0) == 1).all()
        np.testing.assert_array_equal(masks.sum(axis=2), np.where(acts, 7, 1))
        action = jaxenvs.sample_legal(timestep.observation, jax.random.key(t))
        state, timestep = batch.step(state, action, jax.random.key(t))


def test_agents_with_different_spaces_train_together():
    pytest.importorskip("jaxmarl")
    batch = jaxenvs.make_vec("jaxmarl/MPE_simple_speaker_listener_v4", 8)
    rows = IndependentAgents(batch, agent_id=True, central_critic=True)
    train = make_train(rows, PPO(), unroll_length=8, total_steps=256)
    assert np.isfinite(jax.jit(train)(jax.random.key(0)).metrics["policy_loss"]).all()


def test_ids_and_environments_of_a_user():
    jaxmarl = pytest.importorskip("jaxmarl")
    assert "jaxmarl/overcooked" in suite_ids("jaxmarl")
    assert adapt(jaxmarl.make("MPE_simple_spread_v3")).agents == ("agent_0", "agent_1", "agent_2")
    pytest.importorskip("brax")
    with pytest.raises(WrapperError, match="auto_reset=False"):
        adapt(jaxmarl.make("hopper_3x1"))
    assert jaxenvs.make("jaxmarl/hopper_3x1").time_limit == 1000
