"""Fails before its first step: its dataset is not there."""

import torch

data = torch.load("data/train.pt")
