"""How many of the best classes an approximate `top_k` finds, and what it costs."""
