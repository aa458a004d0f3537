"""What MkDocs does beside rendering docs/: pages of the repository's root, the reference of commands, and links.

A link to a file outside of docs/ becomes a link to its page, or to the repository's file.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
#: Files of the root that become pages.
PAGES = {
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CODE_OF_CONDUCT.md": "conduct.md",
    "README.md": "index.md",
}
#: Inline links, not in code.
LINK = re.compile(r"(?<!`)\]\((?!https?://|mailto:|#)([^)\s#]*)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    for source, page in PAGES.items():
        if page != "index.md":
            text = linked((ROOT / source).read_text(encoding="utf-8"), source, config.extra["repository"])
            files.append(File.generated(config, page, content=text))
    files.append(File.generated(config, "reference/commands.md", content=commands()))
    return files


def on_page_markdown(markdown: str, page: Any, config: MkDocsConfig, files: Files) -> str:
    """Replace the links of a page of docs/ that leave docs/."""
    if page.file.generated_by:
        return markdown
    return linked(markdown, f"docs/{page.file.src_uri}", config.extra["repository"])


def linked(markdown: str, source: str, repository: str) -> str:
    """Return the text of the file `source` (relative to the root) with links that work on the site."""
    page = PAGES.get(source, source.removeprefix("docs/"))

    def replace(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), match[1]))
        anchor = match[2] or ""
        inside = PAGES.get(path, path.removeprefix("docs/") if path.startswith("docs/") else None)
        if inside is not None and not (ROOT / path).is_dir():
            return f"]({posixpath.relpath(inside, posixpath.dirname(page) or '.')}{anchor})"
        if path == "docs/gallery":
            return f"]({posixpath.relpath('gallery/index.md', posixpath.dirname(page) or '.')})"
        if path == "docs/decisions":
            return f"]({posixpath.relpath('decisions/index.md', posixpath.dirname(page) or '.')})"
        kind = "tree" if (ROOT / path).is_dir() else "blob"
        return f"]({repository}/{kind}/main/{path}{anchor})"

    return LINK.sub(replace, markdown)


def commands() -> str:
    """Return the reference of all commands: the help of each, as the terminal prints it."""
    from tilewright.cli import cli

    parts = ["# Commands\n\nThe help of every command, written by the commands themselves.\n"]
    for name, command in _all(cli, "tilewright"):
        context = click.Context(command, info_name=name, max_content_width=100, terminal_width=100)
        parts.append(f"## {name}\n\n```text\n{command.get_help(context)}\n```\n")
    return "\n".join(parts)


def _all(command: click.Command, name: str) -> list[tuple[str, click.Command]]:
    """Return a command and those below it, by full name."""
    from tilewright.cli import COMMANDS, cli

    found = [(name, command)]
    if isinstance(command, click.Group):
        for key in sorted(COMMANDS if command is cli else command.commands):
            inner = command.get_command(click.Context(command), key)
            assert inner is not None
            found += _all(inner, f"{name} {key}")
    return found
