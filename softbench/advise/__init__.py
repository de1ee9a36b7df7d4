"""The command `softbench-advise`: which method, for a problem's size, on this machine."""
