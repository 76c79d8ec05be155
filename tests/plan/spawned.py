"""A process for each GPU by torch.multiprocessing, whose rank and address it sets itself."""

import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn


def worker(rank, world):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = "12355"
    dist.init_process_group("nccl", rank=rank, world_size=world)
    torch.cuda.set_device(rank)
    m = nn.parallel.DistributedDataParallel(nn.Linear(512, 512).to(rank), device_ids=[rank])
    o = torch.optim.SGD(m.parameters(), 0.1)
    for i in range(300):
        loss = m(torch.randn(32, 512, device=rank)).pow(2).mean()
        o.zero_grad()
        loss.backward()
        o.step()


if __name__ == "__main__":
    n = torch.cuda.device_count()
    mp.spawn(worker, args=(n,), nprocs=n, join=True)
