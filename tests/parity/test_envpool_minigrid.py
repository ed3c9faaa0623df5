"""MiniGrid and BabyAI, compared with EnvPool's C++ versions: the second reference.

EnvPool shows the whole state of an environment, but not the progress of a BabyAI mission, so
rewards and ends are compared in MiniGrid only.
"""

import functools

import jax
import numpy as np
import pytest

import jaxenvs
from benchmarks import certify
from benchmarks.oracles import oracle_for
from jaxenvs.envs import minigrid
from jaxenvs.envs.minigrid import MiniGridState, cells
from jaxenvs.envs.minigrid.dynamic_obstacles import Obstacles
from jaxenvs.envs.minigrid.go_to_door import GoTo
from jaxenvs.envs.minigrid.memory import MemoryTask
from jaxenvs.envs.minigrid.put_near import PutNearTask
from jaxenvs.envs.minigrid.room_grid import PickUp
from tests.ids import OWN_LEVELS, one_level_per_class

pytest.importorskip("minigrid")

from minigrid.core.world_object import WorldObj

from benchmarks.oracles import minigrid as reference

pytestmark = pytest.mark.interop

NUM_ENVS, STEPS = 16, 250


@functools.cache
def to_cell(kind, color, state, inner_kind=0, inner_color=0):
    thing = WorldObj.decode(kind, color, state)
    if inner_kind:
        thing.contains = WorldObj.decode(inner_kind, inner_color, 0)
    return reference.to_cell(thing)


def to_task(env, theirs):
    """Returns `task` of our state."""
    target = np.uint8(cells.make(theirs.target_type, theirs.target_color))
    x, y = map(np.int32, theirs.target_pos)
    match env:
        case minigrid.DynamicObstacles():
            places = np.array(theirs.obstacle_positions, np.int32).reshape(-1, 2)
            return Obstacles(x=places[:, 0], y=places[:, 1])
        case minigrid.GoToDoor() | minigrid.GoToObject():
            return GoTo(x=x, y=y)
        case minigrid.PutNear():
            move = np.uint8(cells.make(theirs.move_type, theirs.move_color))
            return PutNearTask(move=move, x=x, y=y)
        case minigrid.Memory():
            (x, success_y), (_, failure_y) = theirs.success_pos, theirs.failure_pos
            return MemoryTask(
                x=np.int32(x), success_y=np.int32(success_y), failure_y=np.int32(failure_y)
            )
        case minigrid.Fetch() | PickUp():
            return target
        case _:
            return ()


def to_state(env, theirs, step_count, task):
    """Returns our state for EnvPool's."""
    shape = theirs.height, theirs.width
    seen = np.array(theirs.grid).reshape(*shape[::-1], 3)  # by columns
    inside = np.array(theirs.grid_contains).reshape(*shape[::-1], -1)
    things = [to_cell(*a, *b[:2]) for a, b in zip(*map(_rows, (seen, inside)), strict=True)]
    hand = cells.EMPTY
    if theirs.has_carrying:
        hand = to_cell(
            *(theirs.carrying_type, theirs.carrying_color, theirs.carrying_state),
            *(theirs.carrying_contains_type, theirs.carrying_contains_color)[
                : 2 * theirs.carrying_has_contains
            ],
        )
    return MiniGridState(
        grid=np.array(things, env.cell_type).reshape(shape[::-1]).T,
        x=np.int32(theirs.agent_pos[0]),
        y=np.int32(theirs.agent_pos[1]),
        direction=np.int32(theirs.agent_dir),
        carrying=env.cell_type(hand),
        step_count=np.int32(step_count),
        mission=reference.to_tokens(env, theirs.mission) if "{}" in env.mission else (),
        task=task,
    )


def _rows(array):
    return array.reshape(-1, array.shape[-1]).tolist()


def play(env, id, *, is_babyai):
    """Returns transitions of EnvPool's environments, half of them by a bot, the rest at random."""
    envpool = pytest.importorskip("envpool")
    envs = envpool.make_gymnasium(id, num_envs=NUM_ENVS, seed=1)
    rng, oracle = np.random.default_rng(0), oracle_for(env)(env, 0)
    everyone, players = list(range(NUM_ENVS)), [oracle.player() for _ in range(NUM_ENVS)]
    idle = jax.device_get(env.initial_state(jax.random.key(0))).task if is_babyai else None

    def states(counts):
        debug = envs._debug_states(everyone)
        return [
            to_state(env, x, count, to_task(env, x) if idle is None else idle)
            for x, count in zip(debug, counts, strict=True)
        ]

    envs.reset()
    counts, done, rows, solved = np.zeros(NUM_ENVS, int), np.zeros(NUM_ENVS, bool), [], 0
    before = states(counts)
    for _ in range(STEPS):
        action = rng.integers(0, envs.action_space.n, NUM_ENVS, np.int32)
        for i in range(0 if is_babyai else NUM_ENVS // 2):
            if players[i] is not None and not done[i] and rng.random() < 0.9:
                action[i] = players[i](before[i])
        observation, reward, terminated, truncated, _ = envs.step(action)
        counts = np.where(done, 0, counts + 1)  # this step has reset the instances that are done
        after = states(counts)
        for i in np.flatnonzero(~done):
            row = {"state": before[i], "action": action[i], "next_state": after[i]}
            text = bytes(observation["mission"][i]).rstrip(b"\0").decode()
            row["observation"] = {
                "image": observation["image"][i],
                "direction": np.int32(observation["direction"][i]),
                "mission": reference.to_tokens(env, text).astype(np.int32),
            }
            if certify.has_chance(env):
                row["draws"] = after[i].task
            if not is_babyai:
                row |= {"reward": reward[i], "terminated": terminated[i], "truncated": truncated[i]}
            rows.append(row)
        solved += int((reward > 0).sum())
        for i in np.flatnonzero(done):
            players[i] = oracle.player()
        before, done = after, terminated | truncated
    envs.close()
    return rows, solved


@pytest.mark.parametrize("id", sorted({*one_level_per_class()} - OWN_LEVELS))
def test_steps_are_those_of_envpool(id):
    env, is_babyai = jaxenvs.make(id).unwrapped, id.startswith("BabyAI-")
    rows, solved = play(env, id, is_babyai=is_babyai)
    assert len(rows) > NUM_ENVS * STEPS / 2
    if not is_babyai and "Playground" not in id:
        assert solved > 0
    found = certify._run_ours(env, rows)
    expected = certify._stack([{name: row[name] for name in found} for row in rows])
    # EnvPool computes rewards in float32.
    assert certify._compare(found, expected, 1e-6)[0] == 0
