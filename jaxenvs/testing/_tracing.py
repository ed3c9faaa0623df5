"""The checks that only trace: types, structure, purity and programs, at no run time."""

import dataclasses
import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.errors import KeyReuseError

from jaxenvs import spaces, struct
from jaxenvs.core import Environment, TimeStep
from jaxenvs.errors import RenderError
from jaxenvs.testing._findings import Findings, describe, leaves_by_path, space_mismatches
from jaxenvs.testing._purity import attributes, layers, program, same

_STATIC = (
    "Parameters are leaves: convert them to the type that they meet, and declare with"
    " struct.static(...) those that decide a shape or Python's control flow."
)
N = 3  # instances in the checks of vmap; prime, so that it meets no other axis by chance


def x64(on: bool) -> AbstractContextManager[Any]:
    """Turns 64-bit types on or off for a while, by the name that this JAX has for it."""
    switch = getattr(jax, "enable_x64", None)
    if switch is None:
        from jax.experimental import (  # before JAX 0.8
            enable_x64 as switch,  # pyright: ignore[reportAttributeAccessIssue]
        )
    return switch(on)


@dataclasses.dataclass
class Traced:
    """One instance as types: what `reset` and `step` take and return."""

    env: Environment
    key: jax.Array
    action: Any
    state: Any  # from reset
    timestep: TimeStep
    next_state: Any  # from step
    next_timestep: TimeStep

    def result(self, name: str) -> tuple[Any, TimeStep]:
        """What the method `name` returns."""
        if name == "reset":
            return self.state, self.timestep
        return self.next_state, self.next_timestep


def check_environment(env: Any, findings: Findings) -> None:
    """An `Environment` whose leaves are numbers and whose static fields are hashable."""
    if not isinstance(env, Environment):
        instead = "Subclass jaxenvs.Environment; of a vectorized environment, check the single one."
        if hasattr(env, "pools"):  # a HostEnv
            instead = (
                "What is not JAX has no trace and no states to repeat. Let"
                " gymnasium.utils.env_checker.check_env check one of its environments, and"
                " make_pool(..., validate=True) every answer."
            )
        findings.add("environment", f"{type(env).__name__} is not an Environment", instead)
        return
    for path, leaf in leaves_by_path(env, type(env).__name__).items():
        if not isinstance(leaf, bool | int | float | complex | np.ndarray | np.generic | jax.Array):
            findings.add(
                "environment",
                f"the parameter {path} is a {type(leaf).__name__}, not a number or an array",
                "Declare it with struct.static(...), or make it numeric.",
            )
    for layer in layers(env):
        for field in dataclasses.fields(layer):
            if not struct.is_static(field):
                continue
            try:
                hash(getattr(layer, field.name))
            except TypeError as error:
                doing = f"hashing the static field {type(layer).__name__}.{field.name}"
                findings.crash("environment", doing, error)
    for name in ("observation_space", "action_space"):
        try:
            space = getattr(env, name)
        except Exception as error:
            findings.crash("environment", name, error)
            continue
        if not isinstance(space, spaces.Space):
            findings.add(
                "environment",
                f"{name} is a {type(space).__name__}",
                "Return one of jaxenvs.spaces; spaces.from_gymnasium converts Gymnasium's.",
            )


def trace(env: Environment, seed: int, findings: Findings) -> Traced | None:
    """Traces `reset` and `step`, watching for side effects; None where either fails."""
    key = jax.random.key(seed)
    try:
        action = jax.eval_shape(lambda key: env.action_space.sample(key), key)
    except Exception as error:
        findings.crash("trace", "action_space.sample(key)", error)
        return None
    before = attributes(env)
    reset = _trace_call("reset(key)", env.reset, (key,), findings)
    if reset is None:
        return None
    given = describe_all(action)
    step = _trace_call(
        f"step(state, action, key) with an action of action_space, {given},",
        env.step,
        (reset[0], action, key),
        findings,
    )
    after = attributes(env)
    for name in before.keys() | after.keys():
        if name not in before or name not in after or not same(before[name], after[name]):
            findings.add(
                "purity",
                f"{name} changed while reset and step were traced",
                "Keep what changes in the state: Python runs once per compilation, not per step.",
            )
    if step is None:
        return None
    return Traced(env, key, action, *reset, *step)


def _trace_call(
    doing: str, function: Callable[..., Any], args: tuple[Any, ...], findings: Findings
) -> tuple[Any, TimeStep] | None:
    mutated: set[str] = set()

    def watched(*args: Any) -> Any:
        before = leaves_by_path(args, "")
        result = function(*args)
        after = leaves_by_path(args, "")
        for path in before.keys() | after.keys():
            if before.get(path) is not after.get(path):
                mutated.add(path)
        return result

    name = doing.split("(")[0]
    try:
        result = jax.eval_shape(watched, *args)
    except Exception as error:
        findings.crash("trace", doing, error)
        return None
    for path in sorted(mutated):
        findings.add(
            "purity",
            f"{name} changed its argument in place, at {path}",
            "Build a new container: the caller still holds the old one.",
        )
    if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], TimeStep)):
        kinds = (
            ", ".join(type(part).__name__ for part in result) if isinstance(result, tuple) else ""
        )
        findings.add(
            "trace",
            f"{name} returned {f'({kinds})' if kinds else type(result).__name__};"
            " it must return (state, TimeStep)",
            "Build the timestep with TimeStep.first(...) or TimeStep.transition(...).",
        )
        return None
    return result


def check_leaks(traced: Traced, findings: Findings) -> None:
    """No traced value outlives its trace."""
    env = traced.env
    for name, args in _calls(traced):
        try:
            with jax.checking_leaks():
                jax.eval_shape(_call(name, env), *args)
        except Exception as error:
            if "Leaked" not in str(error):
                findings.crash("leak", f"{name}, traced with jax.checking_leaks(),", error)
                continue
            findings.cause = findings.cause or error
            findings.add(
                "leak",
                f"{name} leaked a traced value: it is still reachable after the trace ended",
                "Store no array in globals, closures or caches; return it in the state.",
            )


def check_key_reuse(traced: Traced, findings: Findings) -> None:
    """No key is drawn from twice."""
    env = traced.env
    for name, args in _calls(traced):
        # A new function, since what was traced before is not looked at again.
        call, shapes = _call(name, env), jax.eval_shape(lambda args: args, args)
        try:
            with jax.debug_key_reuse(True):
                jax.jit(lambda args, call=call: call(*args)).trace(shapes)
        except KeyReuseError as error:
            findings.cause = findings.cause or error
            findings.add(
                "keys",
                f"{name} uses a key twice: {str(error).splitlines()[0]}",
                "Split the key, and draw once from each part.",
            )


def check_timesteps(traced: Traced, findings: Findings, float64: bool) -> None:
    """Dtypes and shapes of timesteps, weak types, observations against their space, info."""
    rewards = [jnp.dtype(np.float64 if float64 else np.float32)]
    for source in ("reset", "step"):
        state, timestep = traced.result(source)
        _check_scalar(
            f"{source}'s timestep.reward",
            timestep.reward,
            rewards,
            findings,
            "reward",
            "TimeStep.transition(reward=...) converts it.",
        )
        for flag in ("terminated", "truncated"):
            _check_scalar(
                f"{source}'s timestep.{flag}",
                getattr(timestep, flag),
                [jnp.dtype(bool)],
                findings,
                "flags",
                "Flags are booleans and stay apart: the task ended, or was cut short.",
            )
        for path, leaf in _named(state, timestep).items():
            if getattr(leaf, "weak_type", False):
                findings.add(
                    "weak type",
                    f"{source}'s {path} is {describe(leaf)}",
                    "It was made from a Python number and changes type under promotion or x64:"
                    f" write jnp.{leaf.dtype}(...).",
                )
        for problem in space_mismatches(
            traced.env.observation_space, timestep.observation, f"{source}'s timestep.observation"
        ):
            findings.add("observation space", problem, "Change the observation or the space.")
        if not isinstance(timestep.info, Mapping) or not all(
            isinstance(name, str) for name in timestep.info
        ):
            findings.add(
                "info",
                f"{source}'s timestep.info is {timestep.info!r}",
                "It must be a dict from names to arrays; {} if there is nothing to say.",
            )
        if timestep.final_observation is not None:
            findings.add(
                "tree",
                f"{source} set timestep.final_observation",
                "Leave it None: it is the vectorizer's.",
            )


def _check_scalar(
    path: str, leaf: Any, dtypes: list[Any], findings: Findings, check: str, fix: str
) -> None:
    shape, dtype = getattr(leaf, "shape", None), getattr(leaf, "dtype", None)
    if shape != () or dtype not in dtypes:
        found = describe(leaf) if dtype is not None else f"a {type(leaf).__name__}"
        findings.add(check, f"{path} is {found}; it must be {dtypes[0]}[]", fix)


def check_trees(traced: Traced, findings: Findings) -> None:
    """`reset` and `step` return the same tree, so that either can seed a scan's carry."""
    keys, next_keys = (
        set(timestep.info) if isinstance(timestep.info, Mapping) else set()
        for timestep in (traced.timestep, traced.next_timestep)
    )
    if keys != next_keys:
        findings.add(
            "info",
            f"info has the keys {sorted(keys)} from reset and {sorted(next_keys)} from step",
            "Give both the same keys; from reset, zeros of the right type will do.",
        )
    first = _named(traced.state, traced.timestep)
    later = _named(traced.next_state, traced.next_timestep)
    fix = "Both must return the same structure, shapes and dtypes, to serve as the carry of a scan."
    for path in sorted(first.keys() ^ later.keys()):
        if ".info" in path and keys != next_keys:
            continue
        has, lacks = ("reset", "step") if path in first else ("step", "reset")
        findings.add("tree", f"{path} comes from {has} and not from {lacks}", fix)
    for path in sorted(first.keys() & later.keys()):
        if (first[path].shape, first[path].dtype) != (later[path].shape, later[path].dtype):
            found = f"{path} is {describe(first[path])} from reset"
            findings.add("tree", f"{found} and {describe(later[path])} from step", fix)
    structures = [jax.tree.structure(traced.result(name)) for name in ("reset", "step")]
    if structures[0] != structures[1] and not findings.found("tree", "info"):
        findings.add(
            "tree",
            "reset and step return containers of different types or with different static fields",
            fix,
        )


def check_x64(traced: Traced, findings: Findings) -> None:
    """The same dtypes with 64-bit types enabled."""
    env = traced.env
    for name, args in _calls(traced):
        try:
            with x64(True):
                state, timestep = jax.eval_shape(_call(name, env), *args)
        except Exception as error:
            findings.crash("x64", f"{name}, traced with jax_enable_x64,", error)
            continue
        expected = _named(*traced.result(name))
        for path, leaf in _named(state, timestep).items():
            # Weak types are told of already.
            if path in expected and leaf.dtype != expected[path].dtype and not leaf.weak_type:
                findings.add(
                    "x64",
                    f"{name}'s {path} is {leaf.dtype} with jax_enable_x64 and"
                    f" {expected[path].dtype} without",
                    f"Give the dtype: an array made without one, write jnp.{expected[path].dtype}"
                    " or dtype=....",
                )


def check_vmap(traced: Traced, findings: Findings) -> None:
    """A batch of states gives a batch of the same, and so does a batch of parameters."""
    env = traced.env
    parameters = jax.tree.map(_parameter_type, env)
    _check_batch("vmap", "vmap over states and actions", env, None, traced, findings)
    if findings.found("parameters", "vmap") or not jax.tree.leaves(parameters):
        return
    doing = "vmap over a batch of parameters"
    _check_batch("parameters", doing, _batched(parameters), 0, traced, findings)


def _check_batch(
    check: str, doing: str, env: Environment, axis: int | None, traced: Traced, findings: Findings
) -> None:
    keys = jax.eval_shape(lambda key: jax.random.split(key, N), traced.key)
    arguments = (_batched(traced.state), _batched(traced.action), keys)
    for name, args in (("reset", (keys,)), ("step", arguments)):
        try:
            if axis is None:  # closed over, so that a Python number stays one
                result = jax.eval_shape(jax.vmap(_call(name, env)), *args)
            else:
                mapped = jax.vmap(lambda env, *args, name=name: getattr(env, name)(*args))
                result = jax.eval_shape(mapped, env, *args)
        except Exception as error:
            fix = _STATIC if check == "parameters" else None
            findings.crash(check, f"{name} under {doing}", error, fix)
            continue
        single = _named(*traced.result(name))
        for path, leaf in _named(*result).items():
            expected = single.get(path)
            if expected is None or (leaf.shape, leaf.dtype) == (
                (N, *expected.shape),
                expected.dtype,
            ):
                continue
            findings.add(
                check,
                f"{name}'s {path} is {describe(leaf)} under {doing} of {N},"
                f" and {describe(expected)} alone",
                _STATIC if check == "parameters" else "Neither may depend on the other instances.",
            )


def check_retrace(traced: Traced, findings: Findings) -> None:
    """One trace serves every state, every key, and other parameters of the same types."""
    env = traced.env
    for name, args in _calls(traced):
        count = 0

        def counted(env: Environment, *args: Any, name: str = name) -> Any:
            nonlocal count
            count += 1
            return getattr(env, name)(*args)

        jitted = jax.jit(counted)
        later = traced.state if findings.found("tree", "weak type") else traced.next_state
        again = (later, *args[1:]) if name == "step" else (jax.random.key(1),)
        try:
            jitted.eval_shape(env, *args)
            for reason, other, arguments in (
                ("with what the first call returned", env, again),
                ("after a parameter was replaced by another of its type", _varied(env), args),
            ):
                seen = count
                jitted.eval_shape(other, *arguments)
                if count > seen:
                    findings.add(
                        "retrace",
                        f"{name} was traced again {reason}",
                        "Make static fields equal by value, tuples or frozen dataclasses and not"
                        " objects made anew, and give the state fixed types.",
                    )
        except Exception as error:
            doing = f"{name}, with the environment an argument of jit,"
            findings.crash("parameters", doing, error, _STATIC)


def check_programs(traced: Traced, findings: Findings) -> None:
    """Tracing twice gives one program: no hidden counter, clock or random number."""
    for name, args in _calls(traced):
        first, second = (program(traced.env, name, args) for _ in range(2))
        if first == second:
            continue
        pairs = zip(first, second, strict=False)
        old, new = next(((a, b) for a, b in pairs if a != b), ("shorter", "longer"))
        findings.add(
            "purity",
            f"two traces of {name} gave two programs: `{old[:120]}` and then `{new[:120]}`",
            "A Python counter, a clock or NumPy's random numbers became a constant: keep it in the"
            " state, or draw it from the key with jax.random.",
        )


def check_render(traced: Traced, findings: Findings) -> None:
    """`render`, where it is defined, draws uint8[H, W, 3], under jit and vmap too."""
    env = traced.env
    try:
        frame = jax.eval_shape(lambda state: env.render(state), traced.next_state)
        frames = jax.eval_shape(jax.vmap(lambda state: env.render(state)), _batched(traced.state))
    except RenderError:
        return
    except Exception as error:
        findings.crash("render", "render(state)", error)
        return
    shape, dtype = getattr(frame, "shape", ()), getattr(frame, "dtype", None)
    if dtype != jnp.uint8 or len(shape) != 3 or shape[2] != 3:
        found = describe(frame) if dtype is not None else f"a {type(frame).__name__}"
        findings.add(
            "render",
            f"render returned {found}; it must be uint8[H, W, 3]",
            "Draw colors from 0 to 255 on the last axis and convert with .astype(jnp.uint8).",
        )
    elif frames.shape != (N, *shape):
        findings.add(
            "render",
            f"render under vmap returned {describe(frames)} for {N} states",
            "Draw one state; the size of a frame may depend on static fields only.",
        )


def describe_all(tree: Any) -> str:
    """The types of a tree in its own containers: {'x': float32[2]}, or just int32[]."""
    return re.sub("'(\\w+\\[[\\d,]*\\])'", r"\1", repr(jax.tree.map(describe, tree))).replace(
        '"', ""
    )


def _call(name: str, env: Environment) -> Callable[..., Any]:
    """The method as a new function, which no cache of JAX knows."""
    return lambda *args: getattr(env, name)(*args)


def _parameter_type(leaf: Any) -> jax.ShapeDtypeStruct:
    if isinstance(leaf, int) and not isinstance(leaf, bool):
        return jax.ShapeDtypeStruct((), np.int32)  # whatever the mode of floats
    return jax.eval_shape(lambda leaf: leaf, leaf)


def _batched(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((N, *leaf.shape), leaf.dtype), tree)


def _calls(traced: Traced) -> list[tuple[str, tuple[Any, ...]]]:
    return [("reset", (traced.key,)), ("step", (traced.state, traced.action, traced.key))]


def _named(state: Any, timestep: Any) -> dict[str, Any]:
    return leaves_by_path(state, "state") | leaves_by_path(timestep, "timestep")


def _varied(env: Environment) -> Environment:
    """The same environment rebuilt with other numbers of the same types."""

    def vary(leaf: Any) -> Any:
        if isinstance(leaf, bool):
            return not leaf
        return leaf + 1 if isinstance(leaf, int | float) else leaf

    return jax.tree.map(vary, env.replace())  # which calls the constructor, as users do
