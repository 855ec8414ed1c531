"""Items fetched by worker processes that die."""

import os
import signal
import time

import pytest
import torch
from torch import Tensor

from captioning.data.loader import Loader


def mortal(request: int) -> Tensor:
    if request == 1:
        time.sleep(1)  # by then the batch before has been announced
        os.kill(os.getpid(), signal.SIGKILL)
    return torch.tensor(request)


def test_a_worker_that_dies_with_a_batch_in_hand_is_told_as_any_other() -> None:
    items = iter(Loader(mortal, sampler=range(4), num_workers=1))
    with pytest.raises(RuntimeError, match="DataLoader worker"):  # PyTorch's own, wherever this process is
        time.sleep(60)
    with pytest.raises(RuntimeError, match="DataLoader worker"):  # of the tensor that only the dead worker can give
        next(items)
