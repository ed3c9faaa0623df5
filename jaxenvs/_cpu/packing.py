"""Packing of a tree of arrays into one flat buffer of 32-bit words.

Moving an array between XLA and NumPy takes about a microsecond each way, whatever its size. A tree
that moves as one buffer pays for that only once.
"""

import math
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

_WORD_BYTES = 4


def can_pack(tree: chex.ArrayTree) -> bool:
    """Returns whether `PackedLayout` knows the dtypes of a tree."""
    return all(
        jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) or leaf.dtype.kind in "biuf"
        for leaf in jax.tree.leaves(tree)
    )


class PackedLayout:
    """The layout of a tree in a buffer, uint32[num_words]: packed on the device, read on the host.

    Args:
        tree: arrays, or their shapes and dtypes. A PRNG key is packed as its data.
    """

    def __init__(self, tree: chex.ArrayTree) -> None:
        leaves, self._treedef = jax.tree.flatten(tree)
        self._leaves = [_Leaf(leaf) for leaf in leaves]
        self._starts = np.cumsum([0, *(leaf.num_words for leaf in self._leaves)]).tolist()
        self.num_words: int = self._starts[-1]

    def pack(self, tree: chex.ArrayTree) -> jax.Array:
        """Returns the leaves of `tree` one after the other: uint32[num_words]."""
        leaves = jax.tree.leaves(tree)
        return jnp.concatenate(
            [spec.to_words(leaf) for spec, leaf in zip(self._leaves, leaves, strict=True)]
        )

    def unpack(self, words: jax.Array) -> Any:
        """Returns the tree that was packed."""
        return jax.tree.unflatten(
            self._treedef,
            [
                leaf.from_words(words[start : start + leaf.num_words])
                for leaf, start in zip(self._leaves, self._starts, strict=False)
            ],
        )

    def fields(self) -> Any:
        """Returns the tree with each leaf replaced by the name of its field in `record_dtype`."""
        return jax.tree.unflatten(self._treedef, [str(i) for i in range(len(self._leaves))])

    def record_dtype(self, first: str = "0") -> tuple[int, np.dtype]:
        """Returns a structured dtype for a packed buffer, with one field per leaf.

        Reading a field takes a quarter of the time of creating an array over the buffer.

        Args:
            first: the field of the first leaf to include.

        Returns:
            The offset of that leaf in bytes, and the dtype.
        """
        leaves, starts = self._leaves[int(first) :], self._starts[int(first) :]
        return starts[0] * _WORD_BYTES, np.dtype(
            {
                "names": [str(i) for i in range(int(first), len(self._leaves))],
                "formats": [(leaf.dtype, leaf.shape) for leaf in leaves],
                "offsets": [(start - starts[0]) * _WORD_BYTES for start in starts[:-1]],
                "itemsize": (starts[-1] - starts[0]) * _WORD_BYTES,
            }
        )


class _Leaf:
    def __init__(self, leaf: Any) -> None:
        self._key_impl: Any = None
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.eval_shape(self._key_data, leaf)
        self.shape, self.dtype = tuple(leaf.shape), np.dtype(leaf.dtype)
        self._size = math.prod(self.shape)
        self.num_words = -(-self._size * self.dtype.itemsize // _WORD_BYTES)

    def _key_data(self, keys: jax.Array) -> jax.Array:
        self._key_impl = jax.random.key_impl(keys)
        return jax.random.key_data(keys)

    def to_words(self, leaf: Any) -> jax.Array:
        if self._key_impl:
            leaf = jax.random.key_data(leaf)
        flat = jnp.asarray(leaf).reshape(-1)
        if self.dtype == np.bool_:
            flat = flat.astype(jnp.uint8)
        if self.dtype.itemsize >= _WORD_BYTES:
            return jax.lax.bitcast_convert_type(flat, jnp.uint32).reshape(-1)
        lanes = _WORD_BYTES // self.dtype.itemsize
        bits = jax.lax.bitcast_convert_type(flat, f"uint{8 * self.dtype.itemsize}")
        bits = jnp.pad(bits.astype(jnp.uint32), (0, -self._size % lanes)).reshape(-1, lanes)
        return jnp.sum(bits << self._shifts(lanes), axis=-1, dtype=jnp.uint32)

    def from_words(self, words: jax.Array) -> jax.Array:
        if self.dtype.itemsize >= _WORD_BYTES:
            lanes = self.dtype.itemsize // _WORD_BYTES
            words = words.reshape((self._size, lanes) if lanes > 1 else (self._size,))
            flat = jax.lax.bitcast_convert_type(words, self.dtype)
        else:
            lanes = _WORD_BYTES // self.dtype.itemsize
            unsigned = np.dtype(f"uint{8 * self.dtype.itemsize}")
            flat = (words[:, None] >> self._shifts(lanes)).astype(unsigned).reshape(-1)
            flat = flat[: self._size]
            if self.dtype == np.bool_:
                flat = flat != 0
            elif self.dtype != unsigned:
                flat = jax.lax.bitcast_convert_type(flat, self.dtype)
        leaf = flat.reshape(self.shape)
        return jax.random.wrap_key_data(leaf, impl=self._key_impl) if self._key_impl else leaf

    def _shifts(self, lanes: int) -> np.ndarray:
        return np.arange(lanes, dtype=np.uint32)[None] * np.uint32(8 * self.dtype.itemsize)
