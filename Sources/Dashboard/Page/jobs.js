// The jobs that the page knows: one truth, from the list and from the events; of two states the newer version wins.

/** More than these are not held: of a long queue the newest are shown, and all that run or have ended. */
const maxHeld = 4000;
/** So many are asked for at the start, in pages. */
const firstListed = 1000;
const pageSize = 500;

const isUnfinished = (job) => job.phase === 'queued' || job.phase === 'loading';

class Jobs {
  constructor() {
    this.byID = new Map();
    /** Newest first: ids begin with the time. */
    this.order = [];
    this.counts = Object.fromEntries(phases.map((phase) => [phase, 0]));
    this.throughput = new Throughput();
    /** What this page sent was called something. */
    this.names = new Map();
    /** Whether the service has, or had, more than is held. */
    this.isFull = false;
    /** Where the list goes on; null: nowhere. */
    this.cursor = null;
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
    if (job.version <= old.version) return;
    entry.job = job;
    entry.text = null;
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
    const entry = { id: job.id, job, name: this.names.get(job.id) ?? name, host, text: null };
    this.byID.set(job.id, entry);
    this.order.splice(this.place(job.id), 0, job.id);
    this.counts[job.phase] += 1;
    this.throughput.note(job, null);
    this.onChange(entry, true, null);
  }

  /** Makes room if it must: the oldest queued job goes, or else the oldest that has ended. */
  hasRoom(job) {
    if (this.order.length < maxHeld) return true;
    this.isFull = true;
    const phase = (id) => this.byID.get(id).job.phase;
    const victim = this.order.findLast((id) => phase(id) === 'queued')
      ?? this.order.findLast((id) => phase(id) !== 'loading');
    if (victim === undefined) return false;
    // What waits behind it, in a queue or among the ended, is worth no more.
    const isBetter = job.phase === 'loading' || (job.phase !== 'queued' && phase(victim) === 'queued');
    if (!isBetter && job.id < victim) return false;
    this.drop(victim);
    return true;
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
    let low = 0;
    let high = this.order.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.order[middle] > id) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** Reads the list from its start, and forgets what it should have named and did not. */
  async load() {
    const before = new Set(this.order);
    const listed = new Set();
    let last = '';
    this.cursor = null;
    do {
      const page = await this.page(this.cursor);
      for (const job of page.jobs) {
        listed.add(job.id);
        last = job.id;
      }
      await breath();
    } while (this.cursor && listed.size < firstListed);
    if (!this.cursor) last = '';
    for (const id of before) if (id >= last && !listed.has(id)) this.drop(id);
  }

  /** Goes on where the list ended. */
  async older() {
    if (this.cursor) await this.page(this.cursor);
  }

  async page(cursor) {
    const query = new URLSearchParams({ limit: pageSize });
    if (cursor) query.set('cursor', cursor);
    const page = await (await ask(`jobs?${query}`, { cache: 'no-store' })).json();
    this.cursor = page.next_cursor;
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

/** How many jobs finished, by second, over the last five minutes. */
class Throughput {
  static seconds = 300;

  constructor() {
    this.bySecond = new Map();
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
