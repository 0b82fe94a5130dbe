"""One offline HTML file to explore a log: `log.to_html(path)`, `log.explore()`."""
