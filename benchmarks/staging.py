"""What staging, auditing and publishing add to a daily partition of flights, beside a write without audits.

Run it with `make bench-staging`. The writes take turns in one session. It prints medians of the differences by pair.
"""

import argparse
import logging
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import dagster as dg

from benchmarks.overhead import DAYS, PARTITION, Bench, counted_round_trips, day_frames, flights

BY_METADATA: Final = {
    "not_empty": "count(*) > 0",
    "plausible": "min(dep_delay) > -200",
    "origin": {"not_null": "origin"},
}
BY_SCAN: Final = {**BY_METADATA, "mean": "avg(dep_delay) < 500"}
CASES: Final[Mapping[str, Mapping[str, Any]]] = {
    "no audits": {},
    "3 audits by metadata": BY_METADATA,
    "4 audits, one by a scan": BY_SCAN,
}


def main() -> None:
    """Write each day in each way, and print what the audits add."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer days")
    days = 8 if parser.parse_args().quick else 40
    logging.disable(logging.INFO)
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(Path(name))
        frames = list(day_frames(flights(bench.session, Path(name)), days + 4))
        seconds: dict[str, list[float]] = {case: [] for case in CASES}
        for turn, (frame, day, _) in enumerate(frames):
            for position in range(len(CASES)):
                case = list(CASES)[(turn + position) % len(CASES)]
                context = dg.build_output_context(
                    asset_key=dg.AssetKey(f"t{list(CASES).index(case)}"),
                    asset_partitions_def=DAYS,
                    partition_key=str(day),
                    definition_metadata=dict[str, Any](PARTITION, **{"iceberg/audits": dict(CASES[case])}),
                    resources={},
                )
                began = time.perf_counter()
                with counted_round_trips(bench.session) as counts:
                    bench.io_manager.handle_output(context, frame)
                seconds[case].append(time.perf_counter() - began)
                if turn == len(frames) - 1:
                    print(f"Round trips, {case}: {dict(counts)}")
        without = seconds["no audits"][4:]
        print(f"no audits: {1000 * statistics.median(without):.0f} ms")
        for case in list(CASES)[1:]:
            added = [mine - base for mine, base in zip(seconds[case][4:], without, strict=True)]
            print(f"{case}: {1000 * statistics.median(added):+.0f} ms by pair, n={len(added)}")


if __name__ == "__main__":
    main()
