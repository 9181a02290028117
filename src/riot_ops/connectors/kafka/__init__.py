"""Kafka: a source, a sink, and clients of brokers."""
