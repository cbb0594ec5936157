// The wall: jobs as cards, or as table rows, which are cards of another shape.
//
// Only the cards near the window are in the document, at absolute positions in a grid of equal cells. So thousands of
// jobs cost as little as forty.

class Wall {
  static minWidth = 250;
  /** Heights of a row and of the image in it, in CSS pixels. On a phone rows have two lines. */
  static row = { height: 36, imageWidth: 48 };
  static phone = { query: window.matchMedia('(max-width: 36rem)'), height: 60 };

  /** @param onCount called when the shown jobs or their number has changed. */
  constructor(jobs, imageLoader, selection, { onCount, onGone }) {
    this.jobs = jobs;
    this.selection = selection;
    this.imageLoader = imageLoader;
    this.onCount = onCount;
    this.onGone = onGone;
    this.element = $('wall');
    /** Whether jobs are shown as rows. */
    this.isTable = false;
    this.view = [];
    /** The index of each id in the view. */
    this.indices = new Map();
    this.sorting = 'newest';
    this.cards = new Map();
    this.spare = [];
    this.changed = new Set();
    /** The card that the arrow keys are at. At first the first card. */
    this.current = null;
    this.isTouched = false;
    /**
     * Jobs newer than this id are not shown until the user scrolls to the top or presses a button, so that cards don't
     * move while someone reads further down.
     */
    this.ceiling = null;
    this.isStale = true;
    this.isRequested = false;
    new ResizeObserver(() => this.measure()).observe(this.element);
    window.addEventListener('scroll', () => this.request(), { passive: true });
    window.addEventListener('resize', () => this.measure());
    this.measure();
  }

  // MARK: What changes

  /** Called when a job is new, changed or gone. */
  jobChanged(entry, isStructural) {
    if (isStructural) this.isStale = true;
    this.changed.add(entry.id);
    this.request();
  }

  /** Called when the filter has changed. */
  filter() {
    this.ceiling = null;
    this.renewSoon();
  }

  /** @param name a key of `orders`. */
  sort(name) {
    if (this.sorting === name) return;
    this.sorting = name;
    this.renewSoon();
  }

  /** Scrolls to the top and shows the newest jobs. */
  toTop() {
    this.ceiling = null;
    window.scrollTo({ top: 0 });
    this.renewSoon();
  }

  /** Computes the view again in the next frame. */
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
    // In a single column more than one card should be visible.
    const media = Math.round(cell * (columns === 1 ? 0.5 : 0.625));
    return { width: cell, imageWidth: cell, media, height: media + Math.round(rem * 10.3) };
  }

  rowBox(width) {
    const { imageWidth } = Wall.row;
    const { height } = Wall.phone.query.matches ? Wall.phone : Wall.row;
    return { width, imageWidth, media: height - 1, height };
  }

  /** Switches between cards and rows. */
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
    // Layout is read before anything is written.
    let { top } = this.element.getBoundingClientRect();
    if (this.updateCeiling(top)) this.isStale = true;
    if (this.isStale) top -= this.renew(top);
    this.mount(...this.range(top));
    for (const id of this.changed) this.cards.get(id)?.update();
    this.changed.clear();
    this.isMoved = false;
  }

  /** @returns {boolean} whether jobs were withheld until now and no longer are. */
  updateCeiling(top) {
    const isAway = top < -this.rowHeight / 2;
    if (isAway && this.ceiling === null && this.view.length) {
      this.ceiling = this.jobs.order.find((id) => this.indices.has(id)) ?? null;
    }
    if (isAway || this.ceiling === null) return false;
    this.ceiling = null;
    return true;
  }

  /**
   * Computes the view again. The card at the top of the window stays there.
   * @returns {number} the pixels that the page was scrolled for that.
   */
  renew(top) {
    const first = this.view[Math.max(0, Math.floor(-top / this.rowHeight)) * this.columns];
    const old = this.rowOf(first);
    const current = this.indexOf(this.current);
    this.view = inOrder(this.filtered(), this.sorting, this.jobs);
    this.indices = new Map(this.view.map((id, index) => [id, index]));
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
      if (!jobs.matches(jobs.get(id))) return false;
      if (ceiling === null || id <= ceiling) return true;
      this.newer += 1;
      return false;
    });
  }

  /** The indices of the first card near the window, and of the first one after it. */
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
    for (let index = from; index < to; index += 1) this.mountCard(this.view[index], index);
    if (!this.isMoved) return;
    for (const [id, card] of this.cards) {
      const index = this.indexOf(id);
      card.moveTo(...this.corner(index), index, this.view.length);
    }
    if (this.sorting !== 'newest') this.arrange();
  }

  /**
   * Puts the cards into their visible order in the document, for keyboards and screen readers. The focused card is not
   * moved, because it would lose the focus.
   */
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

  /** A card with the focus stays mounted, so that the focus is not lost. */
  isPinned(id, card) {
    return card.element.contains(document.activeElement) && this.indexOf(id) >= 0;
  }

  unmount(id, card) {
    this.cards.delete(id);
    card.element.remove();
    card.unbind();
    if (this.spare.length < 40) this.spare.push(card);
  }

  mountCard(id, index) {
    if (this.cards.has(id)) return;
    const card = this.spare.pop() ?? new Card(this.imageLoader, this.onGone);
    card.bind(this.jobs.get(id), this.box);
    card.setCurrent(id === this.current);
    card.moveTo(...this.corner(index), index, this.view.length);
    card.setChosen(this.selection.has(id));
    // Inserted in the visible order, for keyboards and screen readers. Only few cards are mounted.
    let next = null;
    for (const [other, { element }] of this.cards) {
      const otherIndex = this.indexOf(other);
      if (otherIndex > index && (next === null || otherIndex < this.indexOf(next.dataset.id))) next = element;
    }
    this.cards.set(id, card);
    this.element.insertBefore(card.element, next);
  }

  corner(index) {
    const column = index % this.columns;
    return [column * (this.box.width + this.gap), Math.floor(index / this.columns) * this.rowHeight];
  }

  /** The index of an id in the view; -1 if it is not there. */
  indexOf(id) {
    return this.indices.get(id) ?? -1;
  }

  rowOf(id) {
    const index = id === undefined ? -1 : this.indexOf(id);
    return index < 0 ? -1 : Math.floor(index / this.columns);
  }

  /** Shows which jobs are selected. */
  showChosen() {
    this.element.classList.toggle('choosing', this.selection.ids.size > 0);
    for (const [id, card] of this.cards) card.setChosen(this.selection.has(id));
  }

  // MARK: The keyboard

  /** Called when a card gets the focus. */
  visit(id) {
    this.isTouched = true;
    this.setCurrent(id);
  }

  /**
   * If the current card is no longer in the view, moves the focus to the card at its place.
   * @param index the former index of the current card.
   */
  keepCurrent(index) {
    if (!this.isTouched) {
      this.setCurrent(this.view[0] ?? null);
      return;
    }
    if (this.indexOf(this.current) >= 0) return;
    const card = this.cards.get(this.current);
    const hadFocus = card?.element.contains(document.activeElement);
    const older = this.view.findIndex((id) => id < this.current);
    const next = this.sorting !== 'newest' ? index : older < 0 ? this.view.length - 1 : older;
    this.setCurrent(this.view[Math.max(0, Math.min(next, this.view.length - 1))] ?? null);
    if (hadFocus && this.current !== null) queueMicrotask(() => this.focus(this.current));
  }

  setCurrent(id) {
    this.cards.get(this.current)?.setCurrent(false);
    this.current = id;
    this.cards.get(id)?.setCurrent(true);
  }

  /** Scrolls to a card and focuses it. */
  focus(id) {
    const index = this.indexOf(id);
    if (index < 0) return;
    this.visit(id);
    this.mountCard(id, index);
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

  /** @param step the number of cards to move by; negative: back. */
  move(step) {
    const index = this.indexOf(this.current);
    const next = Math.max(0, Math.min(this.view.length - 1, index + step));
    // Up in the first row and down in the last row do nothing.
    if (Math.abs(step) === this.columns && next !== index + step) return;
    this.focus(this.view[next]);
  }

  /** The job of the focused card. */
  get focused() {
    const id = document.activeElement?.closest('.card')?.dataset.id;
    return id && this.jobs.get(id);
  }
}
