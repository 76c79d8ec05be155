"""The paper's printed numbers and their sources as data: settings, GPUs, tables, and arithmetic on them."""
