"""Static files under hashed names that never change, so that a browser may keep them for ever."""

from __future__ import annotations

from whitenoise.storage import CompressedManifestStaticFilesStorage  # type: ignore[import-untyped]


class HashedModules(CompressedManifestStaticFilesStorage):  # type: ignore[misc]
    """Also rewrites the imports between our ES modules to the hashed names."""

    support_js_module_import_aggregation = True
