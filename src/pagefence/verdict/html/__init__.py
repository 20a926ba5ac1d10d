"""The report as one HTML file that needs nothing else: no network, no script, no font."""

from pagefence.verdict.html.document import as_html

__all__ = ["as_html"]
