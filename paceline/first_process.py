"""Imported before all else by what a container starts: its first process ignores SIGTERM unless it has a handler, so that a
pod that is deleted while its modules load would stay for its whole grace period. Elsewhere this does nothing."""

import os
import signal

_STOPPED = 143  # Stopped.exit_code, without loading the packages around errors.py

if os.getpid() == 1:
    signal.signal(signal.SIGTERM, lambda *_: os._exit(_STOPPED))
