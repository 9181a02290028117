"""The example of the how-to page that needs Delta's own jar: its code runs, over stand-ins for Spark."""

from __future__ import annotations

import re
from pathlib import Path
from unittest import mock

PAGE = Path(__file__).resolve().parents[3] / "docs" / "howto" / "lakehouse.md"


def test_spark_writes_each_micro_batch_once_by_its_number():
    (code,) = re.findall(r"```python\n(def append.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    kept, spark, flow, frame = (mock.MagicMock() for _ in range(4))
    flow.frames.return_value = {"kept": kept}
    names = {"spark": spark, "flow": flow}
    exec(compile(code, str(PAGE), "exec"), names)
    assert kept.writeStream.foreachBatch.call_args.args == (names["append"],)
    names["append"](frame, 7)
    written = frame.write.format
    assert written.call_args.args == ("delta",)
    writer = written.return_value.mode.return_value
    assert writer.option.call_args.args == ("txnAppId", "greenhouse/kept")
    assert writer.option.return_value.option.call_args.args == ("txnVersion", 7)
