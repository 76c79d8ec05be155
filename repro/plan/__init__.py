"""What a user's own training takes on a GPU that is not here, and whether a speed that was measured is normal.

`script.py` runs a training script in a process of its own, in which `child.py` has `fake_cuda.py` stand in for the GPU
and `recorder.py` note its operators; `answer.py` predicts. `took.py` and `causes.py` judge a measured speed.
"""
