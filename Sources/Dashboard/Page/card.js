// One job as a card. An update changes only the elements that differ. Everything from a job is inserted as text, never
// as markup.

/** Sets the text unless it is the same. The last text is remembered, because reading the DOM is slow. */
function setText(element, text) {
  if (element.shownText === text) return;
  element.shownText = text;
  element.textContent = text;
}

/** The two lines under the name of a job: a short fact and a longer detail. */
function summary(entry) {
  const { job } = entry;
  const { progress } = job;
  const tags = job.tags.map((tag) => `#${tag}`).join(' ');
  switch (job.phase) {
    case 'queued': {
      const [fact, why] = waiting(job);
      return [fact, [why, tags].filter(Boolean).join(' ')];
    }
    case 'loading': {
      const [fact, why] = job.waiting_for ? waiting(job) : [loaded(progress), speed(entry)];
      return [fact, [why, tags].filter(Boolean).join(' · ')];
    }
    case 'success': {
      const [width, height] = upright(job.image);
      const facts = `${formatWord(job.image.format)}, ${width} × ${height}, ${size(job.image.bytes)}`;
      if (entry.isGone) return [facts, 'The image was evicted to free space.'];
      return [facts, [job.cache && cacheWords[job.cache.status], tags].filter(Boolean).join(' · ')];
    }
    // A card shows the error in place of the image.
    case 'failure': return [job.error.detail, remedy(job)];
    default:
      return [progress.completed ? `Stopped after ${size(progress.completed)}` : 'Stopped before it started', tags];
  }
}

function loaded({ completed, total, resumed_from: resumed }) {
  if (!completed) return 'Waiting for the origin';
  const from = resumed ? `, ${size(resumed)} resumed` : '';
  if (total === null) return `${size(completed)} so far${from}`;
  if (completed >= total) return `Decoding ${size(total)}`;
  return `${size(completed)} of ${size(total)}${from}`;
}

/** The transfer rate and the time left, if known. */
function speed({ job: { progress: { completed, total } }, pace: { rate } }) {
  if (rate < 1) return '';
  const left = total === null ? '' : `, ${span((1000 * (total - completed)) / rate)} left`;
  return completed === total ? '' : `${size(Math.round(rate))}/s${left}`;
}

/** When the job was submitted, and how long it took. */
function times({ created_at: from, finished_at: to }) {
  const took = to ? ` · ${span(Date.parse(to) - Date.parse(from))}` : '';
  return clockTime(from) + took;
}

/** Whether the action is possible for the job. */
function allowed(entry, action) {
  switch (action) {
    case 'cancel': return isUnfinished(entry.job);
    case 'again':
      // An uploaded image that was evicted can't be fetched again.
      if (entry.isGone) return entry.job.source.captured === undefined;
      return entry.job.phase === 'cancelled' || (entry.job.phase === 'failure' && !isPermanent(entry.job));
    case 'open': return entry.job.phase === 'success' && !entry.isGone;
    case 'forget': return !isUnfinished(entry.job);
    default: return true;
  }
}

class Card {
  constructor(imageLoader, onGone) {
    this.imageLoader = imageLoader;
    this.onGone = onGone;
    this.element = $('card-template').content.firstElementChild.cloneNode(true);
    const find = (selector) => this.element.querySelector(selector);
    this.parts = {
      media: find('.media'), hash: find('.hash'), sign: find('.sign'), why: find('.why'), image: find('.image'),
      mark: find('.mark'), word: find('.word'), bar: find('.bar'), fill: find('.fill'),
      name: find('.name'), age: find('.age'), brief: find('.brief'), menu: find('.menu'), where: find('.where'), facts: find('.facts'), detail: find('.detail'), times: find('.times'),
      priority: find('.priority'), pick: find('.pick'),
    };
    this.buttons = [...this.element.querySelectorAll('.acts [data-do]')];
    this.controls = [this.parts.name, this.parts.pick, this.parts.menu, this.parts.priority, ...this.buttons];
    fillPriorities(this.parts.priority);
    this.parts.image.addEventListener('load', () => this.parts.image.classList.add('loaded'));
    this.isCurrent = null;
    this.setCurrent(false);
  }

  /** Shows a job. */
  bind(entry, box) {
    this.entry = entry;
    this.phase = null;
    this.element.dataset.id = entry.id;
    this.clear();
    this.resize(box);
    this.update();
  }

  /** Releases everything that belongs to the job. */
  unbind() {
    this.clear();
    this.entry = null;
  }

  /** Removes the image and its placeholder, and cancels requests for them. */
  clear() {
    this.cancelRequest?.();
    this.cancelRequest = null;
    clearTimeout(this.retry);
    this.thumbnail = null;
    this.preview = 0;
    this.isRequesting = false;
    this.parts.hash.hidden = true;
    this.parts.media.style.removeProperty('--tint');
    this.show(null);
  }

  moveTo(x, y, index, all) {
    this.element.style.transform = `translate(${x}px, ${y}px)`;
    this.element.setAttribute('aria-posinset', index + 1);
    this.element.setAttribute('aria-setsize', all);
  }

  resize(box) {
    this.box = box;
    this.element.style.width = `${box.width}px`;
    this.element.style.height = `${box.height}px`;
    this.parts.media.style.height = `${box.media}px`;
    if (this.thumbnail) this.requestThumbnail();
  }

  /** Only the controls of the current card can be reached with Tab. */
  setCurrent(isCurrent) {
    if (this.isCurrent === isCurrent) return;
    this.isCurrent = isCurrent;
    this.element.tabIndex = isCurrent ? 0 : -1;
    for (const control of this.controls) control.tabIndex = isCurrent ? 0 : -1;
  }

  setChosen(isChosen) {
    this.parts.pick.checked = isChosen;
    this.element.classList.toggle('chosen', isChosen);
  }

  update() {
    const { entry, parts } = this;
    const { job } = entry;
    const [facts, detail] = summary(entry);
    setText(parts.name, cut(entry.name, 120));
    setText(parts.where, job.attempts > 1 ? `${entry.host} · ${count(job.attempts, 'request')}` : entry.host);
    setText(parts.facts, facts);
    setText(parts.brief, [cut(facts, 120), entry.host].filter(Boolean).join(' · '));
    this.updateAge();
    setText(parts.detail, cut(detail, 300));
    setText(parts.times, times(job));
    if (this.phase !== job.phase || this.wasGone !== entry.isGone) this.enterPhase(job);
    if (parts.priority.value !== job.priority && document.activeElement !== parts.priority) {
      parts.priority.value = job.priority;
    }
    if (job.phase === 'loading') this.progress(job.progress);
    if (job.phase === 'success' && !entry.isGone) this.requestThumbnail();
  }

  /** The time since the job finished or was submitted. Shown in rows on a phone. */
  updateAge() {
    const { created_at: from, finished_at: end } = this.entry.job;
    setText(this.parts.age, ago(clock.now() - Date.parse(end ?? from)));
  }

  enterPhase(job) {
    const { parts, element } = this;
    // A preview stays visible until the image has arrived.
    if (job.phase !== 'success') this.clear();
    this.phase = job.phase;
    this.wasGone = this.entry.isGone;
    element.dataset.phase = job.phase;
    element.setAttribute('aria-label', `${cut(this.entry.name, 120)}, ${phaseWords[job.phase]}`);
    parts.pick.setAttribute('aria-label', `Select ${cut(this.entry.name, 120)}`);
    parts.menu.setAttribute('aria-label', `Actions for ${cut(this.entry.name, 120)}`);
    setText(parts.mark, phaseSigns[job.phase]);
    setText(parts.sign, phaseSigns[job.phase]);
    setText(parts.word, phaseWords[job.phase]);
    setText(parts.why.firstElementChild, job.error ? `${job.error.title}.` : '');
    setText(parts.why.lastElementChild, job.error ? cut(job.error.detail, 300) : '');
    const focused = document.activeElement;
    for (const button of this.buttons) {
      button.hidden = !allowed(this.entry, button.dataset.do);
      if (button.dataset.do === 'open') setText(button, openWord());
    }
    parts.priority.hidden = !isUnfinished(job);
    parts.bar.setAttribute('aria-hidden', job.phase !== 'loading');
    // The control with the focus may be hidden now.
    if (this.controls.includes(focused) && focused.hidden) element.focus({ preventScroll: true });
  }

  progress({ fraction, completed, total, previews }) {
    const { bar, fill } = this.parts;
    const isKnown = fraction !== null && total !== null;
    bar.classList.toggle('unknown', !isKnown && completed > 0);
    if (isKnown) {
      fill.style.transform = `scaleX(${fraction.toFixed(4)})`;
      bar.setAttribute('aria-valuenow', Math.round(fraction * 100));
    } else {
      fill.style.transform = '';
      bar.removeAttribute('aria-valuenow');
    }
    if (previews > this.preview && !this.isRequesting) this.requestPreview(previews);
  }

  requestPreview(previews) {
    this.preview = previews;
    this.isRequesting = true;
    const { entry } = this;
    this.cancelRequest = this.imageLoader.request(`jobs/${entry.id}/preview`, null, (result) => {
      this.isRequesting = false;
      if (typeof result !== 'string') return;
      // The thumbnail may have been requested or shown in the meantime.
      if (entry.job.phase === 'loading') this.show(result, true);
      else URL.revokeObjectURL(result);
      if (entry.job.progress.previews > previews) this.requestPreview(entry.job.progress.previews);
    });
  }

  requestThumbnail(attempt = 0) {
    const { entry, imageLoader } = this;
    const { path, key, isSmall } = thumbnail(entry, this.box);
    if (this.thumbnail === key && attempt === 0) return;
    this.thumbnail = key;
    this.cancelRequest?.();
    this.cancelRequest = null;
    this.parts.image.classList.toggle('small', isSmall);
    this.paint(entry.job.image);
    const cached = imageLoader.cached(key);
    if (cached) {
      this.show(cached);
      return;
    }
    this.cancelRequest = imageLoader.request(path, key, (result) => {
      this.cancelRequest = null;
      if (typeof result === 'string') this.show(result);
      else if (result instanceof Problem) this.thumbnailFailed(result, attempt);
    });
  }

  thumbnailFailed(problem, attempt) {
    if (problem.status === 404 || problem.status === 410) {
      this.onGone(this.entry, problem.status);
    } else if ([0, 429, 503].includes(problem.status) && attempt < 5) {
      this.retry = setTimeout(() => this.requestThumbnail(attempt + 1), 1000 * (problem.retryAfter ?? 2));
    }
  }

  /** Shows the dominant color and the ThumbHash until the image has arrived. */
  paint(image) {
    if (image.dominant_color) this.parts.media.style.setProperty('--tint', image.dominant_color);
    const [width, height] = upright(image);
    const { hash } = this.parts;
    hash.hidden = !image.thumbhash || !paintThumbHash(hash, image.thumbhash, width / height);
  }

  /** @param isOurs whether this card must revoke the URL. */
  show(url, isOurs = false) {
    const { image } = this.parts;
    const old = this.ours;
    this.ours = isOurs ? url : null;
    if (url) {
      image.src = url;
    } else {
      image.classList.remove('loaded');
      image.removeAttribute('src');
    }
    if (old) URL.revokeObjectURL(old);
  }
}

/**
 * The variant that fills a card. Widths are multiples of 64 pixels, so that resizing the window requests few variants.
 */
function thumbnail({ id, job: { image } }, box) {
  const width = Math.ceil(box.imageWidth / 64) * 64;
  const height = Math.ceil((width * box.media) / box.imageWidth);
  const dpr = Math.min(3, Math.ceil(window.devicePixelRatio || 1));
  const [fullWidth, fullHeight] = upright(image);
  // Images smaller than their card are not enlarged.
  const isSmall = fullWidth < box.imageWidth || fullHeight < box.media;
  const query = `width=${width}&height=${height}&fit=${isSmall ? 'scale-down' : 'cover'}&dpr=${dpr}&format=auto`;
  return { path: imagePath({ id, image }, width * dpr, query), key: `${image.etag} ${query}`, isSmall };
}

function fillPriorities(select) {
  for (const priority of [...priorities].reverse()) select.add(new Option(priorityWord(priority), priority));
  select.value = 'normal';
}
