"""The foundation of all packages: errors, schemas, parameters, and the contracts of operators, sources and sinks."""
