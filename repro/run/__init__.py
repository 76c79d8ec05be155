"""A run of the benchmark: its plan, its execution, its results folder and the verdicts on it."""
