import ctypes
import random
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from benchmarks.atari_rules import Scorer, evaluate
from jaxenvs.bridge import native
from jaxenvs.envs.atari.rules import DEPTH, LENGTH, REGISTERS, compile_expression, games, load_rules
from jaxenvs.errors import ParameterError

HEADER = Path(native.__file__).parent / "atari" / "rules.h"
SOURCE = f"""
#include "{HEADER}"
int32_t run(const int32_t *code, const uint8_t *ram, const int32_t *registers) {{
  return at_evaluate(code, ram, registers);
}}
"""
BINARY = ["+", "-", "*", "//", "%", "&", "|", "^", "<<", ">>"]
BINARY += ["==", "!=", "<", "<=", ">", ">=", "and", "or"]


def value(expression, ram=(), **registers):
    return evaluate(compile_expression(expression), ram, registers)


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    """The stack machine in C: (program, ram, registers) -> int."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("rules")
    (folder / "rules.c").write_text(SOURCE)
    library = folder / "rules.so"
    flags = ["-O1", "-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run(["cc", *flags, folder / "rules.c", "-o", library], check=True)
    run = ctypes.CDLL(str(library)).run
    run.restype = ctypes.c_int32

    def call(program, ram, registers):
        arrays = (
            np.ascontiguousarray(program, np.int32),
            np.array(ram, np.uint8),
            np.zeros(16, np.int32),
        )
        for name, number in registers.items():
            arrays[2][REGISTERS.index(name)] = number
        return run(*(ctypes.c_void_p(array.ctypes.data) for array in arrays))

    return call


def an_expression(rng, depth):
    if depth == 0 or rng.random() < 0.1:
        return rng.choice(
            [
                str(rng.choice([0, 1, 7, 255, 2**31 - 1, rng.randrange(1000)])),
                f"ram[{rng.randrange(256)}]",
                f"{rng.choice(['bcd', 'lo', 'hi'])}({rng.randrange(256)})",
                rng.choice(REGISTERS),
            ]
        )
    parts = [an_expression(rng, depth - 1) for _ in range(3)]
    form = rng.randrange(5)
    if form == 0:
        return f"({parts[0]} if {parts[1]} else {parts[2]})"
    if form == 1:
        return f"({rng.choice(['-', '~', 'not '])}{parts[0]})"
    return f"({parts[0]} {rng.choice(BINARY)} {parts[1]})"


def test_numbers_of_a_byte():
    ram = [0] * 128
    ram[5] = 0x97
    assert value("ram[5]", ram) == 0x97
    assert value("bcd(5)", ram) == 97
    assert value("100 * hi(5) + lo(5)", ram) == 907


def test_operators_are_those_of_python():
    assert value("-7 // 2 + (-7 % 3)") == -4 + 2
    assert value("2 + 3 * 4 & 12 | 1 ^ 3") == 2 + 3 * 4 & 12 | 1 ^ 3
    assert value("not 3 or 2 and 5") == 1
    assert value("10 if 1 > 2 else 20 if 2 >= 2 else 30") == 20
    assert value("~5 << 33 >> 1") == ~5 << 1 >> 1


def test_results_wrap_and_nothing_divides_by_zero():
    assert value("2147483647 + 1") == -(2**31)
    assert value("(-2147483647 - 1) // -1") == -(2**31)
    assert value("5 // 0") == value("5 % 0") == 0


def test_machine_in_c_equals_python(machine):
    rng = random.Random(0)
    for _ in range(300):
        expression = an_expression(rng, rng.randrange(5))
        program = compile_expression(expression)
        ram = [rng.randrange(256) for _ in range(256)]
        registers = {name: rng.randrange(-(2**31), 2**31) for name in REGISTERS}
        expected = evaluate(program, ram, registers)
        assert machine(program, ram, registers) == expected, expression


def test_machine_in_c_survives_any_program(machine):
    rng = np.random.default_rng(0)
    for _ in range(300):
        program = rng.integers(-(2**31), 2**31, (LENGTH, 2), np.int32)
        program[:, 0] = rng.integers(-2, 40, LENGTH)
        program[program[:, 0] == 0, 0] = 1  # so that it does not end early
        machine(program, rng.integers(0, 256, 256), {})


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("ram[256]", "0 to 255"),
        ("bcd(-1)", "0 to 255"),
        ("ram[ram[0]]", "0 to 255"),
        ("lo(1, 2)", "cannot be compiled"),
        ("1.5", "cannot be compiled"),
        ("True", "cannot be compiled"),
        ("lifes", "'lifes'"),
        ("1 < 2 < 3", "cannot be compiled"),
        ("2 ** 3", "cannot be compiled"),
        ("2147483648", "cannot be compiled"),
        ("exec('1')", "cannot be compiled"),
        ("1 +", "not an expression"),
        (" + ".join(["1"] * LENGTH), "instructions"),
        ("(1 + " * DEPTH + "1" + ")" * DEPTH, "on the stack"),
    ],
)
def test_error_of_a_bad_expression(expression, words):
    with pytest.raises(ParameterError, match=words):
        compile_expression(expression)


def test_stages_cannot_read_later_registers():
    with pytest.raises(ParameterError, match="'lives'"):
        compile_expression("lives == 0", known=("score",))


def test_unknown_game_is_an_error():
    with pytest.raises(ParameterError, match="breakout"):
        load_rules("brekout")


def test_rules_of_all_games_are_complete():
    for game in games():
        rules = load_rules(game)
        assert {"score", "over"} <= set(rules.programs), game
        assert rules.mode in rules.modes, game
        assert rules.difficulty in rules.difficulties, game
        assert set(rules.minimal) <= set(range(18)), game


def test_scorer_remembers_from_frame_to_frame():
    rules = load_rules("breakout")  # over needs five lives before
    ram = [0] * 128
    scorer = Scorer(rules, ram)
    assert scorer.step(ram) == (0, 0, False)
    ram[57], ram[77] = 5, 0x21
    assert scorer.step(ram) == (21, 5, False)
    ram[57], ram[76] = 0, 0x01
    assert scorer.step(ram) == (100, 0, True)


@pytest.mark.interop
@pytest.mark.parametrize("game", ["asteroids", "breakout", "pong", "qbert", "tennis"])
@pytest.mark.parametrize("pokes", [0.0, 0.05])
def test_rules_equal_ale_py(game, pokes):
    pytest.importorskip("ale_py")
    from benchmarks.atari_rules import compare

    found = compare(game, 500, pokes)
    assert found["first"] is None
    assert not any(found["mismatches"].values())


@pytest.mark.interop
def test_tables_are_those_of_ale_py():
    pytest.importorskip("ale_py")
    from benchmarks.oracles import ale as oracle

    for game in games()[::4]:
        ale, rules = oracle.load(game), load_rules(game)
        assert [action.value for action in ale.getMinimalActionSet()] == [*rules.minimal], game
        assert ale.getAvailableModes() == [*rules.modes], game
        assert ale.getAvailableDifficulties() == [*rules.difficulties], game
        assert ale.getScreenDims() == (rules.height, 160), game
        state = ale.cloneState()
        assert (state.getCurrentMode(), state.getDifficulty()) == (rules.mode, rules.difficulty)
