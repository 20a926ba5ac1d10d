"""`pagefence hash-key`: an API key to what stands in its place in the edge's tenant file."""

from __future__ import annotations

import getpass
import sys
from typing import Annotated

import typer

from pagefence.mistakes import Usage

_MOST = 4096  # bytes of standard input; a key has at most 512


def hash_key_command(
    context: typer.Context,
    new: Annotated[
        bool, typer.Option("--new", help="Make a key of 256 random bits; it is shown once, on standard error.")
    ] = False,
    tenant: Annotated[
        str | None, typer.Option("--tenant", metavar="NAME", help="Print the tenant's table too, for a new one.")
    ] = None,
) -> None:
    """Print the line of tenants.toml for an API key, which is read from standard input, or asked for on a terminal.

    The file holds the SHA-256 of a key, never the key.

    Examples:

    pagefence hash-key --new --tenant acme >> tenants.toml

    printf %s "$KEY" | pagefence hash-key
    """
    from pagefence.edge.tenants import HASH_PREFIX, hash_key, is_name, new_key

    if context.args:  # taken only to say this, and not repeated in an error
        raise Usage(
            "a key on the command line can be read by all on this machine, and stays in the shell's history: "
            "take another key, and give it on standard input"
        )
    if tenant is not None and not is_name(tenant):
        raise Usage("--tenant: a name begins with a letter or a digit and holds letters, digits and . _ : @ + -")
    key = new_key() if new else _read()
    if key.startswith(HASH_PREFIX):
        raise Usage(f"this is the hash of a key already: {HASH_PREFIX}... goes into the file as it is")
    try:
        hashed = hash_key(key)
    except ValueError as error:
        raise Usage(str(error)) from None
    if new:
        print(f"the key, for the tenant, shown once: {key}", file=sys.stderr)
    table = "" if tenant is None else f'[tenant."{tenant}"]\n'
    print(f'{table}keys = ["{hashed}"]')


def _read() -> str:
    """One line of standard input. Raises Usage, which quotes nothing of it."""
    if sys.stdin is None:
        raise Usage("a key is read from standard input, which is closed; --new makes one")
    if sys.stdin.isatty():
        try:
            return getpass.getpass("Key (not shown): ")
        except EOFError:
            raise Usage("no key was given; --new makes one") from None
    raw = sys.stdin.buffer.read(_MOST)
    try:
        key = raw.decode("ascii").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise Usage("a key consists of printable ASCII characters without blanks") from None
    if not key:
        raise Usage("standard input holds no key; --new makes one")
    return key
