"""Connections to the world outside: brokers and stores."""

from riot_ops.connectors.mqtt_sink import MqttSink
from riot_ops.connectors.mqtt_source import MqttSource

__all__ = ["MqttSink", "MqttSource"]
