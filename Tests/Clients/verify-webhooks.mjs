// Has the official library verify messages: each argument behind its bundle is a file of
// { secrets, headers, body }. A body of which one byte differs is to be refused.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

const { Webhook } = createRequire(import.meta.url)(process.argv[2]);
for (const path of process.argv.slice(3)) {
  const { secrets, headers, body } = JSON.parse(readFileSync(path, 'utf8'));
  for (const secret of secrets) {
    const webhook = new Webhook(secret);
    const told = webhook.verify(body, headers);
    if (told.type !== JSON.parse(body).type) throw new Error('another message');
    try {
      webhook.verify(`${body} `, headers);
    } catch {
      continue;
    }
    throw new Error(`${path}: a forged body was taken`);
  }
}
console.log('verified');
