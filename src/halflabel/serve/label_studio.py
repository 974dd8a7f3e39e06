"""Label Studio's ML backend protocol: predictions for the tasks of a project, and its annotations kept as answers."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple, TypeVar
from xml.etree import ElementTree

from fastapi import APIRouter, FastAPI, Request
from pydantic import BaseModel, Field, StrictStr, ValidationError

from halflabel.active_learning import doubt
from halflabel.data.annotators import AnswerFile
from halflabel.data.corpus import Label, TextLabel
from halflabel.data.labels import first_inconsistency, parse_label
from halflabel.errors import OutputError
from halflabel.serve.app import DIGITS, Service
from halflabel.serve.batching import Prediction, ServedModel
from halflabel.serve.requests import Refusal, sentence

PREFIXES = ("", "/label-studio")
CREATED = ("ANNOTATION_CREATED", "ANNOTATION_UPDATED")
DELETED = "ANNOTATIONS_DELETED"
SEVERAL = "multiple"  # the value of the attribute `choice`

Kind = TypeVar("Kind", bound=BaseModel)


class SetupRequest(BaseModel):
    """Label Studio connects: the labelling configuration of a project. Its other fields are not needed."""

    config: StrictStr = Field(alias="schema")


class StudioTask(BaseModel):
    """What is annotated; the data has the text under the key that the labelling configuration names."""

    id: Any = None
    data: dict[str, Any]


class TasksRequest(BaseModel):
    """Tasks to predict."""

    tasks: list[StudioTask]
    label_config: StrictStr


class StudioAnnotation(BaseModel):
    """What a person answered, or nothing if the task was skipped."""

    id: int | None = None
    result: list[dict[str, Any]] = []
    was_cancelled: bool = False


class Event(BaseModel):
    """Something that happened in Label Studio; what is used of it depends on the action."""

    action: StrictStr = ""
    project: Any = None
    task: Any = None
    annotation: Any = None
    annotations: Any = None


class AnnotationEvent(BaseModel):
    """An annotation that was created or changed."""

    class Project(BaseModel):
        label_config: StrictStr

    project: Project
    task: StudioTask
    annotation: StudioAnnotation


class DeletionEvent(BaseModel):
    """Annotations that were deleted."""

    annotations: list[StudioAnnotation]


class Question(NamedTuple):
    """The choices of a labelling configuration, and the key of the text that they are about."""

    from_name: str
    to_name: str
    key: str
    choices: list[str]
    several: bool

    def text(self, task: StudioTask) -> str:
        text = task.data.get(self.key)
        if not isinstance(text, str) or not text.strip():
            raise Refusal(422, f"Task {task.id} has no text under '{self.key}'.")
        return text


def read_question(config: str) -> Question:
    """The only question with choices about a text in a labelling configuration."""
    if "<!" in config.replace("<!--", "").replace("<![CDATA[", ""):
        raise Refusal(422, "The labelling configuration has a document type, which is not read; remove it.")
    try:
        root = ElementTree.fromstring(config)
    except ElementTree.ParseError as error:
        raise Refusal(422, f"The labelling configuration is not valid XML ({error}).") from None
    questions = list(root.iter("Choices"))
    if len(questions) != 1:
        raise Refusal(422, f"The labelling configuration has {len(questions) or 'no'} elements <Choices>, and a model "
                           "answers one question; configure exactly one.")
    (tag,) = questions
    choices = [str(choice.get("alias") or choice.get("value")) for choice in tag.iter("Choice")]
    target = next((found for found in root.iter() if found.get("name") == tag.get("toName")), None)
    value = "" if target is None else target.get("value", "")
    if target is None or not value.startswith("$") or target.get("valueType") == "url":
        raise Refusal(422, "<Choices> must name with toName an element that shows a text of the task, such as "
                           '<Text name="text" value="$text"/>.')
    return Question(tag.get("name", ""), tag.get("toName", ""), value[1:], choices, tag.get("choice") == SEVERAL)


def check_question(question: Question, model: ServedModel) -> None:
    """Refuses choices that are not the labels of the model."""
    for name in question.choices:
        if name not in model.labels:
            raise Refusal(422, f"The choice {name[:100]!r} is not a label of the model; its labels are "
                               f"{', '.join(model.labels[:10])}{', ...' if len(model.labels) > 10 else ''}.")
    for name in model.labels:
        if name not in question.choices:
            raise Refusal(422, f"The model's label {name[:100]!r} is not among the choices; add it to <Choices>.")
    if model.multilabel and not question.several:
        raise Refusal(422, 'The model gives several labels per text; write <Choices choice="multiple" ...>.')


def predictions(prediction: Prediction, question: Question) -> list[dict[str, Any]]:
    """A prediction for each text. Label Studio shows the lowest score, of the cluster labelled least, first."""
    model = prediction.model
    p = prediction.values.astype(float)
    sureness, guess = 1.0 - doubt(p, model.model.task), p.argmax(axis=1)
    rows = []
    for i, chosen in enumerate(prediction.chosen):
        columns = [k for k in (-p[i]).argsort(kind="stable").tolist() if chosen[k]]
        result = {"from_name": question.from_name, "to_name": question.to_name, "type": "choices",
                  "value": {"choices": [model.labels[k] for k in columns]}}
        rows.append({"result": [result | {"score": round(float(p[i, columns].min()), DIGITS)}] if columns else [],
                     "score": round(float(sureness[i]), DIGITS), "cluster": int(guess[i]),
                     "model_version": model.version})
    return rows


def answer_of(annotation: StudioAnnotation, question: Question, model: ServedModel) -> TextLabel:
    """The label of an annotation, None if the task was skipped."""
    if annotation.was_cancelled:
        return None
    names = [str(name) for result in annotation.result if result.get("from_name") == question.from_name
             for name in result.get("value", {}).get("choices", [])]
    if not model.multilabel and len(names) > 1:
        raise Refusal(422, f"The annotation has {len(names)} choices, and the model gives one label per text.")
    known = {str(name): name for name in model.model.classes.names}
    numbers = any(isinstance(name, int) for name in known.values())
    labels: list[Label] = [known.get(name, int(name) if numbers and name.isdecimal() else name) for name in names]
    if inconsistency := first_inconsistency([*known.values(), *labels]):
        raise Refusal(422, f"The annotation is of another project: {inconsistency[1]}.")
    return parse_label(labels) if model.multilabel else parse_label(labels[0] if labels else None)


def receive(event: Event, answers: AnswerFile, model: ServedModel) -> int:
    """Appends to the answers what an event says, and returns how many were appended."""
    if event.action in CREATED:
        created = parsed(AnnotationEvent, event)
        question = read_question(created.project.label_config)
        answers.label(question.text(created.task), answer_of(created.annotation, question, model),
                      source=created.annotation.id)
        return 1
    if event.action != DELETED:
        return 0
    deleted = {annotation.id for annotation in parsed(DeletionEvent, event).annotations} - {None}
    texts = [text for text, answer in answers.answers.items() if answer.source in deleted]
    for text in texts:
        answers.undo(text)
    return len(texts)


def parsed(kind: type[Kind], event: Event) -> Kind:
    """The event as one of a kind."""
    try:
        return kind.model_validate(event.model_dump())
    except ValidationError as error:
        raise Refusal(422, sentence([{**one, "loc": ("body", *one["loc"])} for one in error.errors()])) from None


def add_label_studio(app: FastAPI, service: Service, answers: AnswerFile | None = None) -> None:
    """The routes of the protocol, at the root and under /label-studio."""
    router, lock = APIRouter(), threading.Lock()

    @router.get("/health")
    async def health() -> dict[str, str]:
        """Whether the server can answer."""
        return {"status": "UP", "model_class": "halflabel"}

    @router.post("/setup")
    async def setup(body: SetupRequest) -> dict[str, str]:
        """Compares a labelling configuration with the model."""
        check_question(read_question(body.config), service.model)
        return {"model_version": service.model.version}

    @router.post("/predict")
    async def predict(request: Request, body: TasksRequest) -> dict[str, Any]:
        """The model's labels for tasks; a low score means that a text is worth labelling."""
        question = read_question(body.label_config)
        check_question(question, service.model)
        texts, step = [question.text(task) for task in body.tasks], service.limits.request_texts
        results: list[dict[str, Any]] = []
        for start in range(0, len(texts), step):
            results += predictions(await service.predict(request, texts[start : start + step]), question)
        request.state.texts = len(texts)
        return {"results": results, "model_version": service.model.version}

    @router.post("/webhook", status_code=201)
    def webhook(body: Event) -> dict[str, Any]:
        """Keeps an annotation, or forgets deleted ones; other events change nothing."""
        try:
            with lock:
                count = 0 if answers is None else receive(body, answers, service.model)
        except OutputError as error:
            raise Refusal(507, f"{error}.") from error
        return {"status": "ok", "answers": count}

    for prefix in PREFIXES:
        app.include_router(router, prefix=prefix)
