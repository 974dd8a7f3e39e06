"""Trained models on disk: saved models, run folders, ONNX exports."""
