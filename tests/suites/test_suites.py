"""Environments of other JAX libraries by their ids, beside the libraries themselves."""

import dataclasses
import functools
import re
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxenvs
from benchmarks import suites
from benchmarks._suite_peers import PLAYERS
from jaxenvs import cli, struct
from jaxenvs.catalog.suites import SUITES, suite_ids
from jaxenvs.cli.render import play
from jaxenvs.errors import (
    EnvironmentCheckError,
    ParameterError,
    RenderError,
    UnknownEnvironmentError,
    UnknownParameterError,
    VectorizeError,
    WrapperError,
)
from jaxenvs.suites import adapt
from jaxenvs.suites._shared import cast_like
from jaxenvs.testing import check_env
from jaxenvs.testing._report import find_outside
from jaxenvs.testing._run_checks import QUICK_TO_COMPILE
from jaxenvs.training import PPO, make_train
from jaxenvs.training.distributions import distribution_for
from tests.rounding import assert_agree
from tests.suites.combinations import check_combinations

pytestmark = pytest.mark.interop

STEPS, SHORT, N = 24, 4, 8


@dataclasses.dataclass(frozen=True)
class Library:
    """Facts about a library that the tests use.

    Args:
        ids: examples of its environments.
        limit: the name of its step limit among the parameters of `make`.
        flaws: the checks of `check_env` that its own code fails.
    """

    ids: tuple[str, ...]
    limit: str | None
    flaws: frozenset[str] = frozenset()


LIBRARIES = {
    "brax": Library(
        ("brax/inverted_pendulum", "brax/fast", "brax/inverted_double_pendulum"),
        "episode_length",
        flaws=frozenset({"leak"}),  # of jaxopt, which solves for contacts
    ),
    "craftax": Library(
        ("craftax/Craftax-Classic-Symbolic-v1",),
        "max_timesteps",
        flaws=frozenset({"keys"}),
    ),
    "gymnax": Library(
        ("gymnax/CartPole-v1", "gymnax/Breakout-MinAtar", "gymnax/DiscountingChain-bsuite"),
        "max_steps_in_episode",
    ),
    "jumanji": Library(
        ("jumanji/Maze-v0", "jumanji/Snake-v1", "jumanji/Game2048-v1"),
        "time_limit",
    ),
    "navix": Library(
        ("navix/Navix-DoorKey-5x5-v0", "navix/Navix-Empty-5x5-v0", "navix/Navix-LavaGapS5-v0"),
        "max_steps",
    ),
    "pgx": Library(("pgx/2048", "pgx/minatar-breakout", "pgx/minatar-asterix"), None),
    "playground": Library(
        ("playground/CartpoleBalance", "playground/PendulumSwingup", "playground/PointMass"),
        "episode_length",
        flaws=frozenset({"keys"}),
    ),
    "xminigrid": Library(
        (
            "xminigrid/MiniGrid-DoorKey-5x5",
            "xminigrid/MiniGrid-Empty-5x5",
            "xminigrid/XLand-MiniGrid-R1-9x9",
        ),
        "max_steps",
    ),
}
IDS = [id for library in LIBRARIES.values() for id in library.ids]
LIMITED = [library.ids[0] for library in LIBRARIES.values() if library.limit]


def suite_of(id):
    """Returns the facts of the id's library, or skips the test if it is not installed."""
    suite = id.partition("/")[0]
    pytest.importorskip({"playground": "mujoco_playground"}.get(suite, suite))
    return LIBRARIES[suite]


def test_every_suite_is_tested():
    elsewhere = {"jaxmarl", "jaxtari", "kinetix"}  # in modules of their own
    assert LIBRARIES.keys() | elsewhere == SUITES.keys()


def play_both(id, parameters, steps=STEPS):
    """Plays N instances here and in the library, without resets: two trees of [steps, N, ...]."""
    suite_of(id)
    suite, _, name = id.partition("/")
    env = jaxenvs.make(id, **parameters)
    reset, step = PLAYERS[suite](name, parameters)

    def both(key):
        first, *rest = jax.random.split(key, 2 * steps + 1)
        state, timestep = env.reset(first)
        theirs, observation = reset(first)
        return scan(state, theirs, jnp.stack(rest)), (timestep.observation, observation)

    def scan(state, theirs, keys):
        def ours_once(state, given):
            state, timestep = env.step(state, env.action_space.sample(given[0]), given[1])
            ends = timestep.terminated, timestep.truncated
            return state, (timestep.observation, timestep.reward, *ends)

        def theirs_once(state, given):
            new, observation, reward, *ends = step(
                state, env.action_space.sample(given[0]), given[1]
            )
            new = cast_like(new, state)
            flags = [jnp.asarray(end, bool) for end in ends]
            return new, (observation, jnp.float32(reward), *flags)

        pairs = keys.reshape(-1, 2)
        ours = jax.lax.scan(ours_once, state, pairs)[1]
        state = jax.eval_shape(theirs_once, theirs, pairs[0])[0]
        theirs = cast_like(theirs, state)
        return ours, jax.lax.scan(theirs_once, theirs, pairs)[1]

    return jax.device_get(jax.jit(jax.vmap(both))(jax.random.split(jax.random.key(5), N)))


@pytest.mark.parametrize("id", IDS)
def test_first_episodes_equal_those_of_the_library(id):
    (ours, theirs), firsts = play_both(id, {})
    assert_agree(*firsts)
    done = theirs[2] | theirs[3]
    before = np.cumsum(done, axis=1) - done == 0  # up to the end of the first episode
    for mine, other in zip(jax.tree.leaves(ours[:2]), jax.tree.leaves(theirs[:2]), strict=True):
        assert_agree(mine[before], other[before])
    np.testing.assert_array_equal((ours[2] | ours[3])[before], done[before])
    np.testing.assert_array_equal(ours[2][before], theirs[2][before])


@pytest.mark.parametrize("id", LIMITED)
def test_library_step_limit_truncates_and_keeps_last_observation(id):
    library = suite_of(id)
    parameters = {library.limit: SHORT}
    assert jaxenvs.make(id, **parameters).time_limit == SHORT
    (ours, theirs), _ = play_both(id, parameters, SHORT)
    early = theirs[2][:, :-1].any(axis=1)
    last = ~early & ~ours[2][:, -1]  # reaches the limit and does not end there anyway
    assert last.any()
    assert not ours[3][:, :-1].any() and ours[3][last, -1].all()
    assert (theirs[2] | theirs[3])[last, -1].all()  # some libraries merge them
    for mine, other in zip(jax.tree.leaves(ours[0]), jax.tree.leaves(theirs[0]), strict=True):
        assert_agree(mine[last], other[last])


@pytest.mark.parametrize("id", LIMITED)
def test_library_step_limit_can_be_changed_and_removed(id):
    suite_of(id)
    assert jaxenvs.make(id, time_limit=7).time_limit == 7
    assert jaxenvs.make(id, time_limit=None).time_limit is None


@pytest.mark.parametrize("id", ["gymnax/CartPole-v1", "xminigrid/MiniGrid-Empty-5x5"])
def test_limit_of_each_instance_is_a_time_limit(id):
    limit = suite_of(id).limit
    limits = jnp.array([2, 3])
    with pytest.raises(ParameterError, match=rf'{limit}=.*batched="time_limit"'):
        jaxenvs.make_vec(id, 2, batched=limit, **{limit: limits})
    envs = jaxenvs.make_vec(id, 2, batched="time_limit", time_limit=limits)
    state, _ = envs.reset(jax.random.key(0))
    step, ends = jax.jit(envs.step), []
    for _ in range(3):
        state, timestep = step(state, jnp.ones(2, int), jax.random.key(0))
        ends.append(timestep.truncated.tolist())
    assert ends == [[False, False], [True, False], [False, True]]


@pytest.mark.parametrize("id", IDS)
def test_library_environments_follow_the_contract(id):
    library = suite_of(id)
    try:
        check_env(jaxenvs.make(id, time_limit=5), num_steps=12, num_envs=4)
    except EnvironmentCheckError as error:
        found = set(re.findall(r"^  \[(\w+)\]", str(error), re.MULTILINE))
        if not found <= library.flaws:
            raise


@functools.partial(jax.jit, static_argnums=0, compiler_options=QUICK_TO_COMPILE)
@functools.partial(jax.vmap, in_axes=(None, 0))
def play_legally(env, key):
    """Plays 60 random legal steps. Returns observations, [61, ...], and which are in their space.

    Those after the end of the episode count as inside.
    """

    def choose(space, observation, key):
        if isinstance(space, jaxenvs.spaces.Dict):
            return {
                name: choose(part, observation[name], child)
                for (name, part), child in zip(
                    space.spaces.items(), jax.random.split(key, len(space.spaces)), strict=True
                )
            }
        if not (isinstance(observation, dict) and "action_mask" in observation):
            return space.sample(key)
        mask = observation["action_mask"][None]
        choices = distribution_for(space, jaxenvs.spaces.MultiBinary(mask.shape[1:]))
        outputs = choices.masked(jnp.zeros((1, choices.num_outputs)), mask)
        return choices.to_action(choices.sample(outputs, jnp.zeros(0), key))[0]

    def once(carry, keys):
        state, observation, is_over = carry
        action = choose(env.action_space, observation, keys[0])
        state, timestep = env.step(state, action, keys[1])
        seen = timestep.observation
        inside = env.observation_space.contains(seen) | is_over
        return (state, seen, is_over | timestep.done), (seen, inside)

    first, *keys = jax.random.split(key, 121)
    state, timestep = env.reset(first)
    seen = timestep.observation
    start = seen, env.observation_space.contains(seen)
    keys = jnp.stack(keys).reshape(60, 2)
    rest = jax.lax.scan(once, (state, seen, jnp.bool_(False)), keys)[1]
    return jax.tree.map(lambda x, xs: jnp.concatenate([jnp.stack([x]), xs]), start, rest)


def check_spaces(id):
    env = jaxenvs.make(id)
    keys = jax.random.split(jax.random.key(0), 3)
    seen, inside = jax.device_get(play_legally(env, keys))
    for i, t in np.argwhere(~inside):
        leaf = jax.tree.map(lambda x: x[i, t], seen)  # noqa: B023
        raise AssertionError(find_outside(env.observation_space, leaf, f"{id}, step {t}"))


@pytest.mark.parametrize(
    "id",
    [
        "gymnax/GaussianBandit-misc",
        "gymnax/MemoryChain-bsuite",
        "jumanji/Minesweeper-v0",
        "jumanji/MultiCVRP-v0",
        "jumanji/TSP-v1",
    ],
)
def test_observations_stay_in_their_space(id):
    suite_of(id)
    check_spaces(id)


@pytest.mark.slow
@pytest.mark.parametrize("suite", ["gymnax", "jaxmarl", "jumanji"])
def test_all_observations_of_a_suite_stay_in_their_space(suite, pytestconfig):
    if pytestconfig.getoption("every") > 1:
        pytest.skip("takes minutes")
    pytest.importorskip(suite)
    others = {
        *("gymnax/MNISTBandit-bsuite", "jumanji/Sokoban-v0"),  # they download data
        "jaxmarl/LearnedPolicyEnemySMAX",  # needs a policy
    }
    for id in suite_ids(suite):
        if id not in others:
            check_spaces(id)


@pytest.mark.parametrize("id", [library.ids[0] for library in LIBRARIES.values()])
def test_mesh_and_autoreset_mode_do_not_change_results(id):
    suite_of(id)
    check_combinations(jaxenvs.make(id, time_limit=3))


def test_resets_of_brax_start_new_episodes():
    suite_of("brax/inverted_pendulum")
    env = jaxenvs.make_vec("brax/inverted_pendulum", 2, time_limit=2)
    state, first = env.reset(jax.random.key(0))
    starts = [first.observation]
    for i in range(4):
        state, timestep = jax.jit(env.step)(state, jnp.zeros((2, 1)), jax.random.key(i))
        if i % 2:
            assert timestep.done.all()
            starts.append(timestep.observation)
    assert len(np.unique(np.concatenate(starts)[:, 0])) == 6


def test_the_physics_of_brax_can_differ_between_instances():
    suite_of("brax/inverted_pendulum")
    env = jaxenvs.make("brax/inverted_pendulum", time_limit=None)
    model = env.unwrapped.default_model
    state, _ = env.reset(jax.random.key(0))
    action = jnp.ones(1)

    def position(gear):
        actuator = model.actuator.replace(gear=model.actuator.gear * gear)
        changed = env.replace(model=model.replace(actuator=actuator))
        return changed.step(state, action, jax.random.key(0))[1].observation

    same, far = jax.jit(jax.vmap(position))(jnp.array([1.0, 3.0]))
    assert_agree(same, env.step(state, action, jax.random.key(0))[1].observation)
    assert float(far[0]) > float(same[0])


def test_make_with_the_same_arguments_returns_the_same_object():
    suite_of("gymnax/CartPole-v1")

    def made(**arguments):
        return jaxenvs.make("gymnax/CartPole-v1", time_limit=None, **arguments)

    assert made() is made() and made(gravity=3.0) is made(gravity=3.0) is not made()
    assert jaxenvs.make("gymnax/CartPole-v1").env is made()
    unhashable = np.float32([3.0])
    assert made(gravity=unhashable) is not made(gravity=unhashable)

    @jax.jit
    def inside(gravity):
        varied = made(gravity=gravity).parameters["gravity"]
        return varied, jnp.asarray(made(gravity=4.0).parameters["gravity"])

    assert inside(2.0) == (2.0, 4.0)
    assert not struct.is_traced(*jax.tree.leaves(made(gravity=4.0)))


def test_positions_of_tsp_start_before_the_first_city():
    suite_of("jumanji/TSP-v1")
    env = jaxenvs.make("jumanji/TSP-v1")
    assert env.observation_space.spaces["position"] == jaxenvs.spaces.Discrete(21, start=-1)
    assert env.reset(jax.random.key(0))[1].observation["position"] == -1


def test_multi_cvrp_has_choices_and_ends_after_its_steps():
    suite_of("jumanji/MultiCVRP-v0")
    env, key = jaxenvs.make("jumanji/MultiCVRP-v0"), jax.random.key(0)
    assert env.action_space == jaxenvs.spaces.MultiDiscrete([21, 21]) and env.time_limit is None
    depot = jnp.zeros(2, jnp.int32)

    def step(state, _):
        state, timestep = env.step(state, depot, key)
        return state, (timestep.terminated, timestep.truncated)

    ends = jax.lax.scan(step, env.reset(key)[0], length=40)[1]
    assert np.flatnonzero(ends[0]).tolist() == [39] and not ends[1].any()
    state = env.step(env.reset(key)[0], jnp.array([5, 20]), key)[0]
    assert state.vehicles.positions.tolist() == [5, 20]


@pytest.mark.parametrize("name", ["Minesweeper-v0", "MultiCVRP-v0", "Tetris-v0"])
def test_masks_of_jumanji_can_be_trained_with(name):
    suite_of(f"jumanji/{name}")
    train = make_train(f"jumanji/{name}", PPO(), num_envs=4, unroll_length=8, total_steps=64)
    jax.eval_shape(train, jax.random.key(0))


def test_parameters_of_gymnax_are_leaves():
    suite_of("gymnax/CartPole-v1")
    env = jaxenvs.make("gymnax/CartPole-v1", gravity=3.0)
    assert env.parameters["gravity"] == 3.0
    heavy = env.replace(gravity=20.0)
    state, _ = env.reset(jax.random.key(0))
    step = jax.jit(lambda env: env.step(state, jnp.int32(0), jax.random.key(0))[1].observation)
    assert not np.allclose(step(env), step(heavy))
    assert step._cache_size() == 1
    with pytest.raises(UnknownParameterError, match='Close: "gravity"'):
        env.replace(gravitas=1.0)


def test_parameters_of_a_library_can_differ_between_instances():
    suite_of("gymnax/CartPole-v1")
    gravity = jnp.array([3.0, 20.0])
    envs = jaxenvs.make_vec("gymnax/CartPole-v1", 2, batched="gravity", gravity=gravity)
    keys = jnp.stack([jax.random.key(0)] * 2)
    state, _ = envs.reset(keys)
    _, timestep = jax.jit(envs.step)(state, jnp.zeros(2, int), keys)
    for i, each in enumerate(gravity):
        env = jaxenvs.make("gymnax/CartPole-v1", gravity=each)
        alone = env.step(env.reset(keys[0])[0], jnp.int32(0), keys[0])[1]
        assert_agree(timestep.observation[i], alone.observation)
    assert not np.allclose(*timestep.observation)


def test_static_library_parameters_cannot_differ_in_a_batch():
    suite_of("xminigrid/MiniGrid-Empty-5x5")
    env = jaxenvs.make("xminigrid/MiniGrid-Empty-5x5")
    with pytest.raises(VectorizeError, match=r'"height", a static field of EnvParams'):
        jaxenvs.vectorize(env, 2, batched="height")


@pytest.mark.parametrize(
    ("id", "in_programs"),
    [
        ("gymnax/Breakout-MinAtar", False),
        ("jumanji/Maze-v0", False),
        ("navix/Navix-Empty-5x5-v0", True),
        ("pgx/2048", False),
        ("xminigrid/MiniGrid-Empty-5x5", True),
    ],
)
def test_pictures_are_those_of_the_library(id, in_programs):
    suite_of(id)
    env = jaxenvs.make(id)
    state, _ = env.reset(jax.random.key(0))
    picture = env.render(state)
    assert picture.dtype == np.uint8 and picture.shape[-1] == 3 and len(np.unique(picture)) > 1
    if in_programs:
        np.testing.assert_array_equal(jax.jit(env.render)(state), picture)
    else:
        with pytest.raises(RenderError, match="outside of jit"):
            jax.jit(env.render)(state)


@pytest.mark.parametrize("id", ["gymnax/PointRobot-misc", "pgx/minatar-breakout"])
def test_pictures_open_no_window_and_change_no_figure(id):
    suite_of(id)
    pyplot = pytest.importorskip("matplotlib.pyplot")
    figure, axes = pyplot.subplots()
    before = pyplot.get_fignums()
    env = jaxenvs.make(id)
    env.render(env.reset(jax.random.key(0))[0])
    assert pyplot.get_fignums() == before and pyplot.gca() is axes
    assert axes.get_aspect() == "auto" and not axes.has_data()
    pyplot.close(figure)


def test_a_falling_ball_is_drawn_where_it_is():
    suite_of("gymnax/Catch-bsuite")
    env = jaxenvs.make("gymnax/Catch-bsuite").unwrapped
    state, _ = env.reset(jax.random.key(0))
    pictures = [
        np.asarray(env.render(state.replace(ball_x=2, ball_y=y, paddle_x=2, paddle_y=9)))
        for y in (0, 8)
    ]
    rows = np.flatnonzero((pictures[0] != pictures[1]).any((1, 2)))
    assert rows.min() < 100 and 350 < rows.max() < 425  # of 500; the paddle is below


def test_classic_control_has_the_pictures_of_gymnasium():
    suite_of("gymnax/CartPole-v1")
    env = jaxenvs.make("gymnax/CartPole-v1").unwrapped
    state, _ = env.reset(jax.random.key(0))
    if env.merged_limit:
        with pytest.raises(RenderError, match="classic Gym"):
            env.render(state)
        return
    left, right = (np.asarray(env.render(state.replace(x=x, theta=0.0))) for x in (-1.2, 1.2))
    assert left.shape == (400, 600, 3)
    black = (left == 0).all(-1), (right == 0).all(-1)
    carts = [np.flatnonzero(each.sum(0) > 10).mean() for each in black]
    np.testing.assert_allclose(carts, [150, 450], atol=5)


@pytest.mark.parametrize("id", ["gymnax/Catch-bsuite", "jumanji/Snake-v1"])
def test_pictures_drawn_outside_of_programs_are_recorded(id):
    suite_of(id)
    env, key = jaxenvs.make(id), jax.random.key(1)
    frames, _ = play(env, None, key, max_steps=3)
    state, _ = env.reset(jax.random.split(key)[0])
    np.testing.assert_array_equal(frames[0], env.render(state))
    assert len(frames) == 4 and len({frame.tobytes() for frame in frames}) > 2

    envs = jaxenvs.make_gym(id, 2, render_mode="rgb_array")
    envs.reset(seed=0)
    state = envs.runner.read_state()
    for i, frame in enumerate(envs.render()):
        np.testing.assert_array_equal(frame, envs.env.render(state, i))


def test_missing_pictures_are_reported():
    suite_of("gymnax/DiscountingChain-bsuite")
    env = jaxenvs.make_gym("gymnax/DiscountingChain-bsuite", render_mode="rgb_array")
    env.reset(seed=0)
    with pytest.raises(RenderError, match="gymnax has no pictures of DiscountingChain"):
        env.render()


def test_engines_are_those_that_a_library_has():
    suite_of("playground/CartpoleBalance")
    suite_of("brax/inverted_pendulum")
    env = jaxenvs.make("playground/CartpoleBalance", engine="mjx").unwrapped
    assert env.env.value.mjx_model.impl.value == "jax"
    env = jaxenvs.make("brax/inverted_pendulum", engine="mjx").unwrapped
    assert env.env.value.backend == "mjx"
    with pytest.raises(ParameterError, match="CartpoleBalance got engine='c'; expected 'mjx' or"):
        jaxenvs.make("playground/CartpoleBalance", engine="c")
    with pytest.raises(ParameterError, match="pendulum got engine='warp'; expected 'mjx', in"):
        jaxenvs.make("brax/inverted_pendulum", engine="warp")


@pytest.mark.parametrize("id", ["brax/inverted_pendulum", "playground/CartpoleBalance"])
def test_mujoco_draws_pictures(id):
    suite_of(id)
    env = jaxenvs.make(id)
    state, _ = env.reset(jax.random.key(0))
    try:
        picture = env.render(state)
    except RenderError as error:
        pytest.skip(str(error))
    assert picture.shape == (240, 320, 3) and len(np.unique(picture)) > 10
    np.testing.assert_array_equal(jax.jit(env.render)(state), picture)


@pytest.mark.parametrize("id", [library.ids[0] for library in LIBRARIES.values()])
def test_gymnasium_api_plays_library_environments(id):
    suite_of(id)
    env = jaxenvs.make_gym(id, 2, time_limit=3)
    env.reset(seed=0)
    for _ in range(4):
        observation, reward, *_ = env.step(env.action_space.sample())
    assert observation in env.observation_space and reward.shape == (2,)
    env.close()


def test_environments_of_a_user_are_adapted_by_their_class():
    jumanji = pytest.importorskip("jumanji")
    gymnax = pytest.importorskip("gymnax")
    env = adapt(jumanji.make("Maze-v0"))
    assert env.time_limit == 100
    env, params = gymnax.make("CartPole-v1")
    assert adapt(env, params.replace(max_steps_in_episode=9)).time_limit == 9
    with pytest.raises(WrapperError, match="expected an environment of brax"):
        adapt(object())
    agents = jumanji.make("Connector-v3")
    assert len(adapt(agents).agents) == 10
    assert not adapt(jumanji.wrappers.MultiToSingleWrapper(agents)).agents


def test_suites_page_snippets_run(run_snippets):
    run_snippets(Path(__file__).resolve().parents[2] / "docs" / "suites" / "index.md")


def test_the_benchmark_measures_cost_and_gain(capsys):
    pytest.importorskip("gymnax")
    small = ["--num-envs", "4", "--steps", "2", "--repeats", "1", "--min-seconds", "0"]
    suites.main(["--ids", "gymnax/CartPole-v1", *small])
    assert "| gymnax/CartPole-v1 | 4 |" in capsys.readouterr().out


def test_the_command_line_lists_what_is_installed(capsys):
    pytest.importorskip("pgx")
    cli.main(["list", "minatar", "--suite", "pgx"])
    assert capsys.readouterr().out.split() == [
        id for id in suite_ids("pgx") if id.startswith("pgx/minatar-")
    ]


def test_unknown_names_and_missing_libraries_are_reported(monkeypatch):
    pytest.importorskip("jumanji")
    with pytest.raises(UnknownEnvironmentError, match='Close: "Snake-v1"'):
        jaxenvs.make("jumanji/Snke-v1")
    with pytest.raises(UnknownEnvironmentError, match='Close: "jumanji"'):
        suite_ids("jumanj")
    monkeypatch.setitem(sys.modules, "pgx", None)
    monkeypatch.delitem(sys.modules, "jaxenvs.suites.pgx", raising=False)
    with pytest.raises(ImportError, match=r'pip install "jaxenvs\[pgx\]"'):
        jaxenvs.make("pgx/minatar-freeway")
