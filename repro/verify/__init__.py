"""Decides the paper's cells and claims for little money: which runs, in which order, on which rented machines."""
