"""A run told to people: what it prints, report.md and report.html. Only charts.py and page.py import what draws."""
