"""MiniGrid compared with the package minigrid, besides the certificates."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxenvs
from benchmarks import certify
from benchmarks.oracles import oracle_for
from jaxenvs.envs.minigrid import GoToDoor, cells, level, view
from tests.ids import OWN_LEVELS

minigrid = pytest.importorskip("minigrid")

from benchmarks.oracles.minigrid import to_object  # noqa: E402
from benchmarks.oracles.minigrid_bot import is_solvable  # noqa: E402

IDS = [id for id in jaxenvs.registry if id.startswith("MiniGrid-")]
QUICK = {
    "MiniGrid-BlockedUnlockPickup-v0",
    "MiniGrid-KeyCorridorS3R3-v0",
    "MiniGrid-MultiRoom-N4-S5-v0",
    "MiniGrid-ObstructedMaze-1Dlhb-v0",
}
WFC = "its generator is a constraint solver, whose running time has no bound"
NOT_HERE = {  # ids of minigrid that this package does not have, and the reasons
    f"MiniGrid-WFC-{name}-v0": WFC
    for name in (
        *("DungeonMazeScaled", "MazeSimple", "ObstaclesAngular", "ObstaclesBlackdots"),
        *("ObstaclesHogs3", "RoomsFabric"),
    )
}
# A ball may replace a box with a key. The largest maze mostly has a way around. Walls of the free
# maze are anywhere.
UNSOLVABLE = [
    *(f"MiniGrid-ObstructedMaze-{name}-v0" for name in ("2Dlhb", "1Q", "2Q", "Full")),
    *OWN_LEVELS,
]


def some(ids):
    """Returns ids as parameters; all but a few are marked slow."""
    return [pytest.param(id, marks=[] if id in QUICK else [pytest.mark.slow]) for id in ids]


def make(id):
    """Returns our level and minigrid's."""
    env = jaxenvs.make(id).unwrapped
    return env, oracle_for(env)(env, 0)


def boards(env, number):
    """Returns first states of our episodes."""
    states = jax.device_get(
        jax.jit(jax.vmap(env.initial_state))(jax.random.split(jax.random.key(0), number))
    )
    leaves, tree = jax.tree.flatten(states)
    return [tree.unflatten([leaf[i] for leaf in leaves]) for i in range(number)]


def reference_boards(oracle, number):
    """Returns first states of minigrid's episodes."""
    states = []
    for _ in range(number):
        oracle.reset()
        states.append(oracle.get_state())
    return states


def test_all_ids_of_minigrid_are_here():
    theirs = {id for id in gymnasium.registry if id.startswith("MiniGrid-")}
    assert theirs - NOT_HERE.keys() == set(IDS) - OWN_LEVELS
    assert theirs >= NOT_HERE.keys()


@pytest.mark.parametrize("id", sorted({*IDS} - OWN_LEVELS))
def test_an_id_has_the_parameters_of_minigrid(id):
    env, oracle = make(id)
    theirs = gymnasium.make(id).unwrapped
    assert type(oracle.reference) is type(theirs)
    for name, value in vars(theirs).items():
        is_drawn = name in ("agent_pos", "agent_dir", "goal_position", "mission", "_np_random_seed")
        if not is_drawn and (value is None or isinstance(value, int | str | tuple | type)):
            assert vars(oracle.reference)[name] == value, name
    assert jaxenvs.registry[id].time_limit == env.time_limit == theirs.max_steps
    assert env.action_space.n == theirs.action_space.n


@pytest.mark.parametrize(("size", "number"), [(3, 1_000), (7, 3_000), (15, 300)])
def test_sight_is_that_of_minigrid(size, number):
    random = np.random.default_rng(0)
    shares = random.uniform(0, 0.7, (number, 1, 1))
    clear = [cells.EMPTY, cells.LAVA, *(cells.make(kind) for kind in (cells.OPEN_DOOR, cells.BALL))]
    opaque = [cells.WALL, cells.make(cells.CLOSED_DOOR), cells.make(cells.LOCKED_DOOR)]
    shape = (number, size, size)
    found = np.where(
        random.random(shape) < shares, random.choice(opaque, shape), random.choice(clear, shape)
    )
    ours = jax.jit(jax.vmap(view.visible))(found.astype(np.uint8))
    things = {cell: to_object(cell) for cell in [*clear, *opaque]}
    for i in range(number):
        grid = minigrid.core.grid.Grid(size, size)
        grid.grid = [things[int(cell)] for cell in found[i].T.ravel()]
        np.testing.assert_array_equal(ours[i], grid.process_vis((size // 2, size - 1)))


@pytest.mark.bitwise
def test_rewards_are_those_of_minigrid_rounded_once():
    limits = sorted({jaxenvs.registry[id].time_limit for id in IDS})
    counts = np.arange(1, max(limits) + 1, dtype=np.int32)
    ours = jax.jit(lambda counts: [level._reward(counts, limit) for limit in limits])(counts)
    for limit, rewards in zip(limits, ours, strict=True):
        expected = (1 - 0.9 * (counts / limit)).astype(np.float32)
        np.testing.assert_array_equal(rewards, expected)
    # Limits that are not known to the compiler.
    every = np.arange(1, 1_001, dtype=np.int32)[:, None]
    counts = every.T
    expected = (1 - 0.9 * (counts / every)).astype(np.float32)
    np.testing.assert_array_equal(jax.jit(level._reward)(counts, every), expected)


@pytest.mark.parametrize(
    "id",
    some(
        id
        for id in IDS
        # Balls move, and the playground has no task.
        if not any(part in id for part in ("Dynamic", "Playground")) and id not in UNSOLVABLE
    ),
)
def test_all_levels_can_be_solved(id):
    env, oracle = make(id)
    assert all(is_solvable(oracle.level, state) for state in boards(env, 200))


@pytest.mark.slow
@pytest.mark.parametrize("id", UNSOLVABLE)
def test_as_many_levels_can_be_solved_as_of_minigrid(id):
    env, oracle = make(id)
    ours, theirs = (
        np.array([is_solvable(oracle.level, state) for state in states])
        for states in (boards(env, 3_000), reference_boards(oracle, 3_000))
    )
    assert ours.mean() > 0.5
    assert certify.same_distribution([(ours, theirs)])["p_value"] >= certify.SIGNIFICANCE


@pytest.mark.slow
@pytest.mark.parametrize(
    "id", [id for id in IDS if id not in UNSOLVABLE and "Playground" not in id]
)
def test_a_bot_solves_our_levels_in_time(id):
    env, oracle = make(id)
    returns = certify._play_ours_on_host(env, oracle, 40, env.time_limit, 0)[:, 0]
    assert (returns > 0).mean() >= 0.95


@pytest.mark.parametrize(
    ("id", "number"),
    [
        ("MiniGrid-DoorKey-5x5-v0", 48),
        ("MiniGrid-Empty-Random-5x5-v0", 32),
        *(
            pytest.param(f"MiniGrid-{name}-v0", number, marks=pytest.mark.slow)
            for name, number in (
                *(("DoorKey-6x6", 816), ("LavaGapS5", 3), ("LavaGapS6", 8), ("LavaGapS7", 15)),
                *(("LavaCrossingS9N1", 42), ("MemoryS7", 16), ("MemoryS13Random", 196)),
                ("KeyCorridorS3R1", 648),
            )
        ),
    ],
)
def test_the_same_levels_are_possible_as_in_minigrid(id, number):
    env, oracle = make(id)
    samples = 20 * number
    found = [
        {
            b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(state))
            for state in states
        }
        for states in (boards(env, samples), reference_boards(oracle, samples))
    ]
    assert found[0] == found[1]
    assert len(found[0]) == number


class WrongMission(GoToDoor):
    """Names another door in a few of the levels."""

    def initial_state(self, key):
        state = super().initial_state(key)
        is_wrong = (state.x == 1) & (state.y == 1)
        return state.replace(mission=jnp.where(is_wrong, state.mission[::-1], state.mission))


class WrongDoor(GoToDoor):
    """Draws colors of doors that may be equal."""

    def initial_state(self, key):
        state = super().initial_state(key)
        upper = state.grid[0].max()
        grid = state.grid.at[1:].set(jnp.where(state.grid[1:] > upper, upper, state.grid[1:]))
        return state.replace(grid=grid)


@pytest.mark.parametrize("env_type", [WrongMission, WrongDoor])
def test_errors_of_a_generator_are_noticed(env_type, monkeypatch):
    monkeypatch.setattr(certify, "oracle_for", lambda env: oracle_for(GoToDoor()))
    found = certify.compare_chance(env_type(), 500)["start states"]
    assert found["p_value"] < certify.SIGNIFICANCE
