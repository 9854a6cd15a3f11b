"""Networks of other papers, trained on the same data by their own recipes."""
