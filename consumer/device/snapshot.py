"""Values that a model's code gave and may change later: it may return one buffer each time."""

import sys
from copy import deepcopy
from typing import Any

import numpy as np

from ...models.model import Row

_IMMUTABLE = frozenset((type(None), bool, int, float, complex, str, bytes))


def snapshot(value: Any, model: Any = None) -> Any:
    """The value as it is now, whatever the code that gave it does next.

    Arrays, tensors and containers are copied, and objects of other classes as far as they can be:
    one that cannot (it holds a lock, say) is returned as it is. `model`, where a value refers to
    it, is not copied along.
    """
    try:
        return _kept(value, model)
    except (SystemExit, KeyboardInterrupt, MemoryError):
        raise
    except BaseException:  # noqa: BLE001  it holds itself, nests too deep, or is of an odd class
        return _deep(value, model)


def _kept(value: Any, model: Any) -> Any:
    kind = type(value)
    if kind in _IMMUTABLE:
        return value
    if issubclass(kind, np.ndarray) and not value.dtype.hasobject:
        return value.copy(order="K")
    if kind is dict:
        return {name: _kept(part, model) for name, part in value.items()}
    if kind is Row:
        parts = {name: _kept(part, model) for name, part in value.items()}
        return Row(parts, _kept(value.parameters, model), value.truncate)
    if kind is list or kind is tuple:
        if _IMMUTABLE.issuperset(map(type, value)):
            return kind(value)
        return kind([_kept(part, model) for part in value])
    if issubclass(kind, np.generic) and kind is not np.void:
        return value
    return _tensor(value) if _is_tensor(value) else _deep(value, model)


def _is_tensor(value: Any) -> bool:
    """Whether this is a torch tensor; torch is asked only where a model has imported it."""
    kind = getattr(sys.modules.get("torch"), "Tensor", None)
    return isinstance(kind, type) and issubclass(type(value), kind)


def _tensor(value: Any) -> Any:
    copy = value.clone()
    return copy.pin_memory() if value.is_pinned() else copy


def _deep(value: Any, model: Any) -> Any:
    try:
        return deepcopy(value, {id(model): model})
    except (SystemExit, KeyboardInterrupt, MemoryError):
        raise
    except BaseException:  # noqa: BLE001  any class may refuse to be copied, in any way
        return value
