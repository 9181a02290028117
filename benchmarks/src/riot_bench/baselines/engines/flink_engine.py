"""The programs on PyFlink with parallelism one: ``python -m … PROGRAM FILE...``.

Each job starts its own cluster and worker, even if another job ran in this process before.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

from riot_bench.baselines.engines.programs import PROGRAMS, RowCounter, main

__all__ = ["build"]


def build(name: str, files: list[str], into: RowCounter) -> Callable[[], None]:
    """Build a program."""
    from pyflink.common import Configuration, Types, WatermarkStrategy
    from pyflink.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
    from pyflink.datastream.connectors.file_system import FileSource, StreamFormat
    from pyflink.datastream.state import ValueStateDescriptor

    program = PROGRAMS[name]

    class Step(KeyedProcessFunction):
        def open(self, runtime_context: RuntimeContext) -> None:
            self.state = runtime_context.get_state(ValueStateDescriptor("state", Types.PICKLED_BYTE_ARRAY()))

        def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
            state, rows = program.step(self.state.value(), value[1])
            self.state.update(state)
            yield from rows

    settings = Configuration()
    for setting in ("python.executable", "python.client.executable"):
        settings.set_string(setting, sys.executable)
    environment = StreamExecutionEnvironment.get_execution_environment(settings)
    environment.set_parallelism(1)
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), *files).build()
    lines = environment.from_source(source, WatermarkStrategy.no_watermarks(), "lines")
    keyed = lines.flat_map(lambda line: program.expand(line.encode())).key_by(lambda pair: pair[0])
    results = keyed.process(Step())

    def run() -> None:
        for row in results.execute_and_collect():
            into.add(row)

    return run


if __name__ == "__main__":
    main(build)
