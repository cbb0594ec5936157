// The service at a glance: figures and small charts. They come from the jobs on this page and, for admins, from the
// service's metrics.

const pollInterval = 2000;

/** Parses Prometheus' text format as far as needed here: sums by name, and by name and labels. */
function parseMetrics(text) {
  const sums = new Map();
  const add = (key, value) => sums.set(key, (sums.get(key) ?? 0) + value);
  for (const match of text.matchAll(/^([a-z_]+)(\{[^\n]*\})? ([-+0-9.eE]+)/gm)) {
    add(match[1], Number(match[3]));
    if (match[2]) add(match[1] + match[2], Number(match[3]));
  }
  return sums;
}

class Glance {
  /** The maximum number of bars. Each bar is the larger of two samples. */
  static queueBars = 75;

  constructor(jobs) {
    this.jobs = jobs;
    this.metrics = null;
    this.isAdmin = false;
    /** Called when there are new figures. */
    this.onFigures = () => {};
    /** Called at once when the service's own figures have arrived. */
    this.onMetrics = () => {};
    /** The token for which the service refused a path. The path is not requested again with the same token. */
    this.refused = new Map();
    this.queue = [];
    /**
     * The running instances, sorted by name. A single one if the service is not a cluster; empty if the token may not
     * see them.
     */
    this.instances = [];
    /** Instances that disappeared since the page was opened, with the time when that was noticed. */
    this.lost = [];
    /** The service's activity of the last 15 minutes; null if the token may not see it. */
    this.activity = null;
    this.throughputChart = new Chart($('throughput-plot'), { up: 'done', down: 'failed' });
    this.queueChart = new Chart($('queue-plot'), { up: 'queued', down: 'running' });
    this.element = $('glance');
    const wide = window.matchMedia('(min-width: 70rem)');
    const arrange = () => { this.element.open = wide.matches; };
    wide.addEventListener('change', arrange);
    arrange();
    this.element.addEventListener('toggle', () => this.draw());
    window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.draw());
    window.addEventListener('resize', () => this.draw());
    $('clear-cache').addEventListener('click', () => this.clearCache());
    $('constrained').addEventListener('change', () => this.constrain($('constrained').checked));
  }

  /** Requests and draws the figures every two seconds while the page is visible. */
  async run() {
    for (;;) {
      await events.whenVisible();
      await Promise.all([this.requestMetrics(), this.requestActivity(), this.requestCache(), this.requestInstances(),
        this.requestNetwork()]);
      this.jobs.expire();
      this.sample();
      this.draw();
      this.onFigures();
      await pause(pollInterval);
    }
  }

  /** Requests a path that needs the scope admin. Returns null if the service refuses or does not answer. */
  async poll(path) {
    if (this.refused.get(path) === access.token) return null;
    this.refused.delete(path);
    try {
      return await request(path, { cache: 'no-store' });
    } catch (problem) {
      if (problem.status === 403) this.refused.set(path, access.token);
      return null;
    }
  }

  async requestMetrics() {
    const response = await this.poll('metrics');
    if (response) {
      this.metrics = parseMetrics(await response.text());
      this.onMetrics();
    } else if (this.refused.has('metrics')) {
      this.metrics = null;
    }
  }

  async requestActivity() {
    // The service publishes a step one second after its end, when all instances have recorded it.
    const { end = 0, interval = 0 } = this.activity ?? {};
    if (clock.now() < Date.parse(end) + (interval + 1) * 1000) return;
    const response = await this.poll('activity');
    if (response) this.activity = await response.json();
    else if (this.refused.has('activity')) this.activity = null;
  }

  async requestCache() {
    const response = await this.poll('cache');
    this.isAdmin = !this.refused.has('cache') && (this.isAdmin || response !== null);
    if (response) this.showCache(await response.json());
    this.showAccess('cache', response);
  }

  async requestNetwork() {
    const response = await this.poll('network');
    if (response && !this.isSetting) $('constrained').checked = (await response.json()).constrained;
    this.showAccess('network', response);
  }

  async requestInstances() {
    const response = await this.poll('instances');
    if (!response) {
      if (!this.refused.has('instances')) return;
      [this.instances, this.lost] = [[], []];
      $('instances-shown').hidden = true;
      return;
    }
    const { instances } = await response.json();
    this.recordLost(instances);
    const byName = (a, b) => (a.name ?? '').localeCompare(b.name ?? '', 'en', { numeric: true }) || a.number - b.number;
    this.instances = instances.sort(byName);
    // A single instance is not listed.
    const rows = [...this.instances, ...this.lost].sort(byName);
    $('instances-shown').hidden = rows.length < 2;
    setText($('instances-count'), number.format(instances.length));
    const list = $('instances');
    while (list.children.length > rows.length) list.lastChild.remove();
    while (list.children.length < rows.length) list.append(document.createElement('li'));
    rows.forEach((instance, index) => showInstance(list.children[index], instance));
  }

  /** Remembers lost instances for 15 minutes, or until a newer instance has their name. */
  recordLost(instances) {
    const now = clock.now();
    const isThere = ({ number: id }) => instances.some((one) => one.number === id);
    const isReplaced = (lost) => instances.some((one) => one.name === lost.name && Date.parse(one.since) > lost.seen);
    for (const instance of this.instances) {
      if (!isThere(instance)) this.lost.push({ ...instance, seen: this.instancesAt, lost: now });
    }
    this.instancesAt = now;
    this.lost = this.lost.filter((one) => !isThere(one) && !isReplaced(one) && now - one.lost < 900_000);
  }

  /** The load of all workers; null if the token may not see it. */
  get work() {
    if (this.instances.length === 0) return null;
    const sum = (of) => this.instances.reduce((all, instance) => all + (of(instance) ?? 0), 0);
    return {
      busy: sum(({ running }) => running), workers: sum(({ workers }) => workers),
      oldest: Math.max(...this.instances.map((one) => one.oldest_running_seconds)),
    };
  }

  showAccess(path, response) {
    const isRefused = this.refused.has(path);
    if (response) $(`${path}-shown`).hidden = false;
    if (isRefused) $(`${path}-shown`).hidden = true;
    $(`${path}-note`).hidden = !isRefused;
    setText($(`${path}-note`), isRefused ? 'Visible with a token that has the scope admin.' : '');
  }

  // MARK: Showing

  /** The number of jobs in the phase by the service's metrics; null if unknown. */
  figure(phase) {
    return this.metrics?.get(`imagefetch_jobs{phase="${phase}"}`) ?? null;
  }

  /**
   * The number of jobs in the phase that the token may see; null if unknown.
   *
   * If the page has all jobs, it counts them. Otherwise it uses the service's metrics for all phases, so that the
   * numbers add up. The metrics are some seconds old.
   */
  counted(phase) {
    const { jobs } = this;
    if (!phases.some((one) => jobs.mayMiss(one))) return jobs.counts[phase];
    const figure = this.isAdmin ? this.figure(phase) : null;
    if (figure !== null) return Math.max(figure, jobs.counts[phase]);
    return jobs.mayMiss(phase) ? null : jobs.counts[phase];
  }

  /** The number of queued and running jobs, as in the chips. */
  get load() {
    const of = (phase) => this.counted(phase) ?? this.jobs.counts[phase];
    return { queued: of('queued'), running: of('loading') };
  }

  /** The same as text. */
  get loadWords() {
    const { queued, running } = this.load;
    const of = (n, phase) => atLeast(n, this.counted(phase) === null);
    return { queued: of(queued, 'queued'), running: of(running, 'loading') };
  }

  sample() {
    const { queued, running } = this.load;
    const bar = this.queue.at(-1);
    if (this.isHalf) Object.assign(bar, { up: Math.max(bar.up, queued), down: Math.max(bar.down, running) });
    else this.queue.push({ up: queued, down: running });
    this.isHalf = !this.isHalf;
    if (this.queue.length > Glance.queueBars) this.queue.shift();
  }

  draw() {
    this.showFigures();
    const { success, failure, seconds } = this.lastMinute;
    setText($('figure-time'), seconds < 60 ? `last ${number.format(seconds)} s` : 'last minute');
    setText($('figure-rate'), number.format(success));
    setText($('figure-failed'), number.format(failure));
    if (!this.element.open) return;
    const minutes = this.activity ? '15 minutes' : 'five minutes, of the jobs seen here';
    for (const id of ['throughput-time', 'queue-time']) setText($(id), minutes);
    this.drawThroughput();
    this.drawQueue();
    this.showOrigins();
  }

  /**
   * Shows the number of queued and running jobs. Called at each change of the jobs, so that all parts of the page
   * agree.
   */
  showFigures() {
    const { queued, running } = this.loadWords;
    setText($('figure-running'), running);
    setText($('figure-queued'), queued);
    const { work } = this;
    const text = `${queued} queued above, ${running} running below`
      + (work?.workers ? `; ${number.format(work.busy)} of ${count(work.workers, 'worker')} busy` : '')
      + (work?.oldest >= 1 ? `; the longest for ${span(work.oldest * 1000)}` : '');
    if ($('queue-text').shownText === text) return;
    setText($('queue-text'), text);
    $('queue-plot').setAttribute('aria-label', text);
  }

  /** The jobs that finished after the last step of the service's activity. */
  get latest() {
    const { success, failure } = this.jobs.throughput.after(Math.floor(Date.parse(this.activity.end) / 1000));
    return { up: success, down: failure };
  }

  /** The jobs that finished in the last minute, or in the known part of it. Counted as in the chart. */
  get lastMinute() {
    const { throughput } = this.jobs;
    const { activity } = this;
    if (activity) {
      const { up, down } = this.latest;
      const steps = Math.ceil((60 - (clock.now() - Date.parse(activity.end)) / 1000) / activity.interval);
      const sum = (values, rest) => (steps > 0 ? values.slice(-steps) : []).reduce((all, value) => all + value, rest);
      return { success: sum(activity.succeeded, up), failure: sum(activity.failed, down), seconds: 60 };
    }
    const known = Math.floor((clock.now() - throughput.since) / 1000);
    const seconds = Math.max(1, Math.min(60, known));
    return { ...throughput.sum(seconds), seconds };
  }

  drawThroughput() {
    const { activity } = this;
    const [step, now] = [activity ? barSeconds : 5, clock.now()];
    const bars = activity ? activityBars(activity, 60, now, ['succeeded', 'failed'], this.latest, true)
      : this.jobs.throughput.parts(60).map((part) => ({ up: part.success, down: part.failure }));
    this.throughputChart.show(bars, step, activity ? barsEnd(activity, now) : now);
    const sum = (key) => bars.reduce((all, bar) => all + bar[key], 0);
    const peak = Math.max(0, ...bars.map((bar) => bar.up)) / step;
    const text = `${number.format(sum('up'))} done, ${number.format(sum('down'))} failed; `
      + `peak ${number.format(Math.round(peak * 10) / 10)}/s`;
    setText($('throughput-text'), text);
    $('throughput-plot').setAttribute('aria-label', text);
  }

  drawQueue() {
    const { activity } = this;
    const now = clock.now();
    const missing = Glance.queueBars - this.queue.length;
    const { queued: up, running: down } = this.load;
    const bars = activity ? activityBars(activity, 60, now, ['queued', 'loading'], { up, down }, false)
      : [...Array.from({ length: missing }, () => ({ up: 0, down: 0 })), ...this.queue];
    this.queueChart.show(bars, activity ? barSeconds : 4, activity ? barsEnd(activity, now) : now);
  }

  showCache(cache) {
    const all = cache.hits + cache.revalidations + cache.misses;
    const share = all ? (cache.hits + cache.revalidations) / all : 0;
    $('cache-share').style.transform = `scaleX(${share.toFixed(3)})`;
    setText($('cache-text'), all
      ? `${Math.round(share * 100)} % of ${count(all, 'job')} from the cache` : 'No job has used it yet');
    setText($('cache-held'), `${count(cache.entries, 'entry', 'entries')}, ${size(cache.bytes)}; `
      + `${size(cache.memory_bytes)} in memory; ${number.format(cache.revalidations)} revalidated`);
    $('clear-cache').disabled = cache.entries === 0;
  }

  showOrigins() {
    const origins = this.jobs.origins();
    const shown = origins.slice(0, 6);
    const list = $('origins');
    while (list.children.length < shown.length) list.append(originRow());
    while (list.children.length > shown.length) list.lastChild.remove();
    const most = Math.max(1, ...shown.map((origin) => origin.all));
    shown.forEach((origin, index) => showOrigin(list.children[index], origin, most));
    const more = origins.length - shown.length;
    const words = [
      more > 0 && `and ${count(more, 'other')}`,
      phases.some((phase) => this.jobs.mayMiss(phase)) && `of ${count(this.jobs.order.length, 'job')} shown here`,
    ].filter(Boolean);
    setText($('origins-text'), origins.length === 0 ? 'No job has an origin yet' : words.join('; '));
    const paused = this.metrics?.get('imagefetch_paused_origins') ?? 0;
    setText($('origins-paused'), paused ? `${number.format(paused)} paused` : '');
  }

  // MARK: Doing

  async clearCache() {
    const text = 'Jobs keep their images. New jobs fetch from the origins again.';
    if (!await confirmed('Clear the cache?', text, 'Clear')) return;
    try {
      const { removed } = await (await request('cache', { method: 'DELETE' })).json();
      toast(`${count(removed, 'entry', 'entries')} removed.`);
      await this.requestCache();
    } catch (problem) {
      toast(problem.message);
    }
  }

  async constrain(isConstrained) {
    this.isSetting = true;
    try {
      await request('network', asJSON('PUT', { constrained: isConstrained }));
    } catch (problem) {
      $('constrained').checked = !isConstrained;
      toast(problem.message);
    }
    this.isSetting = false;
  }
}

function originRow() {
  const row = document.createElement('li');
  for (const name of ['host', 'share', 'muted']) {
    const part = document.createElement(name === 'host' ? 'button' : 'span');
    part.className = name;
    row.append(part);
  }
  for (const name of ['success', 'failure', 'loading', 'queued']) {
    const piece = document.createElement('span');
    piece.dataset.phase = name;
    row.children[1].append(piece);
  }
  const [host] = row.children;
  host.type = 'button';
  host.title = 'Show only its jobs';
  host.addEventListener('click', () => {
    $('search').value = `host:${host.shownText}`;
    $('search').dispatchEvent(new Event('input'));
  });
  return row;
}

function showOrigin(row, origin, most) {
  const [host, share, text] = row.children;
  setText(host, cut(origin.host, 60));
  for (const piece of share.children) {
    piece.style.width = `${(100 * origin[piece.dataset.phase]) / most}%`;
  }
  const words = [
    [origin.loading, 'loading'], [origin.queued, 'queued'], [origin.success, 'done'], [origin.failure, 'failed'],
  ].filter(([n]) => n).map(([n, word]) => `${number.format(n)} ${word}`);
  setText(text, words.join(', '));
}

function showInstance(row, instance) {
  const { number: id, name, since, version, loading, running, workers, leads, lost } = instance;
  row.classList.toggle('lost', Boolean(lost));
  const who = cut(name ?? `number ${id}`, 40);
  if (lost) {
    setText(row, `${who}: gone since ${moment(lost)}`);
  } else {
    const words = [
      `${number.format(loading)} loading`, workers && `${number.format(running)} of ${count(workers, 'worker')} busy`,
      since && `since ${moment(since)}`,
    ].filter(Boolean).join(', ');
    setText(row, `${who}: ${words}${leads ? ' (leads)' : ''}`);
  }
  row.title = `Instance ${id}${version ? `, release ${version}` : ''}`;
}
