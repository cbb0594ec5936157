// Batches: one row each, with the state of its lines and its actions.

const batchWords = {
  receiving: 'Receiving', running: 'Running', finished: 'Finished', cancelled: 'Cancelled',
};
/** The states of lines, in the order of the bar. */
const lineWords = {
  success: 'done', failure: 'failed', rejected: 'rejected', cancelled: 'cancelled', loading: 'loading', queued: 'queued',
};
/** The number of batches shown at first. Few, so that the jobs are not far down on a phone. */
const fewBatches = window.matchMedia('(max-width: 40rem)').matches ? 1 : 3;
/** The maximum number of codes with a button. The others are in the row's title. */
const fewCodes = 6;

class Batches {
  constructor() {
    this.list = $('batches');
    /** The batches of the last response, newest first. */
    this.batches = [];
    this.areAll = false;
    this.rows = new Map();
    /** The number of changes made on this page. */
    this.changes = 0;
    /** The batch that the filter names. */
    this.marked = undefined;
    /** Called with whether there is a new batch, each time the list was read. */
    this.onLoad = () => {};
    /** Called with the id of a batch to filter by; `onCode` also with a failure code. */
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
    // A real link, so that it can be opened in another tab. A plain click keeps the rest of the address.
    this.list.addEventListener('click', (event) => {
      const link = event.target.closest('a[href]');
      if (!link || event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      const { id } = link.closest('.batch').dataset;
      if (link.dataset.code) this.onCode(id, link.dataset.code);
      else this.onChoose(id);
    });
  }

  /** Requests the batches every two seconds while the page is visible. */
  async follow() {
    for (;;) {
      await events.whenVisible();
      await this.load();
      await pause(pollInterval);
    }
  }

  async load() {
    const changesBefore = this.changes;
    try {
      const { batches } = await (await request('batches?limit=50', { cache: 'no-store' })).json();
      // A change made after the request is newer than the response.
      if (changesBefore === this.changes) {
        const known = new Set(this.batches.map(({ id }) => id));
        const isNew = (batch) => isOpen(batch) && !known.has(batch.id);
        const hasNew = batches.some(isNew);
        this.batches = batches;
        this.onLoad(hasNew);
      }
    } catch { /* The page's header shows the connection's state. */ }
    this.show();
  }

  /** The number of queued lines, by the last response. */
  get queued() {
    return this.batches.reduce((all, { counts }) => all + counts.queued, 0);
  }

  /** Marks the batch that the filter names. */
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
    setText($('batches-more'), this.areAll ? 'Show fewer' : `Show all ${number.format(this.batches.length)}`);
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

  /** Sends a request and updates the batch from the response. */
  async change(batch, path, options) {
    this.changes += 1;
    const answer = await request(`batches/${batch.id}${path}`, options);
    if (answer.status === 204) this.batches = this.batches.filter(({ id }) => id !== batch.id);
    else Object.assign(batch, await answer.json());
    this.show();
  }

  async cancel(batch) {
    const rest = batch.counts.queued + batch.counts.loading;
    const text = `${count(rest, 'job')} of ${batchName(batch)} ${rest === 1 ? 'has' : 'have'} not finished.`;
    if (await confirmed('Cancel the rest of this batch?', text, 'Cancel the rest')) {
      await this.change(batch, '', { method: 'DELETE' });
    }
  }

  /** Queues failed jobs again: those with the code; without one, all that may succeed without a change. */
  async retry(batch, code) {
    const failed = batch.counts.failure;
    await this.change(batch, '/retry', asJSON('POST', code ? { codes: [code] } : {}));
    const queued = failed - batch.counts.failure;
    toast(queued > 0 ? `${count(queued, 'job')} queued again.` : 'None of its failed jobs can succeed without a change.');
  }

  async forget(batch) {
    const text = `${batchName(batch)}: its jobs and their images are deleted from the service.`;
    if (await confirmed('Forget this batch?', text, 'Forget')) await this.change(batch, '?purge=true', { method: 'DELETE' });
  }

  /** Saves the results. With a token, which a link can't send, the page fetches them. */
  async results(batch) {
    const link = document.createElement('a');
    link.download = `${batch.id}.ndjson`;
    link.href = `batches/${batch.id}/results`;
    if (access.token) {
      link.href = URL.createObjectURL(await (await request(link.getAttribute('href'))).blob());
      setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
    }
    link.click();
  }
}

/** Whether lines may still arrive or run. */
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
  setText(name, batchName(batch));
  setLink(name, `batch:${batch.id}`);
  row.title = `${batch.id}, since ${moment(batch.created_at)}`;
  setText(row.querySelector('.state'), batchWords[state]);
  const bar = row.querySelector('.share');
  bar.ariaLabel = `${batchName(batch)}: finished lines`;
  // While lines arrive, their final number is unknown, so a part of the bar stays open.
  const whole = isReceiving ? 90 : 100;
  bar.ariaValueNow = isReceiving ? null : all ? Math.floor((100 * ended) / all) : 0;
  for (const piece of bar.children) piece.style.width = `${all ? (whole * counts[piece.dataset.phase]) / all : 0}%`;
  setText(row.querySelector('.far'), `${number.format(ended)} of ${number.format(all)}${isReceiving ? ' so far' : ''}`);
  const parts = Object.entries(lineWords).filter(([one]) => counts[one])
    .map(([one, word]) => `${number.format(counts[one])} ${word}`);
  setText(row.querySelector('.counts'), parts.join(', ') || 'No job yet');
  const pace = [
    isUnder && batch.rate > 0 && `${number.format(batch.rate)} a second`,
    isUnder && batch.eta !== null && `${remaining(batch.eta)} left`,
    batch.bytes > 0 && size(batch.bytes),
  ].filter(Boolean);
  setText(row.querySelector('.pace'), pace.join(', '));
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

/** The errors of a batch, most frequent first. Each links to its jobs and has a button that retries them. */
function showCodes(list, { id, codes }) {
  const shown = Object.entries(codes).sort(([, a], [, b]) => b - a);
  while (list.children.length < Math.min(shown.length, fewCodes)) list.append(codeChip());
  while (list.children.length > Math.min(shown.length, fewCodes)) list.lastChild.remove();
  shown.slice(0, fewCodes).forEach(([code, n], index) => {
    const [link, button] = list.children[index].children;
    setText(link, `${code} ${number.format(n)}`);
    setLink(link, `batch:${id} code:${code}`);
    link.dataset.code = code;
    link.title = `Show these jobs. ${advice.get(code) ?? ''}`;
    button.dataset.code = code;
    button.title = `Retry ${count(n, 'job')}`;
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

/** Formats seconds in the two largest units. */
function remaining(seconds) {
  if (seconds < 60) return `${Math.max(1, Math.round(seconds))} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.round((seconds / 60) % 60)} min`;
}
