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

/** Draws bars up from a line and, for what went wrong, down from it. */
function plot(canvas, bars, colours) {
  const { clientWidth: width, clientHeight: height } = canvas;
  if (!width) return;
  const ratio = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio)) canvas.width = Math.round(width * ratio);
  if (canvas.height !== Math.round(height * ratio)) canvas.height = Math.round(height * ratio);
  const context = canvas.getContext('2d');
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  const most = (key) => Math.max(0, ...bars.map((bar) => bar[key]));
  const [up, down] = [most('up'), most('down')];
  const unit = (height - 2) / Math.max(1, up + down);
  const line = Math.round(height - 1 - down * unit);
  const step = width / bars.length;
  bars.forEach((bar, index) => {
    const x = Math.round(index * step);
    const w = Math.max(1, Math.round((index + 1) * step) - x - 1);
    context.fillStyle = colours.up;
    if (bar.up) context.fillRect(x, line - Math.max(1, bar.up * unit), w, Math.max(1, bar.up * unit));
    context.fillStyle = colours.down;
    if (bar.down) context.fillRect(x, line + 1, w, Math.max(1, bar.down * unit));
  });
  context.fillStyle = colours.line;
  context.fillRect(0, line, width, 1);
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
      await Promise.all([this.askMetrics(), this.askCache(), this.askNetwork()]);
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
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    this.drawThroughput({ up: colour('success'), down: colour('failure'), line: colour('line') });
    this.drawQueue({ up: colour('queued'), down: colour('loading'), line: colour('line') });
    this.showOrigins();
  }

  drawThroughput(colours) {
    const parts = this.jobs.throughput.parts(60).map((part) => ({ up: part.success, down: part.failure }));
    plot($('throughput-plot'), parts, colours);
    const sum = (key) => parts.reduce((all, part) => all + part[key], 0);
    const most = Math.max(0, ...parts.map((part) => part.up)) / 5;
    const words = (key) => atLeast(sum(key), !this.jobs.throughput.isWhole(Throughput.seconds));
    const text = `${words('up')} done, ${words('down')} failed; `
      + `at most ${number.format(Math.round(most * 10) / 10)} a second`;
    say($('throughput-text'), text);
    $('throughput-plot').setAttribute('aria-label', text);
  }

  drawQueue(colours) {
    const missing = Glance.queueBars - this.queue.length;
    const bars = [...Array.from({ length: missing }, () => ({ up: 0, down: 0 })), ...this.queue];
    plot($('queue-plot'), bars, colours);
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
