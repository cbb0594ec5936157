"""Verifies webhook messages with the official library. Each argument is a file of { secrets, headers, body }. A body
with one changed byte must be refused."""

import json
import sys

from standardwebhooks import Webhook, WebhookVerificationError

for path in sys.argv[1:]:
    with open(path) as file:
        message = json.load(file)
    for secret in message["secrets"]:
        webhook = Webhook(secret)
        told = webhook.verify(message["body"], message["headers"])
        assert told["type"] == json.loads(message["body"])["type"]
        try:
            webhook.verify(message["body"] + " ", message["headers"])
        except WebhookVerificationError:
            continue
        raise SystemExit(f"{path}: a forged body was taken")
print("verified")
