"""What all other parts rest on: errors, schemas, parameters, and the contracts of operators, sources and sinks."""
