"""The part of Box2D's rigid-body engine that Gymnasium's tasks use.

A world is a few polygons, connected by revolute joints with motors and limits, above a ground of
edges and boxes. Contacts are warm-started with the impulses of the last step. Collision detection
is continuous, so nothing falls through the ground. A world at rest for half a second falls asleep.

Restitution, contacts between moving bodies, and other shapes and joints are left out because no
task needs them. There are no islands because all bodies of a world are connected.

Worlds are solved in batches. First, all move as if they were in the air. Then worlds near the
ground, worlds that touch it, and bodies that hit it are gathered, and their motion is corrected. A
world's motion does not depend on the batch. It equals Box2D's up to rounding: operations have
Box2D's order, and iterations stop early only when the remaining ones would change nothing.

Source: E. Catto, Box2D 2.3, as pybox2d 2.3.10: b2World.cpp, b2Island.cpp, b2DynamicTree.cpp.
"""

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import loops
from jaxenvs._cpu.chunks import overwrite_where
from jaxenvs.physics.box2d.contacts import Contacts, prepare_contacts
from jaxenvs.physics.box2d.geometry import (
    LINEAR_SLOP,
    SKIN,
    Array,
    Polygon,
    Shape,
    Transform,
    Vector,
    place_body,
    sub,
    transform_at,
)
from jaxenvs.physics.box2d.ground import MARGIN, NO_CONTACT, Ground, Terrain
from jaxenvs.physics.box2d.impact import Sweep
from jaxenvs.physics.box2d.impulses import Mass
from jaxenvs.physics.box2d.joints import INACTIVE, Joint, gather, limit_states, prepare_joints
from jaxenvs.physics.box2d.lanes import (
    chunk_of,
    in_batches,
    join_bodies,
    on_lanes,
    pack,
    rows_at,
    split_bodies,
)
from jaxenvs.physics.box2d.manifolds import Manifold
from jaxenvs.physics.box2d.slots import COUNT, RANK, in_order, last_event, read, update, write
from jaxenvs.physics.box2d.solver import solve_positions, solve_velocities, warm_start

TIME_STEP = 1 / 50  # s
VELOCITY_ITERATIONS, POSITION_ITERATIONS = 180, 60
WIDE_CHUNK = 256  # worlds; a smaller chunk takes the same time
FIRST_ITERATIONS = 12  # before the worlds that still change are gathered
BAUMGARTE, BAUMGARTE_OF_IMPACT = 0.2, 0.75  # shares of an overlap that an iteration corrects
MAX_IMPACTS = 8  # of a contact in one step
MAX_TRANSLATION, MAX_ROTATION = 2.0, 0.5 * np.pi  # m and rad in one step
TIME_TO_SLEEP = 0.5  # s
SLEEP_LINEAR, SLEEP_ANGULAR = 0.01, 2 / 180 * np.pi  # m/s and rad/s
_SURFACE = 10  # numbers that describe a manifold to the solver


class Body(NamedTuple):
    """A moving polygon."""

    polygon: Polygon
    density: float  # kg/m^2
    friction: float  # of the body and the ground, mixed as in Box2D

    @property
    def mass(self) -> Mass:
        """The inverse mass and inertia."""
        polygon, density = self.polygon, self.density
        return Mass(1 / (density * polygon.area), 1 / (density * polygon.inertia))

    def origin(self, row: Array) -> Vector:
        """Returns the position of the body's origin, given its row of `WorldState.bodies`."""
        return place_body((row[0], row[1]), row[2], tuple(self.polygon.center)).origin

    def corners(self, row: Array, scale: float) -> list[Vector]:
        """Returns the polygon's corners in pixels, with `scale` pixels per meter."""
        x, y, angle = row[:3]
        sin, cos = jnp.sin(angle), jnp.cos(angle)
        corners = self.polygon.vertices[: self.polygon.number] - self.polygon.center
        return [
            ((x + cos * a - sin * b) * scale, (y + sin * a + cos * b) * scale)
            for a, b in corners.tolist()
        ]


@chex.dataclass(frozen=True)
class WorldState:
    """The state of a world with B bodies, J joints, and K contacts per body."""

    bodies: jax.Array  # float32[B, 6]: x and y of the center of mass, angle, and their velocities
    boxes: jax.Array  # float32[B, 4]: low x, low y, high x, high y of a box around each body
    joints: jax.Array  # float32[J, 4]: impulses along x and y, of the limit, and of the motor
    limits: jax.Array  # int32[J]: 0, 1 at the lower limit, 2 at the upper one
    # int32[B, K, 5]: the part of the ground; the number of older contacts, or -1 without a contact;
    # the number of touching points; the ids of both points.
    contacts: jax.Array
    impulses: jax.Array  # float32[B, K, 4]: two normal and two tangential ones
    touches: jax.Array  # bool[B]: whether the body's last contact event was a beginning
    began: jax.Array  # bool[B]: whether a contact began in the last step
    idle: jax.Array  # float32[B]: s at rest
    is_awake: jax.Array  # bool[]


class World:
    """Bodies, joints, and a kind of ground."""

    def __init__(
        self,
        bodies: Sequence[Body],
        joints: Sequence[Joint],
        ground: Ground,
        stands: bool = False,
    ) -> None:
        """Makes a world.

        Args:
            bodies: the bodies.
            joints: the joints, in the order in which they are solved.
            ground: the kind of ground.
            stands: whether most worlds touch the ground most of the time. If so, all are solved
                with contacts; otherwise, only those near the ground are.
        """
        self.bodies, self.joints, self.ground = tuple(bodies), tuple(joints), ground
        self.stands = stands
        self.masses = [body.mass for body in self.bodies]
        self._joint_table = gather(self.joints, self.masses)
        self._step, self._fly = in_batches(self._step_all), in_batches(self._fly_all)
        self._drop = in_batches(self._drop_all)

    def start(self, places: Array) -> WorldState:
        """Returns bodies at rest at places float32[B, 3]: x and y of their origins, and angles."""
        number = len(self.bodies)
        x, y, angle = places.T
        center = self._shape().center
        turn = Transform(jnp.sin(angle), jnp.cos(angle), (x, y))
        x, y = turn((center[0][:, 0], center[1][:, 0]))
        places = jnp.stack([x, y, angle], axis=1)
        boxes = _box(self._shape(), self._transform(places[:, :, None]))[:, :, 0]
        contacts = np.broadcast_to(NO_CONTACT, (number, self.ground.slots, 5))
        return WorldState(
            bodies=jnp.concatenate([places, jnp.zeros_like(places)], axis=1),
            boxes=boxes + np.asarray([[-MARGIN, -MARGIN, MARGIN, MARGIN]], np.float32),
            joints=jnp.zeros((len(self.joints), 4), jnp.float32),
            limits=jnp.zeros(len(self.joints), jnp.int32),
            contacts=jnp.asarray(contacts),
            impulses=jnp.zeros((number, self.ground.slots, 4), jnp.float32),
            touches=jnp.zeros(number, bool),
            began=jnp.zeros(number, bool),
            idle=jnp.zeros(number, jnp.float32),
            is_awake=jnp.bool_(True),
        )

    def step(
        self,
        state: WorldState,
        terrain: Terrain,
        acceleration: Array,
        speeds: Array,
        torques: Array,
    ) -> WorldState:
        """Advances the world by a time step.

        Args:
            state: the state.
            terrain: the ground.
            acceleration: float32[B, 3], m/s^2 and rad/s^2, due to gravity and other forces.
            speeds: float32[J], rad/s, target speeds of the motors.
            torques: float32[J], N m, maximum torques of the motors.
        """
        return self._step(state, terrain, acceleration, speeds, torques)

    def fly(
        self, state: WorldState, acceleration: Array, speeds: Array, torques: Array
    ) -> WorldState:
        """Advances a world that is far from the ground. Faster than `step`."""
        return self._fly(state, acceleration, speeds, torques)

    def drop(
        self,
        state: WorldState,
        terrain: Terrain,
        acceleration: Array,
        speeds: Array,
        torques: Array,
    ) -> WorldState:
        """Advances a world without contacts that may hit the ground.

        Compiles faster than `step`.
        """
        return self._drop(state, terrain, acceleration, speeds, torques)

    def _step_all(self, state: WorldState, terrain: Terrain, *forces: Array) -> WorldState:
        """Advances worlds [N, ...]."""
        number, bodies = state.touches.shape
        chunk = self._chunk_of(number)
        if self.stands:
            moved, is_near = state, jnp.ones(number, bool)
        else:
            moved = self._fly_all(state, *forces, gathers=True)
            is_near = self._may_meet(state, moved, terrain)
        changed = state.contacts, state.impulses, state.touches, jnp.zeros_like(state.began)
        surfaces = jnp.zeros((number, _SURFACE * self.ground.slots * bodies), jnp.float32)
        (contacts, impulses, touches, began), surfaces, is_touching = overwrite_where(
            lambda params, indices: self._meet(*rows_at(params, indices)),
            chunk,
            is_near,
            (state, terrain),
            (changed, surfaces, jnp.zeros(number, bool)),
        )
        moving, part, order = (state, forces, impulses, surfaces), chunk, None
        if self.stands and chunk is not None:  # put worlds with similar contacts side by side
            part, order = chunk // 2, jnp.argsort(self._pattern(contacts))
            moving = rows_at(moving, order)
        moved, impulses = overwrite_where(
            lambda params, indices: self._press(*rows_at(params, indices)),
            part,
            is_touching | self.stands,
            moving,
            (moved, impulses),
        )
        if order is not None:
            moved, impulses = rows_at((moved, impulses), jnp.argsort(order))
        moved = replace(moved, contacts=contacts, impulses=impulses, touches=touches, began=began)
        return self._land(state, moved, is_near, terrain)

    def _drop_all(self, state: WorldState, terrain: Terrain, *forces: Array) -> WorldState:
        """Advances worlds [N, ...] without contacts that may hit the ground."""
        moved = self._fly_all(state, *forces)
        return self._land(state, moved, jnp.ones(len(moved.is_awake), bool), terrain)

    def _land(
        self, state: WorldState, moved: WorldState, is_near: Array, terrain: Terrain
    ) -> WorldState:
        """Finds contacts after a motion, and moves bodies back that went through the ground."""
        contacts, impulses, may_hit = overwrite_where(
            lambda params, indices: self._settle(*rows_at(params, indices)),
            self._chunk_of(len(is_near)),
            is_near,
            (state, moved, terrain),
            (moved.contacts, moved.impulses, jnp.zeros_like(moved.began)),
        )
        moved = replace(moved, contacts=contacts, impulses=impulses)
        return self._hit(state, moved, may_hit, terrain)

    def _chunk_of(self, number: int) -> int | None:
        chunk = chunk_of(number, 8)
        return max(chunk, WIDE_CHUNK) if self.stands and chunk is not None else chunk

    def _fly_all(self, state: WorldState, *forces: Array, gathers: bool = False) -> WorldState:
        """Advances worlds [N, ...] without contacts. See `_move` for `gathers`."""
        number, bodies = state.touches.shape
        none = jnp.zeros((0, bodies, 4, number), jnp.float32)
        state = replace(state, began=jnp.zeros_like(state.began))
        return self._move(state, forces, None, none, gathers)[0]

    # Below, arrays of bodies are [B, ..., L] and arrays of contacts [K, B, L]. Lanes are last, so
    # that operations fill the processor's vector registers.

    def _shape(self) -> Shape:
        """Returns the polygons, [B, 1]."""
        polygons = [body.polygon for body in self.bodies]

        def split(arrays: Sequence[np.ndarray]) -> tuple[Vector, ...]:
            stacked = jnp.asarray(np.stack(arrays))  # [B, V, 2]
            return tuple((each[:, :1], each[:, 1:]) for each in jnp.unstack(stacked, axis=1))

        return Shape(
            split([each.vertices for each in polygons]),
            split([each.following for each in polygons]),
            split([each.normals for each in polygons]),
            split([each.center[None] for each in polygons])[0],
            jnp.asarray([[each.number] for each in polygons], jnp.int32),
        )

    def _surface_of_bodies(self) -> tuple[Mass, Array]:
        """Returns the bodies' masses and frictions, [B, 1]."""
        rows = [(*body.mass, body.friction) for body in self.bodies]
        linear, angular, friction = jnp.asarray(np.asarray(rows, np.float32).T[:, :, None])
        return Mass(linear, angular), friction

    def _transform(self, position: Array) -> Transform:
        """Returns the transforms of bodies at positions [B, 3, L]."""
        x, y, angle = position[:, 0], position[:, 1], position[:, 2]
        return transform_at((x, y), angle, self._shape().center)

    def _move(
        self,
        state: WorldState,
        forces: Any,
        contacts: Contacts | None,
        impulses: Array,
        gathers: bool = False,
    ) -> tuple[WorldState, Array]:
        """Advances worlds [N, ...] with contacts. Returns them and the contacts' impulses.

        `gathers` moves worlds that need many iterations together, which is faster if most need few,
        and takes twice as long to compile.
        """
        acceleration, speeds, torques = forces
        position, velocity = split_bodies(state.bodies)
        velocity = velocity + TIME_STEP * jnp.moveaxis(acceleration, 0, -1)
        table, angles = self._joint_table, position[:, 2]
        limits = limit_states(table, angles)
        joints = jnp.moveaxis(state.joints, 0, -1)
        keeps = (limits == state.limits.T) & (limits != INACTIVE)
        joints = joints.at[:, 2].set(jnp.where(keeps, joints[:, 2], 0))
        rows = prepare_joints(table, angles, limits, speeds.T, torques.T * TIME_STEP)
        pressing = None if contacts is None else (contacts, prepare_contacts(contacts, position))
        velocity = warm_start((table, rows), pressing, (velocity, joints, impulses))

        def solve(inputs: Any, iterations: int) -> Any:
            rows, moving = inputs
            return solve_velocities((table, rows), pressing, moving, iterations)

        def place(inputs: Any, iterations: int) -> Any:
            limits, position = inputs
            return solve_positions(
                (table, limits), contacts, position, BAUMGARTE, 3 * LINEAR_SLOP, iterations
            )

        moving = velocity, joints, impulses
        if gathers:
            moving, is_changing = solve((rows, moving), FIRST_ITERATIONS)
            moving = on_lanes(
                lambda inputs: solve(inputs, VELOCITY_ITERATIONS - FIRST_ITERATIONS)[0],
                is_changing,
                (rows, moving),
                moving,
            )
            end, velocity = _integrate(position, moving[0], TIME_STEP)
            placed = place((limits, end), 1)
            end, is_right = on_lanes(
                lambda inputs: place(inputs, POSITION_ITERATIONS),
                ~placed[1],
                (limits, end),
                placed,
            )
        else:
            moving, _ = solve((rows, moving), VELOCITY_ITERATIONS)
            end, velocity = _integrate(position, moving[0], TIME_STEP)
            end, is_right = place((limits, end), POSITION_ITERATIONS)
        _, joints, impulses = moving

        moves = velocity[:, 2] ** 2 > SLEEP_ANGULAR**2
        moves |= velocity[:, 0] ** 2 + velocity[:, 1] ** 2 > SLEEP_LINEAR**2
        idle = jnp.where(moves, 0, state.idle.T + TIME_STEP)
        sleeps = (idle.min(axis=0) >= TIME_TO_SLEEP) & is_right
        velocity = jnp.where(sleeps[None, None], 0, velocity)
        boxes = jnp.moveaxis(state.boxes, 0, -1)
        boxes = _sync(self._shape(), boxes, self._transform(position), self._transform(end))
        new = replace(
            state,
            bodies=join_bodies(end, velocity),
            boxes=jnp.moveaxis(boxes, -1, 0),
            joints=jnp.moveaxis(joints, -1, 0),
            limits=limits.T,
            idle=jnp.where(sleeps[None], 0, idle).T,
            is_awake=~sleeps,
        )
        return new, impulses

    def _may_meet(self, old: WorldState, new: WorldState, terrain: Terrain) -> Array:
        """Returns bool[N], whether worlds have contacts or may have some after a motion."""
        has_contact = (old.contacts[..., RANK] >= 0) | (old.contacts[..., COUNT] > 0)
        return jnp.any(has_contact, axis=(1, 2)) | self.ground.is_near(new.boxes, terrain)

    def _meet(self, state: WorldState, terrain: Terrain) -> Any:
        """Finds where bodies touch the ground.

        Returns the changed fields of the state, the manifolds as float32[N, R], and bool[N],
        whether any body touches the ground. Contacts are in the order in which they are solved.
        """
        slots = read(state.contacts, state.impulses)
        position, _ = split_bodies(state.bodies)
        places = self._transform(position)
        shape = jax.tree.map(lambda x: jnp.broadcast_to(x, places.sin.shape), self._shape())
        manifold = self.ground.collide(slots, terrain, shape, places)
        slots, begins, ends = update(slots, manifold, (slots.rank >= 0) | (slots.number > 0))
        touches = last_event(state.touches.T, slots.rank, begins, ends)
        manifold = manifold._replace(number=slots.number, ids=())
        slots, manifold = in_order(slots.number, slots.rank, (slots, manifold))
        rows, _ = pack(manifold)
        changed = *write(slots), touches.T, begins.any(axis=0).T
        return changed, rows, jnp.any(slots.number > 0, axis=(0, 1))

    def _pattern(self, contacts: Array) -> Array:
        """Returns int32[N], numbers that are close for worlds with similar contacts."""
        counts = jnp.sum(contacts[..., COUNT] > 0, axis=2, dtype=jnp.int32)
        digits = (self.ground.slots + 1) ** np.arange(len(self.bodies), dtype=np.int32)[::-1]
        return jnp.sum(counts * digits[None], axis=1, dtype=jnp.int32)

    def _press(self, state: WorldState, forces: Any, impulses: Array, rows: Array) -> Any:
        """Advances worlds that touch the ground. Returns them and the contacts' impulses."""
        shape = _SURFACE, self.ground.slots, len(self.bodies), len(rows)
        on_ground, *vectors, count = jnp.unstack(rows.T.reshape(shape))
        normal, plane, one, two = zip(vectors[::2], vectors[1::2], strict=True)
        manifold = Manifold(on_ground > 0, normal, plane, (one, two), (), count.astype(jnp.int32))
        contacts = Contacts(*self._surface_of_bodies(), self._shape().center, manifold)
        new, impulses = self._move(state, forces, contacts, jnp.transpose(impulses, (2, 1, 3, 0)))
        return new, jnp.transpose(impulses, (3, 1, 0, 2))

    def _settle(self, old: WorldState, new: WorldState, terrain: Terrain) -> Any:
        """Returns contacts and impulses after a motion, and which bodies may hit the ground."""
        contacts, impulses = self.ground.assign(
            new.boxes, new.bodies[..., 0], new.contacts, new.impulses, terrain
        )
        start, end = (split_bodies(state.bodies)[0] for state in (old, new))
        may_hit = self.ground.may_hit(
            read(contacts, impulses),
            terrain,
            self._shape(),
            (self._transform(start), self._transform(end)),
            (end - start)[:, 2],
        )
        return contacts, impulses, (may_hit & new.is_awake[None]).T

    def _hit(
        self, old: WorldState, state: WorldState, may_hit: Array, terrain: Terrain
    ) -> WorldState:
        """Moves bodies [N, B] back to where they hit the ground, and onward from there."""
        number, bodies = may_hit.shape
        names = "bodies", "boxes", "contacts", "impulses", "touches", "began"

        def flat(x: Array) -> Array:
            return x.reshape(-1, *x.shape[2:])

        def bounce(params: Any, indices: Array) -> Any:
            rows, places, terrain = params
            rows, places = rows_at((rows, places), indices)
            ground = rows_at(terrain, indices // bodies)
            return self._bounce(rows, places, ground, indices % bodies)

        rows = {name: flat(getattr(state, name)) for name in names}
        params = rows, flat(old.bodies), terrain
        rows = overwrite_where(bounce, chunk_of(number, 16), flat(may_hit), params, rows)
        return replace(
            state,
            **{name: row.reshape(number, bodies, *row.shape[1:]) for name, row in rows.items()},
        )

    def _bounce(
        self, rows: dict[str, Array], old: Array, terrain: Terrain, bodies: Array
    ) -> dict[str, Array]:
        """Lets bodies [P, ...] hit the ground, until they no longer do. Joints are ignored.

        Args:
            rows: the bodies' part of the state.
            old: float32[P, 6], the bodies before the step.
            terrain: the terrain of P worlds.
            bodies: int32[P], the indices of the bodies.
        """
        shape, mass, friction = jax.tree.map(
            lambda x: x[:, 0][bodies][None], (self._shape(), *self._surface_of_bodies())
        )

        def split(place: Array) -> tuple[Vector, Array]:
            x, y, angle = place[:, None]
            return (x, y), angle

        def advance(carry: Any) -> Any:
            _, start, end, velocity, time, slots, tries, is_enabled, touches, began = carry
            sweep = Sweep(*split(start), *split(end), shape.center)
            since = time[None, None]
            hit_after = self.ground.times_of_impact(slots, terrain, shape, sweep)
            times = since + (1 - since) * hit_after
            counts = is_enabled & (slots.rank >= 0) & (tries <= MAX_IMPACTS)
            times = jnp.where(counts, jnp.minimum(times, 1), 1)
            impact = times.min(axis=(0, 1))
            hits = impact <= 1 - 10 * np.finfo(np.float32).eps
            # The earliest contact is solved first; of several, the newest.
            is_earliest = (times == impact[None, None]) & hits[None, None]
            rank = jnp.where(is_earliest, slots.rank, -1).max(axis=0, keepdims=True)
            is_first = is_earliest & (slots.rank == rank)
            rank = jnp.where(is_first, len(slots.rank), slots.rank)
            share = jnp.where(hits, (impact - time) / (1 - time), 0)[None]
            place = (1 - share) * start + share * end
            at = transform_at(*split(place), shape.center)
            manifold = self.ground.collide(slots, terrain, shape, at)
            count = jnp.where(slots.rank >= 0, manifold.number, 0)
            solid = jnp.any(is_first & (count > 0), axis=(0, 1))
            is_solid = solid[None, None]
            is_new = is_first | is_solid
            slots, begins, ends = update(slots, manifold, is_new & (slots.rank >= 0))
            is_enabled = jnp.where(is_first, is_solid, is_enabled | is_new)
            count = jnp.where(is_solid, count, 0)
            manifold = in_order(count, rank, manifold._replace(number=count))
            placed, pushed = self._solve_impact(
                Contacts(mass, friction, shape.center, manifold), place, velocity
            )
            moved, pushed = _integrate(placed, pushed, ((1 - impact) * TIME_STEP)[None, None])
            return (
                hits,
                jnp.where(solid[None], placed[0], start),
                jnp.where(solid[None], moved[0], end),
                jnp.where(solid[None], pushed[0], velocity),
                jnp.where(solid, impact, time),
                slots,
                tries + is_first.astype(jnp.int32),
                is_enabled,
                last_event(touches[None], rank, begins, ends)[0],
                began | begins.any(axis=(0, 1)),
            )

        place, velocity = split_bodies(rows["bodies"][:, None])
        slots = read(rows["contacts"][:, None], rows["impulses"][:, None])
        carry = (
            jnp.ones_like(rows["began"]),
            old.T[:3],
            place[0],
            velocity[0],
            jnp.zeros_like(old[:, 0]),
            slots,
            jnp.zeros_like(slots.part),
            jnp.ones_like(slots.part, bool),
            rows["touches"],
            rows["began"],
        )
        _, start, end, velocity, time, slots, _, _, touches, began = loops.while_loop(
            lambda carry: jnp.any(carry[0]), advance, carry
        )
        boxes = rows["boxes"].T[None]
        transforms = (
            transform_at((x[None], y[None]), angle[None], shape.center)
            for x, y, angle in (start, end)
        )
        boxes = jnp.where(time[None, None] > 0, _sync(shape, boxes, *transforms), boxes)
        boxes = jnp.moveaxis(boxes, -1, 0)
        contacts, impulses = self.ground.assign(boxes, end[:1].T, *write(slots), terrain)
        return {
            "bodies": join_bodies(end[None], velocity[None])[:, 0],
            "boxes": boxes[:, 0],
            "contacts": contacts[:, 0],
            "impulses": impulses[:, 0],
            "touches": touches,
            "began": began,
        }

    def _solve_impact(
        self, contacts: Contacts, place: Array, velocity: Array
    ) -> tuple[Array, Array]:
        """Returns positions and velocities [1, 3, P] after impacts at `place`, float32[3, P]."""
        lanes = place.shape[-1]
        placed, _ = solve_positions(
            None, contacts, place[None], BAUMGARTE_OF_IMPACT, 1.5 * LINEAR_SLOP, 20
        )
        moving = (
            velocity[None],
            jnp.zeros((0, 4, lanes), jnp.float32),
            jnp.zeros((self.ground.slots, 1, 4, lanes), jnp.float32),
        )
        pressing = contacts, prepare_contacts(contacts, placed)
        (velocity, _, _), _ = solve_velocities(None, pressing, moving, VELOCITY_ITERATIONS)
        return placed, velocity


def _integrate(position: Array, velocity: Array, time: Any) -> tuple[Array, Array]:
    """Moves bodies [B, 3, L], whose velocities are limited."""
    linear, spin = velocity[:, :2], velocity[:, 2:]
    distance = jnp.sqrt(jnp.sum((time * linear) ** 2, axis=1, keepdims=True))
    linear = jnp.where(distance > MAX_TRANSLATION, linear * (MAX_TRANSLATION / distance), linear)
    angle = jnp.abs(time * spin)
    spin = jnp.where(angle > MAX_ROTATION, spin * (MAX_ROTATION / angle), spin)
    velocity = jnp.concatenate([linear, spin], axis=1)
    return position + time * velocity, velocity


def _box(shape: Shape, at: Transform) -> Array:
    """Returns the bounding boxes of polygons, [B, 4, L]."""
    corners = [at(vertex) for vertex in shape.vertices]
    low = [functools.reduce(jnp.minimum, [c[i] for c in corners]) - SKIN / 2 for i in range(2)]
    high = [functools.reduce(jnp.maximum, [c[i] for c in corners]) + SKIN / 2 for i in range(2)]
    return jnp.stack([*low, *high], axis=1)


def _sync(shape: Shape, boxes: Array, start: Transform, end: Transform) -> Array:
    """Returns boxes [B, 4, L] after a motion. Those that bodies left are extended ahead."""
    first, second = _box(shape, start), _box(shape, end)
    low = jnp.minimum(first[:, :2], second[:, :2])
    high = jnp.maximum(first[:, 2:], second[:, 2:])
    leaves = jnp.any((low < boxes[:, :2]) | (high > boxes[:, 2:]), axis=1, keepdims=True)
    ahead = 2 * jnp.stack(sub(end.origin, start.origin), axis=1)
    larger = jnp.concatenate(
        [low - MARGIN + jnp.minimum(ahead, 0), high + MARGIN + jnp.maximum(ahead, 0)], axis=1
    )
    return jnp.where(leaves, larger, boxes)
