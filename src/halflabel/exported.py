"""The former import path of `halflabel.persistence.onnx_model.OnnxModel`."""

from halflabel.persistence.onnx_model import OnnxModel as Exported

__all__ = ["Exported"]
