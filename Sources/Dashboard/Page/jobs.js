// The jobs that the page knows: one truth, from the list and from the events; of two states the newer version wins.

/** More than these are not held: of a long queue the newest are shown, and all that run or have ended. */
const maxHeld = 4000;
/** So many are asked for at the start, in pages. */
const firstListed = 1000;
const pageSize = 500;

const isUnfinished = (job) => job.phase === 'queued' || job.phase === 'loading';

/** Where an id is in a list of them, newest first, or belongs. */
function placeIn(ids, id) {
  let low = 0;
  let high = ids.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ids[middle] > id) low = middle + 1;
    else high = middle;
  }
  return low;
}

class Jobs {
  constructor() {
    this.byID = new Map();
    /** Newest first: ids begin with the time. */
    this.order = [];
    this.counts = Object.fromEntries(phases.map((phase) => [phase, 0]));
    this.throughput = new Throughput();
    /** What this page sent was called something. */
    this.names = new Map();
    /** The phases that are looked for; none stands for all. */
    this.wanted = [];
    /** Where the lists that were begun go on, by the phases they are of; null: nowhere. */
    this.cursors = new Map([['', null]]);
    /** Phases of which a job found no room. */
    this.cramped = new Set();
    /** Called with an entry and whether it is new, has another phase, or is gone. */
    this.onChange = () => {};
  }

  get(id) {
    return this.byID.get(id);
  }

  /** What this page calls a job that it sent. */
  name(id, name) {
    this.names.set(id, name);
    const entry = this.byID.get(id);
    if (!entry) return;
    entry.name = name;
    entry.text = null;
    this.onChange(entry, false);
  }

  /** Takes in a job as the service told it. */
  take(job) {
    const known = this.byID.get(job.id);
    if (known) this.update(known, job);
    else if (this.hasRoom(job)) this.add(job);
    else this.throughput.note(job, null);
  }

  update(entry, job) {
    const old = entry.job;
    if (job.version <= old.version) {
      // What it waits for changes within a version.
      if (job.version < old.version || job.phase !== 'queued') return;
      old.waiting_for = job.waiting_for;
      this.onChange(entry, false);
      return;
    }
    entry.job = job;
    entry.text = null;
    entry.pace.note(job);
    noteTry(entry);
    if (old.phase !== job.phase) {
      this.counts[old.phase] -= 1;
      this.counts[job.phase] += 1;
      entry.isGone = false;
    }
    this.throughput.note(job, old.finished_at);
    this.onChange(entry, old.phase !== job.phase, old.phase);
  }

  add(job) {
    const { name, host } = source(job);
    const entry = { id: job.id, pace: new Pace(), job, name: this.names.get(job.id) ?? name, host, text: null, tries: [] };
    noteTry(entry);
    this.byID.set(job.id, entry);
    this.order.splice(this.place(job.id), 0, job.id);
    this.counts[job.phase] += 1;
    this.throughput.note(job, null);
    this.onChange(entry, true, null);
  }

  /** Makes room if it must: the oldest of the jobs that are worth least goes. */
  hasRoom(job) {
    if (this.order.length < maxHeld) return true;
    const worth = (id) => this.worth(this.byID.get(id).job);
    const oldest = (least) => this.order.findLast((id) => worth(id) === least);
    const victim = oldest(0) ?? oldest(1) ?? oldest(2);
    // What waits behind it, in a queue or among the ended, is worth no more.
    if (victim === undefined || (this.worth(job) <= worth(victim) && job.id < victim)) {
      this.cramped.add(job.phase);
      return false;
    }
    this.cramped.add(this.byID.get(victim).job.phase);
    this.drop(victim);
    return true;
  }

  /** What runs is never let go; then comes what is looked for, and what has ended before what waits. */
  worth({ phase }) {
    if (phase === 'loading') return 3;
    if (this.wanted.includes(phase)) return 2;
    return phase === 'queued' ? 0 : 1;
  }

  /** Whether the service may have jobs in the phase that are not held. */
  mayMiss(phase) {
    if (this.cramped.has(phase)) return true;
    const hasEnded = ([of, cursor]) => cursor === null && (of === '' || of.split(' ').includes(phase));
    return ![...this.cursors].some(hasEnded);
  }

  /** Where the list of what is looked for goes on; null: nowhere. */
  get cursor() {
    return this.cursors.get(this.wanted.join(' ')) ?? null;
  }

  /** Whether it goes on, and there is room for it. */
  get goesOn() {
    const of = this.wanted.length ? this.wanted : phases;
    return this.cursor !== null && of.reduce((all, phase) => all + this.counts[phase], 0) < maxHeld;
  }

  /** The job is gone: purged, expired, or never ours. */
  drop(id) {
    const entry = this.byID.get(id);
    if (!entry) return;
    this.byID.delete(id);
    this.names.delete(id);
    this.order.splice(this.place(id), 1);
    this.counts[entry.job.phase] -= 1;
    this.onChange(entry, true, entry.job.phase);
  }

  /** Where the id is in the order, or belongs. */
  place(id) {
    return placeIn(this.order, id);
  }

  /** Reads the list from its start, and forgets what it should have named and did not. */
  async load() {
    const before = new Set(this.order);
    const listed = new Set();
    let last = '';
    let cursor = null;
    this.cramped.clear();
    do {
      const page = await this.page([], cursor);
      for (const job of page.jobs) {
        listed.add(job.id);
        last = job.id;
      }
      cursor = page.next_cursor;
      await breath();
    } while (cursor && listed.size < firstListed);
    this.cursors = new Map([['', cursor]]);
    this.throughput.since = cursor ? clock.now() : 0;
    if (!cursor) last = '';
    for (const id of before) if (id >= last && !listed.has(id)) this.drop(id);
  }

  /** Begins the list of what is looked for, where not all of it may be held. */
  async find() {
    if (this.cursors.has(this.wanted.join(' ')) || !this.wanted.some((phase) => this.mayMiss(phase))) return;
    await this.goOn(null);
  }

  /** Goes on where the list of what is looked for ended. */
  async older() {
    if (this.cursor) await this.goOn(this.cursor);
  }

  async goOn(from) {
    const { wanted, cursors } = this;
    const { next_cursor: cursor } = await this.page(wanted, from);
    cursors.set(wanted.join(' '), cursor);
  }

  async page(wanted, cursor) {
    const query = new URLSearchParams({ limit: pageSize });
    for (const phase of wanted) query.append('phase', phase);
    if (cursor) query.set('cursor', cursor);
    const page = await (await ask(`jobs?${query}`, { cache: 'no-store' })).json();
    for (const job of page.jobs) this.take(job);
    return page;
  }

  /** Drops what the service no longer keeps. */
  expire() {
    const now = new Date(clock.now()).toISOString();
    for (const id of [...this.order]) {
      const { expires_at: end } = this.byID.get(id).job;
      if (end && end < now) this.drop(id);
    }
  }

  /** Per host what its jobs are at, the busiest first. */
  origins() {
    const hosts = new Map();
    for (const { host, job } of this.byID.values()) {
      if (job.source.url === undefined) continue;
      let of = hosts.get(host);
      if (!of) hosts.set(host, of = { host, all: 0, ...Object.fromEntries(phases.map((p) => [p, 0])) });
      of.all += 1;
      of[job.phase] += 1;
    }
    const busy = (of) => of.loading * 1e6 + of.queued * 1e3 + of.all;
    return [...hosts.values()].sort((a, b) => busy(b) - busy(a));
  }

  /** What a search looks in; made once a version. */
  textOf(entry) {
    const { job } = entry;
    entry.text ??= [
      entry.name, job.source.url, job.source.local, job.id, job.error?.code, job.error?.title,
      job.image?.format, job.priority, ...job.tags.map((tag) => `#${tag}`),
    ].filter(Boolean).join('\n').toLowerCase();
    return entry.text;
  }
}

/** Keeps what went wrong with each try that is told of: the service tells the last one alone. */
function noteTry({ job: { attempts, last_error: last, error, finished_at: end }, tries }) {
  const failed = error ?? last;
  if (!failed || tries.at(-1)?.attempts === attempts) return;
  // Fetched again, a job counts its requests anew.
  if (attempts < (tries.at(-1)?.attempts ?? 0)) tries.length = 0;
  tries.push({ attempts, at: end ?? new Date(clock.now()).toISOString(), detail: failed.detail });
}

/** How fast a job's bytes come: over the last few seconds, as nobody reads a number that jumps. */
class Pace {
  constructor() {
    this.samples = [];
  }

  note({ phase, progress }) {
    const { completed } = progress;
    const now = performance.now();
    // Another transfer begins anew.
    if (phase !== 'loading' || completed < (this.samples.at(-1)?.completed ?? 0)) this.samples = [];
    this.samples.push({ now, completed });
    while (this.samples.length > 2 && now - this.samples[0].now > 5000) this.samples.shift();
  }

  /** Bytes a second; 0 where that is not known. */
  get rate() {
    const [first, last] = [this.samples[0], this.samples.at(-1)];
    const time = last ? last.now - first.now : 0;
    return time > 500 ? (1000 * (last.completed - first.completed)) / time : 0;
  }
}

/** How many jobs finished, by second, over the last five minutes. */
class Throughput {
  static seconds = 300;

  constructor() {
    this.bySecond = new Map();
    /** What ended earlier may not all be known. */
    this.since = 0;
  }

  /** Whether all is known that ended in the last seconds. */
  isWhole(seconds) {
    return this.since < clock.now() - seconds * 1000;
  }

  /** @param known the end of the job that was counted before. */
  note(job, known) {
    if (!job.finished_at || job.finished_at === known || job.phase === 'cancelled') return;
    const second = Math.floor(Date.parse(job.finished_at) / 1000);
    if (second < clock.now() / 1000 - Throughput.seconds) return;
    const of = this.bySecond.get(second) ?? { success: 0, failure: 0 };
    of[job.phase] = (of[job.phase] ?? 0) + 1;
    this.bySecond.set(second, of);
  }

  /** The sums of so many equal parts of the time, oldest first. */
  parts(count) {
    const now = Math.floor(clock.now() / 1000);
    const width = Throughput.seconds / count;
    // Parts begin at whole multiples, so that a bar stays what it is until it leaves.
    const start = (Math.floor(now / width) - count + 1) * width;
    const parts = Array.from({ length: count }, () => ({ success: 0, failure: 0 }));
    for (const [second, of] of this.bySecond) {
      if (second < now - Throughput.seconds) this.bySecond.delete(second);
      const part = parts[Math.floor((second - start) / width)];
      if (!part) continue;
      part.success += of.success;
      part.failure += of.failure;
    }
    return parts;
  }

  /** Of the last seconds. */
  sum(seconds) {
    const now = Math.floor(clock.now() / 1000);
    const sum = { success: 0, failure: 0 };
    for (const [second, of] of this.bySecond) {
      if (second <= now - seconds) continue;
      sum.success += of.success;
      sum.failure += of.failure;
    }
    return sum;
  }
}
