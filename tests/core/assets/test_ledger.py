"""The reads of a step are remembered until newer steps take their place."""

from concurrent.futures import ThreadPoolExecutor

from dagster_iceberg_spark.assets.read_log import _MAXIMUM_STEPS, Ledger
from dagster_iceberg_spark.table.lineage import UpstreamRead


def read(snapshot_id: int) -> UpstreamRead:
    return UpstreamRead("raw", "db.raw", snapshot_id, None)


def test_reads_belong_to_one_step_of_one_run() -> None:
    ledger = Ledger()
    ledger.record("run", "step", "a", read(1))
    ledger.record("run", "other", "a", read(2))
    ledger.record("again", "step", "a", read(3))
    assert ledger.reads_of("run", "step") == (read(1),)
    assert ledger.reads_of("run", "gone") == ()


def test_reads_come_in_the_order_of_their_inputs() -> None:
    ledger = Ledger()
    for name, snapshot_id in (("b", 2), ("c", 3), ("a", 1)):
        ledger.record("run", "step", name, read(snapshot_id))
    assert ledger.reads_of("run", "step") == (read(1), read(2), read(3))


def test_loading_an_input_again_replaces_its_entry() -> None:
    ledger = Ledger()
    ledger.record("run", "step", "a", read(1))
    ledger.record("run", "step", "a", read(2))
    assert ledger.reads_of("run", "step") == (read(2),)


def test_the_least_recent_step_is_forgotten_first() -> None:
    ledger = Ledger()
    ledger.record("run", "busy", "first", read(-1))
    for number in range(_MAXIMUM_STEPS):
        ledger.record("run", str(number), "a", read(number))
        ledger.record("run", "busy", "a", read(number))
    assert ledger.reads_of("run", "0") == ()
    assert ledger.reads_of("run", "1") == (read(1),)
    assert ledger.reads_of("run", "busy") == (read(_MAXIMUM_STEPS - 1), read(-1))


def test_inputs_may_be_loaded_by_many_threads() -> None:
    ledger = Ledger()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: ledger.record("run", "step", f"{number:03}", read(number)), range(200)))
    assert ledger.reads_of("run", "step") == tuple(read(number) for number in range(200))
