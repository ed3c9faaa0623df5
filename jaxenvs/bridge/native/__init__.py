"""The C and C++ of the bridge, and how they are compiled and loaded.

`pool.h` has the memory that C, C++ and Python share; who changes it changes `memory/lines.py` too.
"""
