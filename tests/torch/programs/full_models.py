"""One training step of public models at their full sizes, beside torch on the CPU: the loss and every gradient.

Usage: full_models.py [--small] [--highest] [NAME ...]
  resnet   torchvision's ResNet-18, 224 x 224            vit   torchvision's ViT-B/16
  gpt2     transformers' GPT-2 small, 128 tokens         lstm  two layers of 650 over 10,000 words, 35 a text
  unet     diffusers' UNet2DModel, 32 x 32, 15 M parameters
--small: small images, and fewer layers where the package has a choice. Without the package of a model it says so; exit
code 77 if no model could run.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable

import models
import torch
import torch_xla
import torch_xla.core.xla_model as xm
from torch import nn
from torch.nn import functional

SKIPPED = 77
SMALL = "--small" in sys.argv
PACKAGES = {"resnet": "torchvision", "vit": "torchvision", "gpt2": "transformers", "lstm": "torch",
            "unet": "diffusers"}


class Labelled(nn.Module):
    """A classifier of images with its loss."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(self.body(x), torch.arange(len(x), device=x.device))


def resnet() -> nn.Module:
    import torchvision

    return Labelled(torchvision.models.resnet18())


def vit() -> nn.Module:
    import torchvision

    if SMALL:
        return Labelled(torchvision.models.VisionTransformer(image_size=64, patch_size=16, num_layers=2,
                                                             num_heads=4, hidden_dim=128, mlp_dim=256))
    return Labelled(torchvision.models.vit_b_16())


class Gpt2(nn.Module):
    """Predicts the next word."""

    def __init__(self) -> None:
        super().__init__()
        import transformers

        sizes = {"n_layer": 2, "n_embd": 128, "n_head": 4, "vocab_size": 1000} if SMALL else {}
        self.model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0, **sizes))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.model(ids, labels=ids).loss


class Lstm(nn.Module):
    """The language model of Zaremba et al. (2014), medium size, without dropout."""

    def __init__(self) -> None:
        super().__init__()
        words, width = (500, 64) if SMALL else (10_000, 650)
        self.embedding, self.head = nn.Embedding(words, width), nn.Linear(width, words)
        self.body = nn.LSTM(width, width, 2, batch_first=True)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        scores = self.head(self.body(self.embedding(ids))[0])
        return functional.cross_entropy(scores[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


class Unet(nn.Module):
    """Predicts the noise in an image, at a step of diffusion for each image."""

    def __init__(self) -> None:
        super().__init__()
        from diffusers import UNet2DModel

        widths = (32, 64) if SMALL else (64, 128, 256)
        down = ("DownBlock2D",) * (len(widths) - 1) + ("AttnDownBlock2D",)
        up = ("AttnUpBlock2D",) + ("UpBlock2D",) * (len(widths) - 1)
        self.model = UNet2DModel(sample_size=32, in_channels=3, out_channels=3, layers_per_block=2, norm_num_groups=16,
                                 block_out_channels=widths, down_block_types=down, up_block_types=up)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        noise = torch.sin(17 * x)
        times = 100 * torch.arange(len(x), device=x.device)
        return functional.mse_loss(self.model(0.8 * x + 0.6 * noise, times).sample, noise)


def images(batch: int, size: int) -> torch.Tensor:
    return torch.randn(batch, 3, size, size, generator=torch.Generator().manual_seed(1))


def words(batch: int, length: int, most: int) -> torch.Tensor:
    return torch.randint(most, (batch, length), generator=torch.Generator().manual_seed(1))


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], torch.Tensor]]] = {
    "resnet": (resnet, lambda: images(8, 64) if SMALL else images(4, 224)),
    "vit": (vit, lambda: images(4, 64) if SMALL else images(2, 224)),
    "gpt2": (Gpt2, lambda: words(2, 32, 1000) if SMALL else words(2, 128, 50257)),
    "lstm": (Lstm, lambda: words(4, 16, 500) if SMALL else words(8, 35, 10_000)),
    "unet": (Unet, lambda: images(2, 32) if SMALL else images(4, 32))}


def main() -> int:
    """Compares those that the arguments name, or all."""
    torch.ones(1, device=xm.xla_device()).cpu()  # before the first backward: autograd counts the devices there
    highest = "--highest" in sys.argv
    torch_xla._XLAC._xla_set_mat_mul_precision("highest" if highest else "default")
    wanted = [name for name in sys.argv[1:] if not name.startswith("--")] or list(MODELS)
    names = [name for name in wanted if importlib.util.find_spec(PACKAGES[name])]
    for name in sorted(set(wanted) - set(names)):
        print(f"{name:7} skipped: the environment has no {PACKAGES[name]}")
    failures = sum(not models.compare(name, MODELS[name][0], MODELS[name][1](), highest) for name in names)
    print(f"{len(names) - failures} passed, {failures} failed")
    return 1 if failures else 0 if names else SKIPPED


if __name__ == "__main__":
    sys.exit(main())
