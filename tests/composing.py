"""Hydra reads each file of `conf` and OmegaConf each interpolation once a process, not once a
composition or look, which cost half then.
"""

import pickle
from functools import cache

from hydra._internal.config_repository import ConfigRepository
from hydra.core.object_type import ObjectType
from omegaconf import base

from captioning.config.command import start
from captioning.config.registry import CONF

__all__ = ["start"]  # that of a command which composes in this process

FIXED = (f"file://{CONF}", "pkg://hydra.conf")
"""Places whose files do not change while tests run."""
_READ = {}
_load = ConfigRepository.load_config


def _load_once(repository, config_path):
    source = repository._find_object_source(config_path, ObjectType.CONFIG)
    if source is None or f"{source.scheme()}://{source.path}" not in FIXED:
        return _load(repository, config_path)
    key = source.path, config_path
    if key not in _READ:
        _READ[key] = pickle.dumps(_load(repository, config_path))
    return pickle.loads(_READ[key])  # each its own: it is merged into


ConfigRepository.load_config = _load_once
base.parse = cache(base.parse)
