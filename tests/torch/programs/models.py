"""One training step of models of each kind on the board, beside torch on the CPU: the loss and every gradient.

Usage: models.py [--highest] [NAME ...]: resnet, vit, gpt2, lstm, unet. The models are narrow; their layers are those of
the full ones. --highest: products in f32.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import transformers
from torch import nn
from torch.nn import functional


def conv(inputs: int, outputs: int, stride: int = 1, size: int = 3) -> nn.Module:
    return nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)


class Block(nn.Module):
    """Two convolutions beside a shortcut, as in ResNet-18."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(conv(inputs, outputs, stride), nn.BatchNorm2d(outputs), nn.ReLU(),
                                  conv(outputs, outputs), nn.BatchNorm2d(outputs))
        self.shortcut = nn.Identity() if stride == 1 and inputs == outputs else nn.Sequential(
            conv(inputs, outputs, stride, 1), nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.body(x) + self.shortcut(x))


class ResNet(nn.Module):
    """Eight blocks in four stages."""

    def __init__(self) -> None:
        super().__init__()
        widths = (8, 8, 16, 32, 64)
        blocks = [Block(inputs if first else outputs, outputs, 2 if first and inputs != outputs else 1)
                  for inputs, outputs in zip(widths, widths[1:], strict=False) for first in (True, False)]
        self.body = nn.Sequential(conv(3, 8, 2, 7), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1), *blocks,
                                  nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(self.body(x), torch.arange(len(x), device=x.device))


class VisionTransformer(nn.Module):
    """Patches, a class token, an encoder with attention before its layer norm."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 32, 4, 4)
        self.token, self.places = nn.Parameter(torch.zeros(1, 1, 32)), nn.Parameter(torch.randn(1, 17, 32) / 50)
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.places
        return functional.cross_entropy(self.head(self.encoder(x)[:, 0]), torch.arange(len(x), device=x.device))


class Gpt2(nn.Module):
    """GPT-2 of transformers."""

    def __init__(self) -> None:
        super().__init__()
        self.model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
            vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0,
            attn_pdrop=0.0, bos_token_id=0, eos_token_id=0))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.model(ids, labels=ids).loss


class Lstm(nn.Module):
    """Two layers in both directions over an embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(64, 16)
        self.body, self.head = nn.LSTM(16, 24, 2, batch_first=True, bidirectional=True), nn.Linear(48, 64)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        scores = self.head(self.body(self.embedding(ids))[0])
        return functional.cross_entropy(scores[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


class Unet(nn.Module):
    """Predicts the noise in an image: down, attention in the middle, up with the skipped arrays."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.down = conv(3, 16), conv(16, 32, 2)
        self.norms = nn.ModuleList([nn.GroupNorm(4, 16), nn.GroupNorm(4, 32), nn.GroupNorm(4, 16)])
        self.time = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 32))
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)
        self.up, self.last = nn.ConvTranspose2d(32, 16, 4, 2, 1), conv(32, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        noise = torch.sin(17 * x)
        steps = torch.arange(len(x), device=x.device)
        waves = steps[:, None] * torch.exp(-torch.arange(8, device=x.device) / 2.0)
        time = self.time(torch.cat([waves.sin(), waves.cos()], 1))[:, :, None, None]
        skip = functional.silu(self.norms[0](self.first(0.8 * x + 0.6 * noise)))
        middle = functional.silu(self.norms[1](self.down(skip)) + time)
        flat = middle.flatten(2).transpose(1, 2)
        flat = flat + self.attention(flat, flat, flat, need_weights=False)[0]
        up = functional.silu(self.norms[2](self.up(flat.transpose(1, 2).reshape(middle.shape))))
        return functional.mse_loss(self.last(torch.cat([up, skip], 1)), noise)


def image() -> torch.Tensor:
    return torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(1))


def ids() -> torch.Tensor:
    return torch.randint(64, (4, 20), generator=torch.Generator().manual_seed(1))


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], torch.Tensor]]] = {
    "resnet": (ResNet, lambda: torch.randn(8, 3, 64, 64, generator=torch.Generator().manual_seed(1))),
    "vit": (VisionTransformer, image), "gpt2": (Gpt2, ids), "lstm": (Lstm, ids), "unet": (Unet, image)}


CONVOLUTIONS = ("resnet", "vit", "unet")


def step(model_of: Callable[[], nn.Module], batch: torch.Tensor, device: torch.device | str,
         autocast: bool = False) -> tuple[float, list[torch.Tensor]]:
    torch.manual_seed(0)
    model = model_of().to(device).train()
    for part in model.modules():
        if isinstance(part, transformers.PreTrainedModel):
            part.tie_weights()  # .to() of another device makes two parameters of one
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        loss = model(batch.to(device))
    loss.backward()
    if device != "cpu":
        torch_xla.sync()
    return loss.item(), [weight.grad.cpu() for weight in model.parameters() if weight.grad is not None]


def distance(a: list[torch.Tensor], b: list[torch.Tensor]) -> float:
    """Of all gradients as one vector, relative."""
    one, other = (torch.cat([each.flatten() for each in some]).double() for some in (a, b))
    return ((one - other).norm() / one.norm()).item()


def compare(name: str, model_of: Callable[[], nn.Module], batch: torch.Tensor, highest: bool) -> bool:
    """Whether the step is as near to torch on the CPU as the precision allows; prints the distances. With bf16 operands
    the gradients may be as far from f32 as those that torch computes on the CPU in autocast, which rounds operands and
    results. PyTorch/XLA asks for no precision in gradients of convolutions, nor in transposed ones.
    """
    loss, gradients = step(model_of, batch, "cpu")
    found, others = step(model_of, batch, xm.xla_device())
    if highest:
        bounds = (1e-3, 0.02) if name in CONVOLUTIONS else (1e-5, 1e-5)
    else:
        bounds = (0.01, max(0.01, distance(gradients, step(model_of, batch, "cpu", autocast=True)[1])))
    far = abs(found / loss - 1), distance(gradients, others)
    good = all(a <= b for a, b in zip(far, bounds, strict=True))
    print(f"{name:7} loss {found:.5f}, CPU {loss:.5f}; distance of gradients {far[1]:.2e}, at most {bounds[1]:.2e}"
          f"{'' if good else '  FAILED'}", flush=True)
    return good


def main() -> int:
    """Compares those that the arguments name, or all."""
    torch.ones(1, device=xm.xla_device()).cpu()  # before the first backward: autograd counts the devices there
    highest = "--highest" in sys.argv
    torch_xla._XLAC._xla_set_mat_mul_precision("highest" if highest else "default")
    names = [name for name in sys.argv[1:] if name != "--highest"] or list(MODELS)
    failures = sum(not compare(name, MODELS[name][0], MODELS[name][1](), highest) for name in names)
    print(f"{len(names) - failures} passed, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
