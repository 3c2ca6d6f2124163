"""What a mirror in a DuckLake adds to a daily partition of flights, in each mode, beside a write without a mirror.

Run it with `make bench-mirroring`. The writes take turns in one session. It prints medians of the differences by pair.
"""

import argparse
import logging
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import dagster as dg

from benchmarks.overhead import DAYS, PARTITION, Bench, day_frames, flights
from dagster_iceberg_spark import DuckLakeMirror, IcebergPySparkIOManager
from dagster_iceberg_spark.features.mirror.options import MirrorMode

MODES: Final[tuple[MirrorMode, ...]] = ("view", "register", "copy")
NO_MIRROR: Final = "no mirror"
WARMUP: Final = 4


def main() -> None:
    """Write each day in each way, and print what the mirrors add."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer days")
    parser.add_argument("--duckdb", action="store_true", help="a DuckLake in a file of DuckDB instead of SQLite")
    arguments = parser.parse_args()
    logging.disable(logging.INFO)
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(Path(name))
        kind = "duckdb" if arguments.duckdb else "sqlite"
        cases = {NO_MIRROR: bench.io_manager} | {
            mode: IcebergPySparkIOManager(
                spark=bench.spark, mirror=DuckLakeMirror(catalog=f"{kind}:///{name}/{mode}.ducklake", mode=mode)
            )
            for mode in MODES
        }
        seconds: dict[str, list[float]] = {case: [] for case in cases}
        frames = list(day_frames(flights(bench.session, Path(name)), (8 if arguments.quick else 40) + WARMUP))
        for turn, (frame, day, _) in enumerate(frames):
            for position in range(len(cases)):
                case = list(cases)[(turn + position) % len(cases)]
                context = dg.build_output_context(
                    asset_key=dg.AssetKey(case.replace(" ", "_")),
                    asset_partitions_def=DAYS,
                    partition_key=str(day),
                    definition_metadata=dict[str, Any](PARTITION),
                    resources={},
                )
                began = time.perf_counter()
                cases[case].handle_output(context, frame)
                seconds[case].append(time.perf_counter() - began)
        without = seconds[NO_MIRROR][WARMUP:]
        print(f"{NO_MIRROR}: {1000 * statistics.median(without):.0f} ms")
        for mode in MODES:
            added = [mine - base for mine, base in zip(seconds[mode][WARMUP:], without, strict=True)]
            print(f"{mode}: {1000 * statistics.median(added):+.0f} ms by pair, n={len(added)}")


if __name__ == "__main__":
    main()
