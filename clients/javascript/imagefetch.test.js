// Tests of the module with a real service, at API, and an origin, at ORIGIN. The origin has only /photo.jpg (480 x 320)
// and /slow.jpg, whose response never ends. The project's tests run this file.

import assert from 'node:assert/strict';
import { createHash, randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { test } from 'node:test';

import {
  Cancelled, Client, Failed, InvalidWebhook, isFinished, Refused, Unreachable, verifyWebhook,
} from './imagefetch.js';

const client = new Client(process.env.API);
const origin = process.env.ORIGIN;
const photo = `${origin}/photo.jpg`;
const slow = `${origin}/slow.jpg`;
// Distinguishes these jobs from those of earlier runs in the same service.
const run = randomUUID();
const bytes = async (blob) => Buffer.from(await blob.arrayBuffer());
const listed = async (members) => {
  const jobs = [];
  for await (const job of client.jobs(members)) jobs.push(job);
  return jobs;
};

test('the client fetches, reports progress, and returns the image and its variants', async () => {
  const seen = [];
  const job = await client.fetch(photo, { onProgress: (job) => seen.push(job), tags: ['js'] });
  assert.equal(job.phase, 'success');
  assert.ok(isFinished(seen.at(-1)) && seen.at(-1).progress.fraction === 1);
  assert.deepEqual([job.image.width, job.image.height], [480, 320]);
  const image = await client.image(job);
  assert.equal(image.type, 'image/jpeg');
  assert.equal(createHash('sha256').update(await bytes(image)).digest('hex'), job.image.sha256);
  const variant = await client.image(job, { width: 32, format: 'webp' });
  assert.equal((await bytes(variant)).subarray(8, 12).toString(), 'WEBP');
  assert.equal((await fetch(client.imageURL(job, { width: 32, format: 'png' }))).headers.get('Content-Type'), 'image/png');
});

test('fetch rejects with the job’s failure', async () => {
  await assert.rejects(client.fetch(`${origin}/none.jpg`), (error) => {
    assert.ok(error instanceof Failed);
    assert.deepEqual([error.code, error.originStatus, error.retryable], ['origin_status', 404, false]);
    return error.message === 'The origin responded with 404.';
  });
});

test('a refused request rejects with the problem', async () => {
  await assert.rejects(client.submit('ftp://example.org/a.jpg', { priority: 'urgent' }), (error) => {
    assert.ok(error instanceof Refused);
    assert.deepEqual([error.status, error.code, error.errors.length], [422, 'invalid_url', 2]);
    return true;
  });
  await assert.rejects(client.job('0193a0b2-7c1e-7d3a-9f52-1f0c5b6a7d88'), { status: 404, code: 'not_found' });
});

test('a call rejects if another server responds, or none', async () => {
  const server = createServer((request, response) => {
    const isImage = request.url.endsWith('/image');
    response.writeHead(request.method === 'GET' ? 200 : 501, isImage ? { 'Content-Length': 1000 } : {});
    if (isImage) response.write('cut off', () => response.destroy());
    else response.end('<title>Another server</title>');
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const url = `http://127.0.0.1:${server.address().port}`;
  const other = new Client(`${url}/`);
  const words = (status) => `unexpected response from ${url}: status ${status}`;
  await assert.rejects(other.submit(photo), { name: 'Refused', status: 501, message: words(501) });
  await assert.rejects(other.job('a'), { name: 'Refused', status: 200, message: words(200) });
  await assert.rejects(other.image('a'), Unreachable);
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
  await assert.rejects(other.fetch(photo), (error) => {
    assert.ok(error instanceof Unreachable && error.cause instanceof TypeError);
    assert.ok(error.message.startsWith(`cannot reach ${url}: `) && error.message.includes('ECONNREFUSED'));
    return true;
  });
});

test('a call rejects if the response is not a job or not HTTP', async () => {
  let [status, text] = [200, ''];
  const server = createServer((request, response) => {
    if (status) response.writeHead(status).end(text);
    else response.socket.end(text);
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const url = `http://127.0.0.1:${server.address().port}`;
  const other = new Client(url);
  const message = (status) => `unexpected response from ${url}: status ${status}`;
  const bodies = ['[1]', '"ok"', '1', 'null', '{}', '{"status":"ok"}', '{"jobs":[]}', '['.repeat(100_000), '\xff'];
  for (text of bodies) {
    status = 200;
    const asked = [() => other.job('a'), () => other.wait('a'), () => other.fetchAgain('a'), () => other.jobs().next()];
    for (const ask of asked) await assert.rejects(ask(), { name: 'Refused', status, message: message(200) }, text);
    status = 202;
    await assert.rejects(other.submit(photo), { name: 'Refused', status, message: message(202) }, text);
    status = 500;
    await assert.rejects(other.job('a'), { name: 'Refused', status, message: message(500), code: undefined }, text);
  }
  [status, text] = [202, '[1]'];
  await assert.rejects(other.submitMany([photo]), { name: 'Refused', status });
  status = 0;
  const length = 'HTTP/1.1 200 OK\r\nContent-Length: ';
  const chunks = 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n';
  const broken = ['', 'HTTP/1.1\r\n\r\n', 'HTTP/1.1 abc\r\n\r\n', `${length}abc\r\n\r\n{}`, `${length}5\r\n\r\n{}`,
    `${chunks}xyz\r\n{}\r\n0\r\n\r\n`];
  for (text of broken) await assert.rejects(other.job('a'), Unreachable, text);
  server.closeAllConnections();
  server.close();
});

test('submitMany submits all jobs, and jobs lists them', async () => {
  const jobs = await client.submitMany([photo, ...Array(5).fill({ url: photo, tags: [run] })]);
  await Promise.all(jobs.map((job) => client.wait(job)));
  const ids = (await listed({ tag: run, phase: ['success', 'failure'], limit: 2 })).map((job) => job.id);
  assert.deepEqual(ids, jobs.slice(1).map((job) => job.id).reverse());
});

test('the same idempotency key returns the same job', async () => {
  const jobs = [await client.submit(photo, { idempotencyKey: run }), await client.submit(photo, { idempotencyKey: run })];
  assert.equal(jobs[0].id, jobs[1].id);
});

test('a job with original: drop keeps only its variants', async () => {
  const options = { variants: [{ name: 'thumb', width: 32 }], original: 'drop' };
  const content = await (await fetch(photo)).blob();
  const jobs = [await client.fetch(photo, options), await client.wait(await client.upload(content, options))];
  for (const job of jobs) {
    assert.equal((await bytes(await client.image(job, { variant: 'thumb' }))).length, job.image.variants[0].bytes);
    await assert.rejects(client.image(job), { status: 410, code: 'image_gone' });
  }
});

test('an uploaded image becomes a job', async () => {
  const content = new Blob([await (await fetch(photo)).arrayBuffer()], { type: 'image/jpeg' });
  const job = await client.wait(await client.upload(content, { tags: ['a', 'b'], max_pixels: 1e6 }));
  assert.deepEqual(job.source.captured, { bytes: content.size, content_type: 'image/jpeg' });
  assert.deepEqual(job.tags, ['a', 'b']);
  assert.deepEqual(await bytes(await client.image(job)), await bytes(content));
});

test('a job can be edited, cancelled, fetched again and forgotten', async () => {
  const job = await client.submit({ url: slow }, { cache: 'no-store' });
  assert.deepEqual((await client.edit(job, { priority: 'high', tags: ['x'] })).tags, ['x']);
  assert.equal((await client.cancel(job)).phase, 'cancelled');
  await assert.rejects(client.wait(job), Cancelled);
  assert.equal(isFinished(await client.fetchAgain(job)), false);
  await client.forget(job);
  await assert.rejects(client.job(job.id), Refused);
});

test('a signal ends the waiting and cancels the job', async () => {
  const controller = new AbortController();
  const tags = [`${run}-left`];
  const fetched = client.fetch(slow, {
    cache: 'no-store', tags, signal: controller.signal, onProgress: () => controller.abort(),
  });
  await assert.rejects(fetched, { name: 'AbortError' });
  assert.deepEqual((await listed({ tag: tags[0] })).map((job) => job.phase), ['cancelled']);
});

test('a signal cancels a job whose submission has no response yet', async () => {
  const controller = new AbortController();
  const tags = [`${run}-early`];
  let release;
  const released = new Promise((resolve) => { release = resolve; });
  // A proxy that receives the service's response and delays it.
  const proxy = createServer(async (request, response) => {
    const pieces = [];
    for await (const piece of request) pieces.push(piece);
    const headers = { 'Content-Type': 'application/json' };
    const body = pieces.length ? Buffer.concat(pieces) : undefined;
    const answer = await fetch(process.env.API + request.url, { method: request.method, headers, body });
    const text = await answer.text();
    if (request.method === 'POST') {
      controller.abort();
      await released;
    }
    response.writeHead(answer.status).end(text);
  });
  await new Promise((resolve) => proxy.listen(0, '127.0.0.1', resolve));
  const late = new Client(`http://127.0.0.1:${proxy.address().port}`);
  const fetched = late.fetch(slow, { cache: 'no-store', tags, signal: controller.signal });
  await assert.rejects(fetched, { name: 'AbortError' });
  release();
  const [job] = await listed({ tag: tags[0] });
  await assert.rejects(client.wait(job, { signal: AbortSignal.timeout(20_000) }), Cancelled);
  await assert.rejects(late.fetch(slow, { tags, signal: controller.signal }), { name: 'AbortError' });
  assert.equal((await listed({ tag: tags[0] })).length, 1, 'a call that was aborted before submits nothing');
  proxy.closeAllConnections();
  proxy.close();
});

test('a signal ends a submission that waits to be sent again', async () => {
  const controller = new AbortController();
  let asked = 0;
  const server = createServer((request, response) => {
    asked += 1;
    controller.abort();
    response.writeHead(503, { 'Retry-After': '0' }).end('{"code":"queue_full"}');
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const busy = new Client(`http://127.0.0.1:${server.address().port}`);
  await assert.rejects(busy.fetch(photo, { signal: controller.signal }), { name: 'AbortError' });
  await new Promise((resolve) => setTimeout(resolve, 300));
  assert.equal(asked, 1);
  server.closeAllConnections();
  server.close();
});

test('an error of onProgress cancels the job', async () => {
  const tags = [`${run}-thrown`];
  const thrown = new Error('enough');
  await assert.rejects(client.fetch(slow, { cache: 'no-store', tags, onProgress: () => { throw thrown; } }), thrown);
  assert.deepEqual((await listed({ tag: tags[0] })).map((job) => job.phase), ['cancelled']);
});

test('a call waits for Retry-After, but not longer than patience', async () => {
  let asked = 0;
  const keys = new Set();
  const server = createServer((request, response) => {
    asked += 1;
    keys.add(request.headers['idempotency-key']);
    assert.equal(request.headers.authorization, 'Bearer secret');
    if (asked === 2) response.writeHead(202).end('{"id":"1","phase":"queued"}');
    else response.writeHead(503, { 'Retry-After': asked === 1 ? '0' : '9' }).end('{"code":"queue_full"}');
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const busy = new Client(`http://127.0.0.1:${server.address().port}/`, { token: 'secret', patience: 5 });
  assert.equal((await busy.submit(photo)).id, '1');
  assert.deepEqual([asked, keys.size], [2, 1]);
  await assert.rejects(busy.submit(photo), { code: 'queue_full', retryAfter: 9 });
  server.closeAllConnections();
  server.close();
});

test('verifyWebhook accepts the service’s messages and refuses others', async (context) => {
  // The service signs each message with both of its secrets.
  const secrets = process.env.WEBHOOK_SECRETS.split(',');
  const arrived = new Promise((resolve) => {
    const receiver = createServer(async (request, response) => {
      const pieces = [];
      for await (const piece of request) pieces.push(piece);
      response.writeHead(204).end();
      resolve([Buffer.concat(pieces), request.headers]);
    });
    context.after(() => receiver.close());
    receiver.listen(0, '127.0.0.1', () => {
      client.fetch(photo, { notify: { url: `http://127.0.0.1:${receiver.address().port}/hook` } });
    });
  });
  const [body, headers] = await arrived;
  const signatures = headers['webhook-signature'].split(' ');
  assert.equal(signatures.length, 2);
  for (const chosen of [...secrets, secrets]) {
    const message = await verifyWebhook(body, headers, chosen);
    assert.equal(message.type, 'job.success');
    assert.equal(message.data.source.url, photo);
    assert.deepEqual(await verifyWebhook(body.toString(), new Headers(headers), chosen), message);
  }
  for (const signature of signatures) {
    const several = `v1a,other v1,${'A'.repeat(43)}= ${signature} v2,${signature.slice(3)}`;
    await verifyWebhook(body, { ...headers, 'webhook-signature': several }, secrets);
  }
  const now = Number(headers['webhook-timestamp']);
  const refused = [
    [Buffer.concat([body, Buffer.from(' ')]), headers, secrets, /No signature/],
    [body, { ...headers, 'webhook-id': 'other' }, secrets, /No signature/],
    [body, { ...headers, 'webhook-timestamp': String(now + 1) }, secrets, /No signature/],
    [body, { ...headers, 'webhook-signature': signatures[0] }, secrets[1], /No signature/],
    [body, { ...headers, 'webhook-signature': `v2${signatures[0].slice(2)}` }, secrets, /No signature/],
    [body, headers, `whsec_${'A'.repeat(43)}=`, /No signature/],
    [body, { ...headers, 'webhook-signature': undefined }, secrets, /no webhook-signature/],
    [body, { ...headers, 'webhook-timestamp': String(now - 301) }, secrets, /too far/],
    [body, { ...headers, 'webhook-timestamp': String(now + 310) }, secrets, /too far/],
    [body, { ...headers, 'webhook-timestamp': '1e9' }, secrets, /not a number/],
  ];
  for (const [content, fields, chosen, words] of refused) {
    await assert.rejects(verifyWebhook(content, fields, chosen), (error) => {
      assert.ok(error instanceof InvalidWebhook && words.test(error.message), error.message);
      return true;
    });
  }
  for (const empty of ['', 'whsec_', ['']]) await assert.rejects(verifyWebhook(body, headers, empty), TypeError);
  await context.test('the tolerance is configurable', async () => {
    context.mock.method(Date, 'now', () => (now + 400) * 1000);
    await assert.rejects(verifyWebhook(body, headers, secrets), InvalidWebhook);
    await verifyWebhook(body, headers, secrets, { tolerance: 500 });
  });
});
