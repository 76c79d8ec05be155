"""A training on the CPU that times its own steps: by arguments compiled, with pointwise work, with a slow loader."""

import argparse
import time
import zlib

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, default=1024)
parser.add_argument("--length", type=int, default=1)
parser.add_argument("--chain", type=int, default=0, help="pointwise operators after each layer")
parser.add_argument("--compile", action="store_true")
parser.add_argument("--packed", action="store_true", help="data are compressed, and an example takes milliseconds")
parser.add_argument("--steps", type=int, default=12)
args = parser.parse_args()
device = "cuda" if torch.cuda.is_available() else "cpu"


class Examples(Dataset):
    def __init__(self):
        self.example = np.random.randn(args.length, args.width).astype(np.float32)
        self.packed = zlib.compress(np.random.randint(0, 9, 1 << 20).astype(np.uint8).tobytes())

    def __len__(self):
        return 512 * args.steps

    def __getitem__(self, number):
        if args.packed:
            zlib.decompress(self.packed)
        return self.example, number % 10


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(args.width, args.width)

    def forward(self, x):
        x = torch.relu(self.inner(x))
        for number in range(args.chain):
            x = x * 0.999 + 0.001 * number
        return x


model = nn.Sequential(*(Layer() for _ in range(4)), nn.Linear(args.width, 10)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
run = torch.compile(model) if args.compile else model
began = time.perf_counter()
for x, y in DataLoader(Examples(), batch_size=512):
    loss = nn.functional.cross_entropy(run(x.to(device)).mean(1), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{time.perf_counter() - began:.6f} s, loss {loss.item():.4f}")
    began = time.perf_counter()
