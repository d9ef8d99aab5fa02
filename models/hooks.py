"""The methods that batchfleet calls on a user's class, and whether they can be called so.

A wrong one would fail every request, so it is told when a version is published or loaded.
"""

import ast
import inspect
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ..wire.errors import StoreError
from .model import Model

# Method → how it is called.
HOOKS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "load": ("context",),
        "preprocess": ("row",),
        "predict": ("rows", "context"),
        "postprocess": ("row",),
        "example": ("length",),
        "engines": (),
        "use_engine": ("name",),
    }
)


def check_hooks(model: Model) -> None:
    """Hold a model's methods against how they will be called.

    Raises:
        StoreError: `predict` is not there, or one takes other arguments.
    """
    kind = type(model)
    if kind.predict is Model.predict:
        raise StoreError(_lacks_predict(kind.__name__))
    for name, arguments in HOOKS.items():
        method = getattr(model, name)
        if inspect.iscoroutinefunction(method):
            raise StoreError(_is_async(kind.__name__, name))
        try:
            inspect.signature(method).bind(*arguments)
        except TypeError as error:
            raise StoreError(_takes_others(kind.__name__, name)) from error
        except ValueError:
            continue  # written in C, and says nothing of its arguments


def find_hook_fault(classes: Sequence[ast.ClassDef], *, has_all_bases: bool) -> str:
    """What is wrong with the methods of a class that is read and not run; empty where nothing is.

    Args:
        classes: the class and, in the order of inheritance, those bases that were read too.
        has_all_bases: no base is missing but `Model` itself.
    """
    name = classes[0].name
    methods: dict[str, ast.FunctionDef | ast.AsyncFunctionDef | None] = {}
    for one in classes:
        for node in one.body:
            for defined, method in _defined_by(node):
                methods.setdefault(defined, method)
    if has_all_bases and "predict" not in methods:
        return _lacks_predict(name)
    for hook, arguments in HOOKS.items():
        method = methods.get(hook)
        if isinstance(method, ast.AsyncFunctionDef):
            return _is_async(name, hook)
        if method is not None and not method.decorator_list and not _takes(method, len(arguments)):
            return _takes_others(name, hook)
    return ""


def defines(classes: Sequence[ast.ClassDef], name: str) -> bool:
    """Whether one of the classes defines a method."""
    nodes = (node for one in classes for node in one.body)
    return any(defined == name for node in nodes for defined, _ in _defined_by(node))


def _defined_by(
    node: ast.stmt,
) -> list[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef | None]]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return [(node.name, node)]
    targets: list[Any] = node.targets if isinstance(node, ast.Assign) else []
    return [(target.id, None) for target in targets if isinstance(target, ast.Name)]


def _takes(method: ast.FunctionDef, count: int) -> bool:
    """Whether a method can be called with `count` arguments by place, beside `self`."""
    arguments = method.args
    places = len(arguments.posonlyargs) + len(arguments.args) - 1
    needed = places - len(arguments.defaults)
    keywords_needed = any(default is None for default in arguments.kw_defaults)
    fits = needed <= count and (count <= places or arguments.vararg is not None)
    return fits and not keywords_needed


def _lacks_predict(name: str) -> str:
    return f"{name} does not define predict(self, rows, context)"


def _is_async(name: str, hook: str) -> str:
    return f"{name}.{hook} is async; batchfleet calls it on a thread, so remove `async`"


def _takes_others(name: str, hook: str) -> str:
    return f"{name}.{hook} must take ({', '.join(('self', *HOOKS[hook]))})"
