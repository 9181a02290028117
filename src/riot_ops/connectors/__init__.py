"""Connectors to brokers and stores."""

from typing import TYPE_CHECKING

from riot_ops.core.lazy import lazy_names

if TYPE_CHECKING:
    from riot_ops.connectors.delta.sink import DeltaSink
    from riot_ops.connectors.mqtt.sink import MQTTSink
    from riot_ops.connectors.mqtt.source import MQTTSource

__all__ = [
    "DeltaSink",
    "MQTTSink",
    "MQTTSource",
]

#: By name, the module that defines it.
_MODULES = {
    "DeltaSink": "riot_ops.connectors.delta.sink",
    "MQTTSink": "riot_ops.connectors.mqtt.sink",
    "MQTTSource": "riot_ops.connectors.mqtt.source",
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _MODULES)
