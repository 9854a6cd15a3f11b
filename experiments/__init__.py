"""Experiments of the paper: recipes, tables, figures, benchmarks and released weights. Run from a checkout."""
