"""Comparisons of two stacks, two runs or two machines: is one slower than the other, or is the difference noise?"""
