"""The taxi task."""

from typing import ClassVar

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import spaces, struct
from jaxenvs.core import TimeStep
from jaxenvs.envs.toy_text._tabular import Tabular, move, sign
from jaxenvs.rendering.raster import BLACK, WHITE, Color, box, disc, paint, pixel_grid

CELL = 64  # pixels, side length of a cell in the image
SIZE = 5  # rows and columns of the city
IN_TAXI = 4  # the place of a passenger who rides
ROWS, COLUMNS = np.array([[0, 0, 4, 4], [0, 4, 0, 3]], np.int32)  # of the landmarks R, G, Y, B
# Cells, as row * 5 + column, with a wall on their east side; the city's edge is not in the list.
_WALLS = (1, 6, 15, 17, 20, 22)
_EAST_IS_OPEN = np.uint32(sum(1 << cell for cell in range(25) if cell not in _WALLS))
_SOUTH, _NORTH, _EAST, _WEST, _PICK_UP, _DROP_OFF = range(6)
# The direction of each outcome in the rain: intended, drift to the left, drift to the right.
_DRIFTS = np.array([[0, 2, 3], [1, 3, 2], [2, 1, 0], [3, 0, 1], [4] * 3, [5] * 3], np.int32)

_ROAD: Color = (150, 150, 150)
_LANDMARKS: tuple[Color, ...] = ((230, 90, 80), (90, 190, 90), (235, 215, 90), (90, 120, 220))
_TAXI: Color = (250, 190, 40)
_PASSENGER: Color = (110, 50, 130)


@chex.dataclass(frozen=True)
class TaxiState:
    """The index of the state, and whether the passenger will change the destination."""

    s: jax.Array  # int32[], ((row * 5 + column) * 5 + passenger's place) * 4 + destination
    is_fickle: jax.Array  # bool[], the passenger changes the destination once the taxi moves


class Taxi(Tabular[TaxiState]):
    """Pick up a passenger at one landmark of a city and drop the passenger off at another.

    Observation: int32[], ((row * 5 + column) * 5 + passenger) * 4 + destination, where the
        passenger is at landmark R (0), G (1), Y (2), B (3) or in the taxi (4)
    Action: int32[], drives south (0), north (1), east (2), west (3), picks up (4), drops off (5);
        walls stop the taxi
    Reward: 20 for the passenger's arrival, -10 for picking up or dropping off where that is
        impossible, otherwise -1
    Start: taxi, passenger, and destination uniform, the passenger not at the destination or riding
    Terminates: when the passenger is dropped off at the destination
    Time limit: none here; `Taxi-v4` and `Taxi-v3` are registered with 200 steps
    Info: prob, float32[], the probability of the transition; action_mask, int8[6], 1 where the
        action changes the state

    Dropping the passenger off at another landmark is possible and costs 1.

    If `is_rainy`, a move goes as intended with probability `rainy_probability`, otherwise with
    equal probability to the left or the right of it. A move against a wall never drifts. If
    `fickle_passenger`, the passenger of an episode is fickle with probability `fickle_probability`,
    and draws another destination when the taxi first moves with the passenger in it.

    Source: T. G. Dietterich, Hierarchical Reinforcement Learning with the MAXQ Value Function
    Decomposition, 2000, as Gymnasium's Taxi-v4 (tests/parity/test_certificates.py).
    """

    is_rainy: bool = struct.static(False)  # moves go astray
    fickle_passenger: bool = struct.static(False)  # passengers may change their destination
    rainy_probability: float = 0.8  # probability of moving as intended, if it is rainy
    fickle_probability: float = 0.3  # probability that a passenger of an episode is fickle

    num_actions: ClassVar[int] = 6

    @property
    def num_states(self) -> int:
        return 500

    @property
    def num_outcomes(self) -> int:
        return 3 if self.is_rainy else 1

    def initial_state(self, key: chex.PRNGKey) -> jax.Array:
        # 25 cells, 4 passengers, 3 destinations other than the passenger's.
        which = spaces.Discrete(300).sample(key)
        rest, passenger, shift = which // 12, which // 3 % 4, which % 3
        return encode(rest // SIZE, rest % SIZE, passenger, (passenger + 1 + shift) % 4)

    def probabilities(self, s: jax.Array, action: jax.Array) -> jax.Array:
        del s
        if not self.is_rainy:
            return jnp.ones(1, jnp.float32)
        forward = jnp.asarray(self.rainy_probability, jnp.float32)
        aside = (1 - forward) / 2
        only_first = np.array([1, 0, 0], np.float32)
        return jnp.where(action < _PICK_UP, jnp.stack([forward, aside, aside]), only_first)

    def transition(
        self, s: jax.Array, action: jax.Array, which: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        row, column, passenger, destination = decode(s)
        can_move = _can_move(row, column)
        direction = action
        if self.is_rainy:
            direction = jnp.asarray(_DRIFTS)[action, which]
            blocked = (~can_move & (np.arange(4, dtype=np.int32) == action)).any()
            direction = jnp.where(blocked, action, direction)
        moves = can_move & (np.arange(4, dtype=np.int32) == direction)
        down, right = sign(moves[_SOUTH], moves[_NORTH]), sign(moves[_EAST], moves[_WEST])

        at = (row == ROWS) & (column == COLUMNS)  # [4], the landmark under the taxi
        can_pick_up = (at & (np.arange(4, dtype=np.int32) == passenger)).any()
        rides = passenger == IN_TAXI
        picks_up = (action == _PICK_UP) & can_pick_up
        drops_off = (action == _DROP_OFF) & rides & at.any()
        landmark = jnp.where(at, np.arange(4, dtype=np.int32), 0).sum(dtype=jnp.int32)
        arrives = drops_off & (landmark == destination)
        fails = (action >= _PICK_UP) & ~picks_up & ~drops_off

        passenger = jnp.where(picks_up, IN_TAXI, jnp.where(drops_off, landmark, passenger))
        row, column = move(row, column, down, right, (SIZE, SIZE))
        reward = jnp.where(arrives, 20, jnp.where(fails, -10, -1)).astype(jnp.float32)
        return encode(row, column, passenger, destination), reward, arrives

    def reset(self, key: chex.PRNGKey) -> tuple[TaxiState, TimeStep]:
        is_fickle = jnp.bool_(False)
        if self.fickle_passenger:
            key, fickle_key = jax.random.split(key)
            is_fickle = jax.random.uniform(fickle_key, (), jnp.float32) < self.fickle_probability
        s = self.initial_state(key)
        info = {"prob": jnp.float32(1), "action_mask": action_mask(s)}
        return TaxiState(s=s, is_fickle=is_fickle), TimeStep.first(s, info=info)

    def draw(self, state: TaxiState, key: chex.PRNGKey) -> tuple[jax.Array | None, ...]:
        """Draws the number that selects the outcome, and by how many the destination shifts."""
        u = shift = None
        if self.fickle_passenger:
            key, fickle_key = jax.random.split(key)
            shift = jax.random.randint(fickle_key, (), 1, 4, jnp.int32)
        if self.is_rainy:
            u = jax.random.uniform(key, (), jnp.float32)
        return u, shift

    def apply(
        self, state: TaxiState, action: chex.Array, draws: tuple[jax.Array | None, ...]
    ) -> tuple[TaxiState, TimeStep]:
        """Takes a step with the results of `draw`."""
        u, shift = draws
        s, reward, terminated, probability = self._transition_at(state.s, action, u)
        is_fickle = state.is_fickle
        if shift is not None:
            moves = s // 20 != state.s // 20
            rode = state.s // 4 % 5 == IN_TAXI
            changes = is_fickle & rode & moves
            is_fickle &= ~changes
            s = jnp.where(changes, s // 4 * 4 + (s + shift) % 4, s)
        info = {"prob": probability, "action_mask": action_mask(s)}
        timestep = TimeStep.transition(s, reward=reward, terminated=terminated, info=info)
        return TaxiState(s=s, is_fickle=is_fickle), timestep

    def render(self, state: TaxiState) -> jax.Array:
        """Draws the city from above: uint8[320, 320, 3].

        The taxi is yellow, with a purple disc in it if the passenger rides. A waiting passenger is
        a purple disc, and the destination has a black frame.
        """
        row, column, passenger, destination = decode(state.s)
        x, y = pixel_grid((CELL * SIZE, CELL * SIZE))
        layers = [(box(x % CELL, y % CELL, (32.0, 32.0), (61.0, 61.0)), _ROAD)]
        for i, color in enumerate(_LANDMARKS):
            center = _center(ROWS[i], COLUMNS[i])
            frame = box(x, y, center, (58.0, 58.0))
            layers.append((jnp.where(destination == i, frame, 0), BLACK))
            layers.append((box(x, y, center, (48.0, 48.0)), color))
        for cell in _WALLS:
            left, bottom = _center(cell // SIZE, cell % SIZE)
            layers.append((box(x, y, (left + 32, bottom), (7.0, 64.0)), BLACK))
        taxi = _center(row, column)
        layers.append((box(x, y, taxi, (46.0, 30.0)), _TAXI))
        layers.append((box(x, y, taxi, (22.0, 24.0)), WHITE))
        waiting = np.array([*zip(ROWS, COLUMNS, strict=True), (0, 0)], np.int32)
        place = jnp.where(
            passenger == IN_TAXI, jnp.stack([row, column]), jnp.asarray(waiting)[passenger]
        )
        layers.append((disc(x, y, _center(place[0], place[1]), 9.0), _PASSENGER))
        return paint(WHITE, *layers)


def encode(
    row: jax.Array, column: jax.Array, passenger: jax.Array, destination: jax.Array
) -> jax.Array:
    """Returns the index of a state. Works for JAX arrays, NumPy arrays, and integers."""
    return ((row * SIZE + column) * 5 + passenger) * 4 + destination


def decode(s: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Returns row, column, passenger, and destination of a state."""
    return s // 100, s // 20 % 5, s // 4 % 5, s % 4


def action_mask(s: jax.Array) -> jax.Array:
    """Returns int8[6], 1 for each action that changes the state."""
    row, column, passenger, _ = decode(s)
    at = (row == ROWS) & (column == COLUMNS)
    can_pick_up = (at & (np.arange(4, dtype=np.int32) == passenger)).any()
    can_drop_off = at.any() & (passenger == IN_TAXI)
    acts = jnp.stack([can_pick_up, can_drop_off])
    return jnp.concatenate([_can_move(row, column), acts]).astype(jnp.int8)


def _can_move(row: jax.Array, column: jax.Array) -> jax.Array:
    """Returns whether the taxi can drive south, north, east, and west, bool[4]."""
    cell = (row * SIZE + column).astype(jnp.uint32)
    is_open = jnp.uint32(_EAST_IS_OPEN)
    east = (is_open >> cell) & 1 == 1
    west = (is_open >> (jnp.maximum(cell, 1) - 1)) & 1 == 1
    return jnp.stack([row < 4, row > 0, east & (column < 4), west & (column > 0)])


def _center(row: chex.Numeric, column: chex.Numeric) -> tuple[jax.Array, jax.Array]:
    """Returns x and y of the center of a cell in the image."""
    x = (jnp.asarray(column, jnp.float32) + 0.5) * CELL
    y = (SIZE - jnp.asarray(row, jnp.float32) - 0.5) * CELL
    return x, y
