"""Waiting for what must come true, with a deadline and a reason when not."""

import time


class Timeout(AssertionError):
    """Something did not come true in time."""


def eventually(what, check, timeout, interval=0.25):
    """Calls `check` until it returns something true, and returns that.

    An exception of `check` counts as "not yet"; the last one, or what `check`
    returned last, is told when time is up. `what` completes "waited for …".
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            seen = check()
            if seen:
                return seen
            problem = f"last seen: {seen!r}"
        except Exception as error:  # whatever keeps it from being true
            problem = f"{type(error).__name__}: {error}"
        if time.monotonic() > deadline:
            raise Timeout(f"waited {timeout:g} s for {what}; {problem}")
        time.sleep(interval)


def always(what, check, seconds, interval=0.5):
    """Fails as soon as `check` returns a problem (a text) within `seconds`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        problem = check()
        if problem:
            raise AssertionError(f"{what}: {problem}")
        time.sleep(interval)
