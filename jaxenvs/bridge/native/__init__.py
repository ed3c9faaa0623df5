"""The C and C++ of the bridge, and how they are compiled and loaded.

`pool.h` defines the memory that C, C++ and Python share. Keep `memory/channel.py` in step with it.
"""
