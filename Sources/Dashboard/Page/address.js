// Keeps the page's state in the URL's fragment: the filter, cards or table, and the job in the open dialog. A reload
// restores it, and Back closes the dialog.

const address = {
  /** Parses the fragment. */
  read() {
    const members = new URLSearchParams(location.hash.slice(1));
    const view = members.get('view');
    return {
      phases: members.getAll('phase').filter((phase) => phases.includes(phase)),
      q: members.get('q') ?? '',
      job: /^[0-9a-f-]{36}$/.test(members.get('job')) ? members.get('job') : null,
      view: view === 'table' || view === 'cards' ? view : null,
      sort: Object.hasOwn(orders, members.get('sort') ?? '') ? members.get('sort') : null,
    };
  },

  /**
   * @param changes new values for members that `read` returns.
   * @param isStep whether the change is a step in the browser's history.
   */
  write(changes, isStep = false) {
    const { phases: wanted, q, job, view, sort } = { ...this.read(), ...changes };
    const members = new URLSearchParams();
    for (const phase of wanted) members.append('phase', phase);
    for (const [name, value] of Object.entries({ q, view, sort, job })) if (value) members.set(name, value);
    const hash = members.size ? `#${members}` : '';
    if (hash === location.hash) return;
    const url = location.pathname + location.search + hash;
    if (isStep) history.pushState({ isOpened: true }, '', url);
    else history.replaceState(history.state, '', url);
  },
};
