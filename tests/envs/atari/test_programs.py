"""Programs draw what they draw in ale_py: those of a page, which says what, and random ones.

A program stands in the console's memory: states of ale_py can be changed before they are restored.
"""

import functools
import random
import re
import struct
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxenvs.bridge.native import libraries
from jaxenvs.envs.atari import machine

pytestmark = pytest.mark.skipif(
    not libraries.is_there(libraries.XLA), reason="the compiled part is missing"
)

# --- Running a program ---

LONGEST = 120  # bytes of a program; the others are for results and the stack


class Seen(NamedTuple):
    """The picture and the state of a console after a frame."""

    screen: np.ndarray
    memory: np.ndarray
    positions: list[int]
    collisions: int


@functools.cache
def consoles(game: str) -> tuple[Any, ...]:
    """Returns a game in ale_py, a state of it, a state of ours, and how that plays a frame."""
    pytest.importorskip("ale_py")
    from benchmarks.oracles import ale as oracle

    console, ale = machine.Console.load(game), oracle.load(game)
    play = jax.jit(lambda state: console.play(state, jnp.zeros(1, jnp.int32), show="screen"))
    return ale, bytes(ale.cloneSystemState().__getstate__()), console.start(25)[0], play


def restore(ale: Any, state: bytes) -> None:
    from ale_py import ALEState

    restored: Any = ALEState.__new__(ALEState)  # whose stub wants a tuple
    restored.__setstate__(state)
    ale.restoreSystemState(restored)


def run(code: bytes, frames: int, game: str = "pong") -> tuple[Seen, Seen]:
    """Returns what is seen in ale_py's console and in ours, with the cartridge of a game."""
    ale, saved, empty, play = consoles(game)
    from benchmarks.oracles import ale as oracle

    assert len(code) <= LONGEST
    at, state = oracle.places(saved), bytearray(saved)
    for i, byte in enumerate(code.ljust(128, b"\0")):
        struct.pack_into("<i", state, at["M6532"][1 + i], byte)
    struct.pack_into("<i", state, at["M6502Low"][3], 0xFF)  # the stack pointer
    struct.pack_into("<i", state, at["M6502Low"][5], 0x80)  # the program counter
    restore(ale, saved)
    ale.act(0)  # to its end: no state says that a frame was cut short
    restore(ale, bytes(state))
    ours, screens = jnp.asarray(oracle.copy(ale, empty)[0]), jnp.zeros(1)
    for _ in range(frames):
        ale.act(0)
        ours, _, screens = play(ours)
    tia = oracle.sections(ale.cloneSystemState())["TIA"]
    own = oracle.Game.from_buffer_copy(np.asarray(ours).tobytes()).console
    return (
        Seen(ale.getScreen(), ale.getRAM(), tia[41:46], tia[40]),
        Seen(np.asarray(screens[0]), np.array(own.ram), list(own.position), own.collisions),
    )


# --- The programs of the page, in assembly ---

PAGE = Path(__file__).parents[3] / "docs" / "concepts" / "atari_console.md"
PROGRAMS = re.findall(r"^```text\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.S | re.M)
REGISTERS_WRITTEN = """
VSYNC VBLANK WSYNC RSYNC NUSIZ0 NUSIZ1 COLUP0 COLUP1 COLUPF COLUBK CTRLPF REFP0 REFP1 PF0 PF1 PF2
RESP0 RESP1 RESM0 RESM1 RESBL AUDC0 AUDC1 AUDF0 AUDF1 AUDV0 AUDV1 GRP0 GRP1 ENAM0 ENAM1 ENABL
HMP0 HMP1 HMM0 HMM1 HMBL VDELP0 VDELP1 VDELBL RESMP0 RESMP1 HMOVE HMCLR CXCLR
"""
REGISTERS_READ = """
CXM0P CXM1P CXP0FB CXP1FB CXM0FB CXM1FB CXBLPF CXPPMM INPT0 INPT1 INPT2 INPT3 INPT4 INPT5
"""
ADDRESSES = {
    name: i for names in (REGISTERS_WRITTEN, REGISTERS_READ) for i, name in enumerate(names.split())
}
ADDRESSES |= {"SWCHA": 0x280, "SWACNT": 0x281, "SWCHB": 0x282, "SWBCNT": 0x283}
ADDRESSES |= {"INTIM": 0x284, "INSTAT": 0x285, "TIM64T": 0x296}
SIMPLE = {"CLC": 0x18, "SEC": 0x38, "SED": 0xF8, "DEX": 0xCA, "INX": 0xE8, "PLA": 0x68}
BRANCHES = {"BPL": 0x10, "BNE": 0xD0}
OPERATIONS = {  # with an operand: immediate, in page zero, absolute
    "LDA": (0xA9, 0xA5, 0xAD),
    "LDX": (0xA2, 0xA6, 0xAE),
    "STA": (0, 0x85, 0x8D),
    "ADC": (0x69, 0x65, 0x6D),
    "SBC": (0xE9, 0xE5, 0xED),
    "BIT": (0, 0x24, 0x2C),
    "INC": (0, 0xE6, 0xEE),
    "ANE": (0x8B, 0, 0),
    "LXA": (0xAB, 0, 0),
}
INSTRUCTION = r"(?:(\w+): )?(?:@(\d+) )?([A-Z]{3})(?: (\S+))?"


def groups(pattern: str, text: str) -> tuple[Any, ...]:
    found = re.fullmatch(pattern, text)
    assert found, text
    return found.groups()


def number(text: str) -> int:
    return int(text[1:], 16) if text.startswith("$") else int(text)


def pause(cycles: int) -> bytes:
    """PHP and PLP, which take 7 cycles, BIT $FF for an odd number, and NOPs."""
    assert cycles >= 0 and cycles != 1, "an instruction cannot end so early"
    pairs = cycles // 7 - (cycles % 7 == 1)
    rest = cycles - 7 * pairs
    return b"\x08\x28" * pairs + b"\x24\xff" * (rest % 2) + b"\xea" * ((rest - rest % 2 * 3) // 2)


def assemble(text: str, start: int) -> bytes:
    """Translates a program of the page, which says how it is written."""
    code, cycle, labels = b"", 0, dict[str, int]()
    text = re.sub(r" *;.*", "", text)
    text = re.sub(r"(@\d+ |)(\w+) = (\S+)", r"LDA #\3\n\1STA \2", text)
    for line in text.split("\n"):
        if not line:
            continue
        label, end, name, operand = groups(INSTRUCTION, line)
        if label:
            labels[label] = start + len(code)
        if operand is None:
            instruction, cycles = [SIMPLE[name]], 4 if name == "PLA" else 2
        elif name in BRANCHES:
            instruction, cycles = [BRANCHES[name], labels[operand] - start - len(code) - 2 & 255], 3
        elif operand[0] == "#":
            instruction, cycles = [OPERATIONS[name][0], number(operand[1:])], 2
        else:
            at = ADDRESSES[operand] if operand in ADDRESSES else number(operand)
            instruction = [OPERATIONS[name][1 + (at > 255)], *at.to_bytes(1 + (at > 255), "little")]
            cycles = 1 + len(instruction) + 2 * (name == "INC")
        if end:
            code += pause(int(end) - cycles - cycle)
            cycle = int(end) - cycles
        code += bytes(instruction)
        cycle = 0 if operand == "WSYNC" else cycle + cycles
    return code


FIRST = 13  # the row of a program's line 0
OBJECTS = ("P0", "P1", "M0", "M1", "BL")


def on_page(text: str) -> bytes:
    """Returns a program of the page with what comes before and after it."""
    code = assemble("LDA #0\nLDX #$2C", 0x80) + b"\x95\x00\xca\xd0\xfb"  # STA $00,X; DEX; BNE
    code += assemble("COLUP0 = $1A\nCOLUP1 = $3A\nCOLUPF = $5A", 0x80)
    code += lines(40) + b"\x85\x02"
    code += assemble(text, 0x80 + len(code))
    return code + b"\x85\x02\x4c" + (0x80 + len(code)).to_bytes(2, "little")  # STA WSYNC; JMP


@pytest.mark.parametrize("text", PROGRAMS, ids=range(len(PROGRAMS)))
def test_a_program_of_the_page_shows_what_it_says(text):
    statements = re.findall(r"^; (.*)", text, re.M)
    game, frame = "pong", 1
    if statements[0].startswith("in"):
        game, frame = groups(r"in (\w+), frame (\d+)", statements.pop(0))
    for seen in run(on_page(text), int(frame), game):
        for statement in statements:
            if statement.startswith("line"):
                line, spans = groups(r"line (\d+):(.*)", statement)
                row = np.zeros(160, np.uint8)
                for span in filter(None, spans.split(",")):
                    color, first, last = groups(r" (\$\w\w) (\d+)(?:-(\d+))?", span)
                    row[int(first) : int(last or first) + 1] = number(color)
                np.testing.assert_array_equal(seen.screen[FIRST + int(line)], row, text)
                continue
            for part in statement.split(", "):
                place, value = groups(r"(\$?\w\w) (?:at|=) (\$?\w+)", part)
                if place in OBJECTS:
                    assert seen.positions[OBJECTS.index(place)] == number(value), text
                else:
                    assert seen.memory[number(place) - 128] == number(value), text


# --- Random programs ---

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
    setup = write(0, 0x01) + bytes([0x85, 0x28, 0x85, 0x29, 0x85, 0x2C])  # VBLANK, RESMPx, CXCLR
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


@pytest.mark.interop
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
    draw = random.Random("-".join(kinds))
    seen = 0
    colors: set[int] = set()
    while seen < 150:
        code = program(kinds, draw)
        if len(code) > LONGEST:
            continue
        seen += 1
        theirs, ours = run(code, FRAMES)
        np.testing.assert_array_equal(ours.screen[:ROWS], theirs.screen[:ROWS], code.hex())
        colors.update(np.unique(ours.screen).tolist())
        assert ours.positions == theirs.positions, code.hex()
        assert ours.collisions == theirs.collisions, code.hex()
    assert colors >= {0x1A, 0x3A, 0x5A, 0x70}
