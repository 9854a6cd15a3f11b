"""Results as tables, reports and pictures."""

from .audit import render_audit, write_audit

__all__ = ["render_audit", "write_audit"]
