"""The console equals ale_py's frame by frame, wherever it runs, and survives any state."""

import ctypes
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxenvs.bridge.native import libraries
from jaxenvs.envs.atari import machine
from jaxenvs.envs.atari.rules import games

pytestmark = pytest.mark.skipif(
    not libraries.is_there(libraries.XLA), reason="the compiled part is missing"
)
FRAMES = 400
# Kinds of cartridges, paddles, the second joystick, memory in the cartridge, screens.
EXAMPLES = (
    *("pong", "breakout", "space_invaders", "seaquest", "ms_pacman", "tutankham", "robotank"),
    *("surround", "qbert", "beam_rider", "journey_escape", "air_raid", "darkchambers"),
    "blackjack",
)


def frames_of(console, game, actions, **options):
    """Plays frames, each with an action, and returns what each call returned."""

    def play(game, action):
        game, numbers, pictures = console.play(game, action[None], **options)
        return game, (console.memory(game), numbers, pictures[0])

    return jax.jit(lambda game, actions: jax.lax.scan(play, game, actions))(game, actions)


@pytest.mark.interop
@pytest.mark.parametrize("name", EXAMPLES)
def test_frames_equal_those_of_ale_py(name):
    pytest.importorskip("ale_py")
    from benchmarks.oracles import ale as oracle

    console, ale = machine.Console.load(name), oracle.load(name)
    game, first_line, height = oracle.copy(ale, console.start(25)[0])
    assert (first_line, height) == (console.rules.first_line, console.height)
    assert list(console.rules.minimal) == [each.value for each in ale.getMinimalActionSet()]
    actions = np.random.default_rng(0).choice(console.rules.minimal, FRAMES).astype(np.int32)
    _, found = frames_of(console, jnp.asarray(game), jnp.asarray(actions), show="screen")
    memory, numbers, screens = map(np.asarray, found)
    for i, action in enumerate(actions):
        reward = ale.act(int(action))
        np.testing.assert_array_equal(memory[i], ale.getRAM(), f"frame {i}")
        assert list(numbers[i, :3]) == [reward, ale.lives(), ale.game_over()], f"frame {i}"
        np.testing.assert_array_equal(screens[i], ale.getScreen(), f"frame {i}")
        if ale.game_over():
            break


# Memory that games keep from before, ends of frames, waits, and actions before the start.
@pytest.mark.interop
@pytest.mark.parametrize(
    "name",
    [
        *("krull", "seaquest", "surround", "time_pilot", "space_war", "amidar", "berzerk"),
        *("kaboom", "private_eye", "entombed", "gopher", "casino"),
    ],
)
def test_a_first_start_equals_that_of_ale_py(name):
    pytest.importorskip("ale_py")
    from benchmarks.oracles import ale as oracle

    console, ale = machine.Console.load(name), oracle.load(name)
    game, _, lives = console.start(oracle.TIMERS[0])
    np.testing.assert_array_equal(console.memory(game), ale.getRAM())
    assert lives == ale.lives()
    from_ale, *_ = oracle.copy(ale, game)
    ours, theirs = (oracle.Game.from_buffer_copy(x.tobytes()).console for x in (game, from_ale))
    for register in ("pc", "a", "x", "y", "s", "cycle", "timer", "timer_set", "playfield"):
        assert getattr(ours, register) == getattr(theirs, register), register
    assert list(ours.position) == list(theirs.position)


@pytest.mark.interop
@pytest.mark.parametrize(
    ("name", "mode"),
    [
        *[("space_invaders", 15), ("breakout", 44), ("gopher", 2), ("name_this_game", 24)],
        *[("yars_revenge", 32), ("berzerk", 9), ("demon_attack", 3), ("human_cannonball", 5)],
        *[("double_dunk", 0), ("double_dunk", 5), ("double_dunk", 15), ("word_zapper", 2)],
    ],
)
def test_a_start_in_a_mode_equals_that_of_ale_py(name, mode):
    pytest.importorskip("ale_py")
    from benchmarks.oracles import ale as oracle

    console, ale = machine.Console.load(name, mode=mode), oracle.load(name)
    ale.setMode(mode)
    for timer in oracle.TIMERS[1:]:
        ale.reset_game()
        game, _, lives = console.start(timer)
        np.testing.assert_array_equal(console.memory(game), ale.getRAM())
        assert lives == ale.lives()


def test_batches_equal_single_games_on_any_threads(own_rom):
    console = machine.Console.load("breakout", roms_dir=own_rom)
    starts = np.stack([console.start(25)[0]] * 12)
    starts[:, 0] = range(12)  # a byte of memory that the program keeps
    actions = np.random.default_rng(0).integers(0, 5, (12, 3)).astype(np.int32)
    show = {"show": "resized", "pooled": True, "resized": (20, 16)}

    def batch(threads):
        play = functools.partial(console.play, num_threads=threads, **show)
        return jax.jit(jax.vmap(jax.vmap(play)))(*(x.reshape(3, 4, -1) for x in (starts, actions)))

    single = [
        jax.jit(functools.partial(console.play, **show))(*x)
        for x in zip(starts, actions, strict=True)
    ]
    expected = [np.stack(each) for each in zip(*single, strict=True)]
    for threads in (1, 2, 5):
        for found, one in zip(batch(threads), expected, strict=True):
            np.testing.assert_array_equal(found.reshape(one.shape), one)
    assert len(np.unique(expected[2])) > 5  # there is something to see


def test_frames_of_one_call_equal_those_of_several(own_rom):
    console = machine.Console.load("breakout", roms_dir=own_rom)
    game = jnp.asarray(console.start(25)[0])
    actions = jnp.array([3, 0, 4, 4, 1, 3], jnp.int32)
    after, (_, _, screens) = frames_of(console, game, actions, show="screen")
    for count in (1, 2, 6):
        padded = jnp.where(jnp.arange(6) < count, actions, -1)
        whole, _, shown = console.play(game, padded, show="screen")
        np.testing.assert_array_equal(shown[0], screens[count - 1])
    np.testing.assert_array_equal(whole, after)
    gray = console.play(game, actions, show="grayscale", pooled=True)[2][0]
    last = [console.play(game, actions[:n], show="grayscale")[2][0] for n in (5, 6)]
    np.testing.assert_array_equal(gray, np.maximum(*last))
    stacked = console.play(
        game, actions, show="screen", pictures=jnp.zeros((3, console.height, 160), np.uint8)
    )[2]
    assert stacked.shape == (3, console.height, 160) and not stacked[:2].any()
    np.testing.assert_array_equal(stacked[2], screens[-1])


TIMER = bytes([0xA9, 9, 0x8D])  # LDA #9, STA
LOOPS = {  # what they do before, and what they repeat
    "DEX-BNE": (b"", b"\xca\xd0\xfd"),
    "DEX-BPL": (b"", b"\xca\x10\xfd"),
    "DEY-BNE": (b"", b"\x88\xd0\xfd"),
    "DEY-BPL": (b"", b"\x88\x10\xfd"),
    "LDA-BNE": (TIMER + b"\x95\x02", b"\xad\x84\x02\xd0\xfb"),  # 8 cycles a count
    "LDX-BNE": (TIMER + b"\x96\x02", b"\xae\x84\x02\xd0\xfb"),  # 64
    "LDY-BPL": (TIMER + b"\x95\x02", b"\xac\x84\x02\x10\xfb"),
    "LDA-BPL": (TIMER + b"\x94\x02", b"\xad\x84\x02\x10\xfb"),  # 1, so that it is over
}


@pytest.mark.parametrize("name", LOOPS)
def test_waiting_in_rom_equals_waiting_in_memory(tmp_path, name):
    """The machine skips loops that only wait if they are in ROM."""
    before, loop = LOOPS[name]
    ends = b"\xa9\x02\x85\x00\x85\x02\x85\x02\xa9\x00\x85\x00"  # VSYNC
    found = []
    for place in (0x80, 0xF080):
        code = before + b"\xa2\x4d\xa0\x33" + loop  # LDX #77, LDY #51
        code += b"\x08\x85\xe0\x86\xe1\x84\xe2\x68\x85\xe3"  # PHP; A, X, Y, and the flags
        code += b"\xad\x84\x02\x85\xe4" + ends + b"\x4c" + place.to_bytes(2, "little")
        copies = b"\xa2\x00\xbd\x80\xf0\x95\x80\xe8\xe0\x40\xd0\xf6"
        start = b"\xa2\xff\x9a" + copies + b"\x4c" + place.to_bytes(2, "little")
        rom = start.ljust(0x80, b"\xea") + code
        rom = rom.ljust(0xFFC, b"\xea") + b"\x00\xf0\x00\xf0"
        (tmp_path / f"{place}").mkdir()
        (tmp_path / f"{place}" / "breakout.bin").write_bytes(rom)
        console = machine.Console.load("breakout", roms_dir=str(tmp_path / f"{place}"))
        game, _, _ = console.start()
        found.append(game[0x60:0x65].tolist())
    assert found[0] == found[1] and any(found[0])


def test_any_bytes_are_a_state_and_a_program(tmp_path):
    random = np.random.default_rng(1)
    for size in (2048, 8192):
        for _ in range(3):
            folder = tmp_path / f"{size}{random.integers(1 << 30)}"
            folder.mkdir()
            random.integers(0, 256, size, np.uint8).tofile(folder / "breakout.bin")
            console = machine.Console.load("breakout", roms_dir=str(folder))
            states = random.integers(0, 256, (40, console.size), np.uint8)
            actions = random.integers(-(2**31), 2**31, (40, 8)).astype(np.int32)
            play = jax.vmap(functools.partial(console.play, show="rgb", pooled=True))
            first, second = play(states, abs(actions)), play(states, abs(actions))
            for a, b in zip(first, second, strict=True):
                np.testing.assert_array_equal(a, b)


def test_the_layout_of_a_state_is_that_of_the_tests():
    pytest.importorskip("ale_py")
    from benchmarks.oracles import ale as oracle

    console = machine.Console.load(games()[0])
    assert console.size == ctypes.sizeof(oracle.Game) == 1180  # as the pages say
