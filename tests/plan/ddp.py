"""DistributedDataParallel under torchrun, with accumulation by no_sync, a sampler and a scheduler."""

import contextlib
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(512), nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)) for _ in range(4)
        )
        self.head = nn.Linear(512, 100)

    def forward(self, x, y):
        for layer in self.layers:
            x = x + layer(x)
        return nn.functional.cross_entropy(self.head(x), y)


def build():
    return Net()


def batch(device):
    return {"x": torch.randn(64, 512, device=device), "y": torch.randint(0, 100, (64,), device=device)}


def main():
    dist.init_process_group("nccl")
    rank, local = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    data = TensorDataset(torch.randn(8192, 512), torch.randint(0, 100, (8192,)))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=64, sampler=sampler, num_workers=2, pin_memory=True, drop_last=True)
    model = DDP(build().cuda(local), device_ids=[local])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 1000)
    for epoch in range(10):
        sampler.set_epoch(epoch)
        for number, (x, y) in enumerate(loader):
            last = number % 4 == 3
            with contextlib.nullcontext() if last else model.no_sync():
                loss = model(x.cuda(non_blocking=True), y.cuda(non_blocking=True)) / 4
                loss.backward()
            if last:
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad(set_to_none=True)
        total = loss.detach().clone()
        dist.all_reduce(total)
        if rank == 0:
            print(epoch, total.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
