"""The lunar lander task."""

import math
from dataclasses import replace
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import spaces, struct
from jaxenvs.core import Environment, TimeStep
from jaxenvs.numerics import sincos
from jaxenvs.physics.box2d.engine import TIME_STEP, Body, World, WorldState
from jaxenvs.physics.box2d.geometry import polygon
from jaxenvs.physics.box2d.ground import Ground, Terrain
from jaxenvs.physics.box2d.joints import Joint
from jaxenvs.rendering import raster
from jaxenvs.spaces.validation import check_action_shape

SCALE = 30.0  # pixels per meter
FRAME_SHAPE = (400, 600)  # height, width
WIDTH, HEIGHT = 20.0, 40 / 3  # m, of the scene
EDGES = 10  # of the terrain
PAD_HEIGHT = HEIGHT / 4  # m
LEG_DOWN, LEG_AWAY = 18 / SCALE, 20 / SCALE  # m, from a leg's center to its joint
MAIN_POWER, SIDE_POWER = 13.0, 0.6
INITIAL_FORCE = 1000.0  # N
WIND_SPAN = 9999  # the wind starts at a random index up to this

_HULL = [(17, -10), (17, 0), (14, 17), (-14, 17), (-17, 0), (-17, -10)]
_HULL_POLYGON = polygon([(x / SCALE, y / SCALE) for x, y in _HULL], 6)
_LEG_POLYGON = polygon([(x / SCALE, y / SCALE) for x, y in ((-2, -8), (2, -8), (2, 8), (-2, 8))], 6)


def _leg_joint(leg: int, sign: int) -> Joint:
    hull_x, hull_y = (-float(c) for c in _HULL_POLYGON.center)
    low = 0.4 if sign < 0 else -0.9
    # pybox2d takes the angles of the bodies when the joint is made as zero.
    return Joint(0, leg, (hull_x, hull_y), (sign * LEG_AWAY, LEG_DOWN), low, low + 0.5, sign * 0.05)


WORLD = World(
    bodies=[
        Body(_HULL_POLYGON, density=5.0, friction=0.1),
        Body(_LEG_POLYGON, density=1.0, friction=math.sqrt(0.1 * 0.2)),
        Body(_LEG_POLYGON, density=1.0, friction=math.sqrt(0.1 * 0.2)),
    ],
    joints=[_leg_joint(2, 1), _leg_joint(1, -1)],
    ground=Ground(EDGES, WIDTH / EDGES, edge_slots=2),
)


@chex.dataclass(frozen=True)
class LunarLanderState:
    """The bodies and the terrain."""

    world: WorldState  # hull, right leg, left leg
    heights: jax.Array  # float32[11], m, of the terrain
    shaping: jax.Array  # float32[], the potential of the last state
    wind: jax.Array  # int32[2], indices into the wind and the turbulence
    has_crashed: jax.Array  # bool[], whether the hull has touched the ground


class StartDraws(NamedTuple):
    """The random draws at the start of an episode."""

    heights: jax.Array  # float32[12], m
    force: jax.Array  # float32[2], N
    wind: jax.Array  # int32[2]
    dispersion: jax.Array  # float32[2], of the first step


class LunarLander(Environment[LunarLanderState]):
    """Land on the pad between the flags, softly and on both legs.

    Observation: float32[8]
        0  x from the pad, in halves of the scene's width
        1  y above the pad, in halves of the scene's height
        2  velocity along x, scaled
        3  velocity along y, scaled
        4  angle, rad
        5  angular velocity, scaled
        6  whether the right leg touches the ground
        7  whether the left leg touches the ground
    Action: Discrete(4): nothing, left engine, main engine, right engine. With `continuous`,
        float32[2]: the main engine runs at 50% to 100% power for values from 0 to 1, the left one
        below -0.5, and the right one above 0.5
    Reward: the change of a potential (higher when nearer, slower, and more upright, plus 10 for
        each leg on the ground), minus 0.3 for the main engine and 0.03 for a side engine. -100 for
        a crash or for leaving the scene; +100 for coming to rest
    Start: at the top in the middle, with a random force, over random terrain
    Terminates: when the hull touches the ground, when the lander leaves the scene, or when it has
        come to rest
    Time limit: none here; `LunarLander-v3` is registered with 1,000 steps

    The terrain has ten edges; the line below it, which Gymnasium adds, is left out.

    Source: O. Klimov, OpenAI Gym, 2016, as Gymnasium's LunarLander-v3
    (tests/parity/test_certificates.py).
    """

    continuous: bool = struct.static(False)  # actions are the power of the engines
    gravity: float = -10.0  # m/s^2
    enable_wind: bool = struct.static(False)  # wind blows until a leg touches the ground
    wind_power: float = 15.0  # largest force of the wind
    turbulence_power: float = 1.5  # largest torque of the wind

    @property
    def observation_space(self) -> spaces.Box:
        high = np.asarray([2.5, 2.5, 10, 10, 2 * np.pi, 10, 1, 1], np.float32)
        low = np.where(np.arange(8) < 6, -high, -0.0).astype(np.float32)
        return spaces.Box(low, high, (8,))

    @property
    def action_space(self) -> spaces.Box | spaces.Discrete:
        return spaces.Box(-1.0, 1.0, (2,)) if self.continuous else spaces.Discrete(4)

    def reset(self, key: chex.PRNGKey) -> tuple[LunarLanderState, TimeStep]:
        unit_key, wind_key = jax.random.split(key)
        unit = jax.random.uniform(unit_key, (16,), jnp.float32)
        wind = jnp.zeros(2, jnp.int32)
        if self.enable_wind:
            wind = jax.random.randint(wind_key, (2,), -WIND_SPAN, WIND_SPAN)
        draws = StartDraws(
            heights=unit[:12] * (HEIGHT / 2),
            force=(2 * unit[12:14] - 1) * INITIAL_FORCE,
            wind=wind,
            dispersion=2 * unit[14:] - 1,
        )
        return self.begin(draws)

    def begin(self, draws: StartDraws) -> tuple[LunarLanderState, TimeStep]:
        """Starts an episode with the given draws. As in Gymnasium, this takes one step."""
        columns = np.arange(12)
        flat = (columns >= EDGES // 2 - 2) & (columns <= EDGES // 2 + 2)
        heights = jnp.where(flat, PAD_HEIGHT, draws.heights)
        previous = jnp.roll(heights, 1)
        smooth = 0.33 * (previous[:11] + heights[:11] + heights[1:])
        middle = WIDTH / 2
        places = [(middle, HEIGHT, 0.0)]
        places += [(middle - i * LEG_AWAY, HEIGHT, i * 0.05) for i in (-1, 1)]
        state = LunarLanderState(
            world=WORLD.start(jnp.asarray(places, jnp.float32)),
            heights=smooth,
            shaping=jnp.float32(0),
            wind=draws.wind,
            has_crashed=jnp.bool_(False),
        )
        action = jnp.zeros(2, jnp.float32) if self.continuous else jnp.int32(0)
        state, obs, _, _ = self._move(state, action, draws.dispersion, draws.force)
        return state, TimeStep.first(obs)

    def draw(self, state: LunarLanderState, key: chex.PRNGKey) -> jax.Array:
        """Draws the dispersion of an engine's jet: float32[2] in [-1, 1)."""
        del state
        return jax.random.uniform(key, (2,), jnp.float32, -1, 1)

    def apply(
        self, state: LunarLanderState, action: chex.Array, draws: jax.Array
    ) -> tuple[LunarLanderState, TimeStep]:
        """Takes a step with the given draws."""
        check_action_shape(self.action_space, action, "LunarLander")
        old = state.shaping
        state, obs, main, side = self._move(state, action, draws)
        reward = state.shaping - old - 0.3 * main - 0.03 * side
        fails = state.has_crashed | (jnp.abs(obs[0]) >= 1)
        rests = ~state.world.is_awake
        reward = jnp.where(rests, 100, jnp.where(fails, -100, reward))
        return state, TimeStep.transition(obs, reward=reward, terminated=fails | rests)

    def step(
        self, state: LunarLanderState, action: chex.Array, key: chex.PRNGKey
    ) -> tuple[LunarLanderState, TimeStep]:
        return self.apply(state, action, self.draw(state, key))

    def _move(
        self,
        state: LunarLanderState,
        action: chex.Array,
        dispersion: jax.Array,
        first_force: jax.Array | None = None,
    ) -> tuple[LunarLanderState, jax.Array, jax.Array, jax.Array]:
        """Advances the world; in the first step, with a force and far from the ground.

        Returns the state, the observation, and the powers of the main and the side engine.
        """
        world, wind = state.world, state.wind
        force = jnp.zeros(2, jnp.float32) if first_force is None else first_force
        torque = jnp.float32(0)
        if self.enable_wind:
            blows = ~(world.touches[1] | world.touches[2])
            gusts = jnp.where(blows, _gust(wind), 0)
            force = force.at[0].add(gusts[0] * self.wind_power)
            torque = gusts[1] * self.turbulence_power
            wind = wind + blows.astype(jnp.int32)
        x, y, angle, vx, vy, spin = world.bodies[0]
        sin, cos = sincos(angle)
        along, across = dispersion[0] / SCALE, dispersion[1] / SCALE
        if self.continuous:
            action = jnp.clip(action, -1, 1)
            main = jnp.where(action[0] > 0, (action[0] + 1) * 0.5, 0)
            side = jnp.where(jnp.abs(action[1]) > 0.5, jnp.abs(action[1]), 0)
            direction = jnp.sign(action[1])
        else:
            main = (action == 2).astype(jnp.float32)
            side = ((action == 1) | (action == 3)).astype(jnp.float32)
            direction = (action - 2).astype(jnp.float32)
        mass, center = WORLD.masses[0], _HULL_POLYGON.center
        # From the center of mass to the body's origin.
        origin_x = -(cos * center[0] - sin * center[1])
        origin_y = -(sin * center[0] + cos * center[1])
        main_reach = 4 / SCALE + 2 * along
        main_x = sin * main_reach - cos * across
        main_y = -cos * main_reach - sin * across
        swing = 3 * across + direction * (12 / SCALE)
        side_x = sin * along - cos * swing
        side_y = -cos * along - sin * swing
        jets = (
            (main_x, main_y, main_x, main_y, MAIN_POWER * main),
            # The 17, not 14, is Gymnasium's.
            (
                side_x,
                side_y,
                side_x - sin * (17 / SCALE),
                side_y + cos * (14 / SCALE),
                SIDE_POWER * side,
            ),
        )
        for push_x, push_y, at_x, at_y, power in jets:
            push_x, push_y = -push_x * power, -push_y * power
            vx, vy = vx + mass.linear * push_x, vy + mass.linear * push_y
            spin += mass.angular * ((origin_x + at_x) * push_y - (origin_y + at_y) * push_x)
        hull = jnp.stack([x, y, angle, vx, vy, spin])
        world = replace(world, bodies=jnp.concatenate([hull[None], world.bodies[1:]]))
        gravity = jnp.asarray(self.gravity, jnp.float32)
        zero = jnp.zeros_like(gravity)
        acceleration = jnp.stack(
            [
                jnp.stack(
                    [
                        mass.linear * force[0],
                        gravity + mass.linear * force[1],
                        mass.angular * torque,
                    ]
                ),
                *[jnp.stack([zero, gravity, zero])] * 2,
            ]
        )
        forces = acceleration, np.asarray([0.3, -0.3], np.float32), np.full(2, 40, np.float32)
        if first_force is None:
            world = WORLD.step(world, Terrain(state.heights), *forces)
        else:
            world = WORLD.fly(world, *forces)
        state = replace(
            state, world=world, wind=wind, has_crashed=state.has_crashed | world.began[0]
        )
        obs = self._observe(state)
        shaping = (
            -100 * jnp.sqrt(obs[0] * obs[0] + obs[1] * obs[1])
            - 100 * jnp.sqrt(obs[2] * obs[2] + obs[3] * obs[3])
            - 100 * jnp.abs(obs[4])
            + 10 * obs[6]
            + 10 * obs[7]
        )
        return replace(state, shaping=shaping), obs, main, side

    def _observe(self, state: LunarLanderState) -> jax.Array:
        hull = state.world.bodies[0]
        _, _, angle, vx, vy, spin = hull
        x, y = WORLD.bodies[0].origin(hull)
        legs = state.world.touches[1:].astype(jnp.float32)
        rate = TIME_STEP / 2
        return jnp.stack(
            [
                (x - WIDTH / 2) / (WIDTH / 2),
                (y - (PAD_HEIGHT + LEG_DOWN)) / (HEIGHT / 2),
                vx * (WIDTH * rate),
                vy * (HEIGHT * rate),
                angle,
                spin * (20 * TIME_STEP),
                legs[0],
                legs[1],
            ]
        )

    def render(self, state: LunarLanderState) -> jax.Array:
        """Draws the terrain, the pad's flags, and the lander: uint8[400, 600, 3]."""
        x, y = raster.pixel_grid(FRAME_SHAPE)
        column = np.linspace(0, FRAME_SHAPE[1], EDGES + 1, dtype=np.float32)
        surface = jnp.interp(x[0], column, state.heights * SCALE)
        ground = raster.fill(jnp.asarray(y) - surface[None])
        layers = [(ground, raster.WHITE)]
        for i, body in enumerate(WORLD.bodies):
            points = body.corners(state.world.bodies[i], SCALE)
            layers.append((raster.polygon(x, y, points, outline=0.5), (77, 77, 128)))
            layers.append((raster.polygon(x, y, points, outline=-0.5), (128, 102, 230)))
        base = PAD_HEIGHT * SCALE
        for i in (EDGES // 2 - 1, EDGES // 2 + 1):
            pole = i * FRAME_SHAPE[1] / EDGES
            top = base + 50
            flag = [(pole, top), (pole, top - 10), (pole + 25, top - 5)]
            layers.append((raster.line(x, y, (pole, base), (pole, top)), raster.WHITE))
            layers.append((raster.polygon(x, y, flag), raster.YELLOW))
        return raster.paint(raster.BLACK, *layers)


def _gust(index: jax.Array) -> jax.Array:
    """Returns the wind at these indices: tanh(sin(i / 50) + sin(pi i / 100))."""
    slow = jnp.sin(0.02 * index.astype(jnp.float32))
    return jnp.tanh(slow + jnp.sin((np.pi / 100) * (index % 200).astype(jnp.float32)))
