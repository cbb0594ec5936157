// The texts for people: phases, sizes, durations, and advice about failures.

const phases = ['queued', 'loading', 'success', 'failure', 'cancelled'];

const phaseWords = {
  queued: 'Queued', loading: 'Loading', success: 'Done', failure: 'Failed', cancelled: 'Cancelled',
};

// Phases differ by sign as well as by color. The sign of queued is an empty ring.
const phaseSigns = { queued: '', loading: '↓', success: '✓', failure: '!', cancelled: '–' };

const formatWord = (format) => (format === 'webp' ? 'WebP' : format.toUpperCase());

const priorities = ['very_low', 'low', 'normal', 'high', 'very_high'];

const priorityWord = (priority) => priority.replace('_', ' ');

const cacheWords = {
  hit: 'from the cache', miss: 'from the origin', revalidated: 'from the cache, revalidated',
  stale: 'from the cache, stale', bypass: 'from the origin, bypassing the cache',
};

/** Advice about failures by `error.code`, from the service. */
const advice = new Map();

async function loadAdvice() {
  const options = { headers: { Accept: 'application/json' }, signal: AbortSignal.timeout(5000) };
  const response = await request('problems/', options);
  for (const problem of (await response.json()).jobs) advice.set(problem.code, problem.advice);
}

const faultsOfImages = new Set(['no_data', 'unsupported_format', 'decode_failed', 'integrity_mismatch']);

/** Whether the job failed because of its uploaded bytes, so that another attempt would fail too. */
const isPermanent = (job) => job.source.captured !== undefined && faultsOfImages.has(job.error?.code);

function remedy({ error: { code, retryable } }) {
  const words = advice.get(code) ?? '';
  return retryable ? `${words} It may work later.` : words;
}

/** A date and a time. */
const moment = (text) => new Date(text).toLocaleString('en-GB', { dateStyle: 'medium', timeStyle: 'medium' });

/** A time of day. */
const clockTime = (text) => new Date(text).toLocaleTimeString('en-GB');

/** Why a job does not run: a short text and a sentence. From the last response of the service. */
function waiting({ attempts, waiting_for: reason, last_error: error }) {
  const turn = attempts ? 'Waiting for the next attempt' : 'Waiting for its turn';
  if (!reason) return [turn, ''];
  const until = reason.until ? ` until ${clockTime(reason.until)}` : '';
  switch (reason.reason) {
    case 'retry':
      return [reason.until ? `Next attempt at ${clockTime(reason.until)}` : turn, error ? error.detail : ''];
    case 'storage': return ['Waiting for disk space', 'The disk of the service is full: no job starts until there is space.'];
    case 'origin_paused': return ['Its origin is paused', `Several requests failed, so it gets none${until}.`];
    case 'origin_rate': return ['Waiting for its origin', `The limit of requests per second is reached${until}.`];
    case 'origin_limit': return ['Waiting for its origin', 'The limit of transfers per origin is reached.'];
    case 'worker':
      return [turn, reason.ahead === null ? '' : `About ${count(reason.ahead, 'job')} ahead of it.`];
    case 'render': return ['Rendering its variants', 'The image is stored.'];
    case 'deliver': return ['Delivering', 'The image is stored. Few deliveries per destination run at the same time.'];
    default: return [turn, ''];
  }
}

const withoutPort = (host) => host.replace(/:[0-9]+$/, '');

/** Parses a search text: words, and the terms `batch:`, `host:` and `code:` with a value. */
function parseSearch(text) {
  const parsed = { words: [], terms: {} };
  for (const word of text.toLowerCase().split(/\s+/).filter(Boolean)) {
    const [, name, value] = word.match(/^(batch|host|code):(.*)$/) ?? [];
    if (value) parsed.terms[name] = value;
    else if (!name) parsed.words.push(word);
  }
  return parsed;
}

const number = new Intl.NumberFormat('en');

function size(bytes) {
  if (bytes < 1000) return `${bytes} B`;
  const units = ['kB', 'MB', 'GB', 'TB'];
  let value = bytes / 1000;
  let unit = 0;
  while (value >= 999.5 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${value < 9.95 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

function span(milliseconds) {
  if (milliseconds < 1) return `${milliseconds.toFixed(2)} ms`;
  if (milliseconds < 1000) return `${Math.round(milliseconds)} ms`;
  if (milliseconds < 100_000) return `${(milliseconds / 1000).toFixed(1)} s`;
  return `${Math.round(milliseconds / 60_000)} min`;
}

/** A duration in one unit, as "5 min ago". */
function ago(milliseconds) {
  const units = [[86_400_000, 'd'], [3_600_000, 'h'], [60_000, 'min'], [1000, 's']];
  const [length, unit] = units.find(([one]) => milliseconds >= one) ?? units.at(-1);
  return `${Math.max(0, Math.floor(milliseconds / length))} ${unit} ago`;
}

const count = (n, one, many = `${one}s`) => `${number.format(n)} ${n === 1 ? one : many}`;

/** The number, followed by + if there may be more. */
const atLeast = (n, mayBeMore) => number.format(n) + (mayBeMore ? '+' : '');

// Cuts a text from outside, so that it can't fill the page.
const cut = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

/** Parses an http or https URL; null for everything else. */
function webURL(text) {
  try {
    const url = new URL(text);
    return url.protocol === 'http:' || url.protocol === 'https:' ? url : null;
  } catch {
    return null;
  }
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** The name of a job and its host. */
function source(job) {
  const { url, local, captured } = job.source;
  if (url !== undefined) {
    const parsed = webURL(url);
    if (!parsed) return { name: url, host: '' };
    const last = parsed.pathname.split('/').filter(Boolean).pop();
    return { name: last ? decoded(last) : parsed.host, host: parsed.host };
  }
  if (local !== undefined) return { name: local.split('/').pop(), host: 'local image' };
  return { name: `Sent image, ${size(captured.bytes)}`, host: 'sent to this service' };
}

/** The width and height after rotation: EXIF orientations 5 to 8 swap them. */
function upright(image) {
  return image.orientation >= 5 ? [image.height, image.width] : [image.width, image.height];
}
