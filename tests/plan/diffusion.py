"""A small diffusion model: a U-Net, a mean of weights kept beside it, mse on noise, several backward-free reads."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

BATCH, STEPS = 16, 50_000


class UNet(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(1, width), nn.SiLU(), nn.Linear(width, width))
        self.down1, self.down2 = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.middle = nn.Sequential(
            nn.GroupNorm(8, 2 * width), nn.SiLU(), nn.Conv2d(2 * width, 2 * width, 3, padding=1)
        )
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.out = nn.Conv2d(2 * width, 3, 3, padding=1)

    def forward(self, x, t):
        one = F.silu(self.down1(x)) + self.time(t[:, None])[:, :, None, None]
        two = self.down2(one)
        two = two + self.middle(two)
        return self.out(torch.cat([F.silu(self.up(two)), one], 1))


device = "cuda" if torch.cuda.is_available() else "cpu"
model = UNet().to(device)
mean = copy.deepcopy(model).eval().requires_grad_(False)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4)
alphas = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000), 0).to(device)
running = 0.0
for step in range(STEPS):
    images = torch.rand(BATCH, 3, 32, 32).to(device) * 2 - 1
    t = torch.randint(0, 1000, (BATCH,), device=device)
    noise = torch.randn_like(images)
    a = alphas[t].view(-1, 1, 1, 1)
    noisy = a.sqrt() * images + (1 - a).sqrt() * noise
    loss = F.mse_loss(model(noisy, t.float() / 1000), noise)
    optimizer.zero_grad()
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if torch.isnan(norm):
        continue
    optimizer.step()
    with torch.no_grad():
        for average, weight in zip(mean.parameters(), model.parameters()):
            average.lerp_(weight, 0.001)
    running = 0.9 * running + 0.1 * loss.item()
    if step % 100 == 0:
        print(f"{step} {running:.4f} {norm:.3f}")
