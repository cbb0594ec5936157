// What the page shows has an address: filters, the shape, and the job whose details are open. A reload keeps it, a link
// leads there, and Back closes what was opened.

const address = {
  /** What the fragment says. */
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
   * @param changes of what `read` gives.
   * @param isStep whether Back leads to what was before.
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
