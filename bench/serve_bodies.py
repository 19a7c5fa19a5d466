"""Serves a folder of exposition bodies over HTTP, one node a file, so that real captures can be watched.

    python bench/serve_bodies.py FOLDER [--port 9500] [--file-sd targets.json]

Every `*.prom`, `*.metrics` and `*.txt` below FOLDER becomes `/<path>`; `/targets.json` lists them as file_sd. The bytes
are sent as they are.
"""

from __future__ import annotations

import argparse
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

ENDINGS = (".prom", ".metrics", ".txt")


def bodies(folder: Path) -> dict[str, bytes]:
    """Path below the folder (posix, with a leading slash) -> bytes."""
    files = sorted(path for path in folder.rglob("*") if path.suffix in ENDINGS and path.is_file())
    return {"/" + path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def file_sd(paths: list[str], address: str) -> list[dict[str, object]]:
    """A target group a body. The node's name is the file's, without its ending."""
    return [
        {
            "targets": [address],
            "labels": {
                "node": Path(path).name.rsplit(".", 1)[0],
                "rack": Path(path).parts[1] if len(Path(path).parts) > 2 else "captures",
                "job": "node" if "node_exporter" in path else "gpu",
                "__metrics_path__": path,
            },
        }
        for path in paths
    ]


def handler(served: dict[str, bytes], listing: bytes) -> type[BaseHTTPRequestHandler]:
    class Bodies(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = unquote(urlsplit(self.path).path)
            body = listing if path == "/targets.json" else served.get(path)
            self.send_response(200 if body is not None else 404)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, *_: object) -> None:
            return

    return Bodies


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--port", type=int, default=9500)
    parser.add_argument("--file-sd", type=Path, help="also write the targets here")
    options = parser.parse_args()
    served = bodies(options.folder)
    listing = json.dumps(file_sd(list(served), f"127.0.0.1:{options.port}"), indent=1).encode()
    if options.file_sd:
        options.file_sd.write_bytes(listing)
    print(f"{len(served)} bodies at http://127.0.0.1:{options.port}/targets.json", flush=True)
    ThreadingHTTPServer(("127.0.0.1", options.port), handler(served, listing)).serve_forever()


if __name__ == "__main__":
    main()
