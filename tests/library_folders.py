"""Folders of image-to-text models of `transformers`, tiny and random."""

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from tokenizers.processors import TemplateProcessing
from torch import nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForImageTextToText,
    BertConfig,
    BlipImageProcessor,
    BlipProcessor,
    CLIPImageProcessor,
    GitProcessor,
    LlavaProcessor,
    PreTrainedTokenizerFast,
    ViTImageProcessor,
)

IMAGE = "<image>"
WORDS = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "dog", "man", "red", "ball", "runs"),
    *("on", "the", "grass", "plays", "with", IMAGE),
]
SIZE = {"height": 32, "width": 32}
LAYERS = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2}
LAYERS |= {"num_attention_heads": 2}
IMAGES = {**LAYERS, "image_size": 32, "patch_size": 16}
ENDS = {"bos_token_id": 2, "eos_token_id": 3, "pad_token_id": 0}
CHAT = (
    "{% for part in messages[0]['content'] %}{% if part['type'] == 'image' %}<image>{% else %} "
    "{{ part['text'] }}{% endif %}{% endfor %}"
)


def tokenizer():
    words = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="[UNK]"))
    words.pre_tokenizer, words.decoder = pre_tokenizers.Whitespace(), decoders.WordPiece()
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "bos_token": "[CLS]"}
    special |= {"eos_token": "[SEP]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    special |= {"image_token": IMAGE}
    return PreTrainedTokenizerFast(tokenizer_object=words, **special)


def randomised(config):
    torch.manual_seed(5)
    model = AutoModelForImageTextToText.from_config(config).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.6)
    return model


def blip(folder):
    ids = {"bos_token_id": 2, "eos_token_id": 3, "sep_token_id": 3, "pad_token_id": 0}
    text = {**LAYERS, **ids, "vocab_size": len(WORDS), "encoder_hidden_size": 16}
    config = AutoConfig.for_model(
        "blip",
        text_config={**text, "max_position_embeddings": 32, "projection_dim": 8},
        vision_config={**IMAGES, "projection_dim": 8},
    )
    model = randomised(config)
    with torch.no_grad():
        model.text_decoder.cls.predictions.bias[:3] = -100.0  # no special tokens but the end
    model.save_pretrained(folder)
    BlipProcessor(BlipImageProcessor(size=SIZE), tokenizer()).save_pretrained(folder)
    return model


def bert(folder):
    """A model of texts."""
    torch.manual_seed(0)
    model = AutoModel.from_config(BertConfig(**LAYERS, vocab_size=len(WORDS)))
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.6)
    model.save_pretrained(folder)
    words = tokenizer()
    words.backend_tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    words.save_pretrained(folder)
    return model


def vit_gpt2(folder):
    text = {"model_type": "gpt2", "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32}
    text |= {"vocab_size": len(WORDS), "is_decoder": True, "add_cross_attention": True}
    text |= {"bos_token_id": 2, "eos_token_id": 3, "pad_token_id": 0}
    ids = {"decoder_start_token_id": 2, "eos_token_id": 3, "pad_token_id": 0}
    config = AutoConfig.for_model(
        "vision-encoder-decoder", encoder={"model_type": "vit", **IMAGES}, decoder=text, **ids
    )
    model = randomised(config)
    model.generation_config.suppress_tokens = [0, 1, 2]
    model.save_pretrained(folder)
    ViTImageProcessor(size=SIZE).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return model


def cropped():
    return CLIPImageProcessor(size={"shortest_edge": 32}, crop_size=SIZE)


def git(folder):
    text = {**LAYERS, **ENDS, "vocab_size": len(WORDS), "max_position_embeddings": 32}
    model = randomised(AutoConfig.for_model("git", vision_config=IMAGES, **text))
    model.save_pretrained(folder)
    GitProcessor(cropped(), tokenizer()).save_pretrained(folder)
    return model


def llava(folder):
    """A model that chats."""
    text = {"model_type": "llama", **LAYERS, **ENDS, "vocab_size": len(WORDS)}
    images = {"model_type": "clip_vision_model", **IMAGES, "projection_dim": 8}
    seen = {"image_token_index": len(WORDS) - 1, "vision_feature_layer": -1, "image_seq_length": 4}
    config = AutoConfig.for_model("llava", text_config=text, vision_config=images, **seen)
    model = randomised(config)
    model.save_pretrained(folder)
    given = {"patch_size": 16, "num_additional_image_tokens": 1, "chat_template": CHAT}
    given["vision_feature_select_strategy"] = "default"
    LlavaProcessor(cropped(), tokenizer(), **given).save_pretrained(folder)
    return model
