"""The checks that only trace an environment: types, structure, purity and compiled programs."""

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.errors import KeyReuseError

from jaxenvs import spaces, struct
from jaxenvs.core import Environment, TimeStep
from jaxenvs.errors import RenderError
from jaxenvs.testing._purity import is_same, layers, snapshot_attributes, trace_program
from jaxenvs.testing._report import CheckReport, describe, leaves_by_path, space_mismatches

_STATIC = (
    "Parameters are leaves: convert them to the dtype of what they are combined with, and declare"
    " those that determine shapes or Python control flow with struct.static(...)."
)
N = 3  # instances in the vmap checks; unlikely to be the size of another axis


@dataclasses.dataclass
class EnvTrace:
    """Shapes and dtypes of the arguments and results of `reset` and `step`, for one instance."""

    env: Environment
    key: jax.Array
    action: Any
    state: Any  # from reset
    timestep: TimeStep
    next_state: Any  # from step
    next_timestep: TimeStep

    @property
    def calls(self) -> list[tuple[str, tuple[Any, ...]]]:
        """The two methods with their arguments."""
        return [("reset", (self.key,)), ("step", (self.state, self.action, self.key))]

    def method(self, name: str) -> Callable[..., Any]:
        """Returns the method as a new function, which JAX has not cached."""
        return lambda *args: getattr(self.env, name)(*args)

    def result(self, name: str) -> tuple[Any, TimeStep]:
        """Returns the result of the method `name`."""
        if name == "reset":
            return self.state, self.timestep
        return self.next_state, self.next_timestep

    def leaves(self, name: str) -> dict[str, Any]:
        """Returns the leaves of `result(name)` by path."""
        return _result_leaves(self.result(name))


def check_environment(env: Any, report: CheckReport) -> None:
    """Checks that parameters are numbers, static fields hashable, and spaces from jaxenvs."""
    if not isinstance(env, Environment):
        fix = "Subclass jaxenvs.Environment. Check the single environment, not a vectorized one."
        if hasattr(env, "pools"):  # a HostEnv
            fix = (
                "A hosted environment cannot be traced. Check one of its environments with"
                " gymnasium.utils.env_checker.check_env, and every result with"
                " make_pool(..., validate=True)."
            )
        report.add("environment", f"{type(env).__name__} is not an Environment", fix)
        return
    for path, leaf in leaves_by_path(env, type(env).__name__).items():
        if not isinstance(leaf, bool | int | float | complex | np.ndarray | np.generic | jax.Array):
            report.add(
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
                call = f"hashing the static field {type(layer).__name__}.{field.name}"
                report.add_exception("environment", call, error)
    for name in ("observation_space", "action_space"):
        try:
            space = getattr(env, name)
        except Exception as error:
            report.add_exception("environment", name, error)
            continue
        if not isinstance(space, spaces.Space):
            report.add(
                "environment",
                f"{name} is a {type(space).__name__}",
                "Return one of jaxenvs.spaces; spaces.from_gymnasium converts Gymnasium spaces.",
            )


def trace(env: Environment, seed: int, report: CheckReport) -> EnvTrace | None:
    """Traces `reset` and `step` and reports side effects. Returns None if either fails."""
    key = jax.random.key(seed)
    try:
        action = jax.eval_shape(lambda key: env.action_space.sample(key), key)
    except Exception as error:
        report.add_exception("trace", "action_space.sample(key)", error)
        return None
    before = snapshot_attributes(env)
    reset = _trace_call("reset(key)", env.reset, (key,), report)
    if reset is None:
        return None
    step = _trace_call(
        f"step(state, action, key) with an action of action_space, {_describe_tree(action)},",
        env.step,
        (reset[0], action, key),
        report,
    )
    after = snapshot_attributes(env)
    for name in before.keys() | after.keys():
        if name not in before or name not in after or not is_same(before[name], after[name]):
            report.add(
                "purity",
                f"{name} changed while reset and step were traced",
                "Keep what changes in the state: Python runs once per compilation, not per step.",
            )
    return None if step is None else EnvTrace(env, key, action, *reset, *step)


def _types_of_numbers(tree: Any) -> Any:
    """Returns a tree of the dtypes of scalars; None for other leaves."""
    return jax.tree.map(lambda x: x.dtype if getattr(x, "shape", None) == () else None, tree)


def _trace_call(
    call: str, function: Callable[..., Any], args: tuple[Any, ...], report: CheckReport
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

    name = call.split("(")[0]
    try:
        result = jax.eval_shape(watched, *args)
    except Exception as error:
        report.add_exception("trace", call, error)
        return None
    for path in sorted(mutated):
        report.add(
            "purity",
            f"{name} changed its argument in place, at {path}",
            "Build a new container: the caller still uses the old one.",
        )
    if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], TimeStep)):
        found = type(result).__name__
        if isinstance(result, tuple):
            found = f"({', '.join(type(part).__name__ for part in result)})"
        report.add(
            "trace",
            f"{name} returned {found}; it must return (state, TimeStep)",
            "Build the timestep with TimeStep.first(...) or TimeStep.transition(...).",
        )
        return None
    return result


def check_leaks(traced: EnvTrace, report: CheckReport) -> None:
    """Checks that no traced value outlives its trace."""
    for name, args in traced.calls:
        try:
            with jax.checking_leaks():
                jax.eval_shape(traced.method(name), *args)
        except Exception as error:
            if "Leaked" not in str(error):
                call = f"{name}, traced with jax.checking_leaks(),"
                report.add_exception("leak", call, error)
                continue
            report.cause = report.cause or error
            report.add(
                "leak",
                f"{name} leaked a traced value: it is still reachable after the trace ended",
                "Do not store arrays in globals, closures or caches; return them in the state.",
            )


def check_key_reuse(traced: EnvTrace, report: CheckReport) -> None:
    """Checks that no key is used twice."""
    for name, args in traced.calls:
        call, shapes = traced.method(name), jax.eval_shape(lambda args: args, args)
        try:
            with jax.debug_key_reuse(True):
                jax.jit(lambda args, call=call: call(*args)).trace(shapes)
        except KeyReuseError as error:
            report.cause = report.cause or error
            report.add(
                "keys",
                f"{name} uses a key twice: {str(error).splitlines()[0]}",
                "Split the key, and use each part once.",
            )


def check_timesteps(traced: EnvTrace, report: CheckReport, float64: bool) -> None:
    """Checks the types of timesteps, weak types, and observations against their space."""
    flags_fix = "Both flags are booleans: the task ended, or the episode was cut off."
    dtypes = {"reward": np.dtype(np.float64 if float64 else np.float32)}
    dtypes |= {"terminated": np.dtype(bool), "truncated": np.dtype(bool)}
    for source in ("reset", "step"):
        _, timestep = traced.result(source)
        for name, dtype in dtypes.items():
            value = getattr(timestep, name)
            expected = dict.fromkeys(traced.env.agents, dtype) or dtype
            if _types_of_numbers(value) == expected:
                continue
            agents = " for each agent" if traced.env.agents else ""
            problem = (
                f"{source}'s timestep.{name} is {_describe_tree(value)}; it must be"
                f" {dtype}[]{agents}"
            )
            if name == "reward":
                maker = type(timestep).__name__
                report.add("reward", problem, f"{maker}.transition(reward=...) converts it.")
            else:
                report.add("flags", problem, flags_fix)
        for path, leaf in traced.leaves(source).items():
            if getattr(leaf, "weak_type", False):
                report.add(
                    "weak type",
                    f"{source}'s {path} is {describe(leaf)}",
                    "It was made from a Python number, so its dtype changes by promotion and with"
                    f" x64: write jnp.{leaf.dtype}(...).",
                )
        for problem in space_mismatches(
            traced.env.observation_space, timestep.observation, f"{source}'s timestep.observation"
        ):
            report.add("observation space", problem, "Change the observation or the space.")
        if not isinstance(timestep.info, Mapping) or not all(
            isinstance(name, str) for name in timestep.info
        ):
            report.add(
                "info",
                f"{source}'s timestep.info is {timestep.info!r}",
                "It must be a dict from names to arrays, possibly empty.",
            )
        if timestep.final_observation is not None:
            report.add(
                "tree",
                f"{source} set timestep.final_observation",
                "Leave it None: vectorize sets it.",
            )


def check_trees(traced: EnvTrace, report: CheckReport) -> None:
    """Checks that `reset` and `step` return the same tree, so either can start a scan's carry."""
    keys, next_keys = (
        set(timestep.info) if isinstance(timestep.info, Mapping) else set()
        for timestep in (traced.timestep, traced.next_timestep)
    )
    if keys != next_keys:
        report.add(
            "info",
            f"info has the keys {sorted(keys)} from reset and {sorted(next_keys)} from step",
            "Return the same keys from both; from reset, zeros of the right dtype are fine.",
        )
    first, later = traced.leaves("reset"), traced.leaves("step")
    fix = "Both must return the same structure, shapes and dtypes, to be the carry of a scan."
    for path in sorted(first.keys() ^ later.keys()):
        if ".info" in path and keys != next_keys:
            continue
        has, lacks = ("reset", "step") if path in first else ("step", "reset")
        report.add("tree", f"{path} comes from {has} and not from {lacks}", fix)
    for path in sorted(first.keys() & later.keys()):
        if (first[path].shape, first[path].dtype) != (later[path].shape, later[path].dtype):
            found = f"{path} is {describe(first[path])} from reset"
            report.add("tree", f"{found} and {describe(later[path])} from step", fix)
    structures = [jax.tree.structure(traced.result(name)) for name in ("reset", "step")]
    if structures[0] != structures[1] and not report.has_failed("tree", "info"):
        report.add(
            "tree",
            "reset and step return containers of different types or with different static fields",
            fix,
        )


def check_x64(traced: EnvTrace, report: CheckReport) -> None:
    """Checks that dtypes are the same with 64-bit types enabled."""
    for name, args in traced.calls:
        try:
            with jax.enable_x64(True):
                result = jax.eval_shape(traced.method(name), *args)
        except Exception as error:
            report.add_exception("x64", f"{name}, traced with jax_enable_x64,", error)
            continue
        expected = traced.leaves(name)
        for path, leaf in _result_leaves(result).items():
            # check_timesteps reports weak types already.
            if path in expected and leaf.dtype != expected[path].dtype and not leaf.weak_type:
                report.add(
                    "x64",
                    f"{name}'s {path} is {leaf.dtype} with jax_enable_x64 and"
                    f" {expected[path].dtype} without",
                    "An array was made without a dtype: write"
                    f" jnp.{expected[path].dtype}(...) or pass dtype=....",
                )


def check_vmap(traced: EnvTrace, report: CheckReport) -> None:
    """Checks that a batch of states, and one of parameters, gives a batch of the same types."""
    parameters = jax.tree.map(_parameter_type, traced.env)
    _check_batch("vmap", "vmap over states and actions", None, traced, report)
    if report.has_failed("parameters", "vmap") or not jax.tree.leaves(parameters):
        return
    over = "vmap over a batch of parameters"
    _check_batch("parameters", over, _batched(parameters), traced, report)


def _check_batch(
    check: str, over: str, batched_env: Environment | None, traced: EnvTrace, report: CheckReport
) -> None:
    keys = jax.eval_shape(lambda key: jax.random.split(key, N), traced.key)
    arguments = (_batched(traced.state), _batched(traced.action), keys)
    for name, args in (("reset", (keys,)), ("step", arguments)):
        try:
            if batched_env is None:  # a closure, so that Python numbers stay Python numbers
                result = jax.eval_shape(jax.vmap(traced.method(name)), *args)
            else:
                mapped = jax.vmap(lambda env, *args, name=name: getattr(env, name)(*args))
                result = jax.eval_shape(mapped, batched_env, *args)
        except Exception as error:
            fix = _STATIC if check == "parameters" else None
            report.add_exception(check, f"{name} under {over}", error, fix)
            continue
        single = traced.leaves(name)
        for path, leaf in _result_leaves(result).items():
            expected = single.get(path)
            if expected is None:
                continue
            if (leaf.shape, leaf.dtype) != ((N, *expected.shape), expected.dtype):
                report.add(
                    check,
                    f"{name}'s {path} is {describe(leaf)} under {over} of {N},"
                    f" and {describe(expected)} alone",
                    _STATIC if check == "parameters" else "They must not depend on the batch.",
                )


def check_retrace(traced: EnvTrace, report: CheckReport) -> None:
    """Checks that other states, keys and parameters of the same types reuse the first trace."""
    env = traced.env
    for name, args in traced.calls:
        count = 0

        def counted(env: Environment, *args: Any, name: str = name) -> Any:
            nonlocal count
            count += 1
            return getattr(env, name)(*args)

        jitted = jax.jit(counted)
        later = traced.state if report.has_failed("tree", "weak type") else traced.next_state
        again = (later, *args[1:]) if name == "step" else (jax.random.key(1),)
        try:
            jitted.eval_shape(env, *args)
            for reason, other, arguments in (
                ("with what the first call returned", env, again),
                (
                    "after a parameter was replaced by another of its type",
                    _with_other_parameters(env),
                    args,
                ),
            ):
                count_before = count
                jitted.eval_shape(other, *arguments)
                if count > count_before:
                    report.add(
                        "retrace",
                        f"{name} was traced again {reason}",
                        "Use fixed dtypes in the state, and static fields that compare by value,"
                        " such as tuples and frozen dataclasses.",
                    )
        except Exception as error:
            call = f"{name}, with the environment an argument of jit,"
            report.add_exception("parameters", call, error, _STATIC)


def check_programs(traced: EnvTrace, report: CheckReport) -> None:
    """Checks that two traces give the same program: no hidden counter, clock or random number."""
    for name, args in traced.calls:
        first, second = (trace_program(traced.env, name, args) for _ in range(2))
        if first == second:
            continue
        pairs = zip(first, second, strict=False)
        old, new = next(((a, b) for a, b in pairs if a != b), ("shorter", "longer"))
        report.add(
            "purity",
            f"two traces of {name} gave two programs: `{old[:120]}` and then `{new[:120]}`",
            "A Python counter, a clock or a NumPy random number became a constant: keep it in the"
            " state, or draw it from the key with jax.random.",
        )


def check_render(traced: EnvTrace, report: CheckReport) -> None:
    """Checks that `render`, if defined, draws uint8[H, W, 3] under jit and vmap."""
    env = traced.env
    try:
        frame = jax.eval_shape(lambda state: env.render(state), traced.next_state)
        frames = jax.eval_shape(jax.vmap(lambda state: env.render(state)), _batched(traced.state))
    except RenderError:
        return
    except Exception as error:
        report.add_exception("render", "render(state)", error)
        return
    shape = getattr(frame, "shape", ())
    if getattr(frame, "dtype", None) != jnp.uint8 or len(shape) != 3 or shape[2] != 3:
        report.add(
            "render",
            f"render returned {describe(frame)}; it must be uint8[H, W, 3]",
            "Put colors from 0 to 255 on the last axis and convert with .astype(jnp.uint8).",
        )
    elif frames.shape != (N, *shape):
        report.add(
            "render",
            f"render under vmap returned {describe(frames)} for {N} states",
            "Draw one state; the size of a frame can depend on static fields only.",
        )


def _describe_tree(tree: Any) -> str:
    """Returns the types of a tree as text, such as "{'x': float32[2]}" or "int32[]"."""
    text = repr(jax.tree.map(describe, tree))
    return re.sub("'(\\w+\\[[\\d, ]*\\])'", r"\1", text).replace('"', "")


def _parameter_type(leaf: Any) -> jax.ShapeDtypeStruct:
    if isinstance(leaf, int) and not isinstance(leaf, bool):
        return jax.ShapeDtypeStruct((), np.int32)  # with jax_enable_x64 too
    return jax.eval_shape(lambda leaf: leaf, leaf)


def _batched(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((N, *leaf.shape), leaf.dtype), tree)


def _result_leaves(result: tuple[Any, TimeStep]) -> dict[str, Any]:
    state, timestep = result
    return leaves_by_path(state, "state") | leaves_by_path(timestep, "timestep")


def _with_other_parameters(env: Environment) -> Environment:
    """Returns the environment with other numbers of the same types."""

    def change(leaf: Any) -> Any:
        if isinstance(leaf, bool):
            return not leaf
        return leaf + 1 if isinstance(leaf, int | float) else leaf

    return jax.tree.map(change, env.replace())  # replace calls the constructor, as users do
