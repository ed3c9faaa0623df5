"""`jaxenvs info`."""

import argparse
import ast
import dataclasses
import functools
import inspect
import io
import textwrap
import tokenize
from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

import jaxenvs
from jaxenvs import struct
from jaxenvs.bridge.foreign.ids import is_vectorized_id
from jaxenvs.cli._console import console, plain, table
from jaxenvs.factory import is_hosted
from jaxenvs.registry import find


def run(options: argparse.Namespace) -> None:
    """Prints a description of `options.id`."""
    if is_hosted(options.id):
        _print_hosted(options.id)
        return
    env = jaxenvs.make(options.id)
    spec, cls = find(options.id), type(env.unwrapped)
    facts = {
        "class": f"{cls.__module__}.{cls.__qualname__}",
        "family": spec.family,
        "observation": env.observation_space,
        "action": env.action_space,
        "time limit": "none" if env.time_limit is None else f"{env.time_limit} steps",
        "solved at": "-" if spec.reward_threshold is None else f"{spec.reward_threshold}",
        "source": spec.source or "-",
        "compared with": spec.compared_with or "-",
    }
    if spec.wrappers:
        facts["wrapped in"] = ", ".join(
            f"{name.partition(':')[2]}({', '.join(f'{x}={y}' for x, y in given.items())})"
            for name, given in spec.wrappers.items()
        )
    parameters = table("parameter", "default", "unit and meaning", title="Parameters")
    described = describe_parameters(env.unwrapped)
    for name, default, comment, is_static in described:
        notes = [comment, "recompiles"] if is_static else [comment]
        parameters.add_row(
            f"[bold]{name}[/]", plain(default), plain("; ".join(filter(None, notes)))
        )

    out = console()
    out.print(f"[bold]{spec.id}[/]\n")
    out.print(plain(inspect.getdoc(cls) or ""))
    out.print(_two_columns(facts))
    out.print(parameters)
    if described:
        out.print(plain(f'Set a parameter: jaxenvs.make("{spec.id}", {described[0][0]}=...)'))


def _print_hosted(id: str) -> None:
    backend = "native" if is_vectorized_id(id) else "serial"
    with jaxenvs.make_pool(id, 1, backend=backend) as pool:
        limit = getattr(pool.spec, "max_episode_steps", None)
        threshold = getattr(pool.spec, "reward_threshold", None)
        facts = {
            "runs": "on the host, in a pool; inside jit through HostEnv",
            "observation": pool.single_observation_space,
            "action": pool.single_action_space,
            "time limit": "unknown" if limit is None else f"{limit} steps",
            "solved at": "-" if threshold is None else f"{threshold}",
        }
    out = console()
    out.print(f"[bold]{id}[/]\n")
    out.print(_two_columns(facts))
    out.print(plain(f'Make a batch: jaxenvs.make_pool("{id}", num_envs), or make_vec for jit.'))


def _two_columns(facts: Mapping[str, object]) -> Any:
    shown = table("", "")
    shown.show_header = False
    for name, value in facts.items():
        shown.add_row(f"[bold]{name}[/]", plain(value))
    return shown


def describe_parameters(env: Any) -> list[tuple[str, Any, str, bool]]:
    """Returns (name, value, comment, static) for each parameter of an environment, in order.

    The comment is that on the field's line in the source, with unit and meaning, or that in a base
    class; it is empty if the source cannot be read. It starts with the other values if the field is
    a `Literal`.
    """
    comments = dict(field_comments(type(env)))
    for name, hint in get_type_hints(type(env)).items():
        if get_origin(hint) is Literal:
            others = [repr(value) for value in get_args(hint) if value != getattr(env, name)]
            comments[name] = "; ".join(
                filter(None, [f"or {', '.join(others)}", comments.get(name, "")])
            )
    static = {field.name for field in dataclasses.fields(env) if struct.is_static(field)}
    return [
        (name, value, comments.get(name, ""), name in static)
        for name, value in env.parameters.items()
    ]


@functools.cache  # classes share their bases, and parsing is slow
def field_comments(cls: type) -> dict[str, str]:
    """Returns the comments on the lines that declare the fields of `cls` and of its bases."""
    comments: dict[str, str] = {}
    for base in reversed(cls.__bases__):
        comments |= field_comments(base)
    try:
        source = textwrap.dedent(inspect.getsource(cls))
    except (OSError, TypeError):  # a built-in class, or one from a prompt
        return comments
    on_line = {
        token.start[0]: token.string.lstrip("# ").rstrip()
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    for node in getattr(ast.parse(source).body[0], "body", []):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name = node.target.id
            comments[name] = on_line.get(node.end_lineno or 0) or comments.get(name, "")
    return comments
