"""Traces of the models' real code on fake tensors, of whose costs predictions are made: needs torch, and no device."""
