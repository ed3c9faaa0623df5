"""`jaxenvs info`."""

import argparse
import ast
import dataclasses
import inspect
import io
import textwrap
import tokenize
from typing import Any, Literal, get_args, get_origin, get_type_hints

import jaxenvs
from jaxenvs import struct
from jaxenvs.cli._console import console, table
from jaxenvs.registry import find


def run(options: argparse.Namespace) -> None:
    """Prints what is known of `options.id`."""
    spec, env = find(options.id), jaxenvs.make(options.id)
    cls = type(env.unwrapped)
    facts = table("", "")
    facts.show_header = False
    for name, value in {
        "class": f"{cls.__module__}.{cls.__qualname__}",
        "family": spec.family,
        "observation": env.observation_space,
        "action": env.action_space,
        "time limit": "none" if spec.time_limit is None else f"{spec.time_limit} steps",
        "solved from": "-" if spec.reward_threshold is None else f"{spec.reward_threshold}",
        "source": spec.source or "-",
        "proven against": spec.proven_against or "-",
    }.items():
        facts.add_row(f"[bold]{name}[/]", _plain(value))

    parameters = table("parameter", "default", "unit and meaning", title="Parameters")
    for name, default, comment, is_static in describe_parameters(env.unwrapped):
        notes = [comment, "compiles anew"] if is_static else [comment]
        parameters.add_row(
            f"[bold]{name}[/]", _plain(default), _plain("; ".join(filter(None, notes)))
        )

    out = console()
    out.print(f"[bold]{spec.id}[/]\n")
    out.print(_plain(inspect.getdoc(cls) or ""))
    out.print(facts)
    out.print(parameters)
    if parameters.row_count:
        name = describe_parameters(env.unwrapped)[0][0]
        out.print(_plain(f'Change one: jaxenvs.make("{spec.id}", {name}=...)'))


def describe_parameters(env: Any) -> list[tuple[str, Any, str, bool]]:
    """(name, value, comment, static) for each field of an environment, in order.

    The comment is the one on the field's line in the source, where units and meanings stand;
    it is empty where the source cannot be read. What a `Literal` allows besides stands before it.
    """
    comments: dict[str, str] = {}
    for cls in reversed(type(env).__mro__):
        comments.update(field_comments(cls))
    for name, hint in get_type_hints(type(env)).items():
        if get_origin(hint) is Literal:
            others = [repr(value) for value in get_args(hint) if value != getattr(env, name)]
            comments[name] = "; ".join(
                filter(None, [f"or {', '.join(others)}", comments.get(name, "")])
            )
    return [
        (
            field.name,
            getattr(env, field.name),
            comments.get(field.name, ""),
            struct.is_static(field),
        )
        for field in dataclasses.fields(env)
    ]


def field_comments(cls: type) -> dict[str, str]:
    """What is written behind `#` on the lines that declare the fields of `cls`."""
    try:
        source = textwrap.dedent(inspect.getsource(cls))
    except (OSError, TypeError):  # a class of the interpreter, or one typed into a prompt
        return {}
    on_line = {
        token.start[0]: token.string.lstrip("# ").rstrip()
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    definition = ast.parse(source).body[0]
    return {
        node.target.id: on_line.get(node.end_lineno or node.lineno, "")
        for node in getattr(definition, "body", [])
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


def _plain(value: object) -> str:
    """Text that rich prints as it is: brackets are no markup."""
    text = value.__name__ if isinstance(value, type) else f"{value}"
    return text.replace("[", r"\[")
