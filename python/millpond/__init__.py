"""Millpond, a caching allocator for GPU memory. ``import millpond.torch`` for PyTorch."""

from millpond._library import Error, version

__all__ = ["Error", "__version__", "version"]
__version__: str = version()
