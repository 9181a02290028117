"""SenML as bytes."""
