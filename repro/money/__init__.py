"""What training costs: machines to buy and GPUs to rent, what scaling brings, when owning beats renting.

Days come from `days.py` with their origin, prices from `prices.py` with their date; the rest is arithmetic on them.
"""
