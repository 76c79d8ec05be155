"""The costs of training: machines to buy, GPUs to rent, what more GPUs bring, and when owning beats renting.

Days come from `days.py` with their origin, prices from `prices.py` with their date; the rest is arithmetic on them.
"""
