"""Predictions without a GPU: traces of the real model code, and models of memory and time over them."""
