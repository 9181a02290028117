"""Stores of blobs and of table rows: folders, memory, Azure, databases."""

from riot_ops.connectors.stores.factory import open_blobs, open_table
from riot_ops.connectors.stores.table import Row

__all__ = ["Row", "open_blobs", "open_table"]
