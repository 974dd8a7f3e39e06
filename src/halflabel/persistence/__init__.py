"""Trained models on disk: run folders, saved models, ONNX exports."""
