"""`pagefence models`: fetch and list."""

from __future__ import annotations

from typing import Annotated

import typer

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
    for model in list_models():
        path = located(model.name)
        print(f"{model.name}  {model.size / 1e6:,.0f} MB  {model.license}  {model.about}")
        print(f"  {path or f'not fetched; would lie in {cache_dir()}'}")
