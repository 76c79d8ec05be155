"""Two stacks, two runs, two machines: is one slower than the other, or is it noise?"""
