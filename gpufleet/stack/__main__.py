"""`python -m gpufleet.stack demo [OPTIONS]` and `python -m gpufleet.stack services -- COMMAND…`."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable

from gpufleet.stack import demo, options, throwaway
from gpufleet.stack.console import Console
from gpufleet.stack.problems import DISK_FULL_ERRNOS, StackError

USAGE = "usage: python -m gpufleet.stack demo [OPTIONS] | services -- COMMAND [ARGUMENT ...]"


def main(arguments: list[str]) -> int:
    """Exit code: 0 after a stop that was asked for, 1 after one clear sentence, or the command's own."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # until the supervisor listens by itself
    match arguments:
        case ["demo", *rest]:
            return _guarded(lambda: demo.run(options.read(rest), Console.standard()))
        case ["services", "--", _, *_]:
            return _guarded(lambda: throwaway.run(arguments[2:], Console.standard()))
    print(USAGE, file=sys.stderr)
    return 2


def _guarded(work: Callable[[], int]) -> int:
    try:
        return work()
    except StackError as error:
        print(f"gpufleet: {error}", file=sys.stderr)
    except OSError as error:
        if error.errno not in DISK_FULL_ERRNOS:
            raise
        print(f"gpufleet: The disk is full ({error.filename or 'no file named'}): make room.", file=sys.stderr)
    except KeyboardInterrupt:
        print("gpufleet: stopped during start", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
