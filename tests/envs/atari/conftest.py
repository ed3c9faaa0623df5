"""A game of our own, so that tests need no ROM."""

import numpy as np
import pytest

# A program of 2 KiB: lines of changing colors, a player whose place depends on the joystick, and a
# byte of memory, $8B, that counts frames.
_PROGRAM = """
78 D8 A2 FF 9A A9 00 95 00 CA D0 FB
A9 02 85 00 85 02 85 02 85 02 A9 00 85 00 A9 02 85 01 A2 25 85 02 CA D0 FB
A9 00 85 01 E6 8B A5 80 85 1B A9 5A 85 06 AD 80 02 85 80 A2 C0
85 02 86 09 85 10 CA D0 F7
A9 02 85 01 A2 1E 85 02 CA D0 FB 4C 0C F0
"""


@pytest.fixture
def own_rom(tmp_path):
    """A folder with a program of ours in the place of Breakout."""
    code = bytes.fromhex(_PROGRAM)
    rom = np.zeros(2048, np.uint8)
    rom[: len(code)] = np.frombuffer(code, np.uint8)
    rom[-4:-2] = 0x00, 0xF0
    rom.tofile(tmp_path / "breakout.bin")
    return str(tmp_path)
