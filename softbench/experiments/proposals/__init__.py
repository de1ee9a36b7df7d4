"""How near proposals are to the softmax of a head while it trains, and what a draw costs."""
