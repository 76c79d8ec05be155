"""Looks for what is not its own: the network, credentials, files elsewhere. It tells by its error what it found."""

import os
import socket

import torch

secrets = sorted(name for name in os.environ if name.endswith(("TOKEN", "KEY")))
assert not secrets, secrets
assert os.listdir(os.path.expanduser("~")) in ([], [".cache"]), os.listdir(os.path.expanduser("~"))
try:
    socket.create_connection(("192.0.2.1", 80), timeout=1)
except OSError:
    pass
else:
    raise SystemExit("the network is there")
open(torch.__file__, "a")
