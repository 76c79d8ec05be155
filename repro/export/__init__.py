"""Export of the best settings, measured or predicted, as files that train with them: a script and configurations."""
