"""The machine at hand: its host, GPUs, drivers, packages, builds, and what they can run."""
