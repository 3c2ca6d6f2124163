"""Spark DataFrame assets stored as Apache Iceberg tables, for Dagster.

`__init__.pyi` lists the public names. The module of a name is loaded when the name is first used, so the command line
shows its help without loading Dagster.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
