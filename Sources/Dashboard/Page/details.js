// The dialog with everything about one job. It is updated while the job changes.

class Details {
  constructor(jobs, imageLoader, actions) {
    this.jobs = jobs;
    this.imageLoader = imageLoader;
    this.dialog = $('details');
    this.buttons = [...this.dialog.querySelectorAll('[data-do]')];
    this.dialog.addEventListener('close', () => this.closed());
    for (const id of ['variant-width', 'variant-format']) {
      $(id).addEventListener('change', () => setText($('variant-shown'), this.variant().path));
    }
    for (const button of $('variant').querySelectorAll('[data-copy]')) {
      button.addEventListener('click', () => this.copyVariant(button.dataset.copy));
    }
    for (const button of this.buttons) {
      button.addEventListener('click', () => actions.run(button.dataset.do, this.entry));
    }
  }

  open(entry) {
    this.entry = entry;
    this.shownEtag = null;
    this.update(entry);
    if (!this.dialog.open) this.dialog.showModal();
    address.write({ job: entry.id }, true);
  }

  closed() {
    this.entry = null;
    // If opening the dialog added a step to the history, closing it goes one step back.
    if (address.read().job) {
      if (history.state?.isOpened) history.back();
      else address.write({ job: null });
    }
    this.cancelRequest?.();
    $('details-image').removeAttribute('src');
    if (this.url) URL.revokeObjectURL(this.url);
    this.url = null;
  }

  /** Called when a job has changed or is gone. */
  update(entry) {
    if (!this.entry || entry.id !== this.entry.id) return;
    if (!this.jobs.get(entry.id)) {
      this.dialog.close();
      return;
    }
    const { job } = entry;
    setText($('details-title'), cut(entry.name, 200));
    for (const button of this.buttons) {
      button.hidden = !allowed(entry, button.dataset.do);
      if (button.dataset.do === 'open') setText(button, openWord('image'));
    }
    this.showError(job);
    // A job without its original has only the variants that its facts list.
    $('variant').hidden = job.phase !== 'success' || Boolean(entry.isGone) || job.image.original === 'drop';
    if (!$('variant').hidden) setText($('variant-shown'), this.variant().path);
    this.showFacts(facts(entry));
    this.showImage(job);
  }

  /** Updates only the cells that differ, so that the user can select text while a job loads. */
  showFacts(rows) {
    const list = $('details-facts');
    const terms = rows.map(([term]) => term).join();
    if (list.terms !== terms) list.replaceChildren(...rows.flatMap(([term]) => row(term)));
    list.terms = terms;
    rows.forEach(([, content], index) => {
      const cell = list.children[2 * index + 1];
      const text = content.textContent ?? content;
      if (cell.shownText !== text) cell.replaceChildren(content);
      cell.shownText = text;
    });
  }

  /** The selected variant: its path, file extension and size. */
  variant() {
    const { id, image } = this.entry.job;
    const [width, height] = upright(image);
    const wanted = Number($('variant-width').value);
    const format = $('variant-format').value;
    const query = new URLSearchParams();
    if (wanted) query.set('width', wanted);
    if (format) query.set('format', format);
    const shown = wanted && wanted < width ? wanted : width;
    return {
      path: `jobs/${id}/image${query.size ? `?${query}` : ''}`, ending: format || image.format,
      width: shown, height: Math.max(1, Math.round((height * shown) / width)),
    };
  }

  copyVariant(what) {
    const { path, ending, width, height } = this.variant();
    const url = new URL(path, location.href.split('#')[0]).href;
    const token = access.token ? ' -H "Authorization: Bearer $TOKEN"' : '';
    const texts = {
      url: [url, 'The URL'],
      img: [`<img src="${url.replace(/&/g, '&amp;')}" width="${width}" height="${height}" alt="">`, 'The element'],
      curl: [`curl${token} -o ${this.entry.id}.${ending} '${url}'`, 'The command'],
    };
    copy(...texts[what]);
  }

  showError(job) {
    const { error } = job;
    $('details-error').hidden = !error;
    if (!error) return;
    const lines = [[error.title, 'strong'], [error.detail, 'span'], [remedy(job), 'span']].map(([text, name]) => {
      const line = document.createElement(name);
      line.textContent = text;
      return line;
    });
    $('details-error').replaceChildren(...lines);
  }

  showImage({ id, image, phase }) {
    const frame = $('details-image').parentElement;
    frame.hidden = phase !== 'success' || Boolean(this.entry.isGone);
    if (frame.hidden || this.shownEtag === image.etag) return;
    this.shownEtag = image.etag;
    const [width, height] = upright(image);
    // The size is set in advance, so that nothing moves when the image arrives.
    Object.assign($('details-image'), { width, height });
    frame.style.backgroundColor = image.dominant_color ?? '';
    const path = imagePath({ id, image }, 960, 'width=960&height=720&fit=scale-down&format=auto');
    this.cancelRequest = this.imageLoader.request(path, null, (result) => {
      if (typeof result !== 'string') return;
      if (this.url) URL.revokeObjectURL(this.url);
      this.url = result;
      $('details-image').src = result;
    });
  }
}

function row(term) {
  const [dt, dd] = [document.createElement('dt'), document.createElement('dd')];
  dt.textContent = term;
  return [dt, dd];
}

/** A link for http and https URLs, plain text for everything else. The link sends no referrer. */
function link(text) {
  if (!webURL(text)) return text;
  const element = document.createElement('a');
  Object.assign(element, { href: text, target: '_blank', rel: 'noreferrer noopener', textContent: text });
  return element;
}

/** The rows of the list of facts: pairs of a term and its content. */
function facts(entry) {
  const { job } = entry;
  const { image, timings, progress, cache } = job;
  const rows = [
    ['Id', job.id], ['Phase', phaseWords[job.phase]],
    ['Source', job.source.url === undefined ? `${entry.name}, ${entry.host}` : link(job.source.url)],
    job.source.low_data_url && ['Low-data', link(job.source.low_data_url)],
    image?.url && image.url !== job.source.url && ['Fetched from', link(image.url)],
    job.tags.length && ['Tags', job.tags.join(', ')],
    ['Priority', priorityWord(job.priority)], ['Requests', String(job.attempts)],
    job.phase === 'loading' && ['Progress', [loaded(progress), speed(entry)].filter(Boolean).join(', ')],
    job.waiting_for && ['State', waiting(job).filter(Boolean).join(': ')],
    entry.tries.length > 0 && ['Failed attempts', triesList(entry)],
    image && ['Image', imageWords(image)],
    image && ['SHA-256', image.sha256],
    image?.variants.length && ['Variants', image.variants.map(variantWords).join('; ')],
    cache && ['Cache', cacheWords[cache.status]],
    cache?.fresh_until && ['Fresh until', moment(cache.fresh_until)],
    ['Timings', timingWords(timings) && waterfall(timings)],
    ['Submitted', moment(job.created_at)],
    job.finished_at && ['Finished', moment(job.finished_at)],
    job.expires_at && ['Expires', moment(job.expires_at)],
    job.error && ['Error code', job.error.code],
  ];
  return rows.filter((one) => one && one[1]);
}

/** The failed attempts with their numbers. Attempts before the page was opened are not known. */
function triesList({ tries }) {
  const list = document.createElement('ol');
  list.className = 'tries';
  for (const { attempts, at, detail } of tries) {
    const item = document.createElement('li');
    item.value = attempts;
    item.textContent = `${clockTime(at)}: ${detail}`;
    list.append(item);
  }
  return list;
}

function imageWords(image) {
  const [width, height] = upright(image);
  return [
    `${formatWord(image.format)}, ${width} × ${height}`, `${number.format(image.bytes)} bytes`,
    image.frames > 1 && `${image.frames} frames`, image.progressive && 'progressive',
    image.has_alpha && 'with alpha', image.orientation > 1 && `rotated (orientation ${image.orientation})`,
    image.variant === 'low_data' && 'the low-data image', image.original === 'drop' && 'original not kept',
  ].filter(Boolean).join(', ');
}

const variantWords = ({ name, format, width, height, bytes }) => (
  `${name}: ${formatWord(format)}, ${width} × ${height}, ${number.format(bytes)} bytes`);

/** Bars for the steps of a job, each beginning at its start time, above the same in words. */
function waterfall(timings) {
  const queued = timings.queued_ms ?? 0;
  const connected = (timings.dns_ms ?? 0) + (timings.connect_ms ?? 0) + (timings.tls_ms ?? 0);
  const first = timings.first_byte_ms ?? connected;
  const steps = [
    ['queued', 0, queued], ['connect', queued, connected], ['wait', queued + connected, Math.max(0, first - connected)],
    ['body', queued + first, timings.body_ms ?? 0],
  ];
  const whole = Math.max(1e-3, ...steps.map(([, start, length]) => start + length));
  const bars = document.createElement('div');
  bars.className = 'waterfall';
  for (const [step, start, length] of steps) {
    if (length < 0.01) continue;
    const bar = document.createElement('span');
    bar.dataset.step = step;
    bar.style.marginLeft = `${(100 * start) / whole}%`;
    bar.style.width = `${Math.max(0.5, (100 * length) / whole)}%`;
    bars.append(bar);
  }
  const words = document.createElement('div');
  words.textContent = timingWords(timings);
  const both = document.createElement('div');
  both.append(bars, words);
  return both;
}

function timingWords(timings) {
  const names = {
    queued_ms: 'queued', dns_ms: 'DNS', connect_ms: 'connect', tls_ms: 'TLS', first_byte_ms: 'first byte',
    body_ms: 'body', decode_ms: 'decode',
  };
  return Object.entries(names).filter(([key]) => timings[key] >= 0.01)
    .map(([key, name]) => `${name} ${span(timings[key])}`).join(', ');
}
