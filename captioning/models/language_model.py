"""Captioners with a causal language model of the library `transformers` as decoder.

Mokady, Hertz, Bermano: "ClipCap: CLIP Prefix for Image Captioning", 2021; cross-attention between
the layers of a language model as in Rothe, Narayan, Severyn: "Leveraging Pre-trained Checkpoints
for Sequence Generation Tasks", 2020.

B images, N captions per image, T input tokens after t earlier ones, L context vectors of D
features, of which P vectors of E features enter the language model, V tokens, H heads of A
features.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from captioning.backbones.context import ContextSet, Grid
from captioning.config.types import Config, Length, Share, validated
from captioning.models.parallel import DecoderOutput, ParallelCaptioner
from captioning.models.parts.encoders import Encoder, Unchanged
from captioning.models.parts.multi_head import KeyValue, LayersState
from captioning.models.parts.numerics import glorot, initialise
from captioning.pretrained.library import check_sizes
from captioning.pretrained.loading import load_model
from captioning.tokens import BOS, EOS, PAD

try:
    from transformers import AutoConfig, AutoModelForCausalLM, EncoderDecoderCache
    from transformers.cache_utils import Cache, DynamicCache

    from captioning.models.library_cache import CaptionLayer, EncodedPrefix, ImageLayer, repeated
except ImportError as error:
    raise ImportError(
        "model=language_model needs another package: pip install 'captioning[transformers]'"
    ) from error

FAMILIES = {
    "prefix": ("gpt2", "gpt_neox", "llama", "mistral", "opt", "qwen2", "qwen3"),
    "cross": ("gpt2",),
}
"""Values of `model_type`: decoders that cache keys and values of every token."""
OURS = re.compile("cross|lora_")
"""In names of weights that a folder does not have."""
NEVER = -1e4
"""Logit of a token that a pretrained model does not have; finite, for label smoothing."""


class LanguageModel(ParallelCaptioner):
    """A causal language model that reads the image by `conditioning`.

    With `prefix` the image's vectors stand before BOS and see those before them; with `cross` the
    layers attend to them, for families that the library builds so (GPT-2). Vectors are those of the
    encoder, or of the image, mapped linearly to E features (D).

    Args:
        architecture: the settings of the library's `config.json`; the vocabulary is ours.
        path: the folder of the weights that training begins from (`load`).
        freeze: do not train these weights, without dropout in them.
        lora: the rank of adapters of all linear layers (Hu et al., "LoRA: Low-Rank Adaptation of
            Large Language Models", 2022), in training at the scale of 1 (D); None: no adapters.
        dropout: None: that of the architecture.
        max_tokens: the largest number of input tokens, including BOS.
        begin: `image`: the last vector of an encoder such as `Pooled` stands in place of BOS, as in
            the code of Mokady et al.
    """

    absent: Tensor  # `[V]` bool, the tokens of ours that a pretrained model does not have

    @validated
    def __init__(
        self,
        vocab_size: int,
        d_context: int,
        grid: Grid,
        *,
        architecture: Config,
        encoder: Callable[..., Encoder] | None = None,
        path: str | None = None,
        conditioning: Literal["prefix", "cross"] = "prefix",
        freeze: bool = False,
        lora: Length | None = None,
        dropout: Share | None = None,
        max_tokens: Length = 15,
        begin: Literal["token", "image"] = "token",
    ):
        super().__init__()
        self.path, self.freeze, self.cross = path, freeze, conditioning == "cross"
        family, known = architecture.get("model_type"), FAMILIES[conditioning]
        if family not in known:
            raise ValueError(
                f"architecture.model_type={family} must be one of {known} for "
                f"conditioning={conditioning}"
            )
        check_sizes("model.architecture", architecture)
        ours = {"vocab_size": vocab_size, "add_cross_attention": self.cross}
        tokens = {"pad_token_id": PAD, "bos_token_id": BOS, "eos_token_id": EOS}
        config = AutoConfig.for_model(**architecture | ours | tokens)
        if dropout is not None:
            shares = [name for name in vars(config) if name.endswith(("pdrop", "dropout"))]
            config.update(dict.fromkeys(shares, dropout))
        if config.num_hidden_layers < 1:
            raise ValueError(f"architecture has {config.num_hidden_layers} layers, of at least one")
        model = AutoModelForCausalLM.from_config(
            config, attn_implementation="eager", dtype=torch.float32, trust_remote_code=False
        )
        self.embed, self.output = model.get_input_embeddings(), model.get_output_embeddings()
        self.decoder = model.base_model
        self.decoder.set_input_embeddings(nn.Identity())  # it reads vectors
        if lora:
            from peft import LoraConfig, inject_adapter_in_model

            adapters = LoraConfig(
                r=lora,
                lora_alpha=lora,
                target_modules="all-linear",
                fan_in_fan_out=family == "gpt2",  # or it warns
            )
            inject_adapter_in_model(adapters, self.decoder)
            self.decoder.requires_grad_()
        self.register_buffer("absent", torch.zeros(vocab_size, dtype=torch.bool))
        self.heads, self.longest = config.num_attention_heads, config.max_position_embeddings
        self.encoder = (encoder or Unchanged)(d_context=d_context, grid=grid)
        # Refused before features of images are computed; an encoder may have fewer vectors.
        self._check_length(max_tokens + (0 if encoder or self.cross else grid[0] * grid[1]))
        self.attends, self.begins = self.encoder.located, begin == "image"
        if self.begins and (self.attends or self.cross):
            raise ValueError(
                "begin=image needs conditioning=prefix and an encoder without positions in the "
                "image, such as model/encoder=pooled"
            )
        self.project = nn.Linear(self.encoder.d_out, self.embed.embedding_dim)
        glorot(nn.ModuleList([self.encoder, self.project]))
        initialise(self.encoder)
        for parameter in self.pretrained if freeze else ():
            parameter.requires_grad_(False)

    @property
    def pretrained(self) -> list[nn.Parameter]:
        """The parameters that a folder of the library may have."""
        parts = nn.ModuleList([self.decoder, self.embed, self.output])
        return [weight for name, weight in parts.named_parameters() if not OURS.search(name)]

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        if self.freeze:
            self.decoder.eval()
        return self

    def prepare(self, counts: Callable[[], Tensor], tokenizer_ids: Sequence[int]) -> None:
        if self.path is not None:
            try:
                self.load(tokenizer_ids)
            except Exception as error:  # the library raises anything
                raise ValueError(f"path={self.path}: {error}") from error

    @torch.no_grad()
    def load(self, tokenizer_ids: Sequence[int]) -> None:
        """Take the weights of `path`, whose tokenizer has `tokenizer_ids` for our ids from 4 on."""
        source = load_model("AutoModelForCausalLM", "model.path", self.path)
        known = dict(source.base_model.named_parameters())
        own = {
            name.replace(".base_layer", ""): parameter
            for name, parameter in self.decoder.named_parameters()
            if not OURS.search(name)
        }
        if missing := sorted(own.keys() - known.keys()):
            raise ValueError(f"the weights {', '.join(missing[:3])} are not there")
        for name, parameter in own.items():
            parameter.copy_(known[name])
        special, end = source.config, source.config.eos_token_id
        if isinstance(end, list):
            end = end[0]
        if end is None:
            raise ValueError("its config.json has no eos_token_id, the end of a caption")
        known_ids = special.pad_token_id, special.bos_token_id, end, None
        ours = [end if row is None else row for row in known_ids]
        rows = torch.tensor([*ours, *tokenizer_ids])
        # (D) one token for several of ours, as GPT-2 has, is the end; it has no unknown words
        absent = rows == end
        absent[EOS] = False
        self.absent.copy_(absent)
        if rows.max() >= source.config.vocab_size:
            raise ValueError(
                f"data.vocabulary.subwords has ids up to {rows.max()}, and the model "
                f"{source.config.vocab_size} tokens"
            )
        for table, taken in (
            (self.embed, source.get_input_embeddings()),
            (self.output, source.get_output_embeddings()),
        ):
            for name, parameter in table.named_parameters():
                parameter.copy_(taken.get_parameter(name)[rows])

    def readout(self, hidden: Tensor) -> Tensor:
        return self.output(hidden).masked_fill(self.absent, NEVER)

    def start(self, context: ContextSet, n: int) -> LayersState:
        context = self.encoder(context)
        vectors, mask, begin = self.project(context.vectors), context.mask, None
        if self.begins:
            if vectors.shape[1] == 1:
                raise ValueError("begin=image needs more than one vector of the image")
            vectors, begin = vectors[:, :-1], vectors[:, -1]
        if self.cross:  # the library computes keys and values of the image beside those of a token
            cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
            token = torch.zeros_like(vectors[:, :1])
            self._decode(token, cache, encoder_hidden_states=vectors, encoder_attention_mask=mask)
            layers = cache.cross_attention_cache.layers
        else:
            cache = DynamicCache()
            self._decode(vectors, cache, mask)
            layers = cache.layers
        of_layers = tuple(KeyValue(layer.keys, layer.values) for layer in layers)
        return LayersState(EncodedPrefix(of_layers, mask, begin))

    def _check_length(self, length: int) -> None:
        if length > self.longest:
            raise ValueError(
                f"{length} vectors and tokens exceed the {self.longest} positions of this language "
                "model: set model/encoder=pooled, or fewer words"
            )

    def _decode(self, x: Tensor, cache: Any, mask: Tensor | None = None, **given: Any) -> Any:
        """Decode `[B, T, E]` after t tokens of a cache, which get those of `x`.

        `mask` is `[B, t + T]`.
        """
        first = cache.get_seq_length()
        self._check_length(first + x.shape[1])
        places = torch.arange(first, first + x.shape[1], device=x.device)[None]
        if mask is not None:  # as if there were no other vectors
            places = (mask.cumsum(1) - 1).clamp(min=0)[:, first:]
            given["attention_mask"] = mask
        return self.decoder(
            inputs_embeds=x, position_ids=places, cache=cache, use_cache=True, **given
        )

    def read(self, state: LayersState, tokens: Tensor, maps: int) -> DecoderOutput:
        b, n, length = tokens.shape
        image, x = state.image, self.embed(tokens).flatten(0, 1)
        if image.begin is not None and not state.text:
            x = torch.cat((repeated(image.begin, n)[:, None], x[:, 1:]), dim=1)
        prefix = repeat(None) if self.cross else image.layers
        pairs = zip(prefix, state.text or repeat(None, len(image.layers)), strict=False)
        words = cache = Cache([CaptionLayer(before, text, n) for before, text in pairs])
        mask, seen = None if image.mask is None else repeated(image.mask, n), None
        places = image.layers[0].key.shape[-2]
        given: dict[str, Any] = {"output_attentions": maps > 0}
        if self.cross:
            cache = EncoderDecoderCache(words, Cache([ImageLayer(kv, n) for kv in image.layers]))
            # only its size is read, as keys and values are in the cache
            given["encoder_hidden_states"] = x.new_zeros(()).expand(b * n, places, x.shape[-1])
            given["encoder_attention_mask"] = mask
        elif mask is not None:
            seen = nn.functional.pad(
                mask, (0, words.get_seq_length() + length - mask.shape[1]), value=True
            )
        out = self._decode(x, cache, seen, **given)
        text = tuple(
            KeyValue(*(part.unflatten(0, (b, n)) for part in (layer.keys, layer.values)))
            for layer in words.layers
        )
        weights = (out.cross_attentions if self.cross else out.attentions) if maps else ()
        return DecoderOutput(
            out.last_hidden_state.unflatten(0, (b, n)),
            replace(state, text=text),
            [alpha[..., :places] for alpha in weights],
        )

    def heads_of(self, weights: Tensor, tokens: Tensor) -> Tensor:
        alpha = weights.unflatten(0, tokens.shape[:2]).transpose(2, 3)
        return nn.functional.normalize(alpha, p=1, dim=-1)
