"""Traces of the models' real code on fake tensors, the basis of all predictions. Needs torch, but no device."""
