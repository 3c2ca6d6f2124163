"""The account of an Azure Data Lake Storage location stays in the path.

Of `abfss://<container>@<account>.dfs.core.windows.net/<path>`, `PyArrowFileIO` of pyiceberg 0.12.0 takes
`<container>@<account>.dfs.core.windows.net` for the container. It should take `<container>`.
https://github.com/apache/iceberg-python/issues/2698; fixed for the version after 0.12.0 by
https://github.com/apache/iceberg-python/pull/3884
"""

from typing import Final

FILE_IO: Final = "pyiceberg.io.fsspec.FsspecFileIO"
"""The `py-io-impl` that reads such locations as they are meant."""
