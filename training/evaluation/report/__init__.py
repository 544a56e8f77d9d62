"""Report of an evaluation: `report.html` and `figures.csv`, made from figures, measures and games."""
