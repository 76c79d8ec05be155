"""A loop without an end or a limit, that stops by its loss, on embeddings that a mask chooses."""

import torch
from torch import nn

model = nn.Sequential(nn.Embedding(1000, 64), nn.Linear(64, 1000)).to("cuda:0")
optimizer = torch.optim.Adam(model.parameters())
while True:
    tokens = torch.randint(0, 1000, (16, 32)).to("cuda:0")
    kept = torch.rand(16, 32, device="cuda:0") < 0.5
    loss = nn.functional.cross_entropy(model(tokens)[kept], tokens[kept])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if loss < 0.01:
        break
