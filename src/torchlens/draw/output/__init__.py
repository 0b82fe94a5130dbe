"""Views as files: SVG, PDF, PNG, DOT."""
