"""A client of the message relay, protocol 1.0, on the standard library alone.

It stands for the Python clients that are in use, and keeps their habits on
purpose, the questionable ones too: the broker must serve them as they are.
New clients follow PROTOCOL.md instead.

    RELAY_URL            the broker, default http://127.0.0.1:19121
    RELAY_AGENT          the agent to call as
    RELAY_SECRET         the shared secret
    RELAY_RETRY_DELAYS   seconds before each further try, default 2,4,8

Run as a program, it reads calls from standard input, a JSON object on each
line, {"call": "send", "to": "beta", "body": {"text": "hello"}}, and answers
each with a line of its own: {"ok": true, "result": ...}, or {"ok": false,
"status": 404, "error": {...}}.
"""

import hashlib
import hmac
import json
import os
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid

TIMEOUT = 10  # seconds for one try


class RelayError(Exception):
    """The broker refused a call, or none could be reached (status 0)."""

    def __init__(self, status, error):
        super().__init__("%s: %s" % (status, error.get("message", "")))
        self.status = status
        self.error = error


class RelayClient:
    def __init__(self, url, agent, secret, delays=(2, 4, 8)):
        self.url = url.rstrip("/")
        self.agent = agent
        self.secret = secret
        self.delays = delays
        self.cursor = ""  # where the next poll begins

    def handshake(self):
        info = self._request("GET", "/")
        if info.get("protocol") != "1.0":
            raise RelayError(0, {"code": "protocol", "message": "this broker speaks protocol %s, not 1.0" % info.get("protocol")})
        return info

    def register(self):
        return self._request("POST", "/register", {"agent": self.agent})

    def peers(self):
        return self._request("GET", "/peers")

    def send(self, to, body, id=None, kind="message", ack=False, reply_to=None, root_id=None, parent_id=None):
        """Sends a whole envelope, with members that the broker sets itself."""
        return self._request("POST", "/messages", {
            "id": id or str(uuid.uuid4()),
            "from": self.agent,
            "to": to,
            "ts": time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime()),
            "type": "message",
            "body": body,
            "replyTo": reply_to,
            "ack": ack,
            "kind": kind,
            "rootId": root_id,
            "parentId": parent_id,
            "status": "queued",
            "attempts": 0,
            "leaseUntil": None,
            "leaseId": None,
        })

    def poll(self, limit=50):
        """Returns what came since the last poll that brought something."""
        query = urllib.parse.urlencode({"since": self.cursor, "limit": limit})
        page = self._request("GET", "/messages?" + query)
        if page.get("messages"):
            self.cursor = page["cursor"]
        return page

    def ack(self, id, status="ok", error=None):
        body = {"status": status}
        if error is not None:
            body["error"] = error
        return self._request("POST", "/messages/" + id + "/ack", body)

    def pull(self, limit=50, lease_seconds=600):
        return self._request("POST", "/v1/pull", {"limit": limit, "leaseSeconds": lease_seconds})

    def settle(self, id, lease_id, outcome, error=None):
        body = {"messageId": id, "leaseId": lease_id, "outcome": outcome}
        if error is not None:
            body["error"] = error
        return self._request("POST", "/v1/ack", body)

    def renew(self, id, lease_id, lease_seconds=600):
        return self._request("POST", "/v1/lease/renew", {"messageId": id, "leaseId": lease_id, "leaseSeconds": lease_seconds})

    def status(self, ids):
        return self._request("POST", "/v1/status", {"messageIds": ids})

    def recent(self, limit=50):
        return self._request("POST", "/v1/recent", {"limit": limit})

    def query(self, limit=50, **filters):
        filters["limit"] = limit
        return self._request("POST", "/v1/messages/query", filters)

    def _request(self, method, target, body=None):
        """One call, tried again while the broker may recover. The body is the
        same each time, the message's id with it."""
        data = b"" if body is None else json.dumps(body).encode()
        delays = list(self.delays)
        while True:
            status, answer = self._try(method, target, data)
            if 200 <= status < 300:
                return answer
            if status == 409:
                return {"ok": True, "duplicate": True}
            if not delays or not (status == 0 or status >= 500 or status in (408, 429)):
                raise RelayError(status, answer.get("error", {}))
            time.sleep(delays.pop(0))

    def _try(self, method, target, data):
        request = urllib.request.Request(self.url + target, data=data or None, method=method, headers=self._sign(method, target, data))
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
                return response.status, json.loads(response.read())
        except urllib.error.HTTPError as refused:
            try:
                return refused.code, json.loads(refused.read())
            except ValueError:
                return refused.code, {}
        except (OSError, ValueError) as broken:
            return 0, {"error": {"code": "unreachable", "message": str(broken)}}

    def _sign(self, method, target, data):
        timestamp = str(int(time.time()))
        signed = "\n".join((method, target, timestamp, "")).encode() + data
        return {
            "Content-Type": "application/json",
            "X-Relay-Agent": self.agent,
            "X-Relay-Timestamp": timestamp,
            "X-Relay-Signature": hmac.new(self.secret.encode(), signed, hashlib.sha256).hexdigest(),
        }


CALLS = ("handshake", "register", "peers", "send", "poll", "ack", "pull", "settle", "renew", "status", "recent", "query")


def answer(client, line):
    arguments = json.loads(line)
    call = arguments.pop("call", None)
    if call not in CALLS:
        return {"ok": False, "status": 0, "error": {"code": "usage", "message": "there is no call %r" % call}}
    try:
        return {"ok": True, "result": getattr(client, call)(**arguments)}
    except RelayError as refused:
        return {"ok": False, "status": refused.status, "error": refused.error}


def main():
    delays = os.environ.get("RELAY_RETRY_DELAYS", "2,4,8")
    client = RelayClient(
        os.environ.get("RELAY_URL", "http://127.0.0.1:19121"),
        os.environ["RELAY_AGENT"],
        os.environ["RELAY_SECRET"],
        [float(seconds) for seconds in delays.split(",") if seconds],
    )
    for line in sys.stdin:
        print(json.dumps(answer(client, line)), flush=True)


if __name__ == "__main__":
    main()
