"""Python's http.client against toron: `client.py PORT PREFIX FILE`. Each fault is an exception."""

import http.client
import sys

port, prefix, name = int(sys.argv[1]), sys.argv[2], sys.argv[3]
with open(name, "rb") as file:
    content = file.read()
connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
connection.connect()
socket = connection.sock


def ask(method, path, body=None, headers={}, **more):
    connection.request(method, prefix + path, body, headers, **more)
    response = connection.getresponse()
    return response, response.read()


def want(got, wanted):
    if got != wanted:
        raise AssertionError(f"{got!r:.200} instead of {wanted!r:.200}")


for _ in range(3):
    response, body = ask("GET", "/hello")
    want((response.status, body), (200, b"hello"))
response, body = ask("HEAD", "/hello")
want((response.status, response.headers["Content-Length"], body), (200, "5", b""))
response, body = ask("GET", "/empty")
want((response.status, body), (204, b""))
response, body = ask("GET", "/unchanged", headers={"If-None-Match": "*"})
want((response.status, body), (304, b""))
response, body = ask("GET", "/pieces")
want(response.headers["Transfer-Encoding"], "chunked")
want(body, b"".join(b"piece %d\n" % i for i in range(5)))
response, body = ask("GET", "/files/big")
want((response.status, body == content), (200, True))
pieces = [content[at : at + 10_000] for at in range(0, len(content), 10_000)]
response, body = ask("PUT", "/store/by-client", iter(pieces), encode_chunked=True)
want(response.status in (201, 204), True)
response, body = ask("PUT", "/store/by-client-whole", content)
want(response.status in (201, 204), True)
# Not one of them has cost the connection.
want(connection.sock is socket, True)
