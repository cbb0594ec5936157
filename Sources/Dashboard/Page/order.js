// The order of the jobs, and the selection.

/** The keys to sort by. Higher keys come first, then newer jobs. Each order has numbers or texts, never both. */
const orders = {
  newest: { word: 'Newest first', by: () => 0 },
  active: { word: 'Active first', by: ({ job: { phase } }) => (phase === 'loading' ? 2 : phase === 'queued' ? 1 : 0) },
  state: { word: 'By state', by: ({ job: { phase } }) => -phases.indexOf(phase) },
  name: { word: 'By name', by: (entry) => entry.name.toLowerCase(), isText: true },
  origin: { word: 'By origin', by: (entry) => entry.host, isText: true },
  size: { word: 'Largest first', by: ({ job: { image, progress } }) => image?.bytes ?? progress.completed },
  oldest: { word: 'Oldest first', by: ({ job }) => -Date.parse(job.created_at) },
  duration: { word: 'Slowest first', by: ({ job }) => duration(job) },
  attempts: { word: 'Most requests first', by: ({ job }) => job.attempts },
};

/** Milliseconds from a job's submission to its end, or until now. */
const duration = ({ created_at: from, finished_at: to }) => (to ? Date.parse(to) : clock.now()) - Date.parse(from);

/** Sorts ids. Equal ones stay newest first. */
function inOrder(ids, name, jobs) {
  const { by, isText } = orders[name];
  if (name === 'newest') return ids;
  const keys = new Map(ids.map((id) => [id, by(jobs.get(id))]));
  const collator = new Intl.Collator('en', { numeric: true });
  const compare = isText
    ? (a, b) => collator.compare(keys.get(a), keys.get(b)) : (a, b) => keys.get(b) - keys.get(a);
  return [...ids].sort(compare);
}

/** The selected jobs, for actions on many jobs. */
class Selection {
  constructor(jobs) {
    this.jobs = jobs;
    this.ids = new Set();
    /** The start of a range. */
    this.anchor = null;
    /** Called when the selection has changed. */
    this.onChange = () => {};
  }

  has(id) {
    return this.ids.has(id);
  }

  /** @param view the shown ids; selects the range from the last selected job to this one. Null: only this one. */
  set(id, isChosen, view = null) {
    const [from, to] = view && this.anchor ? [view.indexOf(this.anchor), view.indexOf(id)].sort((a, b) => a - b) : [-1, -1];
    for (const one of from < 0 ? [id] : view.slice(from, to + 1)) {
      if (isChosen) this.ids.add(one);
      else this.ids.delete(one);
    }
    this.anchor = id;
    this.onChange();
  }

  setAll(ids) {
    this.ids = new Set(ids);
    this.onChange();
  }

  remove(id) {
    if (this.ids.delete(id)) this.onChange();
  }

  /** The selected jobs, newest first. */
  get entries() {
    return this.jobs.order.filter((id) => this.ids.has(id)).map((id) => this.jobs.get(id));
  }
}
