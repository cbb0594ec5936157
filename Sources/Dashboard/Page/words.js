// What people read: phases, sizes, durations, and who can mend what.

const phases = ['queued', 'loading', 'success', 'failure', 'cancelled'];

const phaseWords = {
  queued: 'Queued', loading: 'Loading', success: 'Done', failure: 'Failed', cancelled: 'Cancelled',
};

// Phases differ by sign as well as by colour; the sign of what waits is a ring.
const phaseSigns = { queued: '', loading: '↓', success: '✓', failure: '!', cancelled: '–' };

const formatWord = (format) => (format === 'webp' ? 'WebP' : format.toUpperCase());

const priorities = ['very_low', 'low', 'normal', 'high', 'very_high'];

const priorityWord = (priority) => priority.replace('_', ' ');

const cacheWords = {
  hit: 'from the cache', miss: 'from the origin', revalidated: 'from the cache, confirmed by the origin',
  stale: 'from the cache, stale', bypass: 'from the origin, past the cache',
};

// Who can mend a failure, by the error's code.
const remedies = {
  blocked_address: 'Whoever runs this service can allow it: fetch.allow_networks, allow_hosts, allow_ports.',
  dns_failure: 'Check the name in the URL; or the origin’s name servers are at fault.',
  connect_failure: 'The origin is down or refuses connections: its operator can mend it.',
  tls_failure: 'The origin’s certificate is at fault: its operator can mend it.',
  timeout: 'The origin is slow, or the image too large for the time allowed.',
  stalled: 'The origin or the network to it is at fault.',
  too_many_redirects: 'The origin is at fault; its final URL may work.',
  origin_status: 'The origin says so: check the URL, or ask its operator.',
  no_data: 'The origin is at fault.',
  too_large: 'If it is the image, the operator can allow more: fetch.max_bytes.',
  too_many_pixels: 'Whoever runs this service can allow more: decode.max_pixels and its neighbours.',
  unsupported_format: 'Give a JPEG, PNG, WebP, GIF, AVIF, JPEG XL or HEIC image.',
  truncated: 'The origin or the network to it is at fault.',
  decode_failed: 'The file is damaged where it comes from.',
  decoder_crashed: 'The file is broken in a way that its decoder did not survive, or meant as an attack.',
  integrity_mismatch: 'The file was changed, or the digest in the job is wrong.',
  not_cached: 'Submit it without the cache mode only-if-cached.',
  local_not_found: 'Check the name, or have the file put there.',
  delivery_failure: 'The image is there. Fetch again to deliver it.',
  storage_full: 'Whoever runs this service can make room.',
  internal: 'Whoever runs this service finds more in its log.',
};

// The same for images that were sent here: no origin is at fault, and the bytes stay what they are.
const sentRemedies = {
  no_data: 'The file is empty: send another.',
  unsupported_format: 'Send a JPEG, PNG, WebP, GIF, AVIF, JPEG XL or HEIC image.',
  truncated: 'The file is not whole: send it again from where it is.',
  decode_failed: 'The file is damaged: send a sound copy.',
  integrity_mismatch: 'The file, or the digest in the job, is not the right one.',
};

/** Whether the job failed for what its bytes are, and they can't become others. */
const isLasting = (job) => job.source.captured !== undefined && job.error?.code in sentRemedies;

function remedy(job) {
  const { code, retryable } = job.error;
  if (isLasting(job)) return sentRemedies[code];
  const words = remedies[code] ?? '';
  return retryable ? `${words} It may work later.` : words;
}

/** A date and a time. */
const moment = (text) => new Date(text).toLocaleString('en-GB', { dateStyle: 'medium', timeStyle: 'medium' });

/** A moment of today by the clock. */
const clockTime = (text) => new Date(text).toLocaleTimeString('en-GB');

/** Why a queued job does not run: a short word and a sentence, as the service told it last. */
function waiting({ attempts, waiting_for: reason, last_error: error }) {
  const turn = attempts ? 'Waits for its next try' : 'Waits for its turn';
  if (!reason) return [turn, ''];
  const until = reason.until ? ` until ${clockTime(reason.until)}` : '';
  switch (reason.reason) {
    case 'retry':
      return [reason.until ? `Tried again at ${clockTime(reason.until)}` : turn, error ? error.detail : ''];
    case 'storage': return ['Waits for disk space', 'The disk of the service is full: no job begins until there is room.'];
    case 'origin_paused': return ['Its origin is paused', `Nobody answered there, so it is left alone${until}.`];
    case 'origin_rate': return ['Waits for its origin', `It gets so many requests a second and no more${until}.`];
    case 'origin_limit': return ['Waits for its origin', 'It has as many transfers at once as one origin gets.'];
    case 'worker':
      return [turn, reason.ahead === null ? '' : `About ${count(reason.ahead, 'job')} before it.`];
    case 'render': return ['Makes its variants', 'The image is stored.'];
    case 'deliver': return ['Delivers', 'The image is stored. A destination takes few deliveries at once.'];
    default: return [turn, ''];
  }
}

const withoutPort = (host) => host.replace(/:[0-9]+$/, '');

/** Parses a search: `batch:`, `host:` and `code:`, each with a value, and words. */
function searched(text) {
  const sought = { words: [], terms: {} };
  for (const word of text.toLowerCase().split(/\s+/).filter(Boolean)) {
    const [, name, value] = word.match(/^(batch|host|code):(.*)$/) ?? [];
    if (value) sought.terms[name] = value;
    else if (!name) sought.words.push(word);
  }
  return sought;
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

/** How long ago something was, in one unit. */
function ago(milliseconds) {
  const units = [[86_400_000, 'd'], [3_600_000, 'h'], [60_000, 'min'], [1000, 's']];
  const [length, unit] = units.find(([one]) => milliseconds >= one) ?? units.at(-1);
  return `${Math.max(0, Math.floor(milliseconds / length))} ${unit} ago`;
}

const count = (n, one, many = `${one}s`) => `${number.format(n)} ${n === 1 ? one : many}`;

/** A number that may be too small says so. */
const atLeast = (n, mayBeMore) => number.format(n) + (mayBeMore ? '+' : '');

// Text of strangers, cut before it can fill the page.
const cut = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

/** The URL, if it is one that may become a link or a submission: http or https, nothing else. */
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

/** What a job is called and where it comes from. */
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

/** The upright picture's size: EXIF's orientations from 5 on lie on their side. */
function upright(image) {
  return image.orientation >= 5 ? [image.height, image.width] : [image.width, image.height];
}
