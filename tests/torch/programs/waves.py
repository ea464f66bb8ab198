"""Three products, one launch each, for tests/torch/waves_test.py."""

import torch
import torch_xla

device = torch_xla.device()
x = torch.randn(128, 128).to(device)
for _ in range(3):
    x = x @ x
    torch_xla.sync(wait=True)
print(f"sum {x.sum().item():.3g}")
