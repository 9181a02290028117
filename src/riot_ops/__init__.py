"""IoT streaming operators."""
