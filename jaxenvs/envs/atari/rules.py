"""How reward, lives, and the end of an episode follow from the RAM of an Atari 2600.

`games.toml` has expressions for each game. They are a subset of Python on int32 numbers:

- `ram[i]`: the byte at address $80 + i, or from 128 on that of the cartridge's own memory.
  `bcd(i)`: its two decimal digits as a number, `10 * hi(i) + lo(i)`. `hi(i)` and `lo(i)`: its upper
  and lower four bits.
- `+ - * // % & | ^ << >>`, `~`, comparisons, `and`, `or`, `not`, `a if c else b`. Results wrap to
  32 bits. Comparisons, `and`, `or` and `not` are 0 or 1. A shift takes the amount modulo 32, and a
  division by zero is zero.
- Names of registers. `flag` and `count` are memory: 0 at a reset, updated once a frame by the
  expressions of the same names. `old_flag`, `old_count`, `old_score` and `old_lives` are the values
  one frame earlier.

In each frame, `flag` is evaluated first, then `count`, `score`, `over`, `lives`, and `reward`; an
expression may read what precedes it. Without an expression for it, the reward is `score -
old_score`. At a reset all registers are 0, and `score`, `over` and `lives` are evaluated, which
makes `old_score` and `old_lives` of the first frame.

`select`, which says which mode the game has, reads the RAM only.

An expression is compiled to a program for the stack machine in bridge/native/atari/rules.h.
"""

import ast
import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jaxenvs.errors import ParameterError

GAMES = Path(__file__).with_name("games.toml")

LENGTH = 128  # instructions of a program
DEPTH = 16  # numbers on the stack
STAGES = ("flag", "count", "score", "over", "lives", "reward")  # in order of evaluation
PROGRAMS = (*STAGES, "select")
REGISTERS = (*STAGES[:5], "old_flag", "old_count", "old_score", "old_lives")

Program = np.ndarray  # int32[LENGTH, 2]: operation, argument; zeros follow the last instruction

# Those before ADD push a number, those from NEGATIVE to NOT replace one, SELECT takes three and
# pushes one, and the others take two. The same numbers are in rules.h.
_NAMES = (
    "END CONSTANT RAM BCD HIGH LOW REGISTER"
    " ADD SUBTRACT MULTIPLY DIVIDE MODULO AND OR XOR LEFT RIGHT"
    " EQUAL UNEQUAL LESS LESS_EQUAL GREATER GREATER_EQUAL BOTH EITHER"
    " NEGATIVE INVERT NOT SELECT"
)
OPERATIONS = _NAMES.split()
NUMBER = {name: number for number, name in enumerate(OPERATIONS)}
_BINARY: dict[type[ast.AST], str] = {
    ast.Add: "ADD",
    ast.Sub: "SUBTRACT",
    ast.Mult: "MULTIPLY",
    ast.FloorDiv: "DIVIDE",
    ast.Mod: "MODULO",
    ast.BitAnd: "AND",
    ast.BitOr: "OR",
    ast.BitXor: "XOR",
    ast.LShift: "LEFT",
    ast.RShift: "RIGHT",
    ast.Eq: "EQUAL",
    ast.NotEq: "UNEQUAL",
    ast.Lt: "LESS",
    ast.LtE: "LESS_EQUAL",
    ast.Gt: "GREATER",
    ast.GtE: "GREATER_EQUAL",
}
_UNARY: dict[type[ast.AST], str] = {ast.USub: "NEGATIVE", ast.Invert: "INVERT", ast.Not: "NOT"}
_BYTES = {"bcd": "BCD", "hi": "HIGH", "lo": "LOW"}


@dataclass(frozen=True)
class Rules:
    """The rules of a game; see `games.toml` for the meaning of each field."""

    programs: Mapping[str, Program]  # those of `PROGRAMS` that the game has
    wait: int
    hold: int
    start: tuple[tuple[int, int | str], ...]
    minimal: tuple[int, ...]
    modes: tuple[int, ...]
    difficulties: tuple[int, ...]
    mode: int
    difficulty: int
    height: int
    first_line: int
    comb: bool
    cartridge: str | None
    lacks: str | None
    paddle: int  # or -1
    second: bool


def load_rules(game: str) -> Rules:
    """Returns the rules of a game, by the name of its ROM in ale_py, such as "breakout".

    Raises:
        ParameterError: there is no such game.
    """
    table = _table()
    if game not in table:
        raise ParameterError(
            f"no rules for the game {game!r}; there are rules for {', '.join(sorted(table))}."
        )
    entry = table[game]
    programs = {
        stage: compile_expression(entry[stage], known=_known(stage))
        for stage in PROGRAMS
        if stage in entry
    }
    return Rules(
        programs=programs,
        wait=entry.get("wait", 0),
        hold=entry.get("hold", 2),
        start=tuple((action, frames) for action, frames in entry.get("start", ())),
        minimal=tuple(entry.get("minimal", range(18))),
        modes=tuple(entry["modes"]),
        difficulties=tuple(entry.get("difficulties", (0,))),
        mode=entry.get("mode", entry["modes"][0]),
        difficulty=entry.get("difficulty", 0),
        height=entry.get("height", 210),
        first_line=entry.get("first_line", 34),
        comb=entry.get("comb", True),
        cartridge=entry.get("cartridge"),
        lacks=entry.get("lacks"),
        paddle=entry.get("paddle", -1),
        second=entry.get("second", False),
    )


def games() -> tuple[str, ...]:
    """Returns the names of all games that the console plays."""
    return tuple(game for game, entry in _table().items() if "lacks" not in entry)


def compile_expression(expression: str, *, known: tuple[str, ...] = REGISTERS) -> Program:
    """Compiles an expression to a program.

    Args:
        expression: see the description of the module.
        known: the registers that it may read.

    Returns:
        int32[LENGTH, 2]: operations and their arguments.

    Raises:
        ParameterError: it is not an expression of this language, or too long.
    """
    try:
        tree = ast.parse(" ".join(expression.split()), mode="eval").body
    except SyntaxError as error:
        raise ParameterError(f"{expression!r} is not an expression: {error.msg}.") from None
    code: list[tuple[int, int]] = []
    _emit(tree, code, known, expression)
    if len(code) >= LENGTH:
        raise ParameterError(
            f"{expression!r} takes {len(code)} instructions; expected at most {LENGTH - 1}."
        )
    deepest = _deepest(code)
    if deepest > DEPTH:
        raise ParameterError(
            f"{expression!r} needs {deepest} numbers on the stack; expected at most {DEPTH}."
            "  Write sums as `a + b + c`, and set the more complex operand first."
        )
    program = np.zeros((LENGTH, 2), np.int32)
    program[: len(code)] = code
    return program


@functools.cache
def _table() -> dict[str, Any]:
    return tomllib.loads(GAMES.read_text(encoding="utf-8"))


def _known(stage: str) -> tuple[str, ...]:
    # What a stage may read: the registers evaluated before it, and all of the frame before.
    if stage not in STAGES:
        return ()
    before = STAGES[: STAGES.index(stage)]
    return tuple(name for name in REGISTERS if name in before or name.startswith("old_"))


def _emit(node: ast.AST, code: list[tuple[int, int]], known: tuple[str, ...], whole: str) -> None:
    # Appends the instructions that push the value of a node.
    def push(operation: str, argument: int = 0) -> None:
        code.append((NUMBER[operation], argument))

    def emit(*nodes: ast.AST) -> None:
        for operand in nodes:
            _emit(operand, code, known, whole)

    match node:
        case ast.Constant(value=bool()):
            raise _unknown(node, whole)
        case ast.Constant(value=int(value)) if value < 2**31:
            push("CONSTANT", value)
        case ast.Name(id=name) if name in known:
            push("REGISTER", REGISTERS.index(name))
        case ast.Subscript(value=ast.Name(id="ram"), slice=address):
            push("RAM", _address(address, whole))
        case ast.Call(func=ast.Name(id=name), args=[address], keywords=[]) if name in _BYTES:
            push(_BYTES[name], _address(address, whole))
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _BINARY:
            emit(left, right)
            push(_BINARY[type(operator)])
        case ast.Compare(left=left, ops=[operator], comparators=[right]) if (
            type(operator) in _BINARY
        ):
            emit(left, right)
            push(_BINARY[type(operator)])
        case ast.UnaryOp(op=operator, operand=operand) if type(operator) in _UNARY:
            emit(operand)
            push(_UNARY[type(operator)])
        case ast.IfExp(test=test, body=then, orelse=otherwise):
            emit(test, then, otherwise)
            push("SELECT")
        case ast.BoolOp(op=operator, values=[first, *others]):
            emit(first)
            for operand in others:
                emit(operand)
                push("BOTH" if isinstance(operator, ast.And) else "EITHER")
        case _:
            raise _unknown(node, whole)


def _address(node: ast.AST, whole: str) -> int:
    match node:
        case ast.Constant(value=int(address)) if 0 <= address < 256:
            return address
        case _:
            raise ParameterError(
                f"{ast.unparse(node)!r} in {whole!r} is not an address; expected 0 to 255."
            )


def _unknown(node: ast.AST, whole: str) -> ParameterError:
    return ParameterError(
        f"{ast.unparse(node)!r} in {whole!r} cannot be compiled; expected integers, ram[i], bcd(i),"
        " hi(i), lo(i), registers evaluated before, and operators of the language in rules.py."
    )


def _deepest(code: list[tuple[int, int]]) -> int:
    depth = deepest = 0
    for number, _ in code:
        operation = OPERATIONS[number]
        if number < NUMBER["ADD"]:
            depth += 1
        elif operation == "SELECT":
            depth -= 2
        elif number < NUMBER["NEGATIVE"]:
            depth -= 1
        deepest = max(deepest, depth)
    return deepest
