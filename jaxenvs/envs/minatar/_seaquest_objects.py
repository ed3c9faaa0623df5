"""The shots, enemies, and divers of Seaquest, packed as in `_packed`.

MinAtar keeps objects in lists, and their order decides which of two objects in a cell is hit. Here
they have no order. Both agree in every state that a game can reach:

- The player is not faster than a shot and rests between shots, so no two shots share a cell after
  a step. While they move, a shot may be where an older one has not left yet. Where it hits an enemy
  there, Python's `remove`, which takes the first equal object, takes the older one, and the other
  moves once more. But shots and enemies share a cell before shots move only where the enemy has
  just appeared at the edge. The older shot would leave the board there, and the other one does.
- Bullets of enemies may coincide. Then they fly on together, and only the player is hit by them.
- Enemies of a row head the same way, because one appears only if it heads as the others do. One
  that appears later also enters each cell later: all rest equally long, except that they rest for
  one step less after each of three surfacings. Before the third, enemies appear at least 15 steps
  apart, and of this lead at least 6 steps remain, whenever the three are. So no two enemies of a
  row share cell and timer, the oldest in a cell is the next to move, and at most one of them enters
  a cell in a step. Thus it does not matter in which order they move.
- A diver appears every 30 steps, stays for 60, and moves every 6. So there are two at most, 5 moves
  apart, and the timer until the next diver tells where they are.
"""

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs.envs.minatar._packed import ROW, SIZE, sideward

DIVER_INTERVAL = 30  # steps between two divers
DIVER_STEPS = 6  # steps between two moves of a diver

# Shots of the player and bullets of enemies are two boards in the words of one: that of those that
# fly left has the bits of a board, and that of those that fly right has the next ten.


def aim(cells: jax.Array, right: jax.Array) -> jax.Array:
    """Returns shots from the cells of a board."""
    return jnp.where(right, cells << SIZE, cells)


def fly(shots: jax.Array) -> jax.Array:
    """Moves shots by one column. Those beyond the edge are gone."""
    left, right = shots & ROW, shots >> SIZE
    return left >> 1 | (right << 1 & ROW) << SIZE


def cells_of(shots: jax.Array) -> jax.Array:
    """Returns the board of shots in both directions."""
    return (shots | shots >> SIZE) & ROW


def stop(shots: jax.Array, hits: jax.Array) -> jax.Array:
    """Removes the shots of rows 0 to 8 from cells of rows 1 to 8, uint32[8]."""
    hits = jnp.pad(hits, (1, 0))
    return shots & ~(hits | hits << SIZE)


@chex.dataclass(frozen=True)
class Enemies:
    """Six boards of rows 1 to 8, for enemies that move after 0 to 5 steps of rest.

    A word has three of them. The ten bits from 10 * i on are those of enemies that rest for i steps
    in `soon`, and for i + 3 in `late`. Subs have a number from 1 to 15 each, and its four binary
    digits are bits of four such sets of boards.
    """

    soon: jax.Array  # uint32[8], or uint32[4, 8] for subs
    late: jax.Array

    def cells(self) -> jax.Array:
        """Returns the board of all."""
        cells = self.soon | self.late
        return (cells | cells >> SIZE | cells >> 2 * SIZE) & ROW

    def add(self, cells: jax.Array, rest: jax.Array) -> "Enemies":
        """Adds enemies in these cells that rest for `rest` steps."""
        cells = cells << (rest % 3 * SIZE).astype(jnp.uint32)
        soon, late = jnp.where(rest < 3, cells, 0), jnp.where(rest < 3, 0, cells)
        return Enemies(soon=self.soon | soon, late=self.late | late)

    def without(self, enemies: "Enemies") -> "Enemies":
        """Removes enemies, uint32[8]."""

        def remove(boards: jax.Array, removed: jax.Array) -> jax.Array:
            return boards & jnp.broadcast_to(~removed, boards.shape)

        return jax.tree.map(remove, self, enemies)

    def move(self, heads_right: jax.Array) -> tuple[jax.Array, "Enemies"]:
        """Returns the new cells of those that have rested, and the others after a step of rest."""
        cells = self.soon & ROW
        moved = sideward(cells, jnp.broadcast_to(heads_right, cells.shape))
        soon = self.soon >> SIZE | (self.late & ROW) << 2 * SIZE
        return moved, Enemies(soon=soon, late=self.late >> SIZE)

    def hit_by(self, cells: jax.Array) -> tuple["Enemies", jax.Array]:
        """Returns those hit by the shots in `cells`, and the cells where shots hit none.

        In each cell it is the next to move, which is the oldest.
        """
        halves = []
        for half in (self.soon, self.late):
            hits = jnp.zeros_like(half)
            for shift in (0, SIZE, 2 * SIZE):
                found = half >> shift & cells
                hits |= found << shift
                cells ^= found
            halves.append(hits)
        return Enemies(soon=halves[0], late=halves[1]), cells

    def all_subs(self) -> "Enemies":
        """Returns the subs with any number, uint32[8]."""
        return jax.tree.map(lambda digits: digits[0] | digits[1] | digits[2] | digits[3], self)

    def numbered(self, number: jax.Array) -> "Enemies":
        """Returns the subs with a number, uint32[8]."""
        found, is_one = self.all_subs(), binary(number) == 1
        for i in range(4):
            found = jax.tree.map(
                lambda boards, digits, i=i: boards & jnp.where(is_one[i], digits[i], ~digits[i]),
                found,
                self,
            )
        return found


def binary(number: jax.Array) -> jax.Array:
    """Returns the four binary digits of a number, the lowest first: uint32[4]."""
    return number.astype(jnp.uint32) >> np.arange(4, dtype=np.uint32) & 1


def diver_columns(timer: jax.Array, right: jax.Array) -> jax.Array:
    """Returns the columns of the last diver and of the one before it, int32[2].

    Args:
        timer: steps until the next diver appears.
        right: bool[2], whether they head right.
    """
    moves = np.array([0, 5], np.int32) + (DIVER_INTERVAL - timer) // DIVER_STEPS
    return jnp.where(right, moves, SIZE - 1 - moves)
