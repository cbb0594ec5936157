// Asks the service, with a token where it wants one.

const $ = (id) => document.getElementById(id);

/** What can be kept in this browser; with storage switched off, nothing is. */
const kept = {
  get(place, name) {
    try {
      return place().getItem(name);
    } catch {
      return null;
    }
  },
  set(place, name, value) {
    try {
      if (value === null) place().removeItem(name);
      else place().setItem(name, value);
    } catch { /* It is not kept then. */ }
  },
};
const forTab = () => window.sessionStorage;
const forEver = () => window.localStorage;

/** A request that failed: a problem document (RFC 9457), or no answer. */
class Problem extends Error {
  constructor(status, document, retryAfter = null) {
    super(document.detail || document.title || `The service answered ${status}.`);
    this.status = status;
    this.code = document.code ?? '';
    this.errors = Array.isArray(document.errors) ? document.errors : [];
    this.retryAfter = retryAfter;
  }

  static async of(response) {
    let document = {};
    try {
      document = (await response.json()) ?? {};
    } catch { /* Something between here and the service answered. */ }
    return new Problem(response.status, document, Number(response.headers.get('Retry-After')) || null);
  }
}

/** The service's clock, which dates the jobs; this machine's may be wrong. */
const clock = {
  offset: 0,
  now() {
    return Date.now() + this.offset;
  },
  note(response) {
    const date = Date.parse(response.headers.get('Date') ?? '');
    if (Number.isNaN(date)) return;
    // The field has whole seconds: less than two is no difference.
    const offset = date + 500 - Date.now();
    this.offset = Math.abs(offset) < 2000 ? 0 : offset;
  },
};

/** The token, and the question for it. */
const access = {
  token: kept.get(forTab, 'token') ?? kept.get(forEver, 'token') ?? '',
  isAsking: false,
  waiting: [],

  /** Asks for a token; done when there is another one. */
  wanted(refused) {
    // Another request has been answered with the token that was given since.
    if (refused !== this.token) return Promise.resolve();
    return new Promise((resolve) => {
      this.waiting.push(resolve);
      if (this.isAsking) return;
      this.isAsking = true;
      this.ask(this.token ? 'This token is not one of the service’s.' : '');
    });
  },

  ask(why) {
    $('token-why').textContent = why;
    $('token-why').hidden = !why;
    $('token-value').value = '';
    if (!$('token').open) $('token').showModal();
    $('token-value').focus();
  },

  take(token, isKept) {
    this.token = token;
    this.isAsking = false;
    kept.set(forTab, 'token', token);
    kept.set(forEver, 'token', isKept ? token : null);
    $('token').close();
    this.showWhetherTaken();
    this.waiting.splice(0).forEach((resolve) => resolve());
  },

  /** A link sends no token: the service would refuse it. */
  showWhetherTaken() {
    $('forget-token').hidden = !this.token;
    $('metrics-link').hidden = Boolean(this.token);
  },

  forget() {
    kept.set(forTab, 'token', null);
    kept.set(forEver, 'token', null);
    // Nothing of what the token showed stays.
    location.reload();
  },

  start() {
    this.showWhetherTaken();
    $('forget-token').addEventListener('click', () => this.forget());
    // Without a token there is nothing behind the question. Not every browser knows `closedby`, and none lets a page
    // refuse Esc for ever.
    $('token').addEventListener('close', () => {
      if (this.isAsking && !$('token').open) $('token').showModal();
    });
    $('token-form').addEventListener('submit', (event) => {
      event.preventDefault();
      const token = $('token-value').value.trim();
      if (/^[\x21-\x7e]+$/.test(token)) this.take(token, $('token-keep').checked);
      else this.ask('A token is made of visible ASCII characters.');
    });
  },
};

/**
 * Sends a request; the paths are relative to the page's, which may be served below another.
 * @throws {Problem} for every answer that is no success.
 */
async function ask(path, options = {}) {
  const headers = new Headers(options.headers);
  const { token } = access;
  if (token) headers.set('Authorization', `Bearer ${token}`);
  let response;
  try {
    response = await fetch(path, { credentials: 'omit', ...options, headers });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Problem(0, { detail: 'The service does not answer.' });
  }
  clock.note(response);
  if (response.ok) return response;
  if (response.status === 401) {
    await access.wanted(token);
    return ask(path, options);
  }
  throw await Problem.of(response);
}

const asJSON = (method, value, type = 'application/json') => ({
  method, headers: { 'Content-Type': type }, body: JSON.stringify(value),
});

const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
