"""The suite threat: threat detection of the paper on a streaming intrusion detection system."""
