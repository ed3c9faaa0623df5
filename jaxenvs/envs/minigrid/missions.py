"""Missions as words of a closed vocabulary, which all levels share."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs.envs.minigrid import cells
from jaxenvs.errors import ParameterError

# Word 0 is the padding at the end. Colors and kinds of objects are in the order of their numbers.
# Words must not be removed or move to other places; networks learn their numbers.
WORDS = (
    *("", *cells.COLORS, "door", "key", "ball", "box", "object", "a", "the", ",", "and", "then"),
    *("after", "you", "next", "near", "to", "from", "go", "get", "pick", "up", "put", "open"),
    *("fetch", "find", "avoid", "reach", "use", "traverse", "unlock", "must", "on", "in", "of"),
    *("at", "front", "behind", "your", "left", "right", "room", "rooms", "goal", "square"),
    *("opening", "lava", "matching", "end", "hallway", "maze"),
)
_KIND = WORDS.index("door") - cells.OPEN_DOOR


def of_color(color: Any) -> Any:
    """Returns the number of the word for a color."""
    return color + 1


def of_kind(kind: Any) -> Any:
    """Returns the number of the word for a kind of object: an open door, a key, ball, or box."""
    return kind + _KIND


def encode_mission(text: str, *slots: Any, vocabulary: Sequence[str] = WORDS) -> jax.Array:
    """Returns the numbers of the words of a mission: uint8[number of words].

    Args:
        text: words, commas, and "{}" for words to fill in.
        *slots: the numbers of the words to fill in, such as `of_color(RED)`.
        vocabulary: the words, up to 256.

    Raises:
        ParameterError: a word is not in the vocabulary.
    """
    words = split(text)
    unknown = [word for word in words if word != "{}" and word not in vocabulary]
    if unknown:
        raise ParameterError(
            f'the mission "{text}" has words that are not in the vocabulary: {", ".join(unknown)}.'
            "  Set `vocabulary` of the level to `WORDS` and these words."
        )
    fixed = np.array([0 if word == "{}" else vocabulary.index(word) for word in words], np.uint8)
    numbers = jnp.asarray(fixed)
    for i, slot in zip((i for i, word in enumerate(words) if word == "{}"), slots, strict=True):
        # A selection, because a scatter would be slow.
        here = np.arange(len(words), dtype=np.int32) == i
        numbers = jnp.where(here, jnp.asarray(slot).astype(jnp.uint8), numbers)
    return numbers


def split(text: str) -> list[str]:
    """Returns the words of a mission. Commas are words."""
    return text.replace(",", " ,").split()


def decode_mission(tokens: Any, vocabulary: Sequence[str] = WORDS) -> str:
    """Returns the mission as text, given the numbers of its words, as in observations.

    Example:
        >>> decode_mission(encode_mission("open the {} door", of_color(cells.RED)))
        'open the red door'
    """
    words = [vocabulary[int(token)] for token in np.asarray(tokens)]
    return " ".join(filter(None, words)).replace(" ,", ",")
