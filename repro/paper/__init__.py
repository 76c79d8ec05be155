"""What the paper and its sources say, as data: settings, GPUs, tables, and arithmetic on them."""
