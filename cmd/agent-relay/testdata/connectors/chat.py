"""A connector on nothing but sockets: RFC 6455 by hand, as awkward as allowed.

It prints its URL, then one line of JSON for each frame that the relay sends.
"""
import base64
import hashlib
import hmac
import json
import socket
import struct
import sys
import time

SECRET = sys.argv[1]
TEXT, CONTINUATION, BINARY, CLOSE, PING, PONG = 1, 0, 2, 8, 9, 10


def authorized(token):
    raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()
    signed, signature = raw.rsplit(":", 1)
    want = hmac.new(SECRET.encode(), signed.encode(), hashlib.sha256).hexdigest()
    return signed.split(":")[0] == "gw-1" and time.time() <= int(signed.rsplit(":", 1)[1]) and hmac.compare_digest(want, signature)


class Connection:
    def __init__(self, conn):
        self.conn, self.stream = conn, conn.makefile("rb")
        request = self.stream.readline().decode()
        headers = {}
        for line in iter(self.stream.readline, b"\r\n"):
            name, value = line.decode().split(":", 1)
            headers[name.lower()] = value.strip()
        assert request.startswith("GET /some/path/relay "), request
        scheme, token = headers["authorization"].split(" ")
        assert scheme == "Bearer" and authorized(token)
        accept = hashlib.sha1((headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()
        conn.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "
                     + base64.b64encode(accept) + b"\r\n\r\n")

    def send(self, opcode, data, fin=True):
        size = len(data)
        head = bytes([opcode | (128 if fin else 0)])
        if size < 126:
            head += bytes([size])
        elif size < 65536:
            head += struct.pack("!BH", 126, size)
        else:
            head += struct.pack("!BQ", 127, size)
        self.conn.sendall(head + data)

    def messages(self):
        """Yields the relay's messages, which are masked."""
        message = b""
        while True:
            first, second = self.stream.read(2)
            size = second & 127
            if size == 126:
                size, = struct.unpack("!H", self.stream.read(2))
            elif size == 127:
                size, = struct.unpack("!Q", self.stream.read(8))
            mask = self.stream.read(4)
            data = bytes(b ^ mask[i % 4] for i, b in enumerate(self.stream.read(size)))
            opcode = first & 15
            if opcode == PING:
                self.send(PONG, data)
            elif opcode == CLOSE:
                self.send(CLOSE, data)
                return
            elif opcode in (TEXT, CONTINUATION, BINARY):
                message += data
                if first & 128:
                    yield message.decode()
                    message = b""

    def frames(self):
        rest = ""
        for message in self.messages():
            *lines, rest = (rest + message).split("\n")
            for line in filter(None, lines):
                print(line, flush=True)
                yield json.loads(line)


def line(frame):
    return json.dumps(frame, ensure_ascii=False).encode() + b"\n"


def event(text, buffer):
    return line({"type": "inbound", "bufferId": buffer, "event": {
        "text": text, "message_id": 7, "source": {"platform": "chat", "chat_id": "c", "delivered_via_upstream_relay": True}}})


server = socket.create_server(("127.0.0.1", 0))
print("http://127.0.0.1:%d/some/path/" % server.getsockname()[1], flush=True)
connection = Connection(server.accept()[0])
for frame in connection.frames():
    if frame["type"] == "hello":
        descriptor = line({"type": "descriptor", "descriptor": {
            "contract_version": 1, "platform": "chat", "label": "Plauderei ü", "max_message_length": 40, "emoji": "✈️"}})
        # A message of two fragments, cut inside a character, with a ping between.
        cut = descriptor.index("✈".encode()) + 1
        connection.send(TEXT, descriptor[:cut], fin=False)
        connection.send(PING, b"are you there")
        connection.send(CONTINUATION, descriptor[cut:])
        # Several frames in one message, with blanks, rubbish and the unknown between.
        connection.send(TEXT, b"\n" + event("eins", "b1") + b"rubbish\n" + line({"type": "news"}) + event("zwei ✓", "b2"))
        # Binary, in two messages, and the last one without its newline.
        third = event("drei 😊", "b3")[:-1]
        connection.send(BINARY, third[:-20])
        connection.send(BINARY, third[-20:])
    elif frame["type"] == "outbound":
        connection.send(TEXT, line({"type": "outbound_result", "requestId": frame["requestId"], "result": {
            "success": True, "message_id": 1000 + len(frame["action"]["content"])}}))
    elif frame["type"] == "going_idle":
        connection.send(TEXT, line({"type": "going_idle_ack"}))
