// The service at a glance: figures and small plots, of the jobs seen here and of what it says of itself to admins.

const pollInterval = 2000;

/** Prometheus' text format, as far as it is needed here: sums by name, and by name and labels. */
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
  /** Each is two samples, the more of both. */
  static queueBars = 75;

  constructor(jobs) {
    this.jobs = jobs;
    this.metrics = null;
    this.isAdmin = false;
    /** Called when there are new figures. */
    this.onFigures = () => {};
    /** What a token may not see is not asked for again with it; by path. */
    this.refused = new Map();
    this.queue = [];
    /** The last quarter of an hour, as the service kept it; null where it doesn't say. */
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

  /** Asks and draws every two seconds while the page is seen. */
  async run() {
    for (;;) {
      await events.seen();
      await Promise.all([this.askMetrics(), this.askActivity(), this.askCache(), this.askInstances(),
        this.askNetwork()]);
      this.jobs.expire();
      this.sample();
      this.draw();
      this.onFigures();
      await pause(pollInterval);
    }
  }

  /** Asks for something that needs the scope admin; null where it can't be had. */
  async poll(path) {
    if (this.refused.get(path) === access.token) return null;
    this.refused.delete(path);
    try {
      return await ask(path, { cache: 'no-store' });
    } catch (problem) {
      if (problem.status === 403) this.refused.set(path, access.token);
      return null;
    }
  }

  async askMetrics() {
    const response = await this.poll('metrics');
    this.metrics = response && parseMetrics(await response.text());
  }

  async askActivity() {
    // A step is longer than the time between two looks.
    const { end = 0, interval = 0 } = this.activity ?? {};
    if (clock.now() < Date.parse(end) + interval * 1000) return;
    const response = await this.poll('activity');
    this.activity = response && await response.json();
  }

  async askCache() {
    const response = await this.poll('cache');
    this.isAdmin = response !== null;
    if (response) this.showCache(await response.json());
    this.note('cache', response);
  }

  async askNetwork() {
    const response = await this.poll('network');
    if (response && !this.isSetting) $('constrained').checked = (await response.json()).constrained;
    this.note('network', response);
  }

  async askInstances() {
    const response = await this.poll('instances');
    const { instances } = response ? await response.json() : { instances: [] };
    // One alone is nothing to tell of.
    $('instances-shown').hidden = instances.length < 2;
    say($('instances-count'), number.format(instances.length));
    const list = $('instances');
    while (list.children.length > instances.length) list.lastChild.remove();
    while (list.children.length < instances.length) list.append(document.createElement('li'));
    instances.forEach((instance, index) => showInstance(list.children[index], instance));
  }

  note(path, response) {
    const isRefused = this.refused.has(path);
    if (response) $(`${path}-shown`).hidden = false;
    if (isRefused) $(`${path}-shown`).hidden = true;
    $(`${path}-note`).hidden = !isRefused;
    say($(`${path}-note`), isRefused ? 'Seen with a token that has the scope admin.' : '');
  }

  // MARK: Showing

  /** As the service counts; null where it doesn't say. */
  figure(phase) {
    return this.metrics?.get(`imagefetch_jobs{phase="${phase}"}`) ?? null;
  }

  /** How many jobs in the phase there are for whoever looks: an admin sees everyone's; null where nobody says. */
  counted(phase) {
    if (!this.jobs.mayMiss(phase)) return this.jobs.counts[phase];
    const figure = this.isAdmin ? this.figure(phase) : null;
    // It is some seconds old.
    return figure === null ? null : Math.max(figure, this.jobs.counts[phase]);
  }

  /** How many are queued and running: as the service counts, or else among the jobs held here. */
  get load() {
    const of = (phase) => this.figure(phase) ?? this.jobs.counts[phase];
    return { queued: of('queued'), running: of('loading') };
  }

  /** The same in words. */
  get loadWords() {
    const { queued, running } = this.load;
    const of = (n, phase) => atLeast(n, this.figure(phase) === null && this.jobs.mayMiss(phase));
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
    const { queued, running } = this.loadWords;
    const { success, failure } = this.jobs.throughput.sum(60);
    say($('figure-running'), running);
    say($('figure-queued'), queued);
    const mayBeMore = !this.jobs.throughput.isWhole(60);
    say($('figure-rate'), atLeast(success, mayBeMore));
    say($('figure-failed'), atLeast(failure, mayBeMore));
    if (!this.element.open) return;
    const minutes = this.activity ? '15 minutes' : 'five minutes, of the jobs seen here';
    for (const id of ['throughput-time', 'queue-time']) say($(id), minutes);
    this.drawThroughput();
    this.drawQueue();
    this.showOrigins();
  }

  drawThroughput() {
    const { activity } = this;
    const step = activity ? 15 : 5;
    const bars = activity ? activityBars(activity, 60, ['succeeded', 'failed'], true)
      : this.jobs.throughput.parts(60).map((part) => ({ up: part.success, down: part.failure }));
    this.throughputChart.show(bars, step, activity ? Date.parse(activity.end) : clock.now());
    const sum = (key) => bars.reduce((all, bar) => all + bar[key], 0);
    const most = Math.max(0, ...bars.map((bar) => bar.up)) / step;
    const mayBeMore = !activity && !this.jobs.throughput.isWhole(Throughput.seconds);
    const words = (key) => atLeast(sum(key), mayBeMore);
    const text = `${words('up')} done, ${words('down')} failed; `
      + `at most ${number.format(Math.round(most * 10) / 10)} a second`;
    say($('throughput-text'), text);
    $('throughput-plot').setAttribute('aria-label', text);
  }

  drawQueue() {
    const { activity } = this;
    const missing = Glance.queueBars - this.queue.length;
    const bars = activity ? activityBars(activity, 60, ['queued', 'loading'], false)
      : [...Array.from({ length: missing }, () => ({ up: 0, down: 0 })), ...this.queue];
    this.queueChart.show(bars, activity ? 15 : 4, activity ? Date.parse(activity.end) : clock.now());
    const { queued, running } = this.loadWords;
    const oldest = this.metrics?.get('imagefetch_oldest_running_job_seconds');
    const busy = this.metrics?.get('imagefetch_jobs_running');
    const workers = this.metrics?.get('imagefetch_workers');
    const text = `${queued} queued above, ${running} running below`
      + (workers ? `; ${number.format(busy ?? 0)} of ${count(workers, 'worker')} busy` : '')
      + (oldest >= 1 ? `; the longest for ${span(oldest * 1000)}` : '');
    say($('queue-text'), text);
    $('queue-plot').setAttribute('aria-label', text);
  }

  showCache(cache) {
    const all = cache.hits + cache.revalidations + cache.misses;
    const share = all ? (cache.hits + cache.revalidations) / all : 0;
    $('cache-share').style.transform = `scaleX(${share.toFixed(3)})`;
    say($('cache-text'), all
      ? `${Math.round(share * 100)} % of ${count(all, 'job')} from the cache` : 'No job has asked it yet');
    say($('cache-held'), `${count(cache.entries, 'entry', 'entries')}, ${size(cache.bytes)}; `
      + `${size(cache.memory_bytes)} in memory; ${number.format(cache.revalidations)} confirmed by origins`);
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
    say($('origins-text'), origins.length === 0 ? 'No job names one yet' : words.join('; '));
    const paused = this.metrics?.get('imagefetch_paused_origins') ?? 0;
    say($('origins-paused'), paused ? `${number.format(paused)} out of reach` : '');
  }

  // MARK: Doing

  async clearCache() {
    const text = 'Jobs keep their images; what comes next is asked from the origins again.';
    if (!await sure('Clear the cache?', text, 'Clear')) return;
    try {
      const { removed } = await (await ask('cache', { method: 'DELETE' })).json();
      toast(`${count(removed, 'entry', 'entries')} removed.`);
      await this.askCache();
    } catch (problem) {
      toast(problem.message);
    }
  }

  async constrain(isConstrained) {
    this.isSetting = true;
    try {
      await ask('network', asJSON('PUT', { constrained: isConstrained }));
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
  host.title = 'Show its jobs alone';
  host.addEventListener('click', () => {
    $('search').value = host.said;
    $('search').dispatchEvent(new Event('input'));
  });
  return row;
}

function showOrigin(row, origin, most) {
  const [host, share, text] = row.children;
  say(host, cut(origin.host, 60));
  for (const piece of share.children) {
    piece.style.width = `${(100 * origin[piece.dataset.phase]) / most}%`;
  }
  const words = [
    [origin.loading, 'loading'], [origin.queued, 'queued'], [origin.success, 'done'], [origin.failure, 'failed'],
  ].filter(([n]) => n).map(([n, word]) => `${number.format(n)} ${word}`);
  say(text, words.join(', '));
}

function showInstance(row, { number: id, name, since, version, loading, leads }) {
  const words = [
    `${cut(name ?? `number ${id}`, 40)}:`, `${number.format(loading)} loading,`,
    since && `since ${new Date(since).toLocaleString()}`, leads && '(leads)',
  ].filter(Boolean).join(' ');
  say(row, words);
  row.title = `Instance ${id}${version ? `, release ${version}` : ''}`;
}
