// Submits URLs that are typed, and files that are chosen. Both can also be dropped or pasted anywhere on the page.

const uploadsAtOnce = 2;

/** Adds https:// to a host name without a scheme, as browsers do. */
const withScheme = (text) => (/^[^/:]+\.[^/:]+(:[0-9]+)?(\/|$)/.test(text) ? `https://${text}` : text);

const wordsOf = (text) => text.split(/\s+/).filter(Boolean);

class Submitting {
  constructor(jobs) {
    this.jobs = jobs;
    this.field = $('urls');
    /** The maximum URLs in one request. Halved if the service responds with 413. */
    this.maxBatch = 500;
    fillPriorities($('new-priority'));
    $('submit').addEventListener('submit', (event) => {
      event.preventDefault();
      this.submitField();
    });
    this.field.addEventListener('keydown', (event) => {
      if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.submitField();
    });
    this.field.addEventListener('input', () => this.resizeField());
    $('files').addEventListener('change', () => {
      this.sendFiles([...$('files').files]);
      $('files').value = '';
    });
    this.listenToPaste();
    this.listenToDrop();
  }

  /** Adapts the height of the field to its lines, up to the limit in the style. */
  resizeField() {
    this.field.style.height = 'auto';
    this.field.style.height = `${this.field.scrollHeight + 2}px`;
  }

  get options() {
    const options = {};
    const tags = $('new-tags').value.split(',').map((tag) => tag.trim()).filter(Boolean);
    if ($('new-priority').value !== 'normal') options.priority = $('new-priority').value;
    if (tags.length) options.tags = tags;
    return options;
  }

  /** The cache mode applies to URLs only. */
  get urlOptions() {
    const cache = $('new-cache').value;
    return cache === 'default' ? this.options : { ...this.options, cache };
  }

  async submitField() {
    const urls = wordsOf(this.field.value);
    if (!urls.length) {
      this.showMessage('Enter a URL first.', true);
      this.field.focus();
      return;
    }
    // Ignores a second Enter until the first request is answered.
    if (this.field.readOnly) return;
    this.field.readOnly = true;
    try {
      const left = await this.submitURLs(urls);
      // The user may have pasted more URLs in the meantime.
      this.fill([...left, ...wordsOf(this.field.value).slice(urls.length)]);
    } finally {
      this.field.readOnly = false;
    }
  }

  /** Fills the field with URLs, one per line. */
  fill(urls) {
    this.field.value = urls.join('\n');
    this.resizeField();
  }

  /**
   * Submits the valid URLs, even if others are not valid.
   * @returns {Promise<string[]>} the URLs that were not accepted.
   */
  async submitURLs(urls) {
    const rest = [...urls];
    const bad = [];
    let accepted = 0;
    while (rest.length) {
      const batch = rest.slice(0, this.maxBatch);
      try {
        await this.submitBatch(batch);
        accepted += rest.splice(0, batch.length).length;
      } catch (problem) {
        const wrong = wrongURLs(problem, batch);
        if (wrong.size && batch.length > 1) {
          for (const [index, line] of wrong) bad.push({ url: batch[index], line });
          rest.splice(0, batch.length, ...batch.filter((_, index) => !wrong.has(index)));
        } else if (problem.status === 413 && batch.length > 1) {
          this.maxBatch = Math.ceil(batch.length / 2);
        } else {
          this.showRefused(problem, batch, accepted, bad);
          return [...bad.map(({ url }) => url), ...rest];
        }
      }
    }
    if (bad.length) this.showPartlyRefused(accepted, bad);
    else this.showMessage(`${count(accepted, 'job')} accepted.`);
    return bad.map(({ url }) => url);
  }

  showPartlyRefused(accepted, bad) {
    const before = accepted ? `${count(accepted, 'job')} accepted, the others not` : 'Nothing was accepted';
    this.showMessage(`${before}:`, true, bad.map(({ line }) => line));
  }

  async submitBatch(urls) {
    const all = urls.map((url) => ({ url: withScheme(url), ...this.urlOptions }));
    const response = await request('jobs', asJSON('POST', all.length === 1 ? all[0] : all));
    const answer = await response.json();
    for (const job of answer.jobs ?? [answer]) this.jobs.merge(job);
  }

  /** Shows which URLs were refused, and why. */
  showRefused(problem, urls, accepted, bad) {
    if (!(problem instanceof Problem)) throw problem;
    const lines = problem.errors.map(({ pointer, parameter, detail }) => {
      const index = urls.length === 1 ? 0 : Number(pointer?.match(/^\/(\d+)/)?.[1]);
      const member = (parameter ?? pointer?.split('/').pop() ?? '').replace(/^url$/, '');
      const where = [cut(urls[index] ?? '', 80), member].filter(Boolean).join(', ');
      return where ? `${where}: ${detail}` : detail;
    });
    const before = accepted ? `${count(accepted, 'job')} accepted, the others not` : 'Nothing was accepted';
    const why = accepted ? `${before}. ${problem.message}` : problem.message;
    const all = [...bad.map(({ line }) => line), ...lines];
    this.showMessage(all.length ? `${before}:` : why, true, all.length && !lines.length ? [...all, problem.message] : all);
    this.isUnanswered = problem.status === 0;
  }

  /** Called when the service answers again: removes the message that it did not. */
  answered() {
    if (this.isUnanswered) this.clearMessage();
  }

  showMessage(text, isError = false, lines = []) {
    this.isUnanswered = false;
    const message = $('submit-message');
    const head = document.createElement('p');
    head.textContent = text;
    const list = document.createElement('ul');
    for (const line of lines.slice(0, 12)) {
      const item = document.createElement('li');
      item.textContent = line;
      list.append(item);
    }
    if (lines.length > 12) list.append(`and ${lines.length - 12} more`);
    message.replaceChildren(head, ...(lines.length ? [list] : []));
    message.classList.toggle('error', isError);
    // A success replaces the hint, so that nothing moves.
    $('submit-hint').hidden = !isError;
    clearTimeout(this.messageTimer);
    if (!isError) this.messageTimer = setTimeout(() => this.clearMessage(), 6000);
  }

  clearMessage() {
    this.isUnanswered = false;
    $('submit-message').replaceChildren();
    $('submit-hint').hidden = false;
  }

  // MARK: Files

  async sendFiles(files) {
    if (!files.length) return;
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries(this.options)) {
      for (const one of [value].flat()) query.append(name, one);
    }
    const waiting = [...files];
    const problems = [];
    let sent = 0;
    const send = async () => {
      for (let file = waiting.shift(); file; file = waiting.shift()) {
        try {
          await this.sendFile(file, query);
        } catch (problem) {
          problems.push(`${cut(file.name, 80)}: ${problem.errors?.[0]?.detail ?? problem.message}`);
        }
        sent += 1;
        if (waiting.length) this.showMessage(`Sent ${sent} of ${files.length}…`);
      }
    };
    this.showMessage(`Sending ${count(files.length, 'file')}…`);
    await Promise.all(Array.from({ length: uploadsAtOnce }, send));
    const accepted = files.length - problems.length;
    if (problems.length) this.showMessage(`${accepted} of ${count(files.length, 'file')} accepted.`, true, problems);
    else this.showMessage(`${count(accepted, 'file')} accepted.`);
  }

  async sendFile(file, query) {
    const type = file.type.startsWith('image/') ? file.type : 'application/octet-stream';
    const path = query.size ? `jobs?${query}` : 'jobs';
    const response = await request(path, { method: 'POST', headers: { 'Content-Type': type }, body: file });
    const job = await response.json();
    // The service does not know file names. The event for the job may have arrived before the response.
    this.jobs.name(job.id, file.name);
    this.jobs.merge(job);
  }

  // MARK: Anywhere on the page

  /** Submits the URLs in the data, or else its files. Ignores everything else. */
  submitTransfer(data) {
    const links = data.getData('text/uri-list').split(/\r?\n/).filter((line) => line && !line.startsWith('#'));
    const urls = (links.length ? links : wordsOf(data.getData('text/plain'))).filter(webURL);
    const files = [...data.files];
    // An image dragged from another page has both a URL and a file.
    if (urls.length) this.submitTransferred(urls);
    else if (files.length) this.sendFiles(files);
    return urls.length + files.length > 0;
  }

  /** Refused URLs are put into the field, where the user can correct them or send them again. */
  async submitTransferred(urls) {
    const left = await this.submitURLs(urls);
    if (left.length) this.fill([...wordsOf(this.field.value), ...left]);
  }

  listenToPaste() {
    document.addEventListener('paste', (event) => {
      const isInField = event.target.closest?.('input, textarea, dialog');
      const { files } = event.clipboardData;
      if (isInField) {
        if (event.target !== this.field || !files.length) return;
        this.sendFiles([...files]);
        event.preventDefault();
      } else if (this.submitTransfer(event.clipboardData)) {
        event.preventDefault();
      }
    });
  }

  listenToDrop() {
    let isOurs = false;
    const show = (isShown) => { $('drop').hidden = !isShown; };
    // Text can be dropped into a field. A dropped file would make the browser leave the page.
    const accepts = ({ dataTransfer: { types }, target }) => !isOurs && (types.includes('Files')
      || (!target.closest?.('input, textarea') && types.some((type) => /^text\/(uri-list|plain)$/.test(type))));
    // Content dragged from this page is ignored.
    document.addEventListener('dragstart', () => { isOurs = true; });
    document.addEventListener('dragend', () => { isOurs = false; });
    document.addEventListener('dragover', (event) => {
      if (!accepts(event)) return;
      event.preventDefault();
      event.dataTransfer.dropEffect = 'copy';
      show(true);
    });
    document.addEventListener('dragleave', (event) => event.relatedTarget || show(false));
    document.addEventListener('drop', (event) => {
      show(false);
      if (!accepts(event)) return;
      event.preventDefault();
      if (!this.submitTransfer(event.dataTransfer)) this.showMessage('This is neither an image nor a link.', true);
    });
  }
}

/**
 * The URLs of a batch that are not valid, by index, each with a line that says why. Empty if the mistake is not in a
 * URL.
 */
function wrongURLs(problem, batch) {
  const wrong = new Map();
  if (!(problem instanceof Problem) || problem.status !== 422) return wrong;
  for (const { pointer, detail } of problem.errors) {
    const index = Number(pointer?.match(/^\/(\d+)\/url$/)?.[1] ?? NaN);
    // A mistake in an option affects all URLs.
    if (!(index < batch.length)) return new Map();
    wrong.set(index, `${cut(batch[index], 80)}: ${detail}`);
  }
  return wrong;
}
