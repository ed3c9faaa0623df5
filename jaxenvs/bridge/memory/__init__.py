"""The arrays and counters that a caller shares with its workers."""
