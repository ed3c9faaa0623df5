"""Gymnasium's Box2D tasks, with pybox2d."""

import abc
import functools
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any, ClassVar

import chex
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.envs.box2d import bipedal_walker, lunar_lander

from benchmarks.oracles import Oracle, RecordingGenerator
from jaxenvs.core import Environment
from jaxenvs.envs.box2d import BipedalWalkerState, LunarLanderState
from jaxenvs.envs.box2d import bipedal_walker as walker
from jaxenvs.envs.box2d.lunar_lander import StartDraws
from jaxenvs.physics.box2d.engine import WorldState
from jaxenvs.physics.box2d.slots import PART, RANK


@functools.cache
def jitted(method: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a jitted method, which is compiled once for all oracles of an environment."""
    return jax.jit(method)


def pilot(env: Environment, state: LunarLanderState, key: chex.PRNGKey) -> jax.Array:
    """Lands mostly: the policy of Gymnasium's own tests."""
    del key
    x, y, vx, vy, angle, spin, left, right = env._observe(state)  # pyright: ignore[reportAttributeAccessIssue]
    turn = (jnp.clip(0.5 * x + vx, -0.4, 0.4) - angle) * 0.5 - spin
    hover = (0.55 * jnp.abs(x) - y) * 0.5 - vy * 0.5
    lands = (left + right) > 0
    turn, hover = jnp.where(lands, 0, turn), jnp.where(lands, -vy * 0.5, hover)
    if env.parameters["continuous"]:
        return jnp.clip(jnp.stack([hover * 20 - 1, -turn * 20]), -1, 1)
    side = jnp.where(turn < -0.05, 3, jnp.where(turn > 0.05, 1, 0))
    return jnp.where((hover > jnp.abs(turn)) & (hover > 0.05), 2, side).astype(jnp.int32)


def _recorder(module: ModuleType) -> type:
    """Returns the reference's listener, with a record of events."""

    class EventRecorder(module.ContactDetector):
        def __init__(self, env: Any) -> None:
            super().__init__(env)
            self.began: set[Any] = set()
            self.touching: set[Any] = set()
            env.events = self

        def BeginContact(self, contact: Any) -> None:
            super().BeginContact(contact)
            self.began.add(contact.fixtureB.body)
            self.touching.add(contact.fixtureB.body)

        def EndContact(self, contact: Any) -> None:
            super().EndContact(contact)
            self.touching.discard(contact.fixtureB.body)

    return EventRecorder


class _Box2DOracle(Oracle):
    """A task without wrappers.

    Box2D's bounding boxes and times at rest cannot be read, so they and the slots of contacts are
    those that our step gives; what touches, where, and with which impulses is the reference's. A
    state is restored by repeating its episode.
    """

    package = "gymnasium box2d"
    tolerance = 2e-4
    # Rounding decides where impulses do not converge in 180 iterations.
    tolerated = 0.005
    module: ClassVar[ModuleType]
    kind: ClassVar[type]  # of the reference

    def __init__(self, env: Environment, seed: int) -> None:
        super().__init__(env, seed)
        self.begin = jitted(env.begin)  # pyright: ignore[reportAttributeAccessIssue]
        self.episodes: dict[bytes, tuple[int, list[Any], Any]] = {}

    def reset(self) -> Any:
        return self._start(int(self.random.integers(2**31)))

    def _start(self, seed: int) -> Any:
        # A world that is used again orders contacts by its history.
        self.reference: Any = self.kind(**self.env.parameters)
        self.generator = self._record(np.random.default_rng(seed))
        self.reference.np_random = self.generator
        detector = self.module.ContactDetector
        self.module.ContactDetector = _recorder(self.module)
        try:
            observation, _ = self.reference.reset()
        finally:
            self.module.ContactDetector = detector
        self.state, _ = self.begin(self._start_draws())
        self.seed, self.actions = seed, []
        return observation

    def step(self, action: Any) -> tuple[Any, float, bool]:
        self.reference.events.began.clear()
        before = self.get_state()
        self.generator.drawn.clear()
        observation, reward, terminated, _, _ = self.reference.step(action)
        self.actions = [*self.actions, action]
        dtype = self.env.action_space.dtype  # pyright: ignore[reportAttributeAccessIssue]
        self.state, _ = self.advance(before, np.asarray(action, dtype))
        return observation, reward, terminated

    def get_state(self) -> Any:
        state = self._wrap(self._read_world(jax.device_get(self.state).world))
        now = self.seed, [*self.actions], self.state
        self.episodes[state.world.bodies.tobytes()] = now
        return state

    def _record(self, generator: np.random.Generator) -> RecordingGenerator:
        return RecordingGenerator(generator)

    def set_state(self, state: Any) -> None:
        episode = self.episodes[np.asarray(state.world.bodies).tobytes()]
        self._start(episode[0])
        for action in episode[1]:
            self.reference.step(action)
        _, self.actions, self.state = episode
        self.generator = self._record(np.random.default_rng(self.random.integers(2**31)))
        self.reference.np_random = self.generator

    def sample_action(self) -> Any:
        shape = self.env.action_space.shape  # pyright: ignore[reportAttributeAccessIssue]
        if shape:
            return self.random.uniform(-1, 1, shape).astype(np.float32)
        return super().sample_action()

    @abc.abstractmethod
    def _start_draws(self) -> Any:
        """Returns the draws of the reference's reset."""

    @abc.abstractmethod
    def advance(self, state: Any, action: Any) -> Any:
        """Takes our step with the reference's draws."""

    @abc.abstractmethod
    def _wrap(self, world: WorldState) -> Any:
        """Returns the environment's state."""

    @property
    @abc.abstractmethod
    def bodies(self) -> list[Any]:
        """The reference's bodies, in our order."""

    @property
    @abc.abstractmethod
    def joints(self) -> list[Any]:
        """The reference's joints, in our order."""

    @abc.abstractmethod
    def _number_of(self, fixture: Any) -> int:
        """Returns the number of a part of the ground."""

    def _read_world(self, world: WorldState) -> WorldState:
        joints = [
            (*joint.GetReactionForce(1.0), joint.GetReactionTorque(1.0), joint.GetMotorTorque(1.0))
            for joint in self.joints
        ]
        contacts, impulses = world.contacts.copy(), np.zeros_like(world.impulses)
        for i, body in enumerate(self.bodies):
            self._read_contacts(body, contacts[i], impulses[i])
        rows = [
            (*b.worldCenter, b.angle, *b.linearVelocity, b.angularVelocity) for b in self.bodies
        ]
        events = self.reference.events
        return WorldState(
            bodies=np.asarray(rows, np.float32),
            boxes=world.boxes,
            joints=np.asarray(joints, np.float32),
            limits=world.limits,
            contacts=contacts,
            impulses=impulses,
            touches=np.asarray([b in events.touching for b in self.bodies]),
            began=np.asarray([b in events.began for b in self.bodies]),
            idle=world.idle,
            is_awake=np.asarray(self.bodies[0].awake),
        )

    def _read_contacts(self, body: Any, contacts: np.ndarray, impulses: np.ndarray) -> None:
        """Fills in the points and impulses of a body's contacts, and their order."""
        order = []
        for edge in body.contacts:
            contact = edge.contact
            number = self._number_of(contact.fixtureA)
            slots = np.flatnonzero((contacts[:, PART] == number) & (contacts[:, RANK] >= 0))
            if not len(slots):
                continue
            slot = int(slots[0])
            order.append(slot)
            manifold = contact.manifold
            contacts[slot, 2:] = manifold.pointCount, -1, -1
            for k in range(manifold.pointCount):
                point = manifold.points[k]
                feature = point.id.cf
                kind = 256 if feature.typeA == 1 else 512
                contacts[slot, 3 + k] = feature.indexA + 16 * feature.indexB + kind
                impulses[slot, k] = point.normalImpulse
                impulses[slot, 2 + k] = point.tangentImpulse
        if len(order) == (contacts[:, RANK] >= 0).sum():
            contacts[order, RANK] = np.arange(len(order))  # pybox2d lists the oldest first


class LunarLanderOracle(_Box2DOracle):
    """The lander."""

    module = lunar_lander
    kind = lunar_lander.LunarLander
    policy: ClassVar = staticmethod(pilot)
    variants: ClassVar = ({"enable_wind": True}, {"continuous": True}, {"gravity": -4.0})
    unreachable: ClassVar = ("self.render()",)

    def __init__(self, env: Environment, seed: int) -> None:
        super().__init__(env, seed)
        self.apply = jitted(env.apply)  # pyright: ignore[reportAttributeAccessIssue]

    @property
    def step_functions(self) -> tuple[FunctionType, ...]:
        return (lunar_lander.LunarLander.step,)

    def _start_draws(self) -> StartDraws:
        drawn = self.generator.drawn
        return StartDraws(
            heights=np.float32(drawn[0]),
            force=np.float32(drawn[1:3]),
            wind=np.int32(drawn[3:5] if self.reference.enable_wind else [0, 0]),
            dispersion=np.float32(drawn[-2:]),
        )

    def get_draws(self) -> np.ndarray:
        return np.float32(self.generator.drawn[-2:])

    def advance(self, state: LunarLanderState, action: Any) -> Any:
        return self.apply(state, action, self.get_draws())

    @property
    def bodies(self) -> list[Any]:
        return [self.reference.lander, *self.reference.legs]

    @property
    def joints(self) -> list[Any]:
        return [leg.joint for leg in reversed(self.reference.legs)]

    def _number_of(self, fixture: Any) -> int:
        return list(self.reference.moon.fixtures).index(fixture) - 1  # after a line below

    def _wrap(self, world: WorldState) -> LunarLanderState:
        reference = self.reference
        polygons = reference.sky_polys
        wind = [reference.wind_idx, reference.torque_idx] if reference.enable_wind else [0, 0]
        return LunarLanderState(
            world=world,
            heights=np.float32([p[0][1] for p in polygons] + [polygons[-1][1][1]]),
            shaping=np.float32(reference.prev_shaping),
            wind=np.int32(wind),
            has_crashed=np.asarray(reference.game_over),
        )


def stand(env: Environment, state: BipedalWalkerState, key: chex.PRNGKey) -> jax.Array:
    """Stands with the legs apart, mostly: a part of Gymnasium's heuristic."""
    del key
    observation = env._observe(state)  # pyright: ignore[reportAttributeAccessIssue]
    angle, spin, _, vertical = observation[:4]
    actions = []
    for leg, target in (0, 0.6), (1, -0.3):
        hip, hip_speed, knee, knee_speed, _ = observation[4 + 5 * leg : 9 + 5 * leg]
        actions.append(0.9 * (target - hip + angle) - 0.25 * hip_speed + 1.5 * spin)
        actions.append(4.0 * (0.1 - knee) - 0.25 * knee_speed - 15.0 * vertical)
    return jnp.clip(0.5 * jnp.stack(actions), -1, 1)


class _PlacedGenerator(RecordingGenerator):
    """A generator that records where the terrain was when it drew, and between which bounds."""

    def __init__(self, generator: np.random.Generator, columns: Callable[[], int]) -> None:
        super().__init__(generator)
        self.columns = columns

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._generator, name)

        def draw(*bounds: Any) -> Any:
            self.drawn.append((self.columns() - 1, bounds, method(*bounds)))
            return self.drawn[-1][-1]

        return draw


class BipedalWalkerOracle(_Box2DOracle):
    """The walker."""

    module = bipedal_walker
    kind = bipedal_walker.BipedalWalker
    policy: ClassVar = staticmethod(stand)
    variants: ClassVar = ({"hardcore": True},)
    unreachable: ClassVar = ("self.render()", "if control_speed:", "* np.clip(action[")

    def __init__(self, env: Environment, seed: int) -> None:
        super().__init__(env, seed)
        self.advance_jitted = jitted(env.step)

    @property
    def step_functions(self) -> tuple[FunctionType, ...]:
        return (bipedal_walker.BipedalWalker.step,)

    def _record(self, generator: np.random.Generator) -> RecordingGenerator:
        return _PlacedGenerator(generator, lambda: len(getattr(self.reference, "terrain_x", ())))

    def _start_draws(self) -> walker.StartDraws:
        columns = walker.COLUMNS
        terrain = walker.TerrainDraws(
            bumps=np.zeros(columns, np.float32),
            lengths=np.full(columns, 5, np.int32),
            obstacles=np.ones(columns, np.int32),
            sizes=np.zeros(columns, np.int32),
            is_up=np.zeros(columns, bool),
        )
        *drawn, (_, _, force) = self.generator.drawn
        clouds = drawn[len(drawn) - 11 * walker.CLOUDS :]
        for i, bounds, value in drawn[: len(drawn) - len(clouds)]:
            if not bounds:
                terrain.is_up[i] = value > 0.5
            elif bounds == (-1, 1):
                terrain.bumps[i] = value
            elif bounds == (walker.LONGEST_GRASS // 2, walker.LONGEST_GRASS):
                terrain.lengths[i] = value
            elif bounds == (walker.STUMP, walker.PIT + 1):
                terrain.obstacles[i] = value
            elif bounds in ((1, 3), (3, 5)):
                terrain.sizes[i] = value - bounds[0]
        units = np.float32([value / bounds[1] for _, bounds, value in clouds])
        return walker.StartDraws(
            terrain=terrain, clouds=units.reshape(walker.CLOUDS, 11), force=np.float32(force)
        )

    def advance(self, state: BipedalWalkerState, action: Any) -> Any:
        return self.advance_jitted(state, action, jax.random.key(0))

    @property
    def bodies(self) -> list[Any]:
        return [self.reference.hull, *self.reference.legs]

    @property
    def joints(self) -> list[Any]:
        return [self.reference.joints[i] for i in walker.ACTION_OF_JOINT]

    def _number_of(self, fixture: Any) -> int:
        parts = self.reference.terrain[::-1]  # boxes and edges
        boxes = len(parts) - (walker.COLUMNS - 1)
        number = parts.index(fixture.body)
        ground = walker.HARDCORE_WORLD.ground if self.reference.hardcore else walker.WORLD.ground
        return number if number < boxes else number - boxes + ground.boxes

    def _wrap(self, world: WorldState) -> BipedalWalkerState:
        reference, ours = self.reference, jax.device_get(self.state)
        boxes = ours.boxes
        if boxes is not None:
            parts = reference.terrain[::-1][: len(reference.terrain) - (walker.COLUMNS - 1)]
            boxes = np.full_like(boxes, walker.FAR)
            for row, part in zip(boxes, parts, strict=False):
                corners = np.float32(part.fixtures[0].shape.vertices)
                row[:] = *corners.min(axis=0), *corners.max(axis=0)
        return BipedalWalkerState(
            world=world,
            heights=np.float32(reference.terrain_y),
            boxes=boxes,
            clouds=ours.clouds,
            has_fallen=np.asarray(reference.game_over),
        )
