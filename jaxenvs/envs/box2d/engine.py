"""Box2D's rigid bodies, as far as Gymnasium's tasks need them.

A world has a few polygons, joined by hinges with motors and limits, over a ground of edges that lie
side by side. Contacts keep their impulses from step to step. Motion is continuous, so nothing falls
through the ground. A world at rest for half a second falls asleep.

Left out, because no task needs it: restitution, contacts between moving bodies, other shapes and
joints, and islands, because the bodies of a world are connected.

Worlds are solved in batches. All move as if they were in the air; then those near the ground, those
that touch it, and bodies that hit it are gathered and moved as they should. A world's motion does
not depend on the batch. It is that of Box2D to rounding: operations have Box2D's order, and
iterations end early only where the remaining ones change nothing.

Source: E. Catto, Box2D 2.3, as pybox2d 2.3.10: b2World.cpp, b2Island.cpp, b2Contact.cpp,
b2ContactManager.cpp, b2DynamicTree.cpp.
"""

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap

from jaxenvs.chunks import overwrite_where
from jaxenvs.envs.box2d._contacts import Contacts, prepare_contacts, warm_start
from jaxenvs.envs.box2d._geometry import (
    LINEAR_SLOP,
    SKIN,
    Array,
    Manifold,
    Polygon,
    Shape,
    Transform,
    Vector,
    collide,
    dot,
    scale,
    sub,
    transform_at,
)
from jaxenvs.envs.box2d._impact import TARGET, TOLERANCE, Sweep, time_of_impact
from jaxenvs.envs.box2d._impulses import Mass
from jaxenvs.envs.box2d._joints import (
    INACTIVE,
    Joint,
    limit_state,
    prepare_joint,
    warm_start_joint,
)
from jaxenvs.envs.box2d._lanes import (
    chunk_of,
    join_bodies,
    on_lanes,
    pack,
    rows_at,
    split_bodies,
)
from jaxenvs.envs.box2d._slots import (
    COUNT,
    EDGE,
    RANK,
    last_event,
    read,
    take,
    touching_first,
    update,
    write,
)
from jaxenvs.envs.box2d._solver import solve_positions, solve_velocities, stack, unstack

TIME_STEP = 1 / 50  # s
VELOCITY_ITERATIONS, POSITION_ITERATIONS = 180, 60
FIRST_ITERATIONS = 12  # before worlds that still change are gathered
BAUMGARTE, BAUMGARTE_OF_IMPACT = 0.2, 0.75  # shares of an overlap that an iteration corrects
MAX_IMPACTS = 8  # of a contact in one step
MAX_TRANSLATION, MAX_ROTATION = 2.0, 0.5 * np.pi  # m and rad in one step
MARGIN = 0.1  # m, by which boxes are larger than what they contain
TIME_TO_SLEEP = 0.5  # s
SLEEP_LINEAR, SLEEP_ANGULAR = 0.01, 2 / 180 * np.pi  # m/s and rad/s
_NO_CONTACT = np.asarray([[[[-1, -1, 0, -1, -1]]]], np.int32)
_SURFACE = 10  # numbers that describe a manifold to the solver
_REACH = MARGIN + SKIN / 2  # m, from an edge to the side of its box


class Body(NamedTuple):
    """A polygon that moves."""

    polygon: Polygon
    density: float  # kg/m^2
    friction: float  # of it and the ground together

    @property
    def mass(self) -> Mass:
        """The inverse mass and inertia."""
        polygon, density = self.polygon, self.density
        return Mass(1 / (density * polygon.area), 1 / (density * polygon.inertia))


@chex.dataclass(frozen=True)
class WorldState:
    """The state of a world with B bodies, J joints, and K contacts per body."""

    bodies: jax.Array  # float32[B, 6]: x, y of the center of mass, angle, and their velocities
    boxes: jax.Array  # float32[B, 4]: low x, low y, high x, high y of a box around each body
    joints: jax.Array  # float32[J, 4]: impulses along x and y, of the limit, and of the motor
    limits: jax.Array  # int32[J]: 0, 1 at the lower limit, 2 at the upper one
    # int32[B, K, 5]: the edge; how many of the contacts are older, -1 without a contact; how many
    # points touch; what they are made of.
    contacts: jax.Array
    impulses: jax.Array  # float32[B, K, 4]: normal ones of two points, and tangential ones
    touches: jax.Array  # bool[B]: whether the last event of a body's contacts was a beginning
    began: jax.Array  # bool[B]: whether a contact began in the last step
    idle: jax.Array  # float32[B]: s at rest
    is_awake: jax.Array  # bool[]


class World:
    """Bodies, joints, and a kind of ground."""

    def __init__(
        self,
        bodies: Sequence[Body],
        joints: Sequence[Joint],
        edges: int,
        width: float,
        slots: int,
    ) -> None:
        """Makes a world.

        Args:
            bodies: the bodies.
            joints: in the order in which they are solved.
            edges: the number of edges of the ground.
            width: m, the width of each, from x = 0.
            slots: K, the number of neighboring edges that a body can touch.
        """
        self.bodies, self.joints = tuple(bodies), tuple(joints)
        self.edges, self.width, self.slots = edges, width, slots
        self.masses = [body.mass for body in self.bodies]
        self._step = custom_vmap(self._step_all)
        self._step.def_vmap(self._step_nested)

    def start(self, places: Array) -> WorldState:
        """Returns bodies at rest at float32[B, 3]: x and y of their origins, and angles."""
        number = len(self.bodies)
        x, y, angle = places.T
        center = self._shape().center
        turn = Transform(jnp.sin(angle), jnp.cos(angle), (x, y))
        x, y = turn((center[0][:, 0], center[1][:, 0]))
        places = jnp.stack([x, y, angle], axis=1)
        boxes = _box(self._shape(), self._transform(places[:, :, None]))[:, :, 0]
        contacts = np.broadcast_to(_NO_CONTACT[0], (number, self.slots, 5))
        return WorldState(
            bodies=jnp.concatenate([places, jnp.zeros_like(places)], axis=1),
            boxes=boxes + np.asarray([[-MARGIN, -MARGIN, MARGIN, MARGIN]], np.float32),
            joints=jnp.zeros((len(self.joints), 4), jnp.float32),
            limits=jnp.zeros(len(self.joints), jnp.int32),
            contacts=jnp.asarray(contacts),
            impulses=jnp.zeros((number, self.slots, 4), jnp.float32),
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
            heights: float32[edges + 1], m, of the ground at the ends of the edges.
            acceleration: float32[B, 3], by gravity and other forces.
            speeds: float32[J], rad/s, of the motors.
            torques: float32[J], N m, the most that the motors can do.
        """
        args = state, heights, acceleration, speeds, torques
        new = self._step(*jax.tree.map(lambda x: x[None], args))
        return jax.tree.map(lambda x: x[0], new)

    def _step_nested(self, size: int, in_batched: Any, *args: Any) -> tuple[Any, Any]:
        """Moves worlds [M, N] as [M N]."""
        args = jax.tree.map(
            lambda x, is_batched: x if is_batched else jnp.broadcast_to(x, (size, *x.shape)),
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
        """Moves worlds [N, ...]."""
        number, bodies = state.touches.shape
        forces = acceleration, speeds, torques
        none = jnp.zeros((0, 4, bodies, number), jnp.float32)
        moved, _ = self._move(state, forces, None, none)
        is_near = jnp.any(state.contacts[..., RANK] >= 0, axis=(1, 2))
        is_near |= self._is_near(moved, heights)
        chunk = chunk_of(number, 8)

        changed = state.contacts, state.impulses, state.touches, jnp.zeros_like(state.began)
        surfaces = jnp.zeros((number, _SURFACE * self.slots * bodies), jnp.float32)
        (contacts, impulses, touches, began), surfaces, is_touching = overwrite_where(
            lambda params, indices: self._meet(*rows_at(params, indices)),
            chunk,
            is_near,
            (state, heights),
            (changed, surfaces, jnp.zeros(number, bool)),
        )
        moved, impulses = overwrite_where(
            lambda params, indices: self._press(*rows_at(params, indices)),
            chunk,
            is_touching,
            (state, forces, impulses, surfaces),
            (moved, impulses),
        )
        moved = replace(moved, contacts=contacts, impulses=impulses, touches=touches, began=began)
        contacts, impulses, may_hit = overwrite_where(
            lambda params, indices: self._settle(*rows_at(params, indices)),
            chunk,
            is_near,
            (state, moved, heights),
            (contacts, impulses, jnp.zeros_like(began)),
        )
        moved = replace(moved, contacts=contacts, impulses=impulses)
        return self._hit(state, moved, may_hit, heights)

    # In the following, arrays of bodies are [B, ..., L] and those of contacts [K, B, L], with lanes
    # last, so that operations use all of the processor's vectors.

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
        """Returns masses and frictions, [B, 1]."""
        rows = [(*body.mass, body.friction) for body in self.bodies]
        linear, angular, friction = jnp.asarray(np.asarray(rows, np.float32).T[:, :, None])
        return Mass(linear, angular), friction

    def _transform(self, position: Array) -> Transform:
        """Returns where bodies at [B, 3, L] are."""
        x, y, angle = position[:, 0], position[:, 1], position[:, 2]
        return transform_at((x, y), angle, self._shape().center)

    def _ends(self, heights: Array, edge: Array) -> tuple[Vector, Vector]:
        """Returns the ends of edges [..., L] of grounds [L, edges + 1]."""
        shape = (1,) * (edge.ndim - 1) + (-1,)
        lanes = jnp.arange(heights.shape[0], dtype=jnp.int32).reshape(shape)
        start = jnp.clip(edge, 0, self.edges - 1)
        one, two = (
            (i.astype(jnp.float32) * self.width, heights[lanes, i]) for i in (start, start + 1)
        )
        return one, two

    def _move(
        self, state: WorldState, forces: Any, contacts: Contacts | None, impulses: Array
    ) -> tuple[WorldState, Array]:
        """Moves worlds [N, ...] with contacts and their impulses, which it returns, too."""
        acceleration, speeds, torques = forces
        position, velocity = split_bodies(state.bodies)
        velocity = velocity + TIME_STEP * jnp.moveaxis(acceleration, 0, -1)
        prepared = None
        if contacts is not None:
            prepared = contacts, prepare_contacts(contacts, position)
            velocity = warm_start(*prepared, impulses, velocity)
        limits = jnp.stack(
            [limit_state(j, position[j.first, 2], position[j.second, 2]) for j in self.joints]
        )
        joints = jnp.moveaxis(state.joints, 0, -1)
        keeps = (limits == state.limits.T) & (limits != INACTIVE)
        joints = joints.at[:, 2].set(jnp.where(keeps, joints[:, 2], 0))
        lanes, joint_rows = unstack(velocity), []
        for j, joint in enumerate(self.joints):
            angles, most = position[:, 2], torques[:, j] * TIME_STEP
            rows = prepare_joint(joint, self.masses, angles, speeds[:, j], most)
            warm_start_joint(joint, rows, self.masses, list(joints[j]), lanes)
            joint_rows.append(rows)

        def solve(inputs: Any, iterations: int) -> Any:
            joint_rows, limits, moving = inputs
            return solve_velocities(
                self.joints, self.masses, joint_rows, limits, prepared, moving, iterations
            )

        def place(inputs: Any, iterations: int) -> Any:
            limits, position = inputs
            return solve_positions(
                self.joints,
                self.masses,
                limits,
                contacts,
                position,
                BAUMGARTE,
                3 * LINEAR_SLOP,
                iterations,
            )

        moving = stack(lanes), joints, impulses
        if contacts is None:  # most worlds need few iterations, some need all
            inputs = joint_rows, limits, moving
            moving, is_changing = solve(inputs, FIRST_ITERATIONS)
            moving = on_lanes(
                lambda inputs: solve(inputs, VELOCITY_ITERATIONS - FIRST_ITERATIONS)[0],
                is_changing,
                (joint_rows, limits, moving),
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
            moving, _ = solve((joint_rows, limits, moving), VELOCITY_ITERATIONS)
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

    def _is_near(self, state: WorldState, heights: Array) -> Array:
        """Returns bool[N], whether the box of a body could meet that of an edge."""
        low_x, low_y, high_x, _ = jnp.unstack(state.boxes, axis=-1)
        first = jnp.floor((low_x.min(axis=1) - _REACH) / self.width).astype(jnp.int32)
        last = jnp.floor((high_x.max(axis=1) + _REACH) / self.width).astype(jnp.int32) + 1
        columns = np.arange(self.edges + 1, dtype=np.int32)[None]
        is_below = (columns >= first[:, None]) & (columns <= last[:, None])
        return low_y.min(axis=1) <= jnp.where(is_below, heights, -jnp.inf).max(axis=1) + _REACH

    def _meet(self, state: WorldState, heights: Array) -> Any:
        """Finds where bodies touch the ground.

        Returns what changes in the state, the manifolds as float32[N, R], and bool[N], whether any
        body touches the ground. The contacts are in the order in which they are solved.
        """
        slots = read(state.contacts, state.impulses)
        position, _ = split_bodies(state.bodies)
        shape, at = jax.tree.map(
            lambda x: jnp.broadcast_to(x[None], slots.edge.shape),
            (self._shape(), self._transform(position)),
        )
        manifold = collide(*self._ends(heights, slots.edge), shape, at)
        slots, begins, ends = update(slots, manifold, slots.rank >= 0)
        touches = last_event(state.touches.T, begins, ends)
        slots, manifold = touching_first(slots.number, (slots, manifold))
        rows, _ = pack(manifold._replace(number=slots.number, ids=()))
        changed = *write(slots), touches.T, begins.any(axis=0).T
        return changed, rows, jnp.any(slots.number > 0, axis=(0, 1))

    def _press(self, state: WorldState, forces: Any, impulses: Array, rows: Array) -> Any:
        """Moves worlds that touch the ground. Returns them and the impulses of the contacts."""
        shape = _SURFACE, self.slots, len(self.bodies), len(rows)
        on_edge, *vectors, count = jnp.unstack(rows.T.reshape(shape))
        normal, plane, one, two = zip(vectors[::2], vectors[1::2], strict=True)
        manifold = Manifold(on_edge > 0, normal, plane, (one, two), (), count.astype(jnp.int32))
        contacts = Contacts(*self._surface_of_bodies(), self._shape().center, manifold)
        new, impulses = self._move(state, forces, contacts, jnp.transpose(impulses, (2, 3, 1, 0)))
        return new, jnp.transpose(impulses, (3, 2, 0, 1))

    def _settle(self, old: WorldState, new: WorldState, heights: Array) -> Any:
        """Returns contacts and impulses after a motion, and which bodies may hit the ground."""
        contacts, impulses = self._assign(
            new.boxes, new.bodies[..., 0], new.contacts, new.impulses, heights
        )
        new = replace(new, contacts=contacts)
        return contacts, impulses, self._may_hit(old, new, heights)

    def _assign(
        self, boxes: Array, x: Array, contacts: Array, impulses: Array, heights: Array
    ) -> tuple[Array, Array]:
        """Gives slots to the edges whose boxes meet those of bodies [N, B]; others lose theirs.

        An edge takes the slot of its number modulo K. Of edges that come together, the one further
        right is the newer one.
        """
        slots = self.slots
        base = jnp.floor(x / self.width - (slots / 2 - 0.5)).astype(jnp.int32)[..., None]
        edge = base + (np.arange(slots, dtype=np.int32)[None, None] - base) % slots
        start = jnp.clip(edge, 0, self.edges - 1)
        lanes = jnp.arange(edge.shape[0], dtype=jnp.int32)[:, None, None]
        left, right = heights[lanes, start], heights[lanes, start + 1]
        low_x, low_y, high_x, high_y = jnp.unstack(boxes[..., None, :], axis=-1)
        left_x = edge.astype(jnp.float32) * self.width
        meets = (
            (edge == start)
            & (low_x <= left_x + (self.width + _REACH))
            & (high_x >= left_x - _REACH)
            & (low_y <= jnp.maximum(left, right) + _REACH)
            & (high_y >= jnp.minimum(left, right) - _REACH)
        )
        is_same = (contacts[..., None, :, EDGE] == edge[..., None]) & meets[..., None]
        is_kept = jnp.any(is_same, axis=-1)
        source = jnp.argmax(is_same, axis=-1)[..., None]
        contacts, impulses = (jnp.take_along_axis(x, source, axis=2) for x in (contacts, impulses))
        key = jnp.where(is_kept, contacts[..., RANK], slots + edge)
        is_older = meets[..., None, :] & (key[..., None, :] < key[..., None])
        contacts = jnp.where(is_kept[..., None], contacts, _NO_CONTACT)
        columns = jnp.stack([edge, is_older.sum(axis=-1, dtype=jnp.int32)], axis=-1)
        columns = jnp.where(meets[..., None], columns, -1)
        contacts = jnp.concatenate([columns, contacts[..., COUNT:]], axis=-1)
        return contacts, jnp.where(is_kept[..., None], impulses, 0)

    def _may_hit(self, old: WorldState, new: WorldState, heights: Array) -> Array:
        """Returns bool[N, B], whether a body may have come too close to an edge during a motion.

        A corner is then below the edge's line before or after it, or an end of the edge in the
        polygon. Between, a corner may have been lower by the arc of the turn.
        """
        shape = self._shape()
        start, end = split_bodies(old.bodies)[0], split_bodies(new.bodies)[0]
        x, y, turn = jnp.unstack(jnp.abs(end - start), axis=1)
        margin = TARGET + TOLERANCE + turn * turn / 8
        reach = margin + jnp.hypot(x, y) + turn
        found = False
        for k in range(self.slots):
            one, two = self._ends(heights, new.contacts[:, :, k, EDGE].T)
            along = sub(two, one)
            normal = scale(1 / jnp.sqrt(dot(along, along)), (-along[1], along[0]))
            is_close = False
            for at in (self._transform(start), self._transform(end)):
                depths = -jnp.inf, -jnp.inf  # of both ends, outside of all faces if positive
                for vertex, outward in zip(shape.vertices, shape.normals, strict=True):
                    corner, outward = at(vertex), at.rotate(outward)
                    is_low = dot(sub(corner, one), normal) < margin
                    is_over = (corner[0] > one[0] - reach) & (corner[0] < two[0] + reach)
                    is_close |= is_low & is_over
                    depths = tuple(
                        jnp.maximum(depth, dot(sub(tip, corner), outward))
                        for depth, tip in zip(depths, (one, two), strict=True)
                    )
                is_close |= jnp.minimum(*depths) < reach
            found |= is_close & (new.contacts[:, :, k, RANK].T >= 0)
        return (found & new.is_awake[None]).T

    def _hit(
        self, old: WorldState, state: WorldState, may_hit: Array, heights: Array
    ) -> WorldState:
        """Moves bodies [N, B] back to where they hit the ground, and on from there."""
        number, bodies = may_hit.shape
        names = "bodies", "boxes", "contacts", "impulses", "touches", "began"

        def flat(x: Array) -> Array:
            return x.reshape(-1, *x.shape[2:])

        def bounce(params: Any, indices: Array) -> Any:
            rows, places, heights = params
            rows, places = rows_at((rows, places), indices)
            ground = rows_at(heights, indices // bodies)
            return self._bounce(rows, places, ground, indices % bodies)

        rows = {name: flat(getattr(state, name)) for name in names}
        params = rows, flat(old.bodies), heights
        rows = overwrite_where(bounce, chunk_of(number, 16), flat(may_hit), params, rows)
        return replace(
            state,
            **{name: row.reshape(number, bodies, *row.shape[1:]) for name, row in rows.items()},
        )

    def _bounce(
        self, rows: dict[str, Array], old: Array, heights: Array, bodies: Array
    ) -> dict[str, Array]:
        """Lets bodies [P, ...] hit the ground, as often as they do. Joints do not hold for this.

        Args:
            rows: their part of the state.
            old: float32[P, 6], their state before the step.
            heights: float32[P, edges + 1].
            bodies: int32[P], which bodies they are.
        """
        spread = self.slots, 1, len(bodies)
        one, mass, friction = jax.tree.map(
            lambda x: x[:, 0][bodies][None], (self._shape(), *self._surface_of_bodies())
        )
        shape = jax.tree.map(lambda x: jnp.broadcast_to(x, spread), one)
        k = np.arange(self.slots, dtype=np.int32)[:, None, None]

        def split(place: Array) -> tuple[Vector, Array]:
            x, y, angle = jnp.unstack(jnp.broadcast_to(place[:, None, None], (3, *spread)))
            return (x, y), angle

        def advance(carry: Any) -> Any:
            _, start, end, velocity, time, slots, tries, is_enabled, touches, began = carry
            edges = self._ends(heights, slots.edge)
            from_place, from_angle = split(start)
            to_place, to_angle = split(end)
            sweep = Sweep(from_place, from_angle, to_place, to_angle, shape.center)
            since = time[None, None]
            times = since + (1 - since) * time_of_impact(*edges, shape, sweep)
            counts = is_enabled & (slots.rank >= 0) & (tries <= MAX_IMPACTS)
            times = jnp.where(counts, jnp.minimum(times, 1), 1)
            impact = times.min(axis=(0, 1))
            hits = impact <= 1 - 10 * np.finfo(np.float32).eps
            # The contact that is first in time is solved first.
            order = jnp.argsort(jnp.where(k == jnp.argmin(times, axis=0)[None], -1, k), axis=0)
            slots, edges, tries, is_enabled = take((slots, edges, tries, is_enabled), order)
            share = jnp.where(hits, (impact - time) / (1 - time), 0)[None]
            place = (1 - share) * start + share * end
            center, angle = split(place)
            manifold = collide(edges[0], edges[1], shape, transform_at(center, angle, shape.center))
            count = jnp.where(slots.rank >= 0, manifold.number, 0)
            solid = hits & (count[0, 0] > 0)
            is_hit, is_solid = hits[None, None], solid[None, None]
            is_first = is_hit & (k == 0)
            is_new = is_first | is_solid
            slots, begins, ends = update(slots, manifold, is_new & (slots.rank >= 0))
            is_enabled = jnp.where(is_first, is_solid, is_enabled | is_new)
            count = jnp.where(is_solid, count, 0)
            _, manifold = touching_first(count, (count, manifold._replace(number=count)))
            placed, pushed = self._solve_impact(
                Contacts(mass, friction, one.center, manifold), place, velocity
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
                last_event(touches[None], begins, ends)[0],
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
            jnp.zeros_like(slots.edge),
            jnp.ones_like(slots.edge, bool),
            rows["touches"],
            rows["began"],
        )
        _, start, end, velocity, time, slots, _, _, touches, began = lax.while_loop(
            lambda carry: jnp.any(carry[0]), advance, carry
        )
        boxes = rows["boxes"].T[None]
        transforms = (
            transform_at((x[None], y[None]), angle[None], one.center)
            for x, y, angle in (start, end)
        )
        boxes = jnp.where(time[None, None] > 0, _sync(one, boxes, *transforms), boxes)
        boxes = jnp.moveaxis(boxes, -1, 0)
        contacts, impulses = self._assign(boxes, end[:1].T, *write(slots), heights)
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
        """Returns places and velocities [1, 3, P] after impacts at `place`, float32[3, P]."""
        lanes = place.shape[-1]
        nothing = jnp.zeros((0, lanes), jnp.int32)
        placed, _ = solve_positions(
            (), (), nothing, contacts, place[None], BAUMGARTE_OF_IMPACT, 1.5 * LINEAR_SLOP, 20
        )
        moving = (
            velocity[None],
            jnp.zeros((0, 4, lanes), jnp.float32),
            jnp.zeros((self.slots, 4, 1, lanes), jnp.float32),
        )
        prepared = contacts, prepare_contacts(contacts, placed)
        (velocity, _, _), _ = solve_velocities(
            (), (), (), nothing, prepared, moving, VELOCITY_ITERATIONS
        )
        return placed, velocity


def _integrate(position: Array, velocity: Array, time: Any) -> tuple[Array, Array]:
    """Moves bodies [B, 3, L], which are slowed down if they are too fast."""
    linear, spin = velocity[:, :2], velocity[:, 2:]
    distance = jnp.sqrt(jnp.sum((time * linear) ** 2, axis=1, keepdims=True))
    linear = jnp.where(distance > MAX_TRANSLATION, linear * (MAX_TRANSLATION / distance), linear)
    angle = jnp.abs(time * spin)
    spin = jnp.where(angle > MAX_ROTATION, spin * (MAX_ROTATION / angle), spin)
    velocity = jnp.concatenate([linear, spin], axis=1)
    return position + time * velocity, velocity


def _box(shape: Shape, at: Transform) -> Array:
    """Returns [B, 4, L], the boxes of polygons."""
    corners = [at(vertex) for vertex in shape.vertices]
    low = [functools.reduce(jnp.minimum, [c[i] for c in corners]) - SKIN / 2 for i in range(2)]
    high = [functools.reduce(jnp.maximum, [c[i] for c in corners]) + SKIN / 2 for i in range(2)]
    return jnp.stack([*low, *high], axis=1)


def _sync(shape: Shape, boxes: Array, start: Transform, end: Transform) -> Array:
    """Returns boxes [B, 4, L] after a motion: larger ones, ahead, where bodies left theirs."""
    first, second = _box(shape, start), _box(shape, end)
    low = jnp.minimum(first[:, :2], second[:, :2])
    high = jnp.maximum(first[:, 2:], second[:, 2:])
    leaves = jnp.any((low < boxes[:, :2]) | (high > boxes[:, 2:]), axis=1, keepdims=True)
    ahead = 2 * jnp.stack(sub(end.origin, start.origin), axis=1)
    larger = jnp.concatenate(
        [low - MARGIN + jnp.minimum(ahead, 0), high + MARGIN + jnp.maximum(ahead, 0)], axis=1
    )
    return jnp.where(leaves, larger, boxes)
