// Creates the parts of the page and connects them.
//
// The scripts form one module and run in this order: words, access, order, export, address, events, jobs, images,
// card, wall, actions, details, submit, chart, glance, batches, main.
// Start reading at `Jobs` (jobs.js), which stores the jobs. `LiveEvents` and lists fill it, and `Wall` shows it.

const jobs = new Jobs();
const imageLoader = new ImageLoader();
const actions = new Actions(jobs);
const details = new Details(jobs, imageLoader, actions);
const glance = new Glance(jobs);
const batches = new Batches();
const submitting = new Submitting(jobs);
const selection = new Selection(jobs);
const wall = new Wall(jobs, imageLoader, selection, { onCount: showCounts, onGone: imageGone });

jobs.onChange = (entry, isStructural, oldPhase) => {
  wall.jobChanged(entry, isStructural);
  details.update(entry);
  if (!jobs.get(entry.id)) selection.remove(entry.id);
  if (isStructural && oldPhase !== null && oldPhase !== entry.job.phase) announcements.add(entry);
};
glance.onFigures = showCounts;
glance.onMetrics = compareFigures;
batches.onLoad = compareBatches;
batches.onChoose = (id) => search(`batch:${id}`);
batches.onCode = (id, code) => search(`batch:${id} code:${code}`);
actions.onDetails = (entry) => details.open(entry);

function imageGone(entry, status) {
  if (status === 404) {
    jobs.remove(entry.id);
    return;
  }
  entry.isGone = true;
  wall.jobChanged(entry, false);
}

// MARK: The connection

function showConnection(state, why) {
  $('connection').dataset.state = state;
  setText($('connection-text'), why ? `${state}. ${cut(why, 120)}` : state);
  $('try-now').hidden = state !== 'offline';
  if (state === 'live') submitting.answered();
}

const events = new LiveEvents({
  onJob: (job) => jobs.merge(job),
  // Events do not report purged jobs, so the list is read again.
  onOpen: () => loadList(),
  onState: showConnection,
});

let isLoading = false;

async function loadList() {
  if (isLoading) return;
  isLoading = true;
  for (let isDone = false; !isDone;) {
    try {
      await jobs.load();
      isDone = true;
    } catch (problem) {
      toast(problem.message);
      await pause(1000 * (problem.retryAfter ?? 5));
    }
  }
  isLoading = false;
  if (!wall.hasLoaded && !address.read().view) setTable(jobs.order.length >= manyJobs);
  wall.hasLoaded = true;
  await find();
}

let searches = 0;
let findTimer;

/** Queries the service once when the user stops typing. */
function findSoon() {
  clearTimeout(findTimer);
  findTimer = setTimeout(find, jobs.list.isFiltered ? 300 : 0);
}

const catchUpInterval = 5000;
let caughtUpAt = -Infinity;

/** Compares the service's metrics with the jobs on the page. For admins. */
function compareFigures() {
  if (!glance.isAdmin || isLoading || !wall.hasLoaded) return;
  jobs.compare(Object.fromEntries(phases.map((phase) => [phase, glance.figure(phase) ?? 0])), false);
  catchUp(false);
}

/**
 * Compares the queued lines of the batches with the jobs on the page. For admins the metrics are used, except when a
 * batch is new.
 */
function compareBatches(hasNew) {
  if ((glance.isAdmin && !hasNew) || isLoading || !wall.hasLoaded) return;
  jobs.compare({ queued: batches.queued }, hasNew);
  catchUp(hasNew);
}

/** Reads missing jobs if the filter includes them: one page, at most every five seconds. */
async function catchUp(isNew) {
  const jobCount = jobs.incompletePhases.reduce((all, phase) => all + jobs.counts[phase], 0);
  if (!jobs.incompletePhases.length || (jobCount >= pageSize && !isNew)) return;
  if (performance.now() < caughtUpAt + catchUpInterval) return;
  caughtUpAt = performance.now();
  try {
    await jobs.catchUp();
  } catch { /* The page's header shows the connection's state. */ }
  wall.renewSoon();
}

/** Reads jobs that match the filter and are older than those on the page. */
async function find() {
  searches += 1;
  try {
    await jobs.find();
  } catch (problem) {
    toast(problem.message);
  }
  searches -= 1;
  wall.renewSoon();
}

// MARK: Filters and counts

const chips = new Map();

function makeChips() {
  for (const phase of phases) {
    const chip = document.createElement('button');
    chip.type = 'button';
    chip.className = 'chip';
    chip.dataset.phase = phase;
    chip.setAttribute('aria-pressed', 'false');
    const [mark, word, number] = ['mark', 'word', 'number'].map((name) => {
      const part = document.createElement('span');
      part.className = name;
      chip.append(part);
      return part;
    });
    mark.textContent = phaseSigns[phase];
    mark.setAttribute('aria-hidden', 'true');
    word.textContent = phaseWords[phase];
    chip.addEventListener('click', () => {
      chip.setAttribute('aria-pressed', chip.getAttribute('aria-pressed') !== 'true');
      applyFilter();
    });
    chips.set(phase, { chip, number });
    $('phases').append(chip);
  }
}

function applyFilter() {
  const wanted = phases.filter((phase) => chips.get(phase).chip.getAttribute('aria-pressed') === 'true');
  address.write({ phases: wanted, q: $('search').value });
  jobs.setFilter(wanted, parseSearch($('search').value));
  batches.mark(jobs.parsedSearch.terms.batch);
  wall.filter();
  findSoon();
}

/** Searches in all phases. */
function search(text) {
  for (const { chip } of chips.values()) chip.setAttribute('aria-pressed', 'false');
  $('search').value = text;
  applyFilter();
}

const clearFilter = () => search('');

/** With this many jobs the table is the default. */
const manyJobs = 50;

function setTable(isTable) {
  wall.setTable(isTable);
  $('table').setAttribute('aria-pressed', String(isTable));
  $('columns').hidden = !isTable;
  sort();
}

/** In a table active jobs come first by default, among cards the newest. */
function sort() {
  const name = address.read().sort ?? (wall.isTable ? 'active' : 'newest');
  wall.sort(name);
  $('sort').value = name;
  for (const button of $('columns').querySelectorAll('button')) {
    button.setAttribute('aria-pressed', String(button.dataset.sort === name));
  }
}

function sortBy(name) {
  address.write({ sort: name });
  sort();
}

/** Applies the state in the URL's fragment. Parts that it does not have stay unchanged. */
async function goToAddress() {
  const { phases: wanted, q, job, view } = address.read();
  for (const [phase, { chip }] of chips) chip.setAttribute('aria-pressed', String(wanted.includes(phase)));
  if ($('search').value !== q) $('search').value = q;
  if (view) setTable(view === 'table');
  sort();
  applyFilter();
  if (!job) {
    $('details').close();
    return;
  }
  try {
    // The job may be older than the jobs on the page.
    if (!jobs.get(job)) jobs.merge(await (await request(`jobs/${job}`, { cache: 'no-store' })).json());
    if (jobs.get(job) && address.read().job === job) details.open(jobs.get(job));
  } catch (problem) {
    address.write({ job: null });
    toast(problem.status === 404 ? 'The service no longer has this job.' : problem.message);
  }
}

/** No event reports what queued jobs wait for, so the visible ones are requested again. */
async function refreshQueued() {
  const visible = [...wall.cards.keys()].map((id) => jobs.get(id)).filter((entry) => entry?.job.phase === 'queued');
  if (document.hidden || isLoading) return;
  const opened = details.entry?.job.phase === 'queued' ? [details.entry] : [];
  for (const { id } of new Set([...opened, ...visible.slice(0, 12)])) {
    try {
      jobs.merge(await (await request(`jobs/${id}`, { cache: 'no-store' })).json());
    } catch (problem) {
      if (problem.status === 404) jobs.remove(id);
      else return;
    }
  }
}

/** The number of jobs in the phases, and whether the service may have more. */
function total(of) {
  const counted = of.map((phase) => glance.counted(phase));
  const n = of.reduce((all, phase, index) => all + (counted[index] ?? jobs.counts[phase]), 0);
  return { n, mayBeMore: counted.includes(null) };
}

function showTotal(shown) {
  const { n, mayBeMore } = total(phases);
  const all = `${atLeast(n, mayBeMore && shown < n)} ${n === 1 ? 'job' : 'jobs'}`;
  const words = shown < n ? `${number.format(shown)} of ${all}` : all + (mayBeMore ? '; the service has more' : '');
  setText($('shown'), n > 0 ? words : '');
}

function showCounts() {
  for (const [phase, { number: element }] of chips) {
    const { n, mayBeMore } = total([phase]);
    setText(element, atLeast(n, mayBeMore));
    element.title = mayBeMore ? 'The service may have more than the number shown here.' : '';
  }
  const [shown, loadedCount] = [wall.view.length + wall.newer, jobs.order.length];
  showTotal(shown);
  glance.showFigures();
  // Hidden at first, because it would jump when the wall gets its height.
  $('foot').hidden = !wall.hasLoaded;
  $('show-all').disabled = wall.view.length === 0 && selection.ids.size === 0;
  $('newer').hidden = wall.newer === 0;
  setText($('newer'), `↑ ${count(wall.newer, 'newer job')}`);
  $('older').hidden = !jobs.hasMore;
  showNothing(shown, loadedCount);
}

function showNothing(shown, loadedCount) {
  const nothing = $('nothing');
  nothing.hidden = shown > 0 || !wall.hasLoaded || searches > 0;
  if (nothing.hidden) return;
  const isAll = !(jobs.wanted.length ? jobs.wanted : phases).some((phase) => jobs.mayMiss(phase));
  const kind = !loadedCount ? 'empty' : isAll ? 'filtered' : 'partial';
  if (nothing.dataset.kind === kind) return;
  nothing.dataset.kind = kind;
  const text = document.createElement('p');
  nothing.replaceChildren(text);
  if (!loadedCount) {
    text.textContent = 'No jobs yet. Enter a URL above, or drop an image here.';
    return;
  }
  text.textContent = isAll ? 'No job matches the filter.' : 'None of the jobs loaded so far matches the filter.';
  const all = document.createElement('button');
  all.type = 'button';
  all.textContent = 'Show all jobs';
  all.addEventListener('click', clearFilter);
  nothing.append(all);
}

/** Announces finished jobs to screen readers, at most every five seconds. */
const announcements = {
  ends: { success: 0, failure: 0, cancelled: 0 },
  add({ job }) {
    if (!(job.phase in this.ends)) return;
    this.ends[job.phase] += 1;
    this.timer ??= setTimeout(() => this.announce(), 5000);
  },
  announce() {
    const { success, failure, cancelled } = this.ends;
    const parts = [success && `${success} done`, failure && `${failure} failed`, cancelled && `${cancelled} cancelled`];
    setText($('announcements'), parts.filter(Boolean).join(', '));
    this.ends = { success: 0, failure: 0, cancelled: 0 };
    this.timer = undefined;
  },
};

// MARK: Clicks and keys

$('wall').addEventListener('click', (event) => {
  const entry = jobs.get(event.target.closest('.card')?.dataset.id);
  if (!entry) return;
  wall.visit(entry.id);
  const action = event.target.closest('[data-do]')?.dataset.do;
  if (event.target.matches('.pick')) {
    // Selects a range. The change of the clicked box has an event of its own.
    if (event.shiftKey) selection.set(entry.id, event.target.checked, wall.view);
  } else if (action) actions.run(action, entry);
  else if (event.target.closest('.media')) actions.run('details', entry);
});
$('wall').addEventListener('change', (event) => {
  const entry = jobs.get(event.target.closest('.card')?.dataset.id);
  if (entry && event.target.matches('.pick')) selection.set(entry.id, event.target.checked);
  if (entry && event.target.matches('.priority')) actions.prioritise(entry, event.target.value);
});
$('wall').addEventListener('focusin', (event) => {
  const id = event.target.closest('.card')?.dataset.id;
  if (id) wall.visit(id);
});

/** The keys for the focused card. */
const cardKeys = {
  ArrowLeft: () => wall.move(-1),
  ArrowRight: () => wall.move(1),
  ArrowUp: () => wall.move(-wall.columns),
  ArrowDown: () => wall.move(wall.columns),
  Home: () => wall.focus(wall.view[0]),
  End: () => wall.focus(wall.view.at(-1)),
  c: (entry) => actions.run('cancel', entry),
  r: (entry) => actions.run('again', entry),
  o: (entry) => actions.run('open', entry),
  Delete: (entry) => actions.run('forget', entry),
  x: ({ id }) => selection.set(id, !selection.has(id)),
};
const pageKeys = {
  '/': () => $('urls').focus(),
  s: () => $('search').focus(),
  a: () => offerAll(),
  '?': () => $('help').showModal(),
};

document.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]')) return;
  if (event.target.closest('input, textarea, select')) return;
  // Users of speech input can disable the one-letter keys (WCAG 2.1.4).
  if (event.key.length === 1 && !$('keys-on').checked) return;
  const entry = wall.focused;
  // Enter on a card, but not on a button in it.
  if (event.key === 'Enter' && event.target.matches('.card')) actions.run('details', entry);
  else if (entry && cardKeys[event.key]) cardKeys[event.key](entry);
  else if (pageKeys[event.key]) pageKeys[event.key]();
  else return;
  event.preventDefault();
});

for (const dialog of document.querySelectorAll('dialog')) {
  dialog.querySelector('[data-close]')?.addEventListener('click', () => dialog.close());
  if (dialog.id !== 'token' && dialog.id !== 'zip') closeOnOutsideClick(dialog);
}

/** Closes a dialog when a click begins and ends outside of it. A text selection in the dialog may end outside. */
function closeOnOutsideClick(dialog) {
  const isOutside = ({ target, clientX: x, clientY: y }) => {
    const { left, right, top, bottom } = dialog.getBoundingClientRect();
    return target === dialog && (x < left || x > right || y < top || y > bottom);
  };
  let hasBegun = false;
  dialog.addEventListener('pointerdown', (event) => { hasBegun = isOutside(event); });
  // Not `pointerup`: on touch screens the click would reach the element behind the dialog.
  dialog.addEventListener('click', (event) => hasBegun && isOutside(event) && dialog.close());
}

$('show-help').addEventListener('click', () => $('help').showModal());
$('keys-on').checked = storage.get(browserStorage, 'keys') !== 'off';
$('keys-on').addEventListener('change', () => storage.set(browserStorage, 'keys', $('keys-on').checked ? null : 'off'));
$('show-all').addEventListener('click', () => offerAll());
$('choose-none').addEventListener('click', () => selection.setAll([]));
for (const [name, { word }] of Object.entries(orders)) $('sort').add(new Option(word, name));
$('sort').addEventListener('change', () => sortBy($('sort').value));
for (const button of $('columns').querySelectorAll('button')) {
  button.addEventListener('click', () => sortBy(button.dataset.sort));
}

/** Opens the actions on the selected jobs, or on all that are shown. */
function offerAll() {
  const chosen = selection.entries;
  if (chosen.length) actions.offerAll(chosen, true);
  else if (wall.view.length) actions.offerAll(wall.view.map((id) => jobs.get(id)), false);
}

selection.onChange = () => {
  const n = selection.ids.size;
  setText($('show-all'), n ? `Actions on ${number.format(n)}…` : 'Actions…');
  $('choose-none').hidden = n === 0;
  $('show-all').disabled = n === 0 && wall.view.length === 0;
  wall.showChosen();
};
$('try-now').addEventListener('click', () => events.retryNow());
$('newer').addEventListener('click', () => wall.toTop());
$('older').addEventListener('click', async () => {
  try {
    await jobs.older();
  } catch (problem) {
    toast(problem.message);
  }
  wall.renewSoon();
});
$('search').addEventListener('input', applyFilter);
$('table').addEventListener('click', () => {
  setTable(!wall.isTable);
  address.write({ view: wall.isTable ? 'table' : 'cards' });
});
window.addEventListener('popstate', goToAddress);
setInterval(refreshQueued, 3000);
setInterval(() => {
  if (Wall.phone.query.matches) for (const card of wall.cards.values()) card.updateAge();
}, 10_000);

makeChips();
showCounts();
access.start();
try {
  // Before the first search, which may be for a code.
  await loadAdvice();
} catch {
  // The page works without it.
  setTimeout(() => loadAdvice().catch(() => {}), 10_000);
}
goToAddress();
events.run();
glance.run();
batches.follow();
