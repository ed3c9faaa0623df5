"""`jaxenvs doctor`."""

import argparse
import importlib
import json
import os
import platform
import re
from collections.abc import Iterator, Sequence
from importlib import metadata
from typing import Any

import jaxenvs
from jaxenvs._machine import accelerator, cpu_limit
from jaxenvs.bridge.memory.segment import available_memory
from jaxenvs.bridge.native import libraries as _native
from jaxenvs.cli._console import console, plain, table
from jaxenvs.errors import InstallationError, MissingExtraError, closest

_PACKAGES = ("jax", "jaxlib", "numpy", "gymnasium", "chex")
_PREFIXES = ("JAX", "XLA_")  # "JAX" includes JAXENVS_
_VARIABLES = (
    *("CC", "CXX", "CUDA_VISIBLE_DEVICES", "MUJOCO_GL", "OMP_NUM_THREADS", "PYOPENGL_PLATFORM"),
    *("RAY_ADDRESS", "SDL_VIDEODRIVER", "XDG_CACHE_HOME"),
)
_DEVELOPERS = ("bench", "dev", "docs", "interop", "suites-tests")  # extras shown only if asked for
Report = dict[str, Any]


def run(options: argparse.Namespace) -> None:
    """Prints a report of the installation, and checks that all of `options.needed` is there.

    Raises:
        InstallationError: JAX does not start, or a needed part is missing.
    """
    needed = list(options.needed)
    extras = _extras()
    _check_names(needed, extras)
    if extras is not None:
        hidden = {*_DEVELOPERS} - {*needed}
        extras = {name: packages for name, packages in extras.items() if name not in hidden}
    report: Report = {
        "versions": _versions(),
        "devices": _devices(),
        "cores": _cores(),
        "memory": _memory(),
        "native": _native_parts(),
        "extras": extras,
        "environment": _environment(),
    }
    if options.json:
        print(json.dumps(report, indent=2))
    else:
        for section in _sections(report):
            _show(*section)
    if problems := list(_find_problems(report, needed)):
        raise InstallationError("\n  ".join(problems))


# --- collecting -------------------------------------------------------------------------------


def _versions() -> dict[str, str | None]:
    """Returns the version of each package, or None if it is missing."""
    return {
        "jaxenvs": jaxenvs.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        **{name: _version(name) for name in _PACKAGES},
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _devices() -> dict[str, Any]:
    try:
        # A plugin for missing hardware may raise any exception.
        jax = importlib.import_module("jax")
        found = [f"{device.platform}: {device.device_kind}" for device in jax.devices()]
    except Exception as error:
        return {
            "found": {},
            "error": f"{type(error).__name__}: {error}".rstrip(": "),
            "missed": None,
        }
    there, seen = accelerator(), jax.default_backend()
    missed = there if seen == "cpu" and not os.environ.get("JAX_PLATFORMS") else None
    return {
        "found": {name: found.count(name) for name in found},
        "error": None,
        "missed": missed,
    }


def _cores() -> dict[str, Any]:
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    return {
        "machine": os.cpu_count(),
        "affinity": affinity,
        "cgroup": cpu_limit(),
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
    }


def _memory() -> dict[str, int | None]:
    """Returns the available memory in bytes, or None if it is unknown."""
    try:
        found = os.statvfs("/dev/shm")
        shm = found.f_bavail * found.f_frsize
    except (OSError, AttributeError):
        shm = None
    return {"available": available_memory(), "dev_shm": shm}


def _native_parts() -> dict[str, Any]:
    """Returns the state of the compiled parts of the host bridge."""
    libraries = {_native.POOL: _native.pool_library, _native.XLA: _native.xla_library}
    report = {}
    for part, library in libraries.items():
        state: dict[str, Any] = {"state": "in use", "where": None, "why": None, "lost": None}
        report[part.name] = state
        try:
            state["where"] = str(library()._name)
        except _native.NativePartMissing as error:
            state.update(state="missing", why=str(error), lost=part.lost)
    return report


def _extras() -> dict[str, list[dict[str, str | None]]] | None:
    """Returns the packages of each extra, or None if jaxenvs is not installed as a package."""
    try:
        names = metadata.metadata("jaxenvs").get_all("Provides-Extra") or []
    except metadata.PackageNotFoundError:
        return None
    return {
        name: [
            {"package": package, "needed": needed, "version": version, "state": state}
            for package, (needed, version, state) in sorted(_packages("jaxenvs", name, {}).items())
        ]
        for name in sorted(names)
    }


def _packages(
    distribution: str, extra: str, found: dict[str, tuple[str, str | None, str]]
) -> dict[str, tuple[str, str | None, str]]:
    """Adds the packages of an extra, including those of extras that it refers to, to `found`."""
    try:
        requirements = metadata.requires(distribution) or []
    except metadata.PackageNotFoundError:
        return found
    for requirement in requirements:
        what, _, marker = requirement.partition(";")
        parts = re.match(r"\s*([\w.-]+)\s*(?:\[([^\]]*)\])?\s*(.*)", what)
        if parts is None or not re.search(rf"\bextra\s*==\s*['\"]{re.escape(extra)}['\"]", marker):
            continue
        name, more, needed = parts[1], parts[2] or "", parts[3].strip(" ()")
        if name != distribution and name not in found:
            version = _version(name)
            found[name] = needed, version, _version_state(version, needed)
        for each in filter(None, (part.strip() for part in more.split(","))):
            _packages(name, each, found)
    return found


def _version_state(version: str | None, needed: str) -> str:
    """Returns "present", "missing", "too old" or "too new"."""
    if version is None:
        return "missing"
    ours = _numbers(version)
    for relation, bound in re.findall(r"(>=|<=|<)\s*([\d.]+)", needed):
        limit = _numbers(bound)
        if relation == ">=" and ours < limit:
            return "too old"
        if (relation == "<" and ours >= limit) or (relation == "<=" and ours > limit):
            return "too new"
    return "present"


def _numbers(version: str) -> list[int]:
    release = re.match(r"[\d.]+", version)
    numbers = [int(part) for part in release[0].split(".") if part] if release else []
    while numbers and numbers[-1] == 0:  # 1.0 equals 1
        numbers.pop()
    return numbers


def _environment() -> dict[str, str]:
    return {
        name: value
        for name, value in sorted(os.environ.items())
        if name in _VARIABLES or name.startswith(_PREFIXES)
    }


# --- checking ---------------------------------------------------------------------------------


def _check_names(needed: Sequence[str], extras: Report | None) -> None:
    known = ["native", *(extras or ())]
    for name in needed:
        if name == "native":
            continue
        if extras is None:
            raise InstallationError(
                f'cannot check the extra "{name}", because jaxenvs is not installed as a package.'
                "  Install it with pip."
            )
        if name not in known:
            raise InstallationError(
                f'unknown name "{name}".{closest(name, known)}  Expected: {", ".join(known)}.'
            )


def _find_problems(report: Report, needed: Sequence[str]) -> Iterator[str]:
    if report["devices"]["error"] is not None:
        platforms = os.environ.get("JAX_PLATFORMS")
        asked = f" with JAX_PLATFORMS={platforms}" if platforms else ""
        yield f"JAX does not start{asked}: {report['devices']['error']}"
    if missed := report["devices"]["missed"]:
        extra = "cuda" if missed == "gpu" else missed
        yield (
            f"the machine has a {missed.upper()}, but JAX sees its CPU only.  Install JAX's plugin"
            f' with `pip install --upgrade "jaxenvs[{extra}]"`, or set JAX_PLATFORMS=cpu.'
        )
    for name in needed:
        if name == "native":
            for part, state in report["native"].items():
                if state["state"] != "in use":
                    yield f"the native part {part} is missing: {state['why']}"
            continue
        for each in report["extras"][name]:
            if each["state"] != "present":
                yield (
                    f"the extra {name} needs {each['package']}{each['needed']}, which is"
                    f' {each["state"]}.  Install it with `pip install "jaxenvs[{name}]"`.'
                )


# --- printing ---------------------------------------------------------------------------------


def _sections(report: Report) -> Iterator[tuple[str, tuple[str, ...], list[tuple[str, ...]]]]:
    """Yields the title, the column names and the rows of each table."""
    yield "What works", ("what", "with"), list(_working(report))
    versions = report["versions"].items()
    yield "Versions", ("what", "version"), [(name, value or "missing") for name, value in versions]

    devices = report["devices"]
    machine = [("device", f"{count} x {name}") for name, count in devices["found"].items()]
    if devices["error"]:
        machine.append(("device", f"none: {devices['error']}"))
    cores, memory = report["cores"], report["memory"]
    limits = [
        f"{cores[key]:g} {text}"
        for key, text in (("affinity", "by affinity"), ("cgroup", "by cgroup limit"))
        if cores[key] is not None
    ]
    load = "" if cores["load"] is None else f"; load {cores['load']:.2f} over the last minute"
    machine.append(("cores", f"{cores['machine']}{''.join(f', {each}' for each in limits)}{load}"))
    for name, key in (("memory", "available"), ("/dev/shm", "dev_shm")):
        size = memory[key]
        machine.append((name, "unknown" if size is None else f"{size / 2**30:.1f} GiB available"))
    yield "Machine", ("what", "found"), machine

    native = [
        (
            name,
            state["state"],
            state["where"] or f"{state['why']}; {state['lost']}",
        )
        for name, state in report["native"].items()
    ]
    yield "Native part of the host bridge", ("part", "state", "location or reason"), native

    if report["extras"] is None:
        text = "unknown: jaxenvs is not installed as a package"
        yield "Extras", ("extra", "state"), [("all", text)]
    else:
        extras = [
            (name, _state_of(packages), ", ".join(map(_package, packages)))
            for name, packages in report["extras"].items()
        ]
        yield "Extras", ("extra", "state", "packages"), extras

    variables = list(report["environment"].items()) or [("no relevant variables", "")]
    yield "Environment", ("variable", "value"), variables


def _working(report: Report) -> Iterator[tuple[str, str]]:
    """Yields what can be used, and with what."""
    devices = [f"{count} x {name}" for name, count in report["devices"]["found"].items()]
    if devices:
        yield "environments", f"jax {report['versions']['jax']} on {', '.join(devices)}"
    compiled = [name for name, state in report["native"].items() if state["state"] == "in use"]
    parts = f"the compiled parts {' and '.join(compiled)}" if compiled else "no compiled parts"
    yield "host bridge", parts
    extras = (report["extras"] or {}).items()
    if complete := [name for name, packages in extras if _state_of(packages) == "installed"]:
        yield "extras", ", ".join(complete)


def _state_of(packages: list[dict[str, Any]]) -> str:
    present = sum(each["state"] == "present" for each in packages)
    return "installed" if present == len(packages) else f"{present} of {len(packages)}"


def _package(each: dict[str, Any]) -> str:
    if each["state"] == "present":
        return f"{each['package']} {each['version']}"
    return f"{each['package']}{each['needed']} {each['state']}"


def _show(title: str, columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    try:
        out = console()
    except MissingExtraError:  # the report also works without rich
        print(f"{title}\n")
        for row in rows:
            print("  " + "  ".join(f"{cell:<14}" for cell in row).rstrip())
        print()
        return
    shown = table(*columns, title=title)
    for first, *rest in rows:
        shown.add_row(f"[bold]{plain(first)}[/]", *map(plain, rest))
    out.print(shown)
