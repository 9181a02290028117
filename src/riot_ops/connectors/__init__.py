"""Connections to the world outside: brokers and stores."""

from riot_ops.connectors.mqtt.sink import MqttSink
from riot_ops.connectors.mqtt.source import MqttSource

__all__ = ["MqttSink", "MqttSource"]
