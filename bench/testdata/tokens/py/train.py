import asyncio
import math
import os
import random
import re
from contextlib import asynccontextmanager
from functools import lru_cache, wraps

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
WORD_RE = re.compile(r"[A-Za-z']+|\d+|[^\w\s]", re.UNICODE)


class SequenceDataset(Dataset):
    def __init__(self, tokens, block_size=128):
        self.tokens = np.asarray(tokens, dtype=np.int64)
        self.block_size = block_size

    def __len__(self):
        return max(0, len(self.tokens) - self.block_size)

    def __getitem__(self, idx):
        chunk = self.tokens[idx : idx + self.block_size + 1]
        x = torch.from_numpy(chunk[:-1])
        y = torch.from_numpy(chunk[1:])
        return x, y


class CausalSelfAttention(nn.Module):
    def __init__(self, n_embd, n_head, dropout=0.1):
        super().__init__()
        assert n_embd % n_head == 0
        self.qkv = nn.Linear(n_embd, 3 * n_embd, bias=False)
        self.proj = nn.Linear(n_embd, n_embd)
        self.drop = nn.Dropout(dropout)
        self.n_head = n_head

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(x).split(C, dim=2)
        q, k, v = (t.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=self.drop.p if self.training else 0.0)
        return self.proj(y.transpose(1, 2).contiguous().view(B, T, C))


def cosine_lr(step, *, warmup=200, total=10_000, peak=3e-4, floor=3e-5):
    if step < warmup:
        return peak * (step + 1) / warmup
    t = (step - warmup) / max(1, total - warmup)
    return floor + 0.5 * (peak - floor) * (1 + math.cos(math.pi * min(1.0, t)))


def retry(times=3, delay=0.5, exceptions=(OSError, asyncio.TimeoutError)):
    def decorate(func):
        @wraps(func)
        async def wrapper(*args, **kwargs):
            for attempt in range(1, times + 1):
                try:
                    return await func(*args, **kwargs)
                except exceptions as e:
                    if attempt == times:
                        raise
                    print(f"[{attempt}/{times}] {func.__name__} failed: {e!r}; retrying in {delay * attempt:.1f}s")
                    await asyncio.sleep(delay * attempt)
        return wrapper
    return decorate


@lru_cache(maxsize=4096)
def normalise(text: str) -> tuple[str, ...]:
    return tuple(w.lower() for w in WORD_RE.findall(text) if not w.isspace())


@asynccontextmanager
async def checkpoint(path, model, optimiser):
    if os.path.exists(path):
        state = torch.load(path, map_location=DEVICE)
        model.load_state_dict(state["model"])
        optimiser.load_state_dict(state["optimiser"])
    try:
        yield model
    finally:
        tmp = path + ".tmp"
        torch.save({"model": model.state_dict(), "optimiser": optimiser.state_dict()}, tmp)
        os.replace(tmp, path)


def evaluate(model, loader):
    model.eval()
    losses = []
    with torch.no_grad():
        for x, y in loader:
            logits = model(x.to(DEVICE))
            loss = F.cross_entropy(logits.flatten(0, 1), y.to(DEVICE).flatten())
            losses.append(loss.item())
    model.train()
    return {"loss": float(np.mean(losses)), "perplexity": math.exp(min(20, np.mean(losses)))}


def train(model, dataset, epochs=2, batch_size=32, seed=1337):
    random.seed(seed); np.random.seed(seed); torch.manual_seed(seed)
    loader = DataLoader(dataset, batch_size=batch_size, shuffle=True, num_workers=2, pin_memory=True)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1)
    step = 0
    for epoch in range(epochs):
        for x, y in loader:
            for group in opt.param_groups:
                group["lr"] = cosine_lr(step)
            loss = F.cross_entropy(model(x.to(DEVICE)).flatten(0, 1), y.to(DEVICE).flatten())
            opt.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            if step % 100 == 0:
                print(f"epoch={epoch} step={step:6d} loss={loss.item():.4f} lr={cosine_lr(step):.2e}")
            step += 1
