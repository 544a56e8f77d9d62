"""Pages of a published dataset: the data card and the report, both made from one `summary`."""

CARD_VERSION = 12
"""Version of the data card, raised by hand whenever the same dataset would give another card."""
REPORT_VERSION = 14
"""Version of the report, raised by hand whenever the same dataset would give another page."""
