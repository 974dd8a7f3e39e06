"""The requests of both protocols: how they are validated, and refused in the error format of their protocol."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi.responses import JSONResponse
from pydantic import AfterValidator, BaseModel, Field, StrictBool, StrictInt, StrictStr, field_validator

INPUT = "text"  # the input tensor of the Open Inference Protocol
ErrorType = Literal["Validation", "Overloaded", "Backend", "Unauthorized"]
OPEN_INFERENCE = "/v2"
OPEN_INFERENCE_STATUS = {422: 400, 424: 500}  # where the Open Inference Protocol uses another status


def unicode(text: str) -> str:
    """The text, unless it cannot be encoded: JSON can contain halves of surrogate pairs."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("it contains half of a surrogate pair; fix the character") from None
    return text


class PredictRequest(BaseModel):
    """Text Embeddings Inference: a text, or a list of texts, each also as a list of one."""

    inputs: StrictStr | list[StrictStr | list[StrictStr]] = Field(
        description="A text, or a batch of texts: [\"a\", \"b\"] or [[\"a\"], [\"b\"]].")
    raw_scores: StrictBool = Field(False, description="Scores before they become probabilities.")
    truncate: StrictBool = Field(True, description="Texts beyond the encoder's limit are truncated; false is refused.")

    @field_validator("inputs", mode="before")
    @classmethod
    def _check_inputs(cls, inputs: Any) -> Any:
        if isinstance(inputs, str):
            return inputs
        if not isinstance(inputs, list):
            raise ValueError("it must be a text or a list of texts")
        for i, entry in enumerate(inputs):
            if isinstance(entry, list) and len(entry) == 1:
                entry = entry[0]
            if not isinstance(entry, str):
                raise ValueError(f"entry {i} must be a text, or a list of one text; this model classifies single texts")
        return inputs

    @field_validator("truncate")
    @classmethod
    def _check_truncate(cls, truncate: bool) -> bool:
        if not truncate:
            raise ValueError("texts beyond the encoder's limit are always truncated; leave it out or send true")
        return truncate

    @property
    def texts(self) -> list[str]:
        entries = [self.inputs] if isinstance(self.inputs, str) else self.inputs
        return [entry if isinstance(entry, str) else entry[0] for entry in entries]


class LabelScore(BaseModel):
    """A label with its probability, or raw score."""

    label: str
    score: float


class ExplainRequest(BaseModel):
    """A text, and the label to give reasons for."""

    inputs: StrictStr = Field(description="A text.")
    label: StrictStr | None = Field(None, description="By default the most probable one.")


class WordReason(BaseModel):
    """A part of a text by its first character and the one after its last, and how much it raises the score."""

    start: int
    end: int
    change: float


class Reasons(LabelScore):
    """The parts of a text, the label's score, and its score without the three strongest parts."""

    score_without: float
    reasons: list[WordReason]


class InputTensor(BaseModel):
    """Open Inference Protocol: a tensor with its values as a flat list."""

    name: StrictStr
    shape: list[StrictInt]
    datatype: StrictStr
    data: list[Any]
    parameters: dict[str, Any] = {}


class RequestedOutput(BaseModel):
    """Open Inference Protocol: an output tensor that the client wants."""

    name: StrictStr
    parameters: dict[str, Any] = {}


class InferRequest(BaseModel):
    """Open Inference Protocol: input tensors, and which outputs are wanted (all by default)."""

    id: Annotated[str, AfterValidator(unicode)] | None = Field(None, strict=True)
    parameters: dict[str, Any] = {}
    inputs: list[InputTensor]
    outputs: list[RequestedOutput] | None = None

    @property
    def texts(self) -> list[str]:
        """The texts of the only input, which is validated here."""
        if len(self.inputs) != 1 or self.inputs[0].name != INPUT:
            raise Refusal(422, f"inputs must be one tensor with the name '{INPUT}'.")
        tensor = self.inputs[0]
        if tensor.datatype != "BYTES":
            raise Refusal(422, f"The tensor '{INPUT}' has the datatype {tensor.datatype[:20]!r}; send BYTES.")
        if tensor.shape != [len(tensor.data)]:
            raise Refusal(422, f"The shape of the tensor '{INPUT}' must be [{len(tensor.data)}], as long as its data.")
        for i, text in enumerate(tensor.data):
            if not isinstance(text, str):
                raise Refusal(422, f"Entry {i} of the tensor '{INPUT}' is not a text; send BYTES as strings.")
        return tensor.data


def check_texts(texts: list[str], limit: int) -> None:
    """Refuses no texts, too many texts, empty texts, and texts that are not Unicode."""
    if not texts:
        raise Refusal(422, "There are no texts in the request; send at least one.")
    if len(texts) > limit:
        raise Refusal(413, f"The request has {len(texts):,} texts, and this server accepts {limit:,}; split it.")
    for i, text in enumerate(texts):
        if not text.strip():
            raise Refusal(422, f"Text {i} is empty; leave it out.")
        try:
            unicode(text)
        except ValueError as error:
            raise Refusal(422, f"Text {i}: {error}.") from None


def sentence(errors: list[Any]) -> str:
    """The first of pydantic's errors as a sentence that names the field and repeats no text."""
    error = errors[0]
    if error["type"] == "json_invalid":
        return f"The body is not valid JSON ({error['ctx']['error']} at character {error['loc'][-1]})."
    place = ".".join(ascii(part).strip("'")[:50] for part in error["loc"][1:]) or "The body"
    if place == "The body" and error["type"] != "missing":
        return "The body must be a JSON object, sent with the header 'Content-Type: application/json'."
    message = error["msg"].removeprefix("Value error, ")
    return f"{place}: {message[:1].lower()}{message[1:]}."


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
