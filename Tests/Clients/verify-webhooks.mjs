// Verifies webhook messages as Standard Webhooks 1.0 requires, with Node's own HMAC. Each argument is a file of
// { secrets, headers, body }. A body with one changed byte must be refused.

import assert from 'node:assert/strict';
import { createHmac, timingSafeEqual } from 'node:crypto';
import { readFileSync } from 'node:fs';

function isSigned({ headers, body }, secret) {
  const field = Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]));
  assert.ok(Math.abs(Date.now() / 1000 - Number(field['webhook-timestamp'])) < 300);
  const key = Buffer.from(secret.replace(/^whsec_/, ''), 'base64');
  const signed = `${field['webhook-id']}.${field['webhook-timestamp']}.${body}`;
  const expected = createHmac('sha256', key).update(signed).digest();
  return field['webhook-signature'].split(' ').some((signature) => {
    const [version, text] = signature.split(',');
    const given = Buffer.from(text, 'base64');
    return version === 'v1' && given.length === expected.length && timingSafeEqual(given, expected);
  });
}

for (const path of process.argv.slice(2)) {
  const message = JSON.parse(readFileSync(path));
  for (const secret of message.secrets) {
    assert.ok(isSigned(message, secret), `${path}: its signature is none`);
    assert.ok(!isSigned({ ...message, body: message.body + ' ' }, secret), `${path}: a forged body was taken`);
  }
}
console.log('verified');
