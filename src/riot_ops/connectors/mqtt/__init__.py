"""MQTT: brokers, published and received messages."""
