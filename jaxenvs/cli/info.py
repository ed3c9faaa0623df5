"""`jaxenvs info`."""

import argparse
import ast
import dataclasses
import functools
import inspect
import io
import json
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

Report = dict[str, Any]


def run(options: argparse.Namespace) -> None:
    """Prints a description of `options.id`."""
    report = _hosted(options.id) if is_hosted(options.id) else _native(options.id)
    if options.json:
        print(json.dumps(report, indent=2, default=_as_json))
    else:
        _show_hosted(report) if report["hosted"] else _show_native(report)


def _native(id: str) -> Report:
    env = jaxenvs.make(id)
    spec, cls = find(id), type(env.unwrapped)
    return {
        "id": spec.id,
        "hosted": False,
        "class": f"{cls.__module__}.{cls.__qualname__}",
        "family": spec.family,
        "description": inspect.getdoc(cls) or "",
        "observation_space": f"{env.observation_space}",
        "action_space": f"{env.action_space}",
        "time_limit": env.time_limit,
        "reward_threshold": spec.reward_threshold,
        "source": spec.source,
        "compared_with": spec.compared_with,
        "wrappers": [
            {"name": name.partition(":")[2], "arguments": dict(arguments)}
            for name, arguments in spec.wrappers.items()
        ],
        "parameters": [
            {"name": name, "default": default, "comment": comment, "recompiles": is_static}
            for name, default, comment, is_static in describe_parameters(env.unwrapped)
        ],
    }


def _hosted(id: str) -> Report:
    backend = "native" if is_vectorized_id(id) else "serial"
    with jaxenvs.make_pool(id, 1, backend=backend) as pool:
        return {
            "id": id,
            "hosted": True,
            "observation_space": f"{pool.single_observation_space}",
            "action_space": f"{pool.single_action_space}",
            "time_limit": getattr(pool.spec, "max_episode_steps", None),
            "reward_threshold": getattr(pool.spec, "reward_threshold", None),
        }


def _as_json(value: Any) -> Any:
    """Returns an array as lists of numbers, a class as its name, and other values as text."""
    return value.tolist() if hasattr(value, "tolist") else getattr(value, "__name__", f"{value}")


def _show_native(report: Report) -> None:
    facts = {
        "class": report["class"],
        "family": report["family"],
        **_spaces_and_limits(report, no_limit="none"),
        "source": report["source"] or "-",
        "compared with": report["compared_with"] or "-",
    }
    if report["wrappers"]:
        facts["wrapped in"] = ", ".join(
            f"{each['name']}({', '.join(f'{x}={y}' for x, y in each['arguments'].items())})"
            for each in report["wrappers"]
        )
    parameters = table("parameter", "default", "unit and meaning", title="Parameters")
    for each in report["parameters"]:
        notes = [each["comment"], "recompiles"] if each["recompiles"] else [each["comment"]]
        parameters.add_row(
            f"[bold]{each['name']}[/]",
            plain(each["default"]),
            plain("; ".join(filter(None, notes))),
        )
    out = console()
    out.print(f"[bold]{report['id']}[/]\n")
    out.print(plain(report["description"]))
    out.print(_two_columns(facts))
    out.print(parameters)
    if report["parameters"]:
        name = report["parameters"][0]["name"]
        out.print(plain(f'Set a parameter: jaxenvs.make("{report["id"]}", {name}=...)'))


def _show_hosted(report: Report) -> None:
    runs = {"runs": "on the host, in a pool; inside jit through HostEnv"}
    out = console()
    out.print(f"[bold]{report['id']}[/]\n")
    out.print(_two_columns(runs | _spaces_and_limits(report, no_limit="unknown")))
    id = report["id"]
    out.print(plain(f'Make a batch: jaxenvs.make_pool("{id}", num_envs), or make_vec for jit.'))


def _spaces_and_limits(report: Report, no_limit: str) -> dict[str, str]:
    limit, threshold = report["time_limit"], report["reward_threshold"]
    return {
        "observation": report["observation_space"],
        "action": report["action_space"],
        "time limit": no_limit if limit is None else f"{limit} steps",
        "solved at": "-" if threshold is None else f"{threshold}",
    }


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
