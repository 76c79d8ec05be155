"""The survey: its questions, people's answers as counts, and who of them can train what."""
