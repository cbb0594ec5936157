// The wall of cards, or of rows, which are cards of another shape. Only those near the window are in the document,
// placed by hand on a grid of equal cells, so that thousands of jobs cost as little as forty.

class Wall {
  static minWidth = 250;
  /** Sizes of a row and of the image in it, in CSS pixels; on a phone rows have two lines. */
  static row = { height: 36, picture: 48 };
  static phone = { query: window.matchMedia('(max-width: 36rem)'), height: 60 };

  /** @param onCount called when what is shown, or how much there is of what, has changed. */
  constructor(jobs, pictures, selection, { onCount, onGone }) {
    this.jobs = jobs;
    this.selection = selection;
    this.pictures = pictures;
    this.onCount = onCount;
    this.onGone = onGone;
    this.element = $('wall');
    /** Whether jobs are rows. */
    this.isTable = false;
    this.view = [];
    /** Where each id is in the view. */
    this.places = new Map();
    this.sorting = 'newest';
    this.cards = new Map();
    this.spare = [];
    this.changed = new Set();
    /** Where the keyboard is; before it ever was on the wall, at the first card. */
    this.current = null;
    this.isTouched = false;
    /** Jobs newer than this wait behind a button, so that cards don't move under those who scrolled down. */
    this.ceiling = null;
    this.isStale = true;
    this.isRequested = false;
    new ResizeObserver(() => this.measure()).observe(this.element);
    window.addEventListener('scroll', () => this.request(), { passive: true });
    window.addEventListener('resize', () => this.measure());
    this.measure();
  }

  // MARK: What changes

  /** A job is new, changed or gone. */
  note(entry, isStructural) {
    if (isStructural) this.isStale = true;
    this.changed.add(entry.id);
    this.request();
  }

  /** Something else is looked for. */
  filter() {
    this.ceiling = null;
    this.renewSoon();
  }

  /** @param name of the orders. */
  sort(name) {
    if (this.sorting === name) return;
    this.sorting = name;
    this.renewSoon();
  }

  /** Shows the newest. */
  toTop() {
    this.ceiling = null;
    window.scrollTo({ top: 0 });
    this.renewSoon();
  }

  /** Makes the view anew in the next frame. */
  renewSoon() {
    this.isStale = true;
    this.request();
  }

  measure() {
    const width = this.element.clientWidth;
    if (!width) return;
    const columns = this.isTable ? 1 : Math.max(1, Math.floor((width + 16) / (Wall.minWidth + 16)));
    this.gap = this.isTable ? 0 : 16;
    const box = this.isTable ? this.rowBox(width) : this.cardBox(width, columns);
    if (this.box?.width !== box.width || this.box.height !== box.height) {
      this.box = box;
      for (const card of this.cards.values()) card.resize(box);
    }
    this.columns = columns;
    this.rowHeight = box.height + this.gap;
    this.isMoved = true;
    this.request();
  }

  cardBox(width, columns) {
    const rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
    const cell = Math.floor((width - this.gap * (columns - 1)) / columns);
    // Where cards fill the width, more than one is to be seen.
    const media = Math.round(cell * (columns === 1 ? 0.5 : 0.625));
    return { width: cell, picture: cell, media, height: media + Math.round(rem * 10.3) };
  }

  rowBox(width) {
    const { picture } = Wall.row;
    const { height } = Wall.phone.query.matches ? Wall.phone : Wall.row;
    return { width, picture, media: height - 1, height };
  }

  /** Cards or rows. */
  setTable(isTable) {
    if (this.isTable === isTable) return;
    this.isTable = isTable;
    this.element.classList.toggle('rows', isTable);
    this.measure();
    this.renewSoon();
  }

  request() {
    if (this.isRequested) return;
    this.isRequested = true;
    requestAnimationFrame(() => this.frame());
  }

  // MARK: A frame

  frame() {
    this.isRequested = false;
    if (!this.box) return;
    // Read before anything is written.
    let { top } = this.element.getBoundingClientRect();
    if (this.holdBack(top)) this.isStale = true;
    if (this.isStale) top -= this.renew(top);
    this.mount(...this.range(top));
    for (const id of this.changed) this.cards.get(id)?.update();
    this.changed.clear();
    this.isMoved = false;
  }

  /** @returns {boolean} whether nothing is held back any more. */
  holdBack(top) {
    const isAway = top < -this.rowHeight / 2;
    if (isAway && this.ceiling === null && this.view.length) {
      this.ceiling = this.jobs.order.find((id) => this.places.has(id)) ?? null;
    }
    if (isAway || this.ceiling === null) return false;
    this.ceiling = null;
    return true;
  }

  /**
   * Makes the view anew; what is at the window's top stays there.
   * @returns {number} how far the page was scrolled for that.
   */
  renew(top) {
    const first = this.view[Math.max(0, Math.floor(-top / this.rowHeight)) * this.columns];
    const old = this.rowOf(first);
    const current = this.indexOf(this.current);
    this.view = inOrder(this.filtered(), this.sorting, this.jobs);
    this.places = new Map(this.view.map((id, index) => [id, index]));
    this.isStale = false;
    this.isMoved = true;
    const rows = Math.ceil(this.view.length / this.columns);
    this.element.style.height = `${Math.max(0, rows * this.rowHeight - this.gap)}px`;
    this.keepCurrent(current);
    this.onCount();
    const now = this.rowOf(first);
    if (top >= 0 || old < 0 || now < 0 || now === old) return 0;
    window.scrollBy({ top: (now - old) * this.rowHeight, behavior: 'instant' });
    return (now - old) * this.rowHeight;
  }

  filtered() {
    const { jobs, ceiling } = this;
    this.newer = 0;
    return jobs.order.filter((id) => {
      if (!jobs.fits(jobs.get(id))) return false;
      if (ceiling === null || id <= ceiling) return true;
      this.newer += 1;
      return false;
    });
  }

  /** The rows near the window, as indices. */
  range(top) {
    const margin = window.innerHeight / 2;
    const first = Math.max(0, Math.floor((-top - margin) / this.rowHeight));
    const last = Math.ceil((window.innerHeight - top + margin) / this.rowHeight);
    return [first * this.columns, Math.min(this.view.length, last * this.columns)];
  }

  mount(from, to) {
    const wanted = new Set(this.view.slice(from, to));
    for (const [id, card] of this.cards) {
      if (!wanted.has(id) && !this.isPinned(id, card)) this.unmount(id, card);
    }
    for (let index = from; index < to; index += 1) this.put(this.view[index], index);
    if (!this.isMoved) return;
    for (const [id, card] of this.cards) {
      const index = this.indexOf(id);
      card.place(...this.corner(index), index, this.view.length);
    }
    if (this.sorting !== 'newest') this.arrange();
  }

  /** In the document as on the wall, for those who tab or listen; what has the focus would lose it by a move. */
  arrange() {
    const sorted = [...this.cards.values()].sort((a, b) => this.indexOf(a.entry.id) - this.indexOf(b.entry.id));
    let next = null;
    for (const { element } of sorted.reverse()) {
      if (element.nextElementSibling !== next && !element.contains(document.activeElement)) {
        this.element.insertBefore(element, next);
      }
      next = element;
    }
  }

  /** A card with the focus stays, or the focus would be lost. */
  isPinned(id, card) {
    return card.element.contains(document.activeElement) && this.indexOf(id) >= 0;
  }

  unmount(id, card) {
    this.cards.delete(id);
    card.element.remove();
    card.unbind();
    if (this.spare.length < 40) this.spare.push(card);
  }

  put(id, index) {
    if (this.cards.has(id)) return;
    const card = this.spare.pop() ?? new Card(this.pictures, this.onGone);
    card.bind(this.jobs.get(id), this.box);
    card.setCurrent(id === this.current);
    card.place(...this.corner(index), index, this.view.length);
    card.setChosen(this.selection.has(id));
    // In the order in which they are seen, for those who tab or listen. Few are there.
    let next = null;
    for (const [other, { element }] of this.cards) {
      const place = this.indexOf(other);
      if (place > index && (next === null || place < this.indexOf(next.dataset.id))) next = element;
    }
    this.cards.set(id, card);
    this.element.insertBefore(card.element, next);
  }

  corner(index) {
    const column = index % this.columns;
    return [column * (this.box.width + this.gap), Math.floor(index / this.columns) * this.rowHeight];
  }

  /** Where an id is in the view; -1: it isn't. */
  indexOf(id) {
    return this.places.get(id) ?? -1;
  }

  rowOf(id) {
    const index = id === undefined ? -1 : this.indexOf(id);
    return index < 0 ? -1 : Math.floor(index / this.columns);
  }

  /** Shows which are chosen. */
  showChosen() {
    this.element.classList.toggle('choosing', this.selection.ids.size > 0);
    for (const [id, card] of this.cards) card.setChosen(this.selection.has(id));
  }

  // MARK: The keyboard

  /** The focus has come to a card. */
  visit(id) {
    this.isTouched = true;
    this.setCurrent(id);
  }

  /**
   * Where the current card left the view, the focus goes to the one that took its place.
   * @param place where it was.
   */
  keepCurrent(place) {
    if (!this.isTouched) {
      this.setCurrent(this.view[0] ?? null);
      return;
    }
    if (this.indexOf(this.current) >= 0) return;
    const card = this.cards.get(this.current);
    const hadFocus = card?.element.contains(document.activeElement);
    const older = this.view.findIndex((id) => id < this.current);
    const next = this.sorting !== 'newest' ? place : older < 0 ? this.view.length - 1 : older;
    this.setCurrent(this.view[Math.max(0, Math.min(next, this.view.length - 1))] ?? null);
    if (hadFocus && this.current !== null) queueMicrotask(() => this.focus(this.current));
  }

  setCurrent(id) {
    this.cards.get(this.current)?.setCurrent(false);
    this.current = id;
    this.cards.get(id)?.setCurrent(true);
  }

  /** Goes to a card, wherever it is on the wall. */
  focus(id) {
    const index = this.indexOf(id);
    if (index < 0) return;
    this.visit(id);
    this.put(id, index);
    const { top } = this.element.getBoundingClientRect();
    const [, y] = this.corner(index);
    const bar = document.querySelector('.top').offsetHeight + this.gap;
    const above = top + y - bar;
    const below = top + y + this.box.height + this.gap - window.innerHeight;
    if (above < 0) window.scrollBy({ top: above, behavior: 'instant' });
    else if (below > 0) window.scrollBy({ top: below, behavior: 'instant' });
    this.cards.get(id).element.focus({ preventScroll: true });
    this.request();
  }

  /** @param step how many cards on. */
  move(step) {
    const index = this.indexOf(this.current);
    const next = Math.max(0, Math.min(this.view.length - 1, index + step));
    // Up from the first row and down from the last one leads nowhere.
    if (Math.abs(step) === this.columns && next !== index + step) return;
    this.focus(this.view[next]);
  }

  /** The job whose card has the focus. */
  get focused() {
    const id = document.activeElement?.closest('.card')?.dataset.id;
    return id && this.jobs.get(id);
  }
}
