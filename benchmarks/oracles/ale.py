"""States of ale_py's console as states of ours, from what it saves."""

import ctypes
import re
from typing import Any

import ale_py
import numpy as np
from ale_py import ALEInterface, ALEState

_OBJECTS, _NEVER = 5, 2**31 - 1
_TRUE, _FALSE = -88999246, -1160660270
TIMERS = 74, 65, 64  # at power-on, of the first starts in any process
_TEXT = rb"System|M6502Low|M6532|TIA|TIASound|Cartridge\w+|[0-9a-f]{32}|[0-9 ]{500,}"


class Console(ctypes.Structure):
    """at_console of native/atari/console.h."""

    _fields_ = (
        ("ram", ctypes.c_uint8 * 128),
        ("memory", ctypes.c_uint8 * 128),
        ("pc", ctypes.c_uint16),
        *((name, ctypes.c_uint8) for name in ("a", "x", "y", "s", "negative", "zero", "carry")),
        *((name, ctypes.c_uint8) for name in ("decimal", "interrupt", "overflow")),
        *((name, ctypes.c_uint8) for name in ("jammed", "bus")),
        ("cycle", ctypes.c_int32),
        *((name, ctypes.c_uint8) for name in ("direction_a", "timer", "shift", "expired_read")),
        *((name, ctypes.c_int32) for name in ("timer_set", "timer_reset")),
        ("bank", ctypes.c_uint8 * 4),
        ("color", ctypes.c_uint8 * 4),
        ("size", ctypes.c_uint8 * 2),
        ("control", ctypes.c_uint8),
        ("reflected", ctypes.c_uint8 * 2),
        ("delayed", ctypes.c_uint8 * 3),
        ("graphics", ctypes.c_uint8 * 2),
        ("old_graphics", ctypes.c_uint8 * 2),
        ("enabled", ctypes.c_uint8 * 3),
        ("old_ball", ctypes.c_uint8),
        ("locked", ctypes.c_uint8 * 2),
        ("motion", ctypes.c_uint8 * _OBJECTS),
        ("position", ctypes.c_uint8 * _OBJECTS),
        ("restarted", ctypes.c_uint8 * 2),
        *((name, ctypes.c_uint8) for name in ("mirror", "comb", "vertical_blank", "stars", "pale")),
        *((name, ctypes.c_uint32) for name in ("playfield", "collisions")),
        *((name, ctypes.c_int32) for name in ("drawn", "sync_end", "dumped", "hmove")),
    )


class Inputs(ctypes.Structure):
    """at_inputs of native/atari/console.h."""

    _fields_ = (
        *((name, ctypes.c_uint8) for name in ("joysticks", "switches")),
        ("fire", ctypes.c_uint8 * 2),
        ("paddles", ctypes.c_int32 * 4),
    )


class Past(ctypes.Structure):
    """at_past of native/atari/game.h."""

    _fields_ = (("console", Console), ("inputs", Inputs))


class Game(ctypes.Structure):
    """at_game of native/atari/game.h."""

    _fields_ = (
        ("console", Console),
        ("registers", ctypes.c_int32 * 16),
        ("paddle", ctypes.c_int32),
        ("action", ctypes.c_int32),
        ("past", Past * 2),
    )


def load(game: str, **options: Any) -> ALEInterface:
    """Returns ale_py's machine with a game, without repeated actions."""
    ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    ale = ALEInterface()
    ale.setFloat("repeat_action_probability", 0.0)
    ale.setInt("random_seed", 1)
    for name, value in options.items():
        ale.setInt(name, value)
    ale.loadROM(ale_py.roms.get_rom_path(game))
    return ale


def places(saved: bytes) -> dict[str, list[int]]:
    """Returns where a saved state has its numbers, by the part of the machine."""
    at, found = 0, dict[str, list[int]](head=[])
    current = found["head"]
    while at < len(saved):
        number = int.from_bytes(saved[at : at + 4], "little", signed=True)
        text = saved[at + 4 : at + 4 + number] if 2 < number < 8_000 else b""
        if text and re.fullmatch(_TEXT, text):
            if number < 32:
                current = found.setdefault(text.decode(), [])
            at += number
        else:
            current.append(at)
        at += 4
    return found


def sections(state: ALEState) -> dict[str, list[int]]:
    """Returns the numbers that a state saves, by the part of the machine."""
    saved = bytes(state.serialize())

    def number(at: int) -> int:
        value = int.from_bytes(saved[at : at + 4], "little", signed=True)
        return {_TRUE: 1, _FALSE: 0}.get(value, value)

    return {name: [*map(number, numbers)] for name, numbers in places(saved).items()}


def copy(ale: ALEInterface, into: np.ndarray) -> tuple[np.ndarray, int, int]:
    """Returns our game, uint8[S], where ale_py's is between two frames.

    `into` is a game of the same title. Also returns the first line and the height of the picture.
    """
    saved = sections(ale.cloneSystemState())
    game = Game.from_buffer_copy(into.tobytes())
    m, processor, riot, tia = game.console, saved["M6502Low"], saved["M6532"], saved["TIA"]
    (cycles,) = saved["System"]
    start = tia[0]  # clocks, of the frame that is over, or goes on
    base = cycles - (cycles - -(-start // 3)) % 76 if processor[13] else -(-start // 3)
    m.a, m.x, m.y, m.s, _, m.pc = processor[:6]
    negative, m.overflow, _, m.decimal, m.interrupt, m.zero, m.carry = processor[6:13]
    m.negative = 128 * negative
    m.ram[:] = riot[1:129]
    m.timer, m.shift, timer_set, timer_reset, m.expired_read = riot[129:134]
    m.direction_a = riot[134]
    m.timer_set, m.timer_reset = timer_set - base, timer_reset - base
    m.cycle = cycles - base
    m.drawn = 3 * m.cycle if processor[13] else tia[3] - start
    m.sync_end = _NEVER if tia[7] == _NEVER else tia[7] // 3 - base
    m.vertical_blank = tia[10]
    m.size[:] = [x & 0x37 for x in tia[11:13]]
    m.color[:] = [x & 0xFE for x in tia[13:17]]
    m.control, m.mirror = tia[17] & 0x37, tia[17] & 1
    m.reflected[:] = tia[19:21]
    middle = int(f"{tia[21] >> 4 & 255:08b}"[::-1], 2)  # PF1 is as it was written
    m.playfield = tia[21] & ~0xFF0 | middle << 4
    m.graphics[:], m.old_graphics[:] = tia[22:24], tia[24:26]
    m.enabled[:], m.old_ball = tia[26:29], tia[29]
    m.motion[:], m.position[:] = [x & 15 for x in tia[30:35]], tia[41:46]
    m.delayed[:], m.locked[:] = tia[35:38], tia[38:40]
    m.collisions = tia[40]
    m.comb = m.restarted[0] = m.restarted[1] = 0
    m.dumped = tia[53] - base
    (name,) = (name for name in saved if name.startswith("Cartridge"))
    banks = saved[name]
    if name == "CartridgeE0":
        m.bank[:] = banks[1:5]
    else:
        m.bank[:] = [
            4 * banks[0] * (len(banks) > 1 and name not in ("Cartridge2K", "Cartridge4K")) + i
            for i in range(4)
        ]
    if name.endswith("SC"):
        m.memory[:] = banks[2:130]
    game.paddle = saved["head"][0]
    first, height = (tia[1] - start) // 228, (tia[2] - tia[1]) // 228
    return np.frombuffer(bytes(game), np.uint8), first, height
