"""Requests that are refused or fail, in the error format of the protocol that they speak."""

from __future__ import annotations

from typing import Literal

from fastapi.responses import JSONResponse

ErrorType = Literal["Validation", "Overloaded", "Backend", "Unauthorized"]
OPEN_INFERENCE = "/v2"
OPEN_INFERENCE_STATUS = {422: 400, 424: 500}  # where the Open Inference Protocol uses another status


class Refusal(Exception):
    """A request that cannot be answered: status, a sentence, and the type that Text Embeddings Inference gives it."""

    def __init__(self, status: int, sentence: str, error_type: ErrorType = "Validation", *,
                 close: bool = False) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence
        self.error_type = error_type
        self.close = close  # the connection, since the rest of the request is not read

    def response(self, path: str) -> JSONResponse:
        """The response in the error format of the path's protocol."""
        headers = {"connection": "close"} if self.close else {}
        if self.status == 401:
            headers["www-authenticate"] = "Bearer"
        if self.status == 429:
            headers["retry-after"] = "1"
        if path == OPEN_INFERENCE or path.startswith(OPEN_INFERENCE + "/"):
            status = OPEN_INFERENCE_STATUS.get(self.status, self.status)
            return JSONResponse({"error": self.sentence}, status, headers)
        return JSONResponse({"error": self.sentence, "error_type": self.error_type}, self.status, headers)
