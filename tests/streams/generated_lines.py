"""Lines of generated streams, for their tests."""


def lines(source, start=0, end=4000):
    batches = source.read({"start": start, "end": end})
    return [bytes(line).decode() for batch in batches for line in batch["payload"].to_pylist()]
