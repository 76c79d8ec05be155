"""accelerate around a loop of its own: prepare, accumulate, backward, clip."""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.positions = nn.Embedding(3000, 256), nn.Embedding(128, 256)
        layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.head = nn.Linear(256, 5)

    def forward(self, tokens, labels):
        x = self.embed(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        x = self.encoder(x)
        return nn.functional.cross_entropy(self.head(x.mean(1)), labels)


def build():
    return Encoder()


def batch(device):
    return {
        "tokens": torch.randint(0, 3000, (32, 128), device=device),
        "labels": torch.randint(0, 5, (32,), device=device),
    }


if __name__ == "__main__":
    accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=2)
    data = TensorDataset(torch.randint(0, 3000, (6400, 128)), torch.randint(0, 5, (6400,)))
    loader = DataLoader(data, batch_size=32, shuffle=True)
    model = build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in range(4):
        for tokens, labels in loader:
            with accelerator.accumulate(model):
                loss = model(tokens, labels)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
        accelerator.print(epoch, loss.item())
