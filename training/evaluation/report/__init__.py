"""Report of an evaluation: `report.html`, made from figures, measures and games."""
