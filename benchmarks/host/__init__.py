"""Parts of `benchmarks.host_bridge`."""
