"""A run of the benchmark: planned, carried out, kept in a folder, read again, judged."""
