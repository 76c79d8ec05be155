"""What a user's own training takes on a GPU that is not here, and whether a speed that was measured is normal."""
