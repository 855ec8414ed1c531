"""A captioning task so small that every number of its training can be computed again by hand.

D = 7 features on a grid of 3 x 3, captions of one to five words, one to three captions per image.
"""

import os
import random
from dataclasses import replace
from functools import partial
from pathlib import Path

import lightning as L
import pytest
import support
import torch
from lightning.pytorch.callbacks import LambdaCallback
from models.captioners import captioner, led
from models.tensors import gradient, normal  # noqa: F401 - for the tests
from pictures import plain
from torch.testing import assert_close
from torch.utils.data import DataLoader

from captioning.backbones.scratch import SmallCNN
from captioning.config.settings import Settings
from captioning.data.batch import collate
from captioning.data.example import Example, Noun, Reference, reference_texts
from captioning.data.module import CaptionData
from captioning.data.vocabulary import Vocabulary
from captioning.decoding import greedy
from captioning.metrics import Scorer
from captioning.models.protocol import Captioner
from captioning.training.module import CaptioningModule
from captioning.training.objectives import CrossEntropy, Reinforce, SelfCritical, TrainingData
from captioning.training.objectives.rewards import Reward
from captioning.training.schedule import warmup_decay

WORDS = ["red", "green", "blue", "square", "disc", "star", "left"]
DIM, GRID = 7, 3
BOX = (0.0, 0.0, 0.5, 1.0)
QUIET = [  # some train without validation
    *support.QUIET,
    pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no"),
]
"""Marks for tests that run Lightning's trainer."""


equal = partial(assert_close, rtol=1e-9, atol=1e-12)
"""Up to the order of sums in double precision."""


class Features:
    """Random context vectors, the same for the same position."""

    def rows(self, indices):
        seeds = [torch.Generator().manual_seed(i) for i in indices]
        return torch.stack([torch.randn(GRID**2, DIM, generator=seed) for seed in seeds])


def examples(count, folder=None):
    rng = random.Random(count)
    found = []
    for i in range(count):
        path = (folder or Path()) / f"picture {i}.png"
        if folder:
            plain(path, (12, 12), (20 * i, 50, 90))
        captions = [rng.choices(WORDS, k=rng.randint(1, 5)) for _ in range(rng.randint(1, 3))]
        references = (
            Reference(" ".join(words), tuple(words), (Noun(0, BOX),)) for words in captions
        )
        found.append(Example(i, path, tuple(references)))
    return found


def batch(first, last):
    """Images `first` to `last` - 1 of a fixed set of captions whose lengths differ much."""
    ids = Vocabulary(WORDS)
    chosen = examples(40)[first:last]
    captions = [[ids.encode(r.words) for r in e.references] for e in chosen]
    return collate(range(first, last), Features().rows(range(first, last)), captions)


def transformer():
    torch.manual_seed(0)
    sizes = {"max_tokens": 6, "d_model": 6, "heads": 3, "d_ff": 5}
    sizes |= {"encoder.layers": 1, "decoder_layers": 1, "dropout": 0.0}
    return captioner("spatial_transformer", len(WORDS) + 4, DIM, (GRID, GRID), **sizes)


def show_attend_tell():
    torch.manual_seed(0)
    sizes = {"d_embed": 5, "d_hidden": 11, "score.d_attention": 3}
    sizes |= {"dropout": 0.0, "attention.temperature": 0.2}
    return captioner("sat_soft", len(WORDS) + 4, DIM, (GRID, GRID), **sizes)


class Led(Captioner):
    """Attends to the location that the word it reads names, where locations are to be sampled.

    So the path of a caption is the same on every process and in every batch, and the gradient of
    its probability is not zero, which it would be if the probability were one.
    """

    def __init__(self, model):
        super().__init__()
        self.model = model
        self.readout, self.start, self.step = model.readout, model.start, model.step

    readout = start = step = None  # those of the model

    def forward(self, context, tokens, need_weights=False, sampled=None, uniform=None):
        return self.model(context, tokens, need_weights, sampled, led(self.model, tokens % GRID**2))


def module(
    model=None,
    objective=None,
    splits=None,
    metrics=("BLEU",),
    trainable=False,
    root=None,
    **settings,
):
    torch.manual_seed(1)
    splits = splits or {"val": examples(2), "test": examples(2)}
    defaults = {"optimizer": partial(torch.optim.SGD, lr=0.5), "schedule": warmup_decay}
    config = {"seed": 1, "model": {"d_model": 6}, "decoding": {"max_length": 5}}
    config["data"] = {"reader": {"root": root}}
    defaults |= {
        "vocabulary": Vocabulary(WORDS),
        "seed": 1,
        "stored": Settings.model_validate(config),
    }
    return CaptioningModule(
        backbone=SmallCNN(dim=DIM, size=2 * GRID, grid=GRID, trainable=trainable),
        model=model or transformer(),
        objective=objective or CrossEntropy(),
        search=partial(greedy, max_length=5),
        scorers={name: Scorer(reference_texts(splits[name]), metrics) for name in ("val", "test")},
        **(defaults | settings),
    )


def soft(**settings):
    """Soft attention with its regularisation."""
    return module(show_attend_tell(), CrossEntropy(doubly_stochastic=1.0), **settings)


def hard(**settings):
    """Hard attention whose every image is sampled, along known paths; the baseline has learned a
    little.
    """
    objective = Reinforce(sample_probability=1.0, entropy=0.1, reward_to_go=True, max_words=5)
    objective.baseline -= torch.arange(12.0, 0.0, -2.0)
    return module(Led(show_attend_tell()), objective, **settings)


class SameDraws(SelfCritical):
    """Draws the same captions of an image whatever the number of the batch, as halves of a batch
    have to.
    """

    def forward(self, *given):
        *others, draws = given
        return super().forward(*others, replace(draws, step=0))


def rewarded(found, images, model):
    """The objective, of the references of `images` and held near `model`."""
    found.prepare(TrainingData(images, Vocabulary(WORDS)), model)
    return found


def self_critical(**settings):
    """Soft attention that maximises the reward of sampled captions, near what it began as."""
    weights = {"xe_weight": 0.1, "kl_weight": 0.7}
    found = SameDraws(reward=Reward(bleu4=0.5), samples=3, max_length=5, **weights)
    model = show_attend_tell()
    return module(model, rewarded(found, examples(40), model), **settings)


SYSTEMS = {"transformer": module, "soft attention": soft}
SYSTEMS |= {"hard attention": hard, "self-critical": self_critical}
"""Modules by kind of training, each built afresh with the same weights."""


def data(splits, **settings):
    defaults = {"batch_size": 2, "eval_batch_size": 2, "max_words": 5}
    return CaptionData(
        splits, dict.fromkeys(splits, Features()), Vocabulary(WORDS), **(defaults | settings)
    )


def trainer(**settings):
    off = [f"enable_{part}" for part in ("checkpointing", "progress_bar", "model_summary")]
    defaults = dict.fromkeys([*off, "logger", "use_distributed_sampler"], False)
    defaults |= {"accelerator": "cpu", "devices": 1, "max_epochs": 1, "num_sanity_val_steps": 0}
    return L.Trainer(**(defaults | {"precision": "64-true"} | settings))


def take_place(port, rank, node):
    """As a launcher tells it to each of several processes."""
    place = {"LOCAL_RANK": rank, "NODE_RANK": node, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in place.items()})
    torch.set_num_threads(1)


def loader(batches):
    """Gives `batches` as they are, in this order."""
    return DataLoader(batches, batch_size=None)


def noted(look, hook="on_train_batch_end"):
    """A callback, and what `look` has seen of the trainer and the module each time."""
    seen = []
    return LambdaCallback(**{hook: lambda run, found, *_: seen.append(look(run, found))}), seen


def flat(model):
    """All parameters in one vector."""
    return torch.cat([p.detach().double().flatten() for p in model.parameters()])


def randomised(model, std, seed=3):
    """The model with normal parameters, large enough for attention that is far from even."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.data.normal_(std=std, generator=generator)
    return model
