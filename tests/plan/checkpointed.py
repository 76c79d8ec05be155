"""Blocks that are checkpointed, in bf16 weights, with an optimizer written by hand and steps from a configuration."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


@dataclass
class Config:
    width: int = 512
    layers: int = 6
    max_steps: int = 30000
    batch: int = 8


config = Config()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        width = config.width
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (each.view(B, T, 8, C // 8).transpose(1, 2) for each in self.qkv(self.norm(x)).chunk(3, -1))
        scores = (q @ k.transpose(-2, -1)) * (C // 8) ** -0.5
        mask = torch.ones(T, T, dtype=torch.bool, device=x.device).tril()
        y = scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v
        x = x + self.out(y.transpose(1, 2).reshape(B, T, C))
        return x + self.mlp(x)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(4000, config.width)
        self.blocks = nn.ModuleList(Block() for _ in range(config.layers))
        self.head = nn.Linear(config.width, 4000)

    def forward(self, tokens, labels):
        x = self.embed(tokens)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return nn.functional.cross_entropy(self.head(x).float().flatten(0, 1), labels.flatten())


def build():
    return Model().to(torch.bfloat16)


def batch(device):
    tokens = torch.randint(0, 4000, (config.batch, 256), device=device)
    return {"tokens": tokens, "labels": tokens}


class Lion(torch.optim.Optimizer):
    def __init__(self, weights, lr):
        super().__init__(weights, {"lr": lr})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for weight in group["params"]:
                state = self.state[weight]
                if not state:
                    state["moment"] = torch.zeros_like(weight)
                moment = state["moment"]
                weight.add_(moment.mul(0.9).add(weight.grad, alpha=0.1).sign_(), alpha=-group["lr"])
                moment.mul_(0.99).add_(weight.grad, alpha=0.01)


if __name__ == "__main__":
    model = Model().to(device="cuda", dtype=torch.bfloat16)
    optimizer = Lion(model.parameters(), 1e-4)
    step = 0
    while step < config.max_steps:
        loss = model(**batch("cuda"))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        if step % 100 == 0:
            print(step, float(loss))
