"""Box2D's rigid bodies, as far as Gymnasium's tasks need them.

A world has a few polygons, joined by hinges with motors and limits, over a ground of edges that
lie side by side. Contacts keep their impulses from step to step; motion is continuous, so nothing
falls through the ground; a world at rest for half a second falls asleep.

Left out, because no task needs it: restitution, contacts between moving bodies, other shapes and
joints, and islands (the bodies of a world are connected).

Source: E. Catto, Box2D 2.3, as pybox2d 2.3.10 (tests/envs/box2d).
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap

from jaxenvs.envs.box2d._geometry import (
    LINEAR_SLOP,
    SKIN,
    Array,
    Manifold,
    Polygon,
    Shape,
    Vector,
    collide,
    dot,
    scale,
    sub,
    transform_at,
)
from jaxenvs.envs.box2d._impact import TARGET, TOLERANCE, Sweep, time_of_impact
from jaxenvs.envs.box2d._solver import (
    INACTIVE,
    Contacts,
    Joint,
    Mass,
    _push,
    _slice,
    active_slots,
    limit_state,
    place_rows,
    prepare_contacts,
    prepare_joint,
    solve_positions,
    solve_velocities,
    stack,
    unstack,
)
from jaxenvs.vector.autoreset import overwrite_where

TIME_STEP = 1 / 50  # s
VELOCITY_ITERATIONS, POSITION_ITERATIONS = 180, 60
FIRST_ITERATIONS = 12  # before the lanes that still change are gathered
MAX_IMPACTS = 8  # substeps of a contact in one step, b2_maxSubSteps
MAX_TRANSLATION, MAX_ROTATION = 2.0, 0.5 * np.pi  # in one step
FAT = 0.1  # m, by which boxes are larger than what they contain
TIME_TO_SLEEP = 0.5  # s
SLEEP_LINEAR, SLEEP_ANGULAR = 0.01, 2 / 180 * np.pi  # m/s and rad/s
NOT_TOUCHING = -1


class Body(NamedTuple):
    """A polygon that moves."""

    polygon: Polygon
    density: float
    friction: float  # of it and the ground together

    @property
    def mass(self) -> Mass:
        """The inverse mass and inertia."""
        polygon, density = self.polygon, self.density
        return Mass(1 / (density * polygon.area), 1 / (density * polygon.inertia))


@chex.dataclass(frozen=True)
class WorldState:
    """What changes in a world of B bodies, J joints, and K contacts per body."""

    bodies: jax.Array  # float32[B, 6]: x, y of the center of mass, angle, and their velocities
    boxes: jax.Array  # float32[B, 4]: low x, low y, high x, high y of a box around each body
    joints: jax.Array  # float32[J, 4]: impulses x, y, of the limit, and of the motor
    limits: jax.Array  # int32[J]: 0, 1 at the lower limit, 2 at the upper one
    impulses: jax.Array  # float32[B, K, 4]: of two points, two normal and two tangential
    contacts: jax.Array  # int32[B, K, 5]: edge, rank or -1, points, and their two ids
    touches: jax.Array  # bool[B]: whether the last event of a body's contacts was a beginning
    began: jax.Array  # bool[B]: whether a contact began in the last step
    idle: jax.Array  # float32[B]: s at rest
    is_awake: jax.Array  # bool[]


EDGE, RANK, COUNT, ID = 0, 1, 2, 3  # columns of `contacts`


class _Slots(NamedTuple):
    """Contacts in slots, [S, L], with what their bodies have seen."""

    edge: Array  # int32
    rank: Array  # int32, -1 without a contact; newer contacts have larger ones
    count: Array  # int32, of points
    ids: tuple[Array, Array]  # int32
    impulses: Array  # float32[S, 4, L]


class World:
    """Bodies, joints, and how they are solved."""

    def __init__(
        self,
        bodies: Sequence[Body],
        joints: Sequence[Joint],
        order: Sequence[int],
        edges: int,
        width: float,
        slots: int,
    ) -> None:
        """Makes a world.

        Args:
            bodies: the bodies.
            joints: in the order in which they are solved.
            order: the bodies in the order in which their contacts are solved.
            edges: the number of edges of the ground.
            width: m, the width of each, from x = 0.
            slots: the number of neighboring edges that a body can touch.
        """
        self.bodies, self.joints, self.order = tuple(bodies), tuple(joints), tuple(order)
        self.edges, self.width, self.slots = edges, width, slots
        self.masses = [body.mass for body in self.bodies]
        self._step = custom_vmap(self._step_all)
        self._step.def_vmap(self._step_nested)

    def start(self, positions: Array) -> WorldState:
        """Returns bodies at rest, from float32[B, 3]: x, y of the origins, and angles."""
        number, joints, slots = len(self.bodies), len(self.joints), self.slots
        rows = []
        for i, body in enumerate(self.bodies):
            x, y, angle = positions[i]
            sin, cos = jnp.sin(angle), jnp.cos(angle)
            cx, cy = map(float, body.polygon.center)
            rows.append(jnp.stack([x + cos * cx - sin * cy, y + sin * cx + cos * cy, angle]))
        places = jnp.stack(rows)
        bodies = jnp.concatenate([places, jnp.zeros_like(places)], axis=1)
        boxes = self._boxes(places.T[:, :, None].swapaxes(0, 1))
        fat = jnp.asarray([-FAT, -FAT, FAT, FAT], jnp.float32)
        return WorldState(
            bodies=bodies,
            boxes=boxes[:, :, 0] + fat[None],
            joints=jnp.zeros((joints, 4), jnp.float32),
            limits=jnp.zeros(joints, jnp.int32),
            impulses=jnp.zeros((number, slots, 4), jnp.float32),
            contacts=jnp.full((number, slots, 5), NOT_TOUCHING, jnp.int32)
            .at[..., COUNT]
            .set(0),
            touches=jnp.zeros(number, bool),
            began=jnp.zeros(number, bool),
            idle=jnp.zeros(number, jnp.float32),
            is_awake=jnp.bool_(True),
        )

    def step(
        self, state: WorldState, heights: Array, acceleration: Array, speeds: Array, torques: Array
    ) -> WorldState:
        """Moves the world by a time step.

        Args:
            state: the state.
            heights: float32[E + 1], m, of the ground at the ends of the edges.
            acceleration: float32[B, 3], by gravity and other forces.
            speeds: float32[J], rad/s, of the motors.
            torques: float32[J], N m, the most that the motors can do.
        """
        args = state, heights, acceleration, speeds, torques
        new = self._step(*jax.tree.map(lambda x: x[None], args))
        return jax.tree.map(lambda x: x[0], new)

    def _step_nested(self, size: int, in_batched: Any, *args: Any) -> tuple[Any, Any]:
        """Runs [M, N] worlds as [M N]."""
        args = jax.tree.map(
            lambda x, batched: x if batched else jnp.broadcast_to(x, (size, *x.shape)),
            args,
            tuple(in_batched),
        )
        shape = jax.tree.leaves(args)[0].shape[:2]
        new = self._step(*jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), args))
        new = jax.tree.map(lambda x: x.reshape(*shape, *x.shape[1:]), new)
        return new, jax.tree.map(lambda _: True, new)

    def _step_all(
        self, state: WorldState, heights: Array, acceleration: Array, speeds: Array, torques: Array
    ) -> WorldState:
        """Moves worlds [N, ...]: all as if in the air, then again those near the ground."""
        number = state.is_awake.shape[0]
        old, forces = state, (acceleration, speeds, torques)
        moved, _ = self._move(old, forces, None)
        near = jnp.any(old.contacts[..., RANK] >= 0, axis=(1, 2)) | self._is_near(moved, heights)
        chunk = max(1, min(32, number)) if number <= 512 else number // 16

        def land(params: Any, indices: Array) -> tuple[WorldState, Array]:
            old, forces, heights = jax.tree.map(
                lambda x: x[jnp.minimum(indices, number - 1)], params
            )
            return self._land(old, forces, heights)

        nothing = jnp.zeros(old.touches.shape, bool)
        state, may_hit = overwrite_where(
            land, chunk, near, (old, forces, heights), (moved, nothing)
        )
        return self._hit(old, state, may_hit, heights)

    # In the following, arrays of bodies are [B, ..., L] with lanes last.

    def _shape(self, bodies: Sequence[int]) -> Shape:
        """Returns the polygons of bodies, [S, 1]."""
        polygons = [self.bodies[i].polygon for i in bodies]

        def rows(arrays: Sequence[np.ndarray]) -> tuple[Vector, ...]:
            stacked = np.stack(arrays)  # [S, V, 2]
            return tuple(
                (jnp.asarray(stacked[:, v, :1]), jnp.asarray(stacked[:, v, 1:]))
                for v in range(stacked.shape[1])
            )

        return Shape(
            rows([each.vertices for each in polygons]),
            rows([each.following for each in polygons]),
            rows([each.normals for each in polygons]),
            rows([each.center[None] for each in polygons])[0],
            jnp.asarray([[len(np.unique(each.vertices, axis=0))] for each in polygons], jnp.int32),
        )

    def _boxes(self, position: Array) -> Array:
        """Returns boxes [B, 4, L] around bodies at [B, 3, L]."""
        shape = self._shape(range(len(self.bodies)))
        at = transform_at((position[:, 0], position[:, 1]), position[:, 2], shape.center)
        return _box(shape, at)

    def _move(self, state: WorldState, forces: Any, contacts: Contacts | None, impulses: Any = None) -> tuple[WorldState, Array]:
        """Moves worlds [N, ...], with `contacts` [S, N]; their new impulses are in `state`."""
        acceleration, speeds, torques = forces
        position = jnp.moveaxis(state.bodies[:, :, :3], 0, -1)
        velocity = jnp.moveaxis(state.bodies[:, :, 3:], 0, -1)
        velocity = velocity + TIME_STEP * jnp.moveaxis(acceleration, 0, -1)
        start = position
        body_of, slots, rows = self._slot_bodies, None, None
        if impulses is None:
            impulses = jnp.zeros((len(body_of), 4, position.shape[-1]), jnp.float32)
        if contacts is not None:
            slots = active_slots(contacts.manifold.count)
            rows = prepare_contacts(contacts, position)
            velocity = _warm_start(rows, body_of, slots, impulses, velocity)

        angles = list(position[:, 2])
        limits = jnp.stack(
            [limit_state(j, angles[j.first], angles[j.second]) for j in self.joints]
        )
        old_joints = jnp.moveaxis(state.joints, 0, -1)
        keeps = (limits == state.limits.T) & (limits != INACTIVE)
        joints = old_joints.at[:, 2].set(jnp.where(keeps, old_joints[:, 2], 0))
        lanes = unstack(velocity)
        for j, joint in enumerate(self.joints):
            x, y, z, motor = joints[j]
            first, second = self.masses[joint.first], self.masses[joint.second]
            arms = prepare_joint(
                joint, self.masses, angles, speeds[:, j], torques[:, j] * TIME_STEP
            )
            lanes[joint.first] = _push(
                lanes[joint.first], first, arms.first_arm, (-x, -y), -(motor + z)
            )
            lanes[joint.second] = _push(
                lanes[joint.second], second, arms.second_arm, (x, y), motor + z
            )
        velocity = stack(lanes)
        joint_rows = [
            prepare_joint(joint, self.masses, angles, speeds[:, j], torques[:, j] * TIME_STEP)
            for j, joint in enumerate(self.joints)
        ]
        if contacts is None:
            chunk = max(1, start.shape[-1] // 4)

            def solve(inputs: Any, iterations: int) -> Any:
                joint_rows, limits, state = inputs
                return solve_velocities(
                    self.joints, self.masses, joint_rows, limits, None, body_of, None,
                    (*state, impulses[:, :, :state[0].shape[-1]]), iterations,
                )

            ((velocity, joints, _), changes) = solve((joint_rows, limits, (velocity, joints)), FIRST_ITERATIONS)
            velocity, joints = on_lanes(
                lambda inputs: solve(inputs, VELOCITY_ITERATIONS - FIRST_ITERATIONS)[0][:2],
                chunk, changes, (joint_rows, limits, (velocity, joints)), (velocity, joints),
            )
            position, velocity = _integrate(position, velocity, TIME_STEP)

            def place(inputs: Any, iterations: int) -> Any:
                limits, position = inputs
                return solve_positions(
                    self.joints, self.masses, limits, None, body_of, None, position, 0.2,
                    3 * LINEAR_SLOP, iterations,
                )

            position, is_right = place((limits, position), 1)
            position, is_right = on_lanes(
                lambda inputs: place(inputs, POSITION_ITERATIONS - 1),
                chunk, ~is_right, (limits, position), (position, is_right),
            )
        else:
            (velocity, joints, impulses), _ = solve_velocities(
                self.joints,
                self.masses,
                joint_rows,
                limits,
                rows,
                body_of,
                slots,
                (velocity, joints, impulses),
                VELOCITY_ITERATIONS,
            )
            position, velocity = _integrate(position, velocity, TIME_STEP)
            position, is_right = solve_positions(
                self.joints,
                self.masses,
                limits,
                place_rows(contacts),
                body_of,
                slots,
                position,
                0.2,
                3 * LINEAR_SLOP,
                POSITION_ITERATIONS,
            )
        return self._finish(state, start, position, velocity, joints, limits, is_right), impulses

    @property
    def _slot_bodies(self) -> np.ndarray:
        return np.repeat(np.asarray(self.order, np.int32), self.slots)

    def _finish(
        self, state, start, position, velocity, joints, limits, is_right
    ) -> WorldState:
        """Puts worlds at rest to sleep and moves the boxes."""
        moves = velocity[:, 2] ** 2 > SLEEP_ANGULAR**2
        moves |= velocity[:, 0] ** 2 + velocity[:, 1] ** 2 > SLEEP_LINEAR**2
        idle = jnp.where(moves, 0, state.idle.T + TIME_STEP)
        sleeps = (idle.min(axis=0) >= TIME_TO_SLEEP) & is_right
        velocity = jnp.where(sleeps, 0, velocity)
        boxes = self._sync(jnp.moveaxis(state.boxes, 0, -1), start, position)
        return state.replace(
            bodies=jnp.moveaxis(jnp.concatenate([position, velocity], axis=1), -1, 0),
            boxes=jnp.moveaxis(boxes, -1, 0),
            joints=jnp.moveaxis(joints, -1, 0),
            limits=limits.T,
            began=jnp.zeros_like(state.began),
            idle=jnp.where(sleeps, 0, idle).T,
            is_awake=~sleeps,
        )

    def _sync(self, boxes: Array, start: Array, end: Array) -> Array:
        """Returns the boxes [B, 4, L] after a motion: new ones where bodies left theirs."""
        shape = self._shape(range(len(self.bodies)))
        return _sync(shape, boxes, start, end)

    def _is_near(self, state: WorldState, heights: Array) -> Array:
        """Returns bool[N], whether a body's box could meet the boxes of edges."""
        low_x, low_y, high_x = state.boxes[..., 0], state.boxes[..., 1], state.boxes[..., 2]
        reach = FAT + SKIN / 2
        first = jnp.floor((low_x.min(axis=1) - reach) / self.width).astype(jnp.int32)
        last = jnp.floor((high_x.max(axis=1) + reach) / self.width).astype(jnp.int32) + 1
        columns = np.arange(self.edges + 1, dtype=np.int32)[None]
        below = (columns >= first[:, None]) & (columns <= last[:, None])
        top = jnp.where(below, heights, -jnp.inf).max(axis=1)
        return low_y.min(axis=1) <= top + reach

    def _ends(self, heights: Array, edge: Array) -> tuple[Vector, Vector]:
        """Returns the ends of edges [S, L] of grounds [L, E + 1]."""
        lanes = jnp.arange(heights.shape[0], dtype=jnp.int32)[None]
        start = jnp.clip(edge, 0, self.edges - 1)
        ends = []
        for i in (start, start + 1):
            ends.append((i.astype(jnp.float32) * self.width, heights[lanes, i]))
        return ends[0], ends[1]

    def _land(
        self, state: WorldState, forces: Any, heights: Array
    ) -> tuple[WorldState, Array]:
        """Moves worlds [N, ...] near the ground. Returns also bool[N, B], what may hit it."""
        order, body_of = np.asarray(self.order), self._slot_bodies
        lanes = state.is_awake.shape[0]
        slots = _read(state.contacts[:, order], state.impulses[:, order])
        position = jnp.moveaxis(state.bodies[:, :, :3], 0, -1)
        x, y, angle = (position[body_of, i] for i in range(3))
        shape = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, x.shape), self._shape(body_of))
        at = transform_at((x, y), angle, shape.center)
        manifold = collide(*self._ends(heights, slots.edge), shape, at)
        slots, begins, ends = _update(slots, manifold, slots.rank >= 0)
        begins, ends = (e.reshape(len(order), self.slots, lanes) for e in (begins, ends))
        touches = state.touches.T[order]
        for k in range(self.slots):
            touches = (touches | begins[:, k]) & ~ends[:, k]
        contacts = Contacts(
            body_of,
            Mass(*(self._column(body_of, i)[:, None] for i in range(2))),
            self._column(body_of, 2)[:, None],
            manifold._replace(count=slots.count),
            shape.center,
        )
        new, impulses = self._move(state, forces, contacts, slots.impulses)
        back = np.argsort(order)
        table, impulses = _write(slots._replace(impulses=impulses), self.slots)
        new = new.replace(
            began=begins.any(axis=1)[back].T,
            touches=touches[back].T,
            contacts=table[:, back],
            impulses=impulses[:, back],
        )
        new = self._assign(new, heights)
        return new, self._may_hit(state, new, heights)

    def _column(self, bodies: np.ndarray, column: int) -> np.ndarray:
        """Returns the inverse masses (0), inverse inertias (1), or frictions (2) of bodies."""
        rows = [(*body.mass, body.friction) for body in self.bodies]
        return np.asarray(rows, np.float32)[bodies, column]

    def _assign(self, state: WorldState, heights: Array) -> WorldState:
        """Gives slots to the edges whose boxes meet those of bodies; the others lose theirs."""
        contacts, impulses = assign(
            self, state.boxes, state.bodies[..., 0], state.contacts, state.impulses, heights
        )
        return state.replace(contacts=contacts, impulses=impulses)

    def _may_hit(self, old: WorldState, new: WorldState, heights: Array) -> Array:
        """Returns bool[N, B], whether a body may have come too close to an edge during the step.

        A corner is then below the edge's line before or after it, as is an end of the edge above
        the polygon; by the turn, corners may be lower between.
        """
        shape = self._shape(range(len(self.bodies)))
        start, end = (jnp.moveaxis(each.bodies[..., :3], 0, -1) for each in (old, new))
        transforms = [
            transform_at((place[:, 0], place[:, 1]), place[:, 2], shape.center)
            for place in (start, end)
        ]
        x, y, turn = (jnp.abs(end[:, i] - start[:, i]) for i in range(3))
        margin = TARGET + TOLERANCE + turn * turn / 8
        reach = margin + jnp.hypot(x, y) + turn
        found = False
        for k in range(self.slots):
            one, two = self._ends(heights, new.contacts[:, :, k, EDGE].T)
            along = sub(two, one)
            normal = scale(1 / jnp.sqrt(dot(along, along)), (-along[1], along[0]))
            exists = new.contacts[:, :, k, RANK].T >= 0
            for at in transforms:
                inside = -jnp.inf, -jnp.inf
                for vertex, outward in zip(shape.vertices, shape.normals, strict=True):
                    corner, outward = at(vertex), at.rotate(outward)
                    low = dot(sub(corner, one), normal) < margin
                    over = (corner[0] > one[0] - reach) & (corner[0] < two[0] + reach)
                    found |= exists & low & over
                    inside = tuple(
                        jnp.maximum(most, dot(sub(tip, corner), outward))
                        for most, tip in zip(inside, (one, two), strict=True)
                    )
                found |= exists & (jnp.minimum(*inside) < reach)
        return (found & new.is_awake[None]).T

    def _hit(
        self, old: WorldState, state: WorldState, may_hit: Array, heights: Array
    ) -> WorldState:
        """Moves bodies back to where they hit the ground, and on from there."""
        number, bodies = may_hit.shape
        names = "bodies", "boxes", "impulses", "contacts", "touches", "began"

        def flat(x: Array) -> Array:
            return x.reshape(-1, *x.shape[2:])

        rows = {name: flat(getattr(state, name)) for name in names}
        chunk = max(1, min(16, number)) if number <= 512 else number // 32

        def bounce(params: Any, indices: Array) -> Any:
            indices = jnp.minimum(indices, number * bodies - 1)
            rows, old, heights = params
            return self._bounce(
                {name: leaf[indices] for name, leaf in rows.items()},
                old[indices],
                heights[indices // bodies],
                indices % bodies,
            )

        params = rows, flat(old.bodies), heights
        rows = overwrite_where(bounce, chunk, flat(may_hit), params, rows)
        return state.replace(
            **{name: leaf.reshape(number, bodies, *leaf.shape[1:]) for name, leaf in rows.items()}
        )

    def _bounce(
        self, rows: dict[str, Array], old: Array, heights: Array, bodies: Array
    ) -> dict[str, Array]:
        """Lets bodies [P, ...], which have no joints for this, hit the ground until they do not."""
        lanes = bodies.shape[0]
        table = jax.tree.map(lambda leaf: leaf[:, 0], self._shape(range(len(self.bodies))))
        shape = jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf[bodies][None], (self.slots, lanes)), table
        )
        columns = [jnp.asarray(self._column(np.arange(len(self.bodies)), i)) for i in range(3)]
        linear, angular, friction = (column[bodies][None] for column in columns)
        center = shape.center[0][:1], shape.center[1][:1]
        body_of = np.zeros(self.slots, np.int32)
        slots = _read(rows["contacts"][:, None], rows["impulses"][:, None])

        def sweep(start: Array, end: Array) -> Sweep:
            start, end = (jnp.broadcast_to(x[:, None], (3, self.slots, lanes)) for x in (start, end))
            return Sweep((start[0], start[1]), start[2], (end[0], end[1]), end[2], shape.center)

        def advance(carry: Any) -> Any:
            _, start, end, velocity, alpha, slots, tries, enabled, touches, began = carry
            ends = self._ends(heights, slots.edge)
            beta = time_of_impact(*ends, shape, sweep(start, end))
            times = jnp.minimum(alpha + (1 - alpha) * beta, 1)
            counts = enabled & (slots.rank >= 0) & (tries <= MAX_IMPACTS)
            times = jnp.where(counts, times, 1)
            first = jnp.argmin(times, axis=0)[None]
            time = jnp.min(times, axis=0)
            running = time <= 1 - 10 * np.finfo(np.float32).eps
            # The contact that is first is solved first.
            k = np.arange(self.slots)[:, None]
            order = jnp.argsort(jnp.where(k == first, -1, k), axis=0)
            slots, tries, enabled = jax.tree.map(
                lambda x: jnp.take_along_axis(
                    x, order if x.ndim == 2 else order[:, None], axis=0
                ),
                (slots, tries, enabled),
            )
            share = jnp.where(running, (time - alpha) / (1 - alpha), 0)
            place = (1 - share) * start + share * end
            at = transform_at((place[:1], place[1:2]), place[2:], center)
            at = jax.tree.map(lambda x: jnp.broadcast_to(x, (self.slots, lanes)), at)
            manifold = collide(*self._ends(heights, slots.edge), shape, at)
            is_solid = running & (slots.rank[0] >= 0) & (manifold.count[0] > 0)
            mask = running & ((k == 0) | is_solid)
            slots, begins, ends = _update(slots, manifold, mask & (slots.rank >= 0))
            for i in range(self.slots):
                touches = (touches | begins[i]) & ~ends[i]
            began = began | begins.any(axis=0)
            tries = tries + (running & (k == 0))
            enabled = jnp.where((k == 0) & running, is_solid, enabled | mask)
            contacts = Contacts(
                body_of,
                Mass(linear, angular),
                friction,
                manifold._replace(count=jnp.where(is_solid & (slots.rank >= 0), manifold.count, 0)),
                shape.center,
            )
            active = active_slots(contacts.manifold.count)
            none = jnp.zeros((0, lanes), jnp.int32)
            placed, _ = solve_positions(
                (), (), none, place_rows(contacts), body_of, active, place[None],
                0.75, 1.5 * LINEAR_SLOP, 20,
            )
            (pushed, _, _), _ = solve_velocities(
                (), (), (), none, prepare_contacts(contacts, placed), body_of, active,
                (
                    velocity[None],
                    jnp.zeros((0, 4, lanes), jnp.float32),
                    jnp.zeros((self.slots, 4, lanes), jnp.float32),
                ),
                VELOCITY_ITERATIONS,
            )
            moved, pushed = _integrate(placed, pushed, (1 - time) * TIME_STEP)
            return (
                running,
                jnp.where(is_solid, placed[0], start),
                jnp.where(is_solid, moved[0], end),
                jnp.where(is_solid, pushed[0], velocity),
                jnp.where(is_solid, time, alpha),
                slots,
                tries,
                enabled,
                touches,
                began,
            )

        place = rows["bodies"].T
        nothing = jnp.zeros((self.slots, lanes), jnp.int32)
        yes = jnp.ones(lanes, bool)
        carry = (
            yes, old.T[:3], place[:3], place[3:], jnp.zeros(lanes, jnp.float32),
            slots, nothing, nothing == 0, rows["touches"], rows["began"],
        )
        _, start, end, velocity, alpha, slots, _, _, touches, began = lax.while_loop(
            lambda carry: jnp.any(carry[0]), advance, carry
        )
        boxes = _sync(
            jax.tree.map(lambda x: x[:1], shape), rows["boxes"].T[None], start[None], end[None]
        )
        boxes = jnp.where(alpha > 0, boxes[0], rows["boxes"].T).T
        table, impulses = _write(slots, self.slots)
        bodies = jnp.concatenate([end, velocity]).T
        table, impulses = assign(
            self, boxes[:, None], bodies[:, :1], table, impulses, heights
        )
        return {
            "bodies": bodies,
            "boxes": boxes,
            "impulses": impulses[:, 0],
            "contacts": table[:, 0],
            "touches": touches,
            "began": began,
        }


def _read(contacts: Array, impulses: Array) -> _Slots:
    """Returns the contacts [N, B, K, ...] in slots [B K, N], newest first."""
    table, impulses = (jnp.moveaxis(x, 0, -1) for x in (contacts, impulses))
    newest = jnp.argsort(-table[:, :, RANK], axis=1, stable=True)[:, :, None]
    table, impulses = (
        jnp.take_along_axis(x, newest, axis=1).reshape(-1, *x.shape[2:]) for x in (table, impulses)
    )
    ids = table[:, ID], table[:, ID + 1]
    return _Slots(table[:, EDGE], table[:, RANK], table[:, COUNT], ids, impulses)


def _write(slots: _Slots, number: int) -> tuple[Array, Array]:
    """Returns contacts and impulses as `_read` takes them: an edge has the same slot always."""
    table = jnp.stack([slots.edge, slots.rank, slots.count, *slots.ids], axis=1)
    table, impulses = (
        x.reshape(-1, number, *x.shape[1:]) for x in (table, slots.impulses)
    )
    order = jnp.argsort(table[:, :, EDGE] % number, axis=1, stable=True)[:, :, None]
    return tuple(
        jnp.moveaxis(jnp.take_along_axis(x, order, axis=1), -1, 0) for x in (table, impulses)
    )


def on_lanes(compute: Any, chunk: int, mask: Array, inputs: Any, outputs: Any) -> Any:
    """Returns `outputs` with `compute(inputs)` in the lanes of `mask`, computed in chunks.

    `compute` takes and returns trees of arrays with any number of lanes.
    """
    rows, unpack_inputs = _pack(inputs)
    old, unpack_outputs = _pack(outputs)

    def at(rows: Array, indices: Array) -> Array:
        return _pack(compute(unpack_inputs(rows[jnp.minimum(indices, len(rows) - 1)])))[0]

    return unpack_outputs(overwrite_where(at, chunk, mask, rows, old))


def _pack(tree: Any) -> tuple[Array, Any]:
    """Packs arrays with L lanes into float32[L, R], to gather lanes at once; returns the inverse."""
    leaves, structure = jax.tree.flatten(tree)
    lanes = leaves[0].shape[-1]
    rows = [leaf.reshape(-1, lanes).astype(jnp.float32) for leaf in leaves]
    sizes = np.cumsum([len(row) for row in rows])

    def unpack(packed: Array) -> Any:
        parts = jnp.split(packed.T, sizes[:-1])
        return structure.unflatten(
            [
                part.reshape(*leaf.shape[:-1], -1).astype(leaf.dtype)
                for part, leaf in zip(parts, leaves, strict=True)
            ]
        )

    return jnp.concatenate(rows).T, unpack


def assign(world, boxes, x, contacts, impulses, heights):
    """Arrays [N, B, ...]."""
    slots = world.slots
    base = jnp.floor(x / world.width - (slots / 2 - 0.5)).astype(jnp.int32)[..., None]
    k = np.arange(slots, dtype=np.int32)[None, None]
    edge = base + (k - base) % slots
    inside = (edge >= 0) & (edge < world.edges)
    start = jnp.clip(edge, 0, world.edges - 1)
    lanes = jnp.arange(edge.shape[0], dtype=jnp.int32)[:, None, None]
    left, right = heights[lanes, start], heights[lanes, start + 1]
    reach = FAT + SKIN / 2
    low_x, low_y, high_x, high_y = (boxes[..., i, None] for i in range(4))
    edge_x = start.astype(jnp.float32) * world.width
    meets = (
        inside
        & (low_x <= edge_x + world.width + reach)
        & (high_x >= edge_x - reach)
        & (low_y <= jnp.maximum(left, right) + reach)
        & (high_y >= jnp.minimum(left, right) - reach)
    )
    kept = meets & (contacts[..., EDGE] == edge) & (contacts[..., RANK] >= 0)
    key = jnp.where(kept, contacts[..., RANK], slots + edge)
    older = meets[..., None, :] & (key[..., None, :] < key[..., :, None])
    born = older.sum(axis=-1, dtype=jnp.int32)
    contacts = jnp.concatenate(
        [
            edge[..., None],
            jnp.where(meets, born, NOT_TOUCHING)[..., None],
            jnp.where(kept, contacts[..., COUNT], 0)[..., None],
            contacts[..., ID:],
        ],
        axis=-1,
    )
    return contacts, jnp.where(kept[..., None], impulses, 0)


def _warm_start(rows, body_of, slots, impulses, velocity):
    """Applies the contacts' impulses of the step before."""
    order, number = slots
    bodies = jnp.asarray(body_of, jnp.int32)

    def push(i, velocity):
        slot = order[i]
        body = bodies[slot]
        row = _slice(rows, slot)
        normal1, normal2, tangent1, tangent2 = impulses[slot]
        normal = row.normal_x, row.normal_y
        tangent = row.normal_y, -row.normal_x
        mass = Mass(row.linear, row.angular)
        new = list(lax.dynamic_index_in_dim(velocity, body, 0, False))
        for arm, along, across, share in (
            ((row.arm1_x, row.arm1_y), normal1, tangent1, 1),
            ((row.arm2_x, row.arm2_y), normal2, tangent2, row.is_two),
        ):
            impulse = scale(along, normal)
            other = scale(across, tangent)
            total = share * (impulse[0] + other[0]), share * (impulse[1] + other[1])
            new = _push(new, mass, arm, total, jnp.zeros_like(along))
        return lax.dynamic_update_index_in_dim(velocity, jnp.stack(list(new)), body, 0)

    return lax.fori_loop(0, number, push, velocity)


def _update(slots: _Slots, manifold: Manifold, mask: Array) -> tuple[_Slots, Array, Array]:
    """Gives the contacts in `mask` new manifolds; points with old ids keep their impulses.

    Returns the contacts, which began, and which ended.
    """
    count = jnp.where(slots.rank >= 0, manifold.count, 0)
    rows = []
    for column in (0, 2):
        one, two = slots.impulses[:, column], slots.impulses[:, column + 1]
        for i, id in enumerate(manifold.ids):
            known = jnp.where(
                (slots.count > 0) & (id == slots.ids[0]),
                one,
                jnp.where((slots.count > 1) & (id == slots.ids[1]), two, 0),
            )
            rows.append(jnp.where(count > i, known, 0))
    begins = mask & (slots.count == 0) & (count > 0)
    ends = mask & (slots.count > 0) & (count == 0)
    new = slots._replace(count=count, ids=manifold.ids, impulses=jnp.stack(rows, axis=1))
    new = jax.tree.map(
        lambda a, b: jnp.where(mask if a.ndim == 2 else mask[:, None], a, b), new, slots
    )
    return new, begins, ends


def _integrate(position: Array, velocity: Array, time: Any) -> tuple[Array, Array]:
    """Moves bodies [B, 3, L], which are slowed down if they are too fast."""
    linear, spin = velocity[:, :2], velocity[:, 2:]
    distance = jnp.sqrt(jnp.sum((time * linear) ** 2, axis=1, keepdims=True))
    linear = jnp.where(distance > MAX_TRANSLATION, linear * (MAX_TRANSLATION / distance), linear)
    angle = jnp.abs(time * spin)
    spin = jnp.where(angle > MAX_ROTATION, spin * (MAX_ROTATION / angle), spin)
    velocity = jnp.concatenate([linear, spin], axis=1)
    return position + time * velocity, velocity


def _box(shape: Shape, at: Any) -> Array:
    """Returns [B, 4, L], the boxes of polygons."""
    corners = [at(vertex) for vertex in shape.vertices]
    low = [functools.reduce(jnp.minimum, [c[i] for c in corners]) - SKIN / 2 for i in range(2)]
    high = [functools.reduce(jnp.maximum, [c[i] for c in corners]) + SKIN / 2 for i in range(2)]
    return jnp.stack([*low, *high], axis=1)


def _sync(shape: Shape, boxes: Array, start: Array, end: Array) -> Array:
    transforms = [
        transform_at((place[:, 0], place[:, 1]), place[:, 2], shape.center)
        for place in (start, end)
    ]
    first, second = (_box(shape, at) for at in transforms)
    low = jnp.minimum(first[:, :2], second[:, :2])
    high = jnp.maximum(first[:, 2:], second[:, 2:])
    leaves = jnp.any((low < boxes[:, :2]) | (high > boxes[:, 2:]), axis=1, keepdims=True)
    shift = jnp.stack(
        [2 * (b - a) for a, b in zip(transforms[0].origin, transforms[1].origin, strict=True)],
        axis=1,
    )
    moved = jnp.concatenate(
        [low - FAT + jnp.minimum(shift, 0), high + FAT + jnp.maximum(shift, 0)], axis=1
    )
    return jnp.where(leaves, moved, boxes)
