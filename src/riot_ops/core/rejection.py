"""The column in which a source marks records that it could not read; the ingest step makes error records of them."""

import pyarrow as pa

__all__ = ["REJECTED", "REJECTION"]

#: Name of the column; null for all other records. A batch may lack it.
REJECTED = "_rejected"
REJECTION = pa.struct([("reason", pa.string()), ("message", pa.string()), ("raw", pa.string())])
