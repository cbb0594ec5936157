/**
 * A client of imagefetch, a service that fetches images from untrusted URLs. For Node.js 18 and newer, and for
 * browsers, if the page's origin is in `server.cors_origins`. It has no dependencies.
 *
 *     import { Client } from './imagefetch.js';
 *
 *     const client = new Client('http://127.0.0.1:8080');
 *     const job = await client.fetch('https://example.org/cat.jpg', { onProgress: (job) => console.log(job.progress) });
 *     const blob = await client.image(job, { width: 320, format: 'webp' });
 *
 * Jobs are objects as described in openapi.yaml. An `AbortSignal` in the option `signal` ends the waiting. In `fetch`
 * it also cancels the job.
 */

/** The service refused a request. `status`, `code`, `errors` and `requestId` are from its problem document. */
export class Refused extends Error {
  constructor(status, problem = {}, retryAfter = null, service = 'The service') {
    super(problem.detail ?? `unexpected response from ${service}: status ${status}`);
    this.name = 'Refused';
    this.status = status;
    this.code = problem.code;
    this.errors = problem.errors ?? [];
    this.requestId = problem.request_id;
    this.retryAfter = retryAfter;
  }
}

/** The service could not be reached, or its response is incomplete. `cause` is the error of `fetch`. */
export class Unreachable extends Error {
  constructor(service, cause) {
    const reason = cause.cause?.message || cause.cause?.code || cause.message;
    super(`cannot reach ${service}: ${reason}`, { cause });
    this.name = 'Unreachable';
  }
}

/** The job failed. `code` is its failure code; `retryable` says whether a new attempt may succeed. */
export class Failed extends Error {
  constructor(job) {
    super(job.error?.detail ?? 'The job failed.');
    this.name = 'Failed';
    this.job = job;
    this.code = job.error?.code;
    this.retryable = job.error?.retryable ?? false;
    this.originStatus = job.error?.origin_status ?? null;
  }
}

/** The job was cancelled. */
export class Cancelled extends Error {
  constructor(job) {
    super('The job was cancelled.');
    this.name = 'Cancelled';
    this.job = job;
  }
}

/** A webhook message was not signed with the secret, or is too old. */
export class InvalidWebhook extends Error {
  constructor(message) {
    super(message);
    this.name = 'InvalidWebhook';
  }
}

/** The longest time in seconds that the service may delay a response. Common proxies have longer idle timeouts. */
const longestWait = 30;

const jobID = (job) => (typeof job === 'string' ? job : job.id);

export const isFinished = (job) => job.phase !== 'queued' && job.phase !== 'loading';

/** Resolves after this many seconds; rejects when the signal aborts. */
async function pause(seconds, signal) {
  let timer;
  const passed = new Promise((resolve) => { timer = setTimeout(resolve, seconds * 1000); });
  await unlessAborted(passed, signal).finally(() => clearTimeout(timer));
}

/** Settles like the promise, but rejects if the signal aborts first. The promise itself is not stopped. */
function unlessAborted(promise, signal) {
  if (!signal) return promise;
  return new Promise((resolve, reject) => {
    signal.throwIfAborted();
    const end = () => reject(signal.reason);
    signal.addEventListener('abort', end, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', end));
  });
}

function query(members) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(members)) {
    if (value === undefined || value === null) continue;
    // Lists of objects, such as `variants`, are encoded as JSON.
    const isText = !Array.isArray(value) || typeof value[0] !== 'object';
    for (const each of isText ? [value].flat() : [JSON.stringify(value)]) search.append(name, String(each));
  }
  const text = search.toString();
  return text && `?${text}`;
}

/** Returns the JSON object in the text; an empty one if the text is anything else. */
function parseObject(text) {
  try {
    const value = JSON.parse(text);
    return value instanceof Object ? value : {};
  } catch {
    return {};
  }
}

/** Returns a unique text. It need not be secret. */
const unique = () => Array.from({ length: 4 }, () => Math.random().toString(36).slice(2, 10)).join('');

export class Client {
  #base;
  #headers;
  #patience;

  /**
   * @param {string} base the service's URL, including its path if a proxy serves it below one
   * @param {{token?: string, patience?: number}} options `token`: the client's token, if the service requires one.
   *   `patience`: how many seconds requests are repeated after 429 and 503, at the intervals of `Retry-After`; 60 by
   *   default
   */
  constructor(base = 'http://127.0.0.1:8080', { token, patience = 60 } = {}) {
    this.#base = base.replace(/\/+$/, '');
    this.#headers = token ? { Authorization: `Bearer ${token}` } : {};
    this.#patience = patience;
  }

  /**
   * Submits one job and returns it, usually in the phase `queued`.
   *
   * @param {string|object} source a URL, or an object such as `{ local: 'cat.jpg' }`
   * @param {object} options members of the API, such as `priority`, `timeout`, `max_bytes`, `headers`, `tags` and
   *   `cache`, and also `idempotencyKey` and `signal`
   */
  async submit(source, options = {}) {
    return this.#submit(source, options);
  }

  /** Submits several jobs, each a URL or an object of the API's members. If one is invalid, none is submitted. */
  async submitMany(sources, { idempotencyKey, signal } = {}) {
    const body = sources.map((source) => (typeof source === 'string' ? { url: source } : source));
    const options = { body, idempotencyKey, signal, accepted: [202] };
    return (await this.#json(await this.#send('POST', '/jobs/batch', options), 'jobs')).jobs;
  }

  /** Submits a job for the bytes of an image: a Blob, a File, an ArrayBuffer or its view. */
  async upload(content, { idempotencyKey, signal, ...members } = {}) {
    const type = (content instanceof Blob && content.type) || 'application/octet-stream';
    const options = { content, type, idempotencyKey, signal, accepted: [202] };
    return this.#job(await this.#send('POST', `/jobs/upload${query(members)}`, options));
  }

  /** Returns the current state of a job. */
  async job(job, { signal } = {}) {
    return this.#job(await this.#send('GET', `/jobs/${jobID(job)}`, { signal }));
  }

  /** Iterates over all jobs, newest first. Pages are requested when needed. `phase` and `tag` filter. */
  async *jobs({ signal, ...members } = {}) {
    let cursor;
    do {
      const response = await this.#send('GET', `/jobs${query({ ...members, cursor })}`, { signal });
      const page = await this.#json(response, 'jobs', 'next_cursor');
      yield* page.jobs;
      cursor = page.next_cursor;
    } while (cursor !== null);
  }

  /**
   * Waits until the job has succeeded and returns it. Rejects with `Failed` or `Cancelled`.
   *
   * @param {{onProgress?: (job: object) => void, signal?: AbortSignal}} options `onProgress` is called with the
   *   job, first immediately and then after each change, at most ten times a second
   */
  async wait(job, { onProgress, signal } = {}) {
    let known;
    for (;;) {
      // With `onProgress`, the first request returns the job immediately, and later ones as soon as it changes.
      const wait = onProgress && !known ? 0 : longestWait;
      const headers = known ? { 'If-None-Match': known } : {};
      const options = { headers, signal, accepted: [200, 304] };
      const response = await this.#send('GET', `/jobs/${jobID(job)}?wait=${wait}`, options);
      if (response.status === 304) continue;
      job = await this.#job(response);
      if (onProgress) {
        known = response.headers.get('ETag');
        onProgress(job);
      }
      if (job.phase === 'success') return job;
      if (job.phase === 'failure') throw new Failed(job);
      if (job.phase === 'cancelled') throw new Cancelled(job);
    }
  }

  /** Submits a job and waits for it. The job is cancelled if the signal or an error of `onProgress` ends the waiting. */
  async fetch(source, { onProgress, signal, ...options } = {}) {
    const submitted = this.#submit(source, { signal, ...options }, true);
    const job = await unlessAborted(submitted, signal).catch((error) => {
      submitted.then((job) => this.cancel(job)).catch(() => {});
      throw error;
    });
    try {
      return await this.wait(job, { onProgress, signal });
    } catch (error) {
      if (!(error instanceof Failed || error instanceof Cancelled)) await this.cancel(job).catch(() => {});
      throw error;
    }
  }

  /**
   * Returns the original image as a Blob. With `width`, `height`, `fit`, `format`, `quality` …, a variant. `variant` is
   * the name of one of the `variants` that the job was submitted with.
   */
  async image(job, { signal, ...variant } = {}) {
    const response = await this.#send('GET', `/jobs/${jobID(job)}/image${query(variant)}`, { signal });
    return this.#reach(response.blob(), signal);
  }

  /** Returns the URL of the image or of a variant, for `<img src>`, if the service requires no token. */
  imageURL(job, variant = {}) {
    return `${this.#base}/jobs/${jobID(job)}/image${query(variant)}`;
  }

  /** Cancels the job. A finished job is not changed. */
  async cancel(job, { signal } = {}) {
    return this.#job(await this.#send('DELETE', `/jobs/${jobID(job)}`, { signal }));
  }

  /** Deletes the job and its image. */
  async forget(job, { signal } = {}) {
    await this.#send('DELETE', `/jobs/${jobID(job)}?purge=true`, { signal, accepted: [204] });
  }

  /** Queues a job again that failed, was cancelled, or whose image was deleted. */
  async fetchAgain(job, { signal } = {}) {
    return this.#job(await this.#send('POST', `/jobs/${jobID(job)}/fetch`, { signal }));
  }

  /** Changes `priority` and `tags`, even while the job runs. */
  async edit(job, changes, { signal } = {}) {
    return this.#job(await this.#send('PATCH', `/jobs/${jobID(job)}`, { body: changes, signal }));
  }

  async #submit(source, { idempotencyKey, signal, ...members }, keepsResponse = false) {
    const body = typeof source === 'string' ? { url: source, ...members } : { ...source, ...members };
    const options = { body, idempotencyKey, signal, keepsResponse, accepted: [202] };
    return this.#job(await this.#send('POST', '/jobs', options));
  }

  #job(response) {
    return this.#json(response, 'id', 'phase');
  }

  /** Returns the body's JSON object. Rejects if a member is missing: the server is not an imagefetch service. */
  async #json(response, ...members) {
    const value = parseObject(await this.#reach(response.text()));
    if (members.every((name) => value[name] !== undefined)) return value;
    throw new Refused(response.status, {}, null, this.#base);
  }

  /** Settles like a promise of `fetch`, with network errors as `Unreachable`. An abort by the signal is passed on. */
  async #reach(promise, signal) {
    try {
      return await promise;
    } catch (error) {
      if (signal?.aborted || !(error instanceof TypeError)) throw error;
      throw new Unreachable(this.#base, error);
    }
  }

  /**
   * @param {boolean} keepsResponse whether the signal only prevents that the request is sent again: an aborted
   *   submission could leave a job whose id is unknown
   */
  async #send(method, path, {
    body, content, type, headers = {}, idempotencyKey, signal, keepsResponse = false, accepted = [200],
  } = {}) {
    const all = { ...this.#headers, ...headers };
    if (body !== undefined) {
      content = JSON.stringify(body);
      type = 'application/json';
    }
    if (type) all['Content-Type'] = type;
    // If the request is sent again after a connection error, the key prevents a second job.
    if (accepted[0] === 202) all['Idempotency-Key'] = idempotencyKey ?? unique();
    const deadline = Date.now() + this.#patience * 1000;
    for (;;) {
      signal?.throwIfAborted();
      // Without the browser's cache, which would turn a 304 into an older 200.
      const options = { method, headers: all, body: content, cache: 'no-store' };
      if (!keepsResponse) options.signal = signal;
      const response = await this.#reach(fetch(this.#base + path, options), signal);
      if (accepted.includes(response.status)) return response;
      const after = Number(response.headers.get('Retry-After') ?? NaN);
      const refused = new Refused(
        response.status, parseObject(await response.text().catch(() => '')), Number.isNaN(after) ? null : after, this.#base);
      const isBusy = response.status === 429 || response.status === 503;
      if (!isBusy || refused.retryAfter === null || Date.now() + after * 1000 > deadline) throw refused;
      await pause(after, signal);
    }
  }
}

/**
 * Checks that a webhook message comes from the service, and returns its JSON: `type`, `timestamp` and `data`. Rejects
 * with `InvalidWebhook`. A message may arrive more than once; its `webhook-id` identifies it.
 *
 * @param {Uint8Array|ArrayBuffer|string} body the request's body as it arrived. Parsed and rewritten JSON does not
 *   match the signature
 * @param {Headers|object} headers the request's header fields. Case is ignored
 * @param {string|string[]} secrets a secret (`whsec_…`), or several during a rotation: one must match
 * @param {{tolerance?: number}} options `tolerance`: the most seconds by which `webhook-timestamp` may differ from this
 *   machine's clock; 300 by default
 */
export async function verifyWebhook(body, headers, secrets, { tolerance = 300 } = {}) {
  const entries = headers instanceof Headers ? [...headers] : Object.entries(headers);
  const fields = Object.fromEntries(
    entries.filter(([, value]) => value).map(([name, value]) => [name.toLowerCase(), String(value)]));
  const [id, timestamp, signatures] = ['webhook-id', 'webhook-timestamp', 'webhook-signature'].map((name) => {
    if (!fields[name]) throw new InvalidWebhook(`The message has no ${name}.`);
    return fields[name];
  });
  if (!/^[0-9]{1,15}$/.test(timestamp)) throw new InvalidWebhook('webhook-timestamp is not a number of seconds.');
  if (Math.abs(Date.now() / 1000 - Number(timestamp)) > tolerance) {
    throw new InvalidWebhook('webhook-timestamp is too far from this machine’s clock.');
  }
  const content = typeof body === 'string' ? new TextEncoder().encode(body) : new Uint8Array(body);
  const head = new TextEncoder().encode(`${id}.${timestamp}.`);
  const signed = new Uint8Array(head.length + content.length);
  signed.set(head);
  signed.set(content, head.length);
  // Node.js 18 has no global `crypto`.
  const { subtle } = globalThis.crypto ?? (await import('node:crypto')).webcrypto;
  let isValid = false;
  for (const secret of [secrets].flat()) {
    if (!secret.replace(/^whsec_/, '')) throw new TypeError('A webhook secret is empty.');
    const key = await subtle.importKey(
      'raw', decodeBase64(secret.replace(/^whsec_/, '')), { name: 'HMAC', hash: 'SHA-256' }, false, ['verify']);
    for (const signature of signatures.split(' ').filter((one) => /^v1,[A-Za-z0-9+/]{43}=$/.test(one))) {
      // Compares in constant time.
      if (await subtle.verify('HMAC', key, decodeBase64(signature.slice(3)), signed)) isValid = true;
    }
  }
  if (!isValid) throw new InvalidWebhook('No signature of the message matches a secret.');
  return JSON.parse(new TextDecoder().decode(content));
}

/** Decodes base64. */
const decodeBase64 = (base64) => Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
