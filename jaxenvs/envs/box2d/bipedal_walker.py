"""The bipedal walker task."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import loops, spaces, struct
from jaxenvs.core import Environment, TimeStep
from jaxenvs.physics.box2d.engine import TIME_STEP, Body, World, WorldState
from jaxenvs.physics.box2d.geometry import polygon
from jaxenvs.physics.box2d.ground import NO_CONTACT, Ground, Terrain
from jaxenvs.physics.box2d.joints import Joint
from jaxenvs.physics.box2d.slots import PART
from jaxenvs.rendering import raster
from jaxenvs.spaces.validation import check_action_shape

SCALE = 30.0  # pixels per meter
FRAME_SHAPE = (400, 600)  # height, width
COLUMN = 14 / SCALE  # m, the width of an edge of the terrain
COLUMNS, PAD = 200, 20  # of the terrain, and of its flat beginning
GROUND_HEIGHT = 400 / SCALE / 4  # m
GRASS, STUMP, STAIRS, PIT = range(4)
STAIR = 4  # columns
LONGEST_GRASS = 10  # columns
MAX_BOXES = 39  # of 200 columns
BOX_SLOTS = 3  # for contacts of a body with boxes
FAR = 1e6  # m, where boxes are that do not exist
LEG_DOWN, LEG_WIDTH, LEG_HEIGHT = -8 / SCALE, 8 / SCALE, 34 / SCALE  # m
MAX_TORQUE, HIP_SPEED, KNEE_SPEED = 80.0, 4.0, 6.0  # N m, rad/s
INITIAL_FORCE = 5.0  # N
RAYS, RANGE = 10, 160 / SCALE  # of the lidar, m
WINDOW, BOX_WINDOW = 15, 6  # edges and boxes within its range
CLOUDS = 10

_HULL = [(34, -8), (34, 1), (6, 9), (-30, 9), (-30, -8)]
_HULL_POLYGON = polygon([(x / SCALE, y / SCALE) for x, y in _HULL], 5)
_LIMBS = (1, -1), (2, -1), (3, 1), (4, 1)  # bodies and the sides they are on: upper, lower, ...


def _limb(width: float) -> Body:
    x, y = width / 2, LEG_HEIGHT / 2
    shape = polygon([(-x, -y), (x, -y), (x, y), (-x, y)], 5)
    return Body(shape, density=1.0, friction=math.sqrt(0.2 * 2.5))


def _joints() -> list[Joint]:
    """Returns both knees and hips, in the order in which Box2D solves them."""
    x, y = (-float(c) for c in _HULL_POLYGON.center)
    top, bottom = (0.0, LEG_HEIGHT / 2), (0.0, -LEG_HEIGHT / 2)
    # pybox2d takes the angles of the bodies when a joint is made as zero.
    hips = [Joint(0, i, (x, LEG_DOWN + y), top, -0.8, 1.1, 0.05 * s) for i, s in _LIMBS[::2]]
    knees = [Joint(i - 1, i, bottom, top, -1.6, -0.1, 0.0) for i, _ in _LIMBS[1::2]]
    return [knees[1], hips[1], hips[0], knees[0]]


ACTION_OF_JOINT = np.asarray([3, 2, 0, 1], np.int32)
_BODIES = [
    Body(_HULL_POLYGON, density=5.0, friction=math.sqrt(0.1 * 2.5)),
    *[_limb(LEG_WIDTH), _limb(0.8 * LEG_WIDTH)] * 2,
]
WORLD = World(_BODIES, _joints(), Ground(COLUMNS - 1, COLUMN, edge_slots=6), stands=True)
HARDCORE_WORLD = World(
    _BODIES,
    _joints(),
    Ground(COLUMNS - 1, COLUMN, edge_slots=6, boxes=MAX_BOXES, box_slots=BOX_SLOTS),
    stands=True,
)


@chex.dataclass(frozen=True)
class BipedalWalkerState:
    """The bodies and the terrain."""

    world: WorldState  # hull; upper and lower leg of both sides
    heights: jax.Array  # float32[200], m, of the terrain
    boxes: jax.Array | None  # float32[39, 4], m, obstacles: low x, low y, high x, high y
    clouds: jax.Array  # float32[10, 5, 2], m, corners of the clouds
    has_fallen: jax.Array  # bool[], whether the hull has touched the ground


class TerrainDraws(NamedTuple):
    """The random draws for each column of the terrain, most of them unused."""

    bumps: jax.Array  # float32[200], in [-1, 1)
    lengths: jax.Array  # int32[200], 5 to 9 columns of grass
    obstacles: jax.Array  # int32[200], 1 to 3
    sizes: jax.Array  # int32[200], 0 or 1
    is_up: jax.Array  # bool[200], whether stairs go up


class StartDraws(NamedTuple):
    """The random draws at the start of an episode."""

    terrain: TerrainDraws
    clouds: jax.Array  # float32[10, 11], in [0, 1)
    force: jax.Array  # float32[], N


class BipedalWalker(Environment[BipedalWalkerState]):
    """Walk to the right end of uneven ground on two legs with hips and knees.

    Observation: float32[24]
        0  angle of the hull, rad
        1  its angular velocity, scaled
        2  its velocity along x, scaled
        3  its velocity along y, scaled
        4  angle of the first hip, rad
        5  its speed, scaled
        6  angle of the first knee plus 1, rad
        7  its speed, scaled
        8  whether the first foot touches the ground
        9  angle of the second hip, and so on to 13
        14  lidar: distance to the ground straight down, as a fraction of 5.3 m; the rays up to 23
            point ever further ahead
    Action: float32[4], in [-1, 1]: first hip and knee, second hip and knee. The sign is the
        direction of the motor, the magnitude its torque, as a fraction of 80 N m
    Reward: 130 / 30 for each meter to the right, minus 5 times the change of the hull's tilt in
        rad, minus 0.028 times the sum of the torques' magnitudes. -100 for a fall or for leaving
        on the left
    Start: upright over flat ground, with a random force
    Terminates: when the hull touches the ground, or when it is beyond the left end or near the
        right one
    Time limit: none here; `BipedalWalker-v3` is registered with 1,600 steps and
        `BipedalWalkerHardcore-v3` with 2,000

    Contacts that begin in the same step are ordered as in the first episode of Gymnasium's
    environment. In its later episodes, the order depends on the episodes before.

    Source: O. Klimov, OpenAI Gym, 2016, as Gymnasium's BipedalWalker-v3
    (tests/parity/test_certificates.py).
    """

    hardcore: bool = struct.static(False)  # there are stumps, stairs, and pits

    @property
    def observation_space(self) -> spaces.Box:
        leg = [np.pi, 5, np.pi, 5]
        high = np.asarray([np.pi, 5, 5, 5, *leg, 5, *leg, 5, *[1] * RAYS], np.float32)
        is_contact = np.isin(np.arange(24), (8, 13))
        return spaces.Box(np.where(is_contact, -0.0, -high).astype(np.float32), high, (24,))

    @property
    def action_space(self) -> spaces.Box:
        return spaces.Box(-1.0, 1.0, (4,))

    def reset(self, key: chex.PRNGKey) -> tuple[BipedalWalkerState, TimeStep]:
        keys = jax.random.split(key, 7)
        shape = (COLUMNS,)
        terrain = TerrainDraws(
            bumps=jax.random.uniform(keys[0], shape, jnp.float32, -1, 1),
            lengths=jax.random.randint(keys[1], shape, LONGEST_GRASS // 2, LONGEST_GRASS),
            obstacles=jax.random.randint(keys[2], shape, STUMP, PIT + 1),
            sizes=jax.random.randint(keys[3], shape, 0, 2),
            is_up=jax.random.bernoulli(keys[4], 0.5, shape),
        )
        return self.begin(
            StartDraws(
                terrain=terrain,
                clouds=jax.random.uniform(keys[5], (CLOUDS, 11), jnp.float32),
                force=jax.random.uniform(keys[6], (), jnp.float32, -INITIAL_FORCE, INITIAL_FORCE),
            )
        )

    def begin(self, draws: StartDraws) -> tuple[BipedalWalkerState, TimeStep]:
        """Starts an episode with the given draws. As in Gymnasium, this takes one step."""
        still = jnp.zeros(4, jnp.float32)
        # No box stands near the start, and a world without boxes compiles twice as fast.
        state = self._move(WORLD.drop, self._place(draws), still, draws.force)
        if self.hardcore:
            state = replace(state, world=_with_slots_of_boxes(state.world))
        return state, TimeStep.first(self._observe(state))

    def _place(self, draws: StartDraws) -> BipedalWalkerState:
        """Returns the state before the first step. The legs are too high, as in Gymnasium."""
        heights, boxes = _lay(draws.terrain, self.hardcore)
        x, y = COLUMN * PAD / 2, GROUND_HEIGHT + 2 * LEG_HEIGHT
        places = [(x, y, 0.0)]
        for i, side in _LIMBS:
            halves = 1 if i % 2 else 3
            places.append((x, y - halves * LEG_HEIGHT / 2 - LEG_DOWN, side * 0.05))
        return BipedalWalkerState(
            world=WORLD.start(jnp.asarray(places, jnp.float32)),
            heights=heights,
            boxes=boxes,
            clouds=_shape_clouds(draws.clouds),
            has_fallen=jnp.bool_(False),
        )

    def step(
        self, state: BipedalWalkerState, action: chex.Array, key: chex.PRNGKey
    ) -> tuple[BipedalWalkerState, TimeStep]:
        del key
        check_action_shape(self.action_space, action, "BipedalWalker")
        world = HARDCORE_WORLD if self.hardcore else WORLD
        new = self._move(world.step, state, action, jnp.float32(0))
        return new, self._outcome(state, action, new)

    def _outcome(
        self, state: BipedalWalkerState, action: chex.Array, new: BipedalWalkerState
    ) -> TimeStep:
        """Returns the timestep of an action that led from `state` to `new`."""
        (old_x, _), (x, _) = _hull_origin(state), _hull_origin(new)
        tilt, old_tilt = (jnp.abs(each.world.bodies[0, 2]) for each in (new, state))
        effort = jnp.minimum(jnp.abs(action), 1).sum()
        reward = 130 / SCALE * (x - old_x) - 5 * (tilt - old_tilt) - 0.00035 * MAX_TORQUE * effort
        fails = new.has_fallen | (x < 0)
        terminated = fails | (x > (COLUMNS - LONGEST_GRASS) * COLUMN)
        reward = jnp.where(fails, -100, reward)
        return TimeStep.transition(self._observe(new), reward=reward, terminated=terminated)

    def _move(
        self,
        move: Callable[..., WorldState],
        state: BipedalWalkerState,
        action: chex.Array,
        force: jax.Array,
    ) -> BipedalWalkerState:
        acceleration = jnp.zeros((len(_BODIES), 3), jnp.float32).at[:, 1].set(-10)
        acceleration = acceleration.at[0, 0].set(_BODIES[0].mass.linear * force)
        speeds = np.asarray([HIP_SPEED, KNEE_SPEED] * 2, np.float32) * jnp.sign(action)
        torques = MAX_TORQUE * jnp.minimum(jnp.abs(action), 1)
        world = replace(state.world, is_awake=jnp.ones_like(state.world.is_awake))  # by motors
        world = move(
            world,
            Terrain(state.heights, state.boxes),
            acceleration,
            speeds[ACTION_OF_JOINT],
            torques[ACTION_OF_JOINT],
        )
        return replace(state, world=world, has_fallen=state.has_fallen | world.began[0])

    def _observe(self, state: BipedalWalkerState) -> jax.Array:
        bodies = state.world.bodies
        _, _, angle, vx, vy, spin = bodies[0]
        observation = [
            angle,
            spin * (2 * TIME_STEP),
            vx * (0.3 * FRAME_SHAPE[1] / SCALE * TIME_STEP),
            vy * (0.3 * FRAME_SHAPE[0] / SCALE * TIME_STEP),
        ]
        for leg in (1, 3):
            hip, knee = (bodies[i] - bodies[j] for i, j in ((leg, 0), (leg + 1, leg)))
            side = -1 if leg == 1 else 1
            observation += [
                hip[2] - side * 0.05,
                hip[5] / HIP_SPEED,
                knee[2] + 1,
                knee[5] / KNEE_SPEED,
                state.world.touches[leg + 1].astype(jnp.float32),
            ]
        return jnp.concatenate([jnp.stack(observation), _measure(state)])

    def render(self, state: BipedalWalkerState) -> jax.Array:
        """Draws the walker, 1/5 from the left, and the terrain: uint8[400, 600, 3]."""
        x, y = raster.pixel_grid(FRAME_SHAPE)
        scroll = _hull_origin(state)[0] - FRAME_SHAPE[1] / SCALE / 5
        # Before the start, Gymnasium shows the terrain from its left end on.
        x = x + jnp.maximum(scroll, 0) * SCALE
        layers = []
        for i in range(CLOUDS):
            corners = [
                (px * SCALE + scroll * SCALE / 2, py * SCALE)
                for px, py in jnp.unstack(state.clouds[i].T[:, ::-1], axis=1)
            ]
            layers.append((raster.polygon(x, y, corners), raster.WHITE))
        column = jnp.asarray(WORLD.ground.columns) * SCALE
        surface = jnp.interp(x[0], column, state.heights * SCALE)
        slope = jnp.interp(x[0], (column[1:] + column[:-1]) / 2, jnp.diff(state.heights) / COLUMN)
        height = jnp.asarray(y) - surface[None]
        layers.append((raster.fill(height), (102, 153, 76)))
        is_odd = (x[0] // (COLUMN * SCALE)).astype(jnp.int32) % 2 == 1
        line = raster.fill(jnp.abs(height) / jnp.sqrt(1 + slope * slope)[None] - 0.5)
        for mask, color in (~is_odd, (76, 255, 76)), (is_odd, (76, 204, 76)):
            layers.append((jnp.where(mask[None], line, 0), color))
        if state.boxes is not None:
            visible = jnp.sum(state.boxes[:, 2] < scroll, dtype=jnp.int32)
            boxes = jax.lax.dynamic_slice(state.boxes, (visible, 0), (12, 4)) * SCALE
            for left, low, right, high in boxes:
                corners = [(left, low), (right, low), (right, high), (left, high)]
                layers.append((raster.polygon(x, y, corners, outline=0.5), (153, 153, 153)))
                layers.append((raster.polygon(x, y, corners, outline=-0.5), raster.WHITE))
        for i, side in (*_LIMBS, (0, 0)):
            body, shade = _BODIES[i], 25 * side
            inner = (153 - shade, 76 - shade, 127 - shade) if i else (127, 51, 229)
            outer = (102 - shade, 51 - shade, 76 - shade) if i else (76, 76, 127)
            corners = body.corners(state.world.bodies[i], SCALE)
            layers.append((raster.polygon(x, y, corners, outline=0.5), outer))
            layers.append((raster.polygon(x, y, corners, outline=-0.5), inner))
        pole, base = 3 * COLUMN * SCALE, GROUND_HEIGHT * SCALE
        top = base + 50
        flag = [(pole, top), (pole, top - 10), (pole + 25, top - 5)]
        layers.append((raster.line(x, y, (pole, base), (pole, top)), raster.BLACK))
        layers.append((raster.polygon(x, y, flag, outline=0.5), raster.BLACK))
        layers.append((raster.polygon(x, y, flag, outline=-0.5), (230, 51, 0)))
        return raster.paint((215, 215, 255), *layers)


def _hull_origin(state: BipedalWalkerState) -> tuple[jax.Array, jax.Array]:
    """Returns x and y of the hull's origin, which is not its center of mass."""
    return _BODIES[0].origin(state.world.bodies[0])


def _with_slots_of_boxes(world: WorldState) -> WorldState:
    """Returns a state of `WORLD` as one of `HARDCORE_WORLD` that touches no box."""
    # Boxes have the first numbers, and their slots are the last.
    number = world.contacts[..., PART]
    contacts = world.contacts.at[..., PART].set(jnp.where(number < 0, number, number + MAX_BOXES))
    empty = np.broadcast_to(NO_CONTACT, (len(_BODIES), BOX_SLOTS, len(NO_CONTACT)))
    return replace(
        world,
        contacts=jnp.concatenate([contacts, empty], axis=1),
        impulses=jnp.pad(world.impulses, ((0, 0), (0, BOX_SLOTS), (0, 0))),
    )


def _lay(draws: TerrainDraws, hardcore: bool) -> tuple[jax.Array, jax.Array | None]:
    """Returns the terrain's heights and, in hardcore mode, its boxes."""

    def lay(carry: tuple, column: tuple) -> tuple[tuple, tuple]:
        # Heights are relative to that of the first column.
        kind, is_first, left, y, slope, start_y, steps, rise = carry
        i, (bump, length, obstacle, size, is_up) = column
        rolls = (kind == GRASS) & ~is_first
        slope = jnp.where(rolls, 0.8 * slope - 0.01 * jnp.sign(y), slope)
        slope = slope + jnp.where(rolls & (i > PAD), bump / SCALE, 0)
        y = jnp.where(rolls, y + slope, y)
        starts = jnp.where(is_first, kind, GRASS)
        if hardcore:
            size = size + jnp.where(starts == STUMP, 1, 3)
            steps = jnp.where(starts == STAIRS, size, steps)
            rise = jnp.where(starts == STAIRS, jnp.where(is_up, 1, -1), rise)
            start_y = jnp.where(starts > STUMP, y, start_y)
            lengths = [size, STAIR * size, size + 2]
            left = jnp.select([starts == k for k in (STUMP, STAIRS, PIT)], lengths, left)
            stairs = ((STAIR * steps - left - rise) * rise).astype(jnp.float32) / STAIR
            depth = jnp.where(left > 1, -4.0, 0.0)
            y = jnp.where((kind == STAIRS) & ~is_first, start_y + stairs * COLUMN, y)
            y = jnp.where((kind == PIT) & ~is_first, start_y + depth * COLUMN, y)
        left = left - 1
        is_last = left == 0
        left = jnp.where(is_last, length, left)
        after = jnp.where(kind == GRASS, obstacle, GRASS) if hardcore else GRASS
        kind = jnp.where(is_last, after, kind)
        return (kind, is_last, left, y, slope, start_y, steps, rise), (y, starts, size, rise)

    flat, no = jnp.float32(0), jnp.int32(0)
    carry = jnp.int32(GRASS), jnp.bool_(False), jnp.int32(PAD), flat, flat, flat, no, no
    columns = jnp.arange(COLUMNS, dtype=jnp.int32), tuple(draws)
    _, (heights, starts, size, rise) = loops.scan(lay, carry, columns)
    heights = heights + np.float32(GROUND_HEIGHT)
    if not hardcore:
        return heights, None
    number = jnp.select([starts == STUMP, starts == STAIRS, starts == PIT], [1, size, 2], 0)
    ends = jnp.cumsum(number)
    box = jnp.arange(MAX_BOXES, dtype=jnp.int32)
    column = jnp.sum(ends[None] <= box[:, None], axis=1, dtype=jnp.int32)
    column = jnp.minimum(column, COLUMNS - 1)
    part = box - (ends - number)[column]  # of the obstacle
    kind, size, rise, y = starts[column], size[column], rise[column], heights[column]
    kinds = [kind == STUMP, kind == STAIRS, kind == PIT]
    start = column + jnp.select(kinds, [0 * part, STAIR * part, size * part])
    width = jnp.select(kinds, [size, jnp.full_like(size, STAIR), jnp.ones_like(size)])
    places = jnp.asarray(np.float32(np.arange(COLUMNS + 4 * STAIR + 4) * COLUMN))
    step = part * rise
    low = jnp.select(kinds, [0 * step, step - 1, jnp.full_like(step, -4)])
    high = jnp.select(kinds, [size, step, 0 * step])
    rows = [
        places[start],
        y + low.astype(jnp.float32) * COLUMN,
        places[start + width],
        y + high.astype(jnp.float32) * COLUMN,
    ]
    return heights, jnp.where((box < ends[-1])[:, None], jnp.stack(rows, axis=1), FAR)


def _shape_clouds(draws: jax.Array) -> jax.Array:
    """Returns the corners of clouds, float32[10, 5, 2]."""
    turn = 3.14 * 2 * np.arange(5) / 5
    shape = np.stack([15 * np.sin(turn), 5 * np.cos(turn)], axis=1).astype(np.float32)
    place = jnp.stack([COLUMNS * COLUMN * draws[:, 0], jnp.full(CLOUDS, 10, jnp.float32)], axis=1)
    offsets = 5 * draws[:, 1:].reshape(CLOUDS, 5, 2)
    return place[:, None] + COLUMN * (shape[None] + offsets)


def _measure(state: BipedalWalkerState) -> jax.Array:
    """Returns float32[10], the fractions of the lidar's rays that are above the ground."""
    x, y = _hull_origin(state)
    angle = 1.5 * np.arange(RAYS) / RAYS
    ray = np.stack([np.sin(angle), -np.cos(angle)]) * RANGE
    dx, dy = x + ray[0].astype(np.float32) - x, y + ray[1].astype(np.float32) - y
    dx, dy = dx[:, None], dy[:, None]  # [10, 1]

    first = jnp.floor(x / COLUMN).astype(jnp.int32) - 1
    columns, heights = (
        jax.lax.dynamic_slice(each, (first,), (WINDOW + 1,))
        for each in (jnp.asarray(WORLD.ground.columns), state.heights)
    )
    start_x, start_y = columns[:-1], heights[:-1]
    along_x, along_y = jnp.diff(columns), jnp.diff(heights)
    squared = along_x * along_x + along_y * along_y
    length = jnp.sqrt(squared)
    normal_x, normal_y = along_y / length, -along_x / length
    depth = normal_x * (start_x - x) + normal_y * (start_y - y)
    rate = normal_x[None] * dx + normal_y[None] * dy
    share = depth[None] / rate
    hit_x, hit_y = x + share * dx - start_x[None], y + share * dy - start_y[None]
    place = (hit_x * along_x[None] + hit_y * along_y[None]) / squared[None]
    hits = (rate != 0) & (share >= 0) & (share <= 1) & (place >= 0) & (place <= 1)
    shares = jnp.where(hits, share, 1).min(axis=1)
    if state.boxes is None:
        return shares

    index = jnp.sum(state.boxes[:, 2] < x, dtype=jnp.int32)
    left, low, right, high = jax.lax.dynamic_slice(state.boxes, (index, 0), (BOX_WINDOW, 4)).T
    sides = (right - x, dx), (high - y, dy), (x - left, -dx), (y - low, -dy)
    enters, leaves, misses = -1.0, 1.0, False
    for depth, rate in sides:
        share = depth[None] / rate
        enters = jnp.where(rate < 0, jnp.maximum(enters, share), enters)
        leaves = jnp.where(rate > 0, jnp.minimum(leaves, share), leaves)
        misses |= (rate == 0) & (depth < 0)[None]
    hits = (enters > 0) & (enters <= leaves) & ~misses
    return jnp.minimum(shares, jnp.where(hits, enters, 1).min(axis=1))
