// Sends requests to the service, with a token if it needs one.

const $ = (id) => document.getElementById(id);

/** Access to the browser's storage. Without storage nothing is kept. */
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
    } catch { /* Not kept. */ }
  },
};
const forTab = () => window.sessionStorage;
const forEver = () => window.localStorage;

/** A failed request: a problem document (RFC 9457), or no response. */
class Problem extends Error {
  constructor(status, document, retryAfter = null) {
    super(document.detail || document.title || `The service responded with ${status}.`);
    this.status = status;
    this.code = document.code ?? '';
    this.errors = Array.isArray(document.errors) ? document.errors : [];
    this.retryAfter = retryAfter;
  }

  static async of(response) {
    let document = {};
    try {
      document = (await response.json()) ?? {};
    } catch { /* A proxy responded. */ }
    return new Problem(response.status, document, Number(response.headers.get('Retry-After')) || null);
  }
}

/** The service's clock, which sets the times of jobs. The clock of this machine may be wrong. */
const clock = {
  offset: 0,
  now() {
    return Date.now() + this.offset;
  },
  note(response) {
    const date = Date.parse(response.headers.get('Date') ?? '');
    if (Number.isNaN(date)) return;
    // `Date` has whole seconds, so differences below two seconds are ignored.
    const offset = date + 500 - Date.now();
    this.offset = Math.abs(offset) < 2000 ? 0 : offset;
  },
};

/** The token, and the dialog that asks for it. */
const access = {
  token: kept.get(forTab, 'token') ?? kept.get(forEver, 'token') ?? '',
  isAsking: false,
  waiting: [],

  /** Asks for a token. Resolves when there is a new one. */
  wanted(refused) {
    // The user entered a new token while this request was running.
    if (refused !== this.token) return Promise.resolve();
    return new Promise((resolve) => {
      this.waiting.push(resolve);
      if (this.isAsking) return;
      this.isAsking = true;
      this.ask(this.token ? 'The token is not valid.' : '');
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

  /** Links can't send a token, so the link to the metrics is hidden. */
  showWhetherTaken() {
    $('forget-token').hidden = !this.token;
    $('metrics-link').hidden = Boolean(this.token);
  },

  forget() {
    kept.set(forTab, 'token', null);
    kept.set(forEver, 'token', null);
    // A reload removes everything that was loaded with the token.
    location.reload();
  },

  start() {
    this.showWhetherTaken();
    $('forget-token').addEventListener('click', () => this.forget());
    // The page is useless without a token, so the dialog is opened again. `closedby` is not supported by every browser,
    // and none lets a page block Esc for ever.
    $('token').addEventListener('close', () => {
      if (this.isAsking && !$('token').open) $('token').showModal();
    });
    $('token-form').addEventListener('submit', (event) => {
      event.preventDefault();
      const token = $('token-value').value.trim();
      if (/^[\x21-\x7e]+$/.test(token)) this.take(token, $('token-keep').checked);
      else this.ask('A token has visible ASCII characters only.');
    });
  },
};

/**
 * Sends a request. Paths are relative to the page, because the service may be behind a path prefix.
 * @throws {Problem} for every response that is not a success.
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
