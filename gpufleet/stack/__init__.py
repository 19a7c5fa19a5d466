"""Starts PostgreSQL, Valkey, web, live stream, workers, beat and the simulated fleet as one supervised group.

Plain Python. Nothing of the product imports it, and only `prepare` (run as a process of its own) loads Django.
"""
