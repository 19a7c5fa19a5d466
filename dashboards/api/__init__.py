"""The JSON API under /api/v1/. Fields may be added; none is renamed or dropped."""
