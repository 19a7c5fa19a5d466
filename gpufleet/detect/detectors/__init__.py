"""One module a detector: pure functions from windows and rules to findings."""
