"""Random programs, which write the TIA's registers at odd times, draw what they draw in ale_py.

A program stands in the console's memory: states of ale_py can be changed before they are restored.
"""

import random
import struct

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxenvs.bridge.native import libraries
from jaxenvs.envs.atari import machine

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(
        not libraries.is_there(libraries.XLA), reason="the compiled part is missing"
    ),
]
REGISTERS = {
    "NUSIZ": (0x04, 0x05),
    "COLU": (0x06, 0x07, 0x08, 0x09),
    "CTRLPF": (0x0A,),
    "REFP": (0x0B, 0x0C),
    "PF": (0x0D, 0x0E, 0x0F),
    "RESP": (0x10, 0x11),
    "RESM": (0x12, 0x13, 0x14),
    "GRP": (0x1B, 0x1C),
    "ENA": (0x1D, 0x1E, 0x1F),
    "HM": (0x20, 0x21, 0x22, 0x23, 0x24),
    "VDEL": (0x25, 0x26, 0x27),
    "RESMP": (0x28, 0x29),
    "HMOVE": (0x2A,),
}
ROWS = 160  # of the picture; programs are over soon afterwards
FRAMES = 3


def write(value: int, register: int) -> bytes:
    """LDA #value, STA register: 5 cycles."""
    if register == 0x0A:  # not both: see test_machine.py for the field in front, in scores
        value &= ~4 if value & 2 else ~0
    return bytes([0xA9, value, 0x85, register])


def wait(cycles: int) -> bytes:
    """NOPs, and LDA $FF for an odd number."""
    odd = cycles % 2
    return bytes([0xA5, 0xFF] * odd) + b"\xea" * ((cycles - 3 * odd) // 2)


def lines(count: int) -> bytes:
    """LDX #count, then WSYNC as often."""
    return bytes([0xA2, count, 0x85, 0x02, 0xCA, 0xD0, 0xFB])


def program(kinds: tuple[str, ...], draw: random.Random) -> bytes:
    """Writes some registers at random times of some lines, frame after frame."""
    registers = [register for kind in kinds for register in REGISTERS[kind]]
    setup = write(0, 0x01) + bytes([0x85, 0x2C])  # VBLANK off, CXCLR
    for register, color in zip(REGISTERS["COLU"], (0x1A, 0x3A, 0x5A, 0x70), strict=True):
        setup += write(color, register)
    for register in (*REGISTERS["GRP"], *REGISTERS["NUSIZ"], *REGISTERS["CTRLPF"]):
        setup += write(draw.choice([0, draw.randrange(256)]), register)
    for register in draw.sample((*REGISTERS["ENA"], *REGISTERS["PF"], *REGISTERS["HM"]), 2):
        setup += write(draw.randrange(256), register)
    body = b"\x85\x02"
    for _ in range(draw.randrange(1, 6)):
        body += wait(draw.choice([0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14]))
        body += write(draw.choice([0, 255, draw.randrange(256)]), draw.choice(registers))
        if len(body) > 28:
            break
    count = draw.choice([6, 20, 60])
    body += bytes([0x88, 0xD0, (-len(body) - 3) & 255])
    code = setup + lines(60) + bytes([0xA0, count]) + body + lines(174 - count)
    return code + write(2, 0x00) + bytes([0x85, 0x02] * 2) + write(0, 0x00) + b"\x4c\x80\x00"


@pytest.mark.parametrize(
    "kinds",
    [
        *(("COLU", "GRP"), ("ENA",), ("PF", "CTRLPF"), ("REFP", "GRP"), ("VDEL", "GRP", "ENA")),
        *(("NUSIZ", "RESP"), ("RESP",), ("RESM", "ENA"), ("HM", "HMOVE"), ("RESMP", "RESP")),
        *(("HMOVE", "RESP", "RESM", "HM"), tuple(REGISTERS)),
    ],
    ids="-".join,
)
def test_random_programs_draw_as_in_ale_py(kinds):
    pytest.importorskip("ale_py")
    from ale_py import ALEState

    from benchmarks.oracles import ale as oracle

    console, ale = machine.Console.load("pong"), oracle.load("pong")
    empty, _, _ = console.start(25)
    saved = bytes(ale.cloneSystemState().__getstate__())
    at = oracle.places(saved)
    play = jax.jit(lambda game: console.play(game, jnp.zeros(1, jnp.int32), show="screen"))
    draw = random.Random("-".join(kinds))
    seen = 0
    colors: set[int] = set()
    while seen < 150:
        code = program(kinds, draw)
        if len(code) > 120:  # what is above is the stack
            continue
        seen += 1
        state = bytearray(saved)
        for i, byte in enumerate(code.ljust(128, b"\0")):
            struct.pack_into("<i", state, at["M6532"][1 + i], byte)
        struct.pack_into("<i", state, at["M6502Low"][3], 0xFF)  # the stack pointer
        struct.pack_into("<i", state, at["M6502Low"][5], 0x80)  # the program counter
        changed = ALEState.__new__(ALEState)
        changed.__setstate__(bytes(state))
        ale.restoreSystemState(changed)
        game = jnp.asarray(oracle.copy(ale, empty)[0])
        for _ in range(FRAMES):
            ale.act(0)
            game, _, screens = play(game)
        np.testing.assert_array_equal(screens[0, :ROWS], ale.getScreen()[:ROWS], code.hex())
        colors.update(np.unique(screens[0]).tolist())
        console = oracle.Game.from_buffer_copy(np.asarray(game).tobytes()).console
        tia = oracle.sections(ale.cloneSystemState())["TIA"]
        assert list(console.position) == tia[41:46], code.hex()
        assert console.collisions == tia[40], code.hex()
    assert colors >= {0x1A, 0x3A, 0x5A, 0x70}
