"""All code that forks trials and computes on devices: one trial in, one record out."""
