"""Build the documentation as a site in site/: `python scripts/build_site.py`. The arguments go to Zensical.

The site has each page also as Markdown, and `llms.txt` (https://llmstxt.org), which lists them for language models.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

CHECKOUT: Final = Path(__file__).parents[1]
DOCS: Final = CHECKOUT / "docs"
SITE: Final = CHECKOUT / "site"


def main(arguments: list[str]) -> int:
    """Build the site; return the exit code."""
    for cache in DOCS.rglob("__pycache__"):
        shutil.rmtree(cache)
    zensical = Path(sys.executable).with_name("zensical")
    code = subprocess.run([zensical, "build", "--strict", *arguments], cwd=CHECKOUT, check=False).returncode  # noqa: S603
    if code == 0:
        for page in DOCS.rglob("*.md"):
            shutil.copy(page, SITE / page.relative_to(DOCS))
        (SITE / "llms.txt").write_text(llms_text(), encoding="utf-8")
    return code


def llms_text() -> str:
    """Return the list of pages, each with the sentence at its beginning."""
    site = yaml.safe_load((CHECKOUT / "mkdocs.yml").read_text(encoding="utf-8"))
    return "\n".join([f"# {site['site_name']}", "", f"> {site['site_description']}", "", *_entries(site["nav"])]) + "\n"


def _entries(pages: list[dict[str, Any]]) -> Iterator[str]:
    for entry in pages:
        ((title, target),) = entry.items()
        if isinstance(target, list):
            yield from ("", f"## {title}", "")
            yield from _entries(target)
        else:
            yield f"- [{title}]({target}): {_first_sentence(DOCS / target)}"


def _first_sentence(page: Path) -> str:
    """Return the first sentence below the title of a page."""
    paragraphs = page.read_text(encoding="utf-8").split("\n\n")
    first = next(text for text in paragraphs if not text.startswith("#"))
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(first.split()))
    return re.split(r"(?<=[.?!]) ", plain)[0]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
