"""Turns attempts.json into results.json: each attempt by its way, one after the other, and what came of it.
It refuses to know what should come of it."""

import json
import os
import socket
import ssl
import struct

PROXY = ("127.0.0.1", 3128)
NAMES = ("127.0.0.1", 53)
PATIENCE = 60
TRUST = ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"])


def connected(address):
    return socket.create_connection(address, timeout=PATIENCE)


def answer(stream):
    """The status and body of one answer; a status of 0 is an end without one."""
    got = b""
    while b"\r\n\r\n" not in got:
        more = stream.recv(65536)
        if not more:
            return 0, got
        got += more
    head, body = got.split(b"\r\n\r\n", 1)
    lines = head.decode("latin-1").split("\r\n")
    status = int(lines[0].split(" ")[1])
    fields = dict(line.lower().split(": ", 1) for line in lines[1:])
    length = int(fields.get("content-length", 0))
    while len(body) < length:
        more = stream.recv(65536)
        if not more:
            break
        body += more
    return status, body


def result(status, body):
    try:
        refusal = json.loads(body)
    except ValueError:
        refusal = {}
    said = {"reached": body.startswith(b"hello"), "status": status, "said": body[:400].decode("latin-1")}
    return said | {name: refusal.get(name) for name in ("reason", "policy")}


def lookup(name):
    """The address that the sandbox has for a name: one question, without a library that would ask again."""
    question = struct.pack(">6H", 7, 256, 1, 0, 0, 0)
    for label in name.rstrip(".").encode("latin-1").split(b"."):
        question += bytes([len(label)]) + label
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as names:
        names.settimeout(PATIENCE)
        names.sendto(question + struct.pack(">B2H", 0, 1, 1), NAMES)
        said = names.recv(512)
    return None if said[3] & 15 else socket.inet_ntoa(said[-4:])


def get(stream, attempt):
    text = "{method} / HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    stream.sendall(text.format(**attempt).encode())
    return result(*answer(stream))


def under_tls(stream, attempt):
    with TRUST.wrap_socket(stream, server_hostname=attempt["server"]) as inner:
        return get(inner, attempt)


def under_split_tls(stream, attempt):
    """The same with a hello in records of nine bytes, each sent alone."""
    into, out = ssl.MemoryBIO(), ssl.MemoryBIO()
    inner = TRUST.wrap_bio(into, out, server_hostname=attempt["server"])
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def until(step):
        while True:
            try:
                said = step()
                break
            except ssl.SSLWantReadError:
                stream.sendall(out.read())
                got = stream.recv(65536)
                if not got:
                    raise OSError("the end")
                into.write(got)
        stream.sendall(out.read())
        return said

    try:
        inner.do_handshake()
    except ssl.SSLWantReadError:
        pass
    hello = out.read()
    for at in range(5, len(hello), 9):
        part = hello[at : at + 9]
        stream.sendall(hello[:3] + struct.pack(">H", len(part)) + part)
    until(inner.do_handshake)
    inner.write("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".format(**attempt).encode())
    body = until(lambda: inner.read(65536)).split(b"\r\n\r\n", 1)[1]
    return result(200, body)


def connect(attempt):
    with connected(PROXY) as stream:
        text = "CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".format(**attempt)
        stream.sendall(text.encode())
        status, body = answer(stream)
        if status != 200:
            return result(status, body)
        return (under_split_tls if attempt.get("split") else under_tls)(stream, attempt)


def forward(attempt):
    with connected(PROXY) as stream:
        text = "{method} http://{host}:{port}/ HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        stream.sendall(text.format(**attempt).encode())
        return result(*answer(stream))


def arrived(attempt):
    address = attempt["address"] or lookup(attempt["host"])
    return address and connected((address, attempt["port"]))


def direct(attempt):
    stream = arrived(attempt)
    if not stream:
        return {"error": "no such name"}
    with stream:
        return get(stream, attempt)


def direct_tls(attempt):
    stream = arrived(attempt)
    if not stream:
        return {"error": "no such name"}
    with stream:
        return (under_split_tls if attempt.get("split") else under_tls)(stream, attempt)


def raw(attempt):
    """Bytes as they are, to the proxy or past it."""
    with (connected(PROXY) if attempt["way"] == "raw" else arrived(attempt)) as stream:
        stream.sendall(attempt["bytes"].encode("latin-1"))
        return result(*answer(stream))


WAYS = {"connect": connect, "forward": forward, "direct": direct, "direct-tls": direct_tls, "raw": raw, "raw-direct": raw}


def tried(attempt):
    try:
        return WAYS[attempt["way"]](attempt)
    except (OSError, ssl.SSLError) as error:
        return {"error": repr(error)}


with open("attempts.json") as file:
    attempts = json.load(file)
with open("results.json", "w") as file:
    json.dump([{"reached": False, "status": 0, "reason": None} | tried(each) for each in attempts], file)
