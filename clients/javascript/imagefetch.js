/**
 * A client of imagefetch, which fetches images from URLs that nobody vouches for. For Node.js 18 and newer, and for
 * browsers, whose page's origin has to be in `server.cors_origins`. It needs nothing else.
 *
 *     import { Client } from './imagefetch.js';
 *
 *     const client = new Client('http://127.0.0.1:8080');
 *     const job = await client.fetch('https://example.org/cat.jpg', { onProgress: (job) => console.log(job.progress) });
 *     const blob = await client.image(job, { width: 320, format: 'webp' });
 *
 * Jobs are the API's, as openapi.yaml describes them. Wherever an option `signal` is taken, an `AbortSignal` ends the
 * waiting; in `fetch` it cancels the job as well.
 */

/** The service did not do as asked: `status`, `code`, `errors` and `requestId` of its problem document. */
export class Refused extends Error {
  constructor(status, problem = {}, retryAfter = null, service = 'The service') {
    super(problem.detail ?? `${service} answers with ${status}: not as an imagefetch service does`);
    this.name = 'Refused';
    this.status = status;
    this.code = problem.code;
    this.errors = problem.errors ?? [];
    this.requestId = problem.request_id;
    this.retryAfter = retryAfter;
  }
}

/** The service could not be asked, or its answer broke off: `cause` is what `fetch` said. */
export class Unreachable extends Error {
  constructor(service, cause) {
    const reason = cause.cause?.message || cause.cause?.code || cause.message;
    super(`${service} is out of reach: ${reason}`, { cause });
    this.name = 'Unreachable';
  }
}

/** The job was given up: `code` is for programs, `retryable` whether it may succeed later. */
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

/** How long the service is to hold back an answer, in seconds: below the idle timeouts of common proxies. */
const longestWait = 30;

const idOf = (job) => (typeof job === 'string' ? job : job.id);

export const isFinished = (job) => job.phase !== 'queued' && job.phase !== 'loading';

/** Resolves after as many seconds, or rejects when the signal says so. */
async function pause(seconds, signal) {
  let timer;
  const passed = new Promise((resolve) => { timer = setTimeout(resolve, seconds * 1000); });
  await unlessAborted(passed, signal).finally(() => clearTimeout(timer));
}

/** What the promise comes to, unless the signal comes first: that rejects, and the promise goes on by itself. */
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
    // Lists of objects, such as `variants`, stand there as JSON.
    const isText = !Array.isArray(value) || typeof value[0] !== 'object';
    for (const each of isText ? [value].flat() : [JSON.stringify(value)]) search.append(name, String(each));
  }
  const text = search.toString();
  return text && `?${text}`;
}

/** The JSON object that the text is; one without members where it is none. */
function parsed(text) {
  try {
    const value = JSON.parse(text);
    return value instanceof Object ? value : {};
  } catch {
    return {};
  }
}

/** A name that nobody else gives: it need not be a secret. */
const unique = () => Array.from({ length: 4 }, () => Math.random().toString(36).slice(2, 10)).join('');

export class Client {
  #base;
  #headers;
  #patience;

  /**
   * @param {string} base the service's URL, with the path below which a proxy has it, if any
   * @param {{token?: string, patience?: number}} options `token` where the service has tokens; `patience`, the seconds
   *   for which 429 and 503 are waited out as `Retry-After` says: 60 unless said otherwise
   */
  constructor(base = 'http://127.0.0.1:8080', { token, patience = 60 } = {}) {
    this.#base = base.replace(/\/+$/, '');
    this.#headers = token ? { Authorization: `Bearer ${token}` } : {};
    this.#patience = patience;
  }

  /**
   * Submits one job and gives it as it is then, mostly `queued`.
   *
   * @param {string|object} source a URL, or an object such as `{ local: 'cat.jpg' }`
   * @param {object} options the API's members, such as `priority`, `timeout`, `max_bytes`, `headers`, `tags`, `cache`;
   *   beside them `idempotencyKey` and `signal`
   */
  async submit(source, options = {}) {
    return this.#submit(source, options);
  }

  /** Submits URLs, or objects of a job's members: all of them or, where one is wrong, none. */
  async submitMany(sources, { idempotencyKey, signal } = {}) {
    const body = sources.map((source) => (typeof source === 'string' ? { url: source } : source));
    const options = { body, idempotencyKey, signal, accepted: [202] };
    return (await this.#json(await this.#send('POST', '/jobs/batch', options), 'jobs')).jobs;
  }

  /** Submits an image that is here already: a Blob, a File, an ArrayBuffer or its view. */
  async upload(content, { idempotencyKey, signal, ...members } = {}) {
    const type = (content instanceof Blob && content.type) || 'application/octet-stream';
    const options = { content, type, idempotencyKey, signal, accepted: [202] };
    return this.#job(await this.#send('POST', `/jobs/upload${query(members)}`, options));
  }

  /** The job as it is now. */
  async job(job, { signal } = {}) {
    return this.#job(await this.#send('GET', `/jobs/${idOf(job)}`, { signal }));
  }

  /** All jobs, newest first, each page asked for when it is needed; `phase` and `tag` choose some. */
  async *jobs({ signal, ...members } = {}) {
    let cursor;
    do {
      const answer = await this.#send('GET', `/jobs${query({ ...members, cursor })}`, { signal });
      const page = await this.#json(answer, 'jobs', 'next_cursor');
      yield* page.jobs;
      cursor = page.next_cursor;
    } while (cursor !== null);
  }

  /**
   * The job once it is a success; rejects with `Failed` or `Cancelled`.
   *
   * @param {{onProgress?: (job: object) => void, signal?: AbortSignal}} options `onProgress` is called with the job at
   *   once and whenever something has changed, at most ten times a second
   */
  async wait(job, { onProgress, signal } = {}) {
    let known;
    for (;;) {
      // Who wants progress is told at once how the job is, and then as soon as anything has changed.
      const wait = onProgress && !known ? 0 : longestWait;
      const headers = known ? { 'If-None-Match': known } : {};
      const options = { headers, signal, accepted: [200, 304] };
      const answer = await this.#send('GET', `/jobs/${idOf(job)}?wait=${wait}`, options);
      if (answer.status === 304) continue;
      job = await this.#job(answer);
      if (onProgress) {
        known = answer.headers.get('ETag');
        onProgress(job);
      }
      if (job.phase === 'success') return job;
      if (job.phase === 'failure') throw new Failed(job);
      if (job.phase === 'cancelled') throw new Cancelled(job);
    }
  }

  /** Submits and waits. Whatever ends the waiting early, the signal or what `onProgress` throws, cancels the job. */
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
   * The image as a Blob, the origin's own; or with `width`, `height`, `fit`, `format`, `quality` … a variant; `variant`
   * names one of the `variants` that the job was submitted with.
   */
  async image(job, { signal, ...variant } = {}) {
    const answer = await this.#send('GET', `/jobs/${idOf(job)}/image${query(variant)}`, { signal });
    return this.#reached(answer.blob(), signal);
  }

  /** The URL of the image or of a variant, for `<img src>` where the service has no tokens. */
  imageURL(job, variant = {}) {
    return `${this.#base}/jobs/${idOf(job)}/image${query(variant)}`;
  }

  /** Stops what has not finished; a job that has stays as it is. */
  async cancel(job, { signal } = {}) {
    return this.#job(await this.#send('DELETE', `/jobs/${idOf(job)}`, { signal }));
  }

  /** Removes the job and its image. */
  async forget(job, { signal } = {}) {
    await this.#send('DELETE', `/jobs/${idOf(job)}?purge=true`, { signal, accepted: [204] });
  }

  /** Queues a job again that failed, was cancelled, or whose image is no longer kept. */
  async fetchAgain(job, { signal } = {}) {
    return this.#job(await this.#send('POST', `/jobs/${idOf(job)}/fetch`, { signal }));
  }

  /** Changes `priority` and `tags`, also of a job that runs. */
  async edit(job, changes, { signal } = {}) {
    return this.#job(await this.#send('PATCH', `/jobs/${idOf(job)}`, { body: changes, signal }));
  }

  async #submit(source, { idempotencyKey, signal, ...members }, keepsAnswer = false) {
    const body = typeof source === 'string' ? { url: source, ...members } : { ...source, ...members };
    const options = { body, idempotencyKey, signal, keepsAnswer, accepted: [202] };
    return this.#job(await this.#send('POST', '/jobs', options));
  }

  #job(answer) {
    return this.#json(answer, 'id', 'phase');
  }

  /** The object that was answered; one that lacks such members is another server's. */
  async #json(answer, ...members) {
    const value = parsed(await this.#reached(answer.text()));
    if (members.every((name) => value[name] !== undefined)) return value;
    throw new Refused(answer.status, {}, null, this.#base);
  }

  /** What `fetch` promised; what keeps it from that becomes `Unreachable`, unless it was the signal. */
  async #reached(promise, signal) {
    try {
      return await promise;
    } catch (error) {
      if (signal?.aborted || !(error instanceof TypeError)) throw error;
      throw new Unreachable(this.#base, error);
    }
  }

  /**
   * @param {boolean} keepsAnswer whether the signal leaves alone what was sent, and only keeps it from being sent
   *   again: a submission that is broken off may have made a job, whose id nobody would know
   */
  async #send(method, path, {
    body, content, type, headers = {}, idempotencyKey, signal, keepsAnswer = false, accepted = [200],
  } = {}) {
    const all = { ...this.#headers, ...headers };
    if (body !== undefined) {
      content = JSON.stringify(body);
      type = 'application/json';
    }
    if (type) all['Content-Type'] = type;
    // Sent again after a connection broke, the same key makes no second job.
    if (accepted[0] === 202) all['Idempotency-Key'] = idempotencyKey ?? unique();
    const deadline = Date.now() + this.#patience * 1000;
    for (;;) {
      signal?.throwIfAborted();
      // No cache between here and the service: a 304 is for this module, and is not to become an older 200.
      const options = { method, headers: all, body: content, cache: 'no-store' };
      if (!keepsAnswer) options.signal = signal;
      const answer = await this.#reached(fetch(this.#base + path, options), signal);
      if (accepted.includes(answer.status)) return answer;
      const after = Number(answer.headers.get('Retry-After') ?? NaN);
      const refused = new Refused(
        answer.status, parsed(await answer.text().catch(() => '')), Number.isNaN(after) ? null : after, this.#base);
      const isBusy = answer.status === 429 || answer.status === 503;
      if (!isBusy || refused.retryAfter === null || Date.now() + after * 1000 > deadline) throw refused;
      await pause(after, signal);
    }
  }
}

/**
 * Checks that a webhook message comes from the service, and gives its JSON: `type`, `timestamp` and `data`. Rejects with
 * `InvalidWebhook`. A message may arrive more than once: remember its `webhook-id`.
 *
 * @param {Uint8Array|ArrayBuffer|string} body the request's body as it arrived: JSON that was parsed and written again
 *   has another signature
 * @param {Headers|object} headers the request's header fields; upper and lower case are the same
 * @param {string|string[]} secrets a secret (`whsec_…`), or several while one replaces another: one has to match
 * @param {{tolerance?: number}} options `tolerance`, the seconds by which `webhook-timestamp` may differ from this
 *   machine's clock: 300 unless said otherwise
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
      'raw', decoded(secret.replace(/^whsec_/, '')), { name: 'HMAC', hash: 'SHA-256' }, false, ['verify']);
    for (const signature of signatures.split(' ').filter((one) => /^v1,[A-Za-z0-9+/]{43}=$/.test(one))) {
      // In constant time.
      if (await subtle.verify('HMAC', key, decoded(signature.slice(3)), signed)) isValid = true;
    }
  }
  if (!isValid) throw new InvalidWebhook('No signature of the message fits the secret.');
  return JSON.parse(new TextDecoder().decode(content));
}

/** The bytes that base64 stands for. */
const decoded = (base64) => Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
