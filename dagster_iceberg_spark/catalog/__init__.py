"""The catalog as the package sees it: what describes it, and a fresh look at a table without a JVM."""
