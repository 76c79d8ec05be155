"""Two models in turn, as in a GAN: each iteration has three backward passes and two optimizers."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

generator = nn.Sequential(nn.Linear(16, 256), nn.ReLU(), nn.Linear(256, 784), nn.Tanh()).cuda()
critic = nn.Sequential(nn.Linear(784, 256), nn.LeakyReLU(0.2), nn.Linear(256, 1)).cuda()
for_generator, for_critic = torch.optim.Adam(generator.parameters(), 2e-4), torch.optim.Adam(critic.parameters(), 2e-4)
loss_of = nn.BCEWithLogitsLoss()
loader = DataLoader(TensorDataset(torch.rand(3200, 784)), batch_size=32)
for epoch in range(7):
    for (real,) in loader:
        real = real.cuda()
        yes, no = torch.ones(len(real), 1, device="cuda"), torch.zeros(len(real), 1, device="cuda")
        for_critic.zero_grad()
        loss_of(critic(real), yes).backward()
        made = generator(torch.randn(len(real), 16, device="cuda"))
        loss_of(critic(made.detach()), no).backward()
        for_critic.step()
        for_generator.zero_grad()
        loss_of(critic(made), yes).backward()
        for_generator.step()
