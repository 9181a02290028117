"""The foundation of all packages: errors, schemas, parameters, and the contracts of operators, sources and sinks."""

from riot_ops.core.pandas_import import defer_pandas

defer_pandas()
