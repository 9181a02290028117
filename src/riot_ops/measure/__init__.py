"""What a run did: latency, rates, processor time, memory."""
