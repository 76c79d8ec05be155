"""A convolutional network on images: fp16 with a gradient scaler, channels last, a loader with workers, epochs."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __len__(self):
        return 6400

    def __getitem__(self, index):
        return torch.randn(3, 64, 64), index % 10


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.one = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)
        )
        self.two = nn.Sequential(nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width))

    def forward(self, x):
        return torch.relu(x + self.two(self.one(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.ReLU())
        self.blocks = nn.Sequential(Residual(64), nn.MaxPool2d(2), Residual(64), nn.Conv2d(64, 128, 1), Residual(128))
        self.head = nn.Linear(128, 10)

    def forward(self, images):
        return self.head(self.blocks(self.stem(images)).mean((2, 3)))


class Loss(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = Net()

    def forward(self, images, labels):
        return nn.functional.cross_entropy(self.net(images), labels)


def build():
    return Loss()


def batch(device):
    return {"images": torch.randn(32, 3, 64, 64, device=device), "labels": torch.randint(0, 10, (32,), device=device)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("--batch-size", type=int, default=32)
    args = parser.parse_args()
    loader = DataLoader(Images(), args.batch_size, shuffle=True, num_workers=4, pin_memory=True)
    model = build().to("cuda", memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
    scaler = torch.amp.GradScaler("cuda")
    for epoch in range(args.epochs):
        correct = 0
        for images, labels in loader:
            images, labels = images.to("cuda", memory_format=torch.channels_last, non_blocking=True), labels.to("cuda")
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(images, labels)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            if not torch.isfinite(loss):
                raise SystemExit("the loss is not finite")
        print(epoch, loss.item(), correct)


if __name__ == "__main__":
    main()
