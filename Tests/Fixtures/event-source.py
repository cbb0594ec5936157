"""A client of server-sent events as in the HTML standard (section 9.2), without a library.

Prints each event as a JSON line: its type, last event ID and data. After its connection ends it connects again, like
EventSource, and exits when the server answers 204. Usage: event-source.py URL [SECONDS]. It waits SECONDS
before it connects again.
"""

import http.client
import json
import sys
import time
import urllib.error
import urllib.request


class EventSource:
    def __init__(self, url, pause):
        self.url, self.pause = url, pause
        self.last_event_id = ""

    def run(self):
        """Returns when the server ends the stream for good."""
        while True:
            headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
            if self.last_event_id:
                headers["Last-Event-ID"] = self.last_event_id
            try:
                with urllib.request.urlopen(urllib.request.Request(self.url, headers=headers)) as answer:
                    if answer.status != 200:
                        return answer.status
                    if answer.headers.get_content_type() != "text/event-stream":
                        raise ValueError(answer.headers["Content-Type"])
                    self.interpret(answer)
            except urllib.error.HTTPError as error:
                return error.code
            except (OSError, http.client.HTTPException):
                pass  # reestablish the connection, as after its end
            time.sleep(self.pause)

    def interpret(self, stream):
        """Section 9.2.6: an event that is not ended by a blank line is discarded."""
        last_id, kind, data = self.last_event_id, "", []
        for line in stream:
            line = line.decode().removesuffix("\n").removesuffix("\r")
            if not line:
                self.last_event_id = last_id
                if data:
                    self.dispatch(kind or "message", "\n".join(data))
                kind, data = "", []
                continue
            if line.startswith(":"):
                continue
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            match field:
                case "event":
                    kind = value
                case "data":
                    data.append(value)
                case "id" if "\0" not in value:
                    last_id = value
                case "retry" if value.isdecimal():
                    self.pause = int(value) / 1000

    def dispatch(self, kind, data):
        print(json.dumps({"type": kind, "id": self.last_event_id, "job": json.loads(data)}), flush=True)


if __name__ == "__main__":
    print(json.dumps({"status": EventSource(sys.argv[1], float((sys.argv + ["0.2"])[2])).run()}), flush=True)
