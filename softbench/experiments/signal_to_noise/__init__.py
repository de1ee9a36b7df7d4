"""The signal-to-noise ratio of negative sampling against the noise (Bamler & Mandt, Theorem 2)."""
