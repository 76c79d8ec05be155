"""An LSTM over characters, its state kept between steps, with a Trainer class of its own and a learning-rate lambda."""

import torch
from torch import nn


class Characters(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(128, 128)
        self.cell = nn.LSTM(128, 256, num_layers=2, batch_first=True)
        self.head = nn.Linear(256, 128)

    def forward(self, tokens, state=None):
        out, state = self.cell(self.embed(tokens), state)
        return self.head(out), state


class Training:
    def __init__(self, text, num_train_epochs=20):
        self.text, self.num_train_epochs = text, num_train_epochs
        self.model = Characters().cuda()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=2e-3)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: min(1, step / 100))

    def step(self, x, y, state):
        logits, state = self.model(x, state)
        loss = nn.functional.cross_entropy(logits.reshape(-1, 128), y.reshape(-1))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        return loss, tuple(each.detach() for each in state)

    def run(self):
        for epoch in range(self.num_train_epochs):
            state = None
            for start in range(0, self.text.shape[1] - 65, 64):
                x, y = self.text[:, start : start + 64].cuda(), self.text[:, start + 1 : start + 65].cuda()
                loss, state = self.step(x, y, state)
            print(f"epoch {epoch}: {loss:.3f}")


if __name__ == "__main__":
    Training(torch.randint(0, 128, (32, 6465))).run()
