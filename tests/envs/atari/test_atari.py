"""The environment plays as ale_py's, for Gymnasium's users as for JAX's."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxenvs
from jaxenvs.bridge.native import libraries
from jaxenvs.envs.atari import Atari
from jaxenvs.envs.atari import atari as module
from jaxenvs.envs.atari.rules import games
from jaxenvs.errors import JaxenvsError, ParameterError
from jaxenvs.spaces.conversion import to_gymnasium
from jaxenvs.testing import check_env

pytestmark = pytest.mark.skipif(
    not libraries.is_there(libraries.XLA), reason="the compiled part is missing"
)
STEPS = 150


def play(env, state, actions):
    """Takes steps and returns their timesteps."""

    def step(state, action):
        return env.step(state, action, jax.random.key(0))

    return jax.jit(lambda state: jax.lax.scan(step, state, actions))(state)[1]


@pytest.mark.interop
@pytest.mark.parametrize("game", ["pong", "ms_pacman", "qbert"])
def test_preprocessed_steps_equal_those_of_gymnasium(game):
    gymnasium, ale_py = pytest.importorskip("gymnasium"), pytest.importorskip("ale_py")
    from benchmarks.oracles import ale as oracle

    gymnasium.register_envs(ale_py)
    inner = ale_py.env.AtariEnv(game, frameskip=1, repeat_action_probability=0.0)
    theirs = gymnasium.wrappers.AtariPreprocessing(inner, noop_max=0)
    theirs.reset(seed=3)
    env = Atari(game=game, preprocessing=True, stack_num=2, repeat_action_probability=0.0)
    state, _ = env.reset(jax.random.key(0))
    game_state, _, _ = oracle.copy(inner.ale, np.asarray(state.game))
    state = state.replace(
        game=jnp.asarray(game_state), lives=jnp.int32(inner.ale.lives()), frames=jnp.int32(0)
    )
    actions = np.random.default_rng(0).integers(0, env.action_space.n, STEPS, np.int32)
    timesteps = jax.tree.map(np.asarray, play(env, state, jnp.asarray(actions)))
    for i, action in enumerate(actions):
        observation, reward, terminated, _, info = theirs.step(int(action))
        assert (timesteps.reward[i], timesteps.terminated[i]) == (reward, terminated), f"step {i}"
        if terminated:
            break
        np.testing.assert_array_equal(timesteps.observation[i, -1], observation, f"step {i}")
        assert timesteps.info["lives"][i] == info["lives"]
        assert timesteps.info["episode_frame_number"][i] == info["episode_frame_number"]
        if i:
            before = timesteps.observation[i - 1, -1]
            np.testing.assert_array_equal(timesteps.observation[i, 0], before)


@pytest.mark.interop
@pytest.mark.parametrize("obs_type", ["rgb", "grayscale", "ram"])
def test_spaces_and_steps_are_those_of_gymnasium(obs_type):
    ale_py = pytest.importorskip("ale_py")
    from benchmarks.oracles import ale as oracle

    parameters = {"obs_type": obs_type, "repeat_action_probability": 0.0, "frameskip": 3}
    theirs = ale_py.env.AtariEnv("assault", **parameters)
    env = Atari(game="assault", **parameters)
    space = env.observation_space
    assert (space.shape, space.dtype) == (
        theirs.observation_space.shape,
        theirs.observation_space.dtype,
    )
    assert env.action_space.n == theirs.action_space.n
    assert list(env.action_meanings) == theirs.get_action_meanings()
    every = Atari(game="assault", full_action_space=True)
    assert every.action_space.n == 18
    assert list(every.action_meanings) == [each.name for each in ale_py.Action][:18]
    theirs.reset(seed=3)
    state, _ = env.reset(jax.random.key(0))
    state = state.replace(game=jnp.asarray(oracle.copy(theirs.ale, np.asarray(state.game))[0]))
    actions = np.random.default_rng(0).integers(0, env.action_space.n, 40, np.int32)
    timesteps = play(env, state, jnp.asarray(actions))
    for i, action in enumerate(actions):
        observation, reward, *_ = theirs.step(int(action))
        np.testing.assert_array_equal(timesteps.observation[i], observation, f"step {i}")
        assert timesteps.reward[i] == reward


@pytest.mark.parametrize("preprocessing", [False, True])
def test_games_keep_the_contract(own_rom, preprocessing):
    small = {"screen_size": (20, 16), "noop_max": 2}
    env = Atari(
        game="breakout", roms_dir=own_rom, obs_type="ram", preprocessing=preprocessing, **small
    )
    check_env(env)


def test_actions_of_frames_are_repeated_with_probability(own_rom):
    env = Atari(game="breakout", roms_dir=own_rom, frameskip=(2, 5), repeat_action_probability=0.25)
    state, _ = env.reset(jax.random.key(0))
    state = state.replace(action=jnp.int32(1))
    keys = jax.random.split(jax.random.key(1), 4_000)
    actions = jax.jit(jax.vmap(lambda key: env._frames(state, jnp.int32(3), key)))(keys)
    counts = np.asarray(actions >= 0).sum(1)
    wanted = env._actions[3]
    assert set(np.unique(counts)) == {2, 3, 4}
    assert abs((actions[:, 0] == 1).mean() - 0.25) < 0.03
    # The second repeats the last one only if the first did.
    assert abs((actions[:, 1] == 1).mean() - 0.0625) < 0.02
    assert set(np.unique(actions)) == {-1, 1, wanted}


def test_batches_reset_and_shard_as_others(own_rom):
    env = Atari(game="breakout", roms_dir=own_rom, obs_type="ram", repeat_action_probability=0.0)
    envs = jaxenvs.vectorize(jaxenvs.wrappers.TimeLimit(env, 3), 6)
    state, timestep = jax.jit(envs.reset)(jax.random.key(0))
    step = jax.jit(envs.step)
    for i in range(4):
        state, timestep = step(state, jnp.arange(6) % 4, jax.random.key(i))
        assert timestep.truncated.all() == (i == 2)
    assert (timestep.info["episode_frame_number"] == 4).all()  # one step after the reset


def test_starts_after_noops_differ(own_rom):
    env = Atari(game="breakout", roms_dir=own_rom, preprocessing=True, noop_max=5)
    begun, _ = Atari(game="breakout", roms_dir=own_rom).reset(jax.random.key(0))
    for fires in (False, True):
        env = env.replace(use_fire_reset=fires)
        states, timesteps = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), 64))
        counted = np.asarray(states.game[:, 11] - begun.game[11])  # the program counts frames there
        assert {*counted.tolist()} == {n + fires for n in range(1, 6)}
        np.testing.assert_array_equal(counted, timesteps.info["episode_frame_number"])
        np.testing.assert_array_equal(timesteps.observation[:, 0], timesteps.observation[:, -1])
        last_actions = states.game[:, 424:428].view(np.int32)  # before `past` in at_game
        assert (last_actions == int(fires)).all()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"game": "breakot"}, "breakot"),
        ({"game": "pitfall2"}, "pitfall2 cannot be played: its cartridge has a processor"),
        ({"obs_type": "rgba"}, "obs_type='rgba'; expected 'rgb', 'grayscale', 'ram'"),
        ({"frameskip": 0}, "frameskip"),
        ({"frameskip": (4, 4)}, r"frameskip=\(4, 4\)"),
        ({"difficulty": 3}, r"difficulty=3; expected one of \[0, 1\]"),
        ({"mode": 3}, r"mode=3; expected one of \[0, 4, 8"),
        ({"noop_max": -1}, "noop_max"),
        ({"screen_size": (84, 0)}, "screen_size"),
        ({"screen_size": (84, 32_768)}, "at most 32767 pixels"),
        ({"screen_size": (84,)}, "expected a height and a width"),
        ({"roms_dir": "/nowhere"}, "no ROM /nowhere/breakout.bin.*ALE_ROMS_DIR"),
    ],
)
def test_wrong_parameters_are_errors(own_rom, parameters, message):
    with pytest.raises(ParameterError, match=message):
        Atari(**({"game": "breakout", "roms_dir": own_rom} | parameters))


def test_a_truncated_rom_is_an_error(tmp_path):
    (tmp_path / "breakout.bin").write_bytes(bytes(100))
    with pytest.raises(ParameterError, match="has 100 bytes; expected one of 2048"):
        Atari(game="breakout", roms_dir=str(tmp_path))


def test_a_missing_compiled_part_names_the_pool(own_rom, monkeypatch):
    def missing():
        raise libraries.NativePartMissing("no compiler")

    monkeypatch.setattr(module.machine, "xla_library", missing)
    with pytest.raises(JaxenvsError, match=r"no compiler.*gymnasium/ALE/Breakout-v5"):
        Atari(game="breakout", roms_dir=own_rom, difficulty=1)


def test_other_devices_call_the_host_back(own_rom, monkeypatch):
    env = Atari(game="breakout", roms_dir=own_rom, obs_type="ram", repeat_action_probability=0.0)
    envs = jaxenvs.vectorize(env, 3)
    state, _ = envs.reset(jax.random.key(0))

    def step(state, action):
        return envs.step(state, action, jax.random.key(1))[1]

    expected = jax.jit(step)(state, jnp.arange(3))
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(
        jax.lax, "platform_dependent", lambda *operands, cpu, default: default(*operands)
    )
    called_back = jax.jit(lambda *args: step(*args))
    assert "callback" in str(jax.make_jaxpr(called_back)(state, jnp.arange(3)))
    chex.assert_trees_all_equal(called_back(state, jnp.arange(3)), expected)


def test_an_episode_ends_after_a_number_of_frames(own_rom):
    env = Atari(game="breakout", roms_dir=own_rom, obs_type="ram", max_num_frames_per_episode=10)
    state, _ = env.reset(jax.random.key(0))
    timesteps = play(env, state, jnp.zeros(3, jnp.int32))
    assert timesteps.truncated.tolist() == [False, False, True]
    assert timesteps.info["episode_frame_number"].tolist() == [4, 8, 10]
    assert (timesteps.observation[:, 11] - state.game[11]).tolist() == [4, 8, 10]


def test_ids_are_those_of_ale_py():
    gymnasium, ale_py = pytest.importorskip("gymnasium"), pytest.importorskip("ale_py")
    gymnasium.register_envs(ale_py)
    ids = [id for id, spec in jaxenvs.registry.items() if spec.family == "atari"]
    assert [jaxenvs.registry[id].kwargs["game"] for id in ids] == list(games())
    for id in ids:
        theirs, env = gymnasium.spec(id).kwargs, jaxenvs.make(id)
        assert {name: getattr(env, name) for name in theirs} == theirs
    for game in ("Backgammon", "Pitfall2"):
        assert jaxenvs.factory.is_hosted(f"ALE/{game}-v5")


@pytest.mark.parametrize("game", ["breakout", "alien"])
def test_continuous_actions_are_those_of_ale_py(game):
    ale_py = pytest.importorskip("ale_py")
    from benchmarks.oracles import ale as oracle

    parameters = {"repeat_action_probability": 0.0, "frameskip": 1, "continuous": True}
    theirs = ale_py.env.AtariEnv(game, obs_type="ram", **parameters)
    env = Atari(game=game, obs_type="ram", **parameters)
    assert env.action_space.contains(np.float32([1, np.pi, 0]))
    assert theirs.action_space == to_gymnasium(env.action_space)
    theirs.reset(seed=3)
    state, _ = env.reset(jax.random.key(0))
    state = state.replace(game=jnp.asarray(oracle.copy(theirs.ale, np.asarray(state.game))[0]))
    theirs.action_space.seed(0)
    actions = np.stack([theirs.action_space.sample() for _ in range(300)])
    timesteps = play(env, state, jnp.asarray(actions))
    for i, action in enumerate(actions):
        np.testing.assert_array_equal(timesteps.observation[i], theirs.step(action)[0], f"step {i}")
    if game == "breakout":
        ends = timesteps.observation[:, 72]  # where the paddle is
        assert len(np.unique(ends)) > 20


def test_strengths_of_paddles_are_rounded_down():
    strengths = np.float32([0, 0.0001, 0.123, 0.3333, 0.32, 0.5, 0.55555, 0.99999, 1])
    right, no = jnp.int32(1), jnp.int32(0)
    actions = jax.vmap(lambda x: module.machine.action_of(right, no, no, x))(strengths)
    ohms = np.floor(np.float64(strengths) * 23_000)
    np.testing.assert_array_equal(actions, 3 + 32 * (23_000 - ohms.astype(int)))
