"""Check today's timm backbones with random weights, and print one row of a table for each.

python experiments/backbones_today/check.py

The features must be the network's own, without the tokens before those of the patches. Time is of
one CPU core, in units of that of tf_efficientnet_lite2.
"""

import time

import torch
from torch import Tensor

from captioning.backbones.timm import TimmBackbone

UNIT = "tf_efficientnet_lite2"
NETWORKS = [
    (UNIT, 224),
    ("vit_small_patch14_dinov2", 224),
    ("vit_base_patch14_reg4_dinov2", 224),
    ("vit_small_patch14_dinov2", 518),
    ("vit_small_patch16_dinov3", 256),
    ("vit_base_patch16_siglip_224", 224),
    ("vit_base_patch16_siglip_256", 256),
    ("vit_base_patch16_clip_quickgelu_224", 224),
    ("vit_base_patch32_clip_224", 224),
    ("eva02_base_patch16_clip_224", 224),
    ("resnet50_clip_gap", 224),
    ("fastvit_mci0", 256),
    ("swin_tiny_patch4_window7_224", 224),
    ("swinv2_tiny_window8_256", 256),
    ("convnext_tiny", 224),
    ("convnextv2_tiny", 224),
]
IMAGES, REPETITIONS = 4, 3


def own_features(backbone: TimmBackbone, images: Tensor) -> tuple[Tensor, int]:
    """Features `[B, L, D]` by timm's `forward_features`, and the number of tokens left out."""
    network = backbone.network.extractor
    normalised = backbone.transform.normalise(images)
    output = network.forward_features(normalised)
    prefix = getattr(network, "num_prefix_tokens", 0) if output.dim() == 3 else 0
    if output.dim() == 3:
        return output[:, prefix:], prefix
    channels_last = output.shape[-1] == backbone.dim
    return (output.flatten(1, 2) if channels_last else output.flatten(2).mT), 0


def seconds(backbone: TimmBackbone, images: Tensor) -> float:
    """CPU seconds of one image, the smallest of several measurements."""
    times = []
    for _ in range(REPETITIONS):
        start = time.process_time()
        backbone(images)
        times.append(time.process_time() - start)
    return min(times) / len(images)


@torch.inference_mode()
def main() -> None:
    torch.set_num_threads(1)
    print(
        "| `backbone.name` | `backbone.size` | `backbone.node` | grid | D | tokens left out "
        "| mean | parameters, M | time | cache, KiB per image |\n" + "|---" * 10 + "|"
    )
    unit = None
    for name, size in NETWORKS:
        backbone = TimmBackbone(name, None, size=size)
        images = torch.randint(0, 256, (IMAGES, 3, size, size), dtype=torch.uint8)
        prefix = 0
        if name != UNIT:  # which is not timm's class without a file, and is tested elsewhere
            expected, prefix = own_features(backbone, images)
            torch.testing.assert_close(backbone(images), expected, atol=1e-4, rtol=1e-4)
        own = seconds(backbone, images)
        unit = own if unit is None else unit
        height, width = backbone.grid
        print(
            f"| {name} | {size} | {backbone.settings.split()[-1]} | {height} x {width} "
            f"| {backbone.dim} | {prefix} | {backbone.transform.mean[0]:.3f} "
            f"| {sum(p.numel() for p in backbone.parameters()) / 1e6:.1f} | {own / unit:.1f} "
            f"| {backbone.cached_bytes(1) / 1024:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
