"""This machine: its host, GPUs, drivers, packages and builds, and which settings can run on it."""
