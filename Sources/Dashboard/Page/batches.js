// Batches: a row each, with what has become of its lines, and what can be done about the rest.

const batchWords = {
  receiving: 'Receiving', running: 'Running', finished: 'Finished', cancelled: 'Cancelled',
};
/** What lines become, in the order of the bar. */
const lineWords = {
  success: 'done', failure: 'failed', rejected: 'rejected', cancelled: 'cancelled', loading: 'loading', queued: 'queued',
};
/** So many are shown unless more are asked for: jobs are not to be far down on a phone. */
const fewBatches = window.matchMedia('(max-width: 40rem)').matches ? 1 : 3;
/** So many codes have a button in a row; the others are in its title. */
const fewCodes = 6;

class Batches {
  constructor() {
    this.list = $('batches');
    /** As the service told them last, newest first. */
    this.batches = [];
    this.areAll = false;
    this.rows = new Map();
    /** How often something was done here. */
    this.changes = 0;
    /** The batch whose jobs are shown alone. */
    this.marked = undefined;
    /** Called with whether there is a new batch, when the list was read. */
    this.onLoad = () => {};
    /** Called with the id of a batch whose jobs are to be shown, and with an error code of theirs. */
    this.onChoose = () => {};
    this.onCode = () => {};
    $('batches-more').addEventListener('click', () => {
      this.areAll = !this.areAll;
      this.show();
    });
    this.list.addEventListener('click', ({ target }) => {
      const batch = this.batches.find(({ id }) => id === target.closest('.batch')?.dataset.id);
      const action = target.closest('[data-batch]')?.dataset;
      if (batch && action) this.run(action.batch, batch, action.code);
    });
    // A link, so that it can be opened in another tab; here it keeps what else the address says.
    this.list.addEventListener('click', (event) => {
      const link = event.target.closest('a[href]');
      if (!link || event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      const { id } = link.closest('.batch').dataset;
      if (link.dataset.code) this.onCode(id, link.dataset.code);
      else this.onChoose(id);
    });
  }

  /** Asks every two seconds while the page is seen. */
  async follow() {
    for (;;) {
      await events.seen();
      await this.load();
      await pause(pollInterval);
    }
  }

  async load() {
    const asked = this.changes;
    try {
      const { batches } = await (await ask('batches?limit=50', { cache: 'no-store' })).json();
      // What was done meanwhile is newer.
      if (asked === this.changes) {
        const known = new Set(this.batches.map(({ id }) => id));
        const isNew = (batch) => isOpen(batch) && !known.has(batch.id);
        const hasNew = batches.some(isNew);
        this.batches = batches;
        this.onLoad(hasNew);
      }
    } catch { /* The connection's state is told elsewhere. */ }
    this.show();
  }

  /** Lines that are queued, as the service told last. */
  get queued() {
    return this.batches.reduce((all, { counts }) => all + counts.queued, 0);
  }

  /** Marks the batch whose jobs are shown alone. */
  mark(id) {
    this.marked = id;
    for (const row of this.rows.values()) row.classList.toggle('chosen', row.dataset.id === id);
  }

  // MARK: Showing

  show() {
    const under = this.batches.filter(isOpen);
    const few = new Set([...new Set([...under, ...this.batches])].slice(0, Math.max(fewBatches, under.length)));
    const shown = this.batches.filter((batch) => this.areAll || few.has(batch));
    $('batches-shown').hidden = this.batches.length === 0;
    $('batches-more').hidden = few.size === this.batches.length;
    say($('batches-more'), this.areAll ? 'Show fewer' : `Show all ${number.format(this.batches.length)}`);
    const ids = new Set(shown.map(({ id }) => id));
    for (const [id, row] of this.rows) {
      if (ids.has(id)) continue;
      row.remove();
      this.rows.delete(id);
    }
    shown.forEach((batch, index) => {
      const row = this.rows.get(batch.id) ?? batchRow(batch.id);
      this.rows.set(batch.id, row);
      if (this.list.children[index] !== row) this.list.insertBefore(row, this.list.children[index] ?? null);
      showBatch(row, batch);
    });
    this.mark(this.marked);
  }

  // MARK: Doing

  async run(name, batch, code) {
    try {
      await this[name](batch, code);
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      toast(problem.status === 404 ? 'The service no longer has this batch.' : problem.message);
    }
    await this.load();
  }

  /** Tells the service, and takes in its answer. */
  async change(batch, path, options) {
    this.changes += 1;
    const answer = await ask(`batches/${batch.id}${path}`, options);
    if (answer.status === 204) this.batches = this.batches.filter(({ id }) => id !== batch.id);
    else Object.assign(batch, await answer.json());
    this.show();
  }

  async cancel(batch) {
    const rest = batch.counts.queued + batch.counts.loading;
    const text = `${count(rest, 'job')} of ${batchName(batch)} ${rest === 1 ? 'has' : 'have'} not ended.`;
    if (await sure('Cancel the rest of this batch?', text, 'Cancel the rest')) {
      await this.change(batch, '', { method: 'DELETE' });
    }
  }

  /** What failed so; without a code, whatever may succeed without a change. */
  async retry(batch, code) {
    const failed = batch.counts.failure;
    await this.change(batch, '/retry', asJSON('POST', code ? { codes: [code] } : {}));
    const queued = failed - batch.counts.failure;
    toast(queued > 0 ? `${count(queued, 'job')} queued again.` : 'None of its failures can succeed without a change.');
  }

  async forget(batch) {
    const text = `${batchName(batch)}: its jobs and their images are removed from the service.`;
    if (await sure('Forget this batch?', text, 'Forget')) await this.change(batch, '?purge=true', { method: 'DELETE' });
  }

  /** With a token, which a link can't send, by way of the page. */
  async results(batch) {
    const link = document.createElement('a');
    link.download = `${batch.id}.ndjson`;
    link.href = `batches/${batch.id}/results`;
    if (access.token) {
      link.href = URL.createObjectURL(await (await ask(link.getAttribute('href'))).blob());
      setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
    }
    link.click();
  }
}

/** Whether lines may still come or run. */
const isOpen = ({ state }) => state === 'receiving' || state === 'running';

const batchName = ({ id, name }) => cut(name ?? `Batch ${id.slice(0, 8)}`, 80);

function batchRow(id) {
  const row = $('batch-template').content.firstElementChild.cloneNode(true);
  row.dataset.id = id;
  for (const name of Object.keys(lineWords)) {
    const piece = document.createElement('span');
    piece.dataset.phase = name;
    row.querySelector('.share').append(piece);
  }
  return row;
}

function showBatch(row, batch) {
  const { counts, state } = batch;
  const all = Object.keys(lineWords).reduce((sum, name) => sum + counts[name], 0);
  const ended = all - counts.queued - counts.loading;
  const isUnder = isOpen(batch);
  const isReceiving = state === 'receiving';
  row.dataset.state = state;
  const name = row.querySelector('.name a');
  say(name, batchName(batch));
  setLink(name, `batch:${batch.id}`);
  row.title = `${batch.id}, since ${moment(batch.created_at)}`;
  say(row.querySelector('.state'), batchWords[state]);
  const bar = row.querySelector('.share');
  bar.ariaLabel = `${batchName(batch)}: lines that have ended`;
  // How many lines will come is not known yet: a part of the bar stays open.
  const whole = isReceiving ? 90 : 100;
  bar.ariaValueNow = isReceiving ? null : all ? Math.floor((100 * ended) / all) : 0;
  for (const piece of bar.children) piece.style.width = `${all ? (whole * counts[piece.dataset.phase]) / all : 0}%`;
  say(row.querySelector('.far'), `${number.format(ended)} of ${number.format(all)}${isReceiving ? ' so far' : ''}`);
  const parts = Object.entries(lineWords).filter(([one]) => counts[one])
    .map(([one, word]) => `${number.format(counts[one])} ${word}`);
  say(row.querySelector('.counts'), parts.join(', ') || 'No job yet');
  const pace = [
    isUnder && batch.rate > 0 && `${number.format(batch.rate)} a second`,
    isUnder && batch.eta !== null && `${remaining(batch.eta)} left`,
    batch.bytes > 0 && size(batch.bytes),
  ].filter(Boolean);
  say(row.querySelector('.pace'), pace.join(', '));
  showCodes(row.querySelector('.codes'), batch);
  const can = {
    cancel: isUnder, retry: counts.failure > 0 && state !== 'cancelled', results: ended > 0, forget: !isUnder,
  };
  for (const [action, isAllowed] of Object.entries(can)) {
    row.querySelector(`.acts [data-batch="${action}"]`).hidden = !isAllowed;
  }
}

function setLink(link, search) {
  const href = `#${new URLSearchParams({ q: search })}`;
  if (link.getAttribute('href') !== href) link.setAttribute('href', href);
}

/** The errors of a batch, the most frequent first: each leads to its jobs, and has a button that tries them again. */
function showCodes(list, { id, codes }) {
  const shown = Object.entries(codes).sort(([, a], [, b]) => b - a);
  while (list.children.length < Math.min(shown.length, fewCodes)) list.append(codeChip());
  while (list.children.length > Math.min(shown.length, fewCodes)) list.lastChild.remove();
  shown.slice(0, fewCodes).forEach(([code, n], index) => {
    const [link, button] = list.children[index].children;
    say(link, `${code} ${number.format(n)}`);
    setLink(link, `batch:${id} code:${code}`);
    link.dataset.code = code;
    link.title = `Show these jobs. ${remedies[code] ?? ''}`;
    button.dataset.code = code;
    button.title = `Try ${count(n, 'job')} again`;
    button.ariaLabel = `${button.title}: ${code}`;
  });
  list.title = shown.slice(fewCodes).map(([code, n]) => `${code} ${number.format(n)}`).join(', ');
}

function codeChip() {
  const chip = document.createElement('span');
  chip.className = 'chip';
  const button = document.createElement('button');
  button.type = 'button';
  button.dataset.batch = 'retry';
  chip.append(document.createElement('a'), button);
  return chip;
}

/** Seconds in the two greatest units that matter. */
function remaining(seconds) {
  if (seconds < 60) return `${Math.max(1, Math.round(seconds))} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.round((seconds / 60) % 60)} min`;
}
