"""Gymnasium's Box2D tasks, with pybox2d."""

from types import FunctionType
from typing import Any, ClassVar

import chex
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.envs.box2d import lunar_lander

from benchmarks.oracles import Oracle, RecordingGenerator
from jaxenvs.core import Environment
from jaxenvs.envs.box2d import LunarLanderState
from jaxenvs.envs.box2d._slots import EDGE, RANK
from jaxenvs.envs.box2d.engine import SLEEP_ANGULAR, SLEEP_LINEAR, TIME_STEP, WorldState
from jaxenvs.envs.box2d.lunar_lander import StartDraws


class EventRecorder(lunar_lander.ContactDetector):
    """The reference's listener, with a record of events."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.began: set[Any] = set()
        self.touching: set[Any] = set()

    def BeginContact(self, contact: Any) -> None:
        super().BeginContact(contact)
        self.began.add(contact.fixtureB.body)
        self.touching.add(contact.fixtureB.body)

    def EndContact(self, contact: Any) -> None:
        super().EndContact(contact)
        self.touching.discard(contact.fixtureB.body)


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


class LunarLanderOracle(Oracle):
    """The lander without wrappers.

    Box2D's bounding boxes cannot be read, so they and the slots of contacts are those that our
    step gives; what touches, where, and with which impulses is the reference's. A state is
    restored by repeating its episode.
    """

    package = "gymnasium box2d"
    tolerance = 2e-4
    # Rounding decides where impulses do not converge in 180 iterations. And the time at rest is
    # counted before impacts, from velocities that cannot be read.
    tolerated = 0.005
    policy: ClassVar = staticmethod(pilot)
    variants: ClassVar = ({"enable_wind": True}, {"continuous": True}, {"gravity": -4.0})
    unreachable: ClassVar = ("self.render()",)

    def __init__(self, env: Environment, seed: int) -> None:
        super().__init__(env, seed)
        self.reference: Any = lunar_lander.LunarLander(**env.parameters)
        self.apply = jax.jit(env.apply)  # pyright: ignore[reportAttributeAccessIssue]
        self.begin = jax.jit(env.begin)  # pyright: ignore[reportAttributeAccessIssue]
        self.episodes: dict[bytes, tuple[int, list[Any], Any, np.ndarray]] = {}

    @property
    def step_functions(self) -> tuple[FunctionType, ...]:
        return (lunar_lander.LunarLander.step,)

    def reset(self) -> Any:
        return self._start(int(self.random.integers(2**31)))

    def _start(self, seed: int) -> Any:
        reference = self.reference
        reference.np_random = self.generator = RecordingGenerator(np.random.default_rng(seed))
        detector, lunar_lander.ContactDetector = lunar_lander.ContactDetector, EventRecorder
        try:
            observation, _ = reference.reset()
        finally:
            lunar_lander.ContactDetector = detector
        drawn = self.generator.drawn
        self.state, _ = self.begin(
            StartDraws(
                heights=np.float32(drawn[0]),
                force=np.float32(drawn[1:3]),
                wind=np.int32(drawn[3:5] if reference.enable_wind else [0, 0]),
                dispersion=np.float32(drawn[-2:]),
            )
        )
        self.seed, self.actions = seed, []
        self.idle = np.zeros(3, np.float32)
        return observation

    def step(self, action: Any) -> tuple[Any, float, bool]:
        listener = self.reference.world.contactListener_keepref
        listener.began.clear()
        before = self.get_state()
        self.generator.drawn.clear()
        observation, reward, terminated, _, _ = self.reference.step(action)
        self.actions = [*self.actions, action]
        dtype = self.env.action_space.dtype  # pyright: ignore[reportAttributeAccessIssue]
        self.state, _ = self.apply(before, np.asarray(action, dtype), self.get_draws())
        speed = [np.hypot(*body.linearVelocity) for body in self.bodies]
        spin = [abs(body.angularVelocity) for body in self.bodies]
        moves = (np.asarray(speed) > SLEEP_LINEAR) | (np.asarray(spin) > SLEEP_ANGULAR)
        self.idle = np.where(moves | (not self.reference.lander.awake), 0, self.idle + TIME_STEP)
        self.idle = self.idle.astype(np.float32)
        return observation, reward, terminated

    def get_draws(self) -> np.ndarray:
        return np.float32(self.generator.drawn[-2:])

    @property
    def bodies(self) -> list[Any]:
        return [self.reference.lander, *self.reference.legs]

    def get_state(self) -> LunarLanderState:
        reference = self.reference
        listener = reference.world.contactListener_keepref
        ours = jax.device_get(self.state)
        world = ours.world
        joints = np.zeros((2, 4), np.float32)
        for row, leg in zip(joints, reversed(reference.legs), strict=True):
            row[:2] = leg.joint.GetReactionForce(1.0)
            row[2:] = leg.joint.GetReactionTorque(1.0), leg.joint.GetMotorTorque(1.0)
        contacts, impulses = world.contacts.copy(), np.zeros_like(world.impulses)
        for i, body in enumerate(self.bodies):
            self._read_contacts(body, contacts[i], impulses[i])
        state = LunarLanderState(
            world=WorldState(
                bodies=np.asarray(
                    [
                        (*b.worldCenter, b.angle, *b.linearVelocity, b.angularVelocity)
                        for b in self.bodies
                    ],
                    np.float32,
                ),
                boxes=world.boxes,
                joints=joints,
                limits=world.limits,
                contacts=contacts,
                impulses=impulses,
                touches=np.asarray([b in listener.touching for b in self.bodies]),
                began=np.asarray([b in listener.began for b in self.bodies]),
                idle=self.idle,
                is_awake=np.asarray(reference.lander.awake),
            ),
            heights=np.asarray(
                [p[0][1] for p in reference.sky_polys] + [reference.sky_polys[-1][1][1]],
                np.float32,
            ),
            shaping=np.float32(reference.prev_shaping),
            wind=np.asarray(
                [reference.wind_idx, reference.torque_idx] if reference.enable_wind else [0, 0],
                np.int32,
            ),
            has_crashed=np.asarray(reference.game_over),
        )
        now = self.seed, [*self.actions], self.state, self.idle
        self.episodes[state.world.bodies.tobytes()] = now
        return state

    def _read_contacts(self, body: Any, contacts: np.ndarray, impulses: np.ndarray) -> None:
        """Fills in the points and impulses of a body's contacts, and their order."""
        edges = list(self.reference.moon.fixtures)  # a line below the terrain, and its edges
        order = []
        for edge in body.contacts:
            contact = edge.contact
            number = edges.index(contact.fixtureA) - 1
            slots = np.flatnonzero((contacts[:, EDGE] == number) & (contacts[:, RANK] >= 0))
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

    def set_state(self, state: LunarLanderState) -> None:
        episode = self.episodes[np.asarray(state.world.bodies).tobytes()]
        self._start(episode[0])
        for action in episode[1]:
            self.reference.step(action)
        _, self.actions, self.state, self.idle = episode
        self.generator = RecordingGenerator(np.random.default_rng(self.random.integers(2**31)))
        self.reference.np_random = self.generator

    def sample_action(self) -> Any:
        if self.reference.continuous:
            return self.random.uniform(-1, 1, 2).astype(np.float32)
        return super().sample_action()
