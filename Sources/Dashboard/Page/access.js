// Sends requests to the service, with a token if it needs one.

const $ = (id) => document.getElementById(id);

/** Access to the browser's storage. Without storage nothing is kept. */
const storage = {
  get(area, name) {
    try {
      return area().getItem(name);
    } catch {
      return null;
    }
  },
  set(area, name, value) {
    try {
      if (value === null) area().removeItem(name);
      else area().setItem(name, value);
    } catch { /* Not kept. */ }
  },
};
const tabStorage = () => window.sessionStorage;
const browserStorage = () => window.localStorage;

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
  synchronize(response) {
    const date = Date.parse(response.headers.get('Date') ?? '');
    if (Number.isNaN(date)) return;
    // `Date` has whole seconds, so differences below two seconds are ignored.
    const offset = date + 500 - Date.now();
    this.offset = Math.abs(offset) < 2000 ? 0 : offset;
  },
};

/** The token, and the dialog that asks for it. */
const access = {
  token: storage.get(tabStorage, 'token') ?? storage.get(browserStorage, 'token') ?? '',
  isDialogOpen: false,
  waiting: [],

  /** Asks for a token. Resolves when there is a new one. */
  requestToken(refused) {
    // The user entered a new token while this request was running.
    if (refused !== this.token) return Promise.resolve();
    return new Promise((resolve) => {
      this.waiting.push(resolve);
      if (this.isDialogOpen) return;
      this.isDialogOpen = true;
      this.openDialog(this.token ? 'The token is not valid.' : '');
    });
  },

  openDialog(why) {
    $('token-why').textContent = why;
    $('token-why').hidden = !why;
    $('token-value').value = '';
    if (!$('token').open) $('token').showModal();
    $('token-value').focus();
  },

  setToken(token, isRemembered) {
    this.token = token;
    this.isDialogOpen = false;
    storage.set(tabStorage, 'token', token);
    storage.set(browserStorage, 'token', isRemembered ? token : null);
    $('token').close();
    this.updateLinks();
    this.waiting.splice(0).forEach((resolve) => resolve());
  },

  /** Links can't send a token, so the link to the metrics is hidden. */
  updateLinks() {
    $('forget-token').hidden = !this.token;
    $('metrics-link').hidden = Boolean(this.token);
  },

  forget() {
    storage.set(tabStorage, 'token', null);
    storage.set(browserStorage, 'token', null);
    // A reload removes everything that was loaded with the token.
    location.reload();
  },

  start() {
    this.updateLinks();
    $('forget-token').addEventListener('click', () => this.forget());
    // The page is useless without a token, so the dialog is opened again. `closedby` is not supported by every browser,
    // and none lets a page block Esc for ever.
    $('token').addEventListener('close', () => {
      if (this.isDialogOpen && !$('token').open) $('token').showModal();
    });
    $('token-form').addEventListener('submit', (event) => {
      event.preventDefault();
      const token = $('token-value').value.trim();
      if (/^[\x21-\x7e]+$/.test(token)) this.setToken(token, $('token-keep').checked);
      else this.openDialog('A token has visible ASCII characters only.');
    });
  },
};

/**
 * Sends a request. Paths are relative to the page, because the service may be behind a path prefix.
 * @throws {Problem} for every response that is not a success.
 */
async function request(path, options = {}) {
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
  clock.synchronize(response);
  if (response.ok) return response;
  if (response.status === 401) {
    await access.requestToken(token);
    return request(path, options);
  }
  throw await Problem.of(response);
}

const asJSON = (method, value, type = 'application/json') => ({
  method, headers: { 'Content-Type': type }, body: JSON.stringify(value),
});

const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
