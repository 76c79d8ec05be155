"""Reports of a run: terminal output, report.md and report.html. Only charts.py and page.py import drawing libraries."""
