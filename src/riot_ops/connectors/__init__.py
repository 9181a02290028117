"""Connectors to brokers and stores."""

from typing import TYPE_CHECKING

from riot_ops.core.lazy import lazy_names

if TYPE_CHECKING:
    from riot_ops.connectors.delta.sink import DeltaSink
    from riot_ops.connectors.delta.source import DeltaSource
    from riot_ops.connectors.http_sink import HTTPSink
    from riot_ops.connectors.iceberg.sink import IcebergSink
    from riot_ops.connectors.iceberg.source import IcebergSource
    from riot_ops.connectors.influx_sink import InfluxSink
    from riot_ops.connectors.kafka.sink import KafkaSink
    from riot_ops.connectors.kafka.source import KafkaSource
    from riot_ops.connectors.mqtt.sink import MQTTSink
    from riot_ops.connectors.mqtt.source import MQTTSource
    from riot_ops.connectors.postgres_sink import PostgresSink

__all__ = [
    "DeltaSink",
    "DeltaSource",
    "HTTPSink",
    "IcebergSink",
    "IcebergSource",
    "InfluxSink",
    "KafkaSink",
    "KafkaSource",
    "MQTTSink",
    "MQTTSource",
    "PostgresSink",
]

#: By name, the module that defines it.
_MODULES = {
    "DeltaSink": "riot_ops.connectors.delta.sink",
    "DeltaSource": "riot_ops.connectors.delta.source",
    "HTTPSink": "riot_ops.connectors.http_sink",
    "IcebergSink": "riot_ops.connectors.iceberg.sink",
    "IcebergSource": "riot_ops.connectors.iceberg.source",
    "InfluxSink": "riot_ops.connectors.influx_sink",
    "KafkaSink": "riot_ops.connectors.kafka.sink",
    "KafkaSource": "riot_ops.connectors.kafka.source",
    "MQTTSink": "riot_ops.connectors.mqtt.sink",
    "MQTTSource": "riot_ops.connectors.mqtt.source",
    "PostgresSink": "riot_ops.connectors.postgres_sink",
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _MODULES)
