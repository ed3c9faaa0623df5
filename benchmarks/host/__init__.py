"""The parts of `benchmarks.host_bridge`."""
