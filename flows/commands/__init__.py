"""Sub-commands of `animegamer`."""
