"""Prometheus' HTTP API for reading, as Grafana's data source speaks it."""
