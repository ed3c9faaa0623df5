"""Environments of other JAX libraries with several agents, beside the libraries themselves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxenvs
from benchmarks import agents
from jaxenvs.cli.render import play
from jaxenvs.errors import RenderError, WrapperError
from jaxenvs.multi_agent import sample_legal
from jaxenvs.suites import adapt
from jaxenvs.suites._shared import by_name, cast_like
from jaxenvs.testing import check_env
from jaxenvs.training import PPO, make_train
from jaxenvs.wrappers import IndependentAgents
from tests.rounding import assert_agree

pytestmark = pytest.mark.interop

STEPS, N = 30, 4

IDS = (
    "jaxmarl/MPE_simple_spread_v3",
    "jaxmarl/HeuristicEnemySMAX",
    "jaxmarl/coin_game",
    "jaxmarl/hanabi",
    "jaxmarl/overcooked",
    "jaxmarl/storm_2p",
    "jumanji/Connector-v3",
    "jumanji/LevelBasedForaging-v0",
    "jumanji/SearchAndRescue-v0",
    "pgx/connect_four",
    "pgx/kuhn_poker",
    "pgx/sparrow_mahjong",
    "pgx/tic_tac_toe",
)
# Arguments of `make` that set a step limit, and the step on which it truncates.
LIMITED = {
    "jaxmarl/MPE_simple_spread_v3": ({"max_steps": 4}, 5),
    "jaxmarl/HeuristicEnemySMAX": ({"max_steps": 14}, 15),
    "jaxmarl/overcooked": ({"max_steps": 4}, 4),
    "jumanji/Connector-v3": ({"time_limit": 12}, 12),
    "jumanji/LevelBasedForaging-v0": ({"time_limit": 4}, 4),
    "jumanji/SearchAndRescue-v0": ({"time_limit": 4}, 4),
}
# Those that are reset automatically; a program with resets takes twice as long to compile.
RESET = {"jaxmarl/MPE_simple_spread_v3", "jumanji/LevelBasedForaging-v0", "pgx/kuhn_poker"}
# What belongs to single agents in the observations of jumanji; all else is for all agents.
OF_AGENTS = {
    "Connector-v3": {"action_mask"},
    "LevelBasedForaging-v0": {"action_mask", "agents_view"},
    "SearchAndRescue-v0": {"positions", "searcher_views"},
}


# Programs of the libraries for one instance: `reset(key) -> (state, observations)` and
# `step(state, actions, key) -> (state, observations, rewards, ended)`, with dicts keyed by agent.


def jaxmarl_player(name, parameters):
    jaxmarl = pytest.importorskip("jaxmarl")
    env = jaxmarl.make(name, **parameters)

    def by_agent(values, other=None):
        if not hasattr(values, "keys"):
            values = dict(zip(env.agents, values, strict=True))
        return {str(a): values[a] if a in values else values[f"agent_{a}"] for a in env.agents}

    def observe(observations, state):
        found = by_agent(by_name(observations))
        if name not in ("HeuristicEnemySMAX", "hanabi"):
            return found
        legal = env.get_legal_moves if name == "hanabi" else env.get_avail_actions
        masks = legal(state)
        return {
            agent: {"observation": found[agent], "action_mask": jnp.asarray(masks[agent], bool)}
            for agent in env.agents
        }

    def reset(key):
        observations, state = env.reset(key)
        return state, observe(observations, state)

    def step(state, actions, key):
        actions = {a: actions[str(a)] for a in env.agents}
        observations, state, rewards, dones, _ = env.step_env(key, state, actions)
        over = dones["__all__"]
        ended = {str(a): dones.get(a, dones.get(f"agent_{a}", False)) | over for a in env.agents}
        return state, observe(observations, state), by_agent(rewards), ended

    return reset, step


def jumanji_player(name, parameters):
    jumanji = pytest.importorskip("jumanji")
    env = jumanji.make(name)
    if parameters:
        env = type(env)(**parameters)
    agents = [f"agent_{i}" for i in range(env.num_agents)]

    def observe(timestep):
        seen = timestep.observation._asdict()
        return {
            agent: {k: v[i] if k in OF_AGENTS[name] else v for k, v in seen.items()}
            for i, agent in enumerate(agents)
        }

    def reset(key):
        state, timestep = env.reset(key)
        return state, observe(timestep)

    def step(state, actions, key):
        state, timestep = env.step(state, jnp.stack([actions[agent] for agent in agents]))
        rewards = dict(zip(agents, timestep.reward, strict=True))
        ended = {a: timestep.last() | (timestep.discount[i] == 0) for i, a in enumerate(agents)}
        return state, observe(timestep), rewards, ended

    return reset, step


def pgx_player(name, parameters):
    pgx = pytest.importorskip("pgx")
    env = pgx.make(name)
    agents = [f"player_{i}" for i in range(env.num_players)]

    def observe(state):
        found = {}
        for i, agent in enumerate(agents):
            mask = jnp.zeros(env.num_actions, bool).at[0].set(True)
            mask = jax.lax.select(state.current_player == i, state.legal_action_mask, mask)
            found[agent] = {"observation": env.observe(state, i), "action_mask": mask}
        return found

    def reset(key):
        state = env.init(key)
        return state, observe(state)

    def step(state, actions, key):
        action = jnp.stack([actions[agent] for agent in agents])[state.current_player]
        state = env.step(state, action, key)
        ended = dict.fromkeys(agents, state.terminated | state.truncated)
        return state, observe(state), dict(zip(agents, state.rewards, strict=True)), ended

    return reset, step


PLAYERS = {"jaxmarl": jaxmarl_player, "jumanji": jumanji_player, "pgx": pgx_player}


def play_both(id, parameters):
    """Plays N instances here and in the library with the same legal actions and keys.

    Returns two trees of [STEPS, N, ...], and the first observations.
    """
    suite, _, name = id.partition("/")
    reset, step = PLAYERS[suite](name, parameters)
    mode = "same_step" if id in RESET else "disabled"
    batch = jaxenvs.vectorize(jaxenvs.make(id, **parameters), N, autoreset_mode=mode)

    def act(observation, key):
        each = dict(zip(batch.agents, jax.random.split(key, len(batch.agents)), strict=True))
        return {
            agent: sample_legal(seen, each[agent])
            if isinstance(seen, dict) and "action_mask" in seen
            else batch.action_space[agent].sample(each[agent])
            for agent, seen in observation.items()
        }

    def both(key):
        def once(carry, key):
            ours, timestep, theirs = carry
            instance_keys = jax.random.split(key, N)
            actions = act(timestep.observation, key)
            ours, timestep = batch.step(ours, actions, instance_keys)
            new, *raw = jax.vmap(step)(theirs, actions, instance_keys)
            return (ours, timestep, cast_like(new, theirs)), (timestep, raw)

        reset_key, key = jax.random.split(key)
        instance_keys = jax.random.split(reset_key, N)
        ours, first = batch.reset(instance_keys)
        theirs, observation = jax.vmap(reset)(instance_keys)
        actions = jax.eval_shape(act, first.observation, key)
        shape = jax.eval_shape(jax.vmap(step), theirs, actions, instance_keys)[0]
        start = ours, first, cast_like(theirs, shape)
        played = jax.lax.scan(once, start, jax.random.split(key, STEPS))[1]
        return *played, (first.observation, observation)

    return jax.device_get(jax.jit(both)(jax.random.key(5)))


def assert_rows_agree(ours, theirs, rows):
    # Libraries return Python's numbers and other dtypes than they declare.
    theirs = jax.tree.map(lambda a, b: np.asarray(b, a.dtype), ours, theirs)
    assert_agree(*(jax.tree.map(lambda leaf: leaf[rows], tree) for tree in (ours, theirs)))


@pytest.mark.parametrize("id", IDS)
def test_first_episodes_equal_those_of_the_library(id):
    parameters, limit = LIMITED.get(id, ({}, None))
    ours, (observation, reward, ended), firsts = play_both(id, parameters)
    assert_rows_agree(*firsts, slice(None))
    over = np.logical_and.reduce([*ended.values()])
    before = np.cumsum(over, axis=0) - over == 0  # up to the end of the first episode
    assert_rows_agree(ours.final_observation, observation, before)
    assert_rows_agree(ours.reward, reward, before)
    assert_rows_agree(ours.ended, ended, before)
    for flag in (*ours.terminated.values(), *ours.truncated.values()):
        assert (flag[1:] | ~flag[:-1])[before[1:]].all()  # it stays so
    if limit is None:
        assert not any(flag[before].any() for flag in ours.truncated.values())
    else:
        assert jaxenvs.make(id, **parameters).time_limit == limit
        assert not any(
            flag[: limit - 1][before[: limit - 1]].any() for flag in ours.truncated.values()
        )
        ends = np.logical_and.reduce([*ours.terminated.values()])[limit - 1]  # by the task
        cut = before[limit - 1] & ~ends
        assert cut.any() and all(flag[limit - 1, cut].all() for flag in ours.truncated.values())


@pytest.mark.parametrize(
    "id", ["jaxmarl/coin_game", "jumanji/LevelBasedForaging-v0", "pgx/kuhn_poker"]
)
def test_multi_agent_suites_follow_the_contract(id):
    pytest.importorskip(id.partition("/")[0])
    check_env(jaxenvs.make(id, time_limit=5), num_steps=12, num_envs=2)


def test_environments_of_a_user_are_adapted_by_their_class():
    jaxmarl, pgx = pytest.importorskip("jaxmarl"), pytest.importorskip("pgx")
    assert adapt(jaxmarl.make("hanabi", num_agents=3)).agents == ("agent_0", "agent_1", "agent_2")
    assert adapt(pgx.make("tic_tac_toe")).agents == ("player_0", "player_1")


def test_a_move_changes_one_cell_of_the_picture():
    pytest.importorskip("pgx")
    env, key = jaxenvs.make("pgx/tic_tac_toe"), jax.random.key(0)
    state, _ = env.reset(key)
    before = np.asarray(env.render(state))
    assert before.shape == (240, 240, 3) and before.dtype == np.uint8
    for move, row, column in ((0, 0, 0), (5, 1, 2)):
        state, _ = env.step(state, dict.fromkeys(env.agents, jnp.int32(move)), key)
        after = np.asarray(env.render(state))
        rows, columns, _ = np.nonzero(after != before)
        for found, cell in ((rows, row), (columns, column)):
            start = 30 + 60 * cell
            assert start < found.min() and found.max() < start + 60
        before = after


def test_text_is_drawn_where_its_font_is_missing():
    pytest.importorskip("pgx")
    env = jaxenvs.make("pgx/kuhn_poker")
    states = [env.reset(jax.random.key(seed))[0] for seed in range(8)]
    pictures = {env.render(state).tobytes() for state in states}
    assert len(pictures) == len({tuple(state._cards.tolist()) for state in states}) > 1


def test_a_particle_is_drawn_where_it_is():
    pytest.importorskip("jaxmarl")
    env = jaxenvs.make("jaxmarl/MPE_simple_spread_v3")
    (state, terminated), _ = env.reset(jax.random.key(0))

    def center(position):  # of the axes
        places = jnp.full_like(state.p_pos, 1.5).at[0].set(position)
        return env.render((state.replace(p_pos=places), terminated))[252, 256]

    assert (center(-1.0) == 255).all() and (center(0.0) < 255).any()
    with pytest.raises(RenderError, match="outside of jit"):
        jax.jit(env.render)((state, terminated))


def test_episodes_of_several_agents_are_recorded():
    pytest.importorskip("pgx")
    env, key = jaxenvs.make("pgx/connect_four"), jax.random.key(0)
    frames, total = play(env, None, key, max_steps=2)
    assert total == 0 and len({frame.tobytes() for frame in frames}) == len(frames) == 3
    state, _ = env.reset(jax.random.split(key)[0])
    np.testing.assert_array_equal(frames[0], env.render(state))


@pytest.mark.parametrize("name", ["HeuristicEnemySMAX", "jaxnav", "overcooked_v2", "storm_np"])
def test_pictures_follow_the_actions(name):
    pytest.importorskip("jaxmarl")
    env, step = jaxenvs.make(f"jaxmarl/{name}"), jax.jit(lambda env, *args: env.step(*args))
    state, _ = env.reset(jax.random.key(0))
    frames = [np.asarray(env.render(state))]
    for key in jax.random.split(jax.random.key(1), 4):
        state, _ = step(env, state, env.action_space.sample(key), key)
        frames.append(np.asarray(env.render(state)))
    assert len({frame.tobytes() for frame in frames}) > 1
    assert {(frame.shape, frame.dtype.name) for frame in frames} == {(frames[0].shape, "uint8")}


def test_missing_pictures_are_reported():
    pytest.importorskip("jaxmarl")
    env = jaxenvs.make("jaxmarl/hanabi")
    with pytest.raises(RenderError, match="JaxMARL has no pictures of Hanabi"):
        env.render(env.reset(jax.random.key(0))[0])


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


@pytest.mark.parametrize(
    ("name", "cap", "rewards"), [("go_9x9", 162, [-1, 1]), ("chess", 512, [0, 0])]
)
def test_a_cap_of_moves_terminates_a_game_with_its_result(name, cap, rewards):
    pytest.importorskip("pgx")
    env, key = jaxenvs.make(f"pgx/{name}"), jax.random.key(0)
    assert env.time_limit is None
    state, timestep = jax.jit(env.reset)(key)
    action = sample_legal(timestep.observation, key)
    step = jax.jit(env.step)
    for moves in (cap - 2, cap - 1):
        late = state.replace(_x=state._x._replace(step_count=jnp.int32(moves)))
        _, timestep = step(late, action, key)
        assert not any(timestep.truncated.values())
        assert set(map(bool, timestep.terminated.values())) == {moves == cap - 1}
    assert sorted(map(int, timestep.reward.values())) == rewards


@pytest.mark.parametrize("moves", [(0, 3, 1, 4, 2), (0, 0)], ids=["won", "illegal"])
def test_players_of_a_finished_game_are_not_to_act(moves):
    pytest.importorskip("pgx")
    env, key = jaxenvs.make("pgx/tic_tac_toe"), jax.random.key(0)
    state, timestep = env.reset(key)
    for move in moves:
        assert sum(map(int, timestep.to_act.values())) == 1
        action = dict.fromkeys(env.agents, jnp.int32(move))
        state, timestep = env.step(state, action, key)
    assert timestep.done and not any(timestep.to_act.values())


def test_agents_with_different_spaces_train_together():
    pytest.importorskip("jaxmarl")
    batch = jaxenvs.make_vec("jaxmarl/MPE_simple_speaker_listener_v4", 8)
    rows = IndependentAgents(batch, agent_id=True, central_critic=True)
    train = make_train(rows, PPO(), unroll_length=8, total_steps=256)
    assert np.isfinite(jax.jit(train)(jax.random.key(0)).metrics["policy_loss"]).all()


def test_mabrax_does_not_reset_itself():
    jaxmarl = pytest.importorskip("jaxmarl")
    pytest.importorskip("brax")
    with pytest.raises(WrapperError, match="auto_reset=False"):
        adapt(jaxmarl.make("hopper_3x1"))
    assert jaxenvs.make("jaxmarl/hopper_3x1").time_limit == 1000


def test_benchmark_trains_on_but_does_not_score_shaped_rewards(capsys):
    pytest.importorskip("jaxenvs.suites.jaxmarl", exc_type=ImportError)
    task = agents.TASKS["IPPO cramped_room"]
    assert repr(task.train().env) != repr(task.batch(2, task.layers))
    small = ["--seeds", "1", "--episodes", "2", "--share", "0.001"]
    agents.main(["--only", "IPPO simple_spread", *small])
    assert "| IPPO simple_spread | 3,000 | mean return | -" in capsys.readouterr().out


def test_an_opponent_that_looks_ahead_wins_and_prevents_losses():
    empty = np.zeros((6, 7, 2), bool)
    row, column, diagonal = empty.copy(), empty.copy(), empty.copy()
    row[5, 2:5, 0] = True  # wins in 1 or 5
    row[5, 6, 1] = True
    column[2:5, 3, 0] = True  # threatens to win in 3
    column[5, 3, 1] = True
    diagonal[[5, 4, 3], [0, 1, 2], 0] = True  # wins in 3, on row 2
    diagonal[3:, 3, 1] = True
    boards = jnp.stack([row, column, column[..., ::-1], diagonal])
    observation = {"observation": boards, "action_mask": ~boards[:, 0].any(axis=-1)}
    for seed in range(8):
        moves = agents.one_step_ahead(observation, jax.random.key(seed)).tolist()
        assert moves[0] in (1, 5) and moves[1:] == [3, 3, 3]
