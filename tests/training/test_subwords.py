"""Training on pieces of words: where they are the words all numbers are today's, and rewards are of
words.
"""

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers

from captioning.data.module import CaptionData
from captioning.data.subwords import Subwords, build_vocabulary
from captioning.data.vocabulary import Vocabulary
from captioning.tokens import EOS, PAD
from captioning.training.objectives import CrossEntropy, SelfCritical, TrainingData
from captioning.training.objectives.rewards import Reward

from .world import (
    QUIET,
    WORDS,
    Features,
    examples,
    flat,
    module,
    rewarded,
    show_attend_tell,
    trainer,
)

pytestmark = QUIET


def words_as_pieces():
    ids = {word: i for i, word in enumerate([*WORDS, "[UNK]"])}
    made = Tokenizer(models.WordLevel(ids, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return Subwords(made.to_str())


def letters():
    """Pieces of words, most of them letters."""
    captions = [r.words for example in examples(20) for r in example.references]
    return build_vocabulary(captions, 1, 24, "bpe")


@pytest.mark.parametrize("kind", ["cross-entropy", "self-critical"])
def test_where_pieces_are_words_training_is_the_same_to_the_bit(kind):
    trained = []
    for vocabulary in (Vocabulary(WORDS), words_as_pieces()):
        model = show_attend_tell()
        objective = CrossEntropy()
        if kind == "self-critical":
            objective = SelfCritical(reward=Reward(bleu4=0.5), samples=3, max_length=5)
            objective.prepare(TrainingData(examples(6), vocabulary), model)
        splits = dict.fromkeys(("train", "val", "test"), examples(6))
        inputs = dict.fromkeys(splits, Features())
        task = CaptionData(splits, inputs, vocabulary, batch_size=2, max_words=5, max_pieces=5)
        made = module(model, objective, splits, vocabulary=vocabulary)
        run = trainer()
        run.fit(made, task)
        trained.append((flat(made.model), dict(run.callback_metrics)))
    (one, logged), (other, logged_too) = trained
    assert torch.equal(one, other)
    assert logged == logged_too
    assert logged["val/nll"] > 0


def test_rewards_compare_words_however_they_are_cut_into_pieces():
    pieces, images = letters(), examples(6)
    objective = SelfCritical(reward=Reward(), samples=2, max_length=30)
    objective.prepare(TrainingData(images, pieces), show_attend_tell())
    of_words = rewarded(
        SelfCritical(reward=Reward(), samples=2, max_length=5), images, show_attend_tell()
    )
    texts = [[["red", "disc"], ["green"]], [["blue", "star", "left"], ["red", "red"]]]

    def tokens(vocabulary):
        rows = [torch.tensor([*vocabulary.encode(w), EOS]) for image in texts for w in image]
        padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)
        return padded.unflatten(0, (2, 2))

    cut = tokens(pieces)
    assert cut.shape[-1] > 5  # or nothing is cut
    index = torch.tensor([0, 3]).numpy()
    ours = objective.reward(index, objective._in_words(cut).numpy())
    theirs = of_words.reward(index, tokens(Vocabulary(WORDS)).numpy())
    # the ids are others, and so is the order of sums
    assert ours == pytest.approx(theirs)
    assert ours.max() > 0
