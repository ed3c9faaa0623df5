"""Pools of environments that are not written in JAX, and `HostEnv` for compiled programs.

The rooms, each of which imports only those below it:

- `making`: `make_pool` and its choice of a backend; the batches of `make_vec`.
- `jit`: `HostEnv`; calls of compiled programs.
- `pool`: `Pool`, what a user holds: arguments, batches, and infos.
- `backends`: how environments are run: by the caller, threads, processes, an event loop, Ray ...
- `workers`: the code that runs the environments, in the caller or in another process.
- `foreign`: ids and interfaces of other libraries.
- `memory`: the arrays and words that a caller and its workers share.
- `native`: C and C++, and their compiling and loading.
"""
