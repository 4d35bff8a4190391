"""An ASGI application on uvicorn: `app.py DIR [KEEP_ALIVE_SECONDS]`. uvicorn says on stderr where it
listens."""

import asyncio
import json
import os
import sys

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

directory = sys.argv[1]
connections = 0
streams = set()


class Counting(H11Protocol):
    def connection_made(self, transport):
        global connections
        connections += 1
        super().connection_made(transport)


async def body_of(receive):
    """The pieces of a request's body."""
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ConnectionError("the client is gone")
        more = message.get("more_body", False)
        yield message.get("body", b"")


def start(status, fields=()):
    headers = [(name.encode(), value.encode()) for name, value in fields]
    return {"type": "http.response.start", "status": status, "headers": headers}


def piece(body=b"", more=False):
    return {"type": "http.response.body", "body": body, "more_body": more}


async def answer(send, status, body=b"", fields=()):
    if status not in (204, 304):
        fields = [("content-length", str(len(body))), *fields]
    await send(start(status, fields))
    await send(piece(body))


async def events(receive, send):
    queue = asyncio.Queue()
    streams.add(queue)
    await send(start(200, [("content-type", "text/event-stream")]))
    for count in range(3):
        await queue.get()
        await send(piece(b"data: event %d\n\n" % count, more=True))
    streams.discard(queue)
    await send(piece())


async def echo(receive, send):
    await send(start(200))
    async for part in body_of(receive):
        await send(piece(part, more=True))
    await send(piece())


async def store(path, receive, send):
    with open(os.path.join(directory, os.path.basename(path)), "wb") as file:
        async for part in body_of(receive):
            file.write(part)
    await answer(send, 201)


async def files(path, send):
    name = os.path.join(directory, os.path.basename(path))
    await send(start(200, [("content-length", str(os.path.getsize(name)))]))
    with open(name, "rb") as file:
        while part := file.read(65536):
            await send(piece(part, more=True))
    await send(piece())


async def pieces(send):
    await send(start(200, [("content-type", "text/plain")]))
    for i in range(5):
        await send(piece(b"piece %d\n" % i, more=True))
    await send(piece())


async def login(send):
    cookies = ["session=1; Path=/; HttpOnly", "theme=path=/dark; Path=/elsewhere", "bare=1"]
    fields = [("location", "/home"), *(("set-cookie", cookie) for cookie in cookies)]
    await answer(send, 302, fields=fields)


async def home(headers, send):
    sent = headers.get("cookie", "")
    if "session=1" in sent and "theme=" not in sent:
        await answer(send, 200, b"welcome")
    else:
        await answer(send, 403, sent.encode())


async def http(scope, receive, send):
    path = scope["path"]
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    if path == "/hello":
        await answer(send, 200, b"hello")
    elif path == "/connections":
        await answer(send, 200, b"%d" % connections)
    elif path == "/whoami":
        told = {"client": scope["client"][0], "scheme": scope["scheme"], "host": headers["host"],
                "prefix": headers.get("x-forwarded-prefix"), "path": path}
        await answer(send, 200, json.dumps(told).encode())
    elif path == "/pieces":
        await pieces(send)
    elif path == "/events":
        await events(receive, send)
    elif path == "/go":
        for queue in streams:
            queue.put_nowait(None)
        await answer(send, 200, b"%d" % len(streams))
    elif path == "/echo":
        await echo(receive, send)
    elif path == "/empty":
        await answer(send, 204)
    elif path == "/unchanged":
        await answer(send, 304, fields=[("etag", '"1"')])
    elif path == "/login":
        await login(send)
    elif path == "/home":
        await home(headers, send)
    elif path == "/refuse":
        await answer(send, 413, b"too big", [("connection", "close")])
    elif path.startswith("/store/"):
        await store(path, receive, send)
    elif path.startswith("/files/"):
        await files(path, send)
    else:
        await answer(send, 404)


async def websocket(scope, receive, send):
    headers = dict(scope["headers"])
    assert (await receive())["type"] == "websocket.connect"
    await send({"type": "websocket.accept"})
    await send({"type": "websocket.send", "text": "welcome to " + headers[b"host"].decode()})
    while (message := await receive())["type"] == "websocket.receive":
        if message.get("text") is not None:
            await send({"type": "websocket.send", "text": message["text"]})
        else:
            await send({"type": "websocket.send", "bytes": message["bytes"]})


async def app(scope, receive, send):
    if scope["type"] == "http":
        await http(scope, receive, send)
    elif scope["type"] == "websocket":
        await websocket(scope, receive, send)


keep_alive = float(sys.argv[2]) if len(sys.argv) > 2 else 60
uvicorn.run(app, host="127.0.0.1", port=0, http=Counting, ws="websockets", lifespan="off",
            access_log=False, timeout_keep_alive=keep_alive)
