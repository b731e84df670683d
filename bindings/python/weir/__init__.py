"""Weir: inference of language models with bounded, accounted, portable key/value memory."""

from ._engine import Engine, Info, Piece, Sequence
from ._library import Error, set_log, version

__all__ = ["Engine", "Error", "Info", "Piece", "Sequence", "set_log", "version"]
__version__ = "0.1.0"
