"""Items fetched ahead by worker processes."""

from collections.abc import Callable, Iterator
from multiprocessing import get_all_start_methods
from typing import Any, Generic, TypeVar

from torch.utils.data import DataLoader, Dataset

from captioning.data.workers import start_worker, starting_workers
from captioning.errors import CaptioningError

T = TypeVar("T")


class Loader(DataLoader[T]):
    """Fetches an item for each request of its `sampler`; further settings are a `DataLoader`'s.

    A worker's `CaptioningError` travels as an item and is raised where the items are read, in the words that it was
    raised with: PyTorch itself would put the worker's traceback in their place.
    """

    def __init__(self, fetch: Callable[[Any], T], **settings: Any) -> None:
        # joblib's processes, of hydra/launcher=processes, have a way of their own that starts no workers.
        how = "fork" if settings.get("num_workers") and "fork" in get_all_start_methods() else None
        super().__init__(
            _Fetched(fetch), batch_size=None, worker_init_fn=start_worker, multiprocessing_context=how, **settings
        )

    def __iter__(self) -> Iterator[T]:  # type: ignore[override]
        with starting_workers():
            items = super().__iter__()
        return _raising(items)


def _raising(items: Iterator[T | CaptioningError]) -> Iterator[T]:
    try:
        for item in items:
            if isinstance(item, CaptioningError):
                del items  # or the traceback keeps the workers, which the garbage collector ends after seconds for each
                raise item
            yield item
    except (EOFError, ConnectionError, FileNotFoundError) as error:
        # A worker that was killed after it announced a batch, and before this process took the file descriptors of
        # its tensors: PyTorch has a RuntimeError of its own for a worker that is killed at any other moment.
        raise RuntimeError("DataLoader worker was killed while it handed over a batch") from error


class _Fetched(Dataset[Any], Generic[T]):
    def __init__(self, fetch: Callable[[Any], T]) -> None:
        self.fetch = fetch

    def __getitem__(self, request: Any) -> T | CaptioningError:
        try:
            return self.fetch(request)
        except CaptioningError as error:
            return error
