"""The statistical efficiency of NCE (Ma & Collins, 4.3 and 4.4)."""
