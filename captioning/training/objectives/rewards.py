"""Rewards of captions: CIDEr-D and BLEU-4 on token ids, with EOS in the n-grams.

The end as a token: Rennie et al., CVPR 2017, appendix E: without it fragments such as "a man with
a" have a higher reward.

B images, S captions of each, T tokens.
"""

import numpy as np

from captioning.config.types import NotNegative, validated
from captioning.data.caption_words import CaptionWords, offsets
from captioning.metrics.cider import ORDERS, SIGMA, DocumentFrequencies, Floats, Ints, Pairs
from captioning.metrics.ngrams import corpus_bleu
from captioning.tokens import EOS, PAD


class Reward:
    """The reward r = cider CIDEr-D + bleu4 BLEU-4 of a caption.

    Against the references of its image, both of order 1.

    CIDEr-D is on the scale where papers print 100 for 1, BLEU-4 is of sentences.
    """

    @validated
    def __init__(self, cider: NotNegative = 1.0, bleu4: NotNegative = 0.0):
        if cider == bleu4 == 0:
            raise ValueError("cider=0 and bleu4=0 reward nothing; give one of them a weight")
        self.cider, self.bleu4 = cider, bleu4

    @property
    def signature(self) -> str:
        """Signature in the form of Hu et al. 2023 (SacreEOS), weights other than 1 first."""
        parts = ((self.cider, f"Cider-D[n{ORDERS},s{SIGMA}]"), (self.bleu4, f"BLEU[n{ORDERS}]"))
        return "+".join(
            name if weight == 1 else f"{weight:g}*{name}" for weight, name in parts if weight
        )

    def prepare(
        self, captions: CaptionWords[int], sizes: np.ndarray, vocabulary: int, reward_eos: bool
    ) -> None:
        """Count the document frequencies of the training images.

        `captions` are those of all images in a row as ids, also those too long to be read, UNK
        included, without BOS and EOS, and `sizes` their numbers for each image; with `reward_eos`
        the end is a token of references, document frequencies and candidates.
        """
        self.reward_eos, self._vocabulary = reward_eos, vocabulary
        self._captions, self._first = captions, offsets(sizes)
        every = map(self._references, range(len(sizes)))
        self.frequencies = DocumentFrequencies(every, vocabulary)

    def __call__(self, index: Ints, tokens: Ints) -> Floats:
        """Rewards `[B, S]` of captions `[B, S, T]` for the training images at `index` `[B]`.

        EOS is the last token of a complete caption, PAD may follow.
        """
        b, s, t = tokens.shape
        rows = tokens.reshape(-1, t)
        read = (rows != PAD) & ((rows != EOS) | self.reward_eos)
        captions = [row[own].tolist() for row, own in zip(rows, read, strict=True)]
        references = [self._references(position) for position in index]
        pairs = Pairs(captions, references, self._vocabulary)
        score = self.cider * pairs.cider_d(self.frequencies) if self.cider else np.zeros(b * s)
        if self.bleu4:
            score += self.bleu4 * corpus_bleu(pairs.bleu_counts())[:, ORDERS - 1]
        return score.reshape(b, s)

    def _references(self, image: int) -> list[list[int]]:
        """The references of a training image."""
        end = [EOS] * self.reward_eos
        return [[*self._captions[n], *end] for n in range(*self._first[image : image + 2])]
