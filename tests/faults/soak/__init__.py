"""Everything at once for as long as one likes: chaos with a seed, power cuts, leaks."""
