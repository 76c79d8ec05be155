"""transformers' Trainer on a small GPT-2 of random weights, in bf16 with checkpointing and accumulation."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, index):
        tokens = torch.randint(0, 5000, (256,))
        return {"input_ids": tokens, "labels": tokens}


def build():
    return GPT2LMHeadModel(
        GPT2Config(vocab_size=5000, n_embd=256, n_layer=4, n_head=4, n_positions=256, attn_pdrop=0.0)
    )


def batch(device):
    tokens = torch.randint(0, 5000, (8, 256), device=device)
    return {"input_ids": tokens, "labels": tokens}


if __name__ == "__main__":
    given = TrainingArguments(
        "out",
        num_train_epochs=3,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=2,
        bf16=True,
        report_to=[],
        save_strategy="no",
        logging_steps=10,
    )
    Trainer(build(), given, train_dataset=Tokens()).train()
