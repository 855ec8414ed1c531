"""Rewards: how good a sampled caption is, from token ids alone."""

from captioning.training.rewards.reward import Reward

__all__ = ["Reward"]
