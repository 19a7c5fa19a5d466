"""Addresses of the pages by what they show. They are part of the contract, so they are written out, not looked up."""

from __future__ import annotations

from urllib.parse import quote


def node_address(name: str) -> str:
    return f"/nodes/{quote(name, safe='')}/"


def gpu_address(uuid: str) -> str:
    """A UUID of the form `<node>/<pci bus id>` keeps its slash."""
    return f"/gpus/{quote(uuid, safe='/')}/"


def incident_address(incident_id: int) -> str:
    return f"/incidents/{incident_id}/"
