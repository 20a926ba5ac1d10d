"""`pagefence models`: fetch and list."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from pagefence.models import DEFAULT_MODEL, cache_dir, fetch, list_models, located

models_app = typer.Typer(help="Fetch and list models.", no_args_is_help=True)


@models_app.command("fetch")
def fetch_model(
    name: Annotated[str, typer.Argument(help="A name from `pagefence models list`.")] = DEFAULT_MODEL,
) -> None:
    """Fetch a model into the cache, check its hash, and print where it lies.

    Example: pagefence models fetch
    """
    print(fetch(name))


@models_app.command("list")
def list_known() -> None:
    """The models that have a name. Any GGUF file or Hugging Face folder of a supported architecture works too."""
    table = Table("name", "size", "license", "what it is", "where", box=None, pad_edge=False)
    for model in list_models():
        path = located(model.name)
        where = str(path) if path else f"not fetched (cache: {cache_dir()})"
        table.add_row(model.name, f"{model.size / 1e6:,.0f} MB", model.license, model.about, where)
    Console().print(table)
