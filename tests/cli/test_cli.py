"""Tests of the softmax command: test_cli.py COMMAND [TOPIC...]. Standard library only. Ends with a count; status 1 if a test failed."""
import os
import sys
import tempfile
import traceback

import check_attention  # noqa: F401 (the tests register themselves)
import check_calibrate  # noqa: F401
import check_documentation  # noqa: F401
import check_family  # noqa: F401
import check_formats  # noqa: F401
import check_hostile  # noqa: F401
import check_loss  # noqa: F401
import check_matrices  # noqa: F401
import check_metrics  # noqa: F401
import check_operators  # noqa: F401
import check_output  # noqa: F401
import check_pictures  # noqa: F401
import check_plot  # noqa: F401
import check_readme  # noqa: F401
import check_report  # noqa: F401
import check_route  # noqa: F401
import check_score  # noqa: F401
import check_select  # noqa: F401
import check_sample  # noqa: F401
import check_screen  # noqa: F401
import check_text  # noqa: F401
import check_topk  # noqa: F401
import check_usage  # noqa: F401
from harness import S, Skip, TESTS


def attempt(function):
    with tempfile.TemporaryDirectory(prefix="softmax-cli-") as S.directory:
        try:
            function()
            return "ok"
        except Skip as e:
            return "skipped: %s" % e
        except Exception:
            traceback.print_exc()
            return "FAILED"


def main():
    S.command = os.path.abspath(sys.argv[1])
    topics = sys.argv[2:]
    results = []
    for topic, function in TESTS:
        if topics and topic not in topics:
            continue
        results.append(attempt(function))
        print("%-10s %-50s %s" % (topic, function.__name__, results[-1]), flush=True)
    failed = results.count("FAILED")
    print("%d tests, %d failed, %d skipped" % (len(results), failed, len(results) - failed - results.count("ok")))
    return 1 if failed or not results else 0


if __name__ == "__main__":
    sys.exit(main())
