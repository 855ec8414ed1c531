"""Errors that are the user's to solve, and the wording of messages."""

import re
from collections.abc import Sequence
from difflib import get_close_matches


class CaptioningError(Exception):
    """A problem that the user can solve; commands print the message alone and exit with 1."""


class Stopped(BaseException):
    """A signal has ended the work; not an `Exception`, so that a sweep stops too."""

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message, signal_number)
        self.exit_code = 128 + signal_number  # as shells have it

    def __str__(self) -> str:
        return str(self.args[0])


OURS = {
    "trainer.max_epochs": "epochs, num_epochs, n_epochs, trainer.epochs, trainer.num_epochs",
    "trainer.devices": "num_gpus, trainer.gpus, trainer.num_gpus, trainer.num_devices",
    "trainer.accelerator": "device, accelerator, trainer.device",
    "trainer.gradient_clip_val": "clip, grad_clip, max_grad_norm, gradient_clip, trainer.grad_clip",
    "trainer.precision=bf16-mixed": "amp, fp16, bf16, mixed_precision, trainer.amp",
    "device=cuda or trainer=gpu": "gpu, gpus, cuda, use_cuda",
    "trainer=gpu": "trainer=cuda",
    "trainer=auto": "trainer=mps, trainer=default",
    "debug=true trainer.limit_train_batches=1.0 trainer.max_epochs=100, which trains on a few "
    "images again and again": "overfit, trainer.overfit_batches",
    "debug=true, which runs two batches of training, validation and test": "dry_run, fast_dev_run, "
    "trainer.fast_dev_run",
    "optimizer.lr": "learning_rate, optimizer.learning_rate, optimizer.alpha",
    "optimizer.weight_decay": "wd, optimizer.wd, optimizer.decay",
    "schedule": "scheduler, lr_scheduler, lr_schedule, optimizer.scheduler, optimizer.schedule",
    "data.batch_size": "batch, bs, batchsize, train_batch_size, trainer.batch_size",
    "data.num_workers": "workers, trainer.num_workers, data.workers",
    "data.root": "data_dir, data_root, data.path, data.dir, data.folder",
    "data.vocabulary.subwords=bpe": "tokenizer, data.tokenizer, data.subwords, data.tokens=bpe",
    "data.vocabulary.max_size": "vocab_size, data.vocab_size, data.vocabulary.size",
    "data.vocabulary.min_count": "min_freq, data.min_count, data.vocabulary.min_freq",
    "data.max_words": "max_len, data.max_len, data.max_length",
    "decoding.width": "beam, beam_size, num_beams, beam_width, decoding.beam, decoding.beam_size, "
    "decoding.num_beams, decoding.beam_width",
    "decoding=beam": "decoding=beam_search",
    "decoding=sample decoding.top_p=0.9": "decoding=nucleus, decoding=top_p",
    "decoding=sample decoding.top_k=50": "decoding=top_k, decoding=topk",
    "model": "arch, architecture, decoder",
    "model.d_hidden or model.d_model": "model.hidden_size, model.hidden_dim, model.dim",
    "model.d_embed or model.d_model": "model.embed_size, model.embed_dim, model.embedding_size",
    "model.decoder_layers": "model.layers, model.num_layers, model.n_layers",
    "model.heads": "model.num_heads, model.n_heads",
    "model=sat_soft": "model=sat, model=show_attend_tell, model=show_attend_and_tell",
    "model=show_tell": "model=nic, model=lstm, model=show_and_tell",
    "model=up_down": "model=butd, model=bottom_up",
    "model=meshed_memory": "model=m2, model=m2_transformer",
    "model=x_linear": "model=xlan",
    "backbone": "encoder, cnn, feature_extractor",
    "backbone=timm": "backbone=vgg16, backbone=clip, backbone=efficientnet, backbone=convnext",
    "backbone.trainable=true": "finetune, fine_tune, finetune_cnn",
    "objective=self_critical": "objective=scst, objective=rl, scst",
    "objective=cross_entropy": "objective=xe, objective=ce, objective=nll",
    "objective": "loss, criterion",
    "metrics.test=[BLEU,CIDEr]": "metrics",
    "logger=wandb": "wandb, use_wandb, logger.wandb",
    "logger=tensorboard": "tensorboard, logger.tensorboard, logger=tb",
    "checkpoint or init_from": "checkpoint, init_from, ckpt, ckpt_path, checkpoint_path, weights, "
    "pretrained, load_from",
    "resume=true": "resume_from, resume_from_checkpoint, trainer.resume_from_checkpoint",
    "runs": "out, out_dir, output_dir, save_dir, log_dir",
    "captioning run": "captioning train, captioning fit",
    "captioning evaluate": "captioning test, captioning eval, captioning score",
    "captioning predict": "captioning caption, captioning generate",
    "captioning runs": "captioning list",
}
"""What is written here, and the words of other programs for it."""
INSTEAD = {word: ours.split(" or ") for ours, words in OURS.items() for word in words.split(", ")}


def did_you_mean(name: str, allowed: Sequence[str], meant: Sequence[str] = ()) -> str:
    """Return a hint at `meant`, or else at the closest of `allowed`, after a space; or nothing."""
    folded = {word.casefold(): word for word in allowed}
    meant = meant or [folded[close] for close in get_close_matches(name.casefold(), folded, n=1)]
    return f" Did you mean {' or '.join(meant)}?" if meant else ""


def no_setting(path: str, name: str, allowed: Sequence[str], elsewhere: Sequence[str] = ()) -> str:
    """The message for an unknown setting `name` below `path`; `elsewhere` are its namesakes."""
    where = f"in {path}" if path else "at the top level"
    full = f"{path}.{name}" if path else name
    # other commands have other settings, and other models
    known = [
        ours
        for ours in INSTEAD.get(full, ())
        if (path and not ours.startswith(f"{path}."))
        or re.split(r"\W", ours.removeprefix(f"{path}."))[0] in allowed
    ]
    hint = did_you_mean(name, allowed, known or elsewhere)
    return f"there is no setting {full}.{hint} Settings {where}: {', '.join(sorted(allowed))}"


SECRETS: set[str] = set()
"""Tokens that are sent to servers, and that messages must not show."""
QUOTED = 200
"""Characters of a value that a message shows."""


def quoted(value: object) -> str:
    """Format a value as YAML, or an error as its message, in at most `QUOTED` characters."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    try:
        text = str(value) or (type(value).__name__ if isinstance(value, Exception) else "")
    except ValueError:  # Python prints no number of more than some thousand digits
        text = "a number of too many digits"
    for secret in SECRETS:
        text = text.replace(secret, "***")
    if len(text) > QUOTED:  # the end of a path tells more than its middle
        text = f"{text[: QUOTED // 2 - 3]} ... {text[2 - QUOTED // 2 :]}"
    return one_line(text)


def listed(names: Sequence[str], most: int = 3) -> str:
    """Join the first names by commas; an ellipsis stands for further ones."""
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


def one_line(text: str) -> str:
    """A text without line breaks and control characters of terminals."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
