"""The Atari 2600 in compiled code, played by one custom call for a whole batch.

native/atari has the machine. A game is its state, uint8[S]; what is the same in all games of a
title, such as the ROM, is registered once in a process.
"""

import ctypes
import dataclasses
import functools
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import ffi
from jaxenvs._machine import num_cores
from jaxenvs.bridge.native.libraries import NativePartMissing, xla_library
from jaxenvs.envs.atari.rules import PROGRAMS, Rules, load_rules
from jaxenvs.errors import JaxenvsError, ParameterError, missing_extra

WIDTH = 160
LARGEST = 32_767  # height or width of what "resized" shows, see native/atari/pixels.h
SHOWS = ("nothing", "screen", "rgb", "grayscale", "resized")  # what a call returns of its frames
_TARGET = "jaxenvs_atari"
_KINDS = ("plain", "banks", "SC", "FE", "E0")  # of cartridges
_SIZES = (2048, 4096, 8192, 16384)
_NEVER = 0x2000  # an address that no cartridge has
TIMERS = (25, 99)  # the least and the largest that ale_py's timer is at power-on, at random
_MEMORY = bytes.fromhex(  # at power-on, in every game of ale_py
    "b896c049cb55c87ffbb445662b3410cab9ceff8f4f44a18a04c5cdfc75e70aad2d9b609eaa171e54f98451"
    "3e34977c5e50b68685be77458b6d04b5ee4239c14b9c33524749b3ee6b70ac246bd4fefed617dc389a498e"
    "21acd61c0d5cdaad0b77a36c283851c5895c5a169855955baf4aaf990d4bec0aba5ea7bde6f7ab146fc0"
)


class _Cartridge(ctypes.Structure):  # at_cartridge
    _fields_ = (
        ("rom", ctypes.c_void_p),
        *((name, ctypes.c_int32) for name in ("size", "kind", "first_line", "height")),
        *((name, ctypes.c_int32) for name in ("is_european", "blanks_after_hmove")),
        ("hot", ctypes.c_uint16),
    )


class _Title(ctypes.Structure):  # at_title
    _fields_ = (
        ("cart", _Cartridge),
        ("rules", ctypes.c_void_p * len(PROGRAMS)),
        *((name, ctypes.c_int32) for name in ("paddle", "is_second", "switches")),
        *((name, ctypes.c_int32) for name in ("mode", "wait", "hold", "resets", "num_starts")),
        ("starts", ctypes.c_int32 * 48),
    )


@dataclasses.dataclass(frozen=True)
class Console:
    """A console with a game: frames, memory, and screens, below what agents see.

    `load` makes one. A game's state, uint8[S], is an array apart from the console.

    Example:
        >>> console = Console.load("breakout")
        >>> state, screen, lives = console.start()
        >>> actions = jnp.array([1, 3, 3])  # FIRE, RIGHT, RIGHT: a frame each
        >>> state, numbers, pictures = jax.jit(console.play)(state, actions)
        >>> console.memory(state).shape
        (128,)
    """

    rules: Rules = dataclasses.field(compare=False)
    id: int
    size: int  # S, bytes of a state

    @staticmethod
    def load(
        game: str,
        *,
        mode: int | None = None,
        difficulty: int | None = None,
        roms_dir: str | None = None,
    ) -> "Console":
        """Returns a console with a game.

        Args:
            game: ale_py's name of the ROM, such as "space_invaders".
            mode: of the game; None for the usual one.
            difficulty: of the console's switches; None for the usual one.
            roms_dir: the folder of ROMs, by default ale_py's.

        Raises:
            ParameterError: there is no such game, mode, or difficulty, its ROM is another one, or
                the console cannot run it.
            MissingExtraError: there is no folder, and ale_py is not installed.
            JaxenvsError: jaxenvs was installed without its compiled part.
        """
        return _load(game, mode, difficulty, roms_dir)

    @property
    def height(self) -> int:
        """The number of lines of a picture."""
        return self.rules.height

    def memory(self, game: jax.Array) -> jax.Array:
        """Returns the memory of a game: uint8[128]."""
        return game[:128]

    def start(
        self, timer: int = TIMERS[0], show: str = "screen", resized: tuple[int, int] = (84, 84)
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """Starts a game as ALE does.

        Args:
            timer: its count at power-on, see `TIMERS`.
            show: what to return of the last frame, see `play`.
            resized: see `play`.

        Returns:
            the game, uint8[S], what it shows, and the lives.
        """
        game, boot = np.empty(self.size, np.uint8), np.array([*_MEMORY, timer], np.uint8)
        picture = np.zeros(self.shape(show, resized), np.uint8)
        lives = _library().jaxenvs_atari_begin(
            ctypes.c_int64(self.id),
            *(ctypes.c_void_p(x.ctypes.data) for x in (boot, game)),
            *(SHOWS.index(show), *resized),
            ctypes.c_void_p(picture.ctypes.data),
        )
        return game, picture, lives

    def play(
        self,
        game: jax.Array,
        actions: jax.Array,
        *,
        show: str = "nothing",
        pooled: bool = False,
        pictures: jax.Array | None = None,
        resized: tuple[int, int] = (84, 84),
        one_life: bool = False,
        num_threads: int | None = None,
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Plays frames until an action is negative, or the game is over.

        Args:
            game: uint8[S].
            actions: int32[F], the action of each frame, ALE's numbers or what `action_of` returns.
            show: what is returned of the last frame, one of `SHOWS`.
            pooled: whether it is the greater of the last two frames, for each pixel.
            pictures: uint8[K, ...], the pictures before; the result has the last K.
            resized: the height and width of what "resized" shows.
            one_life: whether the loss of a life also ends it.
            num_threads: by default the cores that the process may use.

        Returns:
            the game; int32[4], the reward, the lives, whether the game is over, and the number of
            frames that were played; the pictures, uint8[K, ...].
        """
        shape = self.shape(show, resized)
        size = int(np.prod(shape))
        count = 1 if pictures is None else pictures.shape[0]
        before = jnp.zeros(count * size, np.uint8) if pictures is None else pictures.reshape(-1)
        results = [
            jax.ShapeDtypeStruct((self.size,), np.uint8),
            jax.ShapeDtypeStruct((4,), np.int32),
            jax.ShapeDtypeStruct((count * size,), np.uint8),
        ]
        run = functools.partial(
            _run,
            self.id,
            SHOWS.index(show),
            pooled,
            resized,
            one_life,
            num_threads or num_cores(),
        )
        game, numbers, shown = ffi.call(run, results, game, actions, before)
        return game, numbers, shown.reshape((count, *shape))

    def shape(self, show: str, resized: tuple[int, int] = (84, 84)) -> tuple[int, ...]:
        """Returns the shape of a picture."""
        whole = (self.height, WIDTH)
        shapes = {"nothing": (0,), "screen": whole, "rgb": (*whole, 3), "grayscale": whole}
        return shapes.get(show, resized)


# ALE's numbers of actions, by whether fire is pressed, down to up, and left to right.
_ACTIONS = np.array(
    [[[9, 5, 8], [4, 0, 3], [7, 2, 6]], [[17, 13, 16], [12, 1, 11], [15, 10, 14]]], np.int32
)
_OHMS = 23_000  # by which a paddle turns in a frame at most


def action_of(across: Any, along: Any, fire: Any, strength: Any) -> jax.Array:
    """Returns an action of the machine: int32[], ALE's number in its lowest five bits.

    The others have the ohms by which it turns a paddle less than an action of full strength.

    Args:
        across: int32[], -1 for left, 0, or 1 for right.
        along: int32[], -1 for down, 0, or 1 for up.
        fire: bool[], whether the button is pressed.
        strength: float32[], of a paddle, from 0 to 1.
    """
    number = jnp.asarray(_ACTIONS)[fire.astype(jnp.int32), along + 1, across + 1]
    # The whole part of strength * _OHMS, of which float32 has too few bits for one product.
    high = jnp.floor(strength * 4096) / 4096
    coarse, fine = high * _OHMS, (strength - high) * _OHMS
    carries = fine - jnp.floor(fine) >= 1 - (coarse - jnp.floor(coarse))
    ohms = sum(x.astype(jnp.int32) for x in (jnp.floor(coarse), jnp.floor(fine), carries))
    return number | (_OHMS - ohms) << 5


@functools.cache  # which keeps what programs use
def _load(game: str, mode: int | None, difficulty: int | None, folder: str | None) -> Console:
    rules = load_rules(game)
    if rules.lacks:
        raise ParameterError(
            f"{game} cannot be played: its cartridge has {rules.lacks}, which jaxenvs lacks.  Make"
            ' ale_py\'s environment in a pool: an id such as "gymnasium/ALE/Pitfall2-v5".'
        )
    difficulty = rules.difficulty if difficulty is None else difficulty
    mode = rules.mode if mode is None else mode
    for name, value, known in (
        ("difficulty", difficulty, rules.difficulties),
        ("mode", mode, rules.modes),
    ):
        if value not in known:
            raise ParameterError(f"{game} got {name}={value}; expected one of {list(known)}.")
    rom = _read(game, folder)
    kind = rules.cartridge or ("plain" if len(rom) <= 4096 else "banks")
    programs = [rules.programs.get(stage) for stage in PROGRAMS]
    # What is evaluated stands in games.toml.
    starts = [(action, eval(str(frames), {"mode": mode})) for action, frames in rules.start]
    title = _Title(
        cart=_Cartridge(
            rom=rom.ctypes.data,
            size=len(rom),
            kind=_KINDS.index(kind),
            first_line=rules.first_line,
            height=rules.height,
            is_european=rules.height == 250,
            blanks_after_hmove=rules.comb,
            hot=_NEVER if kind == "plain" else 0x1000 if kind == "FE" else 0x1FE0,
        ),
        rules=(ctypes.c_void_p * len(PROGRAMS))(
            *(None if x is None else x.ctypes.data for x in programs)
        ),
        paddle=rules.paddle,
        is_second=rules.second,
        switches=0x3F | difficulty << 6,
        mode=mode,
        wait=rules.wait,
        hold=rules.hold,
        resets=4 if len(rules.modes) == 1 else 8,
        num_starts=len(starts),
        starts=(ctypes.c_int32 * 48)(*np.ravel(starts)),
    )
    rest = [np.ravel(each).tobytes() for each in programs if each is not None]
    text = b"".join([rom.tobytes(), *rest, repr((game, mode, difficulty)).encode()])
    number = int.from_bytes(hashlib.sha256(text).digest()[:8], "little", signed=True)
    if number not in _kept:  # otherwise a program may be reading what is registered
        _kept[number] = rom, programs
        _library().jaxenvs_atari_register(ctypes.c_int64(number), ctypes.byref(title))
    return Console(rules, number, _library().jaxenvs_atari_size())


_kept: dict[int, Any] = {}  # what titles point at


def _read(game: str, folder: str | None) -> np.ndarray:
    folder = folder or os.environ.get("ALE_ROMS_DIR")
    if folder is None:
        try:
            from ale_py import roms
        except ImportError as error:
            raise missing_extra("jaxenvs.envs.atari", "ale-py", "atari") from error
        folder = str(Path(roms.__file__).parent)
    path = Path(folder) / f"{game}.bin"
    if not path.exists():
        raise ParameterError(
            f"there is no ROM {path}.  Pass roms_dir or set ALE_ROMS_DIR to a folder with the ROMs"
            ' of ale_py, or install it: pip install "jaxenvs[atari]".'
        )
    rom = np.fromfile(path, np.uint8)
    if len(rom) not in _SIZES:
        sizes = ", ".join(map(str, _SIZES))
        raise ParameterError(f"{path} has {len(rom)} bytes; expected one of {sizes}.")
    return rom


def _library() -> ctypes.CDLL:
    try:
        return xla_library()
    except NativePartMissing as error:
        raise JaxenvsError(
            f"Atari games need the compiled part of jaxenvs, which is missing: {error}.  Without"
            ' it, make the same games in a pool: "gymnasium/ALE/Breakout-v5".'
        ) from error


def _run(
    number: int,
    how: int,
    pooled: bool,
    resized: Sequence[int],
    one_life: bool,
    num_threads: int,
    devices: int,
    shapes: Any,
    *operands: jax.Array,
) -> Any:
    return ffi.call_on_host(
        _target(),
        shapes,
        *operands,
        id=np.int64(number),
        how=np.int32(how),
        pooled=np.int32(pooled),
        rows=np.int32(resized[0]),
        columns=np.int32(resized[1]),
        one_life=np.int32(one_life),
        threads=np.int32(max(1, num_threads // devices)),
    )


@functools.cache
def _target() -> str:
    handler = jax.ffi.pycapsule(_library().jaxenvs_atari_handler)
    jax.ffi.register_ffi_target(_TARGET, handler, platform="cpu")
    return _TARGET
