"""What all suites use: measures, trials, generated input, Spark sessions and clusters."""
