// Exports jobs as CSV or JSON, and their images as a zip.

/**
 * A CSV cell. Spreadsheets run cells that start with these characters as formulas, and jobs contain text from others.
 * Such cells get a quote in front.
 */
const cell = (value) => {
  const text = String(value ?? '');
  const safe = /^[=+\-@\t\r\n]/.test(text) && typeof value !== 'number' ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replace(/"/g, '""')}"` : safe;
};

const exportColumns = {
  id: ({ id }) => id,
  phase: ({ job }) => job.phase,
  source: ({ job: { source } }) => source.url ?? source.local ?? 'sent',
  name: ({ name }) => name,
  origin: ({ host }) => host,
  tags: ({ job }) => job.tags.join(' '),
  priority: ({ job }) => job.priority,
  requests: ({ job }) => job.attempts,
  created_at: ({ job }) => job.created_at,
  finished_at: ({ job }) => job.finished_at,
  format: ({ job }) => job.image?.format,
  width: ({ job }) => job.image?.width,
  height: ({ job }) => job.image?.height,
  bytes: ({ job }) => job.image?.bytes,
  sha256: ({ job }) => job.image?.sha256,
  cache: ({ job }) => job.cache?.status,
  error: ({ job }) => job.error?.code,
  error_detail: ({ job }) => job.error?.detail,
};

/** Jobs as CSV (RFC 4180). */
function asCSV(entries) {
  const lines = [Object.keys(exportColumns), ...entries.map((entry) => Object.values(exportColumns).map((of) => of(entry)))];
  return lines.map((line) => `${line.map(cell).join(',')}\r\n`).join('');
}

function download(blob, name) {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(blob);
  link.download = `imagefetch-${name}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

const today = () => new Date().toISOString().slice(0, 10);
const exports = {
  csv: (entries) => download(new Blob([asCSV(entries)], { type: 'text/csv' }), `jobs-${today()}.csv`),
  json: (entries) => {
    const text = `${JSON.stringify(entries.map(({ job }) => job), null, 2)}\n`;
    download(new Blob([text], { type: 'application/json' }), `jobs-${today()}.json`);
  },
  zip: (entries) => packImages(entries),
};

// MARK: Zip

/** The table for CRC-32, as zip and gzip use it. */
const crcTable = Uint32Array.from({ length: 256 }, (_, byte) => {
  let rest = byte;
  for (let bit = 0; bit < 8; bit += 1) rest = rest & 1 ? (rest >>> 1) ^ 0xedb88320 : rest >>> 1;
  return rest;
});

function crc32(bytes) {
  let rest = -1;
  for (let i = 0; i < bytes.length; i += 1) rest = crcTable[(rest ^ bytes[i]) & 255] ^ (rest >>> 8);
  return ~rest >>> 0;
}

/** Encodes pairs of [number of bytes, value], lowest byte first. */
const packed = (...fields) => Uint8Array.from(fields.flatMap(([bytes, value]) => (
  Array.from({ length: bytes }, (_, i) => Math.floor(value / 2 ** (8 * i)) & 255))));

/** A zip file without compression, because images are compressed already (PKWARE's APPNOTE.TXT, 4.3). */
class Zip {
  /** Limits of the format without its extension for large files. */
  static limits = { images: 10_000, bytes: 2 ** 31 };

  constructor() {
    this.parts = [];
    this.directory = [];
    this.bytes = 0;
    this.names = new Set();
  }

  /** Returns a file name that is safe and unique, also on file systems that ignore case. */
  name(wanted, ending) {
    const safe = wanted.replace(/[\u0000-\u001f\u007f-\u009f<>:"/\\|?*]/g, '_').replace(/\.[a-z]{2,5}$/i, '');
    const stem = safe.replace(/^[.\s]+|[.\s]+$/g, '').slice(0, 100) || 'image';
    for (let n = 1; ; n += 1) {
      const name = `${stem}${n > 1 ? `-${n}` : ''}.${ending}`;
      if (this.names.has(name.toLowerCase())) continue;
      this.names.add(name.toLowerCase());
      return name;
    }
  }

  add(name, date, bytes) {
    const text = new TextEncoder().encode(name);
    const time = (date.getHours() << 11) | (date.getMinutes() << 5) | (date.getSeconds() >> 1);
    const day = ((date.getFullYear() - 1980) << 9) | ((date.getMonth() + 1) << 5) | date.getDate();
    // The fields that both headers share: version 2.0, name in UTF-8, stored, time, date, CRC, both sizes, length of
    // the name.
    const what = packed([2, 20], [2, 0x800], [2, 0], [2, time], [2, day],
      [4, crc32(bytes)], [4, bytes.length], [4, bytes.length], [2, text.length], [2, 0]);
    this.directory.push(packed([4, 0x02014b50], [2, 20]), what, packed([2, 0], [2, 0], [2, 0], [4, 0], [4, this.bytes]), text);
    const head = packed([4, 0x04034b50]);
    // A separate blob, which the browser may keep on disk.
    this.parts.push(head, what, text, new Blob([bytes]));
    this.bytes += head.length + what.length + text.length + bytes.length;
  }

  close() {
    const length = this.directory.reduce((sum, part) => sum + part.length, 0);
    const n = this.names.size;
    const end = packed([4, 0x06054b50], [2, 0], [2, 0], [2, n], [2, n], [4, length], [4, this.bytes], [2, 0]);
    return new Blob([...this.parts, ...this.directory, end], { type: 'application/zip' });
  }
}

/** Fetches the images one after the other and saves them as a zip. A dialog shows the progress. */
async function packImages(entries) {
  const wanted = entries.filter(({ job }) => job.phase === 'success' && job.image);
  const bytes = wanted.reduce((sum, { job }) => sum + job.image.bytes, 0);
  if (wanted.length === 0) return toast('None of these jobs has an image.');
  if (wanted.length > Zip.limits.images || bytes > Zip.limits.bytes) {
    return toast(`A zip has at most ${number.format(Zip.limits.images)} images and ${size(Zip.limits.bytes)}; these are ${number.format(wanted.length)} and ${size(bytes)}.`);
  }
  const stop = new AbortController();
  const dialog = $('zip');
  const stopped = () => stop.abort();
  dialog.addEventListener('close', stopped, { once: true });
  $('zip-progress').max = wanted.length;
  dialog.showModal();
  const zip = new Zip();
  let missing = 0;
  try {
    for (const [done, { name, job }] of wanted.entries()) {
      $('zip-progress').value = done;
      setText($('zip-text'), `${number.format(done)} of ${count(wanted.length, 'image')}`);
      try {
        const response = await request(imagePath(job), { signal: stop.signal });
        const image = new Uint8Array(await response.arrayBuffer());
        const [, format = job.image.format] = (response.headers.get('Content-Type') ?? '').match(/^image\/([a-z]+)/) ?? [];
        zip.add(zip.name(name, format === 'jpeg' ? 'jpg' : format), new Date(job.finished_at), image);
      } catch (problem) {
        // Jobs that were deleted meanwhile are skipped. If the service does not answer, the export ends.
        if (!(problem instanceof Problem) || problem.status === 0) throw problem;
        missing += 1;
      }
    }
    download(zip.close(), `images-${today()}.zip`);
    if (missing) toast(`${number.format(missing)} of ${count(wanted.length, 'image')} could not be fetched.`);
  } catch (problem) {
    if (problem instanceof Problem) toast(problem.message);
    else if (!stop.signal.aborted) throw problem;
  } finally {
    dialog.removeEventListener('close', stopped);
    dialog.close();
  }
  return undefined;
}
