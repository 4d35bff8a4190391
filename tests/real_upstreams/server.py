"""Python's http.server as an upstream: `server.py DIR`, or `server.py DIR plain` for what
`python3 -m http.server` is (HTTP/1.0, files only). Says on stderr where it listens."""

import functools
import http.server
import os
import sys
import threading

state = {"connections": 0, "events": 0}
changed = threading.Condition()


class Plain(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


class Handler(Plain):
    protocol_version = "HTTP/1.1"

    def setup(self):
        with changed:
            state["connections"] += 1
        super().setup()

    def answer(self, status, body=b"", **fields):
        self.send_response(status)
        for name, value in fields.items():
            self.send_header(name.replace("_", "-"), value)
        if status not in (204, 304):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def begin_chunked(self, kind="application/octet-stream"):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def body(self):
        """The pieces of the request's body: http.server leaves its framing to whoever uses it."""
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.rfile.readline().split(b";")[0], 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass
        else:
            left = int(self.headers.get("Content-Length", 0))
            while left > 0:
                piece = self.rfile.read(min(left, 65536))
                if not piece:
                    break
                left -= len(piece)
                yield piece

    def do_GET(self):
        path = self.path.split("?")[0]
        if path == "/hello":
            self.answer(200, b"hello")
        elif path == "/connections":
            self.answer(200, b"%d" % state["connections"])
        elif path == "/pieces":
            self.begin_chunked("text/plain")
            for i in range(5):
                self.chunk(b"piece %d\n" % i)
            self.wfile.write(b"0\r\n\r\n")
        elif path == "/events":
            self.events()
        elif path == "/empty":
            self.answer(204)
        elif path == "/unchanged":
            self.answer(304, ETag='"1"')
        elif path == "/login":
            self.answer(302, Location="/home", Set_Cookie="session=1; Path=/; HttpOnly")
        elif path == "/home":
            known = "session=1" in self.headers.get("Cookie", "")
            self.answer(200, b"welcome") if known else self.answer(403)
        elif path == "/until-close":
            self.close_connection = True
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"until the end")
        else:
            self.path = self.path.removeprefix("/files")
            super().do_GET()

    def do_HEAD(self):
        self.answer(200, b"hello") if self.path == "/hello" else super().do_HEAD()

    def do_POST(self):
        if self.path == "/echo":
            self.begin_chunked()
            for piece in self.body():
                self.chunk(piece)
            self.wfile.write(b"0\r\n\r\n")
            return
        for _ in self.body():
            pass
        with changed:
            state["events"] += 1
            changed.notify_all()
        self.answer(200)

    def do_PUT(self):
        with open(os.path.join(self.directory, os.path.basename(self.path)), "wb") as file:
            for piece in self.body():
                file.write(piece)
        self.answer(201)

    def events(self):
        with changed:
            told = state["events"]
        self.begin_chunked("text/event-stream")
        for count in range(3):
            with changed:
                changed.wait_for(lambda: state["events"] > told, timeout=60)
                told += 1
            self.chunk(b"data: event %d\n\n" % count)
        self.wfile.write(b"0\r\n\r\n")


handler = Plain if sys.argv[2:] == ["plain"] else Handler
handler = functools.partial(handler, directory=sys.argv[1])
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
print(f"listening on 127.0.0.1:{server.server_port}", file=sys.stderr, flush=True)
server.serve_forever()
