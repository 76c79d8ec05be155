"""The authors' raw results: the release asset artifacts.tar of their tag v1.0.0, read without running any of it.

We had no copy of it: all here was tried on workspaces made with the authors' code and invented numbers.
"""
