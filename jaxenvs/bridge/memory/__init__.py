"""The arrays and words that a caller and its workers share; no environment is known here."""
