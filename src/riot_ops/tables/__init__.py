"""Tables: where :class:`~riot_ops.tasks.Lookup` finds the values of a key.

>>> from riot_ops import tables
>>> tables.CSVTable("stations.csv", on="id")
CSVTable(path='stations.csv', on=('id',))
"""

from riot_ops.tables.networks import Networks
from riot_ops.tables.road_network import RoadNetwork
from riot_ops.tables.store_table import StoreTable
from riot_ops.tables.table import Table, table_from
from riot_ops.tables.text_tables import CSVTable, InlineTable, KeyFile

__all__ = ["CSVTable", "InlineTable", "KeyFile", "Networks", "RoadNetwork", "StoreTable", "Table", "table_from"]
