"""One offline HTML file to explore a log: `log.to_html(path)`, `log.explore()`; here, two logs side by side."""

from .write import page_of, two_logs, write_page

__all__ = ["page_of", "two_logs", "write_page"]
