"""Folders of open_clip, tiny and random."""

import open_clip
import torch
from json_files import write_json
from safetensors.torch import save_file

TINY = {
    "embed_dim": 16,
    "vision_cfg": {"image_size": 32, "layers": 1, "width": 32, "patch_size": 16, "head_width": 16},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 1},
}
TRANSFORM = {
    "mean": [0.5] * 3,
    "std": [0.5] * 3,
    "interpolation": "bicubic",
    "resize_mode": "shortest",
}


def clip(folder):
    """Write a network, which is returned."""
    torch.manual_seed(0)
    model = open_clip.CLIP(TINY["embed_dim"], TINY["vision_cfg"], TINY["text_cfg"]).eval()
    folder.mkdir()
    write_json(folder / "open_clip_config.json", {"model_cfg": TINY, "preprocess_cfg": TRANSFORM})
    save_file(model.state_dict(), folder / "open_clip_model.safetensors")
    return model
