"""Overlays of a film's pictures: black borders, text, logos."""

MODEL = "ch_PP-OCRv4_det_mobile.onnx"
"""Text detector, a file of the package rapidocr; an ingredient of looks, which `status` reads without the detector."""
