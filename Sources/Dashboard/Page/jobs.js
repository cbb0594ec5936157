// The jobs that the page knows, from lists and from events. Of two states of a job the newer version wins.

/**
 * The maximum number of jobs in memory. If the service has more, finished and running ones and the newest queued ones
 * are kept.
 */
const maxJobs = 4000;
/** The number of jobs to load at the start. */
const initialJobs = 1000;
const pageSize = 500;
/** The maximum number of empty pages to read in a row. */
const maxEmptyPages = 20;

const isUnfinished = (job) => job.phase === 'queued' || job.phase === 'loading';

/** A query for jobs: by phases and by a filter. */
class List {
  /** @param terms the filter's `batch`, `host` and `code`, if set. Values that are still being typed are ignored. */
  constructor(wanted, { batch, host, code } = {}) {
    const isCode = advice.size ? advice.has(code) : /^[a-z_]+$/.test(code);
    const terms = {
      batch: /^[0-9a-f-]{36}$/.test(batch) && batch, host: host && withoutPort(host), code: isCode && code,
    };
    this.query = new URLSearchParams(wanted.map((phase) => ['phase', phase]));
    for (const [name, value] of Object.entries(terms)) if (value) this.query.set(name, value);
    this.phases = wanted;
    this.isFiltered = Object.values(terms).some(Boolean);
    /** The cursor of the next page; null: the query was read to its end. */
    this.cursor = null;
  }

  get name() {
    return this.query.toString();
  }

  /** Whether all jobs in the phase have been read. */
  covers(phase) {
    return this.cursor === null && !this.isFiltered && (this.phases.length === 0 || this.phases.includes(phase));
  }
}

/** The index of an id in a list of ids, newest first, or where it would be inserted. */
function indexIn(ids, id) {
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
    /** Ids, newest first: they begin with the time. */
    this.order = [];
    this.counts = Object.fromEntries(phases.map((phase) => [phase, 0]));
    this.throughput = new Throughput();
    /** Names of the files that this page uploaded, by job. */
    this.names = new Map();
    /** The filter: phases (empty: all), words, and the terms that the service can filter by. */
    this.wanted = [];
    this.parsedSearch = { words: [], terms: {} };
    /** The queries that were started, by name. */
    this.lists = new Map([['', new List([])]]);
    /** Phases with jobs that were removed from memory. */
    this.evictedPhases = new Set();
    /** Phases in which the service has more jobs than the page, and the number of polls in a row that showed it. */
    this.behind = new Set();
    this.timesBehind = new Map();
    /** The last query for missing jobs. */
    this.caughtUp = null;
    this.setFilter([], this.parsedSearch);
    /** Called with an entry, whether it is new, gone or in another phase, and its former phase. */
    this.onChange = () => {};
  }

  get(id) {
    return this.byID.get(id);
  }

  /** Sets the name of a job that this page uploaded. */
  name(id, name) {
    this.names.set(id, name);
    const entry = this.byID.get(id);
    if (!entry) return;
    entry.name = name;
    entry.text = null;
    this.onChange(entry, false);
  }

  /** Adds or updates a job. */
  merge(job) {
    const known = this.byID.get(job.id);
    if (known) this.update(known, job);
    else if (this.makeRoom(job)) this.add(job);
    else this.throughput.record(job, null);
  }

  update(entry, job) {
    const old = entry.job;
    if (job.version <= old.version) {
      // `waiting_for` changes without a new version.
      if (job.version < old.version || job.phase !== 'queued') return;
      old.waiting_for = job.waiting_for;
      this.onChange(entry, false);
      return;
    }
    entry.job = job;
    entry.text = null;
    entry.pace.record(job);
    recordAttempt(entry);
    if (old.phase !== job.phase) {
      this.counts[old.phase] -= 1;
      this.counts[job.phase] += 1;
      entry.isGone = false;
    }
    this.throughput.record(job, old.finished_at);
    this.onChange(entry, old.phase !== job.phase, old.phase);
  }

  add(job) {
    const { name, host } = source(job);
    const entry = { id: job.id, pace: new Pace(), job, name: this.names.get(job.id) ?? name, host, text: null, tries: [] };
    recordAttempt(entry);
    this.byID.set(job.id, entry);
    this.order.splice(this.indexOf(job.id), 0, job.id);
    this.counts[job.phase] += 1;
    this.throughput.record(job, null);
    this.onChange(entry, true, null);
  }

  /** Returns whether the job can be added. If the memory is full, removes the oldest of the least important jobs. */
  makeRoom(job) {
    if (this.order.length < maxJobs) return true;
    const importance = (id) => this.importance(this.byID.get(id));
    const oldest = (least) => this.order.findLast((id) => importance(id) === least);
    const victim = oldest(0) ?? oldest(1) ?? oldest(2);
    // Jobs of the same importance that are older than the oldest one in memory are not added.
    const importanceOfNew = this.importance({ job, ...source(job) });
    if (victim === undefined || (importanceOfNew <= importance(victim) && job.id < victim)) {
      this.evictedPhases.add(job.phase);
      return false;
    }
    this.evictedPhases.add(this.byID.get(victim).job.phase);
    this.remove(victim);
    return true;
  }

  /**
   * The importance of a job. Running jobs are never removed. Then come jobs that match the filter, then finished jobs,
   * then queued ones.
   */
  importance(entry) {
    const { phase } = entry.job;
    if (phase === 'loading') return 3;
    if (this.list.name !== '' && this.isOfList(entry)) return 2;
    return phase === 'queued' ? 0 : 1;
  }

  /** Whether the service may have jobs in the phase that the page does not have. */
  mayMiss(phase) {
    return this.behind.has(phase) || !this.isListed(phase);
  }

  /** Whether all jobs in the phase have been read and none was removed from memory. */
  isListed(phase) {
    return !this.evictedPhases.has(phase) && [...this.lists.values()].some((list) => list.covers(phase));
  }

  /**
   * Compares the service's figures with the jobs on the page. No event reports the queued lines of a batch, so jobs may
   * be missing.
   * @param figures the number of jobs by phase.
   * @param areCurrent whether the figures are current. Otherwise they are some seconds old and may be too high once.
   */
  compare(figures, areCurrent) {
    const { success, failure } = this.throughput.sum(2);
    // A job that changed its phase in the meantime is not missing.
    const slack = areCurrent ? 0 : success + failure;
    for (const [phase, figure] of Object.entries(figures)) {
      const isMore = figure > this.counts[phase] + slack && this.isListed(phase);
      const times = isMore ? (this.timesBehind.get(phase) ?? 0) + 1 : 0;
      this.timesBehind.set(phase, times);
      if (times === 0) this.behind.delete(phase);
      else if (areCurrent || times > 1) this.behind.add(phase);
    }
  }

  /** Sets the filter. */
  setFilter(wanted, parsedSearch) {
    [this.wanted, this.parsedSearch] = [wanted, parsedSearch];
    const list = new List(wanted, parsedSearch.terms);
    this.list = this.lists.get(list.name) ?? list;
  }

  /** Whether the job passes the part of the filter that the service applies. */
  isOfList({ job, host }) {
    if (this.wanted.length && !this.wanted.includes(job.phase)) return false;
    const { batch, host: wantedHost, code } = this.parsedSearch.terms;
    if (batch && !job.batch?.id.startsWith(batch)) return false;
    if (wantedHost && host !== wantedHost && withoutPort(host) !== wantedHost) return false;
    return !code || Boolean(job.error?.code.startsWith(code));
  }

  /** Whether the job passes the filter. */
  matches(entry) {
    if (!this.isOfList(entry)) return false;
    const { words } = this.parsedSearch;
    if (!words.length) return true;
    const text = this.textOf(entry);
    return words.every((word) => text.includes(word));
  }

  /** The query with a next page; null if everything that matches the filter has been read. */
  get next() {
    if (this.list.cursor) return this.list;
    return this.incompletePhases.length && this.caughtUp?.cursor ? this.caughtUp : null;
  }

  /** The phases that the filter includes and that miss jobs. */
  get incompletePhases() {
    return phases.filter((phase) => this.behind.has(phase) && (!this.wanted.length || this.wanted.includes(phase)));
  }

  /** Whether there is a next page, and memory for it. */
  get hasMore() {
    const of = this.wanted.length ? this.wanted : phases;
    return this.next !== null && of.reduce((all, phase) => all + this.counts[phase], 0) < maxJobs;
  }

  /** Removes a job that was purged, has expired, or is not visible to the token. */
  remove(id) {
    const entry = this.byID.get(id);
    if (!entry) return;
    this.byID.delete(id);
    this.names.delete(id);
    this.order.splice(this.indexOf(id), 1);
    this.counts[entry.job.phase] -= 1;
    this.onChange(entry, true, entry.job.phase);
  }

  /** The index of the id in the order, or where it would be inserted. */
  indexOf(id) {
    return indexIn(this.order, id);
  }

  /** Reads the list from its start. Removes jobs that should have been in it but were not. */
  async load() {
    const before = new Set(this.order);
    const listed = new Set();
    let last = '';
    let cursor = null;
    this.evictedPhases.clear();
    do {
      const page = await this.page(new URLSearchParams(), cursor);
      for (const job of page.jobs) {
        listed.add(job.id);
        last = job.id;
      }
      cursor = page.next_cursor;
      await yieldToBrowser();
    } while (cursor && listed.size < initialJobs);
    const all = new List([]);
    all.cursor = cursor;
    this.lists = new Map([['', all]]);
    this.behind.clear();
    this.timesBehind.clear();
    this.caughtUp = null;
    this.setFilter(this.wanted, this.parsedSearch);
    this.throughput.since = cursor ? clock.now() : 0;
    if (!cursor) last = '';
    for (const id of before) if (id >= last && !listed.has(id)) this.remove(id);
  }

  /** Starts the query for the filter, if the page may not have all of its jobs. */
  async find() {
    const { list } = this;
    const of = this.wanted.length ? this.wanted : phases;
    if (this.lists.has(list.name) || !of.some((phase) => this.mayMiss(phase))) return;
    await this.readPages(list, null);
  }

  /** Reads the next page. */
  async older() {
    const { next } = this;
    if (next) await this.readPages(next, next.cursor);
  }

  /** Reads the newest of the missing jobs. */
  async catchUp() {
    const list = new List(this.incompletePhases);
    await this.readPages(list, null);
    // Queries that had been read to their end may be incomplete now.
    for (const [name, { cursor, phases: of }] of this.lists) {
      if (cursor === null && name !== '' && of.some((phase) => this.behind.has(phase))) this.lists.delete(name);
    }
    this.caughtUp = list;
  }

  /** Reads pages until one has a job. Pages of a filtered list may be empty. */
  async readPages(list, from) {
    let cursor = from;
    for (let pages = 0; pages < maxEmptyPages; pages += 1) {
      const page = await this.page(list.query, cursor);
      cursor = page.next_cursor;
      if (page.jobs.length || cursor === null) break;
    }
    list.cursor = cursor;
    this.lists.set(list.name, list);
  }

  async page(filter, cursor) {
    const query = new URLSearchParams(filter);
    query.set('limit', pageSize);
    if (cursor) query.set('cursor', cursor);
    const page = await (await request(`jobs?${query}`, { cache: 'no-store' })).json();
    for (const job of page.jobs) this.merge(job);
    return page;
  }

  /** Removes expired jobs. */
  expire() {
    const now = new Date(clock.now()).toISOString();
    for (const id of [...this.order]) {
      const { expires_at: end } = this.byID.get(id).job;
      if (end && end < now) this.remove(id);
    }
  }

  /** The number of jobs by host and phase, busiest host first. */
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

  /** The text that a search looks in. Computed once per version. */
  textOf(entry) {
    const { job } = entry;
    entry.text ??= [
      entry.name, job.source.url, job.source.local, job.id, job.error?.code, job.error?.title, job.error?.detail,
      job.image?.format, job.priority, ...job.tags.map((tag) => `#${tag}`),
    ].filter(Boolean).join('\n').toLowerCase();
    return entry.text;
  }
}

/** Records the error of each failed attempt. The service reports only the last one. */
function recordAttempt({ job: { attempts, last_error: last, error, finished_at: end }, tries }) {
  const failed = error ?? last;
  if (!failed || tries.at(-1)?.attempts === attempts) return;
  // A job that is fetched again counts its attempts from 0.
  if (attempts < (tries.at(-1)?.attempts ?? 0)) tries.length = 0;
  tries.push({ attempts, at: end ?? new Date(clock.now()).toISOString(), detail: failed.detail });
}

/** The transfer rate of a job, averaged over the last few seconds so that the number does not jump. */
class Pace {
  constructor() {
    this.samples = [];
  }

  record({ phase, progress }) {
    const { completed } = progress;
    const now = performance.now();
    // A new transfer starts from 0.
    if (phase !== 'loading' || completed < (this.samples.at(-1)?.completed ?? 0)) this.samples = [];
    this.samples.push({ now, completed });
    while (this.samples.length > 2 && now - this.samples[0].now > 5000) this.samples.shift();
  }

  /** Bytes per second; 0 if unknown. */
  get rate() {
    const [first, last] = [this.samples[0], this.samples.at(-1)];
    const time = last ? last.now - first.now : 0;
    return time > 500 ? (1000 * (last.completed - first.completed)) / time : 0;
  }
}

/** The number of finished jobs per second, over the last five minutes. */
class Throughput {
  static seconds = 300;

  constructor() {
    this.bySecond = new Map();
    /** Jobs that finished before this time may be unknown. */
    this.since = 0;
  }

  /** Whether all jobs that finished in the last seconds are known. */
  isComplete(seconds) {
    return this.since < clock.now() - seconds * 1000;
  }

  /** @param known the end of the job that was counted before. */
  record(job, known) {
    if (!job.finished_at || job.finished_at === known || job.phase === 'cancelled') return;
    const second = Math.floor(Date.parse(job.finished_at) / 1000);
    if (second < clock.now() / 1000 - Throughput.seconds) return;
    const of = this.bySecond.get(second) ?? { success: 0, failure: 0 };
    of[job.phase] = (of[job.phase] ?? 0) + 1;
    this.bySecond.set(second, of);
  }

  /** Splits the time into equal parts and returns their sums, oldest first. */
  parts(count) {
    const now = Math.floor(clock.now() / 1000);
    const width = Throughput.seconds / count;
    // Parts begin at multiples of their length, so that a bar that is complete does not change.
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

  /** The sums of the last seconds. */
  sum(seconds) {
    return this.after(Math.floor(clock.now() / 1000) - seconds + 1);
  }

  /** The sums since a second (Unix time). */
  after(first) {
    const sum = { success: 0, failure: 0 };
    for (const [second, of] of this.bySecond) {
      if (second < first) continue;
      sum.success += of.success;
      sum.failure += of.failure;
    }
    return sum;
  }
}
