"""The errors for Spark sessions, or their machines, that do not fit a catalog.

Each function returns the error of one case. The caller raises it.
"""

from collections.abc import Iterable, Sequence

from dagster_iceberg_spark.errors import CatalogUnavailableError, ConfigurationError, SparkEnvironmentError
from dagster_iceberg_spark.versions import ICEBERG_EXTENSIONS, ICEBERG_SPARK_RUNTIME, MINIMUM_JAVA_VERSION

# Starting Spark


def unfit_java(found: str) -> SparkEnvironmentError:
    """There is no Java that Spark can run on."""
    return _cannot_start(
        expected=f"Java {MINIMUM_JAVA_VERSION} or newer",
        found=found,
        hint=f"install Java {MINIMUM_JAVA_VERSION} (Debian: `apt-get install openjdk-17-jre-headless`) or set "
        "JAVA_HOME; with Spark Connect (`remote`) no Java is needed here.",
    )


def failed_start(found: str) -> SparkEnvironmentError:
    """The JVM does not start."""
    return _cannot_start(
        expected="a JVM that starts",
        found=found,
        hint="read the JVM's own output above. Without network, set `jars` to `provided` and `spark.jars` to local "
        "files.",
    )


def no_connect_server(address: str, seconds: float, error: OSError) -> CatalogUnavailableError:
    """The Spark Connect server does not accept a connection."""
    return CatalogUnavailableError.refusing(
        "attach to",
        address,
        expected=f"a Spark Connect server that accepts connections within {seconds:.0f} s",
        found=str(error),
        hint="check `remote`, and that the server runs.",
    )


def no_pyspark() -> SparkEnvironmentError:
    """Neither `pyspark` nor `pyspark-client` is installed."""
    return SparkEnvironmentError.refusing(
        "use",
        "Spark",
        expected="pyspark or pyspark-client",
        found="neither",
        hint="run `pip install 'dagster-iceberg-spark[classic]'`; or, for Spark Connect only, "
        "`pip install 'dagster-iceberg-spark[connect]'`.",
    )


def no_jvm(spark: str) -> SparkEnvironmentError:
    """Only the client of Spark Connect is installed, and a classic session is wanted."""
    return _cannot_start(
        expected="pyspark, which has a JVM",
        found=f"pyspark-client {spark}, which has none",
        hint="set `remote` to a Spark Connect server, or run `pip install 'dagster-iceberg-spark[classic]'`.",
    )


def unsupported_pyspark(found: str, supported: Sequence[str]) -> SparkEnvironmentError:
    """Iceberg has no runtime for the installed pyspark, or none that was tested."""
    return SparkEnvironmentError.refusing(
        "use",
        f"pyspark {found}",
        expected=f"pyspark {', '.join(supported[:-1])} or {supported[-1]}",
        found="a version for which the package has no runtime of Iceberg",
        hint=f"install the newest version that works: `pip install 'pyspark=={supported[-1]}.*'`.",
    )


def unsupported_server(found: str, supported: Sequence[str]) -> SparkEnvironmentError:
    """The Spark Connect server is too old."""
    return SparkEnvironmentError.refusing(
        "use",
        "the Spark Connect server",
        expected=f"Spark {supported[0]} or newer",
        found=f"Spark {found}",
        hint=f"start a server of Spark {', '.join(supported[:-1])} or {supported[-1]}.",
    )


def unsupported_over_connect(subject: str, what: str, why: str) -> ConfigurationError:
    """The protocol of Spark Connect 3.5 cannot carry a write."""
    return ConfigurationError.refusing(
        "write",
        subject,
        expected=f"a classic session, or Spark Connect 4.0 or newer, for {what}",
        found=f"Spark Connect 3.5, whose protocol has {why}",
        hint="leave `remote` out, or use Spark 4.",
    )


# The session's configuration


def no_extensions(extensions: str) -> SparkEnvironmentError:
    """The session was started without Iceberg's SQL extensions."""
    return SparkEnvironmentError.refusing(
        "use",
        "the Spark session",
        expected=f"{ICEBERG_EXTENSIONS} in spark.sql.extensions",
        found=repr(extensions) if extensions else "no extensions",
        hint="set it where the session is started, together with `spark.jars.packages` holding "
        f"{ICEBERG_SPARK_RUNTIME}; or let the resource start the session.",
    )


def other_catalog(name: str, key: str, *, wanted: str, found: str) -> SparkEnvironmentError:
    """The session has another catalog of that name: what one engine writes, the other would not see."""
    return SparkEnvironmentError.refusing(
        "use",
        f"the session's catalog {name!r}",
        expected=f"`{key}` {wanted!r}, as the resource's `catalog` says",
        found=repr(found),
        hint="give both the same settings, or the resource's catalog another `name`.",
    )


# What a JVM has once for all its catalogs


def two_identities() -> SparkEnvironmentError:
    """Two catalogs of one JVM sign with different AWS identities."""
    return SparkEnvironmentError.refusing(
        "give",
        "the Spark session its AWS credentials",
        expected="one AWS profile or role for all catalogs of a process",
        found="two",
        hint="run the assets in processes of their own (Dagster's multiprocess executor); a store, not Glue, also "
        "takes an access key of its own.",
    )


def two_values(system_property: str) -> SparkEnvironmentError:
    """Two catalogs of one JVM need different values of a system property."""
    return SparkEnvironmentError.refusing(
        "give",
        "the Spark session what its catalog needs",
        expected=f"one value of the system property {system_property} for all catalogs of a process",
        found="two",
        hint="run the assets in processes of their own (Dagster's multiprocess executor).",
    )


# Credentials that do not reach Spark's other machines


def role_without_region(catalog: str) -> ConfigurationError:
    """The nodes cannot assume a role without a region."""
    return ConfigurationError.refusing(
        "use",
        f"the AWS credentials of the {catalog}",
        expected="a `region` for the role",
        found="none",
        hint="set `region`.",
    )


def keys_for_nodes(catalog: str) -> ConfigurationError:
    """Keys of the configuration do not reach the nodes."""
    return ConfigurationError.refusing(
        "use",
        f"the AWS credentials of the {catalog}",
        expected="keys that Spark's nodes have by themselves",
        found="keys in the configuration, which Glue's client has no property for",
        hint="leave `credentials` out, or give a `role_arn` alone.",
    )


def properties_for_nodes(catalog: str, names: Iterable[str]) -> ConfigurationError:
    """System properties do not reach the nodes."""
    return ConfigurationError.refusing(
        "use",
        f"the credentials of the {catalog}",
        expected="a local Spark session, or an identity that Spark's nodes have by themselves",
        found=f"a Spark of other machines, which are not told {', '.join(names)}",
        hint="set them as environment variables where Spark's nodes and Dagster run, and leave the fields out.",
    )


def _cannot_start(*, expected: str, found: str, hint: str) -> SparkEnvironmentError:
    return SparkEnvironmentError.refusing("start", "Spark", expected=expected, found=found, hint=hint)


def no_local_server(found: str) -> SparkEnvironmentError:
    """Return the error of a pyspark that starts no server with a token."""
    return SparkEnvironmentError.refusing(
        "start",
        "the local Spark Connect server",
        expected="pyspark 4.1 or newer, whose server checks a token",
        found=f"pyspark {found}",
        hint='upgrade pyspark, or leave `remote="local"` out.',
    )


def failed_local_start(log: str) -> SparkEnvironmentError:
    """Return the error of a local server that did not start."""
    return SparkEnvironmentError.refusing(
        "start",
        "the local Spark Connect server",
        expected="a server that answers",
        found=f"a log that ends with\n{log}\n",
        hint="check Java and `spark_config`.",
    )


def wrong_token(address: str) -> SparkEnvironmentError:
    """Return the error of a server that rejects the token."""
    return SparkEnvironmentError.refusing(
        "attach to",
        address,
        expected="a token that the server accepts",
        found="a wrong token, or none",
        hint="end the address in `remote` with `/;token=...`, with the token that the server was started with.",
    )


def no_address(found: str) -> SparkEnvironmentError:
    """Return the error of a function given as `remote` that returns no address."""
    return SparkEnvironmentError.refusing(
        "open",
        "the Spark session",
        expected="an address `sc://host:port` from the function given as `remote`",
        found=f"another value of type {found}",
        hint="return the address as a string.",
    )
