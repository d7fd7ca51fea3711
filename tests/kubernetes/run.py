"""`run.py NAME…`: runs tests by name. Ends with 77, which CTest shows as
skipped, if none of them could run."""

import sys
import unittest

SKIPPED = 77


def main():
    suite = unittest.defaultTestLoader.loadTestsFromNames(sys.argv[1:])
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    for test, reason in result.skipped:
        print(f"{test}: {reason}", file=sys.stderr)
    if not result.wasSuccessful():
        return 1
    ran = result.testsRun - len(result.skipped)
    return 0 if ran > 0 else SKIPPED


if __name__ == "__main__":
    sys.exit(main())
