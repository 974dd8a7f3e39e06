"""Load test of `halflabel serve`, over loopback: its throughput, its latency, an overload, and hostile requests.

    python benchmarks/serving.py [--models student minilm] [--texts 2000] [--seconds 60] [--parts throughput latency]
                                 [--request-texts 256]

- throughput: texts per second of a few connections with full requests, against `halflabel predict` on the same texts,
  both after start-up, in alternation; `--request-texts` is the `--max-batch` of the server and the size of a request;
- latency: p50 and p99 of single texts at half of the rate that single texts reach;
- overload: full requests at ten times the rate that they reach, for a minute; each must be answered or refused with
  429, the memory must not grow, and the latency afterwards must be that from before;
- hostile: 1,000 requests that nobody should send; each must be refused properly, none by a 5xx.

`student` answers in microseconds, so that the server itself is measured; `minilm` is the encoder of the default model.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from halflabel import TextClassifier
from halflabel.data.corpus import sample
from protocol import Results
from startup import student

REQUEST_TEXTS = 256  # the server's default
QUEUE_TEXTS = 1024  # that may wait for the model
CONNECTIONS = QUEUE_TEXTS // REQUEST_TEXTS  # of the throughput: twice what fills a batch
OVERLOAD = 10  # times the rate that the server reaches
MOST = 800  # connections at once, within the usual limit of open files
FLAT = 1.1  # times the memory before the overload
BODY_BYTES = 2_000_000  # the server's limit
HOSTILE = 1000
PREDICT = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


class Client:
    """One connection that is kept alive, and opened again if the server closes it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None

    async def send(self, request: bytes) -> tuple[int, bytes]:
        """The status and the body of the answer."""
        if self.reader is None or self.writer is None or self.reader.at_eof():
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.writer.write(request)
        header = await self.reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", header)
        body = await self.reader.readexactly(int(length[1]) if length else 0)
        if b"connection: close" in header:
            await self.close()
        return int(header[9:12]), body

    async def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
            self.writer = None


def request_of(texts: str | Sequence[str]) -> bytes:
    body = json.dumps({"inputs": texts}).encode()
    return PREDICT % len(body) + body


def full_requests(texts: list[str], number: int = REQUEST_TEXTS) -> list[bytes]:
    """Requests with as many texts as the server accepts."""
    return [request_of(texts[i : i + number]) for i in range(0, len(texts), number)]


class Server:
    """A running `halflabel serve`."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self.process = process
        self.port = port

    @property
    def megabytes(self) -> float:
        """The memory that the process uses now."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024


@asynccontextmanager
async def serving(model: Path, request_texts: int = REQUEST_TEXTS) -> AsyncIterator[Server]:
    command = [sys.executable, "-m", "halflabel", "serve", str(model), "--port", "0", "--max-batch", str(request_texts)]
    with tempfile.TemporaryFile() as log:
        process = await asyncio.create_subprocess_exec(*command, stderr=log)
        try:
            while not (found := re.search(rb"http://127.0.0.1:(\d+)", os.pread(log.fileno(), 10_000, 0))):
                assert process.returncode is None, os.pread(log.fileno(), 10_000, 0).decode()
                await asyncio.sleep(0.1)
            yield Server(process, int(found[1]))
        finally:
            process.terminate()
            assert await process.wait() == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--texts", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--request-texts", type=int, default=REQUEST_TEXTS)
    options = parser.parse_args()
    results = Results("serving")
    rows = sample("train") + sample("test")
    texts = [text for text, _ in zip(cycle(rows.texts), range(options.texts), strict=False)]
    with tempfile.TemporaryDirectory() as folder:
        for name in options.models:
            model = MODELS[name](Path(folder))
            for part in options.parts:
                line = {"model": name, "part": part, **asyncio.run(PARTS[part](model, texts, options))}
                print(line, flush=True)
                results.add(**line)


def train(folder: Path) -> Path:
    """A small model of the default encoder."""
    rows = sample("train").take(list(range(200)))
    TextClassifier(plan="frozen", random_state=0).fit(rows.texts, rows.labels).save(folder / "minilm")
    return folder / "minilm"


# --- throughput ---

async def throughput(model: Path, texts: list[str], options: argparse.Namespace) -> dict[str, Any]:
    """Median rates of the server and of `predict`, and the median of their ratio within a round."""
    rounds, number = [], options.request_texts
    async with serving(model, number) as server:
        await burst(server, texts[:512], number)
        for _ in range(options.repeats):
            rounds.append((await burst(server, texts, number), await asyncio.to_thread(predict_rate, model, texts)))
    served, predicted = np.array(rounds).T
    return {"texts": len(texts), "rounds": options.repeats, "request_texts": number,
            "texts_per_second": float(np.median(served)), "predict_texts_per_second": float(np.median(predicted)),
            "ratio": float(np.median(served / predicted)), "ratios": (served / predicted).tolist()}


async def burst(server: Server, texts: list[str], number: int) -> float:
    """Texts per second, in full requests by some connections, each of which sends its next one after an answer."""
    requests = iter(full_requests(texts, number))

    async def work() -> None:
        client = Client(server.port)
        for request in requests:
            status, _ = await client.send(request)
            assert status == 200, status
        await client.close()

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(max(1, QUEUE_TEXTS // number))))
    return len(texts) / (time.perf_counter() - began)


def predict_rate(model: Path, texts: list[str]) -> float:
    """Texts per second of `halflabel predict`, without its start-up: the time of a few texts is taken off."""
    few = 64

    def seconds(some: list[str]) -> float:
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "texts.jsonl")
            source.write_text("".join(json.dumps({"text": text}) + "\n" for text in some), encoding="utf-8")
            began = time.perf_counter()
            subprocess.run([sys.executable, "-m", "halflabel", "predict", str(model), str(source), "--quiet",
                            "--out", str(Path(folder, "out.jsonl"))], check=True, stdout=subprocess.DEVNULL)
            return time.perf_counter() - began

    return (len(texts) - few) / (seconds(texts) - seconds(texts[:few]))


# --- latency and overload ---

async def open_loop(server: Server, requests: list[bytes], rate: float, seconds: float
                    ) -> tuple[Counter[int], list[float]]:
    """Statuses, and the latencies of answers, of requests at random moments of that rate.

    Requests are sent whether or not earlier ones are answered, as long as there is a free connection; their latency
    counts from the moment when they were due, or when a connection was free. Status 0 is a connection that failed.
    """
    statuses, latencies, rng = Counter[int](), list[float](), random.Random(0)
    idle: list[Client] = []
    free = asyncio.Semaphore(MOST)

    async def ask(request: bytes, due: float) -> None:
        client = idle.pop() if idle else Client(server.port)
        try:
            status, _ = await client.send(request)
            idle.append(client)
        except (OSError, asyncio.IncompleteReadError):
            status = 0
        free.release()
        statuses[status] += 1
        if status == 200:
            latencies.append(time.perf_counter() - due)

    start = due = time.perf_counter()
    upcoming = cycle(requests)
    async with asyncio.TaskGroup() as group:
        while max(due, time.perf_counter()) < start + seconds:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            if free.locked():
                await free.acquire()
                due = max(due, time.perf_counter())
            else:
                await free.acquire()
            group.create_task(ask(next(upcoming), due))
            due += rng.expovariate(rate)
    for client in idle:
        await client.close()
    return statuses, latencies


async def capacity(server: Server, requests: list[bytes], connections: int, seconds: float = 5.0) -> float:
    """Requests per second of connections that each wait for their answer."""
    upcoming, end, count = cycle(requests), time.perf_counter() + seconds, 0

    async def work() -> None:
        nonlocal count
        client = Client(server.port)
        while time.perf_counter() < end:
            await client.send(next(upcoming))
            count += 1
        await client.close()

    await asyncio.gather(*(work() for _ in range(connections)))
    return count / seconds


async def latency(model: Path, texts: list[str], options: argparse.Namespace) -> dict[str, Any]:
    """p50 and p99 of single texts at half of what the server can do."""
    requests = [request_of(text) for text in texts]
    async with serving(model) as server:
        rate = await capacity(server, requests, 64) / 2
        statuses, seconds = await open_loop(server, requests, rate, options.seconds / 3)
    return {"requests_per_second": rate, **counted(statuses), **quantiles(seconds)}


async def overload(model: Path, texts: list[str], options: argparse.Namespace) -> dict[str, Any]:
    """What is answered and refused at ten times the capacity, the memory meanwhile, and the latency afterwards."""
    requests, single = full_requests(texts), [request_of(text) for text in texts]
    async with serving(model) as server:
        most = await capacity(server, requests, CONNECTIONS)
        _, before = await open_loop(server, single, most / 2, 10)
        await open_loop(server, requests, OVERLOAD * most, 5)
        memory = [server.megabytes]
        load = asyncio.create_task(open_loop(server, requests, OVERLOAD * most, options.seconds))
        while not load.done():
            await asyncio.sleep(1)
            memory.append(server.megabytes)
        statuses, during = await load
        await asyncio.sleep(2)
        afterwards, after = await open_loop(server, single, most / 2, 10)
    line = {"capacity": most, "requests_per_second": statuses.total() / options.seconds, "seconds": options.seconds,
            **counted(statuses), "megabytes_before": memory[0], "megabytes_most": max(memory), **quantiles(during),
            "p50_before": quantiles(before)["p50"], "p50_after": quantiles(after)["p50"],
            "statuses_after": counted(afterwards)["statuses"]}
    line["held"] = (set(statuses) <= {200, 429} and max(memory) <= FLAT * memory[0] and set(afterwards) == {200}
                    and line["p50_after"] <= 2 * line["p50_before"])
    return line


def counted(statuses: Counter[int]) -> dict[str, Any]:
    return {"requests": statuses.total(), "statuses": {str(key): statuses[key] for key in sorted(statuses)}}


def quantiles(seconds: list[float]) -> dict[str, float]:
    return {"p50": float(np.quantile(seconds, 0.5)), "p99": float(np.quantile(seconds, 0.99))}


# --- hostile requests ---

async def hostile(model: Path, texts: list[str], options: argparse.Namespace) -> dict[str, Any]:
    """The statuses of requests that nobody should send, many at once; some clients are slow on purpose."""
    statuses: Counter[int] = Counter()
    wrong = []
    free = asyncio.Semaphore(100)

    async def attack(server: Server, number: int) -> None:
        async with free:
            kind, parts, pause = ATTACKS[number % len(ATTACKS)](random.Random(number))
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            reading = asyncio.create_task(asyncio.wait_for(reader.read(), 60))
            try:
                for part in parts:
                    if not reading.done():
                        writer.write(part)
                        await writer.drain()
                        await asyncio.wait([reading], timeout=pause)
                answer = await reading
            except (ConnectionError, TimeoutError) as error:
                answer = repr(error).encode()
            finally:
                writer.close()
            status = int(answer[9:12]) if answer.startswith(b"HTTP") else 0
            statuses[status] += 1
            if not proper(status, answer):
                wrong.append({"kind": kind, "answer": answer[:200].decode(errors="replace")})

    async with serving(model) as server:
        memory = server.megabytes
        await asyncio.gather(*(attack(server, number) for number in range(HOSTILE)))
        alive, _ = await Client(server.port).send(request_of(texts[0]))
        return {**counted(statuses), "wrong": len(wrong), "examples": wrong[:5], "alive_after": alive == 200,
                "megabytes_before": memory, "megabytes_after": server.megabytes}


def proper(status: int, answer: bytes) -> bool:
    """Whether an answer is a success, or a refusal with a sentence in the protocol's format."""
    if status == 200:
        return True
    try:
        return 400 <= status < 500 and bool(json.loads(answer.partition(b"\r\n\r\n")[2])["error"])
    except (ValueError, KeyError):
        return False


Attack = tuple[str, list[bytes], float]  # what it is, what is sent, seconds between the parts


def body(kind: str, content: bytes, path: bytes = b"/predict") -> Attack:
    header = (PREDICT % len(content)).replace(b"/predict", path).replace(b"Host", b"Connection: close\r\nHost")
    return kind, [header + content], 0.0


def broken_json(rng: random.Random) -> Attack:
    whole = json.dumps({"inputs": ["a text", "another"], "raw_scores": False}).encode()
    return body("broken JSON", whole[: rng.randrange(len(whole))] + rng.randbytes(rng.randrange(3)))


def noise(rng: random.Random) -> Attack:
    return body("noise", rng.randbytes(rng.randrange(2000)), rng.choice([b"/predict", b"/explain"]))


def wrong_type(rng: random.Random) -> Attack:
    value: Any = rng.choice([None, 3, -1.5, True, {}, {"a": {}}, [[]], [["a", "b"]], [None], ["a", 3], "", [""],
                             10**400])
    key = rng.choice(["inputs", "input", "raw_scores", "truncate", "\ud800"])
    return body("wrong type", json.dumps({"inputs": "a", key: value}).encode(), rng.choice([b"/predict", b"/explain"]))


def wrong_tensor(rng: random.Random) -> Attack:
    tensor: dict[str, Any] = {"name": "text", "shape": [1], "datatype": "BYTES", "data": ["a"]}
    tensor[rng.choice(list(tensor))] = rng.choice([None, 3, "x", [2], [-1], [[1]], {}, ["\ud800"], [10**30]])
    name = rng.choice(["student", "minilm", "other", "%00", "..%2f..%2fetc"]).encode()
    return body("wrong tensor", json.dumps({"inputs": [tensor]}).encode(), b"/v2/models/" + name + b"/infer")


def nul(rng: random.Random) -> Attack:
    return body("NUL", b'{"inputs": "a' + rng.choice([b"\0", b"\\u0000", b"\xff", b"\xed\xa0\x80"]) + b'b"}')


def nested(rng: random.Random) -> Attack:
    depth = rng.randrange(1000, 100_000)
    return body("deep nesting", rng.choice([b"[" * depth, b'{"inputs":' + b"[" * depth + b"]" * depth + b"}",
                                            b'{"inputs":' * depth + b"1" + b"}" * depth]))


def huge(rng: random.Random) -> Attack:
    return body("huge body", b'{"inputs": "' + b"a " * rng.randrange(BODY_BYTES // 2, 3 * BODY_BYTES) + b'"}')


def many_texts(rng: random.Random) -> Attack:
    return body("many texts", json.dumps({"inputs": ["a"] * rng.randrange(REQUEST_TEXTS + 1, 100_000)}).encode())


def no_http(rng: random.Random) -> Attack:
    return "no HTTP", [rng.choice([rng.randbytes(100) + b"\r\n\r\n", b"GET\r\n\r\n", b"\x16\x03\x01" + b"\0" * 99,
                                   b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 100_000,
                                   b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n"])], 0.0


def wrong_path(rng: random.Random) -> Attack:
    method = rng.choice([b"GET", b"PUT", b"DELETE", b"OPTIONS", b"BREW"])
    path = rng.choice([b"/predict", b"/../../etc/passwd", b"/%00", b"/%ff", b"/v2/models/%ff/ready", b"//", b"*"])
    return "wrong path", [method + b" " + path + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"], 0.0


def bad_chunks(rng: random.Random) -> Attack:
    header = (PREDICT % 0).replace(b"Content-Length: 0", b"Connection: close\r\nTransfer-Encoding: chunked")
    chunk = rng.choice([b"zz\r\n", b"-1\r\na\r\n", b"ffffffffffffffffffffffff\r\na", b"1\r\nab\r\n"])
    return "bad chunks", [header, chunk], 0.01


def slow_header(rng: random.Random) -> Attack:
    return "slow header", [b"POST /predict HTTP/1.1\r\n", *[b"X: a\r\n"] * 4], 3.0


def slow_body(rng: random.Random) -> Attack:
    return "slow body", [PREDICT.replace(b"Host", b"Connection: close\r\nHost") % 1000, *[b"{"] * 4], 3.0


ATTACKS: tuple[Callable[[random.Random], Attack], ...] = (
    broken_json, noise, wrong_type, wrong_tensor, nul, nested, huge, many_texts, no_http, wrong_path, bad_chunks,
    slow_header, slow_body)
MODELS = {"student": student, "minilm": train}
PARTS = {"throughput": throughput, "latency": latency, "overload": overload, "hostile": hostile}

if __name__ == "__main__":
    main()
