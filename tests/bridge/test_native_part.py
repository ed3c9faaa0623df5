"""The compiled part: where it is looked for, when it is compiled, and what happens without it."""

import ctypes
import os
import re
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest

import jaxenvs
from jaxenvs.bridge.memory import lines
from jaxenvs.bridge.native import libraries as _native
from jaxenvs.bridge.native.libraries import POOL, XLA, NativePartMissing
from tests.bridge.envs import Counter

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="futexes are Linux's")

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _nothing_is_remembered():
    _native.forget()
    yield
    _native.forget()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache."""
    monkeypatch.delenv(_native.DISABLE, raising=False)
    monkeypatch.setenv("JAXENVS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    """Names a script as the compiler for C, and counts how often it was run."""

    def use(script: str):
        path = tmp_path / "my-cc"
        path.write_text(f"#!/bin/sh\necho run >> {tmp_path}/runs\n{textwrap.dedent(script)}\n")
        path.chmod(0o755)
        monkeypatch.setenv("CC", str(path))
        return path

    use.runs = lambda: len((tmp_path / "runs").read_text().splitlines())  # pyright: ignore
    return use


@pytest.fixture
def sources(tmp_path, monkeypatch):
    """A copy of native/, to be changed."""
    folder = tmp_path / "native"
    folder.mkdir()
    for path in _native.SOURCES.iterdir():
        if path.is_file():  # not Python's compiled modules
            (folder / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr(_native, "SOURCES", folder)
    return folder


def needs(*programs):
    from shutil import which

    return pytest.mark.skipif(not all(map(which, programs)), reason=f"needs {programs}")


def python(code, path="", **environment):
    """Runs `code` in a new process; a variable that is None is unset."""
    environment = os.environ | {"PYTHONPATH": str(path or ROOT)} | environment
    return subprocess.Popen(
        [sys.executable, "-c", code],
        cwd="/",
        env={name: value for name, value in environment.items() if value is not None},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(process):
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return out.strip(), err.strip()


IMPORT = "from jaxenvs.bridge.native import libraries as n; "
FIND = IMPORT + "print(n.is_there(n.POOL), n.find(n.POOL))"
IS_THERE = IMPORT + "print(n.is_there(n.POOL), n.is_there(n.POOL))"


@needs("cc")
def test_native_part_is_compiled_once_and_reported_in_one_line(cache):
    first, second = (finished(python(FIND)) for _ in range(2))
    assert first[0] == second[0] == f"True {next(cache.glob('native/libpool-*.so'))}"
    assert first[1] == f"compiling the pool part of the host bridge into {cache}/native, once"
    assert second[1] == ""


@needs("gcc")
def test_a_damaged_library_is_compiled_again(cache):
    path = _native.find(POOL)
    path.write_bytes(b"cut off by a full disk")
    assert _native.pool_library()._name == str(path)
    assert path.stat().st_size > 1000


def test_processes_starting_at_once_wait_for_one_compiler(cache, compiler):
    compiler('sleep 0.3; exec gcc "$@"')
    outputs = [finished(each) for each in [python(FIND) for _ in range(3)]]
    assert compiler.runs() == 1 and len({out for out, _ in outputs}) == 1
    assert sum("compiling" in err for _, err in outputs) == 1
    assert not list(cache.glob("native/tmp*"))


def test_a_cache_that_cannot_be_written_to_is_named(cache, tmp_path, compiler):
    compiler("exit 1")
    (tmp_path / "file").write_text("")
    out, err = finished(python(IS_THERE, JAXENVS_CACHE=f"{tmp_path}/file/cache"))
    assert out == "False False"
    assert f"{tmp_path}/file/cache/native cannot be written to: Not a directory.  Set JAXE" in err


def test_the_cache_follows_the_users_settings(monkeypatch):
    monkeypatch.delenv("JAXENVS_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert _native.cache_folder() == Path.home() / ".cache" / "jaxenvs"
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert _native.cache_folder() == Path("/somewhere/jaxenvs")


def test_a_user_without_a_home_is_told_to_set_the_cache(cache, monkeypatch, caplog):
    monkeypatch.delenv("JAXENVS_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    assert not _native.is_there(POOL) and "Set JAXENVS_CACHE" in caplog.text
    with jaxenvs.make_pool(Counter, 2) as pool:
        assert pool.backend == "serial"


def test_without_a_compiler_one_line_says_why_and_what_is_lost(cache, tmp_path):
    (tmp_path / "empty").mkdir()
    out, err = finished(python(IS_THERE, PATH=str(tmp_path / "empty"), CC=None))
    assert out == "False False"
    assert re.fullmatch(
        r"the host bridge runs without its pool part \(no compiler was found \(cc, gcc, clang\)\):"
        r' backend="process" is not available',
        err,
    )


def test_a_compiler_that_fails_is_asked_once_and_quoted(cache, compiler, caplog):
    compiler("echo 'In file included' >&2; echo 'pool.h:7:1: error: no futex here' >&2; exit 1")
    assert not _native.is_there(POOL) and not _native.is_there(POOL)
    assert compiler.runs() == 1
    assert [r.message for r in caplog.records if "failed: pool.h:7:1: error: no fut" in r.message]
    assert sum("runs without its" in record.message for record in caplog.records) == 1
    assert not list(cache.glob("native/*.so"))


def test_a_compiler_that_makes_nonsense_is_no_crash(cache, compiler):
    compiler('for last; do :; done; echo nonsense > "$last"')
    with pytest.raises(NativePartMissing, match="cannot be loaded"):
        _native.pool_library()


@needs("gcc")
def test_cc_may_have_several_words_and_is_named_if_missing(cache, monkeypatch):
    monkeypatch.setenv("CC", "gcc -DNOTHING=1")
    assert _native.recipe(POOL).command[1] == "-DNOTHING=1"
    monkeypatch.setenv("CC", "no-such-cc")
    assert _native.reason_missing(_native.pool_library) == (
        "the compiler CC=no-such-cc was not found"
    )


def test_native_part_disabled_leaves_fewer_backends(cache, monkeypatch):
    monkeypatch.setenv(_native.DISABLE, "1")
    with pytest.raises(jaxenvs.errors.PoolError, match=f"{_native.DISABLE} is set.  Install a C"):
        jaxenvs.make_pool(Counter, 2, backend="process", num_workers=1)
    with jaxenvs.make_pool(Counter, 2) as pool:
        assert pool.backend == "serial" and pool.reset()[0].shape == (2, 3)


def test_native_part_disabled_by_a_variable_is_not_logged(cache, monkeypatch, caplog):
    monkeypatch.setenv(_native.DISABLE, "1")
    assert not _native.is_there(POOL) and not caplog.records
    assert _native.reason_missing(_native.xla_library) == f"{_native.DISABLE} is set"


@pytest.mark.parametrize("part", [POOL, XLA], ids=lambda part: part.name)
@pytest.mark.parametrize("file", ["source", "pool.h"])
def test_a_changed_source_makes_another_library(sources, part, file):
    before = _native.source_digest(part), _native.recipe(part).file
    path = sources / (part.source if file == "source" else file)
    path.write_text(path.read_text() + "\n")
    after = _native.source_digest(part), _native.recipe(part).file
    assert before[0] != after[0] and before[1] != after[1]


@needs("cc")
def test_packaged_library_serves_only_its_own_sources(cache, sources):
    packaged = sources / _native.packaged_names(POOL)[0]
    _native.compile_to(POOL, packaged)
    assert _native.look(POOL) == packaged
    header = sources / "pool.h"
    header.write_text(header.read_text() + "\n")
    assert isinstance(_native.look(POOL), _native.Recipe)


@needs("c++")
@pytest.mark.parametrize(("made_for", "is_used"), [((0, 1), True), ((0, 2), True), ((0, 3), False)])
def test_handlers_made_for_a_newer_xla_are_not_registered(
    cache, sources, monkeypatch, made_for, is_used
):
    # Any library will do: it is the name that tells.
    monkeypatch.setattr(_native, "api_version", lambda: made_for)
    packaged = sources / _native.packaged_names(XLA)[0]
    _native.compile_to(POOL, packaged)
    monkeypatch.setattr(_native, "api_version", lambda: (0, 2))
    assert (_native.look(XLA) == packaged) is is_used


@needs("cc")
def test_structures_have_the_same_layout_in_python_as_in_c(tmp_path):
    structs = {"jx_line": lines.Line, "jx_header": lines.Header, "jx_pool": lines.PoolStruct}
    expected, code = (
        [],
        '#include "pool.h"\n#include <stddef.h>\n#include <stdio.h>\nint main() {\n',
    )
    for name, struct in structs.items():
        expected.append(ctypes.sizeof(struct))
        code += f'printf("%zu ", sizeof({name}));'
        for field, *_ in struct._fields_:
            expected.append(getattr(struct, field).offset)
            code += f'printf("%zu ", offsetof({name}, {field}));'
    (tmp_path / "offsets.c").write_text(code + "}")
    command = ["cc", f"-I{_native.SOURCES}", "offsets.c", "-o", "offsets"]
    subprocess.run(command, cwd=tmp_path, check=True)
    found = subprocess.run([tmp_path / "offsets"], capture_output=True, text=True, check=True)
    assert [int(each) for each in found.stdout.split()] == expected


def test_jaxlibs_headers_are_those_that_jax_names():
    import jax

    assert _native.include_folder() == Path(jax.ffi.include_dir())
    major, minor = _native.api_version()
    assert major >= 0 and minor >= 1


@needs("cc", "c++")
@pytest.mark.slow
def test_wheel_libraries_work_without_a_compiler(tmp_path, cache):
    pytest.importorskip("hatchling")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    environment = os.environ | {"JAXENVS_REQUIRE_NATIVE": "1"}
    done = subprocess.run(build, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    assert re.fullmatch(r"jaxenvs-[\d.]+-py3-none-linux_\w+\.whl", wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    (tmp_path / "empty").mkdir()
    code = (
        "from jaxenvs.bridge.native import libraries as n\n"
        "print(n.pool_library()._name, n.xla_library()._name, sep='\\n')"
    )
    out, err = finished(python(code, tmp_path / "site", PATH=str(tmp_path / "empty")))
    assert err == "" and not cache.exists()
    assert [Path(line).parent for line in out.splitlines()] == [
        tmp_path / "site" / "jaxenvs" / "bridge" / "native"
    ] * 2


def test_without_a_compiler_the_wheel_serves_every_platform(tmp_path):
    pytest.importorskip("hatchling")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    environment = os.environ | {"CC": "no-such-cc", "CXX": "no-such-cxx"}
    done = subprocess.run(build, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert "jaxenvs/bridge/native/pool.c" in names
    assert not [name for name in names if name.endswith(".so")]
    strict = subprocess.run(
        build,
        cwd=ROOT,
        env=environment | {"JAXENVS_REQUIRE_NATIVE": "1"},
        capture_output=True,
        text=True,
    )
    assert strict.returncode != 0 and "the compiler CC=no-such-cc was not found" in strict.stderr
