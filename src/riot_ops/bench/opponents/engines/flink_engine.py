"""The programs on PyFlink, parallelism one: ``python -m … PROGRAM FILE...``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from riot_ops.bench.opponents.engines.programs import Checksum, Program, main

__all__ = ["run"]


def run(program: Program, files: list[str]) -> Checksum:
    """Run a program."""
    from pyflink.common import Configuration, Types, WatermarkStrategy
    from pyflink.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
    from pyflink.datastream.connectors.file_system import FileSource, StreamFormat
    from pyflink.datastream.state import ValueStateDescriptor

    class Step(KeyedProcessFunction):
        def open(self, runtime_context: RuntimeContext) -> None:
            self.state = runtime_context.get_state(ValueStateDescriptor("state", Types.PICKLED_BYTE_ARRAY()))

        def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
            state, rows = program.step(self.state.value(), value[1])
            self.state.update(state)
            yield from rows

    settings = Configuration()
    for name in ("python.executable", "python.client.executable"):
        settings.set_string(name, sys.executable)
    environment = StreamExecutionEnvironment.get_execution_environment(settings)
    environment.set_parallelism(1)
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), *files).build()
    lines = environment.from_source(source, WatermarkStrategy.no_watermarks(), "lines")
    keyed = lines.flat_map(lambda line: program.expand(line.encode())).key_by(lambda pair: pair[0])
    return Checksum.of(keyed.process(Step()).execute_and_collect())


if __name__ == "__main__":
    main(run)
