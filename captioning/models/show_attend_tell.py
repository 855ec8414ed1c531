"""Show, Attend and Tell: an LSTM that attends to the image before every word.

Xu et al., "Show, Attend and Tell: Neural Image Caption Generation with Visual Attention", 2015 (arXiv:1502.03044v3).

B images, N captions per image, C input positions, L context vectors of D features, m = d_embed, n = d_hidden,
A = d_attention, V words.
"""

from dataclasses import dataclass, replace
from typing import Literal, Self, get_args

import torch
from torch import Tensor, nn

from captioning.backbones.context import ContextSet
from captioning.borders.bounds import Positive, Share, Width
from captioning.models.additive_attention import Keys, additive_scores
from captioning.models.dropout import dropout
from captioning.models.outputs import CaptionOutput, Policy, Step

Choice = Literal["expected", "sample", "argmax"]


@dataclass(frozen=True, slots=True)
class Annotations:
    """What every step reads of the images, computed once for all of their captions.

    Attributes:
        vectors: a, `[B, L, D]`.
        keys: of W_a a_i + b, Eq. 4.
        mask: `[B, 1, L]` bool, True = may attend, or None.
    """

    vectors: Tensor
    keys: Keys
    mask: Tensor | None


@dataclass(frozen=True, slots=True)
class LSTMState:
    """Decode state: the images once, `hidden` and `cell` `[B, N, n]` of each hypothesis."""

    image: Annotations
    hidden: Tensor
    cell: Tensor

    def reorder(self, parents: Tensor) -> Self:
        """See `DecodeState.reorder`."""
        rows = torch.arange(parents.shape[0], device=parents.device)[:, None]
        return replace(self, hidden=self.hidden[rows, parents], cell=self.cell[rows, parents])


class InitialState(nn.Sequential):
    """f_init: tanh(W_2 tanh(W_1 a_mean + b_1) + b_2), of width n (D)."""

    def __init__(self, d_context: int, d_hidden: int) -> None:
        super().__init__(nn.Linear(d_context, d_hidden), nn.Tanh(), nn.Linear(d_hidden, d_hidden), nn.Tanh())


class ShowAttendTell(nn.Module):
    """The network of soft and of hard attention; what tells them apart is the objective and, if wanted, the choice.

    Args:
        vocab_size: V.
        d_context: D of the backbone.
        grid: every captioner is told it; this one reads context sets of any size.
        d_embed: m; one embedding serves the LSTM and the output (Eq. 1, 7).
        d_hidden: n.
        d_attention: A; None is D (D), as in the authors' released code.
        dropout: on the initial states and on the argument of L_o, not inside the LSTM (D).
        gate: scale the context by beta_t = sigmoid(f_beta(h_{t-1})) (section 4.2.1 of the paper).
        output_tanh: a tanh around the argument of L_o, which the authors' released code has and Eq. 7 has not.
        choice: the context of a step unless the caller says otherwise: its expectation under alpha (Eq. 13), the
            location drawn from alpha (Eq. 8), or the likeliest one.
        temperature: divisor of the scores e before the softmax (Eq. 5).
    """

    stochastic = True

    def __init__(
        self,
        vocab_size: int,
        d_context: int,
        grid: tuple[int, int],
        d_embed: Width = 512,
        d_hidden: Width = 1216,
        d_attention: Width | None = None,
        dropout: Share = 0.5,
        gate: bool = True,
        output_tanh: bool = False,
        choice: Choice = "expected",
        temperature: Positive = 1.0,
    ) -> None:
        super().__init__()
        if choice not in get_args(Choice):
            raise ValueError(f"choice is {choice!r}; allowed: {', '.join(get_args(Choice))}")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout is {dropout}; it is a probability, 0 <= dropout < 1")
        if temperature <= 0:
            raise ValueError(f"temperature is {temperature}; it must be above 0")
        d_attention = d_context if d_attention is None else d_attention
        self.dropout, self.output_tanh = dropout, output_tanh
        self.choice: Choice = choice
        self.temperature = temperature

        self.embed = nn.Embedding(vocab_size, d_embed)
        self.initial_hidden = InitialState(d_context, d_hidden)
        self.initial_cell = InitialState(d_context, d_hidden)
        self.attention_context = nn.Linear(d_context, d_attention)  # W_a, b
        self.attention_hidden = nn.Linear(d_hidden, d_attention, bias=False)  # W_h
        self.attention_score = nn.Parameter(torch.empty(d_attention))  # w
        self.gate = nn.Linear(d_hidden, 1) if gate else None  # f_beta
        # The affine map of Eq. 1 in the three parts of its argument; rows are i, f, o, g.
        self.lstm_word = nn.Linear(d_embed, 4 * d_hidden)
        self.lstm_hidden = nn.Linear(d_hidden, 4 * d_hidden, bias=False)
        self.lstm_context = nn.Linear(d_context, 4 * d_hidden, bias=False)
        self.output_hidden = nn.Linear(d_hidden, d_embed, bias=False)  # L_h
        self.output_context = nn.Linear(d_context, d_embed, bias=False)  # L_z
        self.output = nn.Linear(d_embed, vocab_size, bias=False)  # L_o
        self._initialise()

    def _initialise(self) -> None:
        # (D) Glorot's distribution for every matrix, but orthogonal recurrences (Saxe et al. 2014) and a forget gate
        # that starts open (Gers et al. 2000).
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        for block in self.lstm_hidden.weight.chunk(4):
            nn.init.orthogonal_(block)
        nn.init.ones_(self.lstm_word.bias.chunk(4)[1])
        nn.init.normal_(self.embed.weight, std=0.1)
        nn.init.uniform_(self.attention_score, -(len(self.attention_score) ** -0.5), len(self.attention_score) ** -0.5)

    def forward(
        self,
        context: ContextSet,
        tokens: Tensor,
        need_weights: bool = False,
        sampled: Tensor | None = None,
        locations: Tensor | None = None,
        uniform: Tensor | None = None,
    ) -> CaptionOutput:
        """Teacher forcing.

        Args:
            context: the images.
            tokens: `[B, N, C]` inputs that begin with BOS; PAD may follow the last word.
            need_weights: also give alpha.
            sampled: `[B]` bool, the images whose locations are drawn from alpha (Eq. 8); the others take the expected
                context. None: `choice` for all, and no policy.
            locations: `[B, N, C]`, the path to take where `sampled`, in place of drawn ones.
            uniform: `[B, N, C]` in [0, 1), the numbers that draw the locations; None: torch's generator does.
        """
        image, hidden, cell = self._read(context, tokens.shape[1])
        words = self.embed(tokens)
        from_words = self.lstm_word(words).unbind(dim=2)  # slices would cost a whole zero tensor each in backward
        hiddens, contexts, maps, log_probs, entropies = [], [], [], [], []
        for t, from_word in enumerate(from_words):
            log_alpha = self._log_alpha(image, hidden)
            alpha = log_alpha.exp()
            if sampled is None:
                weights = self._chosen(alpha)
            else:
                if locations is None:
                    drawn = _draw(alpha, None if uniform is None else uniform[..., t])
                else:
                    drawn = locations[..., t]
                weights = torch.where(sampled[:, None, None], _one_hot(drawn, alpha), alpha)
                log_probs.append(log_alpha.gather(-1, drawn[..., None]).squeeze(-1))
                entropies.append(_entropy(alpha, log_alpha, image.mask))
            z = self._context(image, hidden, weights)
            hidden, cell = self._lstm(from_word, hidden, z, cell)
            hiddens.append(hidden)
            contexts.append(z)
            if need_weights:
                maps.append(alpha)
        policy = None
        if sampled is not None:
            where = sampled[:, None, None]
            # not a product: 0 times the minus infinity of a masked location is not a number
            log_prob, entropy = (torch.stack(x, dim=2).where(where, 0.0) for x in (log_probs, entropies))
            policy = Policy(log_prob, entropy, sampled)
        hidden_features = self._output_features(words, torch.stack(hiddens, dim=2), torch.stack(contexts, dim=2))
        return CaptionOutput(hidden_features, torch.stack(maps, dim=2) if need_weights else None, policy)

    def readout(self, hidden: Tensor) -> Tensor:
        """Logits `[..., V]`: L_o of its argument (Eq. 7)."""
        return self.output(dropout(hidden, self.dropout, self.training))

    def start(self, context: ContextSet, n: int) -> LSTMState:
        """Reads each image once, for `n` hypotheses of it."""
        return LSTMState(*self._read(context, n))

    def step(self, tokens: Tensor, state: LSTMState) -> Step:
        """Reads one token `[B, N]` of each hypothesis."""
        words = self.embed(tokens)
        alpha = self._log_alpha(state.image, state.hidden).exp()
        z = self._context(state.image, state.hidden, self._chosen(alpha))
        hidden, cell = self._lstm(self.lstm_word(words), state.hidden, z, state.cell)
        logits = self.readout(self._output_features(words, hidden, z))
        return Step(logits, alpha, replace(state, hidden=hidden, cell=cell))

    def attention_maps(self, context: ContextSet, tokens: Tensor) -> dict[str, Tensor]:
        """`alpha`: `[B, N, C, 1, L]`."""
        attention = self(context, tokens, need_weights=True).attention
        return {"alpha": attention[..., None, :]}

    def _read(self, context: ContextSet, n: int) -> tuple[Annotations, Tensor, Tensor]:
        """The annotations, and h_0 and c_0 `[B, n, d_hidden]` of `n` captions."""
        vectors, mask = context.vectors, None
        if context.mask is None:
            mean = vectors.mean(dim=1)
        else:
            mask = context.mask[:, None]
            real = context.mask[..., None].to(vectors.dtype)
            mean = (vectors * real).sum(dim=1) / real.sum(dim=1)
        image = Annotations(vectors, Keys.of(self.attention_context(vectors)), mask)
        # of each caption its own dropout, as if the image came once per caption
        hidden, cell = (
            dropout(initial(mean)[:, None].repeat(1, n, 1), self.dropout, self.training)
            for initial in (self.initial_hidden, self.initial_cell)
        )
        # the cell is a sum over all steps: at least single precision
        return image, hidden, cell.to(torch.promote_types(cell.dtype, torch.float32))

    def _log_alpha(self, image: Annotations, hidden: Tensor) -> Tensor:
        """The logarithm of Eq. 5, `[B, N, L]`."""
        scores = additive_scores(image.keys, self.attention_hidden(hidden), self.attention_score)  # Eq. 4
        if image.mask is not None:
            scores = scores.masked_fill(~image.mask, float("-inf"))
        return (scores / self.temperature).log_softmax(dim=-1)

    def _chosen(self, alpha: Tensor) -> Tensor:
        """The weights of the context under `choice`, `[B, N, L]`."""
        if self.choice == "expected":
            return alpha
        return _one_hot(_draw(alpha) if self.choice == "sample" else alpha.argmax(dim=-1), alpha)

    def _context(self, image: Annotations, hidden: Tensor, weights: Tensor) -> Tensor:
        """z_t, `[B, N, D]`: Eq. 13, or Eq. 9 where the weights are one-hot."""
        z = weights.to(image.vectors.dtype) @ image.vectors
        return z if self.gate is None else self.gate(hidden).sigmoid() * z

    def _lstm(self, from_word: Tensor, hidden: Tensor, z: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """h_t and c_t, `[B, N, n]` (Eq. 1-3); `from_word` `[B, N, 4 n]` is the word's part of the affine map."""
        i, f, o, g = (from_word + self.lstm_hidden(hidden) + self.lstm_context(z)).chunk(4, dim=-1)
        cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
        return (o.sigmoid() * cell.tanh()).to(hidden.dtype), cell

    def _output_features(self, words: Tensor, hidden: Tensor, z: Tensor) -> Tensor:
        """The argument of L_o, `[..., m]` (Eq. 7)."""
        features = words + self.output_hidden(hidden) + self.output_context(z)
        return features.tanh() if self.output_tanh else features


def _draw(alpha: Tensor, uniform: Tensor | None = None) -> Tensor:
    """s_t ~ Multinoulli(alpha_t) (Eq. 8), `[B, N]`: where the sum of alpha first exceeds `uniform` `[B, N]`.

    The sums are those of alpha in units of 2^-32, so that they are exact and never fall: a location without weight has
    no share of them, and the last one is never passed, whatever the order in which a device adds.
    """
    if uniform is None:
        uniform = torch.rand(alpha.shape[:-1], device=alpha.device)
    weights = alpha.detach().to(torch.promote_types(alpha.dtype, torch.float32))
    sums = (weights * 2**32).to(torch.int64).cumsum(dim=-1)
    # `uniform` has 24 bits, the sum 33: their product fits, and its floor is below the sum
    height = ((uniform * 2**24).to(torch.int64) * sums[..., -1]) >> 24
    return torch.searchsorted(sums, height[..., None], right=True).squeeze(-1)


def _one_hot(location: Tensor, alpha: Tensor) -> Tensor:
    """s_t as a vector, `[B, N, L]`."""
    return torch.zeros_like(alpha).scatter(-1, location[..., None], 1.0)


def _entropy(alpha: Tensor, log_alpha: Tensor, mask: Tensor | None) -> Tensor:
    """H[s_t] in nats, `[B, N]`."""
    if mask is not None:
        log_alpha = log_alpha.masked_fill(~mask, 0.0)  # 0 log 0 = 0
    return -(alpha * log_alpha).sum(dim=-1)
