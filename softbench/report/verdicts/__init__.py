"""The papers' claims as tests of records: verdicts by a rule, never typed. Needs no Keras."""
