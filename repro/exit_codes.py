"""What an exit code means, the same for every command."""

OK, FAILED, USAGE, NOTHING_COMPARED, INTERRUPTED = 0, 1, 2, 3, 130
INCONCLUSIVE = NOTHING_COMPARED
