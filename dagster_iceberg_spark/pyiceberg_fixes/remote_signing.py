"""Requests to a store go out unsigned where the catalog should sign them.

pyiceberg 0.12.0 creates an `s3fs` file system and then registers the signer with its client. Threads, and tables of
other signers, share that file system, and each of them takes the signer away for a moment and registers its own:
https://github.com/apache/iceberg-python/issues/3896. A client that s3fs creates later has no signer at all:
https://github.com/apache/iceberg-python/issues/3625. pyiceberg should register the signer with the session, before
there is a client, and keep one file system for each signer.
"""

import threading
from typing import Any, Final

from pyiceberg.io import AWS_REGION, S3_ENDPOINT, S3_FORCE_VIRTUAL_ADDRESSING, S3_REGION
from pyiceberg.io.fsspec import FsspecFileIO, S3V4RestSigner
from pyiceberg.typedef import Properties
from pyiceberg.utils.properties import get_first_property_value, property_as_bool

from dagster_iceberg_spark.errors import ConfigurationError

_SCHEMES: Final = frozenset({"s3", "s3a", "s3n"})
_lock = threading.Lock()


class SigningFileIO(FsspecFileIO):
    """Files of one table, of which every request is signed by the catalog."""

    def __init__(self, properties: Properties) -> None:
        """Open nothing yet."""
        super().__init__(properties)
        self._signed: Any = None

    def get_fs(self, scheme: str, hostname: str | None = None) -> Any:
        """Return the table's own file system, the same for every thread."""
        if scheme not in _SCHEMES:
            return super().get_fs(scheme, hostname)
        with _lock:
            if self._signed is None:
                self._signed = _signed_store(self.properties)
            return self._signed


def _signed_store(properties: Properties) -> Any:
    """Return a file system whose clients have the signer from the beginning, whenever they are made."""
    try:
        from aiobotocore.session import AioSession
        from botocore import UNSIGNED
        from s3fs import S3FileSystem
    except ImportError as error:
        raise ConfigurationError.missing_package(
            "read",
            "a store whose requests the catalog signs",
            package="s3fs",
            install="dagster-iceberg-spark[remote-signing]",
        ) from error
    session = AioSession()
    session.get_component("event_emitter").register_last("before-sign.s3", S3V4RestSigner(properties))
    is_virtual = property_as_bool(properties, S3_FORCE_VIRTUAL_ADDRESSING, default=False)
    addressing = {"s3": {"addressing_style": "virtual"}} if is_virtual else {}
    return S3FileSystem(
        session=session,
        client_kwargs={
            "endpoint_url": properties.get(S3_ENDPOINT),
            "region_name": get_first_property_value(properties, S3_REGION, AWS_REGION),
        },
        config_kwargs={"signature_version": UNSIGNED, **addressing},
        skip_instance_cache=True,
    )
