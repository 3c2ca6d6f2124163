"""A filter at the edge of Python's calendar raises `OverflowError` while a scan plans its files.

To project a comparison to a `year` or `month` partition, pyiceberg 0.12.0 makes a date of the day after, or before, the
literal: there is none after 9999-12-31 or before 0001-01-01. It should count in days, as its `day` transform does.
Not reported upstream as of 0.12.0.
"""

from collections.abc import Callable

from pyiceberg.table import DataScan, FileScanTask


def plan_files(scan: DataScan, wider: Callable[[], DataScan]) -> list[FileScanTask]:
    """Return the files of a scan; where pyiceberg cannot project its filter, those of a wider scan."""
    try:
        return list(scan.plan_files())
    except OverflowError:
        return list(wider().plan_files())
