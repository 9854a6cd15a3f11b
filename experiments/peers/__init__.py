"""Networks of other papers."""
